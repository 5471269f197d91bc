//! What an agent's beats and answers mean for a job.

use serde_json::Value;
use trivet_hardware::Act;
use trivet_model::node::Object;
use trivet_model::{AgentError, AgentEvent, AgentOrder, JobKind, NoteKind, Phase, Step};

use crate::table::Turn;
use crate::{Action, Turning, steps};

impl Turning<'_> {
    /// The first sign of a boot gives its agent time to come up. Later ones give no
    /// more: a machine that boots in circles, or whose agent is dead while its kernel
    /// renews the lease, would be waited for without end.
    pub(super) fn machine_heard(&mut self, phase: Phase) {
        let Some(job) = &mut self.node.job else {
            return;
        };
        if phase == Phase::AwaitAgent && job.tries == 0 {
            job.tries = 1;
            self.actions
                .push(Action::WakeAfter(self.limits.agent_wait_ms));
        }
    }

    pub(super) fn agent_beat(&mut self, phase: Phase) {
        match phase {
            Phase::AwaitAgent => {
                let Some(job) = &self.node.job else { return };
                // The data of an inspection come by themselves and before the first beat. An
                // agent that beats without having sent them gets no more time for it.
                let (kind, midway) = (job.kind, job.at > 0);
                if self.has_findings() {
                    self.resumed();
                    self.agent_done();
                } else if kind != JobKind::Inspect {
                    self.turn(Turn::Resume);
                    match kind {
                        JobKind::Rescue => self.enter(Phase::FinishRescue),
                        _ if midway => self.next_step(),
                        _ => self.enter(Phase::GetSteps),
                    }
                }
            }
            // A wait without a time ends with the next beat.
            Phase::Pause if self.present_act() == Some(Act::Wait { seconds: None }) => {
                self.step_passed();
            }
            Phase::AwaitStep | Phase::AwaitBootloader => {
                self.actions.push(Action::WakeAfter(self.limits.silence_ms));
                self.actions.push(Action::Agent(AgentOrder::Look));
            }
            Phase::AskPower => self.beats_again(),
            _ => {}
        }
    }

    pub(super) fn agent_said(
        &mut self,
        phase: Phase,
        order: &AgentOrder,
        answer: Result<AgentEvent, AgentError>,
    ) {
        match (phase, order, answer) {
            (_, _, Err(AgentError::TokenRefused)) => {
                self.boot_again(&AgentError::TokenRefused.to_string());
            }
            (
                Phase::GetSteps,
                AgentOrder::GetSteps(_),
                Ok(AgentEvent::StepsAre { steps, versions }),
            ) => {
                if let Some(job) = &mut self.node.job {
                    job.versions = versions;
                }
                self.planned(&steps, "the agent");
            }
            (Phase::StartStep, AgentOrder::Execute { .. }, Ok(event)) => self.step_taken(event),
            (Phase::AwaitStep, AgentOrder::Look, Ok(event)) => self.step_seen(event),
            (Phase::Bootloader, AgentOrder::FindParts, Ok(AgentEvent::PartsAre(parts))) => {
                self.parts_are(parts);
            }
            // Whatever it works on may be the boot loader already.
            (Phase::Bootloader, AgentOrder::FindParts, Ok(AgentEvent::Busy)) => {
                self.enter_again(Phase::AwaitBootloader);
            }
            (Phase::Bootloader, AgentOrder::InstallBootloader { .. }, answer) => {
                self.loader_taken(answer);
            }
            (Phase::AwaitBootloader, AgentOrder::Look, Ok(event)) => self.loader_seen(event),
            (Phase::Sync, AgentOrder::Sync, Ok(AgentEvent::Finished | AgentEvent::Accepted)) => {
                self.enter(Phase::FinalOff);
            }
            (
                Phase::FinishRescue,
                AgentOrder::FinishRescue,
                Ok(AgentEvent::Finished | AgentEvent::Accepted),
            ) => self.finish(),
            (Phase::StartStep, AgentOrder::Execute { .. }, Err(AgentError::Unreachable { .. })) => {
                // The agent may have taken it: its next beat shows.
                self.enter(Phase::AwaitStep);
            }
            (
                Phase::GetSteps | Phase::Bootloader | Phase::Sync | Phase::FinishRescue,
                _,
                Ok(AgentEvent::Busy) | Err(AgentError::Unreachable { .. }),
            ) => {
                if self.tried() {
                    self.actions.push(Action::WakeAfter(self.limits.retry_ms));
                } else {
                    self.boot_again("the agent does not answer");
                }
            }
            (
                Phase::AwaitStep | Phase::AwaitBootloader,
                AgentOrder::Look,
                Err(AgentError::Unreachable { .. }),
            ) => self.not_reached(),
            (
                Phase::GetSteps
                | Phase::StartStep
                | Phase::AwaitStep
                | Phase::Bootloader
                | Phase::AwaitBootloader
                | Phase::FinishRescue
                | Phase::Sync,
                _,
                Err(error),
            ) => {
                self.fail(&error.to_string());
            }
            _ => {}
        }
    }

    /// It beats, so it lives; but one that can never be called is of no use.
    pub(super) fn not_reached(&mut self) {
        if !self.tried() {
            self.boot_again("the agent beats but cannot be called");
        }
    }

    pub(super) fn planned(&mut self, offered: &[Step], who: &str) {
        let Some(job) = &mut self.node.job else {
            return;
        };
        let offered = steps::allowed(job, offered, self.limits.erase);
        match steps::plan(job, &offered, who) {
            Ok(steps) => {
                job.at = steps::goes_on_at(job, &steps);
                job.steps = steps;
                self.next_step();
            }
            Err(why) => self.fail(&why),
        }
    }

    pub(super) fn step_taken(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Accepted | AgentEvent::StepRunning => {
                if let Some(step) = self.present_step() {
                    self.note(NoteKind::StepStarted { step });
                }
                self.enter_again(Phase::AwaitStep);
            }
            AgentEvent::Busy => self.enter_again(Phase::AwaitStep),
            other => self.step_seen(other),
        }
    }

    pub(super) fn step_seen(&mut self, event: AgentEvent) {
        let present = self.present_step().unwrap_or_default();
        match event {
            AgentEvent::Idle => self.repeat_step("the agent knows of no step"),
            AgentEvent::StepDone {
                step,
                reboot_requested,
                ..
            } if step == present => {
                self.note(NoteKind::StepDone { step });
                if let Some(job) = &mut self.node.job {
                    job.at += 1;
                }
                if reboot_requested {
                    self.enter(Phase::PowerOff);
                } else {
                    self.resumed();
                    self.next_step();
                }
            }
            AgentEvent::StepDone { step, .. } => {
                self.repeat_step(&format!("the agent's last step is {step}, not {present}"));
            }
            AgentEvent::StepFailed { step, said } => {
                let step = step.unwrap_or(present);
                self.fail(&format!("step {step} failed: {said}"));
            }
            AgentEvent::StepRunning => {
                if let Some(job) = &mut self.node.job {
                    job.tries = 0;
                }
            }
            AgentEvent::VersionMismatch => {
                if self.tried() {
                    self.resumed();
                    self.enter_again(Phase::GetSteps);
                } else {
                    self.fail("the agent's hardware managers change from one look to the next");
                }
            }
            _ => {}
        }
    }

    pub(super) fn repeat_step(&mut self, why: &str) {
        if self.tried() {
            self.note(NoteKind::Retrying {
                why: why.to_owned(),
            });
            self.resumed();
            self.enter_again(Phase::StartStep);
        } else {
            self.fail(&format!("a step does not start: {why}"));
        }
    }

    /// Whoever says so counts how often.
    pub(super) fn step_again(&mut self, phase: Phase, why: String) {
        if phase == Phase::AwaitStep {
            self.note(NoteKind::Retrying { why });
            self.enter(Phase::StartStep);
        }
    }

    pub(super) fn present_step(&self) -> Option<String> {
        let job = self.node.job.as_ref()?;
        job.steps.get(job.at as usize).map(|step| step.step.clone())
    }

    pub(super) fn inspected(&mut self, phase: Phase, properties: Object, inventory: Value) {
        let inspecting = self
            .node
            .job
            .as_ref()
            .is_some_and(|job| job.kind == JobKind::Inspect);
        if phase != Phase::AwaitAgent || !inspecting {
            return;
        }
        self.node.properties.extend(properties);
        self.node.inventory = Some(inventory);
        self.note(NoteKind::Inspected);
        self.findings_kept();
    }
}
