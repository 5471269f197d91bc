//! What a BMC's replies mean for a job.

use trivet_drivers::{ReservedStep, netboots_instance};
use trivet_model::node::JsonObject;
use trivet_model::{
    BootDevice, JobKind, JobPhase, PowerAnswer, PowerError, PowerOrder, PowerState, StepKind,
};

use super::escalation::BMC_RESET;
use crate::table::ProvisionEvent;
use crate::{NodeAction, NodeTransition};

impl NodeTransition<'_> {
    pub(super) fn bmc_replied(
        &mut self,
        phase: JobPhase,
        order: PowerOrder,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        if order == BMC_RESET && switches(phase) {
            // The BMC needs a moment to restart, or did not restart; the order is repeated in
            // both cases.
            self.actions
                .push(NodeAction::WakeAfter(self.limits.retry_ms));
            return;
        }
        if !belongs(phase, order) {
            return;
        }
        match (phase, answer) {
            // A machine that is off cannot be reset.
            (JobPhase::PowerOn | JobPhase::StartInstance, Err(error))
                if order == PowerOrder::Reset && error.is_refusal() =>
            {
                self.node.power_state = Some(PowerState::Off);
                self.actions.push(NodeAction::Power(PowerOrder::On));
            }
            (JobPhase::CheckPower, answer) => self.power_after_timeout(&answer),
            (JobPhase::BootFromNet, Err(error)) if boots_from_cd(order) => {
                self.medium_failed(&error);
            }
            (_, Err(error)) => self.power_failed(phase, &error),
            (JobPhase::ReadPower, Ok(PowerAnswer::Power(_))) => self.finish(),
            (JobPhase::PowerOff, Ok(PowerAnswer::Power(PowerState::Off))) => self.is_off(phase),
            (JobPhase::FinalOff, Ok(PowerAnswer::Power(PowerState::Off))) => self.seen_off(),
            // The machine must not be switched off and was rebooted instead.
            (JobPhase::FinalOff, Ok(_)) if order == PowerOrder::Reset => self.finish(),
            (JobPhase::PowerStep, Ok(answer)) => self.power_step(answer),
            (JobPhase::PowerOn, Ok(_)) => {
                self.node.power_state = Some(PowerState::On);
                self.enter(JobPhase::AwaitAgent);
            }
            (JobPhase::BootFromNet, Ok(_)) => self.boot_device_set(),
            (JobPhase::BootFromDisk, Ok(_)) => self.enter(JobPhase::StartInstance),
            (JobPhase::StartInstance, Ok(_)) => {
                self.node.power_state = Some(PowerState::On);
                if order == PowerOrder::Reset {
                    self.restart_accepted();
                } else {
                    self.finish();
                }
            }
            _ => {}
        }
    }

    /// The next boot is as it should be.
    pub(super) fn boot_device_set(&mut self) {
        self.enter(if !self.uses_agent() {
            JobPhase::StartInstance
        } else if self.limits.sends_tokens {
            JobPhase::SendToken
        } else {
            JobPhase::PowerOn
        });
    }

    /// The BMC has the token of the coming boot, or cannot have it.
    pub(super) fn token_sent(&mut self, phase: JobPhase) {
        if phase == JobPhase::SendToken {
            self.enter(JobPhase::PowerOn);
        }
    }

    /// Handles the reply to a step that switches power.
    fn power_step(&mut self, answer: PowerAnswer) {
        match (self.present_builtin_step(), answer) {
            (Some(ReservedStep::PowerOff), PowerAnswer::Power(PowerState::Off)) => {
                self.node.agent = None;
                self.step_passed();
            }
            (Some(ReservedStep::PowerOff), _) => {}
            _ => {
                self.node.power_state = Some(PowerState::On);
                self.step_passed();
            }
        }
    }

    /// The BMC did not answer within its time limit, or did not do what it accepted.
    pub(super) fn power_failed(&mut self, phase: JobPhase, error: &PowerError) {
        let done = self.done_so_far(phase);
        self.fail(&format!("{phase}: {error}{done}"));
    }

    /// At the end of a deployment: what is done and what is not, for the error message.
    fn done_so_far(&self, phase: JobPhase) -> &'static str {
        let deploys = self.node.job.as_ref().map(|job| job.kind) == Some(JobKind::Deploy);
        match phase {
            _ if !deploys || netboots_instance(&self.node) => "",
            JobPhase::FinalOff => {
                "; the image is written, but the machine was not powered off, its boot device is \
                 not the disk yet, and the instance was not started"
            }
            JobPhase::BootFromDisk => {
                "; the image is written and the machine was powered off, but its boot device is \
                 not the disk yet, and the instance was not started"
            }
            JobPhase::StartInstance => {
                "; the image is written and the boot device is the disk, but the machine was not \
                 powered on"
            }
            _ => "",
        }
    }

    /// Whether the phase is skipped without a request, because the machine must never be
    /// switched off: the next boot is a reset. Where no boot follows, the machine is rebooted,
    /// unless it is off.
    pub(super) fn skips_power_off(&self, phase: JobPhase) -> bool {
        let Some(job) = &self.node.job else {
            return false;
        };
        let goes_on = matches!(
            job.kind,
            JobKind::Deploy | JobKind::Service | JobKind::Unrescue
        );
        let is_off = self.node.power_state == Some(PowerState::Off);
        let passes = match phase {
            JobPhase::PowerOff => true,
            JobPhase::FinalOff => goes_on || is_off,
            _ => false,
        };
        passes && self.node.is_power_off_disabled()
    }

    /// Whether the agent is locked down at this point instead of being powered off, as Ironic
    /// does at the end of a deployment: then it sends no heartbeats until the restart.
    pub(super) fn locks_down(&self, phase: JobPhase) -> bool {
        let deploys = self.node.job.as_ref().map(|job| job.kind) == Some(JobKind::Deploy);
        let has_callback = self.node.agent.as_ref().is_some_and(|it| it.url.is_some());
        phase == JobPhase::FinalOff && deploys && has_callback && self.skips_power_off(phase)
    }

    /// Whether a machine whose deployment failed is to be switched off now.
    pub(super) fn switches_off_failed(&self, switching: bool) -> bool {
        self.limits.power_off_after_deploy_failure
            && !self.node.is_power_off_disabled()
            && (switching || self.node.power_state != Some(PowerState::Off))
    }

    pub(super) fn is_off(&mut self, phase: JobPhase) {
        let Some(job) = &self.node.job else { return };
        match (phase, job.kind) {
            (JobPhase::PowerOff, JobKind::TearDown) => self.torn_down(),
            (JobPhase::PowerOff, JobKind::Rescue) if job.boots.is_none() => {
                self.enter(JobPhase::StartInstance);
            }
            (JobPhase::PowerOff, _) if job.boots.is_none() => self.plan_here(),
            (JobPhase::PowerOff, _) => self.enter(JobPhase::BootFromNet),
            (_, JobKind::Deploy | JobKind::Service | JobKind::Unrescue) => {
                self.starts_instance();
            }
            _ => self.finish(),
        }
    }

    /// The machine is off and the agent's work is done: starts the instance.
    pub(super) fn starts_instance(&mut self) {
        if !netboots_instance(&self.node) {
            return self.enter(JobPhase::BootFromDisk);
        }
        // No further agent boots.
        if let Some(job) = &mut self.node.job {
            job.boots = None;
        }
        self.enter(JobPhase::BootFromNet);
    }

    /// The instance was removed; cleaning follows.
    pub(super) fn torn_down(&mut self) {
        self.node.instance_info = JsonObject::new();
        self.node.instance_uuid = None;
        self.node.attributes.instance_name = None;
        self.apply_event(ProvisionEvent::Done);
        if self.node.automated_clean == Some(false) {
            let is_on = self.node.power_state != Some(PowerState::Off);
            if self.node.is_power_off_disabled() && is_on {
                // The instance must not keep running.
                return self.enter(JobPhase::FinalOff);
            }
            return self.finish();
        }
        if let Some(job) = &mut self.node.job {
            job.kind = JobKind::Clean;
            job.step_kind = Some(StepKind::Clean);
            job.steps.clear();
        }
        if self.uses_agent() {
            self.enter(JobPhase::BootFromNet);
        } else {
            self.plan_here();
        }
    }
}

fn boots_from_cd(order: PowerOrder) -> bool {
    let device = BootDevice::Cdrom;
    matches!(order, PowerOrder::SetBoot { device: chosen, .. } if chosen == device)
}

/// Whether the phase is one in which a BMC may be restarted.
fn switches(phase: JobPhase) -> bool {
    matches!(
        phase,
        JobPhase::ReadPower
            | JobPhase::PowerOff
            | JobPhase::FinalOff
            | JobPhase::PowerStep
            | JobPhase::BootFromNet
            | JobPhase::BootFromDisk
            | JobPhase::PowerOn
            | JobPhase::StartInstance
    )
}

/// Whether the phase waits for a reply to this order.
fn belongs(phase: JobPhase, order: PowerOrder) -> bool {
    match phase {
        JobPhase::ReadPower | JobPhase::CheckPower => order == PowerOrder::Status,
        JobPhase::PowerOff => order == PowerOrder::Off,
        JobPhase::FinalOff => matches!(order, PowerOrder::Off | PowerOrder::Reset),
        JobPhase::PowerStep => matches!(
            order,
            PowerOrder::Off | PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset
        ),
        JobPhase::BootFromNet | JobPhase::BootFromDisk => {
            matches!(order, PowerOrder::SetBoot { .. })
        }
        JobPhase::PowerOn => matches!(order, PowerOrder::On | PowerOrder::Reset),
        JobPhase::StartInstance => matches!(order, PowerOrder::On | PowerOrder::Reset),
        _ => false,
    }
}
