//! An agent that falls silent at its work.
//!
//! Agents beat while they work, so one that is not heard for a heartbeat timeout is in
//! trouble. Its BMC is asked whether the machine is on at all; then the machine is booted
//! once more and goes on with the step that it was at. A second silence ends the job. A
//! step of which nobody knows whether it may be done twice is not done twice.

use trivet_hardware::reserved;
use trivet_model::{NoteKind, Phase, PowerAnswer, PowerError, PowerState};

use crate::{Turning, steps};

impl Turning<'_> {
    pub(super) fn fell_silent(&mut self) {
        let seconds = self.limits.silence_ms / 1000;
        self.note(NoteKind::AgentSilent { seconds });
        self.enter(Phase::AskPower);
    }

    /// It beats after all: what it was at goes on.
    pub(super) fn beats_again(&mut self) {
        let at_step = self.present_step().is_some();
        self.enter(if at_step {
            Phase::AwaitStep
        } else {
            Phase::AwaitBootloader
        });
    }

    pub(super) fn power_of_silent(&mut self, answer: &Result<PowerAnswer, PowerError>) {
        let found = match answer {
            Ok(PowerAnswer::Power(PowerState::Off)) => "and its machine is off",
            Ok(_) => "though its machine is on",
            Err(_) => "and its BMC does not say whether the machine is on",
        };
        let seconds = self.limits.silence_ms / 1000;
        let at = self.present_step().map(|step| format!(" at step {step}"));
        let at = at.unwrap_or_default();
        let why = format!("the agent fell silent{at} for {seconds} s, {found}");
        let boots = self.node.job.as_ref().map_or(0, |job| job.boots);
        if boots > 1 && self.unsure().is_none() {
            return self.fail(&format!(
                "{why}, also after a reboot; look at the machine's console and the network \
                 between it and this box"
            ));
        }
        self.boot_again(&why);
    }

    /// The step that the agent may be at, or may have done, where nobody knows whether it may
    /// be done twice.
    pub(super) fn unsure(&self) -> Option<String> {
        let job = self.node.job.as_ref()?;
        let step = job.steps.get(job.at as usize)?;
        let begun = matches!(job.phase, Phase::AwaitStep | Phase::AskPower);
        let unsure = begun && reserved(step).is_none() && !steps::may_repeat(&step.step);
        unsure.then(|| step.step.clone())
    }
}
