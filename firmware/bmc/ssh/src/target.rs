//! Host, user and private key for SSH, read from `driver_info` and validated.

use serde_json::Value;
use trivet_bmc::ssh_host::{SshHost, SshPrivateKey};
use trivet_model::PowerError;
use trivet_model::node::JsonObject;
use trivet_model::secret::SecretText;

use crate::commands::SshPowerCommands;

/// The TCP port of SSH (RFC 4253, section 4).
const SSH_PORT: u16 = 22;

/// Longest host name or user name, in bytes: the limit of a host name in DNS (RFC 1035).
const WORD_BYTES_MAX: usize = 253;

/// Longest private key, in bytes. Ours: RSA with 16384 bits fits.
const KEY_BYTES_MAX: usize = 16 * 1024;

/// The host of a node, and how its machine is switched there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SshTarget {
    /// The host, and how to log in.
    pub host: SshHost,
    /// The operator's own command lines, where the host has no libvirt.
    pub commands: Option<SshPowerCommands>,
}

impl SshTarget {
    /// Reads `driver_info`; an error if a value is missing or not safe on a command line.
    pub fn of(info: &JsonObject) -> Result<Self, PowerError> {
        let missing = |missing| PowerError::NotConfigured { missing };
        let word = |key: &str, more: &str| {
            let text = info.get(key).and_then(Value::as_str).map(str::trim);
            // A leading dash would be parsed as an option of ssh.
            text.filter(|text| !text.is_empty() && text.len() <= WORD_BYTES_MAX)
                .filter(|text| !text.starts_with('-'))
                .filter(|text| {
                    text.chars().all(|character| {
                        character.is_ascii_alphanumeric() || more.contains(character)
                    })
                })
                .map(str::to_owned)
        };
        let address = word("ssh_address", ".-:").ok_or(missing("a valid ssh_address"))?;
        let username = word("ssh_username", "._-").ok_or(missing("a valid ssh_username"))?;
        let port = match info.get("ssh_port") {
            None | Some(Value::Null) => Some(SSH_PORT),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(other) => other.as_u64().and_then(|port| u16::try_from(port).ok()),
        };
        let port = port.filter(|port| *port > 0);
        let given = match info.get("ssh_virt_type") {
            None | Some(Value::Null) => None,
            Some(Value::String(word)) if word == "virsh" => None,
            Some(Value::String(word)) if word == "commands" => Some(SshPowerCommands::of(info)?),
            Some(_) => return Err(missing("a known ssh_virt_type (virsh or commands)")),
        };
        let host = SshHost {
            address,
            port: port.ok_or(missing("a valid ssh_port"))?,
            username,
            key: key(info).ok_or(missing("one of ssh_key_filename and ssh_key_contents"))?,
        };
        let commands = given;
        Ok(Self { host, commands })
    }
}

fn key(info: &JsonObject) -> Option<SshPrivateKey> {
    let text = |key: &str| {
        let text = info.get(key).and_then(Value::as_str);
        text.filter(|text| !text.trim().is_empty() && text.len() <= KEY_BYTES_MAX)
    };
    match (text("ssh_key_filename"), text("ssh_key_contents")) {
        (Some(file), None) => {
            let plain = file.starts_with('/') && !file.chars().any(char::is_control);
            plain.then(|| SshPrivateKey::File(file.to_owned()))
        }
        // OpenSSH refuses a key whose last line has no line end.
        (None, Some(key)) => Some(SshPrivateKey::Contents(SecretText::new(format!(
            "{}\n",
            key.trim()
        )))),
        _ => None,
    }
}
