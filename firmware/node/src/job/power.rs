//! What a BMC's answers mean for a job.

use trivet_hardware::{Act, netboots_instance};
use trivet_model::node::Object;
use trivet_model::{JobKind, Phase, PowerAnswer, PowerError, PowerOrder, PowerState, StepKind};

use super::ladder::BMC_RESET;
use crate::table::Turn;
use crate::{Action, Turning};

impl Turning<'_> {
    pub(super) fn bmc_said(
        &mut self,
        phase: Phase,
        order: PowerOrder,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        if order == BMC_RESET && switches(phase) {
            // It needs a moment to come back, or never went; what was wanted is wanted.
            self.actions.push(Action::WakeAfter(self.limits.retry_ms));
            return;
        }
        if !belongs(phase, order) {
            return;
        }
        match (phase, answer) {
            // A machine that is off after all cannot be reset.
            (Phase::PowerOn | Phase::StartInstance, Err(error))
                if order == PowerOrder::Reset && error.is_refusal() =>
            {
                self.node.power_state = Some(PowerState::Off);
                self.actions.push(Action::Power(PowerOrder::On));
            }
            (Phase::AskPower, answer) => self.power_of_silent(&answer),
            (_, Err(error)) => self.power_failed(phase, &error),
            (Phase::ReadPower, Ok(PowerAnswer::Power(_))) => self.finish(),
            (Phase::PowerOff, Ok(PowerAnswer::Power(PowerState::Off))) => self.is_off(phase),
            (Phase::FinalOff, Ok(PowerAnswer::Power(PowerState::Off))) => self.seen_off(),
            // It must not be switched off and was rebooted.
            (Phase::FinalOff, Ok(_)) if order == PowerOrder::Reset => self.finish(),
            (Phase::PowerStep, Ok(answer)) => self.power_step(answer),
            (Phase::BootFromNet, Ok(_)) if self.uses_agent() => self.enter(Phase::PowerOn),
            (Phase::PowerOn, Ok(_)) => {
                self.node.power_state = Some(PowerState::On);
                self.enter(Phase::AwaitAgent);
            }
            (Phase::BootFromNet | Phase::BootFromDisk, Ok(_)) => self.enter(Phase::StartInstance),
            (Phase::StartInstance, Ok(_)) => {
                self.node.power_state = Some(PowerState::On);
                self.finish();
            }
            _ => {}
        }
    }

    /// A step that switches power.
    fn power_step(&mut self, answer: PowerAnswer) {
        match (self.present_act(), answer) {
            (Some(Act::PowerOff), PowerAnswer::Power(PowerState::Off)) => {
                self.node.agent = None;
                self.step_passed();
            }
            (Some(Act::PowerOff), _) => {}
            _ => {
                self.node.power_state = Some(PowerState::On);
                self.step_passed();
            }
        }
    }

    /// The BMC did not answer in all the time that it had, or did not do what it accepted.
    pub(super) fn power_failed(&mut self, phase: Phase, error: &PowerError) {
        let done = self.done_so_far(phase);
        self.fail(&format!("{phase}: {error}{done}"));
    }

    /// At the end of a deployment: what is done and what is not.
    fn done_so_far(&self, phase: Phase) -> &'static str {
        let deploys = self.node.job.as_ref().map(|job| job.kind) == Some(JobKind::Deploy);
        match phase {
            _ if !deploys || netboots_instance(&self.node) => "",
            Phase::FinalOff => {
                "; the image is written, but the machine was not powered off, its boot device is \
                 not the disk yet, and the instance was not started"
            }
            Phase::BootFromDisk => {
                "; the image is written and the machine was powered off, but its boot device is \
                 not the disk yet, and the instance was not started"
            }
            Phase::StartInstance => {
                "; the image is written and the boot device is the disk, but the machine was not \
                 powered on"
            }
            _ => "",
        }
    }

    /// Whether the phase is passed without a request, because the machine must never be
    /// switched off: what boots next boots by a reset. Where nothing boots next, the machine
    /// is rebooted, unless it is off.
    pub(super) fn skips_power_off(&self, phase: Phase) -> bool {
        let Some(job) = &self.node.job else {
            return false;
        };
        let goes_on = matches!(
            job.kind,
            JobKind::Deploy | JobKind::Service | JobKind::Unrescue
        );
        let is_off = self.node.power_state == Some(PowerState::Off);
        let passes = match phase {
            Phase::PowerOff => true,
            Phase::FinalOff => goes_on || is_off,
            _ => false,
        };
        passes && self.node.keeps_power()
    }

    /// Whether the agent is locked down at this point instead of being powered off, as Ironic
    /// does at the end of a deployment: it does not go on sending heartbeats until the restart.
    pub(super) fn locks_down(&self, phase: Phase) -> bool {
        let deploys = self.node.job.as_ref().map(|job| job.kind) == Some(JobKind::Deploy);
        let heard = self.node.agent.as_ref().is_some_and(|it| it.url.is_some());
        phase == Phase::FinalOff && deploys && heard && self.skips_power_off(phase)
    }

    /// Whether a machine whose deployment failed is to be switched off now.
    pub(super) fn switches_off_failed(&self, switching: bool) -> bool {
        self.limits.power_off_after_deploy_failure
            && !self.node.keeps_power()
            && (switching || self.node.power_state != Some(PowerState::Off))
    }

    pub(super) fn is_off(&mut self, phase: Phase) {
        let Some(job) = &self.node.job else { return };
        match (phase, job.kind) {
            (Phase::PowerOff, JobKind::TearDown) => self.torn_down(),
            (Phase::PowerOff, JobKind::Rescue) if job.boots == 0 => {
                self.enter(Phase::StartInstance);
            }
            (Phase::PowerOff, _) if job.boots == 0 => self.plan_here(),
            (Phase::PowerOff, _) => self.enter(Phase::BootFromNet),
            (_, JobKind::Deploy | JobKind::Service | JobKind::Unrescue) => {
                self.starts_instance();
            }
            _ => self.finish(),
        }
    }

    /// The machine is off and the agent's work done: it starts what it is for.
    pub(super) fn starts_instance(&mut self) {
        if !netboots_instance(&self.node) {
            return self.enter(Phase::BootFromDisk);
        }
        // No agent follows any more.
        if let Some(job) = &mut self.node.job {
            job.boots = 0;
        }
        self.enter(Phase::BootFromNet);
    }

    /// The instance is gone; its end is the beginning of cleaning.
    pub(super) fn torn_down(&mut self) {
        self.node.instance_info = Object::new();
        self.node.instance_uuid = None;
        self.node.kept.remove("instance_name");
        self.turn(Turn::Done);
        if self.node.automated_clean == Some(false) {
            let is_on = self.node.power_state != Some(PowerState::Off);
            if self.node.keeps_power() && is_on {
                // The instance must not run on.
                return self.enter(Phase::FinalOff);
            }
            return self.finish();
        }
        if let Some(job) = &mut self.node.job {
            job.kind = JobKind::Clean;
            job.step_kind = Some(StepKind::Clean);
            job.steps.clear();
        }
        if self.uses_agent() {
            self.enter(Phase::BootFromNet);
        } else {
            self.plan_here();
        }
    }
}

/// Whether the phase is one in which a BMC may be restarted.
fn switches(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::ReadPower
            | Phase::PowerOff
            | Phase::FinalOff
            | Phase::PowerStep
            | Phase::BootFromNet
            | Phase::BootFromDisk
            | Phase::PowerOn
            | Phase::StartInstance
    )
}

/// Whether an answer to this order is what the phase waits for.
fn belongs(phase: Phase, order: PowerOrder) -> bool {
    match phase {
        Phase::ReadPower | Phase::AskPower => order == PowerOrder::Status,
        Phase::PowerOff => order == PowerOrder::Off,
        Phase::FinalOff => matches!(order, PowerOrder::Off | PowerOrder::Reset),
        Phase::PowerStep => matches!(
            order,
            PowerOrder::Off | PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset
        ),
        Phase::BootFromNet | Phase::BootFromDisk => matches!(order, PowerOrder::SetBoot { .. }),
        Phase::PowerOn => matches!(order, PowerOrder::On | PowerOrder::Reset),
        Phase::StartInstance => matches!(order, PowerOrder::On | PowerOrder::Reset),
        _ => false,
    }
}
