//! Work that the shell does for the state machine, and its result.

use std::path::PathBuf;

use serde_json::{Value, json};
use trivet_agent_wire::command::StepsByManager;
use trivet_agent_wire::image::{IMAGE_BYTES, IMAGE_DIGEST, IMAGE_WAS_ON_DISK};
use trivet_agent_wire::{CommandError, CommandStatus};
use trivet_model::secret::SecretText;
use trivet_model::{Digest, StepKind, Tick};

use super::bootloader::BootloaderOrder;
use super::erase::AgentEraseOrder;
use super::image::ImageOrder;
use super::steps::StepDispatch;
use super::{AgentPhase, AgentState};
use crate::hardware_manager::ManagerError;

/// Work for the shell. It must be synced before it is reported done.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentWork {
    /// Fetch an image, verify it, write it. An image that is written ahead
    /// ([`ImageOrder::is_ahead`]) is stopped by other work that may change a disk
    /// ([`Self::changes_disks`]).
    WriteImage(ImageOrder),
    /// Erase the disks.
    Erase(AgentEraseOrder),
    /// Make the written image bootable.
    InstallBootloader(BootloaderOrder),
    /// Set this password for a user, and leave the machine to the operator.
    Rescue {
        /// In the format of crypt(3).
        hash: SecretText,
    },
    /// Switch the machine off.
    PowerOff,
    /// Restart the machine.
    Reboot,
    /// Stop the API, set all links down, and do nothing until the machine is switched off.
    Lockdown,
    /// Collect the logs.
    CollectLogs,
    /// Ask hardware managers.
    Manager(ManagerRequest),
}

impl AgentWork {
    /// Whether it writes an image ahead of a deployment.
    pub fn is_ahead(&self) -> bool {
        matches!(self, Self::WriteImage(order) if order.is_ahead)
    }

    /// Whether it may change a disk, or ends the agent.
    pub fn changes_disks(&self) -> bool {
        match self {
            Self::WriteImage(_)
            | Self::Erase(_)
            | Self::InstallBootloader(_)
            | Self::Rescue { .. }
            | Self::PowerOff
            | Self::Reboot
            | Self::Lockdown
            | Self::Manager(ManagerRequest::Execute { .. }) => true,
            Self::CollectLogs | Self::Manager(ManagerRequest::ListSteps { .. }) => false,
        }
    }
}

/// A request to the hardware managers that were added.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagerRequest {
    /// Which steps all of them have.
    ListSteps {
        /// The kind of steps.
        kind: StepKind,
        /// The node.
        node: Value,
        /// Its ports.
        ports: Value,
    },
    /// Execute a step.
    Execute {
        /// The manager.
        manager: String,
        /// The kind of step.
        kind: StepKind,
        /// The step, with its arguments.
        step: Value,
        /// The node.
        node: Value,
        /// Its ports.
        ports: Value,
    },
}

/// What is on a disk after an image was written to it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WrittenDisk {
    /// Its device; none for a file in the place of a disk.
    pub device: Option<PathBuf>,
    /// Identifier of its partition table, or of the root file system of a partition image.
    pub root_uuid: Option<String>,
    /// The partitions that were made for a partition image.
    pub partitions: Option<WrittenPartitions>,
}

/// The partitions that were made for an image of one file system.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WrittenPartitions {
    /// The number of the root partition.
    pub root: u32,
    /// The number of the EFI system partition, and the identifier of its file system.
    pub efi_system: Option<(u32, String)>,
}

/// Work that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentWorkOutcome {
    /// An image was written and its digest is right.
    Wrote {
        /// Its size.
        bytes: u64,
        /// Where it is.
        disk: WrittenDisk,
        /// It was written ahead: nothing of it was fetched now.
        was_on_disk: bool,
    },
    /// An image was written ahead, and its digest is right.
    WroteAhead {
        /// Its size.
        bytes: u64,
        /// Its digest.
        digest: Digest,
    },
    /// The disk of a simulated machine is erased.
    Erased,
    /// The rescue password is set.
    Rescued,
    /// The machine is switched off or restarted.
    Leaving,
    /// A gzipped tar archive in base64.
    Logs(String),
    /// The steps that managers have.
    Steps(StepKind, StepsByManager),
    /// The result of a manager's step or of a command, or the evidence of an erasure.
    Value(Value),
}

/// Work that failed, in the stock agent's error classes.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AgentWorkError {
    /// No URL delivered the image.
    #[error("Could not download image: {0}")]
    Download(String),
    /// The digest is wrong.
    #[error("Image failed to verify: expected {want}, got {got}")]
    Checksum {
        /// The expected digest.
        want: String,
        /// The computed digest.
        got: String,
    },
    /// The disk failed or is too small.
    #[error("Could not write image: {0}")]
    Write(String),
    /// No disk fits the hints.
    #[error("{0}")]
    Device(String),
    /// The disk could not be erased.
    #[error("Could not erase: {0}")]
    Erase(String),
    /// The image cannot be made bootable.
    #[error("Could not install the boot loader: {0}")]
    Bootloader(String),
    /// The rescue password could not be set.
    #[error("Could not set the rescue password: {0}")]
    Rescue(String),
    /// The logs could not be collected.
    #[error("Could not collect logs: {0}")]
    Logs(String),
    /// A hardware manager has no result.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

impl AgentWorkError {
    /// The stock agent's name of the error class.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Download(_) => "ImageDownloadError",
            Self::Checksum { .. } => "ImageChecksumError",
            Self::Write(_) => "ImageWriteError",
            Self::Device(_) => "DeviceNotFound",
            Self::Erase(_) => "BlockDeviceEraseError",
            Self::Bootloader(_) | Self::Rescue(_) | Self::Logs(_) => "CommandExecutionError",
            Self::Manager(_) => "HardwareManagerError",
        }
    }

    fn command_error(&self) -> CommandError {
        if let Self::Manager(ManagerError::Failed(error)) = self {
            return error.clone();
        }
        CommandError {
            kind: self.kind().to_owned(),
            code: if matches!(self, Self::Device(_)) {
                404
            } else {
                500
            },
            message: "The command failed".to_owned(),
            details: self.to_string(),
        }
    }
}

/// The command whose work is in progress.
#[derive(Clone, Debug)]
pub(super) struct RunningAgentCommand {
    pub(super) id: String,
    pub(super) step: Option<StepDispatch>,
}

impl AgentState {
    /// Handles the result of work. A result of a command that does not run is ignored: it is
    /// from before a restart. Returns more work for the same command, if there is some.
    pub fn work_done(
        &mut self,
        now: Tick,
        id: &str,
        result: Result<AgentWorkOutcome, AgentWorkError>,
    ) -> Option<AgentWork> {
        if self.ahead.take_if(|ahead| ahead == id).is_some() {
            let result = result.map_err(|failure| failure.command_error());
            self.write_ahead_ended(id, result);
            self.heartbeat_soon(now);
            return None;
        }
        let mut running = self.running.take_if(|running| running.id == id)?;
        let at = self.commands.iter().position(|command| command.id == id)?;
        let result = match result {
            Err(AgentWorkError::Manager(ManagerError::Incompatible)) => {
                match Self::next_manager(&mut running) {
                    Ok(work) => {
                        self.work_begins(&work);
                        self.running = Some(running);
                        return Some(work);
                    }
                    Err(error) => Err(error),
                }
            }
            Err(failure) => Err(failure.command_error()),
            Ok(outcome) => Ok(outcome),
        };
        match result {
            Ok(outcome) => {
                if let AgentWorkOutcome::Wrote { disk, .. } = &outcome {
                    self.written = Some(disk.clone());
                }
                if outcome == AgentWorkOutcome::Rescued {
                    self.phase = AgentPhase::Rescued;
                }
                let value = self.command_result(at, running.step, outcome);
                if let Some(command) = self.commands.get_mut(at) {
                    command.command_status = CommandStatus::Succeeded;
                    command.command_result = value;
                }
            }
            Err(error) => {
                if let Some(command) = self.commands.get_mut(at) {
                    command.command_status = CommandStatus::Failed;
                    command.command_error = Some(error);
                }
            }
        }
        self.heartbeat_soon(now);
        None
    }

    /// Work begins that a command ordered.
    pub(super) fn work_begins(&mut self, work: &AgentWork) {
        self.is_deployed = match work {
            AgentWork::WriteImage(order) if !order.is_ahead => true,
            AgentWork::Manager(ManagerRequest::Execute { kind, .. }) => {
                self.is_deployed || *kind != StepKind::Clean
            }
            AgentWork::Erase(_) => false,
            _ => self.is_deployed,
        };
    }

    /// Stops the image that is being written ahead, if there is one: `name` needs the disk.
    pub(super) fn stop_write_ahead(&mut self, name: &str) {
        if let Some(id) = self.ahead.take() {
            let error = CommandError {
                kind: "CommandExecutionError".to_owned(),
                code: 500,
                message: "The command failed".to_owned(),
                details: format!("stopped by the command {name}"),
            };
            self.write_ahead_ended(&id, Err(error));
        }
    }

    fn write_ahead_ended(&mut self, id: &str, result: Result<AgentWorkOutcome, CommandError>) {
        let command = self.commands.iter_mut().find(|command| command.id == id);
        // The command may have left the list.
        let Some(command) = command else { return };
        match result {
            Ok(outcome) => {
                command.command_status = CommandStatus::Succeeded;
                if let AgentWorkOutcome::WroteAhead { bytes, digest } = outcome {
                    let digest = digest.to_string();
                    command.command_result = json!({IMAGE_BYTES: bytes, IMAGE_DIGEST: digest});
                }
            }
            Err(error) => {
                command.command_status = CommandStatus::Failed;
                command.command_error = Some(error);
            }
        }
    }

    /// The result of a step contains the step itself; a text of another command gets the name
    /// of the command.
    fn command_result(
        &self,
        at: usize,
        step: Option<StepDispatch>,
        outcome: AgentWorkOutcome,
    ) -> Value {
        let mut on_disk = false;
        let value = match outcome {
            AgentWorkOutcome::Wrote {
                bytes,
                disk,
                was_on_disk,
            } => {
                on_disk = was_on_disk;
                let uuid = disk.root_uuid.as_deref().unwrap_or("None");
                let efi = disk.partitions.as_ref();
                let efi = efi.and_then(|made| made.efi_system.as_ref());
                let efi = efi.map(|(_, uuid)| format!(" efi_system_partition_uuid={uuid}"));
                let efi = efi.unwrap_or_default();
                Value::from(format!(
                    "image of {bytes} bytes written root_uuid={uuid}{efi}"
                ))
            }
            AgentWorkOutcome::Erased
            | AgentWorkOutcome::Rescued
            | AgentWorkOutcome::Leaving
            | AgentWorkOutcome::WroteAhead { .. } => Value::Null,
            AgentWorkOutcome::Logs(archive) => json!({ "system_logs": archive }),
            AgentWorkOutcome::Steps(kind, added) => self.step_list(kind, &added),
            AgentWorkOutcome::Value(value) => value,
        };
        if let Some(dispatch) = step {
            let (kind, step) = dispatch.step();
            let mut reported = json!({});
            reported[format!("{kind}_result")] = value;
            reported[format!("{kind}_step")] = step;
            if on_disk {
                reported[IMAGE_WAS_ON_DISK] = true.into();
            }
            return reported;
        }
        match (value.as_str(), self.commands.get(at)) {
            (Some(words), Some(command)) => {
                json!({"result": format!("{}: {words}", command.command_name)})
            }
            _ => value,
        }
    }

    /// Whether this command has ended, or is unknown.
    pub fn is_finished(&self, id: &str) -> bool {
        let ahead = self.ahead.as_deref() == Some(id);
        !ahead && self.running.as_ref().is_none_or(|running| running.id != id)
    }
}
