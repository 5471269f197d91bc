//! Ports: their collection and one of them.

mod fields;
mod write;

use serde_json::Value;
use trivet_model::view::NodeView;
use trivet_model::{MacAddr, NodeId, Order, Port, PortId};

use crate::call::{Call, empty, order};
use crate::error::Fault;
use crate::field::{Column, Shape};
use crate::list::{self, FIELDS_ASK, Kind, LIST_ASKS, Listed};
use crate::route::{Arg, Gives, Route, Takes, arg};
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

fn columns() -> Vec<Column> {
    field::columns(FIELDS)
}

const FILTERS: &[Arg] = &[
    arg("address", 1, Shape::Text),
    arg("node", 6, Shape::Text),
    arg("node_uuid", 1, Shape::Uuid),
    arg("portgroup", 24, Shape::Text),
    arg("shard", 82, Shape::Text),
];

pub(crate) const ROUTES: &[Route] = &[
    Route::get(&["v1", "ports"], 1, "List ports, oldest first", |call| {
        list(call, false)
    })
    .asks(&[LIST_ASKS, FILTERS])
    .gives(Gives::List("ports", columns)),
    Route::new("POST", &["v1", "ports"], 1, "Add a port", write::create)
        .takes(Takes::Record(columns))
        .needs(&["address"])
        .gives(Gives::Record(201, columns)),
    Route::get(
        &["v1", "ports", "detail"],
        1,
        "List ports with every field",
        |call| list(call, true),
    )
    .asks(&[LIST_ASKS, FILTERS])
    .gives(Gives::List("ports", columns)),
    Route::get(&["v1", "ports", "{port}"], 1, "Show a port", |call| {
        show(call, port(call, call.last())?)
    })
    .asks(&[FIELDS_ASK])
    .gives(Gives::Record(200, columns)),
    Route::new(
        "PATCH",
        &["v1", "ports", "{port}"],
        1,
        "Change a port",
        |call| write::update(call, port(call, call.last())?),
    )
    .takes(Takes::Patch(columns))
    .gives(Gives::Record(200, columns)),
    Route::new(
        "DELETE",
        &["v1", "ports", "{port}"],
        1,
        "Forget a port",
        |call| {
            let port = port(call, call.last())?;
            node_is_free(call, port.node)?;
            order(Order::DeletePort(port.id), empty(204, None))
        },
    ),
];

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
    let address = match call.query.last("address") {
        None => None,
        Some(text) => Some(text.parse::<MacAddr>().map_err(|_| write::bad_mac(text))?),
    };
    let mut owners: Vec<NodeId> = Vec::new();
    for name in ["node", "node_uuid"] {
        let Some(ident) = call.query.last(name) else {
            continue;
        };
        owners.push(call.node(ident)?.node.id);
    }
    if let Some(group) = call.query.last("portgroup") {
        let group = group.escape_debug();
        return Err(Fault::not_found(format!(
            "Portgroup {group} could not be found."
        )));
    }
    let shard = call.query.last("shard");
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
    page(call, |port| port.node == view.node.id, detailed)
}

#[cfg(test)]
mod tests;
