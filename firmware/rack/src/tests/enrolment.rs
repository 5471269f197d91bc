//! One-time tokens through the boot mailbox, and the certificates that agents get for them.

use trivet_bmc_ipmi::bmc::{IpmiChassis as _, IpmiSimulator};
use trivet_certs_enrol::{MAILBOX_BYTES, MailboxContent, MailboxError, prove};
use trivet_model::order::EnrolmentRequest;
use trivet_model::{AgentAuthentication, JobPhase, KeyDigest, NodeCertificate, PowerState};

use super::power::{RackTestChassis, bmc, exchange_datagrams};
use super::*;

const CSR: &[u8] = b"signing request of the node";
const KEY: KeyDigest = KeyDigest([1; 32]);
const CA_KEY: KeyDigest = KeyDigest([0xca; 32]);

fn enrolling() -> Settings {
    Settings {
        ca_key: Some(CA_KEY),
        limits: NodeLimits {
            sends_tokens: true,
            ..NodeLimits::default()
        },
        ..settings()
    }
}

fn mailbox(bmc: &IpmiSimulator) -> Result<MailboxContent, MailboxError> {
    let blocks = (0..5).map(|block| bmc.mailbox(block).unwrap_or_default());
    let bytes: Vec<u8> = blocks.flatten().collect();
    assert_eq!(bytes.len(), MAILBOX_BYTES);
    MailboxContent::decode(&bytes)
}

/// A node under inspection, whose machine is on and whose BMC has the token.
struct Enrolling {
    bench: RackBench,
    id: NodeId,
    bmc: IpmiSimulator,
    case: RackTestChassis,
}

impl Enrolling {
    fn new() -> Self {
        Self::with(enrolling())
    }

    fn with(settings: Settings) -> Self {
        let mut bench = RackBench::with(settings);
        let id = bench.with_node(1);
        bench.force(id, |node| {
            node.provision_state = ProvisionState::Manageable;
        });
        bench.verb(id, Verb::Inspect).unwrap();
        let mut one = Self {
            bench,
            id,
            bmc: bmc(),
            case: RackTestChassis::new(false),
        };
        one.exchange_until(JobPhase::AwaitAgent);
        one
    }

    fn phase(&self) -> Option<JobPhase> {
        self.bench.node(self.id).job.map(|job| job.phase)
    }

    /// Time passes and datagrams are exchanged until the job has this phase.
    fn exchange_until(&mut self, phase: JobPhase) {
        for _ in 0..100 {
            if self.phase() == Some(phase) {
                return;
            }
            exchange_datagrams(&mut self.bench, &mut self.bmc, &mut self.case);
            self.bench.advance(1_000);
        }
        panic!("{:?}, not {phase:?}", self.phase());
    }

    fn content(&self) -> MailboxContent {
        mailbox(&self.bmc).unwrap()
    }

    fn enrol(&mut self, content: &MailboxContent, csr: &[u8], key: KeyDigest) -> bool {
        self.enrol_with(csr, key, prove(&content.token, csr).to_vec())
    }

    /// Whether the request leads to a certificate. Each refusal is the same to its caller.
    fn enrol_with(&mut self, csr: &[u8], key: KeyDigest, proof: Vec<u8>) -> bool {
        let order = RackOrder::Enrol(EnrolmentRequest {
            addresses: vec![MAC],
            csr: csr.to_vec(),
            key,
            proof,
        });
        match self.call(None, order) {
            Ok(done) => {
                assert_eq!(done, OrderOutcome::Enrolled(self.id));
                true
            }
            Err(refusal) => {
                assert_eq!(refusal, OrderRefusal::of_enrolment());
                false
            }
        }
    }

    fn call(
        &mut self,
        certificate: Option<NodeCertificate>,
        order: RackOrder,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let caller = ApiCaller {
            certificate,
            ..ApiCaller::agent(Ipv4Addr::new(10, 0, 0, 100).into())
        };
        self.bench.order_of(Arc::new(caller), order)
    }

    fn lookup(
        &mut self,
        certificate: Option<NodeCertificate>,
    ) -> Result<LookupResult, OrderRefusal> {
        let order = RackOrder::Lookup {
            addresses: vec![MAC],
            node: None,
        };
        self.call(certificate, order).map(|done| match done {
            OrderOutcome::Found(found) => *found,
            other => panic!("{other:?}"),
        })
    }

    fn own_certificate(&self) -> NodeCertificate {
        NodeCertificate {
            node: self.id,
            key: KEY,
        }
    }

    #[track_caller]
    fn has_noted(&self, part: &str) {
        let view = self.bench.rack.view();
        let timeline = &view.nodes.get(&self.id).unwrap().timeline;
        let notes: Vec<_> = timeline.iter().map(|note| note.kind.to_string()).collect();
        assert!(notes.iter().any(|note| note.contains(part)), "{notes:?}");
    }
}

#[test]
fn the_token_is_in_the_bmc_before_the_machine_is_on_and_ends_with_the_boot() {
    let mut one = Enrolling::new();
    assert_eq!(one.case.power(), PowerState::On);
    let content = one.content();
    assert_eq!(content.ca_key, CA_KEY.0);
    assert_eq!(content.unix_s, one.bench.now.wall.0 / 1000);
    let enrolment = one.bench.node(one.id).enrolment.unwrap();
    assert_eq!(enrolment.token, content.token.to_text());
    one.bench.verb(one.id, Verb::Abort).unwrap();
    for _ in 0..20 {
        exchange_datagrams(&mut one.bench, &mut one.bmc, &mut one.case);
        one.bench.advance(1_000);
    }
    assert_eq!(mailbox(&one.bmc), Err(MailboxError::Empty));
    assert_eq!(one.bench.node(one.id).enrolment, None);
}

#[test]
fn an_enrolled_agent_looks_its_node_up_and_nobody_else_does() {
    let mut one = Enrolling::new();
    let content = one.content();
    assert!(one.enrol(&content, CSR, KEY));
    one.has_noted("token from the BMC");
    let mut other_key = one.own_certificate();
    other_key.key = KeyDigest([2; 32]);
    let mut other_node = one.own_certificate();
    other_node.node = NodeId::random(&mut SeededRandom::new(9));
    for wrong in [None, Some(other_key), Some(other_node)] {
        let refusal = one.lookup(wrong).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Forbidden);
    }
    one.has_noted("read the token in its BMC");
    one.has_noted("that of another node or of an earlier boot");
    let own = Some(one.own_certificate());
    let found = one.lookup(own).unwrap();
    let node = one.bench.node(one.id);
    let caller = node.agent_caller.unwrap();
    assert_eq!(caller.authentication, AgentAuthentication::Certificate);
    assert_eq!(
        node.shown_internal_info()["agent_strength"],
        "out-of-band mTLS"
    );
    // Even the right agent token is nothing without the certificate.
    let heartbeat = RackOrder::Heartbeat {
        node: one.id,
        heartbeat: heartbeat_with(&found.agent_token),
    };
    let refusal = one.call(None, heartbeat.clone()).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Forbidden);
    one.call(own, heartbeat).unwrap();
}

#[test]
fn inspection_data_need_the_certificate_too() {
    let mut one = Enrolling::new();
    let content = one.content();
    assert!(one.enrol(&content, CSR, KEY));
    let document = json!({"inventory": {
        "interfaces": [{"name": "eth0", "mac_address": MAC.to_string()}],
        "cpu": {"count": 4, "architecture": "x86_64"},
        "memory": {"physical_mb": 2048}, "disks": [],
    }});
    let order = RackOrder::Inventory { document };
    let refusal = one.call(None, order.clone()).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Forbidden);
    let own = Some(one.own_certificate());
    assert!(one.call(own, order).is_ok());
}

#[test]
fn a_caller_that_was_faster_in_band_loses_its_session() {
    let mut one = Enrolling::new();
    let token = one.lookup(None).unwrap().agent_token;
    assert!(one.bench.node(one.id).agent.is_some());
    let content = one.content();
    assert!(one.enrol(&content, CSR, KEY));
    assert_eq!(one.bench.node(one.id).agent, None);
    let heartbeat = RackOrder::Heartbeat {
        node: one.id,
        heartbeat: heartbeat_with(&token),
    };
    assert!(one.call(None, heartbeat).is_err());
}

#[test]
fn a_token_leads_to_one_key_and_the_answer_can_be_repeated() {
    let mut one = Enrolling::new();
    let content = one.content();
    assert!(one.enrol(&content, CSR, KEY));
    assert!(one.enrol(&content, CSR, KEY), "its answer may be lost");
    assert!(!one.enrol(&content, b"another request", KeyDigest([2; 32])));
    one.has_noted("redeemed for another key");
    // A recorded proof with a swapped request.
    let proof = prove(&content.token, CSR).to_vec();
    assert!(!one.enrol_with(b"swapped", KeyDigest([2; 32]), proof));
    one.has_noted("not made with the token of this boot");
    let redeemed = one.bench.node(one.id).enrolment.unwrap().redeemed.unwrap();
    assert_eq!(redeemed.key, KEY);
}

#[test]
fn guesses_are_limited_and_the_limit_ends() {
    let mut one = Enrolling::new();
    let content = one.content();
    for guess in 0..5 {
        assert!(!one.enrol_with(CSR, KEY, vec![guess; 32]));
    }
    assert!(!one.enrol(&content, CSR, KEY), "too many wrong proofs");
    one.has_noted("must wait a minute");
    one.bench.advance(60_000);
    assert!(one.enrol(&content, CSR, KEY));
}

#[test]
fn the_token_of_an_earlier_boot_and_its_certificate_are_worthless() {
    let mut one = Enrolling::new();
    let before = one.content();
    assert!(one.enrol(&before, CSR, KEY));
    // The agent is not seen any more: the machine is booted again.
    let boot_ms = one.bench.settings.limits.boot_ms;
    one.bench.advance(boot_ms);
    one.exchange_until(JobPhase::AwaitAgent);
    let after = one.content();
    assert_ne!(after.token, before.token);
    let own = Some(one.own_certificate());
    assert!(one.lookup(own).is_err());
    assert!(!one.enrol(&before, CSR, KEY));
    assert!(one.enrol(&after, CSR, KEY));
    assert!(one.lookup(own).is_ok());
}

/// The power fails at any time: the stored token is the one in the BMC, or there is another
/// boot with another one.
#[test]
fn after_a_power_cut_the_agent_can_still_enrol() {
    for cut_after in 0..40 {
        let mut bench = RackBench::with(enrolling());
        let id = bench.with_node(1);
        bench.force(id, |node| node.provision_state = ProvisionState::Manageable);
        bench.verb(id, Verb::Inspect).unwrap();
        let mut one = Enrolling {
            bench,
            id,
            bmc: bmc(),
            case: RackTestChassis::new(false),
        };
        let mut entropy = SeededRandom::new(4);
        for _ in 0..cut_after {
            let sent = one.bench.outputs.iter().find_map(|output| match output {
                RackOutput::Bmc(BmcTransmit::Datagram { to, bytes }) => Some((*to, bytes.clone())),
                _ => None,
            });
            let Some((from, bytes)) = sent else {
                one.bench.advance(500);
                continue;
            };
            let reply = one.bmc.datagram(0, &bytes, &mut one.case, &mut entropy);
            if let Some(bytes) = reply {
                let message = BmcMessage::Datagram { from, bytes };
                one.bench.handle(RackInput::Bmc(message));
            }
        }
        one.bench = one.bench.restarted();
        one.exchange_until(JobPhase::AwaitAgent);
        let content = one.content();
        assert!(one.enrol(&content, CSR, KEY), "cut after {cut_after}");
    }
}

#[test]
fn without_a_mailbox_the_machine_boots_and_is_authenticated_in_band() {
    let mut bench = RackBench::with(enrolling());
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Manageable;
        node.driver_internal_info = trivet_model::node::JsonObject::new();
    });
    bench.verb(id, Verb::Inspect).unwrap();
    let warnings = |bench: &RackBench| {
        let view = bench.rack.view();
        let timeline = &view.nodes.get(&id).unwrap().timeline;
        let texts = timeline.iter().map(|note| note.kind.to_string());
        texts
            .filter(|text| text.contains("was not written"))
            .count()
    };
    let unsupported = trivet_model::PowerError::Unsupported { message: "no" };
    let refused = trivet_model::PowerError::Refused { code: 0xcc };
    // Hardware without IPMI is not worth a note, and the refusal of a BMC is worth one.
    for (error, noted) in [(refused.clone(), 1), (refused, 1), (unsupported, 1)] {
        bench.force(id, |node| {
            node.job.as_mut().unwrap().phase = JobPhase::SendToken;
        });
        let now = bench.now;
        let of = trivet_bmc::MailboxUse::Token;
        bench.rack.mailbox_written(now, id, of, Err(error));
        bench.handle(RackInput::Tick);
        let node = bench.node(id);
        assert_eq!(node.driver_internal_info["bmc_mailbox"], false);
        assert_eq!(node.enrolment, None);
        assert_eq!(node.job.unwrap().phase, JobPhase::PowerOn);
        assert_eq!(warnings(&bench), noted);
    }
}

#[test]
fn a_node_can_demand_that_its_agent_has_a_certificate() {
    let mut one = Enrolling::new();
    let id = one.id;
    one.bench.force(id, |node| {
        let info = &mut node.driver_info;
        info.insert("agent_require_mtls".to_owned(), true.into());
    });
    let refusal = one.lookup(None).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Forbidden);
    one.has_noted("agent_require_mtls");
    let content = one.content();
    assert!(one.enrol(&content, CSR, KEY));
    let own = Some(one.own_certificate());
    assert!(one.lookup(own).is_ok());
}

#[test]
fn the_settings_can_demand_a_certificate_and_a_node_can_differ() {
    use crate::CertificateRequirement::{Always, None as Never, WithToken};
    for (setting, own, has_token, accepted) in [
        (Never, None, true, true),
        (WithToken, None, true, false),
        (WithToken, None, false, true),
        (Always, None, false, false),
        (Always, Some(json!(false)), false, true),
        (Always, Some(json!("False")), false, true),
        (Never, Some(json!("yes")), true, false),
    ] {
        let mut one = Enrolling::with(Settings {
            agent_requirement: setting,
            ..enrolling()
        });
        one.bench.force(one.id, |node| {
            if let Some(own) = &own {
                let info = &mut node.driver_info;
                info.insert("agent_require_mtls".to_owned(), own.clone());
            }
            node.enrolment.take_if(|_| !has_token);
        });
        let case = (setting, own, has_token);
        assert_eq!(one.lookup(None).is_ok(), accepted, "{case:?}");
    }
}

#[test]
fn requests_for_unknown_machines_and_at_wrong_times_are_refused_alike() {
    let mut one = Enrolling::new();
    let content = one.content();
    let proof = prove(&content.token, CSR).to_vec();
    let order = RackOrder::Enrol(EnrolmentRequest {
        addresses: vec![MacAddr([0x52, 0x54, 0, 0, 0, 77])],
        csr: CSR.to_vec(),
        key: KEY,
        proof,
    });
    assert_eq!(one.call(None, order), Err(OrderRefusal::of_enrolment()));
    one.bench.verb(one.id, Verb::Abort).unwrap();
    assert!(!one.enrol(&content, CSR, KEY));
    one.has_noted("while no agent is expected");
}

/// Everybody on the network of the BMC could read it.
#[test]
fn a_token_is_not_sent_without_encryption() {
    for (settings, sent) in [
        (json!({"ipmi_protocol_version": "1.5"}), false),
        (json!({"ipmi_protocol_version": 1.5}), false),
        (
            json!({"ipmi_cipher_suite": 0, "ipmi_allow_cipher_suite_0": true}),
            false,
        ),
        (json!({"ipmi_cipher_suite": 3}), true),
        (json!({"ipmi_protocol_version": "2.0"}), true),
    ] {
        let mut bench = RackBench::with(enrolling());
        let id = bench.with_node(1);
        let settings = settings.as_object().unwrap();
        bench.force(id, |node| node.driver_info.extend(settings.clone()));
        let now = bench.now;
        bench.rack.send_token(now, id);
        bench.handle(RackInput::Tick);
        assert_eq!(bench.node(id).enrolment.is_some(), sent, "{settings:?}");
    }
}

/// A deployment whose agent has enrolled: where it fetches its config drive, and who else does.
#[test]
fn the_files_of_an_enrolled_node_need_its_certificate() {
    let mut one = Enrolling::with(Settings {
        https_url: "https://10.0.0.1:8444".to_owned(),
        ..enrolling()
    });
    let content = one.content();
    let own = Some(one.own_certificate());
    let path = format!("/drives/{}/{}", one.id, "t".repeat(43));
    let from = Ipv4Addr::new(10, 0, 0, 100).into();
    let is_forbidden = |one: &mut Enrolling, certificate| {
        one.bench.handle(RackInput::FileRequested {
            ticket: 7,
            protocol: crate::FileServerProtocol::Http,
            peer: from,
            certificate,
            path: path.clone(),
        });
        let outputs = one.bench.outputs.iter().rev();
        let mut grants = outputs.filter_map(|output| match output {
            RackOutput::File { ticket: 7, grant } => Some(grant),
            _ => None,
        });
        matches!(grants.next(), Some(Some(crate::FileGrant::Forbidden(_))))
    };
    assert!(!is_forbidden(&mut one, None), "it has not enrolled");
    assert!(one.enrol(&content, CSR, KEY));
    assert!(is_forbidden(&mut one, None));
    one.has_noted("requests a file of the node without the certificate");
    let mut other = one.own_certificate();
    other.key = KeyDigest([2; 32]);
    assert!(is_forbidden(&mut one, Some(other)));
    assert!(!is_forbidden(&mut one, own));
    let node = one.bench.node(one.id);
    assert!(one.bench.rack.has_closed_files(&node));
    let mut args = json!({"urls": ["http://10.0.0.1:8080/images/x"]});
    let settings = &one.bench.settings;
    settings.rewrite_urls(&mut args, "https://10.0.0.100:9999", true);
    assert_eq!(args, json!({"urls": ["https://10.0.0.1:8444/images/x"]}));
}
