//! The result of an inspection, in the inspector's format.

use serde_json::{Value, json};
use trivet_model::node::JsonObject;
use trivet_model::view::NodeView;

use crate::table::error::ApiFault;

/// The stored data, unchanged.
pub(super) fn inspection_data(view: &NodeView) -> Result<&Value, ApiFault> {
    view.node.inventory.as_ref().ok_or_else(|| {
        let id = view.node.id;
        ApiFault::not_found(format!("Introspection data not found for node {id}"))
    })
}

/// The inventory with the additions of the inspector's plugins.
pub(super) fn processed(view: &NodeView) -> Result<Value, ApiFault> {
    let stored = inspection_data(view)?;
    let inventory = stored.get("inventory").unwrap_or(&Value::Null);
    let mut document = match stored.get("plugin_data") {
        Some(Value::Object(data)) => data.clone(),
        _ => JsonObject::new(),
    };
    let mut macs = Vec::new();
    let mut interfaces = JsonObject::new();
    for interface in inventory["interfaces"].as_array().into_iter().flatten() {
        let Some(name) = interface["name"].as_str() else {
            continue;
        };
        let mac = &interface["mac_address"];
        macs.extend(Some(mac.clone()).filter(Value::is_string));
        let shown = json!({
            "mac": mac,
            "ip": interface["ipv4_address"],
            "client_id": interface["client_id"],
        });
        interfaces.insert(name.to_owned(), shown);
    }
    let interfaces = Value::Object(interfaces);
    document.insert("macs".into(), Value::Array(macs));
    document.insert("all_interfaces".into(), interfaces.clone());
    document.insert("interfaces".into(), interfaces);
    document.insert("ipmi_address".into(), inventory["bmc_address"].clone());
    for name in ["cpus", "cpu_arch", "memory_mb", "local_gb"] {
        if let Some(value) = view.node.properties.get(name) {
            document.insert(name.into(), value.clone());
        }
    }
    document.insert("inventory".into(), inventory.clone());
    Ok(Value::Object(document))
}
