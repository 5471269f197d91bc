//! Fast track: the agent keeps running between two jobs, so that the next one needs no boot.
//!
//! Used only where the settings or the node's `driver_info` enable it. An agent that stays
//! keeps sending heartbeats; when its heartbeats stop, or its machine is switched, its session
//! is removed, and the next job boots as usual.

use trivet_model::order::VerbArgs;
use trivet_model::{JobKind, JobPhase, Node, NoteKind, PowerState, ProvisionState, StepKind};

use super::bootloader::is_partition;
use crate::{NodeAction, NodeEvent, NodeLimits, NodeTransition};

/// Time from an agent's inspection data to its first heartbeat. Ours; the stock agent needs
/// about ten seconds.
const FIRST_HEARTBEAT_MS_MAX: u64 = 120_000;

/// Whether agents keep running on this node.
pub(super) fn keeps_agent(node: &Node, limits: &NodeLimits) -> bool {
    let message = trivet_drivers::fast_track(&node.driver_info);
    message.ok().flatten().unwrap_or(limits.fast_track)
}

/// Whether the running agent can do the next job. A session without heartbeats for a heartbeat
/// timeout is removed, so an existing session is recent.
pub(super) fn is_ready(node: &Node, limits: &NodeLimits) -> bool {
    keeps_agent(node, limits)
        && node.agent.as_ref().is_some_and(|agent| agent.url.is_some())
        && node.power_state != Some(PowerState::Off)
}

impl NodeTransition<'_> {
    /// Starts a job that runs steps: with the running agent, or with a boot.
    pub(crate) fn start_steps(&mut self, kind: JobKind, step_kind: StepKind, args: VerbArgs) {
        // The stock agent installs a boot loader for a partition image only where the reply to
        // its first lookup reported this: an agent that runs already does not know.
        let partition = kind == JobKind::Deploy && is_partition(&self.node.instance_info);
        let ready = is_ready(&self.node, self.limits) && !partition;
        let (agent, enrolment) = (self.node.agent.take(), self.node.enrolment.take());
        self.start_job(kind, Some(step_kind), args);
        if ready && self.uses_agent() {
            (self.node.agent, self.node.enrolment) = (agent, enrolment);
            if let Some(agent) = &mut self.node.agent {
                agent.disk_may_change();
            }
            self.note(NoteKind::AgentReused);
            self.enter(JobPhase::GetSteps);
        } else {
            self.enter(JobPhase::PowerOff);
        }
    }

    /// The agent's work is done. It keeps running, or its machine is switched off.
    pub(super) fn agent_done(&mut self) {
        let has_callback = self.node.agent.as_ref().is_some_and(|it| it.url.is_some());
        if !has_callback || !keeps_agent(&self.node, self.limits) {
            return self.enter(JobPhase::FinalOff);
        }
        let cleans = self.node.job.as_ref().map(|job| job.kind) == Some(JobKind::Clean);
        let (agent, enrolment) = (self.node.agent.take(), self.node.enrolment.take());
        self.finish();
        (self.node.agent, self.node.enrolment) = (agent, enrolment);
        let is_available = self.node.provision_state == ProvisionState::Available;
        if let Some(agent) = &mut self.node.agent {
            agent.is_clean = cleans && is_available;
        }
        self.note(NoteKind::AgentKeepsRunning);
        self.await_heartbeat();
    }

    /// The inspection data are stored. Where the agent stays, its first heartbeat is still to
    /// come.
    pub(super) fn inspection_data_stored(&mut self) {
        if !keeps_agent(&self.node, self.limits) {
            self.resumed();
            return self.enter(JobPhase::FinalOff);
        }
        if let Some(job) = &mut self.node.job {
            job.has_inspection_data = true;
        }
        self.actions
            .push(NodeAction::WakeAfter(FIRST_HEARTBEAT_MS_MAX));
    }

    /// Whether the data of the present inspection are stored.
    pub(super) fn has_inspection_data(&self) -> bool {
        let job = self.node.job.as_ref();
        job.is_some_and(|job| job.has_inspection_data)
    }

    /// Handles an event of a node with a running agent and without a job.
    pub(super) fn handle_without_job(&mut self, event: &NodeEvent) {
        if self.node.agent.is_none() {
            return;
        }
        match event {
            NodeEvent::Heartbeat => {
                self.await_heartbeat();
                self.read_image_ahead();
            }
            NodeEvent::Restarted => self.await_heartbeat(),
            NodeEvent::ImageAheadDue(ahead) => self.write_image_ahead(ahead),
            NodeEvent::Agent(order, answer) => self.idle_agent_replied(order, answer),
            NodeEvent::TimerExpired => {
                self.clear_boot();
                let seconds = self.limits.heartbeat_timeout_ms / 1000;
                self.note(NoteKind::AgentExpired { seconds });
            }
            _ if self.node.power_state == Some(PowerState::Off) => self.clear_boot(),
            _ => {}
        }
    }

    fn await_heartbeat(&mut self) {
        self.actions
            .push(NodeAction::WakeAfter(self.limits.heartbeat_timeout_ms));
    }
}
