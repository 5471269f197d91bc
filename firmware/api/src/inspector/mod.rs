//! The inspector's API (ironic-inspector 12): another interface to inspections.
//!
//! It has its own listener and other response formats, but no records: an introspection is the
//! inspection of a node. Like the rest of this crate it is a pair of functions, [`handle`] and
//! [`finish`].

mod data;
mod status;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use trivet_model::interface::InspectInterface;
use trivet_model::order::VerbArgs;
use trivet_model::view::NodeView;
use trivet_model::{
    OrderOutcome, OrderRefusal, ProvisionState, RackOrder, RackView, RefusalKind, UnixMs, Verb,
};
use uuid::Uuid;

use crate::ironic::resources::rule;
use crate::table::access::Access;
use crate::table::call::{ApiCall, empty, order, reply};
use crate::table::error::ApiFault;
use crate::table::version::VERSION_MAX;
use crate::table::{body, path_forms};
use crate::{ApiFacts, ApiOutcome, BODY_BYTES_MAX, Request, Response, ResponsePlan};

/// The newest version of the inspector's API, and the only one whose format is returned; clients of
/// older versions ignore the additional fields.
const MINOR_MAX: u16 = 18;

/// The role that a request to the inspector's API needs.
pub fn access(method: &str, path: &str) -> Access {
    let Ok(segments) = path_forms::segments(path) else {
        return Access::Reader;
    };
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    match (method, &words[..]) {
        ("GET", [] | ["v1"]) => Access::Public,
        ("POST", ["v1", "continue"]) => Access::Agent,
        ("POST", ["v1", "introspection", ..]) => Access::Operator,
        _ => Access::Reader,
    }
}

/// Responds to a request from the snapshot, or returns the order to execute. The request's version
/// is that of the inspector's header.
pub fn handle(request: &Request<'_>, view: &RackView, facts: &ApiFacts, now: UnixMs) -> ApiOutcome {
    let facts = own_facts(facts);
    let outcome = check_version(request.version)
        .and_then(|()| ApiCall::new(request, VERSION_MAX, view, &facts, now, Uuid::nil()))
        .and_then(|call| route(&call));
    match outcome {
        Ok(ApiOutcome::Reply(response)) => ApiOutcome::Reply(with_version_headers(response)),
        Ok(order) => order,
        Err(fault) => ApiOutcome::Reply(with_version_headers(fault.for_inspector())),
    }
}

/// The response to a request whose order was executed or refused.
pub fn finish(then: &ResponsePlan, result: Result<OrderOutcome, OrderRefusal>) -> Response {
    let answer = match (then, result) {
        (ResponsePlan::Inspected, Ok(OrderOutcome::Inspected(node))) => {
            Ok(Response::json(200, &json!({ "uuid": node.to_string() })))
        }
        (ResponsePlan::Empty { status, .. }, Ok(_)) => Ok(Response::json(*status, &json!({}))),
        (_, Ok(_)) => Err(ApiFault::server(
            "the order was executed but returned no reply; this is a bug in the box",
        )),
        (_, Err(OrderRefusal { kind, sentence })) => Err(match kind {
            RefusalKind::Invalid => ApiFault::bad(sentence),
            RefusalKind::NotFound => ApiFault::not_found(sentence),
            RefusalKind::Conflict | RefusalKind::Stale => ApiFault::conflict(sentence),
            RefusalKind::Forbidden => ApiFault::forbidden(sentence),
            RefusalKind::Failed => ApiFault::server(sentence),
            RefusalKind::Unavailable => ApiFault::unavailable(sentence),
        }),
    };
    with_version_headers(answer.unwrap_or_else(ApiFault::for_inspector))
}

/// An error of the daemon itself, in the format of this API.
pub fn refused(status: u16, sentence: &str) -> Response {
    with_version_headers(Response::json(
        status,
        &json!({ "error": { "message": sentence } }),
    ))
}

/// The error for an inspector request that was sent to the Ironic API's address.
pub(crate) fn wrong_endpoint(call: &ApiCall<'_>) -> Option<ApiFault> {
    let meant = ["introspection", "continue"].contains(&call.word(1));
    if call.word(0) != "v1" || !meant {
        return None;
    }
    let sentence = if call.facts.inspector {
        "This is the Ironic API; the inspector API has an address of its own, see inspector.listen \
         in the settings."
    } else {
        "The inspector API is off; a section [inspector] with inspector.listen in the settings \
         turns it on."
    };
    Some(ApiFault::layer(404, "Not Found", sentence))
}

/// Links use the address of the request: the public address belongs to the other API.
fn own_facts(facts: &ApiFacts) -> ApiFacts {
    ApiFacts {
        public_endpoint: None,
        hostname: facts.hostname.clone(),
        ..ApiFacts::default()
    }
}

fn check_version(requested: Option<&str>) -> Result<(), ApiFault> {
    let Some(requested) = requested
        .map(str::trim)
        .filter(|requested| !requested.is_empty())
    else {
        return Ok(());
    };
    if requested.eq_ignore_ascii_case("latest") {
        return Ok(());
    }
    let parts = requested.split_once('.');
    let parts = parts.and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    match parts {
        Some((1, minor)) if minor <= MINOR_MAX => Ok(()),
        Some((major, minor)) => Err(ApiFault::not_acceptable(format!(
            "Unsupported API version {major}.{minor}, supported range is 1.0 to 1.{MINOR_MAX}"
        ))),
        None => Err(ApiFault::bad(
            "Malformed API version: expected string in form of X.Y or latest",
        )),
    }
}

fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn with_version_headers(mut response: Response) -> Response {
    let minimum = "X-OpenStack-Ironic-Inspector-API-Minimum-Version";
    let maximum = "X-OpenStack-Ironic-Inspector-API-Maximum-Version";
    response.headers.push((minimum, "1.0".to_owned()));
    response.headers.push((maximum, format!("1.{MINOR_MAX}")));
    response
}

fn route(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    if call.body.len() > BODY_BYTES_MAX {
        let sentence = format!("A body has at most {BODY_BYTES_MAX} bytes.");
        return Err(ApiFault::layer(413, "Content Too Large", sentence));
    }
    let words: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    match (call.method, &words[..]) {
        ("GET", []) => reply(&json!({ "versions": [{
            "id": format!("1.{MINOR_MAX}"),
            "status": "CURRENT",
            "links": [link(call, "v1")],
        }]})),
        ("GET", ["v1"]) => {
            let resource =
                |name| json!({"name": name, "links": [link(call, &format!("v1/{name}"))]});
            reply(&json!({ "resources": [resource("continue"), resource("introspection")] }))
        }
        ("POST", ["v1", "continue"]) => continue_introspection(call),
        ("GET", ["v1", "introspection"]) => status::list(call),
        ("GET", ["v1", "introspection", ident]) => reply(&status::of(call, node(call, ident)?)?),
        ("POST", ["v1", "introspection", ident]) => start(call, node(call, ident)?),
        ("POST", ["v1", "introspection", ident, "abort"]) => abort(node(call, ident)?),
        ("GET", ["v1", "introspection", ident, "data"]) => {
            reply(&data::processed(node(call, ident)?)?)
        }
        ("GET", ["v1", "introspection", ident, "data", "unprocessed"]) => {
            reply(data::inspection_data(node(call, ident)?)?)
        }
        ("POST", ["v1", "introspection", _, "data", "unprocessed"]) => Err(ApiFault::bad(
            "This box does not process stored data again; inspect the node again.",
        )),
        (_, ["v1", "rules", ..]) => Err(rule::never_run()),
        (_, [] | ["v1"] | ["v1", "continue"] | ["v1", "introspection", ..]) => {
            Err(ApiFault::no_method(call.method))
        }
        _ => Err(ApiFault::no_path()),
    }
}

fn link(call: &ApiCall<'_>, path: &str) -> Value {
    json!({"rel": "self", "href": format!("{}/{path}", call.base)})
}

fn node<'c>(call: &ApiCall<'c>, ident: &str) -> Result<&'c NodeView, ApiFault> {
    let view = call.view.node(ident);
    view.map(std::convert::AsRef::as_ref).ok_or_else(|| {
        let ident = ident.escape_debug();
        ApiFault::not_found(format!("Node {ident} was not found"))
    })
}

fn continue_introspection(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let Some(document @ Value::Object(_)) = body::value(call)? else {
        return Err(ApiFault::bad("Invalid data: expected a JSON object"));
    };
    if body::depth(&document) > body::DEPTH_MAX {
        return Err(ApiFault::bad("The inventory is nested too deeply."));
    }
    order(RackOrder::Inventory { document }, ResponsePlan::Inspected)
}

fn start(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    if call.query.flag("manage_boot")? == Some(false) {
        return Err(ApiFault::bad(
            "This box boots the machines it inspects itself; leave manage_boot out.",
        ));
    }
    if view.node.attributes.interfaces.inspect == Some(InspectInterface::NoInspect) {
        return Err(ApiFault::unsupported(&view.node.driver, "inspect"));
    }
    provision(view, Verb::Inspect)
}

fn abort(view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    match view.node.provision_state {
        ProvisionState::InspectWait => provision(view, Verb::Abort),
        ProvisionState::Inspecting => {
            Err(ApiFault::conflict("Node is locked, please, retry later"))
        }
        state => Err(ApiFault::conflict(format!(
            "Node {} is not being introspected (it is \"{state}\"): there is nothing to abort",
            view.node.id
        ))),
    }
}

fn provision(view: &NodeView, verb: Verb) -> Result<ApiOutcome, ApiFault> {
    let requested = RackOrder::Provision {
        node: view.node.id,
        verb,
        args: VerbArgs::default(),
        based_on: None,
    };
    order(requested, empty(202, None))
}
