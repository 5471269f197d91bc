//! A running kernel with its address and, in the ramdisk, its agent.

use std::net::Ipv4Addr;

use trivet_image_agent::brain::{Act, Brain, Failure, Identity, Outcome, Pace, Plan, Work};
use trivet_ipa::{AGENT_PORT, HEARTBEAT_VERSION, INSPECTION_PATH};
use trivet_model::Tick;
use trivet_rehearsal::{Hardware, KernelLine};

use super::{Asks, Effect};
use crate::lodger::Lodger;
use crate::wires::{AgentCall, Asked, Who};

/// A running kernel: the agent's ramdisk or the installed system.
pub(super) struct Host {
    pub(super) lodger: Lodger,
    /// What the agent was started with; none in an installed system or after the
    /// agent's process has died.
    pub(super) line: Option<KernelLine>,
    pub(super) agent: Option<Box<Agent>>,
}

pub(super) struct Agent {
    pub(super) brain: Brain,
    /// Calls that wait for a command to end.
    pub(super) held: Vec<(String, AgentCall)>,
    /// The work under way, and the image that is being written.
    pub(super) work: Option<(String, Work, Option<Vec<u8>>)>,
}

impl Host {
    pub(super) fn agent_talks(
        &mut self,
        now: Tick,
        hardware: &Hardware,
        machine: usize,
        life: u64,
        out: &mut Vec<Effect>,
    ) {
        let Some(peer) = self.lodger.holds(now) else {
            return;
        };
        if self.agent.is_none()
            && let Some(line) = &self.line
            && line.api_url.is_some()
        {
            self.agent = Some(Box::new(Agent::new(hardware, line, peer)));
        }
        let Some(agent) = &mut self.agent else { return };
        for act in agent.brain.next(now) {
            let (asked, asks) = match act {
                Act::PostInspection { body } => {
                    let mut asks = Asks::get(INSPECTION_PATH);
                    (asks.method, asks.body, asks.version) = ("POST", body, None);
                    (Asked::Inspection, asks)
                }
                Act::Lookup { path_and_query } => (Asked::Lookup, Asks::get(&path_and_query)),
                Act::Heartbeat { path, body, .. } => {
                    let mut asks = Asks::get(&path);
                    (asks.method, asks.body, asks.version) =
                        ("POST", body, Some(HEARTBEAT_VERSION));
                    (Asked::Heartbeat, asks)
                }
            };
            let who = Who::Agent {
                machine,
                life,
                asked,
            };
            out.push(Effect::Http {
                who,
                peer,
                api: true,
                asks,
            });
        }
    }
}

impl Agent {
    pub(super) fn new(hardware: &Hardware, line: &KernelLine, address: Ipv4Addr) -> Self {
        let identity = Identity {
            macs: vec![hardware.mac],
            inventory: hardware.inventory(1 << 30),
            node: None,
            token: None,
        };
        let plan = Plan {
            callback_url: format!("http://{address}:{AGENT_PORT}"),
            inspect: line.inspection_url.is_some(),
            beat: line.api_url.is_some(),
            pace: Pace::BRISK,
        };
        Self {
            brain: Brain::new(identity, plan),
            held: Vec::new(),
            work: None,
        }
    }

    /// Work has ended: whoever waited for it hears.
    pub(super) fn finish(
        &mut self,
        now: Tick,
        id: &str,
        went: Result<Outcome, Failure>,
        out: &mut Vec<Effect>,
    ) {
        self.brain.work_done(now, id, went);
        for (command, to) in std::mem::take(&mut self.held) {
            if self.brain.is_finished(&command) {
                let reply = self.brain.command(&command);
                let result = Ok((reply.status, reply.body));
                out.push(Effect::Answer { to, result });
            } else {
                self.held.push((command, to));
            }
        }
    }
}
