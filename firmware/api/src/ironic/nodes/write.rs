//! From a document of fields to a record: used by creation with the body, and by a patch with the
//! patched document.

use serde_json::{Value, json};
use trivet_drivers::{HardwareTypeSpec, InterfaceKind};
use trivet_model::attributes::InvalidAttribute;
use trivet_model::node::JsonObject;
use trivet_model::view::NodeView;
use trivet_model::{Node, NodeId, ResourceKind};

use super::fields::FIELDS;
use super::{network_data, secrets};
use crate::ironic::drivers;
use crate::table::body::{DEPTH_MAX, depth};
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field;

/// Largest sum of a node's free-form objects, in bytes of JSON. Ours: with the inventory and a
/// job's steps it must fit into one record of the store.
pub(crate) const NODE_BYTES_MAX: usize = 40 * 1024;

/// Longest resource class in characters, as in Ironic.
pub(crate) const CLASS_CHARS_MAX: usize = 80;

/// Path segments after `/v1/nodes/` that are not nodes.
const RESERVED: [&str; 8] = [
    "detail",
    "states",
    "validate",
    "maintenance",
    "management",
    "vendor_passthru",
    "ports",
    "vifs",
];

/// The fields that a patch can change, with their stored values, secrets in clear.
pub(crate) fn document(call: &ApiCall<'_>, view: &NodeView) -> JsonObject {
    let node = &view.node;
    let mut document: JsonObject = FIELDS
        .iter()
        .filter(|field| field.in_patch())
        .map(|field| {
            let value = if field.name.ends_with("_interface") {
                node.attributes.get(field.name).unwrap_or(Value::Null)
            } else {
                field.show(view, call)
            };
            (field.name.to_owned(), value)
        })
        .collect();
    document.insert("driver_info".into(), json!(node.driver_info));
    document.insert("instance_info".into(), json!(node.instance_info));
    document
}

/// Writes a document into a record. Null means the default.
pub(crate) fn read(
    call: &ApiCall<'_>,
    document: JsonObject,
    node: &mut Node,
) -> Result<(), ApiFault> {
    let mut unknown = None;
    let grouped = document.contains_key("conductor_group");
    for (name, value) in document {
        let Some(row) = FIELDS.iter().find(|field| field.name == name) else {
            continue;
        };
        if row.name == "network_data" && !value.is_object() && !value.is_null() {
            return Err(network_data::not_an_object(&value));
        }
        let value = field::read(row.name, row.shape, value)?;
        let value = match (row.name, value) {
            ("parent_node", value) => parent(call, value)?,
            ("network_data", Value::Object(document)) => {
                network_data::check(&document)?;
                Value::Object(document)
            }
            ("instance_name", Value::String(name)) if name.is_empty() => {
                return Err(ApiFault::bad(
                    "Schema error: '' should be non-empty: instance_name has at least one letter.",
                ));
            }
            ("resource_class", Value::String(class))
                if field::is_longer(&class, CLASS_CHARS_MAX) =>
            {
                return Err(field::too_long("resource_class", &class, CLASS_CHARS_MAX));
            }
            (_, value) => value,
        };
        if set(node, row.name, value.clone()).is_err() {
            unknown = unknown.or(Some((row.name, value)));
        }
    }
    if grouped {
        check_group(node)?;
    }
    // After all fields: an older driver name selects interfaces that the operator did not.
    trivet_drivers::adopt_alias(node);
    match unknown {
        None => Ok(()),
        // After the driver is known, because the error names the interfaces that it has.
        Some((name, value)) => Err(unknown_value(call, node, name, &value)),
    }
}

/// The error for a value that a typed field does not have.
fn unknown_value(call: &ApiCall<'_>, node: &Node, name: &str, value: &Value) -> ApiFault {
    let hardware = match hardware(call, node) {
        Ok(hardware) => hardware,
        Err(fault) => return fault,
    };
    match InterfaceKind::named(name) {
        Some(kind) => no_interface(hardware, kind, value.as_str().unwrap_or_default()),
        None => ApiFault::bad(format!("{name} has an invalid value.")),
    }
}

/// Nova stores the instance's name in `instance_info`; Ironic shows it as a field too.
pub(crate) fn take_instance_name(node: &mut Node) {
    let name = node
        .instance_info
        .get("display_name")
        .and_then(Value::as_str);
    if let Some(name) = name.filter(|name| !name.is_empty())
        && node.attributes.instance_name.is_none()
    {
        node.attributes.instance_name = Some(name.to_owned());
    }
}

fn set(node: &mut Node, name: &'static str, value: Value) -> Result<(), InvalidAttribute> {
    let text = || value.as_str().map(str::to_owned);
    let object = |old: &JsonObject| {
        let mut new = value.clone();
        secrets::restore(&mut new, &Value::Object(old.clone()));
        match new {
            Value::Object(object) => object,
            _ => JsonObject::new(),
        }
    };
    match name {
        "uuid" => {
            if let Some(id) = value.as_str().and_then(|text| text.parse().ok()) {
                node.id = id;
            }
        }
        "name" => node.name = text(),
        "driver" => node.driver = text().unwrap_or_default(),
        "driver_info" => {
            node.driver_info = object(&node.driver_info);
            // Shown there, but not writable.
            for field in super::fields::AGENT_SHOWN {
                node.driver_info.remove(field);
            }
        }
        "properties" => node.properties = object(&node.properties),
        "extra" => node.extra = object(&node.extra),
        "instance_info" => {
            node.instance_info = object(&node.instance_info);
        }
        "conductor_group" => {
            // Ironic compares groups case-insensitively, and stores them in lower case.
            let group = value.as_str().unwrap_or("").to_ascii_lowercase();
            node.attributes.conductor_group = Some(group).filter(|group| !group.is_empty());
        }
        "instance_uuid" => node.instance_uuid = text(),
        "resource_class" => node.resource_class = text(),
        "automated_clean" => node.automated_clean = value.as_bool(),
        "maintenance" => {
            node.maintenance = value.as_bool().unwrap_or(false);
            if !node.maintenance {
                node.maintenance_reason = None;
                node.fault = None;
            }
        }
        name => {
            // A default is not stored, see `NodeAttributes`.
            let blank = match &value {
                Value::Null => true,
                // Off is another state than unknown.
                Value::Bool(on) => !on && name != "secure_boot",
                Value::Object(object) => object.is_empty(),
                _ => false,
            };
            return node.attributes.set(name, (!blank).then_some(value));
        }
    }
    Ok(())
}

/// A parent can be given by its name; its UUID is stored.
fn parent(call: &ApiCall<'_>, named: Value) -> Result<Value, ApiFault> {
    let Some(name) = named.as_str() else {
        return Ok(named);
    };
    if name.is_empty() {
        return Ok(Value::Null);
    }
    let found = call.view.node(name).ok_or_else(|| not_another(name))?;
    Ok(found.node.id.to_string().into())
}

fn not_another(parent: &str) -> ApiFault {
    let parent = parent.escape_debug();
    ApiFault::bad(format!("parent_node {parent} is not another node."))
}

/// A parent must exist, and a node cannot be its own parent.
fn check_parent(call: &ApiCall<'_>, node: &Node) -> Result<(), ApiFault> {
    match node.attributes.parent_node {
        Some(parent) if parent == node.id || !call.view.nodes.contains_key(&parent) => {
            Err(not_another(&parent.to_string()))
        }
        _ => Ok(()),
    }
}

/// A reason can be set only together with the flag that it belongs to.
fn check_reasons(node: &Node) -> Result<(), ApiFault> {
    let attributes = &node.attributes;
    for (name, on, reason) in [
        (
            "protected",
            attributes.protected,
            &attributes.protected_reason,
        ),
        ("retired", attributes.retired, &attributes.retired_reason),
    ] {
        if !on && reason.as_ref().is_some_and(|reason| !reason.is_empty()) {
            return Err(ApiFault::bad(format!(
                "The {name}_reason field can only be set when {name} is True"
            )));
        }
    }
    Ok(())
}

/// Refuses a record that is not valid.
pub(crate) fn check(call: &ApiCall<'_>, node: &Node) -> Result<(), ApiFault> {
    check_parent(call, node)?;
    check_name(call, node)?;
    check_interfaces(call, node)?;
    check_unique(call, node)?;
    let resources = &call.view.resources;
    if let Some(chassis) = node.attributes.chassis_uuid
        && !resources.contains_key(&(ResourceKind::Chassis, chassis))
    {
        return Err(ApiFault::bad(format!(
            "Chassis {chassis} could not be found."
        )));
    }
    check_reasons(node)?;
    check_size(node)
}

/// The box is the only conductor and is in no group, so a node in a group would have none.
fn check_group(node: &Node) -> Result<(), ApiFault> {
    let Some(group) = &node.attributes.conductor_group else {
        return Ok(());
    };
    let next = "this box is the only conductor and in no group; leave conductor_group empty.";
    Err(no_conductor(&node.driver, group, next))
}

fn no_conductor(driver: &str, group: &str, next: &str) -> ApiFault {
    ApiFault::bad(format!(
        "No valid host was found. Reason: No conductor service registered which supports driver \
         {} for conductor group \"{}\": {next}",
        driver.escape_debug(),
        group.escape_debug()
    ))
}

fn check_name(call: &ApiCall<'_>, node: &Node) -> Result<(), ApiFault> {
    let Some(name) = &node.name else {
        return Ok(());
    };
    if RESERVED.contains(&name.as_str()) {
        return Err(ApiFault::bad(format!(
            "The word \"{name}\" is reserved and can not be used as a node name. Reserved words \
             are: {}.",
            RESERVED.join(", ")
        )));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let well_formed = !name.is_empty() && name.bytes().all(plain) && *name != "." && *name != "..";
    if well_formed && name.parse::<NodeId>().is_err() {
        return Ok(());
    }
    let what = match call.view.nodes.get(&node.id) {
        Some(_) => format!("Node {}: Cannot change name to", node.id),
        None => "Cannot create node with".to_owned(),
    };
    Err(ApiFault::bad(format!(
        "{what} invalid name '{}': a name has letters, digits and -._~ only, and is not a UUID.",
        name.escape_debug()
    )))
}

fn hardware(call: &ApiCall<'_>, node: &Node) -> Result<&'static HardwareTypeSpec, ApiFault> {
    drivers::enabled(call, &node.driver).ok_or_else(|| {
        let enabled = call.facts.drivers.join(", ");
        let next = format!("hardware type is not enabled. Enabled: {enabled}.");
        no_conductor(&node.driver, "", &next)
    })
}

fn no_interface(hardware: &HardwareTypeSpec, kind: InterfaceKind, chosen: &str) -> ApiFault {
    ApiFault::bad(format!(
        "Could not find the following interface in the 'ironic.hardware.interfaces.{}' entrypoint: \
         {}. Valid interfaces are {} for hardware type {}.",
        kind.as_str(),
        chosen.escape_debug(),
        valid_interfaces(hardware, kind),
        hardware.name
    ))
}

fn valid_interfaces(hardware: &HardwareTypeSpec, kind: InterfaceKind) -> String {
    format!("['{}']", hardware.interfaces(kind).join("', '"))
}

/// The error for an interface that other hardware types have.
fn incompatible(hardware: &HardwareTypeSpec, kind: InterfaceKind, chosen: &str) -> ApiFault {
    ApiFault::bad(format!(
        "{} interface implementation '{chosen}' is not supported by hardware type {}. Valid \
         interfaces are {}.",
        kind.as_str(),
        hardware.name,
        valid_interfaces(hardware, kind)
    ))
}

fn check_interfaces(call: &ApiCall<'_>, node: &Node) -> Result<(), ApiFault> {
    let hardware = hardware(call, node)?;
    for kind in InterfaceKind::ALL {
        let chosen = node.attributes.get(kind.field());
        if let Some(Value::String(chosen)) = chosen
            && !hardware.interfaces(kind).contains(&chosen.as_str())
        {
            return Err(incompatible(hardware, kind, &chosen));
        }
    }
    Ok(())
}

/// Refuses keys of `driver_info` that `old` does not have and that are most likely misspelt. Keys
/// that are already stored are not refused.
pub(super) fn check_driver_info(
    call: &ApiCall<'_>,
    old: &JsonObject,
    node: &Node,
) -> Result<(), ApiFault> {
    let Some(hardware) = drivers::enabled(call, &node.driver) else {
        return Ok(());
    };
    let new = node
        .driver_info
        .keys()
        .filter(|key| !old.contains_key(*key));
    for key in new {
        if let Some(meant) = trivet_drivers::suggested_key(hardware, key) {
            return Err(ApiFault::bad(format!(
                "driver_info: hardware type {} has no key \"{}\"; did you mean \"{meant}\"? A key \
                 of your own must differ from it by more than two characters.",
                hardware.name,
                key.escape_debug()
            )));
        }
    }
    Ok(())
}

fn check_unique(call: &ApiCall<'_>, node: &Node) -> Result<(), ApiFault> {
    if let Some(name) = &node.name
        && call.view.names.get(name).is_some_and(|id| *id != node.id)
    {
        return Err(ApiFault::conflict(format!(
            "A node with name {name} already exists."
        )));
    }
    let Some(instance) = &node.instance_uuid else {
        return Ok(());
    };
    match call.view.instances.get(instance) {
        Some(owner) if *owner != node.id => Err(ApiFault::conflict(format!(
            "Instance {instance} is already associated with a node, it cannot be associated with \
             this other node {}",
            node.id
        ))),
        _ => Ok(()),
    }
}

pub(super) fn check_size(node: &Node) -> Result<(), ApiFault> {
    let mut bytes = 0;
    let objects = [
        &node.driver_info,
        &node.properties,
        &node.instance_info,
        &node.extra,
        &node.attributes.to_object(),
    ];
    for object in objects {
        let value = Value::Object(object.clone());
        if depth(&value) > DEPTH_MAX {
            return Err(ApiFault::bad(format!(
                "A node's fields nest at most {DEPTH_MAX} levels."
            )));
        }
        bytes += value.to_string().len();
    }
    if bytes > NODE_BYTES_MAX {
        return Err(ApiFault::bad(format!(
            "The node is too large for its record: driver_info, properties, instance_info, extra \
             and its other fields have {bytes} bytes of JSON together, and the limit is \
             {NODE_BYTES_MAX}. Put long data elsewhere and a URL here."
        )));
    }
    Ok(())
}
