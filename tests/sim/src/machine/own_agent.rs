//! Our own agent in a machine: its state machine, and the work that the simulation does for it.

use std::net::Ipv4Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use trivet_agent_wire::{
    AGENT_PORT, ENROLMENT_PATH, EnrolmentAnswer, EnrolmentBody, HEARTBEAT_VERSION, INSPECTION_PATH,
};
use trivet_bmc_ipmi::bmc::IpmiSimulator;
use trivet_certs_enrol::{MailboxContent, prove};
use trivet_image_agent::hardware_manager::ManagerError;
use trivet_image_agent::shell::NO_LOGS;
use trivet_image_agent::state_machine::{
    AgentDueRequest, AgentIntervals, AgentMachineIdentity, AgentPhase, AgentPlan, AgentState,
    AgentWork, AgentWorkError, AgentWorkOutcome, ImageOrder, WrittenDisk,
};
use trivet_model::{Digest, KeyDigest, NodeCertificate, SeededRandom, Tick};
use trivet_rack::AgentHttpRequest;
use trivet_sim::{AgentKernelArguments, SimHardware};

use super::{SimHttpRequest, SimMachineDisk, SimMachineOutput, sha256, url_path};
use crate::ipa::SimAgentEffect;
use crate::network::{AgentCall, OwnAgentRequestKind, SimHttpClient, SimHttpResult};

/// How long erasing and writing take.
const ERASE_MS: u64 = 900;
pub(crate) const WRITE_MS: u64 = 1500;

/// Pause after an enrolment without an answer.
const ENROLMENT_RETRY_MS: u64 = 1000;

/// How far an agent is with its enrolment.
enum SimEnrolment {
    /// There was no token.
    InBand,
    /// It requests a certificate.
    Requested {
        body: EnrolmentBody,
        key: KeyDigest,
        /// When it sends the request; none while it is under way.
        due: Option<Tick>,
    },
    /// Its requests have this certificate.
    Certified(NodeCertificate),
}

/// How often a token is not found by the agent that it is for.
const LOST_ONE_IN: u64 = 6;

/// Reads the token in a BMC, and clears it. In some boots it is lost.
pub(super) fn take_token(bmc: &mut IpmiSimulator, life: u64) -> Option<MailboxContent> {
    let blocks = (0..5).map(|block| bmc.mailbox(block).unwrap_or_default());
    let bytes: Vec<u8> = blocks.flatten().collect();
    let content = MailboxContent::decode(&bytes).ok()?;
    bmc.clear_mailbox();
    (life % LOST_ONE_IN != LOST_ONE_IN - 1).then_some(content)
}

pub(super) struct OwnAgent {
    pub(super) agent_state: AgentState,
    enrolment: SimEnrolment,
    /// Calls that wait for a command to end.
    held: Vec<(String, AgentCall)>,
    /// The work in progress, and the image that is being written.
    work: Option<(String, AgentWork, Option<Vec<u8>>)>,
    /// The image that is being written ahead.
    ahead: Option<(String, ImageOrder, Option<Vec<u8>>)>,
    /// The image that this agent has written ahead; the disk has its bytes.
    ahead_image: Option<Vec<u8>>,
    /// The work in progress fetches nothing.
    uses_disk: bool,
}

/// The address of an agent.
#[derive(Clone, Copy)]
pub(super) struct SimAgentLocation {
    pub(super) machine: usize,
    pub(super) life: u64,
    pub(super) peer: Ipv4Addr,
}

/// Whether the disk has all that was written ahead of this image.
fn is_on_disk(held: Option<&[u8]>, order: &ImageOrder, disk: SimMachineDisk) -> bool {
    held.is_some_and(|image| {
        let digest = sha256(image);
        Digest::Sha256(digest) == order.digest && disk == SimMachineDisk::WrittenAhead(digest)
    })
}

/// The request of a command for its image.
fn image_request(
    location: SimAgentLocation,
    command: &str,
    order: &ImageOrder,
) -> SimMachineOutput {
    let url = order.urls.first().cloned().unwrap_or_default();
    SimMachineOutput::Http {
        client: SimHttpClient::Image {
            machine: location.machine,
            life: location.life,
            command: command.to_owned(),
        },
        peer: location.peer,
        api: false,
        request: SimHttpRequest::get(url_path(&url)),
    }
}

impl OwnAgent {
    pub(super) fn new(
        now: Tick,
        (hardware, life): (&SimHardware, u64),
        line: &AgentKernelArguments,
        address: Ipv4Addr,
        token: Option<MailboxContent>,
    ) -> Self {
        let enrolment = match token {
            None => SimEnrolment::InBand,
            Some(content) => {
                // The box of the simulation takes any bytes, and their digest as the key.
                let csr = format!("request of {} in its boot {life}", hardware.mac);
                let proof = prove(&content.token, csr.as_bytes());
                SimEnrolment::Requested {
                    body: EnrolmentBody {
                        addresses: vec![hardware.mac.to_string()],
                        csr: STANDARD.encode(&csr),
                        proof: STANDARD.encode(proof),
                    },
                    key: KeyDigest(sha256(csr.as_bytes())),
                    due: Some(now),
                }
            }
        };
        let identity = AgentMachineIdentity {
            macs: vec![hardware.mac],
            inventory: hardware.inventory(1 << 30),
            node: None,
            token: None,
            inspection: None,
            managers: Vec::new(),
        };
        let plan = AgentPlan {
            callback_url: format!("http://{address}:{AGENT_PORT}"),
            inspect: line.inspection_url.is_some(),
            sends_heartbeats: line.api_url.is_some(),
            intervals: AgentIntervals::FAST,
            api_minor: 68,
            certificate: None,
        };
        Self {
            agent_state: AgentState::new(identity, plan),
            enrolment,
            held: Vec::new(),
            work: None,
            ahead: None,
            ahead_image: None,
            uses_disk: false,
        }
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        match &self.enrolment {
            SimEnrolment::Requested { due, .. } => *due,
            SimEnrolment::InBand | SimEnrolment::Certified(_) => self.agent_state.wake_at(),
        }
    }

    /// The request for a certificate, if it is due. Nothing else is sent before its answer.
    fn enrol(&mut self, now: Tick, location: SimAgentLocation, out: &mut Vec<SimMachineOutput>) {
        let SimEnrolment::Requested { body, due, .. } = &mut self.enrolment else {
            return;
        };
        if due.take_if(|due| *due <= now).is_none() {
            return;
        }
        let mut request = SimHttpRequest::get(ENROLMENT_PATH);
        (request.method, request.body) = ("POST", json!(body).to_string().into_bytes());
        request.version = None;
        out.push(SimMachineOutput::Http {
            client: SimHttpClient::Agent {
                machine: location.machine,
                life: location.life,
                kind: OwnAgentRequestKind::Enrolment,
            },
            peer: location.peer,
            api: true,
            request,
        });
    }

    fn enrolled(
        &mut self,
        now: Tick,
        (status, body): (u16, &[u8]),
        out: &mut Vec<SimMachineOutput>,
    ) {
        let SimEnrolment::Requested { key, due, .. } = &mut self.enrolment else {
            return;
        };
        let answer: Option<EnrolmentAnswer> = serde_json::from_slice(body).ok();
        let node = answer.and_then(|answer| answer.node.parse().ok());
        match node.filter(|_| status == 200) {
            Some(node) => {
                out.push(SimMachineOutput::Observed("enrolled"));
                self.enrolment = SimEnrolment::Certified(NodeCertificate { node, key: *key });
            }
            None => *due = Some(now.after_ms(ENROLMENT_RETRY_MS)),
        }
    }

    pub(super) fn transmit(
        &mut self,
        now: Tick,
        location: SimAgentLocation,
        out: &mut Vec<SimMachineOutput>,
    ) {
        self.enrol(now, location, out);
        let certificate = match &self.enrolment {
            SimEnrolment::Requested { .. } => return,
            SimEnrolment::InBand => None,
            SimEnrolment::Certified(certificate) => Some(*certificate),
        };
        for act in self.agent_state.due_requests(now) {
            let (kind, mut request) = match act {
                AgentDueRequest::PostInspection { body } => {
                    let mut request = SimHttpRequest::get(INSPECTION_PATH);
                    (request.method, request.body, request.version) = ("POST", body, None);
                    (OwnAgentRequestKind::Inspection, request)
                }
                AgentDueRequest::Lookup { path_and_query } => (
                    OwnAgentRequestKind::Lookup,
                    SimHttpRequest::get(&path_and_query),
                ),
                AgentDueRequest::Heartbeat { path, body, .. } => {
                    let mut request = SimHttpRequest::get(&path);
                    (request.method, request.body) = ("POST", body);
                    request.version = Some(HEARTBEAT_VERSION.to_owned());
                    (OwnAgentRequestKind::Heartbeat, request)
                }
            };
            request.certificate = certificate;
            let who = SimHttpClient::Agent {
                machine: location.machine,
                life: location.life,
                kind,
            };
            out.push(SimMachineOutput::Http {
                client: who,
                peer: location.peer,
                api: true,
                request,
            });
        }
    }

    pub(super) fn handle_response(
        &mut self,
        now: Tick,
        kind: OwnAgentRequestKind,
        answer: SimHttpResult,
        entropy: &mut SeededRandom,
        out: &mut Vec<SimMachineOutput>,
    ) {
        let (status, body) = answer.unwrap_or_default();
        match kind {
            OwnAgentRequestKind::Enrolment => self.enrolled(now, (status, &body), out),
            OwnAgentRequestKind::Inspection => self
                .agent_state
                .handle_inspection_response(now, status, &body, entropy),
            OwnAgentRequestKind::Lookup => self
                .agent_state
                .handle_lookup_response(now, status, &body, entropy),
            OwnAgentRequestKind::Heartbeat => self
                .agent_state
                .handle_heartbeat_response(now, status, entropy),
        }
    }

    /// Handles a call; returns the changes to the machine that it starts.
    pub(super) fn handle_call(
        &mut self,
        now: Tick,
        (location, disk): (SimAgentLocation, SimMachineDisk),
        to: AgentCall,
        request: &AgentHttpRequest,
        out: &mut Vec<SimMachineOutput>,
    ) -> Option<SimAgentEffect> {
        if self.agent_state.phase() == AgentPhase::Rescued {
            let result = Err("connection refused".to_owned());
            out.push(SimMachineOutput::Answer { to, result });
            return None;
        }
        let body = request.body.as_deref().unwrap_or_default();
        let method = request.method.as_str();
        let reply = self
            .agent_state
            .handle_request(now, method, &request.path_and_query, body);
        if let Some(command) = reply.awaits {
            self.held.push((command, to));
        } else {
            let result = Ok((reply.status, reply.body));
            out.push(SimMachineOutput::Answer { to, result });
        }
        let (command, work) = reply.work?;
        self.start_work((location, disk), command, work, out)
    }

    fn start_work(
        &mut self,
        (location, disk): (SimAgentLocation, SimMachineDisk),
        command: String,
        work: AgentWork,
        out: &mut Vec<SimMachineOutput>,
    ) -> Option<SimAgentEffect> {
        let SimAgentLocation { machine, life, .. } = location;
        out.push(SimMachineOutput::Log(format!(
            "machine {machine} begins {work:?}"
        )));
        let ends = |after_ms, command: &str| SimMachineOutput::WorkEnds {
            life,
            command: command.to_owned(),
            after_ms,
        };
        let held = if work.changes_disks() {
            self.ahead = None;
            self.ahead_image.take()
        } else {
            None
        };
        let did = match &work {
            // As in the real agent, what was written ahead is verified on the disk.
            AgentWork::WriteImage(order)
                if !order.is_ahead
                    && order.partitions.is_none()
                    && is_on_disk(held.as_deref(), order, disk) =>
            {
                out.push(ends(200, &command));
                self.work = Some((command, work, held));
                self.uses_disk = true;
                return None;
            }
            AgentWork::WriteImage(order) => {
                out.push(image_request(location, &command, order));
                Some(SimAgentEffect::DiskInvalidated)
            }
            AgentWork::Erase { .. } => {
                out.push(ends(ERASE_MS, &command));
                Some(SimAgentEffect::DiskInvalidated)
            }
            AgentWork::Rescue { .. }
            | AgentWork::PowerOff
            | AgentWork::Reboot
            | AgentWork::Lockdown
            | AgentWork::CollectLogs
            | AgentWork::InstallBootloader(_)
            | AgentWork::Manager(_) => {
                out.push(ends(200, &command));
                None
            }
        };
        match work {
            AgentWork::WriteImage(order) if order.is_ahead => {
                self.ahead = Some((command, order, None));
            }
            work => {
                self.work = Some((command, work, None));
                self.uses_disk = false;
            }
        }
        did
    }

    pub(super) fn handle_image_response(
        &mut self,
        now: Tick,
        life: u64,
        id: &str,
        answer: SimHttpResult,
        out: &mut Vec<SimMachineOutput>,
    ) {
        let (order, place) = match (&mut self.work, &mut self.ahead) {
            (Some((command, AgentWork::WriteImage(order), place)), _) if command == id => {
                (&*order, place)
            }
            (_, Some((command, order, place))) if command == id => (&*order, place),
            _ => return,
        };
        let failure = match answer {
            Some((200, body)) => {
                let got = Digest::Sha256(sha256(&body));
                if got == order.digest {
                    *place = Some(body);
                    let command = id.to_owned();
                    out.push(SimMachineOutput::WorkEnds {
                        life,
                        command,
                        after_ms: WRITE_MS,
                    });
                    return out.push(SimMachineOutput::Writing);
                }
                AgentWorkError::Checksum {
                    want: order.digest.to_string(),
                    got: got.to_string(),
                }
            }
            Some((status, _)) => AgentWorkError::Download(format!("status {status}")),
            None => AgentWorkError::Download("no answer".to_owned()),
        };
        if order.is_ahead {
            self.ahead = None;
        } else {
            self.work = None;
        }
        self.finish(now, id, Err(failure), out);
    }

    /// Work has ended; returns its changes to the machine.
    pub(super) fn work_done(
        &mut self,
        now: Tick,
        id: &str,
        out: &mut Vec<SimMachineOutput>,
    ) -> Option<SimAgentEffect> {
        if let Some((_, order, image)) = self.ahead.take_if(|(command, ..)| command == id) {
            let image = image.unwrap_or_default();
            let outcome = AgentWorkOutcome::WroteAhead {
                bytes: image.len() as u64,
                digest: order.digest,
            };
            self.ahead_image = Some(image.clone());
            self.finish(now, id, Ok(outcome), out);
            return Some(SimAgentEffect::ImageWrittenAhead(image));
        }
        let (_, work, image) = self.work.take_if(|(command, ..)| command == id)?;
        let (outcome, did) = match work {
            AgentWork::WriteImage(_) => {
                let image = image.unwrap_or_default();
                let outcome = AgentWorkOutcome::Wrote {
                    bytes: image.len() as u64,
                    disk: WrittenDisk::default(),
                    was_on_disk: self.uses_disk,
                };
                (outcome, SimAgentEffect::ImageWritten(image))
            }
            AgentWork::Erase { .. } => (AgentWorkOutcome::Erased, SimAgentEffect::DiskErased),
            AgentWork::Rescue { .. } => (
                AgentWorkOutcome::Rescued,
                SimAgentEffect::RescueEnabled(String::new()),
            ),
            AgentWork::PowerOff => (AgentWorkOutcome::Leaving, SimAgentEffect::PoweredOff),
            AgentWork::Reboot => (AgentWorkOutcome::Leaving, SimAgentEffect::Rebooted),
            AgentWork::Lockdown => {
                self.finish(now, id, Ok(AgentWorkOutcome::Leaving), out);
                return None;
            }
            AgentWork::InstallBootloader(_) => {
                let nothing = AgentWorkOutcome::Value(Value::Null);
                self.finish(now, id, Ok(nothing), out);
                return None;
            }
            AgentWork::CollectLogs => {
                let logs = AgentWorkOutcome::Logs(NO_LOGS.to_owned());
                self.finish(now, id, Ok(logs), out);
                return None;
            }
            // Simulated machines have no managers beside ours.
            AgentWork::Manager(_) => {
                let failure = AgentWorkError::Manager(ManagerError::Incompatible);
                self.finish(now, id, Err(failure), out);
                return None;
            }
        };
        self.finish(now, id, Ok(outcome), out);
        Some(did)
    }

    /// Work has ended: replies to the callers that waited for it.
    fn finish(
        &mut self,
        now: Tick,
        id: &str,
        outcome: Result<AgentWorkOutcome, AgentWorkError>,
        out: &mut Vec<SimMachineOutput>,
    ) {
        self.agent_state.work_done(now, id, outcome);
        for (command, to) in std::mem::take(&mut self.held) {
            if self.agent_state.is_finished(&command) {
                let reply = self.agent_state.command(&command);
                let result = Ok((reply.status, reply.body));
                out.push(SimMachineOutput::Answer { to, result });
            } else {
                self.held.push((command, to));
            }
        }
    }
}
