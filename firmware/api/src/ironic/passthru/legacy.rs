//! Lookup and heartbeat of agents without token support (before version 2.0).
//!
//! They are not authenticated, so both are off unless the operator sets `agent_legacy_api` in a
//! node's `driver_info`, and work only for a node that is expected to boot its agent now. A refused
//! lookup gets the same 404 for every reason, and a heartbeat the same 400 as one with a wrong
//! token.

use serde_json::{Value, json};
use trivet_model::order::LookupResult;
use trivet_model::{MacAddr, NodeId, OrderRefusal, RackOrder};

use crate::ironic::agent::{ADDRESSES_MAX, HEARTBEAT_TEXT_BYTES_MAX, check_callback};
use crate::ironic::drivers;
use crate::table::access::Access;
use crate::table::body;
use crate::table::call::{ApiCall, empty, order};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiRoute, BodySchema, ResponseSchema, required};
use crate::{ApiOutcome, Response, ResponsePlan};

pub(super) const LOOKUP_DESCRIPTION: &str = "Lookup of an agent without token support. \
     Required arguments: 'version' (2) and 'inventory'.";

pub(super) const DRIVER_LOOKUP: ApiRoute = ApiRoute::new(
    "POST",
    &["v1", "drivers", "{driver}", "vendor_passthru", "lookup"],
    1,
    "Look up the node of an agent without token support",
    |call| {
        known_driver(call)?;
        lookup(call)
    },
)
.body(BodySchema::Any)
.response(ResponseSchema::Any(200))
.for_(Access::Agent);

/// The path in some documents of that time.
pub(super) const NODE_LOOKUP: ApiRoute = ApiRoute::new(
    "POST",
    &["v1", "nodes", "{node}", "vendor_passthru", "lookup"],
    1,
    "Look up the node of an agent without token support",
    lookup,
)
.body(BodySchema::Any)
.response(ResponseSchema::Any(200))
.for_(Access::Agent);

pub(super) const HEARTBEAT: ApiRoute = ApiRoute::new(
    "POST",
    &["v1", "nodes", "{node}", "vendor_passthru", "heartbeat"],
    1,
    "Heartbeat of an agent without token support",
    heartbeat,
)
.body(BodySchema::Args(&[required(
    "agent_url",
    1,
    ValueShape::Text,
)]))
.response(ResponseSchema::Empty(202))
.for_(Access::Agent);

/// Refuses a driver that is neither enabled nor an old name of a known one: agents are booted with
/// the old names, whatever the hardware type of their machine.
pub(super) fn known_driver(call: &ApiCall<'_>) -> Result<(), ApiFault> {
    let name = call.word(2);
    let enabled = drivers::enabled(call, name).is_some();
    let old = trivet_drivers::named(name).is_some_and(|hardware| hardware.name != name);
    if enabled || old {
        return Ok(());
    }
    Err(ApiFault::not_found(format!(
        "Could not find the following driver(s) or hardware type(s): {}.",
        name.escape_debug()
    )))
}

pub(super) fn lookup(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let object = body::object(call)?;
    match object.get("version") {
        Some(Value::String(text)) if text == "2" => {}
        Some(Value::Number(number)) if number.as_u64() == Some(2) => {}
        Some(other) => {
            let other = other.to_string().chars().take(40).collect::<String>();
            return Err(ApiFault::bad(format!(
                "Unknown lookup payload version: {other}"
            )));
        }
        None => return Err(ApiFault::bad("Missing parameter version")),
    }
    let interfaces = object
        .get("inventory")
        .and_then(|inventory| inventory.get("interfaces"))
        .and_then(Value::as_array);
    let interfaces = interfaces.ok_or_else(|| {
        ApiFault::bad("Malformed network interfaces lookup: inventory.interfaces must be a list.")
    })?;
    let mut addresses: Vec<MacAddr> = interfaces
        .iter()
        .filter_map(|interface| interface.get("mac_address")?.as_str()?.parse().ok())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.len() > ADDRESSES_MAX {
        return Err(ApiFault::bad(format!("At most {ADDRESSES_MAX} addresses.")));
    }
    let node = match body::text(&object, "node_uuid")? {
        None => None,
        Some(text) => {
            let id = text.parse::<NodeId>();
            Some(id.map_err(|_| ApiFault::bad("node_uuid must be a UUID."))?)
        }
    };
    if node.is_none() && addresses.is_empty() {
        return Err(ApiFault::bad(
            "No interface of the inventory has a MAC address.",
        ));
    }
    order(
        RackOrder::LegacyLookup { addresses, node },
        ResponsePlan::LegacyLookup,
    )
}

/// The response to such a lookup. It contains no secret.
pub(crate) fn found(call: &ApiCall<'_>, found: &LookupResult) -> Response {
    Response::json(
        200,
        &json!({
            "heartbeat_timeout": found.heartbeat_timeout_s,
            "node": {
                "uuid": found.node.to_string(),
                "properties": found.properties,
                "instance_info": found.instance_info,
                "driver_internal_info": found.driver_internal_info,
                "links": call.links(&format!("nodes/{}", found.node)),
            },
        }),
    )
}

pub(super) fn heartbeat(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let object = body::object(call)?;
    body::only(&object, &["agent_url"])?;
    let url = body::text(&object, "agent_url")?;
    let url = url.ok_or_else(|| {
        ApiFault::bad("For heartbeat operation, \"agent_url\" must be specified.")
    })?;
    if url.len() > HEARTBEAT_TEXT_BYTES_MAX {
        return Err(ApiFault::bad("agent_url is too long."));
    }
    // Agents of that time do not support TLS: an operator who accepts them accepts this too.
    check_callback(url, true)?;
    // The same response as for a wrong token, so that it does not reveal which nodes exist.
    let view = call.view.node(call.word(2));
    let view = view.filter(|view| view.node.allows_legacy_agent());
    let view = view.ok_or_else(|| ApiFault::bad(OrderRefusal::of_heartbeat().sentence))?;
    let (node, url) = (view.node.id, url.to_owned());
    order(RackOrder::LegacyHeartbeat { node, url }, empty(202, None))
}
