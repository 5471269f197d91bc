//! Work that the shell does for the state machine, and its result.

use serde_json::{Value, json};
use trivet_agent_wire::{CommandError, CommandResult, CommandStatus};
use trivet_model::secret::SecretText;
use trivet_model::{StepKind, Tick};

use super::image::ImageOrder;
use super::{AgentPhase, AgentState};

/// Work for the shell. It must be synced before it is reported done.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentWork {
    /// Fetch an image, verify it, write it.
    WriteImage(ImageOrder),
    /// Erase the disk.
    Erase {
        /// The whole disk; otherwise only the part that makes it bootable.
        whole: bool,
    },
    /// Set this password for a user, and leave the machine to the operator.
    Rescue {
        /// In the format of crypt(3).
        hash: SecretText,
    },
    /// Switch the machine off.
    PowerOff,
    /// Restart the machine.
    Reboot,
}

/// Work that succeeded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AgentWorkOutcome {
    /// An image was written and its digest is right.
    Wrote {
        /// Its size.
        bytes: u64,
        /// Identifier of its partition table.
        root_uuid: Option<String>,
    },
    /// The disk is erased.
    Erased,
    /// The rescue password is set.
    Rescued,
    /// The machine is switched off or restarted.
    Leaving,
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
    /// The disk could not be erased.
    #[error("Could not erase: {0}")]
    Erase(String),
    /// The rescue password could not be set.
    #[error("Could not set the rescue password: {0}")]
    Rescue(String),
}

impl AgentWorkError {
    /// The stock agent's name of the error class.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Download(_) => "ImageDownloadError",
            Self::Checksum { .. } => "ImageChecksumError",
            Self::Write(_) => "ImageWriteError",
            Self::Erase(_) => "BlockDeviceEraseError",
            Self::Rescue(_) => "CommandExecutionError",
        }
    }

    fn command_error(&self) -> CommandError {
        CommandError {
            kind: self.kind().to_owned(),
            code: 500,
            message: "The command failed".to_owned(),
            details: self.to_string(),
        }
    }
}

/// The command whose work is in progress.
#[derive(Clone, Debug)]
pub(super) struct RunningAgentCommand {
    pub(super) id: String,
    pub(super) step: Option<(StepKind, Value)>,
}

impl AgentState {
    /// Handles the result of work. A result of a command that does not run is ignored: it is
    /// from before a restart.
    pub fn work_done(
        &mut self,
        now: Tick,
        id: &str,
        result: Result<AgentWorkOutcome, AgentWorkError>,
    ) {
        let Some(running) = self.running.take_if(|running| running.id == id) else {
            return;
        };
        let Some(command) = self.commands.iter_mut().find(|command| command.id == id) else {
            return;
        };
        match result {
            Ok(outcome) => {
                if let AgentWorkOutcome::Wrote { root_uuid, .. } = &outcome {
                    self.root_uuid.clone_from(root_uuid);
                }
                if outcome == AgentWorkOutcome::Rescued {
                    self.phase = AgentPhase::Rescued;
                }
                command.command_status = CommandStatus::Succeeded;
                command.command_result = command_result(command, running.step, &outcome);
            }
            Err(failure) => {
                command.command_status = CommandStatus::Failed;
                command.command_error = Some(failure.command_error());
            }
        }
        self.heartbeat_soon(now);
    }

    /// Whether this command has ended, or is unknown.
    pub fn is_finished(&self, id: &str) -> bool {
        self.running.as_ref().is_none_or(|running| running.id != id)
    }
}

/// The result of a step contains the step itself, that of another command its name and a
/// message.
fn command_result(
    command: &CommandResult,
    step: Option<(StepKind, Value)>,
    outcome: &AgentWorkOutcome,
) -> Value {
    let words = match outcome {
        AgentWorkOutcome::Wrote { bytes, root_uuid } => {
            let uuid = root_uuid.as_deref().unwrap_or("None");
            Value::from(format!("image of {bytes} bytes written root_uuid={uuid}"))
        }
        AgentWorkOutcome::Erased | AgentWorkOutcome::Rescued | AgentWorkOutcome::Leaving => {
            Value::Null
        }
    };
    match step {
        Some((kind, step)) => {
            let mut reported = json!({});
            reported[format!("{kind}_result")] = words;
            reported[format!("{kind}_step")] = step;
            reported
        }
        None => words.as_str().map_or(
            Value::Null,
            |words| json!({"result": format!("{}: {words}", command.command_name)}),
        ),
    }
}
