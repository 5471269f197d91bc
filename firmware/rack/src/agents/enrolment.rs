//! One-time tokens through the boot mailbox of a BMC, and the certificates that agents get for
//! them.
//!
//! A token is made for each boot and stored before it is sent. After a power cut another one is
//! made, so that the token in the BMC is always the stored one or worthless. The first signing
//! request that is proven with the token is the node's for this boot; from then on nobody without
//! its key is the node's agent.

use std::net::IpAddr;

use trivet_bmc::MailboxUse;
use trivet_bmc_ipmi::ipmi_target;

use trivet_certs_enrol::{EnrolmentToken, MAILBOX_BYTES, MailboxContent, redeem};
use trivet_drivers::external_http_url;
use trivet_model::bmc_request::HiddenBytes;
use trivet_model::order::EnrolmentRequest;
use trivet_model::{
    AgentAuthentication, ApiCaller, KeyDigest, Node, NodeCertificate, NodeEnrolment, NodeId,
    NoteKind, Now, OrderOutcome, OrderRefusal, PowerError, RedeemedEnrolment, RefusalKind,
};
use trivet_node::NodeEvent;

use crate::Rack;

/// The key in `driver_internal_info` of whether the BMC has a boot mailbox.
const BMC_MAILBOX: &str = "bmc_mailbox";

const NOT_EXPECTED: &str = "it requests a certificate while no agent is expected to boot there";

const NO_TOKEN: &str = "it requests a certificate, and no token was sent to the BMC for this boot";

const TOO_MANY: &str = "it sent too many wrong proofs and must wait a minute";

const NO_CERTIFICATE: &str = "it has not the certificate that the node's agent got in this boot; \
                              only the machine that read the token in its BMC has it";

const OTHER_CERTIFICATE: &str = "its certificate is that of another node or of an earlier boot";

const REQUIRED: &str = "it has no certificate, and agent.require in the settings or \
                        agent_require_mtls in driver_info demands one; use the agent of this \
                        release, and a BMC with a boot mailbox";

const FILE_OF_NODE: &str = "it requests a file of the node without the certificate that the \
                            node's agent got in this boot";

/// What a client is told that requests a file of another machine.
pub(crate) const NEEDS_CERTIFICATE: &str = "this needs the certificate of the node's agent";

/// Which agents need a certificate from their first request on, unless `driver_info` of the node
/// says otherwise. An agent that has enrolled needs it in any case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CertificateRequirement {
    /// None.
    #[default]
    None,
    /// Those of nodes whose BMC has the token of this boot.
    WithToken,
    /// All.
    Always,
}

/// How an agent that calls without its token is authenticated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallerStrength {
    /// It has the certificate of this boot.
    Certificate,
    /// It has none, and none is demanded.
    InBand,
}

impl CallerStrength {
    /// How the caller is authenticated, if its address says this.
    pub(crate) fn or(self, by_address: AgentAuthentication) -> AgentAuthentication {
        match self {
            Self::Certificate => AgentAuthentication::Certificate,
            Self::InBand => by_address,
        }
    }
}

impl Rack {
    /// The job needs a token in the BMC of its machine.
    pub(crate) fn send_token(&mut self, now: Now, id: NodeId) {
        let node = self.require_node(id).ok().filter(encrypts);
        let (Some(ca_key), Some(mut node)) = (self.settings.ca_key, node) else {
            return self.events.push_back((id, NodeEvent::TokenSent));
        };
        let token = EnrolmentToken::mint(&mut *self.entropy);
        node.enrolment = Some(NodeEnrolment {
            token: token.to_text(),
            redeemed: None,
        });
        self.records.put_node(now, node);
        let content = MailboxContent {
            token,
            unix_s: now.wall.0 / 1000,
            ca_key: ca_key.0,
        };
        self.write_mailbox(now, id, content.encode(), MailboxUse::Token);
    }

    /// The boot has ended: the token in the mailbox is no longer valid.
    pub(crate) fn clear_mailbox(&mut self, now: Now, id: NodeId) {
        self.write_mailbox(now, id, [0; MAILBOX_BYTES], MailboxUse::Clearing);
    }

    fn write_mailbox(
        &mut self,
        now: Now,
        id: NodeId,
        content: [u8; MAILBOX_BYTES],
        of: MailboxUse,
    ) {
        let (bmcs, mut context) = self.bmcs_and_context(now);
        bmcs.write_mailbox(&mut context, id, HiddenBytes::new(content), of);
    }

    pub(crate) fn mailbox_written(
        &mut self,
        now: Now,
        id: NodeId,
        of: MailboxUse,
        result: Result<(), PowerError>,
    ) {
        if of == MailboxUse::Clearing {
            return;
        }
        let mut was_known = false;
        if let Ok(mut node) = self.require_node(id) {
            // A BMC that did not answer may have a mailbox.
            let known = match &result {
                Ok(()) => Some(true),
                Err(error) => has_none(error).then_some(false),
            };
            if let Some(known) = known {
                let info = &mut node.driver_internal_info;
                let before = info.insert(BMC_MAILBOX.to_owned(), known.into());
                was_known = before == Some(known.into());
            }
            if result.is_err() {
                // A part of the token may be in the BMC.
                node.enrolment = None;
            }
            self.records.put_node(now, node);
        }
        // That a BMC has no mailbox is noted once, and not at all for hardware that has no BMC
        // with IPMI.
        let is_unusual = match &result {
            Ok(()) => false,
            Err(error) if error.is_refusal() => !was_known,
            Err(error) => !has_none(error),
        };
        if let Err(error) = result
            && is_unusual
        {
            let why = format!(
                "the token of this boot was not written into the BMC: {error}; the agent is \
                 authenticated without it"
            );
            self.note(now, Some(id), NoteKind::Warning { why });
        }
        self.events.push_back((id, NodeEvent::TokenSent));
    }

    /// An agent requests a certificate.
    pub(crate) fn enrol(
        &mut self,
        now: Now,
        from: IpAddr,
        request: &EnrolmentRequest,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let owner = self.only_owner(now, from, &request.addresses);
        let node = owner.and_then(|id| self.require_node(id).ok());
        let mut node = node.ok_or_else(OrderRefusal::of_enrolment)?;
        let id = node.id;
        let redeemed = self.redeemed(now, &node, from, request);
        let redeemed = redeemed.map_err(|why| {
            self.note_refused(now, id, from, why);
            OrderRefusal::of_enrolment()
        })?;
        if let Some(enrolment) = &mut node.enrolment
            && enrolment.redeemed.is_none()
        {
            enrolment.redeemed = Some(redeemed);
            // A caller that looked the node up before has proven less.
            node.agent = None;
            self.records.put_node(now, node);
            let from = from.to_canonical();
            self.note(now, Some(id), NoteKind::AgentEnrolled { from });
        }
        Ok(OrderOutcome::Enrolled(id))
    }

    fn redeemed(
        &mut self,
        now: Now,
        node: &Node,
        from: IpAddr,
        request: &EnrolmentRequest,
    ) -> Result<RedeemedEnrolment, &'static str> {
        if !self.agents.failed_proofs.allows(now.tick, from) {
            return Err(TOO_MANY);
        }
        if !trivet_node::boots_agent(node) || trivet_node::awaits_reset(node) {
            return Err(NOT_EXPECTED);
        }
        let enrolment = node.enrolment.as_ref().ok_or(NO_TOKEN)?;
        let token = EnrolmentToken::from_text(&enrolment.token).ok_or(NO_TOKEN)?;
        let before = enrolment.redeemed.map(|redeemed| redeemed.request.0);
        let digest = redeem(&token, before.as_ref(), &request.csr, &request.proof);
        let digest = digest.map_err(|refusal| {
            self.agents.failed_proofs.failed(now.tick, from);
            refusal.reason()
        })?;
        Ok(RedeemedEnrolment {
            request: KeyDigest(digest),
            key: request.key,
        })
    }

    /// Whether the agent of the node fetches its files over TLS, and nobody else does. A node
    /// whose machine reaches the box at another URL fetches them there.
    pub(crate) fn has_closed_files(&self, node: &Node) -> bool {
        let redeemed = node.enrolment.as_ref().and_then(|one| one.redeemed);
        let has_own_url = !matches!(external_http_url(&node.driver_info), Ok(None));
        !self.settings.https_url.is_empty() && redeemed.is_some() && !has_own_url
    }

    /// Whether this client may fetch the config drive and the image of the node, as far as
    /// certificates say.
    pub(crate) fn may_fetch(
        &mut self,
        now: Now,
        id: NodeId,
        peer: IpAddr,
        certificate: Option<NodeCertificate>,
    ) -> bool {
        let Some(node) = self.records.node(id).cloned() else {
            return true;
        };
        let is_own = certificate.is_some_and(|shown| is_of_boot(&node, shown));
        let allowed = is_own || !self.has_closed_files(&node);
        if !allowed {
            self.note_refused(now, id, peer, FILE_OF_NODE);
        }
        allowed
    }

    fn requires_certificate(&self, node: &Node) -> bool {
        let by_settings = match self.settings.agent_requirement {
            CertificateRequirement::None => false,
            CertificateRequirement::WithToken => node.enrolment.is_some(),
            CertificateRequirement::Always => true,
        };
        node.requires_enrolment().unwrap_or(by_settings)
    }

    /// Whether this caller may be the agent of the node in this boot, as far as certificates
    /// say.
    pub(crate) fn check_certificate(
        &mut self,
        now: Now,
        node: &Node,
        caller: &ApiCaller,
    ) -> Result<CallerStrength, OrderRefusal> {
        let redeemed = node.enrolment.as_ref().and_then(|one| one.redeemed);
        let why = match (caller.certificate, redeemed) {
            (Some(shown), _) if is_of_boot(node, shown) => {
                return Ok(CallerStrength::Certificate);
            }
            (Some(_), _) => OTHER_CERTIFICATE,
            (None, Some(_)) => NO_CERTIFICATE,
            (None, None) if self.requires_certificate(node) => REQUIRED,
            (None, None) => return Ok(CallerStrength::InBand),
        };
        self.note_refused(now, node.id, caller.from, why);
        Err(OrderRefusal::new(
            RefusalKind::Forbidden,
            "This needs the certificate of the node's agent.",
        ))
    }
}

/// Whether this is the certificate of the node's agent in this boot.
fn is_of_boot(node: &Node, shown: NodeCertificate) -> bool {
    let redeemed = node.enrolment.as_ref().and_then(|one| one.redeemed);
    shown.node == node.id && redeemed.is_some_and(|redeemed| shown.key == redeemed.key)
}

/// Whether the node's BMC is reached in a way that keeps a token secret.
fn encrypts(node: &Node) -> bool {
    ipmi_target(&node.driver_info).is_ok_and(|target| target.is_encrypted())
}

/// Whether the BMC has no mailbox, as far as this error says.
const fn has_none(error: &PowerError) -> bool {
    error.is_refusal() || matches!(error, PowerError::Unsupported { .. })
}
