//! Watches the point of each node's job, triggers its fault points, and counts observations.

use trivet_model::{NodeId, NoteKind};
use trivet_rack::AgentHttpRequest;

use super::RackSimulation;
use crate::fault_points;
use crate::faults::Incident;
use crate::ipa::SimIpaRequestKind;
use crate::network::{OwnAgentRequestKind, SimEvent, SimHttpClient};

/// The command that writes an image ahead.
const AHEAD_COMMAND: &str = "standby.write_image_ahead";

impl RackSimulation {
    /// Reads the durable state of the box.
    pub(super) fn observe_jobs(&mut self) {
        for machine in 0..self.operators.len() {
            let id = self.operators[machine].node;
            let Some(view) = self.box_under_test.durable.nodes.get(&id) else {
                continue;
            };
            let node = std::sync::Arc::clone(&view.node);
            let place = fault_points::job_point(&node);
            if node.job.is_none() {
                self.checks.agents.job_ended(machine);
            }
            self.checks.check_node(&node);
            if self.job_points[machine] == place {
                continue;
            }
            self.job_points[machine] = place;
            self.trigger_fault_points(machine);
        }
    }

    /// Triggers the faults for the present point of a node.
    fn trigger_fault_points(&mut self, machine: usize) {
        let place = &self.job_points[machine];
        let waits = |it: &fault_points::FaultPoint| it.machine == machine && it.job_point == place;
        let ambushes = &mut self.faults.fault_points;
        let (now_due, later) = ambushes.iter().copied().partition::<Vec<_>, _>(waits);
        *ambushes = later;
        for point in now_due {
            let incident = point.incident;
            if point.after_ms == 0 && matches!(incident, Incident::BoxCut { .. }) {
                self.apply_incident(incident);
            } else {
                let at = self.now.after_ms(point.after_ms);
                self.queue.push(at, SimEvent::Incident(incident));
            }
        }
    }

    /// Counts an observation at the point of this machine's node.
    pub(super) fn count_observation(&mut self, what: &str, machine: usize) {
        let place = self.job_points.get(machine).map_or("", String::as_str);
        *self
            .observed
            .entry(format!("{what} @ {place}"))
            .or_default() += 1;
    }

    pub(super) fn count_observation_for_all(&mut self, what: &str) {
        for machine in 0..self.machines.len() {
            self.count_observation(what, machine);
        }
    }

    fn machine_of(&self, node: NodeId) -> Option<usize> {
        self.operators
            .iter()
            .position(|operator| operator.node == node)
    }

    /// The box calls an agent.
    pub(super) fn agent_called(&mut self, node: NodeId, call: u64, request: &AgentHttpRequest) {
        let life = self.box_under_test.life;
        // An order to write ahead keeps our own agent from nothing, and nothing waits for it.
        let body = request.body.as_deref().unwrap_or_default();
        let ahead = AHEAD_COMMAND.as_bytes();
        let is_ahead = body.windows(ahead.len()).any(|part| part == ahead);
        if let (Some(machine), Some(_), false) = (self.machine_of(node), &request.body, is_ahead) {
            let boot = self.machines[machine].power_changes();
            let broken = self.checks.agents.call_sent(machine, (life, boot), call);
            self.checks.report(broken);
        }
    }

    pub(super) fn note_written(&mut self, node: Option<NodeId>, kind: &NoteKind) {
        let machine = node.and_then(|node| self.machine_of(node));
        let Some(machine) = machine else { return };
        match kind {
            NoteKind::StepDone { step } => self.checks.agents.step_done(machine, step),
            NoteKind::ImageAheadStarted { .. }
            | NoteKind::ImageAheadWritten { .. }
            | NoteKind::ImageAheadFailed { .. }
            | NoteKind::ImageWasOnDisk { .. } => {
                let count = self.observed.entry(kind.name().to_owned());
                *count.or_default() += 1;
            }
            _ => {}
        }
    }

    /// Whether this is a heartbeat that is lost because of a fault.
    pub(super) fn loses_heartbeat(&mut self, who: &SimHttpClient) -> bool {
        let machine = match who {
            SimHttpClient::Agent {
                machine,
                kind: OwnAgentRequestKind::Heartbeat,
                ..
            }
            | SimHttpClient::Stock {
                machine,
                kind: SimIpaRequestKind::Heartbeat,
                ..
            } => *machine,
            _ => return false,
        };
        let muted = self.machines[machine].heartbeats_lost_until;
        if muted.is_none_or(|until| until <= self.now) {
            return false;
        }
        self.count_observation("beat lost", machine);
        true
    }
}
