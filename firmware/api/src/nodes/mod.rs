//! Nodes: their collection, one of them, and what hangs below it.

mod create;
mod fields;
mod filters;
mod history;
mod management;
mod provision;
mod secrets;
pub(crate) mod show;
mod states;
mod traits;
mod update;
mod validate;
mod write;

use serde_json::{Value, json};
use trivet_model::view::NodeView;
use trivet_model::{Entropy, Node, Order, ProvisionState};

use crate::call::{Call, empty, order, reply};
use crate::error::Fault;
use crate::list::{self, Kind, Listed};
use crate::route::{empty_list, get};
use crate::{Outcome, Response, Then, body, drivers, ports, thin};

use fields::FIELDS;

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

/// `/v1/nodes` and below.
pub(crate) fn route(
    call: &Call<'_>,
    rest: &[&str],
    entropy: &mut dyn Entropy,
) -> Result<Outcome, Fault> {
    match (rest, call.method) {
        ([], "GET") => list(call, false),
        ([], "POST") => create::create(call, entropy),
        (["detail"], "GET") => list(call, true),
        ([] | ["detail"], other) => Err(Fault::no_method(other)),
        ([ident], "GET") => show::show(call, call.node(ident)?),
        ([ident], "PATCH") => update::update(call, call.node(ident)?),
        ([ident], "DELETE") => delete(call, call.node(ident)?),
        ([_], other) => Err(Fault::no_method(other)),
        ([ident, below @ ..], _) => {
            let since = since(below.first().copied().unwrap_or(""))?;
            call.exists_since(since)?;
            self::below(call, call.node(ident)?, below)
        }
    }
}

/// The version each thing below a node came with.
fn since(name: &str) -> Result<u16, Fault> {
    const BELOW: [(&str, u16); 18] = [
        ("states", 1),
        ("maintenance", 1),
        ("management", 1),
        ("validate", 1),
        ("vendor_passthru", 1),
        ("ports", 1),
        ("portgroups", 24),
        ("vifs", 28),
        ("volume", 32),
        ("traits", 37),
        ("bios", 40),
        ("allocation", 52),
        ("history", 78),
        ("inventory", 81),
        ("children", 83),
        ("firmware", 86),
        ("vmedia", 89),
        ("console", 1),
    ];
    BELOW
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, since)| *since)
        .ok_or_else(Fault::no_path)
}

fn below(call: &Call<'_>, view: &NodeView, rest: &[&str]) -> Result<Outcome, Fault> {
    let id = view.node.id;
    let driver = view.node.driver.as_str();
    match rest {
        ["states", rest @ ..] => states::route(call, view, rest),
        ["management", rest @ ..] => management::route(call, view, rest),
        ["maintenance"] => maintenance(call, view),
        ["validate"] => get(call, |call| validate::validate(call, view)),
        ["traits", rest @ ..] => traits::route(call, view, rest),
        ["history", rest @ ..] => history::route(call, view, rest),
        ["inventory"] => get(call, |_| inventory(&view.node)),
        ["vifs"] => vifs(call),
        ["vifs", _] => match call.method {
            "DELETE" => Ok(Outcome::Reply(Response::empty(204))),
            other => Err(Fault::no_method(other)),
        },
        ["bios"] => empty_list(call, "bios"),
        ["bios", name] => get(call, |_| {
            let name = name.escape_debug();
            Err(Fault::not_found(format!(
                "Node {id} has no BIOS setting {name}."
            )))
        }),
        ["firmware"] => empty_list(call, "firmware"),
        ["vmedia"] => match call.method {
            "GET" | "POST" | "DELETE" => Err(Fault::unsupported(driver, "virtual media")),
            other => Err(Fault::no_method(other)),
        },
        ["children"] => get(call, |call| children(call, view)),
        ["ports", rest @ ..] if rest.is_empty() || *rest == ["detail"] => {
            get(call, |call| ports::of_node(call, view, !rest.is_empty()))
        }
        ["portgroups"] => empty_list(call, "portgroups"),
        ["allocation"] => match call.method {
            "GET" | "DELETE" => Err(Fault::not_found(format!("Node {id} has no allocation."))),
            other => Err(Fault::no_method(other)),
        },
        ["volume", rest @ ..] => thin::volume(call, rest, &format!("nodes/{id}/volume")),
        ["vendor_passthru", "methods"] => get(call, |_| reply(&json!({}))),
        ["vendor_passthru", rest @ ..] => Err(drivers::no_handler(call, rest.first().copied())),
        _ => Err(Fault::no_path()),
    }
}

fn list(call: &Call<'_>, detailed: bool) -> Result<Outcome, Fault> {
    let filters = filters::read(call)?;
    let nodes = call
        .view
        .nodes
        .values()
        .map(AsRef::as_ref)
        .filter(|view| filters.iter().all(|filter| filter(view)));
    let find = |marker: &str| call.view.node(marker).map(AsRef::as_ref);
    list::page(call, &NODES, nodes, find, detailed)
}

/// Whether we are at work on the node at this moment, which Ironic shows as a
/// lock: a second change has to wait.
pub(crate) fn is_locked(node: &Node) -> bool {
    use ProvisionState as S;
    node.target_power_state.is_some()
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
    call.query.only(&[])?;
    let node = &view.node;
    if node.kept.get("protected") == Some(&Value::Bool(true)) {
        return Err(Fault::forbidden(format!(
            "Node {} is protected and can not be undeployed, rebuilt or deleted.",
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

fn maintenance(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let (on, reason) = match call.method {
        "PUT" => {
            let object = body::object_or_empty(call)?;
            body::only(&object, &["reason"])?;
            let reason = body::text(&object, "reason")?;
            if reason.is_some_and(|text| text.len() > crate::field::DESCRIPTION_BYTES_MAX) {
                return Err(Fault::bad("reason is too long."));
            }
            (true, reason.map(str::to_owned))
        }
        "DELETE" => (false, None),
        other => return Err(Fault::no_method(other)),
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
fn vifs(call: &Call<'_>) -> Result<Outcome, Fault> {
    match call.method {
        "GET" => reply(&json!({ "vifs": [] })),
        "POST" => {
            let object = body::object(call)?;
            if body::text(&object, "id")?.is_none() {
                return Err(Fault::bad("id is required."));
            }
            Ok(Outcome::Reply(Response::empty(204)))
        }
        other => Err(Fault::no_method(other)),
    }
}

fn children(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let id = view.node.id.to_string();
    let children: Vec<String> = call
        .view
        .nodes_by_age()
        .into_iter()
        .filter(|child| {
            let parent = child.node.kept.get("parent_node").and_then(Value::as_str);
            parent == Some(id.as_str())
        })
        .map(|child| child.node.id.to_string())
        .collect();
    let links = call.links(&format!("nodes/{id}/children"));
    reply(&json!({"children": children, "links": links}))
}

#[cfg(test)]
mod tests;
