//! `GET /v1/nodes/<ident>/validate`: what a deployment would lack.

use serde_json::{Value, json};
use trivet_model::node::Object;
use trivet_model::view::NodeView;

use super::fields::interface;
use crate::call::{Call, reply};
use crate::error::Fault;
use crate::{Image, Outcome};

/// The interfaces that are validated, with the version each came with and the
/// field that says which one the node has.
const VALIDATED: [(&str, u16, &str); 12] = [
    ("bios", 40, "bios_interface"),
    ("boot", 1, "boot_interface"),
    ("console", 1, "console_interface"),
    ("deploy", 1, "deploy_interface"),
    ("firmware", 86, "firmware_interface"),
    ("inspect", 1, "inspect_interface"),
    ("management", 1, "management_interface"),
    ("network", 1, "network_interface"),
    ("power", 1, "power_interface"),
    ("raid", 12, "raid_interface"),
    ("rescue", 38, "rescue_interface"),
    ("storage", 1, "storage_interface"),
];

pub(crate) fn validate(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let results: Object = VALIDATED
        .iter()
        .filter(|(_, since, _)| call.has(*since))
        .map(|(kind, _, _)| {
            let result = match reason(call, view, kind) {
                Some(reason) => json!({"result": false, "reason": reason}),
                None => json!({"result": true}),
            };
            ((*kind).to_owned(), result)
        })
        .collect();
    reply(&Value::Object(results))
}

/// Why the interface of this kind cannot work; none if it can.
pub(crate) fn reason(call: &Call<'_>, view: &NodeView, kind: &str) -> Option<String> {
    let (_, _, field) = VALIDATED.iter().find(|(name, _, _)| *name == kind)?;
    let chosen = interface(view, call, field);
    let chosen = chosen.as_str().unwrap_or("");
    if chosen.starts_with("no-") {
        return Some(format!(
            "Driver {} does not support {kind} (disabled or not implemented).",
            view.node.driver
        ));
    }
    match chosen {
        "ipmitool" => ipmi(&view.node.driver_info),
        "direct" => image(&view.node.instance_info, &call.facts.images),
        "" => Some(format!("hardware type {} is not enabled", view.node.driver)),
        _ => None,
    }
}

fn ipmi(info: &Object) -> Option<String> {
    let address = info.get("ipmi_address").and_then(Value::as_str);
    if address.is_none_or(|address| address.trim().is_empty()) {
        return Some("driver_info lacks ipmi_address: say where the BMC is".into());
    }
    let port = match info.get("ipmi_port") {
        None | Some(Value::Null) => return None,
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_u64(),
    };
    if port.is_some_and(|port: u64| (1..=65535).contains(&port)) {
        return None;
    }
    Some("driver_info.ipmi_port is not a port number".into())
}

fn image(info: &Object, own: &[Image]) -> Option<String> {
    let has = |key: &str| {
        let value = info.get(key).and_then(Value::as_str);
        value.is_some_and(|text| !text.trim().is_empty())
    };
    if !has("image_source") {
        return Some("instance_info lacks image_source: say which image to write".into());
    }
    let source = info.get("image_source").and_then(Value::as_str);
    // The box knows the digests of its own images.
    if source.is_some_and(|source| own.iter().any(|image| image.name == source)) {
        return None;
    }
    if has("image_checksum") || (has("image_os_hash_algo") && has("image_os_hash_value")) {
        return None;
    }
    Some(
        "instance_info lacks a digest of the image: give image_checksum, or image_os_hash_algo \
         and image_os_hash_value"
            .into(),
    )
}
