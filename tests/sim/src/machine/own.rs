//! Our own agent in a machine: its brain, and the work it leaves to others.

use std::net::Ipv4Addr;

use trivet_image_agent::brain::{Act, Brain, Failure, Identity, Outcome, Pace, Plan, State, Work};
use trivet_ipa::{AGENT_PORT, HEARTBEAT_VERSION, INSPECTION_PATH};
use trivet_model::{Digest, Seeded, Tick};
use trivet_rack::Call;
use trivet_rehearsal::{Hardware, KernelLine};

use super::{Asks, Effect, path_of, sha256};
use crate::ipa::Did;
use crate::wires::{AgentCall, Answer, Asked, Who};

/// How long erasing and writing take.
const ERASE_MS: u64 = 900;
pub(crate) const WRITE_MS: u64 = 1500;

pub(super) struct Own {
    pub(super) brain: Brain,
    /// Calls that wait for a command to end.
    held: Vec<(String, AgentCall)>,
    /// The work under way, and the image that is being written.
    work: Option<(String, Work, Option<Vec<u8>>)>,
}

/// Where an agent runs.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub(super) machine: usize,
    pub(super) life: u64,
    pub(super) peer: Ipv4Addr,
}

impl Own {
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

    pub(super) fn talks(&mut self, now: Tick, seat: Seat, out: &mut Vec<Effect>) {
        for act in self.brain.next(now) {
            let (asked, asks) = match act {
                Act::PostInspection { body } => {
                    let mut asks = Asks::get(INSPECTION_PATH);
                    (asks.method, asks.body, asks.version) = ("POST", body, None);
                    (Asked::Inspection, asks)
                }
                Act::Lookup { path_and_query } => (Asked::Lookup, Asks::get(&path_and_query)),
                Act::Heartbeat { path, body, .. } => {
                    let mut asks = Asks::get(&path);
                    (asks.method, asks.body) = ("POST", body);
                    asks.version = Some(HEARTBEAT_VERSION.to_owned());
                    (Asked::Heartbeat, asks)
                }
            };
            let who = Who::Agent {
                machine: seat.machine,
                life: seat.life,
                asked,
            };
            out.push(Effect::Http {
                who,
                peer: seat.peer,
                api: true,
                asks,
            });
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Tick,
        asked: Asked,
        answer: Answer,
        entropy: &mut Seeded,
    ) {
        let (status, body) = answer.unwrap_or_default();
        match asked {
            Asked::Inspection => self.brain.inspection_answered(now, status, &body, entropy),
            Asked::Lookup => self.brain.lookup_answered(now, status, &body, entropy),
            Asked::Heartbeat => self.brain.heartbeat_answered(now, status, entropy),
        }
    }

    /// A call; what it begins to do to the machine.
    pub(super) fn called(
        &mut self,
        now: Tick,
        seat: Seat,
        to: AgentCall,
        request: &Call,
        out: &mut Vec<Effect>,
    ) -> Option<Did> {
        if self.brain.state() == State::Rescued {
            let result = Err("connection refused".to_owned());
            out.push(Effect::Answer { to, result });
            return None;
        }
        let body = request.body.as_deref().unwrap_or_default();
        let method = request.method.as_str();
        let reply = self
            .brain
            .request(now, method, &request.path_and_query, body);
        if let Some(command) = reply.awaits {
            self.held.push((command, to));
        } else {
            let result = Ok((reply.status, reply.body));
            out.push(Effect::Answer { to, result });
        }
        let (command, work) = reply.work?;
        self.begins(seat, command, work, out)
    }

    fn begins(
        &mut self,
        seat: Seat,
        command: String,
        work: Work,
        out: &mut Vec<Effect>,
    ) -> Option<Did> {
        let Seat {
            machine,
            life,
            peer,
        } = seat;
        out.push(Effect::Said(format!("machine {machine} begins {work:?}")));
        let ends = |after_ms, command: &str| Effect::WorkEnds {
            life,
            command: command.to_owned(),
            after_ms,
        };
        let did = match &work {
            Work::WriteImage(order) => {
                let url = order.urls.first().cloned().unwrap_or_default();
                let who = Who::Image {
                    machine,
                    life,
                    command: command.clone(),
                };
                let asks = Asks::get(path_of(&url));
                out.push(Effect::Http {
                    who,
                    peer,
                    api: false,
                    asks,
                });
                Some(Did::Tore)
            }
            Work::Erase { .. } => {
                out.push(ends(ERASE_MS, &command));
                Some(Did::Tore)
            }
            Work::Rescue { .. } | Work::PowerOff | Work::Reboot => {
                out.push(ends(200, &command));
                None
            }
        };
        self.work = Some((command, work, None));
        did
    }

    pub(super) fn image_came(
        &mut self,
        now: Tick,
        life: u64,
        id: &str,
        answer: Answer,
        out: &mut Vec<Effect>,
    ) {
        let Some((command, Work::WriteImage(order), place)) = &mut self.work else {
            return;
        };
        if command != id {
            return;
        }
        let failure = match answer {
            Some((200, body)) => {
                let got = Digest::Sha256(sha256(&body));
                if got == order.digest {
                    *place = Some(body);
                    let command = id.to_owned();
                    out.push(Effect::WorkEnds {
                        life,
                        command,
                        after_ms: WRITE_MS,
                    });
                    return out.push(Effect::Writing);
                }
                Failure::Checksum {
                    want: order.digest.to_string(),
                    got: got.to_string(),
                }
            }
            Some((status, _)) => Failure::Download(format!("status {status}")),
            None => Failure::Download("no answer".to_owned()),
        };
        self.work = None;
        self.finish(now, id, Err(failure), out);
    }

    /// Work has ended; what it did to the machine.
    pub(super) fn work_done(&mut self, now: Tick, id: &str, out: &mut Vec<Effect>) -> Option<Did> {
        let (_, work, image) = self.work.take_if(|(command, ..)| command == id)?;
        let (went, did) = match work {
            Work::WriteImage(_) => {
                let image = image.unwrap_or_default();
                let went = Outcome::Wrote {
                    bytes: image.len() as u64,
                    root_uuid: None,
                };
                (went, Did::Wrote(image))
            }
            Work::Erase { .. } => (Outcome::Erased, Did::Erased),
            Work::Rescue { .. } => (Outcome::Rescued, Did::LetIn(String::new())),
            Work::PowerOff => (Outcome::Leaving, Did::PoweredOff),
            Work::Reboot => (Outcome::Leaving, Did::Rebooted),
        };
        self.finish(now, id, Ok(went), out);
        Some(did)
    }

    /// Work has ended: whoever waited for it hears.
    fn finish(
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
