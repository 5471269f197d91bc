//! Ports: their collection and one of them.

mod fields;
mod write;

use serde_json::Value;
use trivet_model::view::NodeView;
use trivet_model::{MacAddr, NodeId, Order, Port, PortId, Resource, ResourceKind};

use crate::call::{Call, empty, order};
use crate::error::Fault;
use crate::field::{Column, Shape};
use crate::list::{self, Cut, FIELDS_ASK, Kind, LIST_ASKS, Listed, Walk};
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
    arg("conductor_groups", 99, Shape::Text),
    arg("description_contains", 1, Shape::Text),
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

/// Ports are named by UUID, and since they have names by those.
fn port<'a>(call: &Call<'a>, ident: &str) -> Result<&'a Port, Fault> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if ident.parse::<PortId>().is_err() && !(call.has(88) && ident.bytes().all(word)) {
        let ident = ident.escape_debug();
        return Err(Fault::bad(format!("Expected a UUID but received {ident}.")));
    }
    let port = call.view.port(ident);
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
    let group = match call.query.last("portgroup") {
        None => None,
        Some(ident) => Some(portgroup(call, ident)?),
    };
    check_combination(call)?;
    let about = call.query.last("description_contains");
    let passes = |port: &Port| {
        address.is_none_or(|address| port.address == address)
            && owners.iter().all(|owner| port.node == *owner)
            && group.is_none_or(|group| in_group(port, &group.id.to_string()))
            && about.is_none_or(|about| {
                kept(&port.kept, "description").is_some_and(|text| text.contains(about))
            })
            && node_has(call, port, "shard", "shard", None)
            && node_has(call, port, "conductor_groups", "conductor_group", Some(""))
    };
    let owner = owners
        .first()
        .copied()
        .or(group.and_then(|group| group.node));
    let few: Option<Vec<PortId>> = match (address, owner) {
        (Some(address), _) => Some(call.view.macs.get(&address).copied().into_iter().collect()),
        (None, Some(owner)) => Some(of(call, owner)),
        (None, None) => None,
    };
    page(call, few, passes, detailed)
}

/// The ports of a node.
fn of(call: &Call<'_>, node: NodeId) -> Vec<PortId> {
    let view = call.view.nodes.get(&node);
    view.map(|view| view.ports.clone()).unwrap_or_default()
}

/// Ironic refuses what it would not combine: a client that relied on it elsewhere
/// would be surprised here.
fn check_combination(call: &Call<'_>) -> Result<(), Fault> {
    let given = |names: &[&str]| {
        let given = names.iter().filter(|name| call.query.last(name).is_some());
        given.count()
    };
    if given(&["node", "portgroup", "shard"]) > 1 {
        return Err(Fault::forbidden("Operation not permitted."));
    }
    let others = ["node", "node_uuid", "portgroup", "address"];
    if given(&["conductor_groups"]) > 0 && given(&others) > 0 {
        return Err(Fault::bad(
            "Filtering by conductor_groups cannot be combined with node_ident, portgroup_ident, \
             or node address filters.",
        ));
    }
    Ok(())
}

fn kept<'o>(object: &'o trivet_model::node::Object, name: &str) -> Option<&'o str> {
    object.get(name).and_then(Value::as_str)
}

fn in_group(port: &Port, group: &str) -> bool {
    kept(&port.kept, "portgroup_uuid") == Some(group)
}

/// The portgroup of this UUID or name.
fn portgroup<'a>(call: &Call<'a>, ident: &str) -> Result<&'a Resource, Fault> {
    let found = call.view.resource(ResourceKind::PortGroup, ident);
    found.map(AsRef::as_ref).ok_or_else(|| {
        let ident = ident.escape_debug();
        Fault::not_found(format!("Portgroup {ident} could not be found."))
    })
}

/// Whether the port's node has one of the asked values in a field.
fn node_has(call: &Call<'_>, port: &Port, ask: &str, field: &str, absent: Option<&str>) -> bool {
    if call.query.last(ask).is_none() {
        return true;
    }
    let node = call.view.nodes.get(&port.node);
    let value = node
        .and_then(|view| kept(&view.node.kept, field))
        .or(absent);
    let mut wanted = call.query.all(ask).flat_map(|list| list.split(','));
    value.is_some_and(|value| wanted.any(|one| one == value))
}

/// One page of the ports that pass, which are among these few if they are given.
fn page(
    call: &Call<'_>,
    few: Option<Vec<PortId>>,
    passes: impl Fn(&Port) -> bool,
    detailed: bool,
) -> Result<Outcome, Fault> {
    let find = |marker: &str| {
        let id: PortId = marker.parse().ok()?;
        call.view.ports.get(&id).map(AsRef::as_ref)
    };
    list::page(
        call,
        &PORTS,
        |cut| vec![walk(call, few, cut)],
        passes,
        find,
        detailed,
    )
}

/// The shortest way to the ports: these few, or all in the order of the page.
fn walk<'a>(call: &Call<'a>, few: Option<Vec<PortId>>, cut: &Cut<'a, Port>) -> Walk<'a, Port> {
    let view = call.view;
    if let Some(few) = few {
        let few = few.into_iter().filter_map(move |id| view.ports.get(&id));
        return Walk::new(few.map(|port| &**port), false);
    }
    let (after, descending) = (cut.after, cut.descending);
    let ports = match cut.by {
        None => view.ports.by_creation(after, descending),
        Some("uuid") => view.ports.by_uuid(after.map(|port| port.id), descending),
        Some("address") => {
            let after = after.map(|port| port.address);
            view.ports.by_address(&view.macs, after, descending)
        }
        Some(_) => return Walk::new(view.ports.values().map(|port| &**port), false),
    };
    Walk::new(ports.map(|port| &**port), true)
}

/// `/v1/nodes/<ident>/ports`.
pub(crate) fn of_node(call: &Call<'_>, view: &NodeView, detailed: bool) -> Result<Outcome, Fault> {
    let node = view.node.id;
    page(
        call,
        Some(of(call, node)),
        |port| port.node == node,
        detailed,
    )
}

/// `/v1/portgroups/<ident>/ports`: of the ports of its node those that are its members.
pub(crate) fn of_group(
    call: &Call<'_>,
    group: &Resource,
    is_member: impl Fn(&Port) -> bool,
    detailed: bool,
) -> Result<Outcome, Fault> {
    let few = group.node.map(|node| of(call, node));
    page(call, few, is_member, detailed)
}

#[cfg(test)]
mod tests;
