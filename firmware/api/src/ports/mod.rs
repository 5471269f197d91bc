//! Ports: their collection and one of them.

mod fields;
mod write;

use serde_json::Value;
use trivet_model::view::NodeView;
use trivet_model::{Entropy, MacAddr, NodeId, Order, Port, PortId};

use crate::call::{Call, empty, order};
use crate::error::Fault;
use crate::list::{self, Kind, LIST_ARGS, Listed};
use crate::{Outcome, Response, field, nodes};

use fields::FIELDS;

impl Listed for Port {
    fn uuid(&self) -> String {
        self.id.to_string()
    }

    fn serial(&self) -> u64 {
        self.serial
    }
}

const PORTS: Kind<Port> = Kind {
    name: "ports",
    table: FIELDS,
    short: &["uuid", "address", "links"],
};

/// `/v1/ports` and below.
pub(crate) fn route(
    call: &Call<'_>,
    rest: &[&str],
    entropy: &mut dyn Entropy,
) -> Result<Outcome, Fault> {
    match (rest, call.method) {
        ([], "GET") => list(call, false),
        ([], "POST") => write::create(call, entropy),
        (["detail"], "GET") => list(call, true),
        ([] | ["detail"], other) => Err(Fault::no_method(other)),
        ([ident], "GET") => show(call, port(call, ident)?),
        ([ident], "PATCH") => write::update(call, port(call, ident)?),
        ([ident], "DELETE") => {
            let port = port(call, ident)?;
            node_is_free(call, port.node)?;
            order(Order::DeletePort(port.id), empty(204, None))
        }
        ([_], other) => Err(Fault::no_method(other)),
        _ => Err(Fault::no_path()),
    }
}

/// Ports are named by UUID only.
fn port<'a>(call: &Call<'a>, ident: &str) -> Result<&'a Port, Fault> {
    let id: PortId = ident.parse().map_err(|_| {
        let ident = ident.escape_debug();
        Fault::bad(format!("Expected a UUID but received {ident}."))
    })?;
    let port = call.view.ports.get(&id);
    port.map(AsRef::as_ref).ok_or_else(|| Fault::no_port(ident))
}

/// Ports belong to their node's lock.
fn node_is_free(call: &Call<'_>, node: NodeId) -> Result<(), Fault> {
    match call.view.nodes.get(&node) {
        Some(view) => nodes::unlocked(call, &view.node),
        None => Ok(()),
    }
}

fn show(call: &Call<'_>, port: &Port) -> Result<Outcome, Fault> {
    call.query.only(&["fields"])?;
    let fields = match list::asked(FIELDS, call)? {
        Some(fields) => fields,
        None => field::every(FIELDS, call),
    };
    let shown = Value::Object(field::render(&fields, port, call));
    Ok(Outcome::Reply(Response::json(200, &shown)))
}

/// The whole port, as a creation or a patch answers it.
pub(crate) fn whole(call: &Call<'_>, port: &Port, created: bool) -> Response {
    let shown = Value::Object(field::render(&field::every(FIELDS, call), port, call));
    if !created {
        return Response::json(200, &shown);
    }
    let location = call.location(&format!("ports/{}", port.id));
    Response::json(201, &shown).with_location(Some(location))
}

fn list(call: &Call<'_>, detailed: bool) -> Result<Outcome, Fault> {
    let filters = ["address", "node", "node_uuid", "portgroup", "shard"];
    let known: Vec<&str> = filters.into_iter().chain(LIST_ARGS).collect();
    call.query.only(&known)?;
    let address = match call.query.last("address") {
        None => None,
        Some(text) => Some(text.parse::<MacAddr>().map_err(|_| write::bad_mac(text))?),
    };
    let mut owners: Vec<NodeId> = Vec::new();
    for name in ["node", "node_uuid"] {
        let Some(ident) = call.query.last(name) else {
            continue;
        };
        if name == "node" && !call.has(6) {
            return Err(Fault::too_new("node", 6));
        }
        owners.push(call.node(ident)?.node.id);
    }
    if let Some(group) = call.query.last("portgroup") {
        let group = group.escape_debug();
        return Err(Fault::not_found(format!(
            "Portgroup {group} could not be found."
        )));
    }
    let shard = call.query.last("shard");
    if shard.is_some() && !call.has(82) {
        return Err(Fault::too_new("shard", 82));
    }
    let passes = |port: &&Port| {
        address.is_none_or(|address| port.address == address)
            && owners.iter().all(|owner| port.node == *owner)
            && shard.is_none_or(|shard| in_shard(call, port, shard))
    };
    page(call, passes, detailed)
}

fn in_shard(call: &Call<'_>, port: &Port, shard: &str) -> bool {
    let node = call.view.nodes.get(&port.node);
    let kept = node
        .and_then(|view| view.node.kept.get("shard"))
        .and_then(Value::as_str);
    kept.is_some_and(|kept| shard.split(',').any(|one| one == kept))
}

fn page(
    call: &Call<'_>,
    passes: impl Fn(&&Port) -> bool,
    detailed: bool,
) -> Result<Outcome, Fault> {
    let ports = call.view.ports.values().map(AsRef::as_ref).filter(passes);
    let find = |marker: &str| {
        let id: PortId = marker.parse().ok()?;
        call.view.ports.get(&id).map(AsRef::as_ref)
    };
    list::page(call, &PORTS, ports, find, detailed)
}

/// `/v1/nodes/<ident>/ports`.
pub(crate) fn of_node(call: &Call<'_>, view: &NodeView, detailed: bool) -> Result<Outcome, Fault> {
    call.query.only(&LIST_ARGS)?;
    page(call, |port| port.node == view.node.id, detailed)
}

#[cfg(test)]
mod tests;
