//! Checks of what a port says about the switch at the other end, and about its physical network.

use serde_json::Value;
use trivet_model::{Port, PortId};

use super::{MacAddr, ResourceKind};
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field;

/// Longest physical network in characters, as in Ironic.
const PHYSICAL_NETWORK_CHARS_MAX: usize = 64;

/// Bytes of an OpenFlow datapath identifier, the other form of a `switch_id`.
const DATAPATH_BYTES: usize = 8;

/// The keys of `local_link_connection`, with the first and the last version of each.
const LINK_KEYS: [(&str, u16, u16); 7] = [
    ("port_id", 19, u16::MAX),
    ("switch_id", 19, u16::MAX),
    ("switch_info", 19, u16::MAX),
    ("hostname", 53, u16::MAX),
    ("network_type", 64, u16::MAX),
    ("vtep-logical-switch", 90, 104),
    ("vtep-physical-switch", 90, 104),
];

/// The keys that a link has together: a switch, a smart NIC, or an overlay.
const LINK_KINDS: [&[&str]; 3] = [
    &["port_id", "switch_id"],
    &["port_id", "hostname"],
    &["port_id", "vtep-logical-switch", "vtep-physical-switch"],
];

/// Whether it is a port of a smart NIC.
pub(super) fn is_smartnic(port: &Port) -> bool {
    port.attributes.extra_fields.get("is_smartnic") == Some(&Value::Bool(true))
}

fn physical_network(port: &Port) -> Option<&str> {
    let name = port.attributes.extra_fields.get("physical_network");
    name.and_then(Value::as_str)
}

/// Refuses keys that the version does not have, incomplete links, and a `switch_id` that is neither
/// a MAC address nor a datapath identifier.
pub(super) fn check(call: &ApiCall<'_>, port: &Port) -> Result<(), ApiFault> {
    let link = &port.attributes.local_link_connection;
    for (key, value) in link {
        let row = LINK_KEYS.iter().find(|(name, _, _)| name == key);
        let Some((name, since, until)) = row else {
            let key = key.escape_debug();
            return Err(invalid(
                port,
                &format!("Additional properties are not allowed ('{key}' was unexpected)"),
            ));
        };
        if !call.has(*since) || call.version.0 > *until {
            return Err(ApiFault::not_acceptable(format!(
                "Request not acceptable. local_link_connection/{name} is not of API version {}.",
                call.version
            )));
        }
        if !value.is_string() {
            return Err(invalid(
                port,
                &format!(
                    "{} is not of type 'string': {name} must be a string.",
                    field::quoted(value)
                ),
            ));
        }
    }
    let network_type = link.get("network_type").and_then(Value::as_str);
    let has = |keys: &&[&str]| keys.iter().all(|key| link.contains_key(*key));
    if !link.is_empty() && network_type != Some("unmanaged") && !LINK_KINDS.iter().any(&has) {
        let missing = if link.contains_key("port_id") {
            "switch_id"
        } else {
            "port_id"
        };
        return Err(invalid(
            port,
            &format!("'{missing}' is a required property"),
        ));
    }
    if is_smartnic(port) && !link.is_empty() && !has(&LINK_KINDS[1]) {
        return Err(invalid(
            port,
            "'hostname' is a required property: a smart NIC has port_id and hostname.",
        ));
    }
    match link.get("switch_id").and_then(Value::as_str) {
        Some(switch) if switch.parse::<MacAddr>().is_err() && !is_datapath(switch) => {
            let switch = switch.escape_debug();
            Err(ApiFault::bad(format!(
                "Expected a MAC address or OpenFlow datapath ID but received {switch}."
            )))
        }
        _ => Ok(()),
    }
}

fn invalid(port: &Port, why: &str) -> ApiFault {
    let link = port.attributes.local_link_connection.clone();
    ApiFault::bad(format!(
        "Schema error for local_link_connection: {} is not valid under any of the given schemas. \
         Possible root cause: {why}",
        field::quoted(&link.into())
    ))
}

fn is_datapath(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let byte = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.len() == DATAPATH_BYTES && parts.iter().all(byte)
}

/// Refuses a port whose physical network is not that of its portgroup.
pub(super) fn check_network(
    call: &ApiCall<'_>,
    old: Option<&Port>,
    port: &Port,
) -> Result<(), ApiFault> {
    let network = physical_network(port);
    if let Some(name) = network.filter(|name| field::is_longer(name, PHYSICAL_NETWORK_CHARS_MAX)) {
        return Err(field::too_long(
            "physical_network",
            name,
            PHYSICAL_NETWORK_CHARS_MAX,
        ));
    }
    if network == Some("") {
        return Err(ApiFault::bad(
            "A non-empty value is required when setting physical_network. Leave it out instead.",
        ));
    }
    let Some(group) = port.attributes.portgroup_uuid else {
        return Ok(());
    };
    let before = old.map(|old| (old.attributes.portgroup_uuid, physical_network(old)));
    if before == Some((Some(group), network)) {
        return Ok(());
    }
    let others = call.view.nodes.get(&port.node);
    let others = others.map(|view| view.ports.as_slice()).unwrap_or_default();
    let member = |id: &PortId| {
        let other = call.view.ports.get(id)?;
        let is_member = *id != port.id && other.attributes.portgroup_uuid == Some(group);
        is_member.then(|| physical_network(other).map(str::to_owned))?
    };
    let of_group = || {
        let record = call.view.resources.get(&(ResourceKind::PortGroup, group))?;
        record.text("physical_network").map(str::to_owned)
    };
    match others.iter().find_map(member).or_else(of_group) {
        Some(wanted) if Some(wanted.as_str()) != network => Err(ApiFault::conflict(format!(
            "Port with physical network {} cannot become a member of port group {group} which \
             has ports in physical network {wanted}.",
            network.unwrap_or("None").escape_debug()
        ))),
        _ => Ok(()),
    }
}
