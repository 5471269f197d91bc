//! What agents call: lookup, heartbeat, inspection data.
//!
//! Nobody is authenticated here. The machine compares tokens; this room checks
//! the form of what came, per version, and never tells a stranger whether a
//! node exists.

use serde_json::{Value, json};
use trivet_model::node::JsonObject;
use trivet_model::order::{AgentHeartbeat, LookupResult};
use trivet_model::{MacAddr, NodeId, OrderRefusal, RackOrder, RackView};

use crate::access::Access;
use crate::call::{ApiCall, empty, order};
use crate::error::ApiFault;
use crate::field::ValueShape;
use crate::query::Query;
use crate::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg, required};
use crate::{ApiOutcome, Request, Response, ResponsePlan, body, percent};

/// Most hardware addresses an agent may name. Ours.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// Longest text in a heartbeat; the agent's certificate is the longest. Ours.
pub(crate) const HEARTBEAT_TEXT_BYTES_MAX: usize = 16 * 1024;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "lookup"],
        22,
        "An agent asks which node it is",
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
        "An agent is alive",
        heartbeat,
    )
    .body(BodySchema::Args(&HEARTBEAT_ARGS))
    .response(ResponseSchema::Empty(202))
    .for_(Access::Agent),
    ApiRoute::new(
        "POST",
        &["v1", "continue_inspection"],
        1,
        "An agent sends what it found",
        continue_inspection,
    )
    .query_args(&[&[arg("node_uuid", 1, ValueShape::Uuid)]])
    .body(BodySchema::Any)
    .response(ResponseSchema::Any(202))
    .for_(Access::Agent),
];

/// A heartbeat, and since when it holds what.
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

/// What an agent asks for with this request, and which node it names by UUID, name or hardware
/// address, whether or not the request is right; none where agents do not call.
pub fn agent_call(
    request: &Request<'_>,
    view: &RackView,
) -> Option<(&'static str, Option<NodeId>)> {
    let segments = percent::segments(request.path).ok()?;
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
        ("POST", ["v1", "continue_inspection" | "continue"]) => Some(("inspection data", None)),
        _ => None,
    }
}

/// The one node that the query of a lookup names.
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
        Some(text) => Some(text.parse::<NodeId>().map_err(|_| {
            ApiFault::bad(format!(
                "Expected a UUID but received {}.",
                text.escape_debug()
            ))
        })?),
    };
    // Agents send whatever their machine calls an address; what is none of
    // ours (InfiniBand) does not spoil the others.
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

/// The answer to a lookup. This is the one place where the token is shown.
pub(crate) fn found(call: &ApiCall<'_>, found: &LookupResult) -> Response {
    let mut config = json!({
        "heartbeat_timeout": found.heartbeat_timeout_s,
        "agent_token": found.agent_token,
        "agent_token_required": true,
    });
    // A file system has no loader on the disk yet. Agents from 13 on take none out of it,
    // UEFI or not, unless they are told to.
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
    let callback_url = text("callback_url")?.unwrap_or_default();
    check_callback(&callback_url, call.facts.agent_http_allowed)?;
    if let Some(status) = text("agent_status")?
        && !["start", "end", "error"].contains(&status.as_str())
    {
        return Err(ApiFault::bad("agent_status must be start, end or error."));
    }
    text("agent_status_message")?;
    let beat = AgentHeartbeat {
        callback_url,
        agent_token: text("agent_token")?,
        agent_version: text("agent_version")?,
        agent_verify_ca: text("agent_verify_ca")?,
        callback_refused: None,
    };
    if beat.agent_token.is_none() {
        return Err(ApiFault::bad("agent_token is required for heartbeats."));
    }
    if beat.agent_version.is_none() {
        return Err(ApiFault::bad(
            "agent_version is required: use a newer agent.",
        ));
    }
    // What is answered to a wrong token, so that nobody learns which nodes there are.
    let node = node.map_err(|_| ApiFault::bad(OrderRefusal::of_heartbeat().sentence))?;
    order(
        RackOrder::Heartbeat {
            node,
            heartbeat: beat,
        },
        empty(202, None),
    )
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

/// Whether an agent may be called back there, over plain HTTP only where that is
/// allowed.
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
            "callback_url names port 0, where nobody listens.",
        ));
    }
    if !tls && !http_allowed {
        return Err(ApiFault::bad(
            "callback_url must be https: agents have to use TLS, unless the box's settings say \
             agent.plain_http = true.",
        ));
    }
    Ok(())
}

/// `POST /v1/continue_inspection`. Agents send no version header here, which
/// means the oldest version; versions between that and 1.84 never had it.
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
    let inventory = inventory.ok_or_else(|| ApiFault::bad("inventory must be an object."))?;
    let interfaces = inventory.get("interfaces").and_then(Value::as_array);
    // Some interfaces have no address; a machine without any could not have sent this.
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

/// The answer to inspection data.
pub(crate) fn inspected(node: NodeId) -> Response {
    Response::json(202, &json!({ "uuid": node.to_string() }))
}

#[cfg(test)]
mod tests;
