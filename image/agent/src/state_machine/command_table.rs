//! The supported commands and their implementation.

use serde_json::{Map, Value, json};
use trivet_agent_wire::CommandError;
use trivet_agent_wire::image::WRITE_IMAGE_AHEAD;
use trivet_model::StepKind;
use trivet_model::secret::SecretText;

use super::AgentState;
use super::bootloader;
use super::image;
use super::steps::StepDispatch;
use super::work::AgentWork;

/// The result of a command.
#[expect(
    clippy::large_enum_variant,
    reason = "one exists at a time, and not for long"
)]
pub(super) enum AgentCommandOutcome {
    /// Done, with this result.
    Done(Value),
    /// Failed for this reason.
    Failed(CommandError),
    /// The caller expects other hardware managers.
    Mismatch(CommandError),
    /// Started; the step, if it is one.
    Started(AgentWork, Option<StepDispatch>),
}

/// One command: its parameters, and whether it is asynchronous, which means that its end makes
/// a heartbeat due.
pub(super) struct AgentCommandEntry {
    extension: &'static str,
    name: &'static str,
    pub(super) params: &'static [&'static str],
    pub(super) asynchronous: bool,
    pub(super) run: fn(&AgentState, &Map<String, Value>) -> Result<AgentCommandOutcome, String>,
}

const fn command(
    extension: &'static str,
    name: &'static str,
    params: &'static [&'static str],
    asynchronous: bool,
    run: fn(&AgentState, &Map<String, Value>) -> Result<AgentCommandOutcome, String>,
) -> AgentCommandEntry {
    AgentCommandEntry {
        extension,
        name,
        params,
        asynchronous,
        run,
    }
}

const STEP_LIST: &[&str] = &["node", "ports"];

static COMMANDS: &[AgentCommandEntry] = &[
    command(
        "clean",
        "get_clean_steps",
        STEP_LIST,
        false,
        |state, params| Ok(state.list_steps(StepKind::Clean, params)),
    ),
    command(
        "clean",
        "execute_clean_step",
        &["step", "node", "ports", "clean_version"],
        true,
        |state, params| state.execute_step(StepKind::Clean, params),
    ),
    command(
        "deploy",
        "get_deploy_steps",
        STEP_LIST,
        false,
        |state, params| Ok(state.list_steps(StepKind::Deploy, params)),
    ),
    command(
        "deploy",
        "execute_deploy_step",
        &["step", "node", "ports", "deploy_version"],
        true,
        |state, params| state.execute_step(StepKind::Deploy, params),
    ),
    command(
        "service",
        "get_service_steps",
        STEP_LIST,
        false,
        |state, params| Ok(state.list_steps(StepKind::Service, params)),
    ),
    command(
        "service",
        "execute_service_step",
        &["step", "node", "ports", "service_version"],
        true,
        |state, params| state.execute_step(StepKind::Service, params),
    ),
    command(
        "rescue",
        "finalize_rescue",
        &["rescue_password", "hashed"],
        false,
        |_, params| finalize_rescue(params),
    ),
    command(
        "standby",
        "prepare_image",
        &["image_info", "configdrive"],
        true,
        |state, params| {
            image::parse_image_order(params, &state.cached_node())
                .map(|order| AgentCommandOutcome::Started(AgentWork::WriteImage(order), None))
        },
    ),
    // Not a command of the stock agent.
    command(
        "standby",
        WRITE_IMAGE_AHEAD,
        &["image_info", "node"],
        true,
        |state, params| {
            if state.is_deployed {
                let message = "Image cannot be written ahead";
                let details = "the disk has the image of a deployment".to_owned();
                let error = command_error("ImageWriteError", 500, message, details);
                return Ok(AgentCommandOutcome::Failed(error));
            }
            let node = params.get("node").cloned().unwrap_or_default();
            let mut order = image::parse_image_order(params, &node)?;
            if order.partitions.is_some() {
                return Err("Only an image of a whole disk can be written ahead.".to_owned());
            }
            order.is_ahead = true;
            let work = AgentWork::WriteImage(order);
            Ok(AgentCommandOutcome::Started(work, None))
        },
    ),
    command("standby", "get_partition_uuids", &[], false, |state, _| {
        let found = state.written.as_ref().map(bootloader::partition_uuids);
        Ok(AgentCommandOutcome::Done(found.unwrap_or(json!({}))))
    }),
    // Work is synced before it is reported, so there is nothing left to flush.
    command("standby", "sync", &[], false, |_, _| {
        Ok(AgentCommandOutcome::Done(Value::Null))
    }),
    command("standby", "power_off", &[], true, |_, _| {
        Ok(AgentCommandOutcome::Started(AgentWork::PowerOff, None))
    }),
    command("standby", "run_image", &[], true, |_, _| {
        Ok(AgentCommandOutcome::Started(AgentWork::Reboot, None))
    }),
    command(
        "image",
        "install_bootloader",
        &[
            "root_uuid",
            "efi_system_part_uuid",
            "prep_boot_part_uuid",
            "target_boot_mode",
            "ignore_bootloader_failure",
        ],
        true,
        |state, params| {
            let order = bootloader::parse_bootloader_order(
                params,
                state.written.as_ref(),
                &state.cached_node(),
            )?;
            let work = AgentWork::InstallBootloader(order);
            Ok(AgentCommandOutcome::Started(work, None))
        },
    ),
    command("poll", "get_hardware_info", &[], false, |state, _| {
        Ok(AgentCommandOutcome::Done(state.identity.inventory.clone()))
    }),
    command("system", "lockdown", &[], false, |_, _| {
        Ok(AgentCommandOutcome::Started(AgentWork::Lockdown, None))
    }),
    command("log", "collect_system_logs", &[], false, |_, _| {
        Ok(AgentCommandOutcome::Started(AgentWork::CollectLogs, None))
    }),
];

/// Why there is no such command: the extension is unknown, or only the command.
pub(super) enum UnknownAgentCommand {
    Extension,
    Command,
}

pub(super) fn find(
    extension: &str,
    name: &str,
) -> Result<&'static AgentCommandEntry, UnknownAgentCommand> {
    let mut known = COMMANDS
        .iter()
        .filter(|command| command.extension == extension)
        .peekable();
    if known.peek().is_none() {
        return Err(UnknownAgentCommand::Extension);
    }
    known
        .find(|command| command.name == name)
        .ok_or(UnknownAgentCommand::Command)
}

/// Only a hash is accepted: this agent has no program to hash a password.
fn finalize_rescue(params: &Map<String, Value>) -> Result<AgentCommandOutcome, String> {
    let hash = params.get("rescue_password").and_then(Value::as_str);
    let hash = hash.filter(|hash| hash.starts_with('$') && !hash.contains([':', '\n']));
    match (hash, params.get("hashed")) {
        (Some(hash), Some(Value::Bool(true))) => {
            let hash = SecretText::new(hash);
            Ok(AgentCommandOutcome::Started(
                AgentWork::Rescue { hash },
                None,
            ))
        }
        _ => Err("'rescue_password' must be a crypt string, and 'hashed' true.".to_owned()),
    }
}

pub(super) fn command_error(kind: &str, code: u16, message: &str, details: String) -> CommandError {
    CommandError {
        kind: kind.to_owned(),
        code,
        message: message.to_owned(),
        details,
    }
}
