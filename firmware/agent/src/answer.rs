//! Converts the agent's replies into events.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trivet_agent_wire::command::StepsByManager;
use trivet_agent_wire::image::{IMAGE_BYTES, IMAGE_DIGEST, IMAGE_WAS_ON_DISK, WRITE_IMAGE_AHEAD};
use trivet_agent_wire::{AgentFault, CommandList, CommandResult, CommandStatus, IpaStep};
use trivet_model::{
    AgentError, AgentEvent, AgentOrder, BootPartitions, ImageAheadReport, JobStep, StepKind,
};

use crate::agent_text::sanitized;

/// A longer reply is not read. Ours; the command list of an agent that runs for long is the
/// largest valid one, and each of its steps contains the config drive.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The interface of a step that names none.
const DEPLOY: &str = "deploy";

/// A longer list of steps, or result of one, is not stored completely. Ours: it is part of the
/// node's record.
const LISTED_BYTES_MAX: usize = 16 * 1024;

/// Larger lists of steps, without the descriptions of their arguments, are refused. Ours: they
/// are part of the node's record, twice.
const STEPS_BYTES_MAX: usize = 24 * 1024;

/// Larger versions of hardware managers are not stored, and so not compared. Ours.
const VERSIONS_BYTES_MAX: usize = 4096;

/// Longer than the identifier of any file system or partition. Ours.
const UUID_CHARS_MAX: usize = 64;

/// More steps than any ramdisk has. Ours.
pub const STEPS_MAX: usize = 256;

/// Converts an agent's reply to an order into an event.
pub fn answer(order: &AgentOrder, status: u16, body: &[u8]) -> Result<AgentEvent, AgentError> {
    if body.len() > ANSWER_BYTES_MAX {
        return Err(nonsense(format!(
            "{} bytes, more than {ANSWER_BYTES_MAX}",
            body.len()
        )));
    }
    if status != 200 {
        return refusal(status, body);
    }
    match order {
        AgentOrder::ReadImageAhead => image_ahead(&read::<CommandList>(body)?.commands),
        AgentOrder::ListCommands => last_step_status(&read::<CommandList>(body)?.commands),
        AgentOrder::GetSteps(kind) => steps(*kind, &read(body)?),
        AgentOrder::Execute { kind, .. } => executed(*kind, &read(body)?),
        AgentOrder::FindPartitions => parts(&read(body)?),
        AgentOrder::FinishRescue
        | AgentOrder::InstallBootloader { .. }
        | AgentOrder::WriteImageAhead { .. }
        | AgentOrder::Sync
        | AgentOrder::PowerOff
        | AgentOrder::Lockdown => standby(&read(body)?),
    }
}

pub(crate) fn nonsense(words: impl AsRef<str>) -> AgentError {
    AgentError::Nonsense {
        message: sanitized(words.as_ref()),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, AgentError> {
    serde_json::from_slice(body).map_err(|error| nonsense(error.to_string()))
}

/// Any status but 200. The agent's API refuses with a fault document; a proxy or another
/// program on its port does not.
pub(crate) fn refusal(status: u16, body: &[u8]) -> Result<AgentEvent, AgentError> {
    let fault = serde_json::from_slice::<AgentFault>(body).ok();
    let words = fault.as_ref().map(|fault| sanitized(&fault.faultstring));
    // Agents before 2020 replied 500 with this text where newer ones reply 409.
    let busy = |words: &String| words.to_ascii_lowercase().contains("agent is busy");
    if status == 409 || words.as_ref().is_some_and(busy) {
        return Ok(AgentEvent::Busy);
    }
    if status == 401 {
        return Err(AgentError::TokenRefused);
    }
    match words {
        Some(text) if status >= 400 => Err(AgentError::Refused { message: text }),
        _ => Err(nonsense(format!(
            "status {status}: {}",
            String::from_utf8_lossy(&body[..body.len().min(200)])
        ))),
    }
}

/// The state of the last step in the command list.
fn last_step_status(commands: &[CommandResult]) -> Result<AgentEvent, AgentError> {
    let Some(last) = commands.last() else {
        return Ok(AgentEvent::Idle);
    };
    // While any command runs, a new step would be refused. An agent that was ordered to power
    // off or to stop counts as busy, though the command itself has ended.
    let leaving = ["power_off", "run_image", "lockdown", "finalize_rescue"]
        .contains(&last.command_name.as_str());
    if last.command_status == CommandStatus::Running || leaving {
        return Ok(AgentEvent::StepRunning);
    }
    if last.command_name == "install_bootloader" {
        return Ok(AgentEvent::BootloaderDone(match standby(last) {
            Err(AgentError::Refused { message }) => Err(message),
            other => other.map(|_| ()).map_err(|error| error.to_string()),
        }));
    }
    // Commands before the list of steps was read belong to an earlier job.
    let since = commands.iter().rev().take_while(|command| {
        let name = &command.command_name;
        !(name.starts_with("get_") && name.ends_with("_steps"))
    });
    let step = since.into_iter().find_map(|command| {
        let kind = command.command_name.strip_prefix("execute_")?;
        let kind = kind.strip_suffix("_step")?.parse().ok()?;
        Some((kind, command))
    });
    match step {
        Some((kind, command)) => ended(kind, command),
        None => Ok(AgentEvent::Idle),
    }
}

fn executed(kind: StepKind, result: &CommandResult) -> Result<AgentEvent, AgentError> {
    match result.command_status {
        CommandStatus::Running => Ok(AgentEvent::Accepted),
        _ => ended(kind, result),
    }
}

/// The result of a step.
fn ended(kind: StepKind, result: &CommandResult) -> Result<AgentEvent, AgentError> {
    let named = result.command_result.get(format!("{kind}_step"));
    let named = named.and_then(|step| IpaStep::deserialize(step).ok());
    match &result.command_status {
        CommandStatus::Running => Ok(AgentEvent::StepRunning),
        CommandStatus::Succeeded => {
            let step = named.ok_or_else(|| {
                nonsense(format!(
                    "a {kind} step has succeeded but the answer does not name it"
                ))
            })?;
            Ok(AgentEvent::StepDone {
                step: step.step,
                interface: step.interface.unwrap_or_default(),
                at: step.trivet_at,
                reboot_requested: step.reboot_requested,
                result: short_result(result.command_result.get(format!("{kind}_result"))),
                image_was_on_disk: is_true(result, IMAGE_WAS_ON_DISK),
            })
        }
        CommandStatus::Failed => Ok(AgentEvent::StepFailed {
            step: named.map(|step| sanitized(&step.step)),
            message: failure(result),
        }),
        CommandStatus::VersionMismatch => Ok(AgentEvent::VersionMismatch),
        CommandStatus::Other(word) => Err(unknown_status(word)),
    }
}

fn is_true(result: &CommandResult, field: &str) -> bool {
    result.command_result.get(field) == Some(&Value::Bool(true))
}

/// How far the last image is that was written ahead.
fn image_ahead(commands: &[CommandResult]) -> Result<AgentEvent, AgentError> {
    let mut ahead = commands.iter().rev();
    let report = match ahead.find(|command| command.command_name == WRITE_IMAGE_AHEAD) {
        None => ImageAheadReport::Unknown,
        Some(command) => match &command.command_status {
            CommandStatus::Running => ImageAheadReport::Running,
            CommandStatus::Succeeded => {
                let field = |name: &str| command.command_result.get(name);
                let digest = field(IMAGE_DIGEST).and_then(Value::as_str);
                let digest = digest.and_then(|digest| digest.parse().ok());
                let bytes = field(IMAGE_BYTES).and_then(Value::as_u64);
                let (Some(digest), Some(bytes)) = (digest, bytes) else {
                    return Err(nonsense("an image was written ahead, but not which one"));
                };
                ImageAheadReport::Written { digest, bytes }
            }
            CommandStatus::Failed | CommandStatus::VersionMismatch => ImageAheadReport::Failed {
                message: failure(command),
            },
            CommandStatus::Other(word) => return Err(unknown_status(word)),
        },
    };
    Ok(AgentEvent::ImageAhead(report))
}

fn failure(result: &CommandResult) -> String {
    let error = result.command_error.as_ref();
    sanitized(error.map_or("", |error| error.description()))
}

fn unknown_status(word: &str) -> AgentError {
    nonsense(format!("command status {word:?} is not known"))
}

fn standby(result: &CommandResult) -> Result<AgentEvent, AgentError> {
    match &result.command_status {
        CommandStatus::Running => Ok(AgentEvent::Accepted),
        CommandStatus::Succeeded => Ok(AgentEvent::Finished),
        CommandStatus::Other(word) => Err(unknown_status(word)),
        CommandStatus::Failed | CommandStatus::VersionMismatch => Err(AgentError::Refused {
            message: failure(result),
        }),
    }
}

/// The partitions that were written; the agent's keys contain spaces.
fn parts(result: &CommandResult) -> Result<AgentEvent, AgentError> {
    standby(result)?;
    let field = |name: &str| {
        let text = result.command_result.get(name).and_then(Value::as_str);
        let text = text.filter(|text| !text.is_empty() && text.len() <= UUID_CHARS_MAX);
        text.map(str::to_owned)
    };
    Ok(AgentEvent::PartitionsFound(BootPartitions {
        root: field("root uuid"),
        efi: field("efi system partition uuid"),
        prep: field("PReP Boot partition uuid"),
    }))
}

/// The list of steps. A step that cannot be parsed fails the whole list: leaving one out could
/// mean a disk that is not erased.
fn steps(kind: StepKind, result: &CommandResult) -> Result<AgentEvent, AgentError> {
    match &result.command_status {
        CommandStatus::Succeeded => {}
        // The request was to wait, so this agent does not support that; the next heartbeat
        // follows.
        CommandStatus::Running => return Ok(AgentEvent::Busy),
        CommandStatus::Other(word) => return Err(unknown_status(word)),
        CommandStatus::Failed | CommandStatus::VersionMismatch => {
            return Err(AgentError::Refused {
                message: failure(result),
            });
        }
    }
    let field = |name: &str| result.command_result.get(name).unwrap_or(&Value::Null);
    let by_manager = field(&format!("{kind}_steps"));
    let by_manager: StepsByManager = StepsByManager::deserialize(by_manager)
        .map_err(|error| nonsense(format!("{kind} steps cannot be read: {error}")))?;
    let steps: Vec<IpaStep> = by_manager.into_values().flatten().collect();
    if steps.len() > STEPS_MAX {
        return Err(nonsense(format!(
            "{} steps, more than {STEPS_MAX}",
            steps.len()
        )));
    }
    let listed = listed(&steps).map_err(|bytes| {
        nonsense(format!(
            "steps of {bytes} bytes, more than {STEPS_BYTES_MAX}"
        ))
    })?;
    Ok(AgentEvent::StepsListed {
        listed,
        steps: steps.into_iter().map(model_step).collect(),
        versions: versions(field("hardware_manager_version")),
    })
}

/// The steps for operators, by interface as in Ironic. The descriptions of arguments are left
/// out where the list is too long to store. If it is still too long, returns its bytes.
fn listed(steps: &[IpaStep]) -> Result<Value, usize> {
    let list = |explained: bool| {
        let mut by_interface: BTreeMap<String, Vec<IpaStep>> = BTreeMap::new();
        for step in steps {
            let interface = step.interface.clone().unwrap_or_else(|| DEPLOY.to_owned());
            let argsinfo = step.argsinfo.clone().filter(|_| explained);
            let step = IpaStep {
                argsinfo,
                ..step.clone()
            };
            by_interface.entry(interface).or_default().push(step);
        }
        json!(by_interface)
    };
    let bytes = |listed: &Value| listed.to_string().len();
    let whole = list(true);
    if bytes(&whole) <= LISTED_BYTES_MAX {
        return Ok(whole);
    }
    let short = list(false);
    match bytes(&short) {
        bytes if bytes > STEPS_BYTES_MAX => Err(bytes),
        _ => Ok(short),
    }
}

/// The result of a step, if it is short enough to store.
fn short_result(result: Option<&Value>) -> Value {
    let short = result.filter(|result| result.to_string().len() <= LISTED_BYTES_MAX);
    short.cloned().unwrap_or_default()
}

fn model_step(step: IpaStep) -> JobStep {
    JobStep {
        step: step.step,
        interface: step.interface.unwrap_or_else(|| DEPLOY.to_owned()),
        priority: step.priority,
        args: Value::Object(step.args.unwrap_or_default()),
        reboot_requested: step.reboot_requested,
        abortable: step.abortable.unwrap_or(false),
    }
}

/// The agent compares all versions or, where it receives none, nothing. So if one version can
/// never compare as equal, none is used.
fn versions(found: &Value) -> BTreeMap<String, String> {
    let entries = found.as_object().into_iter().flatten();
    let texts = entries.map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let versions: Option<BTreeMap<String, String>> = texts.collect();
    let short = |versions: &BTreeMap<String, String>| {
        let bytes = versions.iter().map(|(name, text)| name.len() + text.len());
        bytes.sum::<usize>() <= VERSIONS_BYTES_MAX
    };
    versions.filter(short).unwrap_or_default()
}

#[cfg(test)]
mod tests;
