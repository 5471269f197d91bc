//! Ports: their collection and a single port.

mod fields;
mod link;
mod write;

pub(crate) use write::mac;

use serde_json::Value;
use trivet_model::attributes::NodeAttributes;
use trivet_model::view::NodeView;
use trivet_model::{MacAddr, NodeId, Port, PortId, RackOrder, Resource, ResourceKind};

use crate::ironic::nodes;
use crate::table::call::{ApiCall, empty, order};
use crate::table::error::ApiFault;
use crate::table::field;
use crate::table::field::{Column, ValueShape};
use crate::table::list::{
    self, FIELDS_QUERY_ARGS, LIST_QUERY_ARGS, ListKind, ListRecord, PageStart, RecordWalk,
};
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg};
use crate::{ApiOutcome, Response};

use fields::FIELDS;

impl ListRecord for Port {
    fn uuid(&self) -> String {
        self.id.to_string()
    }

    fn serial(&self) -> u64 {
        self.serial
    }
}

const PORTS: ListKind<Port> = ListKind {
    name: "ports",
    table: FIELDS,
    short: &["uuid", "address", "links"],
    detail_of_all_versions: false,
};

fn columns() -> Vec<Column> {
    field::columns(FIELDS)
}

/// The error for a filter by a node that is not named: Ironic's words, for ports and for others.
pub(crate) const NO_NODE: &str = "Schema error: '' is not valid under any of the given schemas. \
                                  Possible root cause: '' is not a 'uuid'. Expected UUID or name \
                                  for node: leave out the argument to list all.";

const FILTERS: &[ApiArg] = &[
    arg("address", 1, ValueShape::Text),
    arg("conductor_groups", 1, ValueShape::Text),
    arg("description_contains", 1, ValueShape::Text),
    arg("node", 1, ValueShape::Text),
    arg("node_uuid", 1, ValueShape::Uuid),
    arg("portgroup", 24, ValueShape::Text),
    arg("shard", 82, ValueShape::Text),
];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(&["v1", "ports"], 1, "List ports, oldest first", |call| {
        list(call, false)
    })
    .query_args(&[LIST_QUERY_ARGS, FILTERS])
    .response(ResponseSchema::List("ports", columns)),
    ApiRoute::new("POST", &["v1", "ports"], 1, "Add a port", write::create)
        .body(BodySchema::Record(columns))
        .needs(&["address"])
        .response(ResponseSchema::Record(201, columns)),
    ApiRoute::get(
        &["v1", "ports", "detail"],
        1,
        "List ports with every field",
        |call| list(call, true),
    )
    .query_args(&[LIST_QUERY_ARGS, FILTERS])
    .response(ResponseSchema::List("ports", columns)),
    ApiRoute::get(&["v1", "ports", "{port}"], 1, "Show a port", |call| {
        show(call, port(call, call.last())?)
    })
    .query_args(&[FIELDS_QUERY_ARGS])
    .response(ResponseSchema::Record(200, columns)),
    ApiRoute::new(
        "PATCH",
        &["v1", "ports", "{port}"],
        1,
        "Change a port",
        |call| write::update(call, port(call, call.last())?),
    )
    .body(BodySchema::Patch(columns))
    .response(ResponseSchema::Record(200, columns)),
    ApiRoute::new(
        "DELETE",
        &["v1", "ports", "{port}"],
        1,
        "Delete a port",
        |call| {
            // Ironic has names of ports in its other requests only.
            if call.last().parse::<PortId>().is_err() {
                return Err(field::expected_uuid("port_uuid", call.last()));
            }
            let port = port(call, call.last())?;
            node_is_free(call, port.node)?;
            order(RackOrder::DeletePort(port.id), empty(204, None))
        },
    ),
];

/// Finds a port by UUID or name; Ironic finds it by name in versions that do not show the name too.
fn port<'a>(call: &ApiCall<'a>, ident: &str) -> Result<&'a Port, ApiFault> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if ident.parse::<PortId>().is_err() && !ident.bytes().all(word) {
        return Err(field::expected_uuid("port_uuid", ident));
    }
    let port = call.view.port(ident);
    port.map(AsRef::as_ref)
        .ok_or_else(|| ApiFault::no_port(ident))
}

/// Refuses while the port's node is locked.
fn node_is_free(call: &ApiCall<'_>, node: NodeId) -> Result<(), ApiFault> {
    match call.view.nodes.get(&node) {
        Some(view) => nodes::unlocked(call, &view.node),
        None => Ok(()),
    }
}

fn show(call: &ApiCall<'_>, port: &Port) -> Result<ApiOutcome, ApiFault> {
    let fields = match list::requested_fields(FIELDS, call)? {
        Some(fields) => fields,
        None => field::available_fields(FIELDS, call),
    };
    let shown = Value::Object(field::render(&fields, port, call));
    Ok(ApiOutcome::Reply(Response::json(200, &shown)))
}

/// The whole port, as the response to a creation or a patch.
pub(crate) fn whole(call: &ApiCall<'_>, port: &Port, created: bool) -> Response {
    let shown = Value::Object(field::render(
        &field::available_fields(FIELDS, call),
        port,
        call,
    ));
    if !created {
        return Response::json(200, &shown);
    }
    let location = call.location(&format!("ports/{}", port.id));
    Response::json(201, &shown).with_location(Some(location))
}

fn list(call: &ApiCall<'_>, detailed: bool) -> Result<ApiOutcome, ApiFault> {
    let address = match call.query.last("address") {
        None => None,
        Some(text) => Some(mac(text)?),
    };
    let mut owners: Vec<NodeId> = Vec::new();
    for name in ["node", "node_uuid"] {
        let Some(ident) = call.query.last(name) else {
            continue;
        };
        if name == "node" && ident.is_empty() {
            return Err(ApiFault::bad(NO_NODE));
        }
        if name == "node_uuid" && ident.parse::<NodeId>().is_err() {
            return Err(field::expected_uuid(name, ident));
        }
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
            && group.is_none_or(|group| port.attributes.portgroup_uuid == Some(group.id))
            && about.is_none_or(|about| {
                let description = port.attributes.description.as_ref();
                description.is_some_and(|text| nodes::contains(text, about))
            })
            && node_has(call, port, "shard", |node| node.shard.as_deref())
            && node_has(call, port, "conductor_groups", |node| {
                Some(node.conductor_group.as_deref().unwrap_or(""))
            })
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
fn of(call: &ApiCall<'_>, node: NodeId) -> Vec<PortId> {
    let view = call.view.nodes.get(&node);
    view.map(|view| view.ports.clone()).unwrap_or_default()
}

/// Ironic refuses some combinations of filters: a client must get the same error here.
fn check_combination(call: &ApiCall<'_>) -> Result<(), ApiFault> {
    let given = |names: &[&str]| {
        let given = names.iter().filter(|name| call.query.last(name).is_some());
        given.count()
    };
    if given(&["node", "portgroup", "shard"]) > 1 {
        return Err(ApiFault::forbidden("Operation not permitted."));
    }
    let others = ["node", "node_uuid", "portgroup", "address"];
    if given(&["conductor_groups"]) > 0 && given(&others) > 0 {
        return Err(ApiFault::bad(
            "Filtering by conductor_groups cannot be combined with node_ident, portgroup_ident, \
             or node address filters.",
        ));
    }
    Ok(())
}

/// The portgroup with this UUID or name.
fn portgroup<'a>(call: &ApiCall<'a>, ident: &str) -> Result<&'a Resource, ApiFault> {
    let found = call.view.resource(ResourceKind::PortGroup, ident);
    found.map(AsRef::as_ref).ok_or_else(|| {
        let ident = ident.escape_debug();
        ApiFault::not_found(format!("Portgroup {ident} could not be found."))
    })
}

/// Whether the port's node has one of the requested values in a field.
fn node_has(
    call: &ApiCall<'_>,
    port: &Port,
    arg: &str,
    field: impl Fn(&NodeAttributes) -> Option<&str>,
) -> bool {
    if call.query.last(arg).is_none() {
        return true;
    }
    let node = call.view.nodes.get(&port.node);
    let value = node.and_then(|view| field(&view.node.attributes));
    let mut wanted = call.query.all(arg).flat_map(|list| list.split(','));
    value.is_some_and(|value| wanted.any(|one| one == value))
}

/// One page of the ports that pass, limited to these few if they are given.
fn page(
    call: &ApiCall<'_>,
    few: Option<Vec<PortId>>,
    passes: impl Fn(&Port) -> bool,
    detailed: bool,
) -> Result<ApiOutcome, ApiFault> {
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

/// The shortest walk to the ports: these few, or all in the order of the page.
fn walk<'a>(
    call: &ApiCall<'a>,
    few: Option<Vec<PortId>>,
    cut: &PageStart<'a, Port>,
) -> RecordWalk<'a, Port> {
    let view = call.view;
    if let Some(few) = few {
        let few = few.into_iter().filter_map(move |id| view.ports.get(&id));
        return RecordWalk::new(few.map(|port| &**port), false);
    }
    let (after, descending) = (cut.after, cut.descending);
    let ports = match cut.by {
        None => view.ports.by_creation(after, descending),
        Some("uuid") => view.ports.by_uuid(after.map(|port| port.id), descending),
        Some("address") => {
            let after = after.map(|port| port.address);
            view.ports.by_address(&view.macs, after, descending)
        }
        Some(_) => return RecordWalk::new(view.ports.values().map(|port| &**port), false),
    };
    RecordWalk::new(ports.map(|port| &**port), true)
}

/// `/v1/nodes/<ident>/ports`.
pub(crate) fn of_node(
    call: &ApiCall<'_>,
    view: &NodeView,
    detailed: bool,
) -> Result<ApiOutcome, ApiFault> {
    let node = view.node.id;
    page(
        call,
        Some(of(call, node)),
        |port| port.node == node,
        detailed,
    )
}

/// `/v1/portgroups/<ident>/ports`: the ports of its node that are its members.
pub(crate) fn of_group(
    call: &ApiCall<'_>,
    group: &Resource,
    is_member: impl Fn(&Port) -> bool,
    detailed: bool,
) -> Result<ApiOutcome, ApiFault> {
    let few = group.node.map(|node| of(call, node));
    page(call, few, is_member, detailed)
}

#[cfg(test)]
mod tests;
