//! What follows from what machines want, and from what goes wrong.

use std::net::Ipv4Addr;

use trivet_ipa::{HEARTBEAT_PATH, LOOKUP_PATH};
use trivet_model::ProvisionState;

use super::World;
use crate::faults::Incident;
use crate::machine::{Asks, Blow, Disk, Effect, THIRD_REQUEST, WRITE_MS};
use crate::wires::{AgentCall, Event, Who};

impl World {
    pub(super) fn called(&mut self, url: &str, to: AgentCall, request: &trivet_rack::Call) {
        let host = url.split("://").nth(1).unwrap_or_default();
        let host = host.split(':').next().unwrap_or_default();
        let holder = host.parse().ok().and_then(|address| self.holder(address));
        let Some(machine) = holder else {
            // No machine has that address: the time-out will tell.
            return;
        };
        let mut out = Vec::new();
        self.machines[machine].called(self.now, to, request, &mut out);
        self.follow(machine, out);
    }

    /// Carries out what a machine wants.
    pub(super) fn follow(&mut self, index: usize, out: Vec<Effect>) {
        for effect in out {
            self.effect(index, effect);
        }
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        if let Some(at) = machine.deadline()
            && machine.armed.is_none_or(|armed| at < armed)
        {
            machine.armed = Some(at.max(self.now));
            self.queue
                .push(at.max(self.now), Event::Tick { machine: index });
        }
    }

    pub(super) fn effect(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Dhcp(bytes) => {
                self.datagram(|bytes| Event::BoxDhcp { from: index, bytes }, bytes);
            }
            Effect::Controlled(order) => {
                let broken = self.checks.bmcs.controlled(self.now, index, order);
                self.checks.say(broken);
            }
            Effect::Bmc(bytes) => {
                self.datagram(|bytes| Event::BoxBmc { from: index, bytes }, bytes);
            }
            Effect::Tftp { peer, to, bytes } => {
                let port = to.port();
                self.datagram(|bytes| Event::BoxTftp { peer, port, bytes }, bytes);
            }
            Effect::Http {
                who,
                peer,
                api,
                asks,
            } => self.asks(who, peer, api, asks),
            Effect::Answer { to, result } => self.agent_answers(index, &to, &result),
            Effect::WorkEnds {
                life,
                command,
                after_ms,
            } => {
                let at = self.now.after_ms(after_ms);
                self.queue.push(
                    at,
                    Event::WorkDone {
                        machine: index,
                        life,
                        command,
                    },
                );
            }
            Effect::Writing => self.writes(index),
            Effect::Holds(address) => {
                self.trace
                    .line(self.now, format_args!("{index} holds {address}"));
                self.check_addresses();
            }
            Effect::BootsDisk => self.boots_disk(index),
            Effect::Met(what) => {
                // Only a box that restarted or a wire that loses may ask more often.
                let quiet = what == THIRD_REQUEST && self.faults.are_none();
                let broken = quiet.then(|| format!("machine {index}: {what}"));
                self.checks.say(broken);
                self.met(what, index);
            }
            Effect::Served(served) => match self.checks.agents.served(index, &served) {
                Ok(None) => {}
                Ok(Some(what)) => self.met(what, index),
                Err(broken) => self.checks.say(Some(broken)),
            },
            Effect::Said(text) => self.trace.line(self.now, format_args!("{text}")),
        }
    }

    /// An agent answers a call.
    fn agent_answers(
        &mut self,
        index: usize,
        to: &AgentCall,
        result: &Result<(u16, Vec<u8>), String>,
    ) {
        let copies = 1 + u64::from(self.chance.chance(self.faults.answered_twice));
        for _ in 0..copies {
            if let Some(after_ms) = self.http_way() {
                let at = self.now.after_ms(after_ms);
                let (to, result) = (to.clone(), result.clone());
                self.queue.push(at, Event::BoxAnswered { to, result });
            } else if copies == 1 && result.is_ok() {
                self.met("answer lost", index);
            }
        }
    }

    /// An image has begun to be written, which is when agents die and power fails.
    fn writes(&mut self, index: usize) {
        let at = self.now.after_ms(self.chance.below(WRITE_MS));
        if self.chance.chance(self.faults.dies_writing) {
            let incident = Incident::Agent {
                machine: index,
                blow: Blow::Dies,
            };
            self.queue.push(at, Event::Incident(incident));
        } else if self.chance.chance(self.faults.cut_writing) {
            let back = self.chance.chance(500);
            let incident = Incident::PowerLoss {
                machine: index,
                back,
            };
            self.queue.push(at, Event::Incident(incident));
        }
    }

    pub(super) fn boots_disk(&mut self, index: usize) {
        let id = self.desks[index].node;
        let state = self
            .boxed
            .durable
            .nodes
            .get(&id)
            .map(|view| view.node.provision_state);
        let disk = self.machines[index].disk;
        self.trace.line(
            self.now,
            format_args!("{index} boots its disk: {disk:?} {state:?}"),
        );
        let active = state == Some(ProvisionState::Active);
        self.checks
            .boots_disk(index, active, disk == Disk::Image(self.image));
    }

    pub(super) fn goes_wrong(&mut self, incident: Incident) {
        let (now, mut out) = (self.now, Vec::new());
        match incident {
            Incident::BoxCut { off_ms } => {
                if self.boxed.on.is_some() {
                    self.met_by_all("box cut");
                    self.boxed.cut();
                    self.queue.push(now.after_ms(off_ms), Event::BoxStart);
                }
            }
            Incident::BoxCutInCommit { operations, off_ms } => {
                self.off_ms = off_ms;
                self.boxed.cut_in_commit(operations);
            }
            Incident::ClockStep { by_ms } => self.wall_offset_ms += by_ms,
            Incident::BmcHangs { machine, for_ms } => {
                self.machines[machine].hangs = true;
                if let Some(ms) = for_ms {
                    self.queue
                        .push(now.after_ms(ms), Event::BmcWell { machine });
                }
            }
            Incident::BmcLies {
                machine,
                lie,
                for_ms,
            } => {
                self.machines[machine].lie = Some(lie);
                self.queue
                    .push(now.after_ms(for_ms), Event::BmcWell { machine });
            }
            Incident::Agent { machine, blow } => {
                if self.machines[machine].agent_suffers(now, blow, &mut out) {
                    self.met(blow.as_str(), machine);
                }
                self.follow(machine, out);
            }
            Incident::Mute { machine, for_ms } => {
                self.machines[machine].mute = Some(now.after_ms(for_ms));
            }
            Incident::Impostor { machine } => self.impostor(machine),
            Incident::PowerLoss { machine, back } => {
                self.machines[machine].loses_power(now, back, &mut out);
                self.follow(machine, out);
            }
        }
    }

    /// Beats with a guessed token, and asks for a token of its own.
    fn impostor(&mut self, machine: usize) {
        let peer = Ipv4Addr::new(10, 0, 0, 250);
        let node = self.desks[machine].node;
        let body = serde_json::json!({
            "callback_url": "http://10.0.0.250:9999", "agent_token": "guess".repeat(9),
            "agent_version": "13.0.0",
        });
        let mut beat = Asks::get(&format!("{HEARTBEAT_PATH}{node}"));
        (beat.method, beat.body) = ("POST", body.to_string().into_bytes());
        self.asks(Who::Impostor, peer, true, beat);
        if self.chance.chance(500) {
            let mac = self.machines[machine].hardware.mac;
            let asks = Asks::get(&format!("{LOOKUP_PATH}?addresses={mac}"));
            self.asks(Who::Impostor, peer, true, asks);
        }
    }
}
