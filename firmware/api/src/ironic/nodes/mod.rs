//! Nodes: their collection, a single node, and its sub-resources.

pub(crate) mod capability;
mod create;
pub(crate) mod fields;
mod filters;
mod history;
mod indicators;
mod management;
mod media;
mod network_data;
mod provision;
pub(crate) mod raid;
mod runbook;
pub(crate) mod secrets;
mod settings;
pub(crate) mod show;
mod states;
pub(crate) mod traits;
mod update;
mod validate;
pub(crate) mod write;

use serde_json::{Value, json};
use trivet_model::index::{IndexRange, NodeKey};
use trivet_model::node::JsonObject;
use trivet_model::view::NodeView;
use trivet_model::{Node, ProvisionState, RackOrder};

use crate::ironic::ports;
use crate::table::body;
use crate::table::call::{ApiCall, empty, order, reply};
use crate::table::error::ApiFault;
use crate::table::field::{self, Column, ValueShape};
use crate::table::list::{self, FIELDS_QUERY_ARGS, LIST_QUERY_ARGS, ListKind, ListRecord};
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg, required};
use crate::{ApiOutcome, Response, ResponsePlan};

use fields::FIELDS;
pub(crate) use filters::contains;
use filters::{FILTERS, NodeFilter};
pub(crate) use indicators::ROUTES as LIGHTS;
pub(crate) use management::ROUTES as MANAGEMENT;
pub(crate) use media::{ROUTES as MEDIA, ironic_media};
pub(crate) use provision::ROUTES as PROVISION;
pub(crate) use settings::ROUTES as SETTINGS;
pub(crate) use states::ROUTES as STATES;
pub(crate) use validate::validated;

impl ListRecord for NodeView {
    fn uuid(&self) -> String {
        self.node.id.to_string()
    }

    fn serial(&self) -> u64 {
        self.node.serial
    }
}

const NODES: ListKind<NodeView> = ListKind {
    name: "nodes",
    table: FIELDS,
    short: &[
        "uuid",
        "name",
        "instance_uuid",
        "maintenance",
        "power_state",
        "provision_state",
        "links",
    ],
    detail_of_all_versions: false,
};

fn columns() -> Vec<Column> {
    field::columns(FIELDS)
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(&["v1", "nodes"], 1, "List nodes, oldest first", |call| {
        list(call, false)
    })
    .query_args(&[LIST_QUERY_ARGS, FILTERS])
    .response(ResponseSchema::List("nodes", columns)),
    ApiRoute::new("POST", &["v1", "nodes"], 1, "Enrol a node", create::create)
        .body(BodySchema::Record(columns))
        .needs(&["driver"])
        .response(ResponseSchema::Record(201, columns)),
    ApiRoute::get(
        &["v1", "nodes", "detail"],
        1,
        "List nodes with every field",
        |call| list(call, true),
    )
    .query_args(&[LIST_QUERY_ARGS, FILTERS])
    .response(ResponseSchema::List("nodes", columns)),
    ApiRoute::get(&["v1", "nodes", "{node}"], 1, "Show a node", |call| {
        show::show(call, call.this()?)
    })
    .query_args(&[FIELDS_QUERY_ARGS])
    .response(ResponseSchema::Record(200, columns)),
    ApiRoute::new(
        "PATCH",
        &["v1", "nodes", "{node}"],
        1,
        "Change a node",
        |call| update::update(call, call.this()?),
    )
    .query_args(&[&[arg("reset_interfaces", 45, ValueShape::Flag)]])
    .body(BodySchema::Patch(columns))
    .response(ResponseSchema::Record(200, columns)),
    ApiRoute::new(
        "DELETE",
        &["v1", "nodes", "{node}"],
        1,
        "Delete a node",
        |call| delete(call, call.this()?),
    ),
];

/// The nodes of a chassis.
pub(crate) const OF_CHASSIS: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "chassis", "{chassis}", "nodes"],
        1,
        "List its nodes",
        |call| in_chassis(call, false),
    )
    .query_args(&[LIST_QUERY_ARGS, FILTERS])
    .response(ResponseSchema::List("nodes", columns)),
    ApiRoute::get(
        &["v1", "chassis", "{chassis}", "nodes", "detail"],
        1,
        "List its nodes with every field",
        |call| in_chassis(call, true),
    )
    .query_args(&[LIST_QUERY_ARGS, FILTERS])
    .response(ResponseSchema::List("nodes", columns)),
];

/// The sub-resources of a node. Each row looks up its node first.
pub(crate) const SUBRESOURCES: &[ApiRoute] = &[
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "maintenance"],
        1,
        "Set maintenance mode",
        |call| maintenance(call, call.this()?, true),
    )
    .body(BodySchema::Args(MAINTENANCE))
    .response(ResponseSchema::Empty(202)),
    ApiRoute::new(
        "DELETE",
        &["v1", "nodes", "{node}", "maintenance"],
        1,
        "Clear maintenance mode",
        |call| maintenance(call, call.this()?, false),
    )
    .response(ResponseSchema::Empty(202)),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "validate"],
        1,
        "Validate its interfaces",
        |call| validate::validate(call, call.this()?),
    ),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "traits"],
        37,
        "List traits",
        |call| traits::list(call.this()?),
    ),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "traits"],
        37,
        "Set all traits",
        |call| traits::set(call, call.this()?),
    )
    .body(BodySchema::Args(&[required(
        "traits",
        37,
        ValueShape::List,
    )])),
    ApiRoute::new(
        "DELETE",
        &["v1", "nodes", "{node}", "traits"],
        37,
        "Remove all traits",
        |call| traits::clear(call, call.this()?),
    ),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "traits", "{trait}"],
        37,
        "Add a trait",
        |call| traits::add(call, call.this()?, call.last()),
    ),
    ApiRoute::new(
        "DELETE",
        &["v1", "nodes", "{node}", "traits", "{trait}"],
        37,
        "Remove one",
        |call| traits::remove(call, call.this()?, call.last()),
    ),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "history"],
        78,
        "List its failures",
        |call| history::list(call, call.this()?),
    )
    .query_args(&[history::QUERY_ARGS])
    .response(ResponseSchema::List("history", history::columns)),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "history", "{event}"],
        78,
        "Show one",
        |call| history::show(call, call.this()?, call.last()),
    ),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "inventory"],
        81,
        "Show the inventory from its inspection",
        |call| inventory(&call.this()?.node),
    ),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "vifs"],
        28,
        "List virtual interfaces",
        |call| {
            call.this()?;
            reply(&json!({ "vifs": [] }))
        },
    ),
    ApiRoute::new(
        "POST",
        &["v1", "nodes", "{node}", "vifs"],
        28,
        "Attach a virtual interface",
        attach_vif,
    )
    .body(BodySchema::Any),
    ApiRoute::new(
        "DELETE",
        &["v1", "nodes", "{node}", "vifs", "{vif}"],
        28,
        "Detach a virtual interface",
        |call| {
            call.this()?;
            Ok(ApiOutcome::Reply(Response::empty(204)))
        },
    ),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "children"],
        83,
        "List its children",
        |call| children(call, call.this()?),
    ),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "ports"],
        1,
        "List its ports",
        |call| ports::of_node(call, call.this()?, false),
    )
    .query_args(&[LIST_QUERY_ARGS]),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "ports", "detail"],
        1,
        "List its ports with every field",
        |call| ports::of_node(call, call.this()?, true),
    )
    .query_args(&[LIST_QUERY_ARGS]),
];

fn list(call: &ApiCall<'_>, detailed: bool) -> Result<ApiOutcome, ApiFault> {
    filtered(call, filters::read(call)?, detailed)
}

fn in_chassis(call: &ApiCall<'_>, detailed: bool) -> Result<ApiOutcome, ApiFault> {
    let chassis = filters::chassis(call, call.word(2))?.id;
    let mut filters = filters::read(call)?;
    filters.push(NodeFilter::of_chassis(chassis));
    filtered(call, filters, detailed)
}

fn filtered(
    call: &ApiCall<'_>,
    filters: Vec<NodeFilter>,
    detailed: bool,
) -> Result<ApiOutcome, ApiFault> {
    let passes = |view: &NodeView| filters.iter().all(|filter| filter.passes(view));
    let find = |marker: &str| call.view.node(marker).map(AsRef::as_ref);
    list::page(
        call,
        &NODES,
        |cut| filters::walks(call, &filters, cut),
        passes,
        find,
        detailed,
    )
}

/// Whether the node has a job or a power change in progress, which Ironic shows as a lock: a second
/// change has to wait.
pub(crate) fn is_locked(node: &Node) -> bool {
    use ProvisionState as S;
    // After a failed deployment the machine is switched off; a verb replaces that request.
    let switches = node.target_power_state.is_some() && node.provision_state != S::DeployFail;
    switches
        || matches!(
            node.provision_state,
            S::Verifying
                | S::Deploying
                | S::Deleting
                | S::Cleaning
                | S::Inspecting
                | S::Adopting
                | S::Rescuing
                | S::Unrescuing
                | S::Servicing
        )
}

/// Refuses while the node is locked.
pub(crate) fn unlocked(call: &ApiCall<'_>, node: &Node) -> Result<(), ApiFault> {
    if !is_locked(node) {
        return Ok(());
    }
    Err(ApiFault::conflict(format!(
        "Node {} is locked by host {}, please retry after the current operation is completed.",
        node.id, call.facts.hostname
    )))
}

/// The order that replaces the record that was read by the changed one.
pub(crate) fn replace(
    view: &NodeView,
    node: Node,
    then: ResponsePlan,
) -> Result<ApiOutcome, ApiFault> {
    let based_on = view.node.revision;
    let node = Box::new(node);
    order(RackOrder::ReplaceNode { node, based_on }, then)
}

fn delete(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    use ProvisionState as S;
    let node = &view.node;
    unlocked(call, node)?;
    if !node.maintenance
        && let Some(instance) = &node.instance_uuid
    {
        return Err(ApiFault::conflict(format!(
            "Node {} is associated with instance {instance}. Delete the instance first.",
            node.id
        )));
    }
    if node.attributes.protected {
        return Err(ApiFault::forbidden(format!(
            "Node {} is protected and cannot be undeployed, rebuilt or deleted",
            node.id
        )));
    }
    let state = node.provision_state;
    let resting = matches!(
        state,
        S::Enroll | S::Manageable | S::Available | S::AdoptFail
    );
    if !node.maintenance && !resting {
        return Err(ApiFault::conflict(format!(
            "Can not delete node \"{}\" while it is in provision state \"{state}\". Set \
             maintenance first, or bring it to \"manageable\".",
            node.id
        )));
    }
    order(RackOrder::DeleteNode(node.id), empty(204, None))
}

const MAINTENANCE: &[ApiArg] = &[arg("reason", 1, ValueShape::LongText)];

fn maintenance(call: &ApiCall<'_>, view: &NodeView, on: bool) -> Result<ApiOutcome, ApiFault> {
    let reason = if on {
        let object = body::args(call, MAINTENANCE)?;
        body::text(&object, "reason")?.map(str::to_owned)
    } else {
        None
    };
    let node = view.node.id;
    order(
        RackOrder::Maintenance { node, on, reason },
        empty(202, None),
    )
}

/// The inventory that the agent sent, and what inspection hooks make of it. The record has either
/// the whole document or its `inventory` alone.
fn inventory(node: &Node) -> Result<ApiOutcome, ApiFault> {
    let Some(stored) = &node.inventory else {
        return Err(ApiFault::not_found(format!(
            "Inventory of node {} could not be found: inspect it first.",
            node.id
        )));
    };
    let (inventory, collected) = match stored.get("inventory") {
        Some(inventory @ Value::Object(_)) => (inventory, stored.get("plugin_data")),
        // Only the inventory is there, and nothing was collected.
        _ => (stored, Some(&Value::Null)),
    };
    let collected = match collected {
        Some(Value::Object(collected)) => collected.clone(),
        Some(_) => JsonObject::new(),
        None => {
            let mut rest = stored.as_object().cloned().unwrap_or_default();
            rest.remove("inventory");
            rest
        }
    };
    let plugin_data = trivet_agent_inventory::plugin_data(inventory, &collected);
    reply(&json!({"inventory": inventory, "plugin_data": plugin_data}))
}

/// There is no Neutron: attaching succeeds and does nothing, as with Ironic's `noop` network.
fn attach_vif(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    call.this()?;
    let object = body::object(call)?;
    match object.get("id") {
        Some(Value::String(id)) if !id.is_empty() => {}
        None | Some(Value::String(_)) => {
            return Err(ApiFault::bad("'id' is a required property"));
        }
        Some(other) => {
            return Err(ApiFault::bad(format!(
                "Schema error for vif: {} is not of type 'string': id must be a string.",
                field::quoted(other)
            )));
        }
    }
    if call.has(67) && object.contains_key("port_uuid") && object.contains_key("portgroup_uuid") {
        return Err(ApiFault::bad(
            "Cannot specify both port_uuid and portgroup_uuid",
        ));
    }
    Ok(ApiOutcome::Reply(Response::empty(204)))
}

fn children(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let id = view.node.id.to_string();
    let children: Vec<String> = call
        .view
        .nodes
        .walk(
            NodeKey::ParentNode,
            IndexRange::Value(Some(&id)),
            None,
            false,
        )
        .map(|child| child.node.id.to_string())
        .collect();
    let href = call.location(&format!("nodes?parent_node={id}"));
    let links = json!({"href": href, "rel": "children"});
    reply(&json!({"children": children, "links": links}))
}

#[cfg(test)]
mod tests;
