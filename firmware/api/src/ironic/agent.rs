//! Requests of agents: lookup, heartbeat, inspection data.
//!
//! These requests have no credentials. The node's state machine compares tokens; this module
//! validates the form of a request, per version, and never reveals to an unauthenticated client
//! whether a node exists.

use serde_json::{Value, json};
use trivet_model::node::JsonObject;
use trivet_model::order::{AgentHeartbeat, LookupResult};
use trivet_model::{MacAddr, NodeId, OrderRefusal, PortId, RackOrder, RackView};

use crate::table::access::Access;
use crate::table::call::{ApiCall, empty, order};
use crate::table::error::ApiFault;
use crate::table::field::{self, ValueShape};
use crate::table::query::Query;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg, required};
use crate::table::{body, path_forms};
use crate::{ApiOutcome, Request, Response, ResponsePlan};

/// Most hardware addresses in a lookup. Ours.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// Longest text in a heartbeat, in bytes; the agent's certificate is the longest. Ours.
pub(crate) const HEARTBEAT_TEXT_BYTES_MAX: usize = 16 * 1024;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "lookup"],
        22,
        "Look up the node of an agent",
        lookup,
    )
    .query_args(&[&[
        arg("addresses", 22, ValueShape::Text),
        arg("node_uuid", 22, ValueShape::Uuid),
    ]])
    .for_(Access::Agent),
    ApiRoute::new(
        "POST",
        &["v1", "heartbeat", "{node}"],
        22,
        "Heartbeat of an agent",
        heartbeat,
    )
    .body(BodySchema::Args(&HEARTBEAT_ARGS))
    .response(ResponseSchema::Empty(202))
    .for_(Access::Agent),
    ApiRoute::new(
        "POST",
        &["v1", "continue_inspection"],
        1,
        "Receive inspection data from an agent",
        continue_inspection,
    )
    .query_args(&[&[arg("node_uuid", 1, ValueShape::Uuid)]])
    .body(BodySchema::Any)
    .response(ResponseSchema::Any(202))
    .for_(Access::Agent),
];

/// The keys of a heartbeat, and the version of each.
const HEARTBEAT_ARGS: [ApiArg; 6] = [
    required("callback_url", 22, ValueShape::Text),
    arg("agent_version", 36, ValueShape::Text),
    arg("agent_token", 62, ValueShape::Text),
    arg("agent_verify_ca", 68, ValueShape::Text),
    arg(
        "agent_status",
        72,
        ValueShape::Word(&["start", "end", "error"]),
    ),
    arg("agent_status_message", 72, ValueShape::Text),
];

/// The agent request that this is, and the node that it names by UUID, name or hardware address,
/// whether or not the request is valid; `None` if the path is not for agents.
pub fn agent_call(
    request: &Request<'_>,
    view: &RackView,
) -> Option<(&'static str, Option<NodeId>)> {
    let segments = path_forms::segments(request.path).ok()?;
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let named = |ident: &str| view.node(ident).map(|view| view.node.id);
    match (request.method, &words[..]) {
        ("GET", ["v1", "lookup"]) => Some(("lookup", lookup_node(request.query, view))),
        ("POST", ["v1", "drivers" | "nodes", _, "vendor_passthru", "lookup"]) => {
            Some(("lookup", None))
        }
        (
            "POST",
            ["v1", "heartbeat", ident] | ["v1", "nodes", ident, "vendor_passthru", "heartbeat"],
        ) => Some(("heartbeat", named(ident))),
        ("POST", ["trivet", "enrol"]) => Some(("enrolment", None)),
        ("POST", ["v1", "continue_inspection" | "continue"]) => Some(("inspection data", None)),
        _ => None,
    }
}

/// The node that the path of a request names, whether or not the request is valid.
pub fn node_of_path(path: &str, view: &RackView) -> Option<NodeId> {
    let segments = path_forms::segments(path).ok()?;
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    match &words[..] {
        ["v1" | "trivet", "nodes", ident, ..] => view.node(ident).map(|view| view.node.id),
        ["v1", "ports", ident, ..] => {
            let id: PortId = ident.parse().ok()?;
            view.ports.get(&id).map(|port| port.node)
        }
        _ => None,
    }
}

/// The only node that the query of a lookup names.
fn lookup_node(query: &str, view: &RackView) -> Option<NodeId> {
    let query = Query::parse(query).ok()?;
    if let Some(node) = query.last("node_uuid").and_then(|text| view.node(text)) {
        return Some(node.node.id);
    }
    let addresses = query.all("addresses").flat_map(|list| list.split(','));
    let mut owners = addresses.take(ADDRESSES_MAX).filter_map(|text| {
        let port = view.macs.get(&text.trim().parse::<MacAddr>().ok()?)?;
        view.ports.get(port).map(|port| port.node)
    });
    let first = owners.next()?;
    owners.all(|owner| owner == first).then_some(first)
}

/// `GET /v1/lookup`.
pub(crate) fn lookup(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let node = match call.query.last("node_uuid") {
        None | Some("") => None,
        Some(text) => Some(
            text.parse::<NodeId>()
                .map_err(|_| field::expected_uuid("node_uuid", text))?,
        ),
    };
    // Agents send every address of their machine; other kinds of addresses (InfiniBand) are
    // skipped.
    let mut addresses: Vec<MacAddr> = call
        .query
        .all("addresses")
        .flat_map(|list| list.split(','))
        .filter_map(|text| text.trim().parse().ok())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.len() > ADDRESSES_MAX {
        return Err(ApiFault::bad(format!("At most {ADDRESSES_MAX} addresses.")));
    }
    if node.is_none() && addresses.is_empty() {
        return Err(ApiFault::bad(
            "Either node_uuid or addresses must name a node.",
        ));
    }
    order(RackOrder::Lookup { addresses, node }, ResponsePlan::Lookup)
}

/// The response to a lookup. No other response contains the token.
pub(crate) fn found(call: &ApiCall<'_>, found: &LookupResult) -> Response {
    let mut config = json!({
        "heartbeat_timeout": found.heartbeat_timeout_s,
        "agent_token": found.agent_token,
        "agent_token_required": true,
    });
    // A file system image has no boot loader on the disk yet. Agents from version 13 on install
    // none from it, UEFI or not, unless this setting requests it.
    if found
        .instance_info
        .get("image_type")
        .and_then(Value::as_str)
        == Some("partition")
    {
        config["enable_bios_bootloader_install"] = true.into();
    }
    Response::json(
        200,
        &json!({
            "node": {
                "uuid": found.node.to_string(),
                "properties": found.properties,
                "instance_info": found.instance_info,
                "driver_internal_info": found.driver_internal_info,
                "links": call.links(&format!("nodes/{}", found.node)),
            },
            "config": config,
        }),
    )
}

/// `POST /v1/heartbeat/<ident>`.
pub(crate) fn heartbeat(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let node = call.node(call.last()).map(|view| view.node.id);
    let object = body::object(call)?;
    body::only(&object, &HEARTBEAT_ARGS.map(|arg| arg.name))?;
    for arg in HEARTBEAT_ARGS {
        if object.contains_key(arg.name) && !call.has(arg.since) {
            return Err(ApiFault::bad(format!(
                "{} needs API version 1.{} or newer.",
                arg.name, arg.since
            )));
        }
    }
    let text = |key: &str| bounded(&object, key);
    let callback_url = text("callback_url")?.ok_or_else(|| {
        ApiFault::bad("Missing mandatory parameter: callback_url: the address of the agent.")
    })?;
    check_callback(&callback_url, call.facts.agent_http_allowed)?;
    if let Some(status) = text("agent_status")?
        && !["start", "end", "error"].contains(&status.as_str())
    {
        return Err(ApiFault::bad("agent_status must be start, end or error."));
    }
    text("agent_status_message")?;
    let heartbeat = AgentHeartbeat {
        callback_url,
        agent_token: text("agent_token")?,
        agent_version: text("agent_version")?,
        agent_verify_ca: text("agent_verify_ca")?,
        callback_refused: None,
    };
    if heartbeat.agent_token.is_none() {
        return Err(ApiFault::bad("agent_token is required for heartbeats."));
    }
    if heartbeat.agent_version.is_none() {
        return Err(ApiFault::bad(
            "agent_version is required: use a newer agent.",
        ));
    }
    // The same response as for a wrong token, so that it does not reveal which nodes exist.
    let node = node.map_err(|_| ApiFault::bad(OrderRefusal::of_heartbeat().sentence))?;
    order(RackOrder::Heartbeat { node, heartbeat }, empty(202, None))
}

fn bounded(object: &JsonObject, key: &str) -> Result<Option<String>, ApiFault> {
    let text = body::text(object, key)?;
    match text {
        Some(text) if text.len() > HEARTBEAT_TEXT_BYTES_MAX => Err(ApiFault::bad(format!(
            "{key} has more than {HEARTBEAT_TEXT_BYTES_MAX} bytes."
        ))),
        other => Ok(other.map(str::to_owned)),
    }
}

/// Whether this is a valid URL of an agent; plain HTTP only if that is allowed.
pub(crate) fn check_callback(url: &str, http_allowed: bool) -> Result<(), ApiFault> {
    let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => {
            return Err(ApiFault::bad(
                "callback_url must be an https:// or http:// address.",
            ));
        }
    };
    let authority = rest.split('/').next().unwrap_or("");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if authority.is_empty() || !authority.bytes().all(plain) || !url.is_ascii() {
        return Err(ApiFault::bad("callback_url does not name a host."));
    }
    if authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse() == Ok(0_u16))
    {
        return Err(ApiFault::bad(
            "callback_url has port 0, which is not valid.",
        ));
    }
    if !tls && !http_allowed {
        return Err(ApiFault::bad(
            "callback_url must be https: agents have to use TLS, unless the box's settings have \
             agent.plain_http = true.",
        ));
    }
    Ok(())
}

/// `POST /v1/continue_inspection`. Agents send no version header here, which means the oldest
/// version; versions between that and 1.84 did not have it.
pub(crate) fn continue_inspection(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    if call.version != crate::VERSION_MIN && !call.has(84) {
        return Err(ApiFault::no_path());
    }
    let document = body::object(call)?;
    check_inventory(&document)?;
    let document = Value::Object(document);
    if body::depth(&document) > body::DEPTH_MAX {
        return Err(ApiFault::bad("The inventory is nested too deeply."));
    }
    order(RackOrder::Inventory { document }, ResponsePlan::Inspected)
}

fn check_inventory(document: &JsonObject) -> Result<(), ApiFault> {
    let inventory = document.get("inventory").and_then(Value::as_object);
    let inventory = inventory.ok_or_else(|| match document.get("inventory") {
        None => ApiFault::bad("Schema error for data: 'inventory' is a required property"),
        Some(other) => ApiFault::bad(format!(
            "Schema error for data: {} is not of type 'object': inventory must be an object.",
            field::masked(other)
        )),
    })?;
    if !inventory.contains_key("interfaces") {
        return Err(ApiFault::bad(
            "Schema error for data: 'interfaces' is a required property of inventory",
        ));
    }
    let interfaces = inventory.get("interfaces").and_then(Value::as_array);
    if interfaces.is_some_and(Vec::is_empty) {
        return Err(ApiFault::bad(
            "Schema error for data: [] should be non-empty: inventory.interfaces lists at least \
             one interface.",
        ));
    }
    // Some interfaces have no address, but at least one must have one.
    let named = |interface: &Value| {
        let address = interface.get("mac_address");
        address.is_some_and(Value::is_string)
    };
    if !interfaces.is_some_and(|list| list.iter().any(named)) {
        return Err(ApiFault::bad(
            "inventory.interfaces must list interfaces, at least one with its mac_address.",
        ));
    }
    body::text(inventory, "bmc_address")?;
    body::text(inventory, "bmc_v6address")?;
    Ok(())
}

/// The response to inspection data.
pub(crate) fn inspected(node: NodeId) -> Response {
    Response::json(202, &json!({ "uuid": node.to_string() }))
}

#[cfg(test)]
mod tests;
