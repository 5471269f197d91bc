//! Portgroups: bonded ports of one node.

use serde_json::{Value, json};
use trivet_model::{Port, ProvisionState};

use super::{
    ApiRoute, Column, Field, LIST_QUERY_ARGS, ListKind, NODE_QUERY_ARGS, Resource, ResourceKind,
    ResourceSpec, ValueShape,
};
use super::{
    created, crud, detailed, flag, links, name, node, object, stored_field, updated, uuid,
};
use crate::ApiOutcome;
use crate::ironic::ports;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::{FieldWrite, columns, field, is_longer, too_long};
use crate::table::route::{ApiArg, ResponseSchema, arg};
use FieldWrite::{Always, AtCreation, Never};

/// Ironic's default bond mode.
const MODE: &str = "active-backup";

/// Longest physical network and category in characters, as in Ironic.
const NETWORK_CHARS_MAX: usize = 64;
const CATEGORY_CHARS_MAX: usize = 80;

const FIELDS: &[Field<Resource>] = &[
    field("address", 23, ValueShape::Text, Always, stored_field),
    field("category", 103, ValueShape::Text, Always, stored_field),
    field("created_at", 23, ValueShape::Text, Never, created),
    field("dynamic_portgroup", 111, ValueShape::Flag, Never, flag),
    field("extra", 23, ValueShape::Object, Always, object),
    field("internal_info", 23, ValueShape::Object, Never, object),
    field("links", 23, ValueShape::Links, Never, links),
    field("mode", 26, ValueShape::Text, Always, |group, _, name| {
        let mode = group.text(name).filter(|mode| !mode.is_empty());
        json!(mode.unwrap_or(MODE))
    }),
    field("name", 23, ValueShape::Text, Always, name),
    field("node_uuid", 23, ValueShape::Uuid, Always, node),
    field(
        "physical_network",
        102,
        ValueShape::Text,
        Always,
        stored_field,
    ),
    field("ports", 23, ValueShape::Links, Never, |group, call, _| {
        call.links(&format!("portgroups/{}/ports", group.id))
    }),
    field("properties", 26, ValueShape::Object, Always, object),
    field(
        "standalone_ports_supported",
        23,
        ValueShape::Flag,
        Always,
        |group, _, name| json!(group.fields.get(name) != Some(&Value::Bool(false))),
    ),
    field("updated_at", 23, ValueShape::Text, Never, updated),
    field("uuid", 23, ValueShape::Uuid, AtCreation, uuid),
];

fn all() -> Vec<Column> {
    columns(FIELDS)
}

pub(crate) const SPEC: ResourceSpec = ResourceSpec {
    kind: ResourceKind::PortGroup,
    path: "portgroups",
    by_name: true,
    list: ListKind {
        name: "portgroups",
        table: FIELDS,
        short: &["uuid", "address", "name", "links"],
        detail_of_all_versions: true,
    },
    required: &["node_uuid"],
    check,
    passes,
    check_deletable,
};

const FILTERS: &[ApiArg] = &[
    arg("address", 23, ValueShape::Text),
    arg("conductor_groups", 23, ValueShape::Text),
    arg("shard", 106, ValueShape::Text),
];

const fn rows() -> [ApiRoute; 8] {
    let [list, make, show, change, remove] = crud(
        &["v1", "portgroups"],
        &["v1", "portgroups", "{portgroup}"],
        23,
        "portgroups",
        all,
        &[LIST_QUERY_ARGS, NODE_QUERY_ARGS, FILTERS],
    );
    let detail = ApiRoute::get(
        &["v1", "portgroups", "detail"],
        23,
        "List them with every field",
        detailed,
    )
    .query_args(&[LIST_QUERY_ARGS, NODE_QUERY_ARGS, FILTERS])
    .response(ResponseSchema::List("portgroups", all));
    let below = ApiRoute::get(
        &["v1", "portgroups", "{portgroup}", "ports"],
        24,
        "List its ports",
        |call| members(call, false),
    )
    .query_args(&[LIST_QUERY_ARGS]);
    let below_detail = ApiRoute::get(
        &["v1", "portgroups", "{portgroup}", "ports", "detail"],
        24,
        "List its ports with every field",
        |call| members(call, true),
    )
    .query_args(&[LIST_QUERY_ARGS]);
    [
        list,
        make,
        detail,
        show,
        change,
        remove,
        below,
        below_detail,
    ]
}

pub(crate) const ROUTES: &[ApiRoute] = &rows();

fn members(call: &ApiCall<'_>, detailed: bool) -> Result<ApiOutcome, ApiFault> {
    let group = SPEC.named(call, call.word(2))?;
    ports::of_group(call, group, |port| is_member(port, group), detailed)
}

fn is_member(port: &Port, group: &Resource) -> bool {
    port.attributes.portgroup_uuid == Some(group.id)
}

/// Whether it has member ports, which are ports of its node.
fn has_members(call: &ApiCall<'_>, group: &Resource) -> bool {
    let view = group.node.and_then(|node| call.view.nodes.get(&node));
    let mut ids = view.into_iter().flat_map(|view| &view.ports);
    let port = |id| call.view.ports.get(id);
    ids.any(|id| port(id).is_some_and(|port| is_member(port, group)))
}

fn passes(call: &ApiCall<'_>, group: &Resource) -> Result<bool, ApiFault> {
    if let Some(text) = call.query.last("address") {
        let address = ports::mac(text)?;
        if group.text("address") != Some(address.to_string().as_str()) {
            return Ok(false);
        }
    }
    if let Some(shards) = call.query.last("shard") {
        let view = group.node.and_then(|id| call.view.nodes.get(&id));
        let shard = view.and_then(|view| view.node.attributes.shard.as_deref());
        if !shard.is_some_and(|shard| shards.split(',').any(|one| one == shard)) {
            return Ok(false);
        }
    }
    if let Some(wanted) = call.query.last("conductor_groups") {
        let view = group.node.and_then(|id| call.view.nodes.get(&id));
        let of_node = view.and_then(|view| view.node.attributes.conductor_group.as_deref());
        if !wanted.split(',').any(|one| one == of_node.unwrap_or("")) {
            return Ok(false);
        }
    }
    super::of_node(call, group)
}

fn check(call: &ApiCall<'_>, old: Option<&Resource>, group: &mut Resource) -> Result<(), ApiFault> {
    super::check_name(old, group)?;
    super::check_address(group)?;
    for (name, most) in [
        ("physical_network", NETWORK_CHARS_MAX),
        ("category", CATEGORY_CHARS_MAX),
    ] {
        if let Some(text) = group.text(name)
            && is_longer(text, most)
        {
            return Err(too_long(name, text, most));
        }
    }
    match old {
        Some(old) => check_moment(call, old, group),
        None => Ok(()),
    }
}

/// A portgroup can be changed while its node is not locked, and can move to another node while it
/// is empty and that node is not in use.
fn check_moment(call: &ApiCall<'_>, old: &Resource, group: &Resource) -> Result<(), ApiFault> {
    use ProvisionState as S;
    let id = group.id;
    let Some(view) = group.node.and_then(|id| call.view.nodes.get(&id)) else {
        return Ok(());
    };
    let (node, state) = (view.node.id, view.node.provision_state);
    if state == S::Inspecting {
        return Err(ApiFault::conflict(format!(
            "Cannot update portgroup \"{id}\" on node \"{node}\" while it is in state \"{state}\"."
        )));
    }
    super::node_is_free(call, old)?;
    super::node_is_free(call, group)?;
    if old.node == group.node {
        return Ok(());
    }
    if !view.node.maintenance && !matches!(state, S::Enroll | S::InspectWait | S::Manageable) {
        return Err(ApiFault::conflict(format!(
            "Portgroup {id} can not be associated to node {node} unless the node is in a enroll, \
             inspecting, inspect wait, manageable state or in maintenance mode. Current state is \
             '{state}'."
        )));
    }
    if has_members(call, old) {
        return Err(ApiFault::bad(format!(
            "Portgroup {id} can not be associated with node {node} because there are ports \
             associated with this portgroup."
        )));
    }
    Ok(())
}

fn check_deletable(call: &ApiCall<'_>, group: &Resource) -> Result<(), ApiFault> {
    super::node_is_free(call, group)?;
    if has_members(call, group) {
        return Err(ApiFault::bad(format!(
            "Cannot complete the requested action because portgroup {} contains ports.",
            group.id
        )));
    }
    Ok(())
}
