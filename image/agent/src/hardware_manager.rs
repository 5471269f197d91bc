//! Hardware managers: what knows how to clean, deploy and service one kind of hardware.
//!
//! As in the Ironic Python Agent, each manager says at the start how well it supports this
//! machine ([`HardwareManager::evaluate_hardware_support`]); 0 excludes it. Steps are dispatched
//! in the order of support: a manager that does not know the step, or finds that it does not fit
//! the hardware, is passed over for the next. A vendor adds a manager as a type with this trait
//! or as a program beside the agent.

use core::fmt::Debug;

use serde_json::Value;
use trivet_agent_wire::{CommandError, IpaStep};
use trivet_model::StepKind;

/// Support of a manager: this machine is not supported (IPA's HardwareSupport.NONE).
pub const SUPPORT_NONE: u8 = 0;
/// Any machine (HardwareSupport.GENERIC). That of our own manager.
pub const SUPPORT_GENERIC: u8 = 1;
/// The most that a manager of this project has (HardwareSupport.SERVICE_PROVIDER).
pub const SUPPORT_OURS_MAX: u8 = 3;

/// Most managers of an agent. Ours.
pub const MANAGERS_MAX: usize = 32;

/// Most steps of one kind that a manager may have. Ours.
pub const MANAGER_STEPS_MAX: usize = 128;

/// A manager that supports this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ManagerFacts {
    /// Its name, in the map of versions and as the owner of its steps.
    pub name: String,
    /// Its version. Another version restarts a cleaning.
    pub version: String,
    /// How well it supports this machine.
    pub support: u8,
}

/// Why a manager has no result.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ManagerError {
    /// IPA's IncompatibleHardwareMethodError, or no such step: the next manager is asked.
    #[error("the step does not fit this hardware")]
    Incompatible,
    /// The step failed; no other manager is asked.
    #[error("{}", .0.description())]
    Failed(CommandError),
}

impl ManagerError {
    /// A failure with these details.
    pub fn failed(details: impl Into<String>) -> Self {
        Self::Failed(CommandError {
            kind: "HardwareManagerError".to_owned(),
            code: 500,
            message: "A hardware manager failed".to_owned(),
            details: details.into(),
        })
    }
}

/// A hardware manager. Its functions may block: the shell calls them on a thread of their own.
pub trait HardwareManager: Debug + Send + Sync {
    /// Its name: letters, digits and underscores.
    fn name(&self) -> &str;

    /// Its version.
    fn version(&self) -> &str;

    /// How well it supports this machine; [`SUPPORT_NONE`] excludes it.
    fn evaluate_hardware_support(&self) -> u8;

    /// Its steps of this kind for a node and its ports.
    fn steps(
        &self,
        kind: StepKind,
        node: &Value,
        ports: &Value,
    ) -> Result<Vec<IpaStep>, ManagerError>;

    /// Executes a step and returns its result.
    fn execute(
        &self,
        kind: StepKind,
        step: &Value,
        node: &Value,
        ports: &Value,
    ) -> Result<Value, ManagerError>;
}
