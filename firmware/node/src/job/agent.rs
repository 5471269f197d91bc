//! What an agent's heartbeats and replies mean for a job.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trivet_drivers::ReservedStep;
use trivet_model::attributes::RaidConfig;
use trivet_model::node::JsonObject;
use trivet_model::{
    AgentError, AgentEvent, AgentOrder, JobKind, JobPhase, JobStep, NoteKind, StepKind,
};

use super::CACHED_STEPS;
use crate::table::ProvisionEvent;
use crate::{NodeAction, NodeTransition, steps};

/// A longer list of what an agent could not find out is truncated, in characters. Ours.
const COLLECTOR_ERROR_CHARS_MAX: usize = 500;

impl NodeTransition<'_> {
    /// The first time a booting machine is seen starts the time limit of its agent. Later times
    /// do not extend it: otherwise a machine that reboots in a loop, or whose agent has failed
    /// while its kernel renews the lease, would be waited for without end.
    pub(super) fn machine_seen(&mut self, phase: JobPhase) {
        let Some(job) = &mut self.node.job else {
            return;
        };
        if phase == JobPhase::AwaitAgent && job.tries == 0 {
            job.tries = 1;
            self.actions
                .push(NodeAction::WakeAfter(self.limits.agent_wait_ms));
        }
    }

    pub(super) fn agent_heartbeat(&mut self, phase: JobPhase) {
        match phase {
            JobPhase::AwaitAgent => {
                let Some(job) = &self.node.job else { return };
                // The agent sends inspection data without a request and before the first
                // heartbeat. An agent that sends heartbeats without having sent the data gets
                // no more time for it.
                let (kind, midway) = (job.kind, job.at > 0);
                if self.has_inspection_data() {
                    self.resumed();
                    self.agent_done();
                } else if kind != JobKind::Inspect {
                    self.apply_event(ProvisionEvent::Resume);
                    match kind {
                        JobKind::Rescue => self.enter(JobPhase::FinishRescue),
                        _ if midway => self.next_step(),
                        _ => self.enter(JobPhase::GetSteps),
                    }
                }
            }
            JobPhase::StartInstance => self.agent_seen_after_restart(),
            // A wait without a time ends with the next heartbeat.
            JobPhase::Pause
                if self.present_builtin_step() == Some(ReservedStep::Wait { seconds: None }) =>
            {
                self.step_passed();
            }
            JobPhase::AwaitStep | JobPhase::AwaitBootloader => {
                self.actions
                    .push(NodeAction::WakeAfter(self.limits.heartbeat_timeout_ms));
                self.actions
                    .push(NodeAction::Agent(AgentOrder::ListCommands));
            }
            JobPhase::CheckPower => self.heartbeat_resumed(),
            _ => {}
        }
    }

    pub(super) fn agent_replied(
        &mut self,
        phase: JobPhase,
        order: &AgentOrder,
        answer: Result<AgentEvent, AgentError>,
    ) {
        use JobPhase::{FinishRescue, GetSteps, Sync};
        if let JobPhase::FinalOff | JobPhase::BootFromDisk | JobPhase::StartInstance = phase {
            return self.last_answer(order, &answer);
        }
        match (phase, order, answer) {
            (_, _, Err(AgentError::TokenRefused)) => {
                self.boot_again(&AgentError::TokenRefused.to_string());
            }
            (
                JobPhase::GetSteps,
                AgentOrder::GetSteps(_),
                Ok(AgentEvent::StepsListed {
                    steps,
                    versions,
                    listed,
                }),
            ) => {
                self.keep_list(&versions, listed);
                if let Some(job) = &mut self.node.job {
                    job.versions = versions;
                }
                self.planned(&steps, "the agent");
            }
            (JobPhase::StartStep, AgentOrder::Execute { .. }, Ok(event)) => {
                self.step_accepted(event);
            }
            (JobPhase::AwaitStep, AgentOrder::ListCommands, Ok(event)) => self.step_reported(event),
            (JobPhase::Bootloader | JobPhase::AwaitBootloader, order, answer) => {
                self.bootloader_replied(order, answer);
            }
            (JobPhase::Sync, AgentOrder::Sync, Ok(AgentEvent::Finished | AgentEvent::Accepted)) => {
                self.enter(JobPhase::FinalOff);
            }
            (
                JobPhase::FinishRescue,
                AgentOrder::FinishRescue,
                Ok(AgentEvent::Finished | AgentEvent::Accepted),
            ) => self.finish(),
            (
                JobPhase::StartStep,
                AgentOrder::Execute { .. },
                Err(AgentError::Unreachable { .. }),
            ) => {
                // The agent may have received it: its next heartbeat shows. The count of tries
                // is kept, so that an agent that never accepts it is given up.
                self.enter_again(JobPhase::AwaitStep);
            }
            (GetSteps | Sync | FinishRescue, _, Ok(AgentEvent::Busy)) => {
                self.retry_later("the agent works on another command");
            }
            (
                JobPhase::GetSteps | JobPhase::Sync | JobPhase::FinishRescue,
                _,
                Err(error @ AgentError::Unreachable { .. }),
            ) => self.retry_later(&error.to_string()),
            (
                JobPhase::AwaitStep,
                AgentOrder::ListCommands,
                Err(error @ AgentError::Unreachable { .. }),
            ) => {
                self.agent_unreachable(&error);
            }
            (JobPhase::AwaitStep, AgentOrder::ListCommands, Err(error)) => {
                self.command_list_unreadable(&error);
            }
            (JobPhase::Sync, AgentOrder::Sync, Err(error)) => self.not_synced(&error),
            (JobPhase::GetSteps | JobPhase::StartStep | JobPhase::FinishRescue, _, Err(error)) => {
                self.fail(&error.to_string());
            }
            _ => {}
        }
    }

    /// The agent's work is done: only whether it still answers matters.
    fn last_answer(&mut self, order: &AgentOrder, answer: &Result<AgentEvent, AgentError>) {
        match order {
            AgentOrder::ListCommands => self.lost_agent_replied(answer.is_ok()),
            AgentOrder::Lockdown => self.locked_down(answer),
            _ => {}
        }
    }

    /// The result of the lockdown. Older agents do not have the command: the deployment
    /// continues.
    fn locked_down(&mut self, answer: &Result<AgentEvent, AgentError>) {
        if self.node.job.as_ref().map(|job| job.phase) != Some(JobPhase::FinalOff) {
            return;
        }
        let reply = match answer {
            Ok(AgentEvent::Finished | AgentEvent::Accepted) => {
                // It no longer accepts calls.
                self.node.agent = None;
                return self.is_off(JobPhase::FinalOff);
            }
            Ok(_) => "it works on another command".to_owned(),
            Err(error) => error.to_string(),
        };
        let why = format!(
            "the agent was not locked down before the restart: {reply}; the deployment continues"
        );
        self.note(NoteKind::Warning { why });
        self.is_off(JobPhase::FinalOff);
    }

    /// The agent answers and could not flush its buffers, or does not have the command: the
    /// image is written, and most kernels have flushed it by now. Ironic continues too.
    fn not_synced(&mut self, error: &AgentError) {
        let why = format!(
            "the agent could not sync its disks before the power-off: {error}; the deployment \
             continues"
        );
        self.note(NoteKind::Warning { why });
        self.enter(JobPhase::FinalOff);
    }

    /// The agent does not answer, or not now: the order is retried.
    pub(super) fn retry_later(&mut self, why: &str) {
        if self.tried() {
            let why = why.to_owned();
            self.note(NoteKind::Retrying { why });
            self.actions
                .push(NodeAction::WakeAfter(self.limits.retry_ms));
        } else {
            self.boot_again(why);
        }
    }

    /// It sends heartbeats, so it runs; but an agent that can never be called is useless.
    pub(super) fn agent_unreachable(&mut self, error: &AgentError) {
        let why = format!("the agent sends heartbeats but cannot be called: {error}");
        if self.tried() {
            self.note(NoteKind::Retrying { why });
        } else {
            self.boot_again(&why);
        }
    }

    /// A stock agent that had an internal error can no longer list its commands, so the state
    /// of its step is unknown. A new boot repairs that.
    pub(super) fn command_list_unreadable(&mut self, error: &AgentError) {
        self.boot_again(&format!(
            "the command list of the agent cannot be read: {error}"
        ));
    }

    pub(super) fn planned(&mut self, offered: &[JobStep], who: &str) {
        let Some(job) = &mut self.node.job else {
            return;
        };
        let offered = steps::allowed(job, offered, self.limits.erase);
        let planned = steps::plan(job, &offered, who).and_then(|steps| {
            let at = steps::resume_index(job, &steps)?;
            Ok((steps, at))
        });
        match planned {
            Ok((steps, at)) => {
                job.at = at;
                job.steps = steps;
                let tries = job.tries;
                self.next_step();
                // The number of reads is limited, because the lists may change every time.
                if let Some(job) = &mut self.node.job
                    && job.phase == JobPhase::StartStep
                {
                    job.tries = tries;
                }
            }
            Err(why) => self.fail(&why),
        }
    }

    pub(super) fn step_accepted(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Accepted | AgentEvent::StepRunning => {
                if let Some(step) = self.present_step() {
                    self.note(NoteKind::StepStarted { step });
                }
                self.enter_again(JobPhase::AwaitStep);
            }
            AgentEvent::Busy => self.enter_again(JobPhase::AwaitStep),
            other => self.step_reported(other),
        }
    }

    pub(super) fn step_reported(&mut self, event: AgentEvent) {
        let present = self.present_step().unwrap_or_default();
        match event {
            // An agent from before tokens that restarted cannot be distinguished from the one
            // that received the step.
            AgentEvent::Idle if self.is_legacy() && self.unrepeatable_step().is_some() => {
                self.boot_again("the command list of the agent has no step");
            }
            AgentEvent::Idle => self.repeat_step("the command list of the agent has no step"),
            AgentEvent::StepDone {
                step,
                at,
                interface,
                reboot_requested,
                result,
                image_was_on_disk,
            } if step == present && self.is_at(at) => {
                self.keep_raid(&interface, &step, result);
                if let (true, Some(image)) = (image_was_on_disk, self.node.deployment()) {
                    let image = image.file_name.clone();
                    self.note(NoteKind::ImageWasOnDisk { image });
                }
                self.note(NoteKind::StepDone { step });
                if let Some(job) = &mut self.node.job {
                    job.at += 1;
                }
                if self.stops_now() {
                    return;
                }
                if reboot_requested {
                    self.enter(JobPhase::PowerOff);
                } else {
                    self.resumed();
                    self.next_step();
                }
            }
            AgentEvent::StepDone { step, .. } => {
                self.repeat_step(&format!("the agent's last step is {step}, not {present}"));
            }
            AgentEvent::StepFailed { step, message } => {
                let step = step.unwrap_or(present);
                self.fail(&format!(
                    "step {step} failed: {message}; see its agent's logs (trivet node logs)"
                ));
            }
            AgentEvent::StepRunning => {
                if let Some(job) = &mut self.node.job {
                    job.tries = 0;
                }
            }
            AgentEvent::VersionMismatch => {
                if self.stops_now() {
                    return;
                }
                if self.tried() {
                    let why = "the agent's hardware managers changed since its steps were read";
                    self.note(NoteKind::Retrying { why: why.into() });
                    self.resumed();
                    self.enter_again(JobPhase::GetSteps);
                } else {
                    self.fail(
                        "the agent's hardware managers change at each reading; make the \
                         ramdisk's managers report the same versions each time",
                    );
                }
            }
            _ => {}
        }
    }

    /// Stores the steps that the agent offers under Ironic's key, for planning jobs.
    fn keep_list(&mut self, versions: &BTreeMap<String, String>, listed: Value) {
        let kind = self.node.job.as_ref().and_then(|job| job.step_kind);
        let kind = kind.unwrap_or(StepKind::Clean);
        let info = &mut self.node.driver_internal_info;
        info.insert(format!("{CACHED_STEPS}{kind}_steps"), listed);
        info.insert("hardware_manager_version".to_owned(), json!(versions));
    }

    /// Stores the RAID configuration that a step reports.
    fn keep_raid(&mut self, interface: &str, step: &str, result: Value) {
        if interface != "raid" {
            return;
        }
        match result {
            Value::Object(config) if config.contains_key("logical_disks") => {
                self.node.attributes.raid_config = RaidConfig(config);
            }
            _ if step == "delete_configuration" => {
                self.node.attributes.raid_config = RaidConfig::default();
            }
            _ => {}
        }
    }

    fn is_legacy(&self) -> bool {
        let agent = self.node.agent.as_ref();
        agent.is_some_and(trivet_model::AgentSession::is_legacy)
    }

    /// Whether a reply is about the present step and not an earlier one of the same name.
    fn is_at(&self, at: Option<u32>) -> bool {
        let job = self.node.job.as_ref();
        at.is_none() || job.map(|job| job.at) == at
    }

    pub(super) fn repeat_step(&mut self, why: &str) {
        if self.stops_now() {
            return;
        }
        if self.tried() {
            self.note(NoteKind::Retrying {
                why: why.to_owned(),
            });
            self.resumed();
            self.enter_again(JobPhase::StartStep);
        } else {
            self.fail(&format!(
                "a step does not start: {why}; see its agent's logs (trivet node logs)"
            ));
        }
    }

    /// The sender of this event limits how often a step is retried.
    pub(super) fn step_again(&mut self, phase: JobPhase, why: String) {
        if phase == JobPhase::AwaitStep {
            self.note(NoteKind::Retrying { why });
            self.enter(JobPhase::StartStep);
        }
    }

    pub(super) fn present_step(&self) -> Option<String> {
        let job = self.node.job.as_ref()?;
        job.steps.get(job.at as usize).map(|step| step.step.clone())
    }

    fn inspects(&self, phase: JobPhase) -> bool {
        let job = self.node.job.as_ref();
        phase == JobPhase::AwaitAgent && job.is_some_and(|job| job.kind == JobKind::Inspect)
    }

    pub(super) fn not_inspected(&mut self, phase: JobPhase, why: &str) {
        if self.inspects(phase) {
            self.fail(&format!("the inspection data cannot be stored: {why}"));
        }
    }

    pub(super) fn inspected(
        &mut self,
        phase: JobPhase,
        properties: JsonObject,
        inventory: Value,
        complaint: Option<String>,
    ) {
        if !self.inspects(phase) {
            return;
        }
        self.node.properties.extend(properties);
        self.node.inventory = Some(inventory);
        self.note(NoteKind::Inspected);
        if let Some(message) = complaint {
            let plain = |character: char| {
                if character.is_control() {
                    ' '
                } else {
                    character
                }
            };
            let message = message.chars().take(COLLECTOR_ERROR_CHARS_MAX).map(plain);
            let message: String = message.collect();
            return self.fail(&format!(
                "the agent could not inspect everything: {message}; the other data are stored"
            ));
        }
        self.inspection_data_stored();
    }
}
