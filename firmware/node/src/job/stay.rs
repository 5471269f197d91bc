//! Fast track: the agent stays between two jobs, so that the next one needs no boot.
//!
//! Only where the settings or the node's `driver_info` say so. An agent that stays goes on
//! beating; one that is not heard any more, or whose machine is switched, is forgotten, and the
//! next job boots as ever.

use trivet_model::order::VerbArgs;
use trivet_model::{JobKind, Node, NoteKind, Phase, PowerState, StepKind};

use super::bootloader::is_partition;
use crate::{Action, Event, Limits, Turning};

/// How long an agent that has sent its findings may take to its first beat. Ours; the stock
/// agent needs some ten seconds.
const FIRST_BEAT_MS_MAX: u64 = 120_000;

/// Whether agents stay on this node.
pub(super) fn stays(node: &Node, limits: &Limits) -> bool {
    let said = trivet_hardware::fast_track(&node.driver_info);
    said.ok().flatten().unwrap_or(limits.fast_track)
}

/// Whether the agent that stayed can do the next job. One that is not heard for a heartbeat
/// timeout is forgotten, so the one that is known was heard lately.
fn is_ready(node: &Node, limits: &Limits) -> bool {
    stays(node, limits)
        && node.agent.as_ref().is_some_and(|agent| agent.url.is_some())
        && node.power_state != Some(PowerState::Off)
}

impl Turning<'_> {
    /// Starts a job that runs steps: with the agent that stayed, or by a boot.
    pub(crate) fn start_steps(&mut self, kind: JobKind, step_kind: StepKind, args: VerbArgs) {
        // The stock agent installs a loader for a partition image only where its first lookup
        // told it to: one that is here already does not know.
        let partition = kind == JobKind::Deploy && is_partition(&self.node.instance_info);
        let ready = is_ready(&self.node, self.limits) && !partition;
        let agent = self.node.agent.take();
        self.take_up(kind, Some(step_kind), args);
        if ready && self.uses_agent() {
            self.node.agent = agent;
            self.note(NoteKind::AgentStayed);
            self.enter(Phase::GetSteps);
        } else {
            self.enter(Phase::PowerOff);
        }
    }

    /// The agent's work is done. It stays, or its machine is switched off.
    pub(super) fn agent_done(&mut self) {
        let heard = self.node.agent.as_ref().is_some_and(|it| it.url.is_some());
        if !heard || !stays(&self.node, self.limits) {
            return self.enter(Phase::FinalOff);
        }
        let agent = self.node.agent.take();
        self.finish();
        self.node.agent = agent;
        self.note(NoteKind::AgentStays);
        self.await_beat();
    }

    /// What an agent found is here. Where it stays, its first beat is still to come.
    pub(super) fn findings_kept(&mut self) {
        if !stays(&self.node, self.limits) {
            self.resumed();
            return self.enter(Phase::FinalOff);
        }
        if let Some(job) = &mut self.node.job {
            job.at = FOUND;
        }
        self.actions.push(Action::WakeAfter(FIRST_BEAT_MS_MAX));
    }

    /// Whether the findings of the present inspection are here.
    pub(super) fn has_findings(&self) -> bool {
        let job = self.node.job.as_ref();
        job.is_some_and(|job| job.kind == JobKind::Inspect && job.at == FOUND)
    }

    /// What an event means for an agent that stays while no job runs.
    pub(super) fn meanwhile(&mut self, event: &Event) {
        if self.node.agent.is_none() {
            return;
        }
        match event {
            Event::Beat | Event::Restarted => self.await_beat(),
            Event::Woke => {
                self.node.agent = None;
                let seconds = self.limits.silence_ms / 1000;
                self.note(NoteKind::AgentGone { seconds });
            }
            _ if self.node.power_state == Some(PowerState::Off) => self.node.agent = None,
            _ => {}
        }
    }

    fn await_beat(&mut self) {
        self.actions.push(Action::WakeAfter(self.limits.silence_ms));
    }
}

/// The place in an inspection, which has no steps, after its findings came.
const FOUND: u32 = 1;
