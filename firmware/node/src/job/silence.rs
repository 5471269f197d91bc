//! An agent that falls silent at its work.
//!
//! Agents beat while they work, so one that is not heard for a heartbeat timeout is in
//! trouble. Its BMC is asked whether the machine is on at all; then the machine is booted
//! once more and goes on with the step that it was at. A second silence ends the job. A
//! step of which nobody knows whether it may be done twice is not done twice.

use trivet_model::{NoteKind, Phase, PowerAnswer, PowerError, PowerState};

use crate::{Turning, steps};

/// Where it stands that an agent of the present job fell silent before, and when.
pub(crate) const FELL_SILENT: &str = "agent_fell_silent_at";

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
        let info = &mut self.node.driver_internal_info;
        let now = self.now.wall.to_string();
        let again = info.insert(FELL_SILENT.to_owned(), now.into()).is_some();
        if again && self.unsure().is_none() {
            return self.fail(&format!(
                "{why}, also after a reboot; look at the machine's console and the network \
                 between it and this box"
            ));
        }
        self.boot_again(&why);
    }

    /// The step that the agent may be at, or may have done, where nobody knows whether it may
    /// be done twice.
    pub(crate) fn unsure(&self) -> Option<String> {
        let job = self.node.job.as_ref()?;
        let step = job.steps.get(job.at as usize)?;
        let begun = matches!(job.phase, Phase::AwaitStep | Phase::AskPower);
        let unsure = begun && !steps::may_repeat(step);
        unsure.then(|| step.step.clone())
    }
}
