//! The jobs: verify, inspect, clean, deploy, tear down, adopt.
//!
//! A job is a path through phases. Entering a phase gives one order; the event
//! that the phase waits for leads to the next. What a BMC claims is a hint: that
//! a machine really started is believed when it is heard on the wire. A machine
//! that is not heard, or falls silent, is booted again, a bounded number of
//! times, and then the job fails with a sentence.

use serde_json::Value;
use trivet_model::node::Object;
use trivet_model::{
    AgentError, AgentEvent, AgentOrder, BootDevice, Job, JobKind, Node, NoteKind, Now, Phase,
    PowerAnswer, PowerError, PowerOrder, PowerState, ProvisionState, Step, StepKind,
};

use crate::table::{self, Aim, Cause, Row, To, Turn};
use crate::{Action, Event, Limits, Turning, steps};

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

/// Whether the machine must get the agent when it boots from the network now.
pub fn boots_agent(node: &Node) -> bool {
    node.job.as_ref().is_some_and(|job| {
        matches!(
            job.phase,
            Phase::BootFromNet
                | Phase::PowerOn
                | Phase::AwaitAgent
                | Phase::GetSteps
                | Phase::StartStep
                | Phase::AwaitStep
                | Phase::Sync
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
        let Some(job) = &self.node.job else { return };
        let phase = job.phase;
        match event {
            Event::Power(order, answer) => self.bmc_said(phase, order, answer),
            Event::Agent(order, answer) => self.agent_said(phase, &order, answer),
            Event::SignOfLife => self.machine_heard(phase),
            Event::Beat => self.agent_beat(phase),
            Event::Inspected {
                properties,
                inventory,
            } => {
                self.inspected(phase, properties, inventory);
            }
            Event::Woke => self.woke(phase),
            Event::Restarted => self.restarted(phase),
        }
    }

    // Power.

    fn bmc_said(
        &mut self,
        phase: Phase,
        order: PowerOrder,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        if !belongs(phase, order) {
            return;
        }
        match (phase, answer) {
            (_, Err(error)) => self.power_failed(phase, &error),
            (Phase::ReadPower, Ok(PowerAnswer::Power(_))) => self.finish(),
            (Phase::PowerOff | Phase::FinalOff, Ok(PowerAnswer::Accepted)) => {
                self.actions.push(Action::Power(PowerOrder::Status));
            }
            (Phase::PowerOff | Phase::FinalOff, Ok(PowerAnswer::Power(PowerState::Off))) => {
                self.is_off(phase);
            }
            (Phase::PowerOff | Phase::FinalOff, Ok(PowerAnswer::Power(PowerState::On))) => {
                if self.tried() {
                    self.actions
                        .push(Action::WakeAfter(self.limits.power_poll_ms));
                } else {
                    self.fail("the BMC took the order to power off, but the machine stays on");
                }
            }
            (Phase::BootFromNet, Ok(_)) => self.enter(Phase::PowerOn),
            (Phase::PowerOn, Ok(_)) => {
                self.node.power_state = Some(PowerState::On);
                self.enter(Phase::AwaitAgent);
            }
            (Phase::BootFromDisk, Ok(_)) => self.enter(Phase::StartInstance),
            (Phase::StartInstance, Ok(_)) => {
                self.node.power_state = Some(PowerState::On);
                self.finish();
            }
            _ => {}
        }
    }

    fn power_failed(&mut self, phase: Phase, error: &PowerError) {
        let lasting = matches!(
            error,
            PowerError::NotConfigured { .. } | PowerError::Login { .. }
        );
        if !lasting && self.tried() {
            self.note(NoteKind::Retrying {
                why: error.to_string(),
            });
            self.actions.push(Action::WakeAfter(self.limits.retry_ms));
        } else {
            self.fail(&format!("{phase}: {error}"));
        }
    }

    fn is_off(&mut self, phase: Phase) {
        let Some(job) = &self.node.job else { return };
        match (phase, job.kind) {
            (Phase::PowerOff, JobKind::TearDown) => self.torn_down(),
            (Phase::PowerOff, _) => self.enter(Phase::BootFromNet),
            (_, JobKind::Deploy) => self.enter(Phase::BootFromDisk),
            _ => self.finish(),
        }
    }

    /// The instance is gone; its end is the beginning of cleaning.
    fn torn_down(&mut self) {
        self.node.instance_info = Object::new();
        self.node.instance_uuid = None;
        self.turn(Turn::Done);
        if self.node.automated_clean == Some(false) {
            self.finish();
            return;
        }
        if let Some(job) = &mut self.node.job {
            job.kind = JobKind::Clean;
            job.step_kind = Some(StepKind::Clean);
            job.steps.clear();
        }
        self.enter(Phase::BootFromNet);
    }

    // The agent.

    /// The first sign of a boot gives its agent time to come up. Later ones give no
    /// more: a machine that boots in circles, or whose agent is dead while its kernel
    /// renews the lease, would be waited for without end.
    fn machine_heard(&mut self, phase: Phase) {
        let Some(job) = &mut self.node.job else {
            return;
        };
        if phase == Phase::AwaitAgent && job.tries == 0 {
            job.tries = 1;
            self.actions
                .push(Action::WakeAfter(self.limits.agent_wait_ms));
        }
    }

    fn agent_beat(&mut self, phase: Phase) {
        match phase {
            Phase::AwaitAgent => {
                let Some(job) = &self.node.job else { return };
                // The data of an inspection come by themselves and before the first beat. An
                // agent that beats without having sent them gets no more time for it.
                if job.kind != JobKind::Inspect {
                    let next = if job.at > 0 {
                        Phase::StartStep
                    } else {
                        Phase::GetSteps
                    };
                    self.turn(Turn::Resume);
                    self.enter(next);
                }
            }
            Phase::AwaitStep => {
                self.actions
                    .push(Action::WakeAfter(self.limits.agent_wait_ms));
                self.actions.push(Action::Agent(AgentOrder::Look));
            }
            _ => {}
        }
    }

    fn agent_said(
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
                self.planned(&steps);
            }
            (Phase::StartStep, AgentOrder::Execute { .. }, Ok(event)) => self.step_taken(event),
            (Phase::AwaitStep, AgentOrder::Look, Ok(event)) => self.step_seen(event),
            (Phase::Sync, AgentOrder::Sync, Ok(AgentEvent::Finished | AgentEvent::Accepted)) => {
                self.enter(Phase::FinalOff);
            }
            (Phase::StartStep, AgentOrder::Execute { .. }, Err(AgentError::Unreachable { .. })) => {
                // The agent may have taken it: its next beat shows.
                self.enter(Phase::AwaitStep);
            }
            (
                Phase::GetSteps | Phase::Sync,
                _,
                Ok(AgentEvent::Busy) | Err(AgentError::Unreachable { .. }),
            ) => {
                if self.tried() {
                    self.actions.push(Action::WakeAfter(self.limits.retry_ms));
                } else {
                    self.boot_again("the agent does not answer");
                }
            }
            (Phase::AwaitStep, AgentOrder::Look, Err(AgentError::Unreachable { .. })) => {
                self.not_reached();
            }
            (
                Phase::GetSteps | Phase::StartStep | Phase::AwaitStep | Phase::Sync,
                _,
                Err(error),
            ) => {
                self.fail(&error.to_string());
            }
            _ => {}
        }
    }

    /// It beats, so it lives; but one that can never be called is of no use.
    fn not_reached(&mut self) {
        if !self.tried() {
            self.boot_again("the agent beats but cannot be called");
        }
    }

    fn planned(&mut self, offered: &[Step]) {
        let Some(job) = &mut self.node.job else {
            return;
        };
        match steps::plan(job, offered) {
            Ok(steps) => {
                job.steps = steps;
                job.at = 0;
                self.next_step();
            }
            Err(why) => self.fail(&why),
        }
    }

    fn next_step(&mut self) {
        let Some(job) = &self.node.job else { return };
        let more = (job.at as usize) < job.steps.len();
        match (more, job.kind) {
            (true, _) => self.enter(Phase::StartStep),
            (false, JobKind::Deploy) => self.enter(Phase::Sync),
            (false, _) => self.enter(Phase::FinalOff),
        }
    }

    fn step_taken(&mut self, event: AgentEvent) {
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

    fn step_seen(&mut self, event: AgentEvent) {
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

    fn repeat_step(&mut self, why: &str) {
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

    fn present_step(&self) -> Option<String> {
        let job = self.node.job.as_ref()?;
        job.steps.get(job.at as usize).map(|step| step.step.clone())
    }

    fn inspected(&mut self, phase: Phase, properties: Object, inventory: Value) {
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
        self.resumed();
        self.enter(Phase::FinalOff);
    }

    // Time and restarts.

    fn woke(&mut self, phase: Phase) {
        match phase {
            Phase::AwaitAgent => self.boot_again("no sign of the agent in time"),
            Phase::AwaitStep => self.boot_again("the agent fell silent while a step ran"),
            Phase::PowerOff | Phase::FinalOff => {
                // Asking once more is harmless where the first order was lost.
                self.actions.push(Action::Power(PowerOrder::Off));
            }
            other => self.give_order(other),
        }
    }

    fn restarted(&mut self, phase: Phase) {
        match phase {
            // Whether the agent took the step is unknown: its next beat shows.
            Phase::StartStep => self.enter(Phase::AwaitStep),
            other => self.give_order(other),
        }
    }

    fn boot_again(&mut self, why: &str) {
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
        job.at = 0;
        self.note(NoteKind::Retrying {
            why: why.to_owned(),
        });
        self.resumed();
        self.enter(Phase::PowerOff);
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
            Phase::PowerOff => self.node.agent = None,
            Phase::AwaitAgent | Phase::AwaitStep => self.turn_if_possible(Turn::Wait),
            Phase::StartStep | Phase::GetSteps => self.resumed(),
            _ => {}
        }
        self.give_order(phase);
    }

    /// The order that a phase stands for; given again after a restart.
    fn give_order(&mut self, phase: Phase) {
        let efi = boots_efi(&self.node.properties);
        let Some(job) = &self.node.job else { return };
        let action = match phase {
            Phase::ReadPower => Action::Power(PowerOrder::Status),
            Phase::PowerOff | Phase::FinalOff => Action::Power(PowerOrder::Off),
            Phase::BootFromNet => Action::Power(PowerOrder::SetBoot {
                device: BootDevice::Pxe,
                persistent: false,
                efi,
            }),
            Phase::BootFromDisk => Action::Power(PowerOrder::SetBoot {
                device: BootDevice::Disk,
                persistent: true,
                efi,
            }),
            Phase::PowerOn | Phase::StartInstance => Action::Power(PowerOrder::On),
            Phase::AwaitAgent if job.tries > 0 => Action::WakeAfter(self.limits.agent_wait_ms),
            Phase::AwaitAgent => Action::WakeAfter(self.limits.boot_ms),
            Phase::AwaitStep => Action::WakeAfter(self.limits.agent_wait_ms),
            Phase::GetSteps => Action::Agent(AgentOrder::GetSteps(
                job.step_kind.unwrap_or(StepKind::Clean),
            )),
            Phase::StartStep => match job.steps.get(job.at as usize) {
                Some(step) => Action::Agent(AgentOrder::Execute {
                    kind: job.step_kind.unwrap_or(StepKind::Clean),
                    step: step.clone(),
                    versions: job.versions.clone(),
                }),
                None => return self.next_step(),
            },
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

    pub(crate) fn wait_for_agent(&mut self) {
        self.actions
            .push(Action::WakeAfter(self.limits.agent_wait_ms));
    }

    fn resumed(&mut self) {
        self.turn_if_possible(Turn::Resume);
    }

    fn finish(&mut self) {
        let kind = self.node.job.take().map(|job| job.kind);
        self.node.agent = None;
        if kind == Some(JobKind::Inspect) {
            self.node.inspection_started_at = None;
            self.node.inspection_finished_at = Some(self.now.wall);
        }
        self.turn(Turn::Done);
    }

    fn fail(&mut self, why: &str) {
        let job = self.node.job.take();
        self.node.agent = None;
        self.node.last_error = Some(why.to_owned());
        self.node.inspection_started_at = None;
        self.note(NoteKind::Failed {
            why: why.to_owned(),
        });
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

    fn turn_if_possible(&mut self, turn: Turn) {
        if let Some(row) = table::row(self.node.provision_state, Cause::Turn(turn)) {
            self.follow(row);
        }
    }

    pub(crate) fn follow(&mut self, row: Row) {
        let from = row.from;
        let to = match row.to {
            To::State(to) => to,
            To::Target => self
                .node
                .target_provision_state
                .unwrap_or(ProvisionState::Manageable),
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

/// Whether an answer to this order is what the phase waits for.
fn belongs(phase: Phase, order: PowerOrder) -> bool {
    match phase {
        Phase::ReadPower => order == PowerOrder::Status,
        Phase::PowerOff | Phase::FinalOff => {
            matches!(order, PowerOrder::Status | PowerOrder::Off)
        }
        Phase::BootFromNet | Phase::BootFromDisk => matches!(order, PowerOrder::SetBoot { .. }),
        Phase::PowerOn | Phase::StartInstance => order == PowerOrder::On,
        _ => false,
    }
}

fn cleaning_midway(job: &Job) -> bool {
    job.kind == JobKind::Clean && matches!(job.phase, Phase::StartStep | Phase::AwaitStep)
}

/// `properties.capabilities` is `key:value,key:value`, or an object.
fn boots_efi(properties: &Object) -> bool {
    match properties.get("capabilities") {
        Some(Value::String(text)) => text.split(',').any(|pair| pair.trim() == "boot_mode:uefi"),
        Some(Value::Object(object)) => {
            object.get("boot_mode").and_then(Value::as_str) == Some("uefi")
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
