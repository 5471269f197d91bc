//! Appliance to agent: commands, their results and errors.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::lenient;

/// A command for the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandRequest {
    /// `<extension>.<command>`.
    pub name: String,
    /// Only parameters that the command has: the agent never recovers from another one.
    pub params: Map<String, Value>,
}

/// The state and result of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandResult {
    /// Its UUID.
    #[serde(default)]
    pub id: String,
    /// Its name without the extension.
    pub command_name: String,
    /// Its state.
    pub command_status: CommandStatus,
    /// The error, if it failed.
    #[serde(default)]
    pub command_error: Option<CommandError>,
    /// Its result; null if there is none.
    #[serde(default)]
    pub command_result: Value,
}

/// The state of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CommandStatus {
    /// Under way.
    Running,
    /// Done.
    Succeeded,
    /// Failed; see the error.
    Failed,
    /// The hardware managers have other versions than the caller expects. The agent sends
    /// `CLEAN_VERSION_MISMATCH` for steps of all kinds.
    VersionMismatch,
    /// A status of a newer agent.
    Other(String),
}

impl CommandStatus {
    /// The name of the status on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::VersionMismatch => "CLEAN_VERSION_MISMATCH",
            Self::Other(word) => word,
        }
    }
}

impl From<&str> for CommandStatus {
    fn from(word: &str) -> Self {
        match word {
            "RUNNING" => Self::Running,
            "SUCCEEDED" => Self::Succeeded,
            "FAILED" => Self::Failed,
            word if word.ends_with("VERSION_MISMATCH") => Self::VersionMismatch,
            word => Self::Other(word.to_owned()),
        }
    }
}

impl Serialize for CommandStatus {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CommandStatus {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input).map(|word| Self::from(word.as_str()))
    }
}

/// Why a command failed: usually an object, sometimes a string.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CommandError {
    /// The agent's class of error, such as `ImageChecksumError`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A matching HTTP status.
    pub code: u16,
    /// The kind of failure, as text.
    pub message: String,
    /// Details of the failure.
    pub details: String,
}

impl CommandError {
    /// The most specific text: details, else message, else the kind.
    pub fn description(&self) -> &str {
        let words = [&self.details, &self.message, &self.kind];
        let telling = words.into_iter().find(|word| !word.trim().is_empty());
        telling.map_or("no reason given", |word| word.trim())
    }
}

impl<'de> Deserialize<'de> for CommandError {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Parts {
            #[serde(default, rename = "type", deserialize_with = "lenient::text")]
            kind: Option<String>,
            #[serde(default, deserialize_with = "lenient::number")]
            code: Option<u64>,
            #[serde(default, deserialize_with = "lenient::text")]
            message: Option<String>,
            #[serde(default, deserialize_with = "lenient::text")]
            details: Option<String>,
        }
        let value = Value::deserialize(input)?;
        let parts = match &value {
            Value::Object(_) => Parts::deserialize(&value).map_err(serde::de::Error::custom)?,
            Value::String(text) => return Ok(Self::plain(text)),
            other => return Ok(Self::plain(&other.to_string())),
        };
        let code = parts.code.and_then(|code| u16::try_from(code).ok());
        let mut error = Self {
            kind: parts.kind.unwrap_or_default(),
            code: code.unwrap_or(500),
            message: parts.message.unwrap_or_default(),
            details: parts.details.unwrap_or_default(),
        };
        if error.kind.is_empty() && error.message.is_empty() && error.details.is_empty() {
            error.details = value.to_string();
        }
        Ok(error)
    }
}

impl CommandError {
    fn plain(text: &str) -> Self {
        Self {
            kind: String::new(),
            code: 500,
            message: String::new(),
            details: text.to_owned(),
        }
    }
}

/// All commands since the agent started, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandList {
    /// Their results.
    pub commands: Vec<CommandResult>,
}

/// The agent's reply to a request that it refuses.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct AgentFault {
    /// `Client` or `Server`.
    #[serde(default)]
    pub faultcode: String,
    /// The reason, for people.
    pub faultstring: String,
}

/// A step as it is transmitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IpaStep {
    /// Name.
    pub step: String,
    /// Ironic's name of the interface.
    #[serde(default, deserialize_with = "lenient::option")]
    pub interface: Option<String>,
    /// Higher runs earlier.
    #[serde(default, deserialize_with = "lenient::whole_number")]
    pub priority: i64,
    /// Reboot after it.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub reboot_requested: bool,
    /// May be aborted; deploy steps do not have this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub abortable: Option<bool>,
    /// Keyword arguments when it is executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub args: Option<Map<String, Value>>,
    /// Description of its arguments, in a list of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub argsinfo: Option<Value>,
    /// Our own field: the index of the step in its job. An agent returns it unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub trivet_at: Option<u32>,
}

/// Steps by hardware manager, as `get_<kind>_steps` returns them.
pub type StepsByManager = BTreeMap<String, Vec<IpaStep>>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_priority_or_flag_that_cannot_be_parsed_is_refused() {
        let read = |step: Value| serde_json::from_value::<IpaStep>(step).ok();
        for (priority, want) in [
            (json!(99), Some(99)),
            (json!("99"), Some(99)),
            (json!(-1.0), Some(-1)),
            (json!(null), Some(0)),
            (json!(1.5), None),
            (json!(1e30), None),
            (json!("high"), None),
            (json!([]), None),
        ] {
            let step = read(json!({"step": "s", "priority": priority}));
            assert_eq!(step.map(|step| step.priority), want, "{priority}");
        }
        assert!(
            read(json!({"step": "s", "reboot_requested": true}))
                .unwrap()
                .reboot_requested
        );
        assert_eq!(read(json!({"step": "s", "reboot_requested": "yes"})), None);
    }

    fn result(text: &str) -> CommandResult {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn reads_a_running_command_and_writes_the_same() {
        let text = r#"{"id":"52faf59d","command_name":"start_flow","command_status":"RUNNING",
            "command_error":null,"command_result":null}"#;
        let running = result(text);
        assert_eq!(running.command_status, CommandStatus::Running);
        assert_eq!(running.command_error, None);
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(running).unwrap(), value);
    }

    #[test]
    fn reads_the_failure_of_the_transcript() {
        let failed = result(
            r#"{"id":"x","command_name":"execute_clean_step","command_status":"FAILED",
            "command_result":null,"command_error":{"type":"HardwareManagerMethodNotFound",
            "code":500,"message":"No HardwareManager found to handle method",
            "details":"Could not find method: no_such_step"}}"#,
        );
        assert_eq!(failed.command_status, CommandStatus::Failed);
        let error = failed.command_error.unwrap();
        assert_eq!(error.description(), "Could not find method: no_such_step");
        assert_eq!(error.kind, "HardwareManagerMethodNotFound");
    }

    #[test]
    fn knows_a_version_mismatch_by_either_word() {
        for word in ["CLEAN_VERSION_MISMATCH", "VERSION_MISMATCH"] {
            assert_eq!(CommandStatus::from(word), CommandStatus::VersionMismatch);
        }
        let odd = CommandStatus::from("PAUSED");
        assert_eq!(odd.as_str(), "PAUSED");
    }

    #[test]
    fn an_error_may_be_anything() {
        let message_of = |value: Value| {
            let error: CommandError = serde_json::from_value(value).unwrap();
            error.description().to_owned()
        };
        assert_eq!(message_of(json!("it broke")), "it broke");
        assert_eq!(message_of(json!({"message": "m", "details": ""})), "m");
        assert_eq!(message_of(json!({"type": "T", "code": "x"})), "T");
        assert_eq!(message_of(json!({"other": 1})), "{\"other\":1}");
        assert_eq!(message_of(json!(["a"])), "[\"a\"]");
        assert_eq!(message_of(json!({"details": ["a"]})), "[\"a\"]");
        assert_eq!(message_of(json!("")), "no reason given");
    }

    #[test]
    fn reads_the_fault_of_the_transcript() {
        let fault: AgentFault = serde_json::from_str(
            r#"{"faultcode": "Client", "faultstring": "401 Unauthorized: Token invalid."}"#,
        )
        .unwrap();
        assert_eq!(fault.faultcode, "Client");
    }

    #[test]
    fn reads_steps_with_and_without_arguments() {
        let steps: StepsByManager = serde_json::from_str(
            r#"{"GenericHardwareManager":[
            {"step":"erase_devices","priority":10,"interface":"deploy","reboot_requested":false,
             "abortable":true},
            {"step":"clean_uefi_nvram","priority":0,"interface":"deploy",
             "reboot_requested":false,"abortable":true,
             "argsinfo":{"match_patterns":{"description":"x","required":false}}},
            {"step":"burnin_disk"}]}"#,
        )
        .unwrap();
        let steps = &steps["GenericHardwareManager"];
        assert_eq!(steps[0].priority, 10);
        assert!(steps[1].argsinfo.is_some());
        assert_eq!(steps[2].interface, None);
    }

    #[test]
    fn a_request_needs_an_object_of_params() {
        assert!(serde_json::from_str::<CommandRequest>(r#"{"name":"a.b"}"#).is_err());
        assert!(serde_json::from_str::<CommandRequest>(r#"{"name":"a.b","params":[]}"#).is_err());
        assert!(serde_json::from_str::<CommandRequest>(r#"{"name":"a.b","params":{}}"#).is_ok());
    }

    #[test]
    fn an_empty_list_is_a_list() {
        let list: CommandList = serde_json::from_str(r#"{"commands": []}"#).unwrap();
        assert!(list.commands.is_empty());
        assert!(serde_json::from_str::<CommandList>("{}").is_err());
    }
}
