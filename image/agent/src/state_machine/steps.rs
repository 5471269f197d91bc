//! Steps of the hardware managers: which there are, and which manager executes one.
//!
//! As the stock agent does: if two managers have a step of the same name, the one with the
//! better support offers it, then the one with the higher priority, then the one whose name
//! comes first.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value, json};
use trivet_agent_wire::command::StepsByManager;
use trivet_agent_wire::{CommandError, IpaStep};
use trivet_model::StepKind;

use super::AgentState;
use super::command_table::{AgentCommandOutcome, command_error};
use super::erase::parse_erase_order;
use super::image;
use super::work::{AgentWork, ManagerRequest, RunningAgentCommand};
use crate::hardware_manager::{ManagerFacts, SUPPORT_GENERIC};

/// Our hardware manager, as `hardware_manager_version` names it.
pub(super) const MANAGER: &str = "trivet_hardware_manager";
/// Its version: increased when steps change their meaning.
pub(super) const MANAGER_VERSION: &str = "1.0";
/// The owner of its steps; the stock agent names the class there.
const MANAGER_CLASS: &str = "TrivetHardwareManager";

/// A step in execution: its parameters, and the managers that are asked if the present one does
/// not know it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepDispatch {
    kind: StepKind,
    step: Value,
    node: Value,
    ports: Value,
    /// Names in the order of support.
    rest: VecDeque<String>,
}

impl StepDispatch {
    /// The kind and the step, as its result repeats them.
    pub(super) fn step(&self) -> (StepKind, Value) {
        (self.kind, self.step.clone())
    }

    /// The work of the next manager that knows the step, or why there is none.
    pub(super) fn next(&mut self) -> Result<AgentWork, CommandError> {
        while let Some(manager) = self.rest.pop_front() {
            if manager != MANAGER {
                return Ok(AgentWork::Manager(ManagerRequest::Execute {
                    manager,
                    kind: self.kind,
                    step: self.step.clone(),
                    node: self.node.clone(),
                    ports: self.ports.clone(),
                }));
            }
            if let Some(work) = self.own_work()? {
                return Ok(work);
            }
        }
        let name = self.step.get("step").and_then(Value::as_str);
        Err(command_error(
            "HardwareManagerMethodNotFound",
            500,
            "No HardwareManager found to handle method",
            format!("Could not find method: {}", name.unwrap_or_default()),
        ))
    }

    /// The work of our own manager; none if it does not know the step.
    fn own_work(&self) -> Result<Option<AgentWork>, CommandError> {
        let name = self.step.get("step").and_then(Value::as_str);
        let args = self.step.get("args").and_then(Value::as_object);
        match (self.kind, name.unwrap_or_default()) {
            (StepKind::Clean | StepKind::Deploy, "erase_devices_metadata") => {
                self.erasure(false).map(Some)
            }
            (StepKind::Clean, "erase_devices") => self.erasure(true).map(Some),
            (StepKind::Deploy | StepKind::Service, "write_image") => {
                let none = Map::new();
                match image::parse_image_order(args.unwrap_or(&none), &self.node) {
                    Ok(order) => Ok(Some(AgentWork::WriteImage(order))),
                    Err(details) => {
                        let message = "Image cannot be written";
                        Err(command_error("DeploymentError", 500, message, details))
                    }
                }
            }
            _ => Ok(None),
        }
    }

    fn erasure(&self, whole: bool) -> Result<AgentWork, CommandError> {
        let order = parse_erase_order(whole, &self.node);
        order.map(AgentWork::Erase).map_err(|details| {
            let message = "Error erasing block device";
            command_error("BlockDeviceEraseError", 500, message, details)
        })
    }
}

impl AgentState {
    /// All managers in the order of support: ours among those that were added.
    fn managers(&self) -> Vec<ManagerFacts> {
        let mut all = self.identity.managers.clone();
        all.push(own_manager());
        all.sort_by(|one, other| (other.support, &one.name).cmp(&(one.support, &other.name)));
        all
    }

    fn manager_versions(&self) -> Value {
        let all = self.managers().into_iter();
        all.map(|manager| (manager.name, Value::from(manager.version)))
            .collect::<Map<_, _>>()
            .into()
    }

    /// `get_*_steps`: at once if there is only our own manager.
    pub(super) fn list_steps(
        &self,
        kind: StepKind,
        params: &Map<String, Value>,
    ) -> AgentCommandOutcome {
        if self.identity.managers.is_empty() {
            return AgentCommandOutcome::Done(self.step_list(kind, &StepsByManager::new()));
        }
        let param = |name: &str| params.get(name).cloned().unwrap_or_default();
        AgentCommandOutcome::Started(
            AgentWork::Manager(ManagerRequest::ListSteps {
                kind,
                node: param("node"),
                ports: param("ports"),
            }),
            None,
        )
    }

    /// The reply to `get_*_steps`, from the steps of the managers that were added.
    pub(super) fn step_list(&self, kind: StepKind, added: &StepsByManager) -> Value {
        let mut offered: BTreeMap<&str, (ManagerFacts, &IpaStep)> = BTreeMap::new();
        let own = own_steps(kind);
        let managers = self.managers();
        for manager in &managers {
            let steps = match manager.name.as_str() {
                MANAGER => Some(&own),
                name => added.get(name),
            };
            for step in steps.into_iter().flatten() {
                // Managers come in the order of support and name.
                let better = offered
                    .get(step.step.as_str())
                    .is_none_or(|(owner, other)| {
                        (manager.support, step.priority) > (owner.support, other.priority)
                    });
                if better {
                    offered.insert(&step.step, (manager.clone(), step));
                }
            }
        }
        let mut steps: BTreeMap<&str, Vec<&IpaStep>> = BTreeMap::new();
        for manager in &managers {
            steps.insert(owner_of(&manager.name), Vec::new());
        }
        for (manager, step) in offered.values() {
            let known = managers.iter().find(|one| one.name == manager.name);
            let owner = known.map_or(MANAGER_CLASS, |one| owner_of(&one.name));
            steps.entry(owner).or_default().push(step);
        }
        for list in steps.values_mut() {
            list.sort_by_key(|step| std::cmp::Reverse(step.priority));
        }
        let mut found = json!({ "hardware_manager_version": self.manager_versions() });
        found[format!("{kind}_steps")] = json!(steps);
        found
    }

    /// `execute_*_step`: the managers are asked in the order of support.
    pub(super) fn execute_step(
        &self,
        kind: StepKind,
        params: &Map<String, Value>,
    ) -> Result<AgentCommandOutcome, String> {
        let param = |name: &str| params.get(name).cloned().unwrap_or_default();
        let step = param("step");
        if serde_json::from_value::<IpaStep>(step.clone()).is_err() {
            return Err("'step' must be an object that names a step.".to_owned());
        }
        let wanted = param(&format!("{kind}_version"));
        let versions = self.manager_versions();
        if !wanted.is_null() && wanted != versions {
            return Ok(AgentCommandOutcome::Mismatch(command_error(
                "VersionMismatch",
                409,
                "Hardware managers version mismatch, reload agent with correct version",
                format!("Current versions: {versions}, versions used: {wanted}"),
            )));
        }
        let mut dispatch = StepDispatch {
            kind,
            step,
            node: param("node"),
            ports: param("ports"),
            rest: self.managers().into_iter().map(|one| one.name).collect(),
        };
        Ok(match dispatch.next() {
            Ok(work) => AgentCommandOutcome::Started(work, Some(dispatch)),
            Err(error) => AgentCommandOutcome::Failed(error),
        })
    }

    /// The next manager's work for the running step, after one did not know it.
    pub(super) fn next_manager(
        running: &mut RunningAgentCommand,
    ) -> Result<AgentWork, CommandError> {
        match &mut running.step {
            Some(dispatch) => dispatch.next(),
            None => Err(command_error(
                "HardwareManagerMethodNotFound",
                500,
                "No HardwareManager found to handle method",
                "The command is not a step".to_owned(),
            )),
        }
    }
}

/// Our own hardware manager.
pub fn own_manager() -> ManagerFacts {
    ManagerFacts {
        name: MANAGER.to_owned(),
        version: MANAGER_VERSION.to_owned(),
        support: SUPPORT_GENERIC,
    }
}

fn owner_of(name: &str) -> &str {
    if name == MANAGER { MANAGER_CLASS } else { name }
}

fn own_steps(kind: StepKind) -> Vec<IpaStep> {
    let described = |name: &str, priority: i64| IpaStep {
        step: name.to_owned(),
        interface: Some("deploy".to_owned()),
        priority,
        reboot_requested: false,
        abortable: (kind == StepKind::Clean).then_some(true),
        args: None,
        argsinfo: None,
        trivet_at: None,
    };
    match kind {
        StepKind::Clean => vec![
            described("erase_devices", 10),
            described("erase_devices_metadata", 99),
        ],
        StepKind::Deploy => vec![
            described("erase_devices_metadata", 0),
            described("write_image", 0),
        ],
        StepKind::Service => vec![described("write_image", 0)],
    }
}

#[cfg(test)]
mod tests;
