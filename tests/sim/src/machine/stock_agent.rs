//! The stock agent in a machine: its process, the unit that restarts it, and its faults.

use std::net::Ipv4Addr;

use serde_json::json;
use trivet_model::{SeededRandom, Tick};
use trivet_rack::AgentHttpRequest;
use trivet_sim::{AgentKernelArguments, SimHardware};

use super::own_agent::SimAgentLocation;
use super::{AgentCallTrace, SimHttpRequest, SimMachineOutput, url_path};
use crate::ipa::{
    FETCH_TIMEOUT_MS, PORT, REQUEST_TIMEOUT_MS, RESTART_MS, SimAgentEffect, SimIpa, SimIpaOutput,
    SimIpaRequestKind, SimIpaSetup, SimIpaState,
};
use crate::network::{AgentCall, SimHttpClient, SimHttpResult};

/// A fault of an agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InjectedAgentFault {
    /// Its process ends, and systemd starts another.
    Dies,
    /// It hangs: it neither serves nor sends heartbeats, and is not restarted.
    Hangs,
    /// It is restarted and keeps its token, as if it was given out of band; so only its
    /// certificate is new.
    NewCertificate,
    /// The same, and it listens at another address.
    NewAddress,
    /// Its hardware managers change.
    NewManagers,
    /// Another client with its token starts a command.
    Busy,
    /// Its next step fails with an error message that contains its token.
    LeaksToken,
    /// It accepts its next command and the reply is lost.
    LosesAnswer,
}

impl InjectedAgentFault {
    /// Its name in the observations of a seed.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Dies => "agent died",
            Self::Hangs => "agent hung",
            Self::NewCertificate => "agent restarted with its token",
            Self::NewAddress => "agent moved",
            Self::NewManagers => "managers changed",
            Self::Busy => "agent kept busy",
            Self::LeaksToken => "agent will leak its token",
            Self::LosesAnswer => "answer will be lost",
        }
    }
}

/// The agent in the ramdisk.
pub(super) struct StockAgent {
    setup: SimIpaSetup,
    pub(super) ipa: SimIpa,
    /// When systemd starts the process again.
    restart: Option<Tick>,
    starts: u64,
    held: Vec<(String, AgentCall)>,
    pub(super) loses_answer: bool,
}

impl StockAgent {
    pub(super) fn new(
        now: Tick,
        hardware: &SimHardware,
        line: &AgentKernelArguments,
        address: Ipv4Addr,
        seed: u64,
    ) -> Self {
        let setup = SimIpaSetup {
            macs: vec![hardware.mac],
            inventory: hardware.inventory(1 << 30),
            inspects: line.inspection_url.is_some(),
            token: None,
            host: address.to_string(),
            port: PORT,
            seed,
        };
        Self {
            ipa: SimIpa::new(now, setup.clone()),
            setup,
            restart: None,
            starts: 1,
            held: Vec::new(),
            loses_answer: false,
        }
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.restart.or_else(|| self.ipa.wake_at())
    }

    fn restart_process(&mut self, now: Tick) {
        self.restart = None;
        self.starts += 1;
        self.setup.seed = self.setup.seed.wrapping_add(self.starts << 32);
        self.ipa = SimIpa::new(now, self.setup.clone());
        self.held.clear();
    }

    /// Applies a fault; false if it has no effect.
    pub(super) fn inject_fault(&mut self, now: Tick, blow: InjectedAgentFault) -> bool {
        if self.restart.is_some() {
            return false;
        }
        match blow {
            InjectedAgentFault::Dies => self.restart = Some(now.after_ms(RESTART_MS)),
            InjectedAgentFault::Hangs => self.ipa.hang(),
            InjectedAgentFault::NewCertificate | InjectedAgentFault::NewAddress => {
                if self.ipa.token().is_none() {
                    return false;
                }
                self.setup.token = self.ipa.token().map(str::to_owned);
                self.setup.inspects = false;
                if blow == InjectedAgentFault::NewAddress {
                    self.setup.port += 1;
                }
                self.restart_process(now);
            }
            InjectedAgentFault::NewManagers => self.ipa.change_managers("1.3"),
            InjectedAgentFault::Busy => {
                let Some(token) = self.ipa.token().filter(|_| self.ipa.serves()) else {
                    return false;
                };
                let flow = vec![json!({"poll.get_hardware_info": {}}); 8];
                let body = json!({"name": "flow.start_flow", "params": {"flow": flow}});
                let target = format!("/v1/commands/?agent_token={token}");
                let body = body.to_string();
                return self
                    .ipa
                    .request(now, "POST", &target, body.as_bytes())
                    .status
                    == 200;
            }
            InjectedAgentFault::LeaksToken => self.ipa.leak_token(),
            InjectedAgentFault::LosesAnswer => self.loses_answer = true,
        }
        true
    }

    pub(super) fn transmit(
        &mut self,
        now: Tick,
        location: SimAgentLocation,
        out: &mut Vec<SimMachineOutput>,
    ) -> Vec<SimAgentEffect> {
        let mut dids = Vec::new();
        if self.restart.is_some_and(|at| at <= now) {
            self.restart_process(now);
            out.push(SimMachineOutput::Observed("agent restarted"));
        }
        if self.restart.is_some() {
            return dids;
        }
        for wanted in self.ipa.next(now) {
            match wanted {
                SimIpaOutput::Request(request) => {
                    if request.kind == SimIpaRequestKind::Refresh {
                        out.push(SimMachineOutput::Observed("hint requested"));
                    }
                    let mut http_request = SimHttpRequest::get(&request.path_and_query);
                    http_request.method = request.method;
                    (http_request.version, http_request.body) = (request.version, request.body);
                    http_request.timeout_ms = REQUEST_TIMEOUT_MS;
                    let who = SimHttpClient::Stock {
                        machine: location.machine,
                        life: location.life,
                        start: self.starts,
                        kind: request.kind,
                    };
                    out.push(SimMachineOutput::Http {
                        client: who,
                        peer: location.peer,
                        api: true,
                        request: http_request,
                    });
                }
                SimIpaOutput::Fetch { command, url } => {
                    let mut http_request = SimHttpRequest::get(url_path(&url));
                    http_request.timeout_ms = FETCH_TIMEOUT_MS;
                    let who = SimHttpClient::Image {
                        machine: location.machine,
                        life: location.life,
                        command,
                    };
                    out.push(SimMachineOutput::Http {
                        client: who,
                        peer: location.peer,
                        api: false,
                        request: http_request,
                    });
                }
                SimIpaOutput::Effect(did) => dids.push(did),
            }
        }
        self.answer_held_calls(out);
        dids
    }

    /// Replies to callers that waited for a command that has ended.
    fn answer_held_calls(&mut self, out: &mut Vec<SimMachineOutput>) {
        for (command, to) in std::mem::take(&mut self.held) {
            if self.ipa.has_ended(&command) {
                let reply = self.ipa.result(&command);
                let result = Ok((reply.status, reply.body));
                out.push(SimMachineOutput::Answer { to, result });
            } else {
                self.held.push((command, to));
            }
        }
    }

    pub(super) fn handle_response(
        &mut self,
        now: Tick,
        (start, what): (u64, SimIpaRequestKind),
        answer: &SimHttpResult,
        out: &mut Vec<SimMachineOutput>,
    ) {
        if start != self.starts || self.restart.is_some() {
            return;
        }
        let before = self.ipa.state();
        let answer = answer.as_ref();
        let answer = answer.map(|(status, body)| (*status, body.as_slice()));
        self.ipa.handle_response(now, what, answer);
        match self.ipa.state() {
            SimIpaState::Stuck if before != SimIpaState::Stuck => {
                out.push(SimMachineOutput::Observed("masked token"));
            }
            SimIpaState::Exited => self.restart = Some(now.after_ms(RESTART_MS)),
            _ => {}
        }
        if what == SimIpaRequestKind::Heartbeat
            && let Some((400, body)) = answer
        {
            let body = String::from_utf8_lossy(body);
            for (words, met) in [
                ("agent_verify_ca differs", "certificate changed"),
                ("callback_url differs", "address changed"),
            ] {
                if body.contains(words) {
                    out.push(SimMachineOutput::Observed(met));
                }
            }
        }
    }

    pub(super) fn handle_image_response(
        &mut self,
        now: Tick,
        id: &str,
        answer: SimHttpResult,
        out: &mut Vec<SimMachineOutput>,
    ) {
        if self.restart.is_none() {
            let writes = matches!(answer, Some((200, _)));
            self.ipa.handle_image_response(now, id, answer);
            if writes && self.ipa.is_working() {
                out.push(SimMachineOutput::Writing);
            }
        }
    }

    /// A call to the process's own address that trusts this certificate.
    pub(super) fn handle_call(
        &mut self,
        now: Tick,
        boot: u64,
        to: AgentCall,
        request: &AgentHttpRequest,
        out: &mut Vec<SimMachineOutput>,
    ) {
        if self.restart.is_none() && self.ipa.state() == SimIpaState::Hung {
            // The kernel accepts the connection, but there is no reply.
            return;
        }
        let refuses = if self.restart.is_some() || !self.ipa.serves() {
            Some("connection refused")
        } else if to.port != self.setup.port {
            Some("connection refused at that port")
        } else if to.verify_ca.as_deref() != self.ipa.certificate() {
            Some("invalid peer certificate: UnknownIssuer")
        } else {
            None
        };
        if let Some(why) = refuses {
            let result = Err(why.to_owned());
            return out.push(SimMachineOutput::Answer { to, result });
        }
        let body = request.body.as_deref().unwrap_or_default();
        let method = request.method.as_str();
        let reply = self.ipa.request(now, method, &request.path_and_query, body);
        let lost = method == "POST" && std::mem::take(&mut self.loses_answer);
        out.push(SimMachineOutput::AgentCalled(AgentCallTrace {
            life: to.life,
            boot,
            method,
            status: reply.status,
            request: serde_json::from_slice(body).unwrap_or_default(),
            response: String::from_utf8_lossy(&reply.body).into_owned(),
        }));
        if lost {
            return out.push(SimMachineOutput::Observed("answer lost"));
        }
        if let Some(command) = reply.awaits {
            self.held.push((command, to));
        } else {
            let result = Ok((reply.status, reply.body));
            out.push(SimMachineOutput::Answer { to, result });
        }
    }

    pub(super) fn is_working(&self) -> bool {
        self.restart.is_none() && self.ipa.is_working()
    }
}

/// Random seed for the agent of a boot.
pub(super) fn seed_of(entropy: &SeededRandom, life: u64) -> u64 {
    use trivet_model::Entropy as _;
    let mut own = entropy.clone();
    own.number() ^ life
}
