//! Steps that need no agent: Ironic's reserved steps, and those of a node with fake hardware.

use serde_json::Value;
use trivet_drivers::{
    InterfaceKind, ReservedStep, deploy_method, fake_steps, is_off, netboots_instance, reserved,
};
use trivet_model::attributes::RaidConfig;
use trivet_model::interface::DeployInterface;
use trivet_model::node::JsonObject;
use trivet_model::{JobKind, JobPhase, JobStep, NoteKind, PowerState, StepKind};

use crate::{NodeAction, NodeTransition};

impl NodeTransition<'_> {
    /// Whether the present job boots the agent.
    pub(crate) fn uses_agent(&self) -> bool {
        self.node
            .job
            .as_ref()
            .is_some_and(|job| job.boots.is_some())
    }

    /// Plans the steps of a job that boots no agent.
    pub(crate) fn plan_here(&mut self) {
        let Some(job) = &self.node.job else { return };
        let kind = job.step_kind.unwrap_or(StepKind::Clean);
        let mut offered = Vec::new();
        if deploy_method(&self.node) == Some(DeployInterface::Fake) {
            let names = fake_steps(kind).iter();
            offered.extend(names.filter_map(|(kind, name)| {
                let is_off = is_off(&self.node, InterfaceKind::named(kind)?);
                (!is_off).then(|| simulated_step(kind, name))
            }));
        }
        self.planned(&offered, &format!("node {}", self.node.label()));
    }

    /// The reserved step of Ironic, if the present one is such.
    pub(super) fn present_builtin_step(&self) -> Option<ReservedStep> {
        let job = self.node.job.as_ref()?;
        reserved(job.steps.get(job.at as usize)?)
    }

    /// Starts the present step, or what follows the last one.
    pub(super) fn next_step(&mut self) {
        let Some(job) = &self.node.job else { return };
        let Some(step) = job.steps.get(job.at as usize).cloned() else {
            return self.steps_done();
        };
        match reserved(&step) {
            Some(act) => self.start_builtin_step(act, step.step),
            None if !self.uses_agent() => {
                self.note(NoteKind::StepStarted {
                    step: step.step.clone(),
                });
                self.simulate_step(&step);
                self.step_passed();
            }
            None if self.node.power_state == Some(PowerState::Off) => {
                self.enter(JobPhase::BootFromNet);
            }
            None => self.enter(JobPhase::StartStep),
        }
    }

    fn start_builtin_step(&mut self, act: ReservedStep, step: String) {
        self.note(NoteKind::StepStarted { step });
        let is_on = self.node.power_state == Some(PowerState::On);
        match act {
            ReservedStep::Hold => self.enter(JobPhase::Hold),
            // Without an agent there are no heartbeats.
            ReservedStep::Wait { seconds: None } if !self.uses_agent() => self.step_passed(),
            ReservedStep::Wait { .. } => self.enter(JobPhase::Pause),
            ReservedStep::PowerOn if is_on => self.step_passed(),
            // Between steps of the agent a machine boots the agent.
            ReservedStep::PowerOn | ReservedStep::Reboot if self.uses_agent() => {
                self.count_step();
                self.enter(JobPhase::PowerOff);
            }
            ReservedStep::PowerOn | ReservedStep::PowerOff | ReservedStep::Reboot => {
                self.enter(JobPhase::PowerStep);
            }
        }
    }

    fn count_step(&mut self) {
        if let Some(step) = self.present_step() {
            self.note(NoteKind::StepDone { step });
        }
        if let Some(job) = &mut self.node.job {
            job.at += 1;
        }
    }

    /// The present step is done; the next one starts.
    pub(super) fn step_passed(&mut self) {
        self.count_step();
        self.resumed();
        self.next_step();
    }

    /// The operator ended a hold.
    pub(crate) fn released(&mut self) {
        if self.node.job.is_none() {
            return self.fail("no job was held; start the job again");
        }
        let is_off = self.node.power_state == Some(PowerState::Off);
        if !self.uses_agent() || is_off {
            return self.step_passed();
        }
        // The agent runs: its next heartbeat starts the next step.
        self.count_step();
        if let Some(job) = &mut self.node.job {
            job.phase = JobPhase::AwaitAgent;
            job.tries = 1;
            let wait_ms = self.limits.agent_wait_ms;
            self.actions.push(NodeAction::WakeAfter(wait_ms));
        }
    }

    /// Whether the job is the deployment of an instance that is not on a disk.
    fn begins_instance(&self) -> bool {
        let job = self.node.job.as_ref();
        job.is_some_and(|job| job.kind == JobKind::Deploy) && netboots_instance(&self.node)
    }

    fn steps_done(&mut self) {
        let Some(job) = &self.node.job else { return };
        let starts = matches!(job.kind, JobKind::Deploy | JobKind::Service);
        let fake = deploy_method(&self.node) == Some(DeployInterface::Fake);
        let is_off = self.node.power_state == Some(PowerState::Off);
        match (self.uses_agent(), starts) {
            // The agent ended with the power: nothing is left to sync.
            (true, true) if is_off && !self.wants_loader() => self.is_off(JobPhase::FinalOff),
            (true, true) if is_off => self.enter(JobPhase::BootFromNet),
            (true, true) => self.disk_written(),
            (true, false) => self.agent_done(),
            (false, true) if fake => self.enter(JobPhase::BootFromDisk),
            (false, true) if self.begins_instance() => self.starts_instance(),
            // Nothing was booted: the machine is unchanged.
            (false, _) => self.finish(),
        }
    }

    /// Simulates the result of a step on a node with fake hardware.
    fn simulate_step(&mut self, step: &JobStep) {
        let attributes = &mut self.node.attributes;
        let internal = &mut self.node.driver_internal_info;
        match (step.interface.as_str(), step.step.as_str()) {
            ("bios", "apply_configuration") => {
                let settings = step.args.get("settings").and_then(Value::as_array);
                let pairs = settings.into_iter().flatten().filter_map(|setting| {
                    let name = setting.get("name").and_then(Value::as_str)?;
                    Some((name.to_owned(), setting.get("value")?.clone()))
                });
                let mut known = match internal.remove(BIOS_SETTINGS) {
                    Some(Value::Object(known)) => known,
                    _ => JsonObject::new(),
                };
                known.extend(pairs);
                internal.insert(BIOS_SETTINGS.to_owned(), Value::Object(known));
            }
            ("bios", "factory_reset") => {
                internal.remove(BIOS_SETTINGS);
            }
            ("raid", "create_configuration" | "apply_configuration") => {
                let given = step.args.get("raid_config").and_then(Value::as_object);
                let target = &attributes.target_raid_config;
                let config = given.map_or_else(|| target.clone(), |one| RaidConfig(one.clone()));
                if !config.is_empty() {
                    attributes.raid_config = config;
                }
            }
            ("raid", "delete_configuration") => {
                attributes.raid_config = RaidConfig::default();
            }
            _ => {}
        }
    }
}

/// The key of the simulated BIOS settings in `driver_internal_info`, by name.
const BIOS_SETTINGS: &str = "bios_settings";

fn simulated_step(interface: &str, name: &str) -> JobStep {
    JobStep {
        step: name.to_owned(),
        interface: interface.to_owned(),
        priority: 0,
        args: Value::Object(JsonObject::new()),
        reboot_requested: false,
        abortable: true,
    }
}
