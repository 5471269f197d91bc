//! Heartbeat timeout of an agent at work.
//!
//! Agents send heartbeats while they work, so an agent without any for a heartbeat timeout has
//! failed. The box reads from the BMC whether the machine is on at all; then the machine is
//! booted once more and continues with the step that was under way. A second timeout ends the
//! job. A step that is not known to be repeatable is not run twice.

use trivet_model::{AgentOrder, JobKind, JobPhase, NoteKind, PowerAnswer, PowerError, PowerState};

use crate::{NodeAction, NodeTransition, steps};

/// How long an agent has to answer after its BMC reported that the machine is off. Ours: a
/// running agent answers at once, and a machine that is off does not even answer ARP.
const LOST_MS_MAX: u64 = 5_000;

/// States of the last power-off of a job: the agent is called to check that it no longer
/// answers; it answered once, perhaps while the machine was still switching off; it is called
/// once more.
const FIRST_QUERY: u32 = 1;
const FIRST_REPLY: u32 = 2;
const SECOND_QUERY: u32 = 3;

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
        job.tries = FIRST_QUERY;
        self.actions.push(NodeAction::WakeAfter(LOST_MS_MAX));
        self.actions
            .push(NodeAction::Agent(AgentOrder::ListCommands));
    }

    /// Whether the agent is called after the power-off, to check that it no longer answers.
    pub(super) fn queries_lost_agent(&self) -> bool {
        let job = self.node.job.as_ref();
        let requests = [FIRST_QUERY, FIRST_REPLY, SECOND_QUERY];
        job.is_some_and(|job| job.phase == JobPhase::FinalOff && requests.contains(&job.tries))
    }

    /// The time for its reply is over.
    pub(super) fn lost_agent_timer_expired(&mut self) {
        match &mut self.node.job {
            Some(job) if job.tries == FIRST_REPLY => {
                job.tries = SECOND_QUERY;
                self.actions.push(NodeAction::WakeAfter(LOST_MS_MAX));
                self.actions
                    .push(NodeAction::Agent(AgentOrder::ListCommands));
            }
            _ => self.is_off(JobPhase::FinalOff),
        }
    }

    /// The result of that call.
    pub(super) fn lost_agent_replied(&mut self, answers: bool) {
        if !answers {
            if self.queries_lost_agent() {
                self.is_off(JobPhase::FinalOff);
            }
            return;
        }
        if let Some(job) = &mut self.node.job
            && job.phase == JobPhase::FinalOff
            && job.tries <= FIRST_REPLY
        {
            // A BMC may report "off" a moment too early.
            job.tries = FIRST_REPLY;
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
