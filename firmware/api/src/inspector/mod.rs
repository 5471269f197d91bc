//! The inspector's API (ironic-inspector 12): inspections by another name.
//!
//! It has an address of its own and other forms of answers, but no records of its
//! own: an introspection is what a node's inspection is, was or came to. Like the
//! rest of this room it is a pair of functions, [`handle`] and [`finish`].

mod data;
mod status;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use trivet_model::order::VerbArgs;
use trivet_model::view::NodeView;
use trivet_model::{Done, Order, ProvisionState, Refusal, RefusalKind, UnixMs, Verb, View};
use uuid::Uuid;

use crate::access::Access;
use crate::call::{Call, empty, order, reply};
use crate::error::Fault;
use crate::resources::rule;
use crate::version::VERSION_MAX;
use crate::{BODY_BYTES_MAX, Facts, Outcome, Request, Response, Then, body, percent};

/// The newest version of the inspector's API, and the only one whose form we give;
/// what older ones lack does not disturb their clients.
const MINOR_MAX: u16 = 18;

/// Whom a request to the inspector's address needs to come from.
pub fn access(method: &str, path: &str) -> Access {
    let Ok(segments) = percent::segments(path) else {
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

/// Answers a request from the snapshot, or says what has to be carried out. The
/// request's version is that of the inspector's header.
pub fn handle(request: &Request<'_>, view: &View, facts: &Facts, now: UnixMs) -> Outcome {
    let facts = own_facts(facts);
    let outcome = check_version(request.version)
        .and_then(|()| Call::new(request, VERSION_MAX, view, &facts, now, Uuid::nil()))
        .and_then(|call| route(&call));
    match outcome {
        Ok(Outcome::Reply(response)) => Outcome::Reply(sealed(response)),
        Ok(order) => order,
        Err(fault) => Outcome::Reply(sealed(fault.for_inspector())),
    }
}

/// The answer to a request whose order was carried out or refused.
pub fn finish(then: &Then, result: Result<Done, Refusal>) -> Response {
    let answer = match (then, result) {
        (Then::Inspected, Ok(Done::Inspected(node))) => {
            Ok(Response::json(200, &json!({ "uuid": node.to_string() })))
        }
        (Then::Empty { status, .. }, Ok(_)) => Ok(Response::json(*status, &json!({}))),
        (_, Ok(_)) => Err(Fault::server(
            "the order was carried out but brought no answer; this is a fault of the box",
        )),
        (_, Err(Refusal { kind, sentence })) => Err(match kind {
            RefusalKind::Invalid => Fault::bad(sentence),
            RefusalKind::NotFound => Fault::not_found(sentence),
            RefusalKind::Conflict | RefusalKind::Stale => Fault::conflict(sentence),
            RefusalKind::Forbidden => Fault::forbidden(sentence),
            RefusalKind::Failed => Fault::server(sentence),
            RefusalKind::Unavailable => Fault::unavailable(sentence),
        }),
    };
    sealed(answer.unwrap_or_else(Fault::for_inspector))
}

/// A refusal of the shell's own, in this API's form.
pub fn refused(status: u16, sentence: &str) -> Response {
    sealed(Response::json(
        status,
        &json!({ "error": { "message": sentence } }),
    ))
}

/// What to say at the Ironic API's address where the inspector's was meant.
pub(crate) fn elsewhere(call: &Call<'_>) -> Option<Fault> {
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
    Some(Fault::layer(404, "Not Found", sentence))
}

/// Links lead to the address the request came by: the public one is the other API's.
fn own_facts(facts: &Facts) -> Facts {
    Facts {
        public_endpoint: None,
        hostname: facts.hostname.clone(),
        ..Facts::default()
    }
}

fn check_version(asked: Option<&str>) -> Result<(), Fault> {
    let Some(asked) = asked.map(str::trim).filter(|asked| !asked.is_empty()) else {
        return Ok(());
    };
    if asked.eq_ignore_ascii_case("latest") {
        return Ok(());
    }
    let parts = asked.split_once('.');
    let parts = parts.and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    match parts {
        Some((1, minor)) if minor <= MINOR_MAX => Ok(()),
        Some((major, minor)) => Err(Fault::not_acceptable(format!(
            "Unsupported API version {major}.{minor}, supported range is 1.0 to 1.{MINOR_MAX}"
        ))),
        None => Err(Fault::bad(
            "Malformed API version: expected string in form of X.Y or latest",
        )),
    }
}

fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn sealed(mut response: Response) -> Response {
    let minimum = "X-OpenStack-Ironic-Inspector-API-Minimum-Version";
    let maximum = "X-OpenStack-Ironic-Inspector-API-Maximum-Version";
    response.headers.push((minimum, "1.0".to_owned()));
    response.headers.push((maximum, format!("1.{MINOR_MAX}")));
    response
}

fn route(call: &Call<'_>) -> Result<Outcome, Fault> {
    if call.body.len() > BODY_BYTES_MAX {
        let sentence = format!("A body has at most {BODY_BYTES_MAX} bytes.");
        return Err(Fault::layer(413, "Content Too Large", sentence));
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
        ("POST", ["v1", "continue"]) => take(call),
        ("GET", ["v1", "introspection"]) => status::list(call),
        ("GET", ["v1", "introspection", ident]) => reply(&status::of(call, node(call, ident)?)?),
        ("POST", ["v1", "introspection", ident]) => start(call, node(call, ident)?),
        ("POST", ["v1", "introspection", ident, "abort"]) => abort(node(call, ident)?),
        ("GET", ["v1", "introspection", ident, "data"]) => {
            reply(&data::processed(node(call, ident)?)?)
        }
        ("GET", ["v1", "introspection", ident, "data", "unprocessed"]) => {
            reply(data::kept(node(call, ident)?)?)
        }
        ("POST", ["v1", "introspection", _, "data", "unprocessed"]) => Err(Fault::bad(
            "This box does not apply kept data again; inspect the node once more.",
        )),
        (_, ["v1", "rules", ..]) => Err(rule::never_run()),
        (_, [] | ["v1"] | ["v1", "continue"] | ["v1", "introspection", ..]) => {
            Err(Fault::no_method(call.method))
        }
        _ => Err(Fault::no_path()),
    }
}

fn link(call: &Call<'_>, path: &str) -> Value {
    json!({"rel": "self", "href": format!("{}/{path}", call.base)})
}

fn node<'c>(call: &Call<'c>, ident: &str) -> Result<&'c NodeView, Fault> {
    let view = call.view.node(ident);
    view.map(std::convert::AsRef::as_ref).ok_or_else(|| {
        let ident = ident.escape_debug();
        Fault::not_found(format!("Node {ident} was not found"))
    })
}

fn take(call: &Call<'_>) -> Result<Outcome, Fault> {
    let Some(document @ Value::Object(_)) = body::value(call)? else {
        return Err(Fault::bad("Invalid data: expected a JSON object"));
    };
    if body::depth(&document) > body::DEPTH_MAX {
        return Err(Fault::bad("The inventory is nested too deeply."));
    }
    order(Order::Inventory { document }, Then::Inspected)
}

fn start(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    if call.query.flag("manage_boot")? == Some(false) {
        return Err(Fault::bad(
            "This box boots the machines it inspects itself; leave manage_boot out.",
        ));
    }
    if view.node.kept.get("inspect_interface") == Some(&json!("no-inspect")) {
        return Err(Fault::unsupported(&view.node.driver, "inspect"));
    }
    provision(view, Verb::Inspect)
}

fn abort(view: &NodeView) -> Result<Outcome, Fault> {
    match view.node.provision_state {
        ProvisionState::InspectWait => provision(view, Verb::Abort),
        ProvisionState::Inspecting => Err(Fault::conflict("Node is locked, please, retry later")),
        state => Err(Fault::conflict(format!(
            "Node {} is not being introspected (it is \"{state}\"): there is nothing to abort",
            view.node.id
        ))),
    }
}

fn provision(view: &NodeView, verb: Verb) -> Result<Outcome, Fault> {
    let asked = Order::Provision {
        node: view.node.id,
        verb,
        args: VerbArgs::default(),
        based_on: None,
    };
    order(asked, empty(202, None))
}
