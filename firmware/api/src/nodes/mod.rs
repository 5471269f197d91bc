//! Nodes: their collection, one of them, and what hangs below it.

mod able;
mod create;
mod fields;
mod filters;
mod history;
mod lights;
mod management;
mod media;
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
mod write;

use serde_json::{Value, json};
use trivet_model::index::{NodeKey, Span};
use trivet_model::view::NodeView;
use trivet_model::{Node, Order, ProvisionState};

use crate::call::{Call, empty, order, reply};
use crate::error::Fault;
use crate::field::{self, Column, Shape};
use crate::list::{self, FIELDS_ASK, Kind, LIST_ASKS, Listed};
use crate::route::{Arg, Gives, Route, Takes, arg, required};
use crate::{Outcome, Response, Then, body, ports};

use fields::FIELDS;
use filters::{FILTERS, Filter};
pub(crate) use lights::ROUTES as LIGHTS;
pub(crate) use management::ROUTES as MANAGEMENT;
pub(crate) use media::{ROUTES as MEDIA, listed};
pub(crate) use provision::ROUTES as PROVISION;
pub(crate) use settings::ROUTES as SETTINGS;
pub(crate) use states::ROUTES as STATES;
pub(crate) use validate::validated;

impl Listed for NodeView {
    fn uuid(&self) -> String {
        self.node.id.to_string()
    }

    fn serial(&self) -> u64 {
        self.node.serial
    }
}

const NODES: Kind<NodeView> = Kind {
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
};

fn columns() -> Vec<Column> {
    field::columns(FIELDS)
}

pub(crate) const ROUTES: &[Route] = &[
    Route::get(&["v1", "nodes"], 1, "List nodes, oldest first", |call| {
        list(call, false)
    })
    .asks(&[LIST_ASKS, FILTERS])
    .gives(Gives::List("nodes", columns)),
    Route::new("POST", &["v1", "nodes"], 1, "Enrol a node", create::create)
        .takes(Takes::Record(columns))
        .needs(&["driver"])
        .gives(Gives::Record(201, columns)),
    Route::get(
        &["v1", "nodes", "detail"],
        1,
        "List nodes with every field",
        |call| list(call, true),
    )
    .asks(&[LIST_ASKS, FILTERS])
    .gives(Gives::List("nodes", columns)),
    Route::get(&["v1", "nodes", "{node}"], 1, "Show a node", |call| {
        show::show(call, call.this()?)
    })
    .asks(&[FIELDS_ASK])
    .gives(Gives::Record(200, columns)),
    Route::new(
        "PATCH",
        &["v1", "nodes", "{node}"],
        1,
        "Change a node",
        |call| update::update(call, call.this()?),
    )
    .asks(&[&[arg("reset_interfaces", 45, Shape::Flag)]])
    .takes(Takes::Patch(columns))
    .gives(Gives::Record(200, columns)),
    Route::new(
        "DELETE",
        &["v1", "nodes", "{node}"],
        1,
        "Forget a node",
        |call| delete(call, call.this()?),
    ),
];

/// The nodes of a chassis.
pub(crate) const OF_CHASSIS: &[Route] = &[
    Route::get(
        &["v1", "chassis", "{chassis}", "nodes"],
        1,
        "List its nodes",
        |call| in_chassis(call, false),
    )
    .asks(&[LIST_ASKS, FILTERS])
    .gives(Gives::List("nodes", columns)),
    Route::get(
        &["v1", "chassis", "{chassis}", "nodes", "detail"],
        1,
        "List its nodes with every field",
        |call| in_chassis(call, true),
    )
    .asks(&[LIST_ASKS, FILTERS])
    .gives(Gives::List("nodes", columns)),
];

/// What hangs below a node. Each row finds its node first.
pub(crate) const BELOW: &[Route] = &[
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "maintenance"],
        1,
        "Hands off",
        |call| maintenance(call, call.this()?, true),
    )
    .takes(Takes::Args(MAINTENANCE))
    .gives(Gives::Empty(202)),
    Route::new(
        "DELETE",
        &["v1", "nodes", "{node}", "maintenance"],
        1,
        "Hands on",
        |call| maintenance(call, call.this()?, false),
    )
    .gives(Gives::Empty(202)),
    Route::get(
        &["v1", "nodes", "{node}", "validate"],
        1,
        "Whether each interface can work, and why not",
        |call| validate::validate(call, call.this()?),
    ),
    Route::get(
        &["v1", "nodes", "{node}", "traits"],
        37,
        "List traits",
        |call| traits::list(call.this()?),
    ),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "traits"],
        37,
        "Set all traits",
        |call| traits::set(call, call.this()?),
    )
    .takes(Takes::Args(&[required("traits", 37, Shape::List)])),
    Route::new(
        "DELETE",
        &["v1", "nodes", "{node}", "traits"],
        37,
        "Remove all",
        |call| traits::clear(call, call.this()?),
    ),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "traits", "{trait}"],
        37,
        "Add one",
        |call| traits::add(call, call.this()?, call.last()),
    ),
    Route::new(
        "DELETE",
        &["v1", "nodes", "{node}", "traits", "{trait}"],
        37,
        "Remove one",
        |call| traits::remove(call, call.this()?, call.last()),
    ),
    Route::get(
        &["v1", "nodes", "{node}", "history"],
        78,
        "List what failed",
        |call| history::list(call, call.this()?),
    )
    .asks(&[history::ASKS])
    .gives(Gives::List("history", history::columns)),
    Route::get(
        &["v1", "nodes", "{node}", "history", "{event}"],
        78,
        "Show one",
        |call| history::show(call, call.this()?, call.last()),
    ),
    Route::get(
        &["v1", "nodes", "{node}", "inventory"],
        81,
        "What the agent found",
        |call| inventory(&call.this()?.node),
    ),
    Route::get(
        &["v1", "nodes", "{node}", "vifs"],
        28,
        "List virtual interfaces",
        |call| {
            call.this()?;
            reply(&json!({ "vifs": [] }))
        },
    ),
    Route::new(
        "POST",
        &["v1", "nodes", "{node}", "vifs"],
        28,
        "Attach one",
        attach_vif,
    )
    .takes(Takes::Any),
    Route::new(
        "DELETE",
        &["v1", "nodes", "{node}", "vifs", "{vif}"],
        28,
        "Detach one",
        |call| {
            call.this()?;
            Ok(Outcome::Reply(Response::empty(204)))
        },
    ),
    Route::get(
        &["v1", "nodes", "{node}", "children"],
        83,
        "List its children",
        |call| children(call, call.this()?),
    ),
    Route::get(
        &["v1", "nodes", "{node}", "ports"],
        1,
        "List its ports",
        |call| ports::of_node(call, call.this()?, false),
    )
    .asks(&[LIST_ASKS]),
    Route::get(
        &["v1", "nodes", "{node}", "ports", "detail"],
        1,
        "The same, all",
        |call| ports::of_node(call, call.this()?, true),
    )
    .asks(&[LIST_ASKS]),
];

fn list(call: &Call<'_>, detailed: bool) -> Result<Outcome, Fault> {
    filtered(call, filters::read(call)?, detailed)
}

fn in_chassis(call: &Call<'_>, detailed: bool) -> Result<Outcome, Fault> {
    let chassis = filters::chassis(call, call.word(2))?.id.to_string();
    let mut filters = filters::read(call)?;
    filters.push(Filter::of_chassis(chassis));
    filtered(call, filters, detailed)
}

fn filtered(call: &Call<'_>, filters: Vec<Filter>, detailed: bool) -> Result<Outcome, Fault> {
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

/// Whether we are at work on the node at this moment, which Ironic shows as a
/// lock: a second change has to wait.
pub(crate) fn is_locked(node: &Node) -> bool {
    use ProvisionState as S;
    // After a failed deployment the machine is switched off; a verb takes the place of that.
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
pub(crate) fn unlocked(call: &Call<'_>, node: &Node) -> Result<(), Fault> {
    if !is_locked(node) {
        return Ok(());
    }
    Err(Fault::conflict(format!(
        "Node {} is locked by host {}, please retry after the current operation is completed.",
        node.id, call.facts.hostname
    )))
}

/// The order that puts a changed record in place of the one we read.
fn replace(view: &NodeView, node: Node, then: Then) -> Result<Outcome, Fault> {
    let based_on = view.node.revision;
    let node = Box::new(node);
    order(Order::ReplaceNode { node, based_on }, then)
}

fn delete(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    use ProvisionState as S;
    let node = &view.node;
    if node.kept.get("protected") == Some(&Value::Bool(true)) {
        return Err(Fault::forbidden(format!(
            "Node {} is protected and cannot be undeployed, rebuilt or deleted",
            node.id
        )));
    }
    unlocked(call, node)?;
    let state = node.provision_state;
    let resting = matches!(
        state,
        S::Enroll | S::Manageable | S::Available | S::AdoptFail
    );
    if !node.maintenance && !resting {
        return Err(Fault::conflict(format!(
            "Can not delete node \"{}\" while it is in provision state \"{state}\". Set \
             maintenance first, or bring it to \"manageable\".",
            node.id
        )));
    }
    if !node.maintenance
        && let Some(instance) = &node.instance_uuid
    {
        return Err(Fault::conflict(format!(
            "Node {} is associated with instance {instance}.",
            node.id
        )));
    }
    order(Order::DeleteNode(node.id), empty(204, None))
}

const MAINTENANCE: &[Arg] = &[arg("reason", 1, Shape::LongText)];

fn maintenance(call: &Call<'_>, view: &NodeView, on: bool) -> Result<Outcome, Fault> {
    let reason = if on {
        let object = body::args(call, MAINTENANCE)?;
        body::text(&object, "reason")?.map(str::to_owned)
    } else {
        None
    };
    let node = view.node.id;
    order(Order::Maintenance { node, on, reason }, empty(202, None))
}

/// What the agent found. The record holds either the whole document it sent or
/// its `inventory` alone.
fn inventory(node: &Node) -> Result<Outcome, Fault> {
    let Some(kept) = &node.inventory else {
        return Err(Fault::not_found(format!(
            "Inventory of node {} could not be found: inspect it first.",
            node.id
        )));
    };
    let Some(Value::Object(inventory)) = kept.get("inventory") else {
        return reply(&json!({"inventory": kept, "plugin_data": {}}));
    };
    let plugin_data = kept.get("plugin_data").cloned().unwrap_or_else(|| {
        let mut rest = kept.as_object().cloned().unwrap_or_default();
        rest.remove("inventory");
        Value::Object(rest)
    });
    reply(&json!({"inventory": inventory, "plugin_data": plugin_data}))
}

/// There is no Neutron: attaching succeeds and does nothing, as with Ironic's
/// `noop` network.
fn attach_vif(call: &Call<'_>) -> Result<Outcome, Fault> {
    call.this()?;
    let object = body::object(call)?;
    if body::text(&object, "id")?.is_none_or(str::is_empty) {
        return Err(Fault::bad("'id' is a required property"));
    }
    if call.has(67) && object.contains_key("port_uuid") && object.contains_key("portgroup_uuid") {
        return Err(Fault::bad(
            "Cannot specify both port_uuid and portgroup_uuid",
        ));
    }
    Ok(Outcome::Reply(Response::empty(204)))
}

fn children(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let id = view.node.id.to_string();
    let children: Vec<String> = call
        .view
        .nodes
        .walk(NodeKey::ParentNode, Span::Value(Some(&id)), None, false)
        .map(|child| child.node.id.to_string())
        .collect();
    let links = call.links(&format!("nodes/?parent_node={id}"));
    reply(&json!({"children": children, "links": links}))
}

#[cfg(test)]
mod tests;
