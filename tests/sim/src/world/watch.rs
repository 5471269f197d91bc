//! Where each node's job is, what waits for it there, and what was met.

use trivet_model::{NodeId, NoteKind};
use trivet_rack::Call;

use super::World;
use crate::ambush;
use crate::faults::Incident;
use crate::ipa::What;
use crate::wires::{Asked, Event, Who};

impl World {
    /// Looks at what the box has made durable.
    pub(super) fn watch(&mut self) {
        for machine in 0..self.desks.len() {
            let id = self.desks[machine].node;
            let Some(view) = self.boxed.durable.nodes.get(&id) else {
                continue;
            };
            let node = std::sync::Arc::clone(&view.node);
            let place = ambush::place(&node);
            if node.job.is_none() {
                self.checks.agents.rests(machine);
            }
            self.checks.shows(&node);
            if self.places[machine] == place {
                continue;
            }
            self.places[machine] = place;
            self.springs(machine);
        }
    }

    /// What waited for a node where it is now happens.
    fn springs(&mut self, machine: usize) {
        let place = &self.places[machine];
        let waits = |it: &ambush::Ambush| it.machine == machine && it.place == place;
        let ambushes = &mut self.faults.ambushes;
        let (now_due, later) = ambushes.iter().copied().partition::<Vec<_>, _>(waits);
        *ambushes = later;
        for ambush in now_due {
            let incident = ambush.incident;
            if ambush.after_ms == 0 && matches!(incident, Incident::BoxCut { .. }) {
                self.goes_wrong(incident);
            } else {
                let at = self.now.after_ms(ambush.after_ms);
                self.queue.push(at, Event::Incident(incident));
            }
        }
    }

    /// Something was met where this machine's node is.
    pub(super) fn met(&mut self, what: &str, machine: usize) {
        let place = self.places.get(machine).map_or("", String::as_str);
        *self.met.entry(format!("{what} @ {place}")).or_default() += 1;
    }

    pub(super) fn met_by_all(&mut self, what: &str) {
        for machine in 0..self.machines.len() {
            self.met(what, machine);
        }
    }

    fn machine_of(&self, node: NodeId) -> Option<usize> {
        self.desks.iter().position(|desk| desk.node == node)
    }

    /// The box calls an agent.
    pub(super) fn ordered(&mut self, node: NodeId, call: u64, request: &Call) {
        let life = self.boxed.life;
        if let (Some(machine), Some(_)) = (self.machine_of(node), &request.body) {
            let boot = self.machines[machine].turns();
            let broken = self.checks.agents.ordered(machine, (life, boot), call);
            self.checks.say(broken);
        }
    }

    pub(super) fn noted(&mut self, node: Option<NodeId>, kind: &NoteKind) {
        let machine = node.and_then(|node| self.machine_of(node));
        if let (Some(machine), NoteKind::StepDone { step }) = (machine, kind) {
            self.checks.agents.done(machine, step);
        }
    }

    /// Whether this is a beat that is lost because its machine is mute.
    pub(super) fn is_muted(&mut self, who: &Who) -> bool {
        let machine = match who {
            Who::Agent {
                machine,
                asked: Asked::Heartbeat,
                ..
            }
            | Who::Stock {
                machine,
                what: What::Heartbeat,
                ..
            } => *machine,
            _ => return false,
        };
        let muted = self.machines[machine].mute;
        if muted.is_none_or(|until| until <= self.now) {
            return false;
        }
        self.met("beat lost", machine);
        true
    }
}
