//! Checks a node's record: whether each interface has the settings that it needs, and if not, why.

use serde_json::Value;
use trivet_model::interface::DeployInterface;
use trivet_model::node::JsonObject;
use trivet_model::secret::without_url_credentials;
use trivet_model::{Node, OciReference};

use crate::payload::{agent_args, agent_files, payload};
use crate::{InterfaceKind, deploy_method, interface, is_off};

/// The TCP port of SSH (RFC 4253, section 4).
pub const SSH_PORT: u16 = 22;

/// Most characters of a wrong value in a sentence.
const SHOWN_CHARS_MAX: usize = 40;

/// Longest host with a port, in bytes: a domain name has 253 (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 260;

/// The reason why the interface of this kind cannot work on this node; `None` if it can. `is_own`
/// is true for the images of the box's own catalogue, which need no digest from the operator.
pub fn check(node: &Node, kind: InterfaceKind, is_own: &dyn Fn(&str) -> bool) -> Option<String> {
    if is_off(node, kind) {
        return Some(format!(
            "Driver {} does not support {} (disabled or not implemented).",
            node.driver,
            kind.as_str()
        ));
    }
    match interface(node, kind) {
        "" => Some(format!("hardware type {} is not known", node.driver)),
        "ipmitool" => ipmi(&node.driver_info),
        "redfish"
            if matches!(
                kind,
                InterfaceKind::Bios | InterfaceKind::Firmware | InterfaceKind::Raid
            ) =>
        {
            Some(format!(
                "this box does not drive {} by Redfish yet; the interface may be chosen, but does \
             nothing",
                kind.as_str()
            ))
        }
        "redfish" => redfish(node),
        "ssh" => ssh(&node.driver_info),
        "wake-on-lan" => wake_on_lan(&node.driver_info),
        "direct" | "ramdisk" | "custom-agent" | "autodetect" => deploy(node, is_own),
        "ipxe" | "pxe" | "redfish-virtual-media" | "redfish-https" => netboot(node).err(),
        _ => None,
    }
}

/// Whether the node can be deployed. The steps of `custom-agent` find out themselves whether they
/// have the image that they need.
fn deploy(node: &Node, is_own: &dyn Fn(&str) -> bool) -> Option<String> {
    let agent = || {
        let external = || external_http_url(&node.driver_info).err();
        let fast_track = fast_track(&node.driver_info).err();
        fast_track
            .or_else(|| unknown_boot_mode(node))
            .or_else(external)
    };
    match deploy_method(node) {
        Some(DeployInterface::Ramdisk) => payload(node).err(),
        Some(DeployInterface::CustomAgent) => agent(),
        _ => agent().or_else(|| image(&node.instance_info, is_own)),
    }
}

/// The URL, without a slash at its end, at which the node's machine reaches this box instead of the
/// one in the settings; `None` if the record does not set it. The paths below it are the box's own,
/// so it has none.
pub fn external_http_url(info: &JsonObject) -> Result<Option<&str>, String> {
    let invalid = || {
        Err(
            "driver_info.external_http_url must be an http or https URL with a host and no path, \
             such as http://192.0.2.1:8080"
                .to_owned(),
        )
    };
    let url = match info.get("external_http_url") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(url)) => url.trim().trim_end_matches('/'),
        Some(_) => return invalid(),
    };
    if url.is_empty() {
        return Ok(None);
    }
    let host = url.strip_prefix("http://");
    let host = host.or_else(|| url.strip_prefix("https://"));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
    match host {
        Some(host)
            if !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(plain) =>
        {
            Ok(Some(url))
        }
        _ => invalid(),
    }
}

/// Whether the record turns fast track on or off (the agent stays between two jobs); `None` if the
/// record does not set it.
pub fn fast_track(info: &JsonObject) -> Result<Option<bool>, String> {
    let word = match info.get("fast_track") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Bool(stays)) => return Ok(Some(*stays)),
        Some(Value::String(word)) => word.trim().to_ascii_lowercase(),
        Some(other) => other.to_string(),
    };
    match word.as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(Some(true)),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(Some(false)),
        _ => Err("driver_info.fast_track must be true or false".into()),
    }
}

/// The error for a boot mode that is neither `uefi` nor `bios`.
fn unknown_boot_mode(node: &Node) -> Option<String> {
    let mut reported = crate::boot_modes(node);
    let word = reported.find(|word| !["uefi", "bios"].contains(word))?;
    Some(format!("boot_mode {word} is not known: give uefi or bios"))
}

/// Whether the record has what is needed to boot the agent.
fn netboot(node: &Node) -> Result<(), String> {
    agent_files(node, false)?;
    agent_files(node, true)?;
    agent_args(node, "")?;
    Ok(())
}

fn text<'a>(info: &'a JsonObject, key: &str) -> Option<&'a str> {
    let text = info.get(key).and_then(Value::as_str).map(str::trim);
    text.filter(|text| !text.is_empty())
}

/// A port number, as a number or as text: `default` if the key is absent, `None` if the value is
/// not a port number.
pub fn number(info: &JsonObject, key: &str, default: u16) -> Option<u16> {
    let port = match info.get(key) {
        None | Some(Value::Null) => return Some(default),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_u64().and_then(|port| u16::try_from(port).ok()),
    };
    port.filter(|port| *port > 0)
}

fn ipmi(info: &JsonObject) -> Option<String> {
    if text(info, "ipmi_address").is_none() {
        return Some(
            "Missing the following IPMI credentials in node's driver_info: ['ipmi_address']. Set \
             it to the address of the BMC"
                .into(),
        );
    }
    if number(info, "ipmi_port", 623).is_none() {
        let port = info.get("ipmi_port").unwrap_or(&Value::Null);
        return Some(format!(
            "ipmi_port \"{}\" is not a valid port. It is a number from 1 to 65535 in driver_info",
            shown(port)
        ));
    }
    None
}

/// A value as part of a sentence, of bounded length.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn redfish(node: &Node) -> Option<String> {
    let info = &node.driver_info;
    if text(info, "redfish_address").is_none() {
        return Some(format!(
            "Missing the following Redfish properties in node {} driver_info: \
             ['redfish_address']. Set it to the address of the BMC",
            node.id
        ));
    }
    match text(info, "redfish_auth_type").map(str::to_ascii_lowercase) {
        None => {}
        Some(word) if ["auto", "session", "basic"].contains(&word.as_str()) => {}
        Some(word) => {
            return Some(format!(
                "Invalid value \"{}\" set in driver_info/redfish_auth_type on node {}. The value \
                 should be one of \"basic\", \"session\" or \"auto\".",
                shown(&Value::String(word)),
                node.id
            ));
        }
    }
    if text(info, "redfish_password").is_some() && text(info, "redfish_username").is_none() {
        return Some("driver_info has redfish_password without redfish_username".into());
    }
    None
}

fn ssh(info: &JsonObject) -> Option<String> {
    for (key, what) in [
        ("ssh_address", "set the host that runs the virtual machine"),
        ("ssh_username", "set the user name on that host"),
    ] {
        if text(info, key).is_none() {
            return Some(format!("driver_info lacks {key}: {what}"));
        }
    }
    if number(info, "ssh_port", SSH_PORT).is_none() {
        return Some("driver_info.ssh_port is not a port number".into());
    }
    match text(info, "ssh_virt_type") {
        None | Some("virsh") => {}
        Some("commands") => {
            for key in ["ssh_power_on", "ssh_power_off", "ssh_power_status"] {
                if text(info, key).is_none() {
                    return Some(format!("driver_info lacks {key}: give a command line"));
                }
            }
        }
        Some(_) => {
            return Some("driver_info.ssh_virt_type must be virsh or commands".into());
        }
    }
    match (
        text(info, "ssh_key_filename"),
        text(info, "ssh_key_contents"),
    ) {
        (None, None) => Some(
            "driver_info lacks a private key: give ssh_key_filename or ssh_key_contents".into(),
        ),
        (Some(_), Some(_)) => Some(
            "driver_info has both ssh_key_filename and ssh_key_contents: give one of them".into(),
        ),
        (Some(file), None) if !file.starts_with('/') || file.chars().any(char::is_control) => Some(
            "driver_info.ssh_key_filename must be a path from /, of a file in the directory of \
             hardware.ssh_keys in the settings"
                .into(),
        ),
        _ => None,
    }
}

fn wake_on_lan(info: &JsonObject) -> Option<String> {
    let address = info.get("wol_address").filter(|value| !value.is_null());
    let is_ipv4 = |value: &Value| {
        let text = value.as_str().map(str::trim);
        text.is_some_and(|text| text.parse::<std::net::Ipv4Addr>().is_ok())
    };
    if address.is_some_and(|value| !is_ipv4(value)) {
        return Some("driver_info.wol_address is not an IPv4 address".into());
    }
    if number(info, "wol_port", 9).is_none() {
        return Some("driver_info.wol_port is not a port number".into());
    }
    // Power-off over SSH is optional, but must be complete where it is set.
    text(info, "ssh_address").and_then(|_| ssh(info))
}

fn image(info: &JsonObject, is_own: &dyn Fn(&str) -> bool) -> Option<String> {
    let Some(source) = text(info, "image_source") else {
        return Some("instance_info lacks image_source: set the image to write".into());
    };
    // The box knows the digests of its own images.
    if is_own(source) {
        return None;
    }
    if !source.contains("://") {
        return Some(format!(
            "instance_info has an image_source that is neither an image of this box nor a URL: \
             {source}; see `trivet image list`"
        ));
    }
    if OciReference::is_oci(source) {
        // The digest is in the manifest of the registry.
        let why = source.parse::<OciReference>().err()?;
        let masked = without_url_credentials(source);
        let shown = masked.as_deref().unwrap_or(source);
        return Some(format!(
            "instance_info has an invalid image_source: {shown} {why}"
        ));
    }
    let has = |key| text(info, key).is_some();
    if has("image_checksum") || (has("image_os_hash_algo") && has("image_os_hash_value")) {
        return None;
    }
    Some(
        "instance_info lacks a digest of the image: give image_checksum, or image_os_hash_algo \
         and image_os_hash_value"
            .into(),
    )
}
