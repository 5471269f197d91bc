//! The jobs: verify, inspect, clean, deploy, tear down, adopt, rescue, service.
//!
//! A job is a path through phases. Entering a phase gives one order; the event
//! that the phase waits for leads to the next. What a BMC claims is a hint: that
//! a machine really started is believed when it is heard on the wire. A machine
//! that is not heard, or falls silent, is booted again, by stronger means each
//! time (`ladder`), and then the job fails with a sentence.

mod agent;
mod bootloader;
mod ladder;
mod own;
mod power;
mod silence;
mod stay;

use serde_json::Value;
use trivet_hardware::{Act, boot_mode, netboots_instance};
use trivet_model::{
    AgentOrder, BootDevice, Job, JobKind, Node, NoteKind, Now, Phase, PowerAnswer, PowerOrder,
    PowerState, ProvisionState, StepKind,
};

use crate::table::{self, Aim, Cause, Row, To, Turn};
use crate::{Action, Event, Limits, RESCUE_HASH, Turning};
use bootloader::WRITE_IMAGE;
use ladder::{BMC_RESET, Rung};
pub(crate) use silence::FELL_SILENT;

/// How the names of lists of steps in `driver_internal_info` begin, as with Ironic.
const CACHED_STEPS: &str = "agent_cached_";

/// Takes a node through one event.
pub fn step(now: Now, limits: &Limits, node: Node, event: Event) -> (Node, Vec<Action>) {
    let mut turning = Turning {
        now,
        limits,
        node,
        actions: Vec::new(),
    };
    turning.heard(event);
    (turning.node, turning.actions)
}

/// Whether the machine still runs what it ran before the boot that was ordered: an agent that
/// is heard now is not the one of that boot.
pub fn awaits_reset(node: &Node) -> bool {
    node.job.as_ref().is_some_and(|job| match job.phase {
        Phase::BootFromNet => true,
        Phase::PowerOn => boots_by_reset(node),
        _ => false,
    })
}

/// Whether the node's job boots the agent, now or later.
pub fn will_boot_agent(node: &Node) -> bool {
    node.job.as_ref().is_some_and(|job| match job.kind {
        // Cleaning follows, unless the node leaves it out.
        JobKind::TearDown => job.boots > 0 && node.automated_clean != Some(false),
        _ => job.boots > 0,
    })
}

/// Whether a machine that is to boot is reset: it runs, or it must not be switched off and may
/// run.
fn boots_by_reset(node: &Node) -> bool {
    match node.power_state {
        Some(state) => state == PowerState::On,
        None => node.keeps_power(),
    }
}

/// Whether the machine must get the agent when it boots from the network now.
pub fn boots_agent(node: &Node) -> bool {
    node.job.as_ref().is_some_and(|job| {
        job.boots > 0
            && matches!(
                job.phase,
                Phase::BootFromNet
                    | Phase::PowerOn
                    | Phase::AwaitAgent
                    | Phase::GetSteps
                    | Phase::StartStep
                    | Phase::AwaitStep
                    | Phase::AskPower
                    | Phase::Bootloader
                    | Phase::AwaitBootloader
                    | Phase::FinishRescue
                    | Phase::Sync
                    | Phase::PowerStep
                    | Phase::Pause
                    | Phase::Hold
            )
    })
}

impl Turning<'_> {
    fn heard(&mut self, event: Event) {
        if let Event::Power(_, Ok(PowerAnswer::Power(state))) = event
            && self.node.power_state != Some(state)
        {
            self.node.power_state = Some(state);
            self.note(NoteKind::PowerIs(state));
        }
        let Some(job) = &self.node.job else {
            return self.meanwhile(&event);
        };
        let phase = job.phase;
        match event {
            Event::Power(order, answer) => self.bmc_said(phase, order, answer),
            Event::Agent(order, answer) => self.agent_said(phase, &order, answer),
            Event::SignOfLife => self.machine_heard(phase),
            Event::Beat => self.agent_beat(phase),
            Event::Inspected {
                properties,
                inventory,
                complaint,
            } => {
                self.inspected(phase, properties, inventory, complaint);
            }
            Event::NotInspected { why } => self.not_inspected(phase, &why),
            Event::ImageUnusable { why } => self.image_unusable(&why),
            Event::BootFileUnusable { why } => self.boot_file_unusable(phase, &why),
            Event::StepAgain { why } => self.step_again(phase, why),
            Event::WrongMachine { why } => self.wrong_machine(phase, &why),
            Event::Woke => self.woke(phase),
            Event::Overgrown => self.overgrown(),
            Event::AgentContested { why } => self.fail(&why),
            Event::Restarted => self.restarted(phase),
        }
    }

    // Time and restarts.

    fn woke(&mut self, phase: Phase) {
        match phase {
            // What it found is here; that it does not stay is no failure.
            Phase::AwaitAgent if self.has_findings() => {
                self.resumed();
                self.enter(Phase::FinalOff);
            }
            Phase::AwaitAgent => self.agent_is_late(),
            Phase::AwaitStep | Phase::AwaitBootloader => self.fell_silent(),
            Phase::Pause => self.step_passed(),
            Phase::FinalOff if self.asks_lost_agent() => self.lost_agent_waited(),
            other if self.skips_power_off(other) => self.is_off(other),
            other => self.give_order(other),
        }
    }

    fn agent_is_late(&mut self) {
        let inspects = self.node.job.as_ref().map(|job| job.kind) == Some(JobKind::Inspect);
        let agent = self.node.agent.as_ref();
        let beats = agent.is_some_and(|agent| agent.url.is_some());
        self.boot_again(match agent {
            Some(_) if beats && inspects => {
                "the agent is here but sent no findings; its kernel needs \
                 ipa-inspection-callback-url, and its log says which collector hangs"
            }
            Some(_) if !beats => "the agent looked its node up but never beat",
            _ => "no sign of the agent in time",
        });
    }

    fn restarted(&mut self, phase: Phase) {
        match phase {
            // Whether the agent took the step is unknown: its next beat shows.
            Phase::StartStep => self.enter(Phase::AwaitStep),
            other if self.skips_power_off(other) => self.is_off(other),
            other => self.give_order(other),
        }
    }

    /// Ends a job whose BMC switches the machine of another node.
    fn wrong_machine(&mut self, phase: Phase, why: &str) {
        if matches!(
            phase,
            Phase::PowerOn
                | Phase::AwaitAgent
                | Phase::FinalOff
                | Phase::BootFromDisk
                | Phase::StartInstance
        ) {
            self.fail(why);
            // That BMC gets no more requests.
            self.node.target_power_state = None;
            self.actions
                .retain(|action| *action != Action::SwitchOffFailed);
        }
    }

    /// Ends a job whose image is not written yet.
    fn image_unusable(&mut self, why: &str) {
        let Some(job) = &self.node.job else { return };
        // A held job looks at its image again when it goes on.
        if job.phase == Phase::Hold {
            return;
        }
        let write = job.steps.iter().position(|step| step.step == WRITE_IMAGE);
        if write.is_some_and(|write| write >= job.at as usize) {
            self.fail(why);
        }
    }

    /// Ends a job whose machine has not loaded yet what it is to boot.
    fn boot_file_unusable(&mut self, phase: Phase, why: &str) {
        let Some(job) = &self.node.job else { return };
        let has_to_load = match phase {
            // The instance that is torn down is powered off before the job may end.
            Phase::ReadPower | Phase::PowerOff => job.kind != JobKind::TearDown,
            Phase::BootFromNet | Phase::PowerOn => true,
            Phase::StartInstance => netboots_instance(&self.node),
            Phase::AwaitAgent => self.node.agent.is_none(),
            _ => false,
        };
        if has_to_load {
            self.fail(why);
        }
    }

    /// What its agent or its BMC told would not fit into the node's record.
    fn overgrown(&mut self) {
        let info = &mut self.node.driver_internal_info;
        info.retain(|key, _| !key.starts_with(CACHED_STEPS));
        self.fail(
            "what the machine told does not fit into this node's record; make room there: a config \
             drive by URL, less in extra, fewer steps offered by the ramdisk's hardware managers",
        );
    }

    fn boot_again(&mut self, why: &str) {
        if let Some(step) = self.unsure() {
            return self.fail(&format!(
                "{why}; whether {step} was done is not known, and it is not done twice: look at \
                 the machine, then run what is missing"
            ));
        }
        let resets_bmc = self.limits.bmc_reset && !self.node.keeps_power();
        let Some(job) = &mut self.node.job else {
            return;
        };
        if job.boots >= self.limits.boots_max {
            let boots = job.boots;
            self.fail(&format!(
                "{why} after {boots} boots; look at the machine's console, its boot order and the \
                 network between it and this box"
            ));
            return;
        }
        job.boots += 1;
        let rung = ladder::boot(job.boots, self.limits.boots_max, resets_bmc);
        self.writes_again();
        self.note(NoteKind::Retrying {
            why: why.to_owned(),
        });
        self.resumed();
        match rung {
            Rung::Reset => self.enter(Phase::BootFromNet),
            Rung::Cycle => self.enter(Phase::PowerOff),
            Rung::BmcReset => {
                self.enter(Phase::PowerOff);
                self.actions.pop();
                self.actions.push(Action::Power(BMC_RESET));
            }
        }
    }

    // Moving on.

    /// Enters a phase for the first time.
    pub(crate) fn enter(&mut self, phase: Phase) {
        if let Some(job) = &mut self.node.job {
            job.tries = 0;
        }
        self.enter_again(phase);
    }

    fn enter_again(&mut self, phase: Phase) {
        if let Some(job) = &mut self.node.job {
            job.phase = phase;
        }
        match phase {
            // A new boot has a new agent with a new token.
            Phase::PowerOff | Phase::BootFromNet => self.node.agent = None,
            Phase::AwaitAgent | Phase::AwaitStep | Phase::AwaitBootloader | Phase::Pause => {
                self.turn_if_possible(Turn::Wait);
            }
            Phase::StartStep | Phase::GetSteps | Phase::Bootloader | Phase::FinishRescue => {
                self.resumed();
            }
            Phase::Hold => self.turn(Turn::Hold),
            _ => {}
        }
        if self.locks_down(phase) {
            return self.actions.push(Action::Agent(AgentOrder::Lockdown));
        }
        if self.skips_power_off(phase) {
            return self.is_off(phase);
        }
        self.give_order(phase);
    }

    /// The order that a phase stands for; given again after a restart.
    fn give_order(&mut self, phase: Phase) {
        let efi = boot_mode(&self.node) == Some("uefi");
        let Some(job) = &self.node.job else { return };
        let action = match phase {
            Phase::ReadPower | Phase::AskPower => Action::Power(PowerOrder::Status),
            // It boots something else than the agent, as with Ironic.
            Phase::FinalOff if self.node.keeps_power() => Action::Power(PowerOrder::Reset),
            Phase::PowerOff | Phase::FinalOff => Action::Power(PowerOrder::Off),
            Phase::BootFromNet => Action::Power(PowerOrder::SetBoot {
                device: BootDevice::Pxe,
                // An instance without a disk boots from the network each time.
                persistent: job.boots == 0,
                efi,
            }),
            Phase::BootFromDisk => Action::Power(PowerOrder::SetBoot {
                device: BootDevice::Disk,
                persistent: true,
                efi,
            }),
            // What runs already boots by a reset.
            Phase::PowerOn if boots_by_reset(&self.node) => Action::Power(PowerOrder::Reset),
            Phase::StartInstance if self.node.keeps_power() && boots_by_reset(&self.node) => {
                Action::Power(PowerOrder::Reset)
            }
            Phase::PowerOn | Phase::StartInstance => Action::Power(PowerOrder::On),
            Phase::AwaitAgent if job.tries > 0 => Action::WakeAfter(self.limits.agent_wait_ms),
            Phase::AwaitAgent => Action::WakeAfter(self.limits.boot_ms),
            Phase::AwaitStep | Phase::AwaitBootloader => Action::WakeAfter(self.limits.silence_ms),
            Phase::Bootloader => Action::Agent(AgentOrder::FindParts),
            Phase::GetSteps => Action::Agent(AgentOrder::GetSteps(
                job.step_kind.unwrap_or(StepKind::Clean),
            )),
            Phase::StartStep => match job.steps.get(job.at as usize) {
                Some(step) => Action::Agent(AgentOrder::Execute {
                    kind: job.step_kind.unwrap_or(StepKind::Clean),
                    step: step.clone(),
                    at: job.at,
                    versions: job.versions.clone(),
                }),
                None => return self.next_step(),
            },
            Phase::PowerStep => match self.present_act() {
                Some(Act::PowerOff) => Action::Power(PowerOrder::Off),
                Some(Act::PowerOn) => Action::Power(PowerOrder::On),
                _ if self.node.keeps_power() => Action::Power(PowerOrder::Reset),
                _ => Action::Power(PowerOrder::Cycle),
            },
            Phase::Pause => match self.present_act() {
                Some(Act::Wait {
                    seconds: Some(seconds),
                }) => Action::WakeAfter(seconds * 1000),
                _ => Action::WakeAfter(self.limits.agent_wait_ms),
            },
            // Only an operator ends it.
            Phase::Hold => return,
            Phase::FinishRescue => Action::Agent(AgentOrder::FinishRescue),
            Phase::Sync => Action::Agent(AgentOrder::Sync),
        };
        self.actions.push(action);
    }

    /// Counts a try of the present phase; false when there were enough.
    fn tried(&mut self) -> bool {
        let Some(job) = &mut self.node.job else {
            return false;
        };
        job.tries += 1;
        job.tries < self.limits.tries_max
    }

    fn resumed(&mut self) {
        self.turn_if_possible(Turn::Resume);
    }

    /// The agent of this boot and what was meant for it are no more.
    pub(crate) fn forget_boot(&mut self) {
        self.node.agent = None;
        self.node.instance_info.remove(RESCUE_HASH);
    }

    pub(crate) fn finish(&mut self) {
        let kind = self.node.job.take().map(|job| job.kind);
        self.forget_boot();
        if kind == Some(JobKind::Inspect) {
            self.node.inspection_started_at = None;
            self.node.inspection_finished_at = Some(self.now.wall);
        }
        self.turn(Turn::Done);
    }

    pub(crate) fn fail(&mut self, why: &str) {
        let job = self.node.job.take();
        // Whoever asks why finds more in the agent's own words.
        let agent = self.node.agent.as_ref();
        if let Some(agent) = agent.filter(|agent| agent.url.is_some() && !agent.is_legacy()) {
            let agent = Box::new(agent.clone());
            self.actions.push(Action::CollectLogs(agent));
        }
        self.forget_boot();
        self.node.last_error = Some(why.to_owned());
        self.node.inspection_started_at = None;
        self.note(NoteKind::Failed {
            why: why.to_owned(),
        });
        let deployed = job.as_ref().map(|job| job.kind) == Some(JobKind::Deploy);
        // While a power-on is under way the record still has the state before it.
        let switching = job
            .as_ref()
            .is_some_and(|job| matches!(job.phase, Phase::PowerOn | Phase::StartInstance));
        if deployed && self.switches_off_failed(switching) {
            self.node.target_power_state = Some(PowerState::Off);
            self.actions.push(Action::SwitchOffFailed);
        }
        if job.is_some_and(|job| cleaning_midway(&job)) {
            self.node.maintenance = true;
            self.node.fault = Some("clean failure".to_owned());
            self.node.maintenance_reason = Some(why.to_owned());
        }
        self.turn(Turn::Fail);
    }

    // The table.

    pub(crate) fn turn(&mut self, turn: Turn) {
        let from = self.node.provision_state;
        match table::row(from, Cause::Turn(turn)) {
            Some(row) => self.follow(row),
            // A table without this row is our own mistake; the node must not be lost to it.
            None => debug_assert!(false, "no row for {turn:?} in {from}"),
        }
    }

    pub(crate) fn turn_if_possible(&mut self, turn: Turn) {
        if let Some(row) = table::row(self.node.provision_state, Cause::Turn(turn)) {
            self.follow(row);
        }
    }

    pub(crate) fn follow(&mut self, row: Row) {
        let from = row.from;
        let to = match row.to {
            To::State(to) => to,
            To::Target => match self.node.target_provision_state {
                // What is retired is not offered again.
                Some(ProvisionState::Available) if is_retired(&self.node) => {
                    ProvisionState::Manageable
                }
                Some(target) => target,
                None => ProvisionState::Manageable,
            },
        };
        if let Aim::At(target) = row.aim {
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
        self.actions.push(Action::Note(kind));
    }
}

fn is_retired(node: &Node) -> bool {
    node.kept.get("retired") == Some(&Value::Bool(true))
}

fn cleaning_midway(job: &Job) -> bool {
    let at_step = [Phase::StartStep, Phase::AwaitStep, Phase::AskPower];
    job.kind == JobKind::Clean && at_step.contains(&job.phase)
}

#[cfg(test)]
mod tests;
