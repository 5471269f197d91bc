//! The jobs: verify, inspect, clean, deploy, tear down, adopt, rescue, service.
//!
//! A job is a path through phases. Entering a phase sends one order; the event that the phase
//! waits for leads to the next phase. The state that a BMC reports is only a hint: a machine
//! counts as started when it was seen on the network. A machine that is not seen, or whose
//! heartbeats stop, is booted again, with a stronger method each time (`escalation`), and then
//! the job fails with an error message.

mod agent;
mod bootloader;
mod builtin_steps;
mod escalation;
mod fast_track;
mod heartbeat_timeout;
mod image_ahead;
mod medium;
mod power;

use std::num::NonZeroU32;

use trivet_drivers::{ReservedStep, boot_mode, netboots_instance};
use trivet_model::{
    AgentOrder, BootDevice, Job, JobKind, JobPhase, Node, NoteKind, Now, PowerAnswer, PowerOrder,
    PowerState, ProvisionState, StepKind,
};

use crate::table::{
    self, NextState, ProvisionEvent, TargetState, TransitionRow, TransitionTrigger,
};
use crate::{NodeAction, NodeEvent, NodeLimits, NodeTransition, RESCUE_HASH};
use bootloader::WRITE_IMAGE;
use escalation::{BMC_RESET, BootEscalation};
pub use image_ahead::may_write_ahead;

/// Prefix of the lists of steps in `driver_internal_info`, as in Ironic.
const CACHED_STEPS: &str = "agent_cached_";

/// Handles one event of a node.
pub fn step(
    now: Now,
    limits: &NodeLimits,
    node: Node,
    event: NodeEvent,
) -> (Node, Vec<NodeAction>) {
    let mut transition = NodeTransition {
        now,
        limits,
        node,
        actions: Vec::new(),
    };
    transition.handle(event);
    (transition.node, transition.actions)
}

/// Whether the machine may still run what it ran before the ordered boot: an agent that calls
/// now is not the one of that boot.
pub fn awaits_reset(node: &Node) -> bool {
    node.job.as_ref().is_some_and(|job| match job.phase {
        JobPhase::BootFromNet | JobPhase::SendToken => true,
        JobPhase::PowerOn => boots_by_reset(node),
        _ => false,
    })
}

/// Whether the node's job boots the agent, now or later.
pub fn will_boot_agent(node: &Node) -> bool {
    node.job.as_ref().is_some_and(|job| match job.kind {
        // Cleaning follows, unless it is disabled for the node.
        JobKind::TearDown => job.boots.is_some() && node.automated_clean != Some(false),
        _ => job.boots.is_some(),
    })
}

/// Whether a machine that is to boot is reset: it runs, or it must not be switched off and may
/// run.
fn boots_by_reset(node: &Node) -> bool {
    match node.power_state {
        Some(state) => state == PowerState::On,
        None => node.is_power_off_disabled(),
    }
}

/// Whether the machine must get the agent when it boots from the network now.
pub fn boots_agent(node: &Node) -> bool {
    node.job.as_ref().is_some_and(|job| {
        job.boots.is_some()
            && matches!(
                job.phase,
                JobPhase::BootFromNet
                    | JobPhase::SendToken
                    | JobPhase::PowerOn
                    | JobPhase::AwaitAgent
                    | JobPhase::GetSteps
                    | JobPhase::StartStep
                    | JobPhase::AwaitStep
                    | JobPhase::CheckPower
                    | JobPhase::Bootloader
                    | JobPhase::AwaitBootloader
                    | JobPhase::FinishRescue
                    | JobPhase::Sync
                    | JobPhase::PowerStep
                    | JobPhase::Pause
                    | JobPhase::Hold
            )
    })
}

impl NodeTransition<'_> {
    fn handle(&mut self, event: NodeEvent) {
        if let NodeEvent::Power(_, Ok(PowerAnswer::Power(state))) = event
            && self.node.power_state != Some(state)
        {
            self.node.power_state = Some(state);
            self.note(trivet_drivers::power_note(&self.node, state));
        }
        let Some(job) = &self.node.job else {
            return self.handle_without_job(&event);
        };
        let phase = job.phase;
        match event {
            NodeEvent::Power(order, answer) => self.bmc_replied(phase, order, answer),
            NodeEvent::Agent(order, answer) => self.agent_replied(phase, &order, answer),
            NodeEvent::MediumReady(result) => self.medium_ready(phase, result),
            NodeEvent::TokenSent => self.token_sent(phase),
            NodeEvent::MachineSeen => self.machine_seen(phase),
            NodeEvent::Heartbeat => self.agent_heartbeat(phase),
            NodeEvent::Inspected {
                properties,
                inventory,
                complaint,
            } => {
                self.inspected(phase, properties, inventory, complaint);
            }
            NodeEvent::NotInspected { why } => self.not_inspected(phase, &why),
            NodeEvent::ImageUnusable { why } => self.image_unusable(&why),
            NodeEvent::BootFileUnusable { why } => self.boot_file_unusable(phase, &why),
            NodeEvent::StepAgain { why } => self.step_again(phase, why),
            NodeEvent::WrongMachine { why } => self.wrong_machine(phase, &why),
            NodeEvent::TimerExpired => self.timer_expired(phase),
            NodeEvent::RecordTooLarge => self.record_too_large(),
            NodeEvent::AgentContested { why } => self.fail(&why),
            NodeEvent::Restarted => self.restarted(phase),
            // A verb went first.
            NodeEvent::ImageAheadDue(_) => {}
        }
    }

    // Time and restarts.

    fn timer_expired(&mut self, phase: JobPhase) {
        match phase {
            // The inspection data are stored; that the agent does not stay is not a failure.
            JobPhase::AwaitAgent if self.has_inspection_data() => {
                self.resumed();
                self.enter(JobPhase::FinalOff);
            }
            JobPhase::AwaitAgent => self.agent_is_late(),
            JobPhase::AwaitStep | JobPhase::AwaitBootloader => self.heartbeat_timed_out(),
            JobPhase::Pause => self.step_passed(),
            JobPhase::FinalOff if self.queries_lost_agent() => self.lost_agent_timer_expired(),
            JobPhase::StartInstance if self.checks_restart() => self.restart_timer_expired(),
            other if self.skips_power_off(other) => self.is_off(other),
            other => self.give_order(other),
        }
    }

    fn agent_is_late(&mut self) {
        let inspects = self.node.job.as_ref().map(|job| job.kind) == Some(JobKind::Inspect);
        let agent = self.node.agent.as_ref();
        let has_callback = agent.is_some_and(|agent| agent.url.is_some());
        self.boot_again(match agent {
            Some(_) if has_callback && inspects => {
                "the agent runs but sent no inspection data; its kernel needs \
                 ipa-inspection-callback-url, and its log shows which collector hangs"
            }
            Some(_) if !has_callback => "the agent looked its node up but sent no heartbeat",
            _ => "no sign of the agent in time",
        });
    }

    fn restarted(&mut self, phase: JobPhase) {
        match phase {
            // It is unknown whether the agent received the step: its next heartbeat shows.
            JobPhase::StartStep => self.enter(JobPhase::AwaitStep),
            other if self.skips_power_off(other) => self.is_off(other),
            other => self.give_order(other),
        }
    }

    /// Ends a job whose BMC switches the machine of another node.
    fn wrong_machine(&mut self, phase: JobPhase, why: &str) {
        if matches!(
            phase,
            JobPhase::PowerOn
                | JobPhase::AwaitAgent
                | JobPhase::FinalOff
                | JobPhase::BootFromDisk
                | JobPhase::StartInstance
        ) {
            self.fail(why);
            // No more requests are sent to that BMC.
            self.node.target_power_state = None;
            self.actions
                .retain(|action| *action != NodeAction::SwitchOffFailed);
        }
    }

    /// Ends a job whose image is not written yet.
    fn image_unusable(&mut self, why: &str) {
        let Some(job) = &self.node.job else { return };
        // A held job checks its image again when it continues.
        if job.phase == JobPhase::Hold {
            return;
        }
        let write = job.steps.iter().position(|step| step.step == WRITE_IMAGE);
        if write.is_some_and(|write| write >= job.at as usize) {
            self.fail(why);
        }
    }

    /// Ends a job whose machine has not yet loaded the files that it is to boot.
    fn boot_file_unusable(&mut self, phase: JobPhase, why: &str) {
        let Some(job) = &self.node.job else { return };
        let has_to_load = match phase {
            // The instance that is torn down is powered off before the job may end.
            JobPhase::ReadPower | JobPhase::PowerOff => job.kind != JobKind::TearDown,
            JobPhase::BootFromNet | JobPhase::SendToken | JobPhase::PowerOn => true,
            JobPhase::StartInstance => netboots_instance(&self.node),
            JobPhase::AwaitAgent => self.node.agent.is_none(),
            _ => false,
        };
        if has_to_load {
            self.fail(why);
        }
    }

    /// The data from the node's agent or BMC do not fit into its record.
    fn record_too_large(&mut self) {
        let info = &mut self.node.driver_internal_info;
        info.retain(|key, _| !key.starts_with(CACHED_STEPS));
        self.fail(
            "the machine's report does not fit into this node's record; free space there: a config \
             drive by URL, less in extra, fewer steps offered by the ramdisk's hardware managers",
        );
    }

    fn boot_again(&mut self, why: &str) {
        if let Some(step) = self.unrepeatable_step() {
            return self.fail(&format!(
                "{why}; whether {step} was done is not known, and it is not done twice: look at \
                 the machine, then run what is missing"
            ));
        }
        let resets_bmc = self.limits.bmc_reset && !self.node.is_power_off_disabled();
        let Some(job) = &mut self.node.job else {
            return;
        };
        let boots = job.boots.map_or(0, NonZeroU32::get);
        let is_last = boots >= self.limits.boots_max;
        self.actions.push(NodeAction::BootFailed {
            why: why.to_owned(),
            last_of: is_last.then_some(boots),
        });
        if is_last {
            self.fail(&format!(
                "{why} after {boots} boots; look at the machine's console, its boot order and the \
                 network between it and this box"
            ));
            return;
        }
        let boots = boots + 1;
        job.boots = NonZeroU32::new(boots);
        let next = escalation::boot_escalation(boots, self.limits.boots_max, resets_bmc);
        self.rewind_to_write_image();
        self.note(NoteKind::Retrying {
            why: why.to_owned(),
        });
        self.resumed();
        match next {
            BootEscalation::Reset => self.enter(JobPhase::BootFromNet),
            BootEscalation::Cycle => self.enter(JobPhase::PowerOff),
            BootEscalation::BmcReset => {
                self.enter(JobPhase::PowerOff);
                self.actions.pop();
                self.actions.push(NodeAction::Power(BMC_RESET));
            }
        }
    }

    // Transitions between phases.

    /// Enters a phase for the first time.
    pub(crate) fn enter(&mut self, phase: JobPhase) {
        if let Some(job) = &mut self.node.job {
            job.tries = 0;
            job.agent_query = None;
        }
        self.enter_again(phase);
    }

    fn enter_again(&mut self, phase: JobPhase) {
        if let Some(job) = &mut self.node.job {
            job.phase = phase;
        }
        if phase == JobPhase::BootFromDisk {
            self.eject_medium();
        }
        match phase {
            // A new boot has a new agent with a new token.
            JobPhase::PowerOff | JobPhase::BootFromNet => {
                self.node.agent = None;
                self.node.enrolment = None;
            }
            JobPhase::AwaitAgent
            | JobPhase::AwaitStep
            | JobPhase::AwaitBootloader
            | JobPhase::Pause => {
                self.apply_event_if_allowed(ProvisionEvent::Wait);
            }
            JobPhase::StartStep
            | JobPhase::GetSteps
            | JobPhase::Bootloader
            | JobPhase::FinishRescue => {
                self.resumed();
            }
            JobPhase::Hold => self.apply_event(ProvisionEvent::Hold),
            _ => {}
        }
        if self.locks_down(phase) {
            return self.actions.push(NodeAction::Agent(AgentOrder::Lockdown));
        }
        if self.skips_power_off(phase) {
            return self.is_off(phase);
        }
        self.give_order(phase);
    }

    /// Sends the order of a phase; it is sent again after a restart of the box.
    fn give_order(&mut self, phase: JobPhase) {
        let efi = boot_mode(&self.node) == Some("uefi");
        let Some(job) = &self.node.job else { return };
        let action = match phase {
            JobPhase::ReadPower | JobPhase::CheckPower => NodeAction::Power(PowerOrder::Status),
            // It boots something other than the agent, as in Ironic.
            JobPhase::FinalOff if self.node.is_power_off_disabled() => {
                NodeAction::Power(PowerOrder::Reset)
            }
            JobPhase::PowerOff | JobPhase::FinalOff => NodeAction::Power(PowerOrder::Off),
            JobPhase::BootFromNet if self.uses_medium() => NodeAction::InsertMedium,
            JobPhase::BootFromNet => NodeAction::Power(self.boot_order(BootDevice::Pxe)),
            JobPhase::SendToken => NodeAction::SendToken,
            JobPhase::BootFromDisk => NodeAction::Power(PowerOrder::SetBoot {
                device: BootDevice::Disk,
                persistent: true,
                efi,
            }),
            // A running machine boots by a reset.
            JobPhase::PowerOn if boots_by_reset(&self.node) => NodeAction::Power(PowerOrder::Reset),
            JobPhase::StartInstance
                if self.node.is_power_off_disabled() && boots_by_reset(&self.node) =>
            {
                NodeAction::Power(PowerOrder::Reset)
            }
            JobPhase::PowerOn | JobPhase::StartInstance => NodeAction::Power(PowerOrder::On),
            JobPhase::AwaitAgent if job.tries > 0 => {
                NodeAction::WakeAfter(self.limits.agent_wait_ms)
            }
            JobPhase::AwaitAgent => NodeAction::WakeAfter(self.limits.boot_ms),
            JobPhase::AwaitStep | JobPhase::AwaitBootloader => {
                NodeAction::WakeAfter(self.limits.heartbeat_timeout_ms)
            }
            JobPhase::Bootloader => NodeAction::Agent(AgentOrder::FindPartitions),
            JobPhase::GetSteps => NodeAction::Agent(AgentOrder::GetSteps(
                job.step_kind.unwrap_or(StepKind::Clean),
            )),
            JobPhase::StartStep => match job.steps.get(job.at as usize) {
                Some(step) => NodeAction::Agent(AgentOrder::Execute {
                    kind: job.step_kind.unwrap_or(StepKind::Clean),
                    step: step.clone(),
                    at: job.at,
                    versions: job.versions.clone(),
                }),
                None => return self.next_step(),
            },
            JobPhase::PowerStep => match self.present_builtin_step() {
                Some(ReservedStep::PowerOff) => NodeAction::Power(PowerOrder::Off),
                Some(ReservedStep::PowerOn) => NodeAction::Power(PowerOrder::On),
                _ if self.node.is_power_off_disabled() => NodeAction::Power(PowerOrder::Reset),
                _ => NodeAction::Power(PowerOrder::Cycle),
            },
            JobPhase::Pause => match self.present_builtin_step() {
                Some(ReservedStep::Wait {
                    seconds: Some(seconds),
                }) => NodeAction::WakeAfter(seconds * 1000),
                _ => NodeAction::WakeAfter(self.limits.agent_wait_ms),
            },
            // Only an operator ends it.
            JobPhase::Hold => return,
            JobPhase::FinishRescue => NodeAction::Agent(AgentOrder::FinishRescue),
            JobPhase::Sync => NodeAction::Agent(AgentOrder::Sync),
        };
        self.actions.push(action);
    }

    /// Counts a try of the present phase; false when the maximum is reached.
    fn tried(&mut self) -> bool {
        let Some(job) = &mut self.node.job else {
            return false;
        };
        job.tries += 1;
        job.tries < self.limits.tries_max
    }

    fn resumed(&mut self) {
        self.apply_event_if_allowed(ProvisionEvent::Resume);
    }

    /// Clears the agent session of this boot and the data that belong to it.
    pub(crate) fn clear_boot(&mut self) {
        self.node.agent = None;
        if self.node.enrolment.take().is_some() {
            self.actions.push(NodeAction::ClearMailbox);
        }
        self.node.instance_info.remove(RESCUE_HASH);
    }

    pub(crate) fn finish(&mut self) {
        self.eject_agent_medium();
        let kind = self.node.job.take().map(|job| job.kind);
        self.clear_boot();
        if kind == Some(JobKind::Inspect) {
            self.node.inspection_started_at = None;
            self.node.inspection_finished_at = Some(self.now.wall);
        }
        self.apply_event(ProvisionEvent::Done);
    }

    pub(crate) fn fail(&mut self, why: &str) {
        self.eject_agent_medium();
        let job = self.node.job.take();
        // The agent's logs explain the error in more detail.
        let agent = self.node.agent.as_ref();
        if let Some(agent) = agent.filter(|agent| agent.url.is_some() && !agent.is_legacy()) {
            let agent = Box::new(agent.clone());
            self.actions.push(NodeAction::CollectLogs(agent));
        }
        self.clear_boot();
        self.node.last_error = Some(why.to_owned());
        self.node.inspection_started_at = None;
        self.note(NoteKind::Failed {
            why: why.to_owned(),
        });
        // An instance that was not stopped yet keeps running.
        let deployed = job
            .as_ref()
            .is_some_and(|job| job.kind == JobKind::Deploy && !job.awaits_source);
        // While a power-on is under way the record still has the state before it.
        let switching = job
            .as_ref()
            .is_some_and(|job| matches!(job.phase, JobPhase::PowerOn | JobPhase::StartInstance));
        if deployed && self.switches_off_failed(switching) {
            self.node.target_power_state = Some(PowerState::Off);
            self.actions.push(NodeAction::SwitchOffFailed);
        }
        if job.is_some_and(|job| cleaning_midway(&job)) {
            self.node.maintenance = true;
            self.node.fault = Some("clean failure".to_owned());
            self.node.maintenance_reason = Some(why.to_owned());
        }
        self.apply_event(ProvisionEvent::Fail);
    }

    // Transitions of the table.

    pub(crate) fn apply_event(&mut self, event: ProvisionEvent) {
        let from = self.node.provision_state;
        match table::row(from, TransitionTrigger::Event(event)) {
            Some(row) => self.apply_row(row),
            // A table without this row is a bug of ours; the node must not be lost because of
            // it.
            None => debug_assert!(false, "no row for {event:?} in {from}"),
        }
    }

    pub(crate) fn apply_event_if_allowed(&mut self, event: ProvisionEvent) {
        if let Some(row) = table::row(self.node.provision_state, TransitionTrigger::Event(event)) {
            self.apply_row(row);
        }
    }

    pub(crate) fn apply_row(&mut self, row: TransitionRow) {
        let from = row.from;
        let to = match row.to {
            NextState::State(to) => to,
            NextState::Target => match self.node.target_provision_state {
                // A retired node does not become available again.
                Some(ProvisionState::Available) if self.node.attributes.retired => {
                    ProvisionState::Manageable
                }
                Some(target) => target,
                None => ProvisionState::Manageable,
            },
        };
        if let TargetState::Set(target) = row.target {
            self.node.target_provision_state = Some(target);
        }
        if to.is_stable() {
            self.node.target_provision_state = None;
        }
        self.node.provision_state = to;
        self.node.provision_updated_at = Some(self.now.wall);
        self.note(NoteKind::StateChanged { from, to });
    }

    pub(crate) fn note(&mut self, kind: NoteKind) {
        self.actions.push(NodeAction::Note(kind));
    }
}

fn cleaning_midway(job: &Job) -> bool {
    let at_step = [
        JobPhase::StartStep,
        JobPhase::AwaitStep,
        JobPhase::CheckPower,
    ];
    job.kind == JobKind::Clean && at_step.contains(&job.phase)
}

#[cfg(test)]
mod tests;
