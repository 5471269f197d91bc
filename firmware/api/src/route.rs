//! Which path leads where.
//!
//! A path nobody knows is 404, a known one with another method is 405; what
//! came with a later version than the request speaks does not exist for it.

use serde_json::json;
use trivet_model::Entropy;

use crate::call::{Call, reply};
use crate::error::Fault;
use crate::{BODY_BYTES_MAX, Outcome, Response, agent, drivers, nodes, ports, root, thin};

/// Answers a call, or names its order.
pub(crate) fn route(call: &Call<'_>, entropy: &mut dyn Entropy) -> Result<Outcome, Fault> {
    if call.body.len() > BODY_BYTES_MAX {
        return Err(Fault::layer(
            413,
            "Content Too Large",
            format!("A body has at most {BODY_BYTES_MAX} bytes."),
        ));
    }
    if call.method == "OPTIONS" {
        return Ok(Outcome::Reply(Response::empty(200)));
    }
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        [] => get(call, root::root),
        ["v1"] => get(call, root::v1),
        ["v1", "nodes", rest @ ..] => nodes::route(call, rest, entropy),
        ["v1", "ports", rest @ ..] => ports::route(call, rest, entropy),
        ["v1", "drivers", rest @ ..] => drivers::route(call, rest),
        ["v1", "conductors", rest @ ..] => {
            call.exists_since(49)?;
            drivers::conductors(call, rest)
        }
        ["v1", "lookup"] => agent::lookup(call),
        ["v1", "heartbeat", ident] => agent::heartbeat(call, ident),
        ["v1", "continue_inspection"] => agent::continue_inspection(call),
        ["v1", "shards"] => {
            call.exists_since(82)?;
            get(call, thin::shards)
        }
        ["v1", rest @ ..] => thin::route(call, rest),
        _ => Err(Fault::no_path()),
    }
}

/// A resource that can only be read.
pub(crate) fn get<'c, 'a>(
    call: &'c Call<'a>,
    answer: impl FnOnce(&'c Call<'a>) -> Result<Outcome, Fault>,
) -> Result<Outcome, Fault> {
    match call.method {
        "GET" => answer(call),
        other => Err(Fault::no_method(other)),
    }
}

/// A list that is always empty.
pub(crate) fn empty_list(call: &Call<'_>, key: &'static str) -> Result<Outcome, Fault> {
    get(call, |_| reply(&json!({ key: [] })))
}
