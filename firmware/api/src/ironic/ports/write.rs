//! Creating and changing ports.

use serde_json::Value;
use trivet_model::attributes::PortAttributes;
use trivet_model::node::{JsonObject, RESERVED};
use trivet_model::{MacAddr, NodeId, Port, PortId, ProvisionState, RackOrder, ResourceKind};

use super::fields::FIELDS;
use super::{link, node_is_free};
use crate::table::body::{self, DEPTH_MAX, depth};
use crate::table::call::{ApiCall, order};
use crate::table::error::ApiFault;
use crate::table::field;
use crate::table::patch::{self, PatchOp};
use crate::{ApiOutcome, ResponsePlan};

/// Largest sum of a port's free-form objects, in bytes of JSON. Ours.
pub(crate) const PORT_BYTES_MAX: usize = 16 * 1024;

/// Longest name of a vendor in characters, as in Ironic.
const VENDOR_CHARS_MAX: usize = 32;

/// `POST /v1/ports`.
pub(crate) fn create(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let mut document = body::object(call)?;
    for (name, _) in document.iter().filter(|(_, value)| value.is_null()) {
        refuse_null(name)?;
    }
    let given: Vec<String> = document.keys().cloned().collect();
    document.retain(|_, value| !value.is_null());
    let node = owner(call, &mut document)?;
    let of_owner = ["node_uuid", "node_ident"];
    for name in given
        .iter()
        .filter(|name| !of_owner.contains(&name.as_str()))
    {
        let Some(row) = FIELDS
            .iter()
            .find(|row| row.name == name && row.at_creation())
        else {
            return Err(ApiFault::bad(format!(
                "Schema error for port: Additional properties are not allowed ('{}' was \
                 unexpected)",
                name.escape_debug()
            )));
        };
        if !call.has(row.since) {
            return Err(ApiFault::too_new(row.name, row.since));
        }
    }
    if !document.contains_key("address") {
        return Err(ApiFault::bad(
            "Schema error for port: 'address' is a required property",
        ));
    }
    let mut port = Port {
        id: PortId(call.new_id()),
        revision: 0,
        serial: 0,
        node,
        address: MacAddr([0; 6]),
        pxe_enabled: true,
        extra: JsonObject::new(),
        attributes: PortAttributes::default(),
        created_at: call.now,
        updated_at: None,
    };
    read(document, &mut port)?;
    if call.view.ports.contains_key(&port.id) {
        return Err(ApiFault::conflict(format!(
            "A port with UUID {} already exists.",
            port.id
        )));
    }
    check(call, None, &port)?;
    let id = port.id;
    order(
        RackOrder::CreatePort(Box::new(port)),
        ResponsePlan::Port { id, created: true },
    )
}

/// Fields that cannot be null.
fn refuse_null(name: &str) -> Result<(), ApiFault> {
    let kind = match name {
        "address" => "string",
        "available_for_dynamic_portgroup" => "boolean",
        _ => return Ok(()),
    };
    Err(ApiFault::bad(format!(
        "Schema error for port: None is not of type '{kind}': {name} is left out instead."
    )))
}

/// The node of a new port: by UUID, from 1.94 on also by name.
fn owner(call: &ApiCall<'_>, document: &mut JsonObject) -> Result<NodeId, ApiFault> {
    let ident = document.remove("node_ident");
    if ident.is_some() && !call.has(94) {
        return Err(ApiFault::too_new("node_ident", 94));
    }
    let uuid = document.remove("node_uuid");
    let named = match (uuid, ident) {
        (Some(_), Some(_)) => {
            return Err(ApiFault::bad("Give node_uuid or node_ident, not both."));
        }
        (Some(Value::String(uuid)), None) => {
            if uuid.parse::<NodeId>().is_err() {
                return Err(field::expected_uuid("node_uuid", &uuid));
            }
            uuid
        }
        (None, Some(Value::String(ident))) => ident,
        (None, None) => {
            return Err(ApiFault::bad(
                "Schema error for port: None is not of type 'string': the port is not valid under \
                 any of the given schemas: 'node_uuid' is a required property",
            ));
        }
        (Some(other), None) | (None, Some(other)) => {
            return Err(ApiFault::bad(format!(
                "Schema error for port: {} is not of type 'string': node_uuid must be a UUID.",
                field::quoted(&other)
            )));
        }
    };
    node_named(call, &named)
}

/// An unknown node in a body is 400, not 404.
fn node_named(call: &ApiCall<'_>, ident: &str) -> Result<NodeId, ApiFault> {
    let view = call.view.node(ident).ok_or_else(|| {
        let ident = ident.escape_debug();
        ApiFault::bad(format!("Node {ident} could not be found."))
    })?;
    Ok(view.node.id)
}

/// `PATCH /v1/ports/<uuid>`.
pub(crate) fn update(call: &ApiCall<'_>, old: &Port) -> Result<ApiOutcome, ApiFault> {
    let changes = patch::parse(call.body, call.has(98))?;
    for change in &changes {
        let root = change.root();
        let row = field::named(FIELDS, root, call)?;
        if !row.in_patch() {
            return Err(field::not_in_patch(FIELDS, root, call));
        }
        if change.op != PatchOp::Remove && change.value().is_null() {
            refuse_null(root)?;
        }
        let removed = change.op == PatchOp::Remove && change.is_whole();
        if removed && ["address", "node_uuid"].contains(&root) {
            return Err(ApiFault::bad(format!(
                "Schema error for patch: '{root}' is a required property: '/{root}' is mandatory \
                 and can not be removed"
            )));
        }
    }
    if changes.is_empty() {
        return Ok(ApiOutcome::Reply(super::whole(call, old, false)));
    }
    node_is_free(call, old.node)?;
    let mut document = Value::Object(
        FIELDS
            .iter()
            .filter(|row| row.in_patch())
            .map(|row| (row.name.to_owned(), row.show(old, call)))
            .collect(),
    );
    patch::apply(&mut document, &changes)?;
    let mut port = old.clone();
    if let Value::Object(mut document) = document {
        document.retain(|name, _| changes.iter().any(|change| change.root() == name));
        if let Some(node) = document.remove("node_uuid") {
            let named = node
                .as_str()
                .ok_or_else(|| ApiFault::bad("node_uuid must be a UUID."))?;
            port.node = node_named(call, named)?;
        }
        read(document, &mut port)?;
    }
    let touches = |name: &str| changes.iter().any(|change| change.root() == name);
    if call.has(102)
        && touches("physical_network")
        && !touches("portgroup_uuid")
        && port.attributes.portgroup_uuid.is_some()
    {
        return Err(ApiFault::bad(
            "physical_network cannot be changed while the port belongs to a portgroup. Change that \
             of the portgroup.",
        ));
    }
    check(call, Some(old), &port)?;
    check_moment(call, old, &port)?;
    let id = port.id;
    order(
        RackOrder::ReplacePort {
            port: Box::new(port),
            based_on: old.revision,
        },
        ResponsePlan::Port { id, created: false },
    )
}

fn read(document: JsonObject, port: &mut Port) -> Result<(), ApiFault> {
    for (name, value) in document {
        let Some(row) = FIELDS.iter().find(|row| row.name == name) else {
            continue;
        };
        let value = match (row.name, field::read(row.name, row.shape, value.clone())) {
            // What is not a UUID is a portgroup that does not exist.
            ("portgroup_uuid", Err(_)) => {
                let shown = field::quoted(&value);
                let kind = match value {
                    Value::String(_) => String::new(),
                    _ => format!(" {shown} is not of type 'string', 'null'."),
                };
                return Err(ApiFault::bad(format!(
                    "Portgroup {shown} could not be found. Expected UUID for portgroup_uuid: \
                     {shown}.{kind}"
                )));
            }
            (_, value) => value?,
        };
        if row.name == "vendor"
            && let Some(vendor) = value.as_str()
            && field::is_longer(vendor, VENDOR_CHARS_MAX)
        {
            return Err(field::too_long("vendor", vendor, VENDOR_CHARS_MAX));
        }
        match row.name {
            "uuid" => {
                if let Some(id) = value.as_str().and_then(|text| text.parse().ok()) {
                    port.id = id;
                }
            }
            "address" => {
                let text = value.as_str().unwrap_or("");
                port.address = mac(text)?;
            }
            "pxe_enabled" => port.pxe_enabled = value.as_bool().unwrap_or(true),
            "extra" => {
                port.extra = match value {
                    Value::Object(object) => object,
                    _ => JsonObject::new(),
                }
            }
            name => {
                let default = match name {
                    "available_for_dynamic_portgroup" => value != Value::Bool(false),
                    _ => matches!(value, Value::Null | Value::Bool(false)),
                };
                let value = (!default).then_some(value);
                let set = port.attributes.set(name, value);
                set.map_err(|_| ApiFault::bad(format!("{name} has an invalid value.")))?;
            }
        }
    }
    Ok(())
}

/// A hardware address with colons. Ironic refuses one with hyphens.
pub(crate) fn mac(text: &str) -> Result<MacAddr, ApiFault> {
    let address = text.parse().ok().filter(|_| !text.contains('-'));
    address.ok_or_else(|| {
        let text = text.escape_debug();
        ApiFault::bad(format!("Expected valid MAC address for address: {text}"))
    })
}

fn check(call: &ApiCall<'_>, old: Option<&Port>, port: &Port) -> Result<(), ApiFault> {
    node_is_free(call, port.node)?;
    if let Some(other) = call.view.port_by_mac(port.address)
        && other.id != port.id
    {
        let node = call.view.nodes.get(&other.node);
        let node = node.map_or_else(String::new, |view| view.node.name_and_uuid());
        return Err(ApiFault::conflict(format!(
            "A port with MAC address {} already exists. It belongs to node {node}.",
            port.address
        )));
    }
    check_group(call, port)?;
    check_reserved(call, port)?;
    if let Some(name) = port.name() {
        check_name(name)?;
        let other = call.view.port_names.get(name);
        if other.is_some_and(|other| *other != port.id) {
            return Err(ApiFault::conflict(format!(
                "A port with name {name} already exists."
            )));
        }
    }
    let before = old.map(|old| &old.attributes.local_link_connection);
    if before != Some(&port.attributes.local_link_connection)
        || old.map(link::is_smartnic) != Some(link::is_smartnic(port))
    {
        link::check(call, port)?;
    }
    link::check_network(call, old, port)?;
    check_size(port)
}

/// Fields of a port that say how its machine is connected.
const CONNECTIVITY: [&str; 4] = [
    "pxe_enabled",
    "local_link_connection",
    "physical_network",
    "portgroup_uuid",
];

/// The address of a port in use and the connections of a machine that can be deployed change in
/// maintenance only, as in Ironic.
fn check_moment(call: &ApiCall<'_>, old: &Port, port: &Port) -> Result<(), ApiFault> {
    use ProvisionState as S;
    let Some(view) = call.view.nodes.get(&port.node) else {
        return Ok(());
    };
    let (id, node, state) = (port.id, &view.node, view.node.provision_state);
    if node.maintenance {
        return Ok(());
    }
    let in_use = state == S::Active || node.instance_uuid.is_some();
    if in_use && old.address != port.address {
        return Err(ApiFault::conflict(format!(
            "Cannot update hardware address for port {id} as node {} is active or has instance \
             UUID assigned. Set the node to maintenance first.",
            node.id
        )));
    }
    let differs = |name: &str| {
        let field = |port: &Port| match name {
            "pxe_enabled" => Some(Value::Bool(port.pxe_enabled)),
            name => port.attributes.get(name),
        };
        field(old) != field(port)
    };
    let free = matches!(
        state,
        S::Enroll | S::Inspecting | S::InspectWait | S::Manageable
    );
    if free || !CONNECTIVITY.into_iter().any(differs) {
        return Ok(());
    }
    Err(ApiFault::conflict(format!(
        "Port {id} can not have any connectivity attributes ({}) updated unless node {} is in a \
         enroll, inspecting, inspect wait, manageable state or in maintenance mode. The current \
         state is {state}.",
        CONNECTIVITY.join(", "),
        node.id
    )))
}

/// The reserved address of a port must be an IPv4 address, and no other port can have it.
fn check_reserved(call: &ApiCall<'_>, port: &Port) -> Result<(), ApiFault> {
    if port.has_invalid_reservation() {
        return Err(ApiFault::bad(format!(
            "extra/{RESERVED} must be an IPv4 address such as \"192.0.2.7\"."
        )));
    }
    let Some(address) = port.reserved() else {
        return Ok(());
    };
    match call.view.reserved.get(&address) {
        Some(other) if *other != port.id => Err(ApiFault::conflict(format!(
            "Port {other} has extra/{RESERVED} {address} already; give each port its own."
        ))),
        _ => Ok(()),
    }
}

/// A port's portgroup must belong to the same node.
fn check_group(call: &ApiCall<'_>, port: &Port) -> Result<(), ApiFault> {
    let Some(group) = port.attributes.portgroup_uuid else {
        return Ok(());
    };
    let found = call.view.resources.get(&(ResourceKind::PortGroup, group));
    match found.map(|found| found.node) {
        Some(node) if node == Some(port.node) => Ok(()),
        Some(_) => Err(ApiFault::bad(format!(
            "Port {} and portgroup {group} belong to different nodes.",
            port.id
        ))),
        None => Err(ApiFault::bad(format!(
            "Portgroup {group} could not be found."
        ))),
    }
}

/// A port can have any name, as in Ironic; it is found by one that can be part of a path.
fn check_name(name: &str) -> Result<(), ApiFault> {
    if !name.is_empty() && name.parse::<PortId>().is_err() {
        return Ok(());
    }
    let name = name.escape_debug();
    Err(ApiFault::bad(format!(
        "Expected a logical name but received {name}."
    )))
}

fn check_size(port: &Port) -> Result<(), ApiFault> {
    let mut bytes = 0;
    for object in [&port.extra, &port.attributes.to_object()] {
        let value = Value::Object(object.clone());
        if depth(&value) > DEPTH_MAX {
            return Err(ApiFault::bad(format!(
                "A port's fields nest at most {DEPTH_MAX} levels."
            )));
        }
        bytes += value.to_string().len();
    }
    if bytes > PORT_BYTES_MAX {
        return Err(ApiFault::bad(format!(
            "A port's fields have at most {PORT_BYTES_MAX} bytes together."
        )));
    }
    Ok(())
}
