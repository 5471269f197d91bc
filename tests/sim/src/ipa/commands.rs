//! The commands of the agent: their parameters and results.

use serde_json::{Map, Value, json};
use trivet_model::Tick;

use super::thread::{SimIpaStep, SimIpaTask};
use super::{SimIpa, SimIpaState, messages, steps};

pub(super) const RUNNING: &str = "RUNNING";
pub(super) const SUCCEEDED: &str = "SUCCEEDED";
pub(super) const FAILED: &str = "FAILED";
/// Used for every kind of step, despite its name.
pub(super) const MISMATCH: &str = "CLEAN_VERSION_MISMATCH";

/// All extensions.
pub(super) const EXTENSIONS: [&str; 10] = [
    "clean", "deploy", "flow", "image", "log", "poll", "rescue", "service", "standby", "system",
];

/// One accepted command.
#[derive(Clone, Debug)]
pub(super) struct SimIpaCommand {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) status: &'static str,
    pub(super) error: Value,
    pub(super) result: Value,
    /// Its error is not JSON serializable, and so no list with it is.
    pub(super) unserializable: bool,
}

impl SimIpaCommand {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "command_name": self.name,
            "command_status": self.status,
            "command_error": self.error,
            "command_result": self.result,
        })
    }
}

/// The outcome of starting a command.
pub(super) enum SimIpaCommandOutcome {
    /// A synchronous one has succeeded.
    Done(Value),
    /// A synchronous one has failed with a serializable error.
    Failed(Value),
    /// It got parameters that its function does not accept.
    Unserializable,
    /// An asynchronous one was started.
    Started(SimIpaTask),
}

/// Why parameters are wrong.
pub(super) enum SimIpaParameterError {
    /// Detected before the start: the agent records an error that it cannot serialize.
    Unserializable,
    /// Detected in the command's own thread.
    Fails(String),
}

/// The parameters of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimIpaCommandSpec {
    extension: &'static str,
    pub(super) name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    asynchronous: bool,
}

const fn command_spec(
    extension: &'static str,
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    asynchronous: bool,
) -> SimIpaCommandSpec {
    SimIpaCommandSpec {
        extension,
        name,
        required,
        optional,
        asynchronous,
    }
}

const NODE: &[&str] = &["node", "ports"];
const STEP: &[&str] = &["step", "node", "ports"];
const LOADER: &[&str] = &[
    "efi_system_part_uuid",
    "prep_boot_part_uuid",
    "target_boot_mode",
    "ignore_bootloader_failure",
];

static COMMAND_SPECS: [SimIpaCommandSpec; 19] = [
    command_spec("clean", "get_clean_steps", NODE, &[], false),
    command_spec(
        "clean",
        "execute_clean_step",
        STEP,
        &["clean_version"],
        true,
    ),
    command_spec("deploy", "get_deploy_steps", NODE, &[], false),
    command_spec(
        "deploy",
        "execute_deploy_step",
        STEP,
        &["deploy_version"],
        true,
    ),
    command_spec("service", "get_service_steps", NODE, &[], false),
    command_spec(
        "service",
        "execute_service_step",
        STEP,
        &["service_version"],
        true,
    ),
    command_spec("flow", "start_flow", &["flow"], &[], true),
    command_spec("image", "install_bootloader", &["root_uuid"], LOADER, true),
    command_spec("log", "collect_system_logs", &[], &[], false),
    command_spec("poll", "get_hardware_info", &[], &[], false),
    command_spec("poll", "set_node_info", &[], &["node_info"], false),
    command_spec(
        "rescue",
        "finalize_rescue",
        &[],
        &["rescue_password", "hashed"],
        false,
    ),
    command_spec(
        "standby",
        "prepare_image",
        &["image_info"],
        &["configdrive"],
        true,
    ),
    command_spec("standby", "get_partition_uuids", &[], &[], false),
    command_spec("standby", "sync", &[], &[], false),
    command_spec("standby", "power_off", &[], &[], true),
    command_spec("standby", "run_image", &[], &[], true),
    command_spec(
        "standby",
        "execute_bootc_install",
        &["image_source"],
        &["instance_info", "pull_secret", "configdrive"],
        true,
    ),
    command_spec("system", "lockdown", &[], &[], false),
];

pub(super) fn find(extension: &str, name: &str) -> Option<&'static SimIpaCommandSpec> {
    let mut all = COMMAND_SPECS.iter();
    all.find(|known| known.extension == extension && known.name == name)
}

impl SimIpaCommandSpec {
    fn is_step_command(&self) -> bool {
        self.name.starts_with("execute_") && self.name.ends_with("_step")
    }

    pub(super) fn parameter_error(
        &self,
        params: &Map<String, Value>,
    ) -> Option<SimIpaParameterError> {
        let takes = |key: &&String| {
            let key = key.as_str();
            self.required.contains(&key) || self.optional.contains(&key)
        };
        // Parameters that a step's command does not know are passed to the step.
        let unknown = params.keys().find(|key| !takes(key));
        let unknown = unknown.filter(|_| !self.is_step_command());
        let missing = self.required.iter().find(|key| !params.contains_key(**key));
        let details = match (unknown, missing) {
            (Some(key), _) => format!("got an unexpected keyword argument '{key}'"),
            (None, Some(key)) => format!("missing 1 required positional argument: '{key}'"),
            (None, None) => return None,
        };
        // The validator of a flow checks the parameters before the thread does.
        Some(if self.asynchronous && self.name != "start_flow" {
            SimIpaParameterError::Fails(format!("{}() {details}", self.name))
        } else {
            SimIpaParameterError::Unserializable
        })
    }
}

impl SimIpa {
    /// Runs a command with valid parameters; or the message of a 400.
    pub(super) fn run(
        &mut self,
        known: &SimIpaCommandSpec,
        params: &Map<String, Value>,
    ) -> Result<SimIpaCommandOutcome, String> {
        if known.is_step_command() {
            return Ok(SimIpaCommandOutcome::Started(
                self.step(known.extension, params),
            ));
        }
        Ok(match known.name {
            "get_clean_steps" | "get_deploy_steps" | "get_service_steps" => {
                self.node = params["node"].clone();
                let kind = known.extension;
                let mut found = json!({ "hardware_manager_version": self.managers });
                found[format!("{kind}_steps")] = steps::step_list(kind);
                SimIpaCommandOutcome::Done(found)
            }
            "collect_system_logs" => {
                SimIpaCommandOutcome::Done(json!({ "system_logs": messages::LOGS }))
            }
            "get_hardware_info" => SimIpaCommandOutcome::Done(self.setup.inventory.clone()),
            "set_node_info" => return Err(messages::NOT_STANDALONE.to_owned()),
            "finalize_rescue" => {
                let hash = params.get("rescue_password").cloned().unwrap_or_default();
                self.enable_rescue(hash.as_str().unwrap_or_default());
                SimIpaCommandOutcome::Done(Value::Null)
            }
            "get_partition_uuids" => SimIpaCommandOutcome::Done(self.uuids.clone()),
            "lockdown" => {
                self.state = SimIpaState::Hung;
                SimIpaCommandOutcome::Done(Value::Null)
            }
            "prepare_image" => {
                let info = &params["image_info"];
                if let Some(words) = wrong_image(info) {
                    return Err(format!("Invalid command parameters: {words}"));
                }
                SimIpaCommandOutcome::Started(self.writing(info))
            }
            "power_off" => SimIpaCommandOutcome::Started(SimIpaTask::PowerOff),
            "run_image" => SimIpaCommandOutcome::Started(SimIpaTask::Reboot),
            "install_bootloader" => {
                SimIpaCommandOutcome::Started(SimIpaTask::Finish(Ok(Value::Null)))
            }
            "execute_bootc_install" => {
                let why = messages::error("CommandExecutionError", "podman is not here");
                SimIpaCommandOutcome::Started(SimIpaTask::Finish(Err(why)))
            }
            "start_flow" => {
                let tasks = params["flow"].as_array().map_or(0, Vec::len);
                SimIpaCommandOutcome::Started(SimIpaTask::Flow(tasks))
            }
            _ => SimIpaCommandOutcome::Done(Value::Null),
        })
    }

    /// A step of this kind: its thread caches the node, compares versions, finds the method.
    fn step(&mut self, kind: &str, params: &Map<String, Value>) -> SimIpaTask {
        self.node = params["node"].clone();
        let used = params.get(&format!("{kind}_version"));
        let current = json!(self.managers);
        if let Some(used) = used.filter(|used| !used.is_null() && **used != current) {
            let details = format!(
                "Current versions: {}, versions used by ironic: {}",
                python(&current),
                python(used)
            );
            return SimIpaTask::Mismatch(messages::error("VersionMismatch", &details));
        }
        if std::mem::take(&mut self.leaks_token) {
            let token = self.token.as_deref().unwrap_or_default();
            let details = format!("see POST /v1/commands/?wait=true&agent_token={token} - 200");
            return SimIpaTask::Finish(Err(messages::error("CommandExecutionError", &details)));
        }
        let step = params["step"].clone();
        let Some(name) = step["step"].as_str() else {
            let details = format!("Malformed {kind}_step, no \"step\" key: {}", python(&step));
            return SimIpaTask::Finish(Err(messages::error("CommandExecutionError", &details)));
        };
        // Parameters that the command does not know are passed on.
        let own = ["step", "node", "ports"];
        let version = format!("{kind}_version");
        let passed = params.iter();
        let passed = passed.filter(|(key, _)| !own.contains(&key.as_str()) && **key != version);
        let mut args: Map<_, _> = passed.map(|(key, it)| (key.clone(), it.clone())).collect();
        args.extend(step["args"].as_object().cloned().unwrap_or_default());
        if let Some(error) = steps::argument_error(kind, name, &args) {
            return SimIpaTask::Finish(Err(error));
        }
        let step = SimIpaStep {
            kind: kind.to_owned(),
            step: step.clone(),
        };
        if let Some(hints) = self.unmatched_hints().filter(|_| name == "write_image") {
            let details = format!(
                "Unexpected exception performing {kind} step write_image. DeviceNotFound: Error \
                 finding the disk or partition device to deploy the image onto: No suitable \
                 device was found for deployment using these hints {}",
                python(&hints)
            );
            return SimIpaTask::Finish(Err(messages::error("DeploymentError", &details)));
        }
        match name {
            "erase_devices" | "erase_devices_metadata" | "erase_devices_express" => {
                SimIpaTask::Erase(step)
            }
            "write_image" => match wrong_image(&args["image_info"]) {
                Some(why) => {
                    SimIpaTask::Finish(Err(messages::error("InvalidCommandParamsError", &why)))
                }
                None => match self.writing(&args["image_info"]) {
                    SimIpaTask::Write(mut write) => {
                        write.step = Some(step);
                        SimIpaTask::Write(write)
                    }
                    other => other,
                },
            },
            "burnin_cpu" => {
                let why = "stress-ng (cpu) failed with error [Errno 2] No such file or \
                           directory: 'stress-ng'";
                SimIpaTask::Finish(Err(messages::error("CommandExecutionError", why)))
            }
            _ => SimIpaTask::Finish(Ok(step.with_result(Value::Null))),
        }
    }

    /// Adds a command to the list, which is never shortened.
    pub(super) fn record(
        &mut self,
        now: Tick,
        known: &SimIpaCommandSpec,
        extension: &str,
        ran: SimIpaCommandOutcome,
    ) -> String {
        self.serial += 1;
        let (seed, serial) = (self.setup.seed as u32, self.serial);
        let id = format!("{seed:08x}-0000-4000-8000-{serial:012x}");
        let mut command = SimIpaCommand {
            id: id.clone(),
            name: known.name.to_owned(),
            status: SUCCEEDED,
            error: Value::Null,
            result: Value::Null,
            unserializable: false,
        };
        // A synchronous one that failed is recorded under its full name.
        let whole = format!("{extension}.{}", known.name);
        match ran {
            SimIpaCommandOutcome::Done(result) => command.result = result,
            SimIpaCommandOutcome::Failed(error) => {
                (command.name, command.status, command.error) = (whole, FAILED, error);
            }
            SimIpaCommandOutcome::Unserializable => {
                (command.name, command.status, command.unserializable) = (whole, FAILED, true);
            }
            SimIpaCommandOutcome::Started(task) => {
                command.status = RUNNING;
                self.start_thread(now, &id, known.name, task);
            }
        }
        self.commands.push(command);
        id
    }
}

/// What is wrong with an `image_info`, in the messages of the agent's validator.
fn wrong_image(info: &Value) -> Option<String> {
    for field in ["id", "urls"] {
        if info.get(field).is_none() {
            return Some(format!("Image is missing '{field}' field."));
        }
    }
    if info["urls"].as_array().is_none_or(Vec::is_empty) {
        return Some("Image 'urls' must be a list with at least one element.".to_owned());
    }
    let text = |field: &str| info[field].as_str().filter(|text| !text.is_empty());
    let pair = text("os_hash_algo").is_some() && text("os_hash_value").is_some();
    let sum = text("checksum").is_some_and(|sum| sum.len() > 32 || sum.contains("://"));
    (!pair && !sum).then(|| {
        "Image checksum is not available, either the 'checksum' field or the 'os_hash_algo' \
         and 'os_hash_value' fields pair must be set for image verification."
            .to_owned()
    })
}

/// A value as Python prints it, if it consists only of texts and objects.
fn python(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("'{key}': {}", python(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}
