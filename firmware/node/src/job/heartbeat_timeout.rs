//! Heartbeat timeout of an agent at work.
//!
//! Agents send heartbeats while they work, so an agent without any for a heartbeat timeout has
//! failed. The box reads from the BMC whether the machine is on at all; then the machine is
//! booted once more and continues with the step that was under way. A second timeout ends the
//! job. A step that is not known to be repeatable is not run twice.

use trivet_model::{
    AgentOrder, AgentQuery, JobKind, JobPhase, NoteKind, PowerAnswer, PowerError, PowerState,
};

use crate::{NodeAction, NodeTransition, steps};

/// How long an agent has to answer after its BMC reported that the machine is off. Ours: a
/// running agent answers at once, and a machine that is off does not even answer ARP.
const LOST_MS_MAX: u64 = 5_000;

/// How long a machine has for a restart until its agent is called. Ours: a restart begins at
/// once, and no operating system is up again before.
const RESTART_MS: u64 = 10_000;

impl NodeTransition<'_> {
    /// The BMC reports that the machine is off. An agent that still answers contradicts it: the
    /// BMC belongs to another machine.
    pub(super) fn seen_off(&mut self) {
        let has_callback = self.node.agent.as_ref().is_some_and(|it| it.url.is_some());
        let Some(job) = &mut self.node.job else {
            return;
        };
        if job.kind != JobKind::Deploy || !has_callback {
            return self.is_off(JobPhase::FinalOff);
        }
        job.agent_query = Some(AgentQuery::First);
        self.actions.push(NodeAction::WakeAfter(LOST_MS_MAX));
        self.actions
            .push(NodeAction::Agent(AgentOrder::ListCommands));
    }

    /// Whether the agent is called after the power-off, to check that it no longer answers.
    pub(super) fn queries_lost_agent(&self) -> bool {
        let job = self.node.job.as_ref();
        job.is_some_and(|job| job.phase == JobPhase::FinalOff && job.agent_query.is_some())
    }

    /// The time for its reply is over.
    pub(super) fn lost_agent_timer_expired(&mut self) {
        match &mut self.node.job {
            Some(job) if job.agent_query == Some(AgentQuery::Answered) => {
                job.agent_query = Some(AgentQuery::Second);
                self.actions.push(NodeAction::WakeAfter(LOST_MS_MAX));
                self.actions
                    .push(NodeAction::Agent(AgentOrder::ListCommands));
            }
            _ => self.is_off(JobPhase::FinalOff),
        }
    }

    /// The BMC has accepted the restart of a machine that must not be switched off. An agent that
    /// could not be locked down shows whether the machine has restarted.
    pub(super) fn restart_accepted(&mut self) {
        let has_callback = self.node.agent.as_ref().is_some_and(|it| it.url.is_some());
        match &mut self.node.job {
            Some(job) if job.kind == JobKind::Deploy && has_callback => {
                job.agent_query = Some(AgentQuery::Restarted);
                self.actions.push(NodeAction::WakeAfter(RESTART_MS));
            }
            _ => self.finish(),
        }
    }

    /// Whether the job ends with the check that the machine has restarted.
    pub(super) fn checks_restart(&self) -> bool {
        let query = self.node.job.as_ref().and_then(|job| job.agent_query);
        matches!(
            query,
            Some(AgentQuery::Restarted | AgentQuery::AfterRestart)
        )
    }

    /// The time for the restart, or for the agent's reply after it, is over.
    pub(super) fn restart_timer_expired(&mut self) {
        match &mut self.node.job {
            Some(job) if job.agent_query == Some(AgentQuery::Restarted) => {
                job.agent_query = Some(AgentQuery::AfterRestart);
                self.actions.push(NodeAction::WakeAfter(LOST_MS_MAX));
                self.actions
                    .push(NodeAction::Agent(AgentOrder::ListCommands));
            }
            _ => self.finish(),
        }
    }

    /// The agent of the deployment answers, or sends a heartbeat: the machine did not restart.
    /// Before its time for that is over this means nothing.
    pub(super) fn agent_seen_after_restart(&mut self) {
        let query = self.node.job.as_ref().and_then(|job| job.agent_query);
        if query != Some(AgentQuery::AfterRestart) {
            return;
        }
        let url = self.agent_url();
        self.fail(&format!(
            "the BMC accepted the restart, but the agent at {url} of this deployment still runs: \
             the machine was not restarted; the image is written and the boot device is the disk, \
             but the instance was not started; look at the machine and at its BMC, then deploy \
             again"
        ));
    }

    /// The result of that call.
    pub(super) fn lost_agent_replied(&mut self, answers: bool) {
        if self.checks_restart() {
            if answers {
                self.agent_seen_after_restart();
            } else {
                self.finish();
            }
            return;
        }
        if !answers {
            if self.queries_lost_agent() {
                self.is_off(JobPhase::FinalOff);
            }
            return;
        }
        if let Some(job) = &mut self.node.job
            && job.phase == JobPhase::FinalOff
            && job.agent_query != Some(AgentQuery::Second)
        {
            // A BMC may report "off" a moment too early.
            job.agent_query = Some(AgentQuery::Answered);
            self.actions.push(NodeAction::WakeAfter(LOST_MS_MAX));
            return;
        }
        let url = self.agent_url();
        let why = format!(
            "the BMC reports that the machine is off, but its agent at {url} still answers: \
             driver_info names the BMC of another machine; compare its address and system with \
             this machine, which runs the agent; the image is written, and the instance was not \
             started"
        );
        self.actions.push(NodeAction::AgentContradictsBmc { why });
    }

    fn agent_url(&self) -> String {
        let agent = self.node.agent.as_ref();
        let url = agent.and_then(|agent| agent.url.clone());
        url.unwrap_or_default()
    }

    pub(super) fn heartbeat_timed_out(&mut self) {
        let seconds = self.limits.heartbeat_timeout_ms / 1000;
        self.note(NoteKind::AgentTimedOut { seconds });
        self.enter(JobPhase::CheckPower);
    }

    /// Heartbeats resumed: the step continues.
    pub(super) fn heartbeat_resumed(&mut self) {
        let at_step = self.present_step().is_some();
        self.enter(if at_step {
            JobPhase::AwaitStep
        } else {
            JobPhase::AwaitBootloader
        });
    }

    pub(super) fn power_after_timeout(&mut self, answer: &Result<PowerAnswer, PowerError>) {
        let found = match answer {
            Ok(PowerAnswer::Power(PowerState::Off)) => "and its machine is off",
            Ok(_) => "though its machine is on",
            Err(_) => "and its BMC does not report whether the machine is on",
        };
        let seconds = self.limits.heartbeat_timeout_ms / 1000;
        let at = self.present_step().map(|step| format!(" at step {step}"));
        let at = at.unwrap_or_default();
        let why = format!("no heartbeat of the agent{at} for {seconds} s, {found}");
        let now = self.now.wall;
        let job = self.node.job.as_mut();
        let again = job.is_some_and(|job| job.heartbeat_lost_at.replace(now).is_some());
        if again && self.unrepeatable_step().is_none() {
            return self.fail(&format!(
                "{why}, also after a reboot; look at the machine's console and the network \
                 between it and this box"
            ));
        }
        self.boot_again(&why);
    }

    /// The step that the agent may be running, or may have done, if it is not known to be
    /// repeatable.
    pub(crate) fn unrepeatable_step(&self) -> Option<String> {
        let job = self.node.job.as_ref()?;
        let step = job.steps.get(job.at as usize)?;
        let begun = matches!(job.phase, JobPhase::AwaitStep | JobPhase::CheckPower);
        let unsure = begun && !steps::may_repeat(step);
        unsure.then(|| step.step.clone())
    }
}
