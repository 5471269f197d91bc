//! Command lines from the operator, for hosts without libvirt: a power strip, another hypervisor, a
//! script. They are run exactly as stored in the record; nothing is inserted into them.

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{PowerAnswer, PowerError, PowerOrder, PowerState};

/// Longest command line in bytes. Ours.
const LINE_BYTES_MAX: usize = 1024;

/// The operator's command line for each power action.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SshPowerCommands {
    on: String,
    off: String,
    status: String,
    soft_off: Option<String>,
    reset: Option<String>,
}

impl SshPowerCommands {
    pub(crate) fn of(info: &JsonObject) -> Result<Self, PowerError> {
        let line = |key: &str| {
            let text = info.get(key).and_then(Value::as_str).map(str::trim);
            let text = text.filter(|text| !text.is_empty() && text.len() <= LINE_BYTES_MAX);
            text.filter(|text| !text.chars().any(char::is_control))
                .map(str::to_owned)
        };
        let missing = |missing| PowerError::NotConfigured { missing };
        Ok(Self {
            on: line("ssh_power_on").ok_or(missing("ssh_power_on (a command line)"))?,
            off: line("ssh_power_off").ok_or(missing("ssh_power_off (a command line)"))?,
            status: line("ssh_power_status").ok_or(missing("ssh_power_status (a command line)"))?,
            soft_off: line("ssh_power_soft_off"),
            reset: line("ssh_power_reset"),
        })
    }

    pub(crate) fn status(&self) -> String {
        self.status.clone()
    }

    /// The command line for an order, and the answer that its success means; `None` if no command
    /// is needed on this host.
    pub(crate) fn line(
        &self,
        order: PowerOrder,
        is: PowerState,
    ) -> Option<Result<(String, PowerAnswer), PowerError>> {
        let on = PowerAnswer::Power(PowerState::On);
        let off = PowerAnswer::Power(PowerState::Off);
        let lacks = |message| Err(PowerError::Unsupported { message });
        Some(match (order, is) {
            (PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset, PowerState::Off) => {
                Ok((self.on.clone(), on))
            }
            (PowerOrder::Off, PowerState::On) => Ok((self.off.clone(), off)),
            (PowerOrder::SoftOff, PowerState::On) => match &self.soft_off {
                Some(line) => Ok((line.clone(), PowerAnswer::Accepted)),
                None => lacks("driver_info has no ssh_power_soft_off; power off hard, or set it"),
            },
            (PowerOrder::Reset, PowerState::On) if let Some(line) = &self.reset => {
                Ok((line.clone(), on))
            }
            (PowerOrder::Cycle | PowerOrder::Reset, PowerState::On) => {
                Ok((format!("{{ {}; }} && {{ {}; }}", self.off, self.on), on))
            }
            _ => return None,
        })
    }
}

/// The power state that a status command printed, by its last word.
pub(crate) fn state(printed: &[u8]) -> Option<PowerState> {
    let text = String::from_utf8_lossy(printed).to_ascii_lowercase();
    match text.split_whitespace().last()? {
        "on" | "running" | "up" | "1" | "true" => Some(PowerState::On),
        "off" | "stopped" | "down" | "0" | "false" => Some(PowerState::Off),
        _ => None,
    }
}
