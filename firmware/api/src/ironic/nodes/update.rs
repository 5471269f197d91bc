//! `PATCH /v1/nodes/<ident>`: all operations or none.

use serde_json::Value;
use trivet_model::view::NodeView;
use trivet_model::{Node, ProvisionState};

use super::fields::FIELDS;
use super::{replace, show, unlocked, write};
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field;
use crate::table::patch::{self, PatchChange, PatchOp};
use crate::{ApiOutcome, ResponsePlan};

pub(crate) fn update(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let reset = call.query.flag("reset_interfaces")? == Some(true);
    let changes = patch::parse(call.body, call.has(98))?;
    check_roots(call, &view.node, &changes)?;
    let is_changed = |name: &str| changes.iter().any(|change| change.root() == name);
    let driver_changes = is_changed("driver");
    if reset && !driver_changes {
        return Err(ApiFault::bad(
            "The reset_interfaces parameter can only be used when changing the node's driver.",
        ));
    }
    if changes.is_empty() {
        return Ok(ApiOutcome::Reply(show::whole(call, view, false)));
    }
    check_moment(call, &view.node, &changes)?;

    let mut document = Value::Object(write::document(call, view));
    if driver_changes {
        for field in FIELDS
            .iter()
            .filter(|field| field.name.ends_with("_interface"))
        {
            // In Ironic a node has the interfaces of its creation, which another driver must
            // support.
            document[field.name] = if reset {
                Value::Null
            } else {
                field.show(view, call)
            };
        }
    }
    patch::apply(&mut document, &changes)?;
    let mut node = Node::clone(&view.node);
    if let Value::Object(document) = document {
        // Only the fields of the patch are read back, so that an old record is never refused for a
        // field that was not changed.
        let touched = document
            .into_iter()
            .filter(|(name, _)| {
                is_changed(name) || (driver_changes && name.ends_with("_interface"))
            })
            .collect();
        write::read(call, touched, &mut node)?;
    }
    if is_changed("instance_info") {
        write::take_instance_name(&mut node);
    }
    // A reason is removed together with the flag that it belongs to.
    let (old, new) = (&view.node.attributes, &mut node.attributes);
    if old.protected && !new.protected {
        new.protected_reason = None;
    }
    if old.retired && !new.retired {
        new.retired_reason = None;
    }
    check_rules(call, &view.node, &node)?;
    write::check(call, &node).map_err(|fault| match (driver_changes, reset) {
        (true, false) => fault.with_advice(
            "With reset_interfaces=true the node gets the default interfaces of its new driver.",
        ),
        _ => fault,
    })?;
    write::check_driver_info(call, &view.node.driver_info, &node)?;
    let id = node.id;
    replace(view, node, ResponsePlan::Node { id, created: false })
}

fn check_roots(call: &ApiCall<'_>, node: &Node, changes: &[PatchChange]) -> Result<(), ApiFault> {
    for change in changes {
        let root = change.root();
        // As in Ironic, the version is compared for values only: a removal has none.
        let removed = FIELDS
            .iter()
            .find(|field| change.op == PatchOp::Remove && field.name == root);
        let field = removed.map_or_else(|| field::named(FIELDS, root, call), Ok)?;
        if !field.in_patch() {
            return Err(field::not_in_patch(FIELDS, root, call));
        }
        patch::check_new_name(&format!("Node {}", node.id), change)?;
        let blank = change.value().is_null() || change.value() == "";
        if change.op != PatchOp::Remove && blank {
            refuse_blank(node, root, change.value())?;
        }
        if root == "driver" && change.op != PatchOp::Remove && !change.value().is_string() {
            return Err(ApiFault::bad(format!(
                "Schema error for patch: {} is not of type 'string': driver must be a string.",
                field::quoted(change.value())
            )));
        }
        if root == "driver" && change.op == PatchOp::Remove && change.is_whole() {
            return Err(ApiFault::bad(
                "Schema error for patch: 'driver' is a required property: '/driver' is mandatory \
                 and can not be removed",
            ));
        }
    }
    Ok(())
}

/// Fields that are removed and not set to null; the parent not to an empty text either.
fn refuse_blank(node: &Node, name: &str, value: &Value) -> Result<(), ApiFault> {
    if !value.is_null() && name != "parent_node" {
        return Ok(());
    }
    Err(ApiFault::bad(match name {
        "name" => format!(
            "Node {}: Cannot change name to invalid name 'None'. Remove it instead.",
            node.id
        ),
        "network_data" => {
            "Invalid network_data: None is not of type 'object'. Remove it instead.".to_owned()
        }
        "parent_node" => format!(
            "Unable to apply the requested parent_node {}. Requested value was invalid. Remove it \
             instead.",
            field::quoted(value)
        ),
        _ => return Ok(()),
    }))
}

/// Whether the record can be changed at present.
fn check_moment(call: &ApiCall<'_>, node: &Node, changes: &[PatchChange]) -> Result<(), ApiFault> {
    use ProvisionState as S;
    let frees_instance = node.maintenance
        && changes
            .iter()
            .all(|change| change.root() == "instance_uuid" && change.op == PatchOp::Remove);
    if frees_instance {
        return Ok(());
    }
    unlocked(call, node)?;
    let state = node.provision_state;
    let settled =
        state.is_failure() || matches!(state, S::InspectWait | S::Verifying | S::ServiceHold);
    if node.target_provision_state.is_some() && !settled {
        return Err(ApiFault::conflict(format!(
            "Node {} can not be updated while a state transition is in progress.",
            node.id
        )));
    }
    Ok(())
}

/// Rules that depend on both the old and the new record.
fn check_rules(call: &ApiCall<'_>, old: &Node, new: &Node) -> Result<(), ApiFault> {
    use ProvisionState as S;
    let state = old.provision_state;
    let quiet = old.maintenance
        || matches!(
            state,
            S::Enroll | S::Inspecting | S::InspectWait | S::Manageable | S::Available
        );
    let interfaces = FIELDS
        .iter()
        .map(|field| field.name)
        .filter(|name| name.ends_with("_interface"));
    let moved: Vec<&str> = interfaces
        .filter(|name| old.attributes.get(name) != new.attributes.get(name))
        .chain((old.driver != new.driver).then_some("driver"))
        .chain((old.resource_class != new.resource_class).then_some("resource_class"))
        .collect();
    if !quiet && !moved.is_empty() {
        return Err(ApiFault::conflict(format!(
            "Node {} can not have {} updated unless it is in one of allowed (enroll, \
             inspecting, inspect wait, manageable, available) states or in maintenance mode. \
             Current state is '{state}'.",
            old.id,
            moved.join(", ")
        )));
    }
    if let (Some(old_instance), Some(new_instance)) = (&old.instance_uuid, &new.instance_uuid)
        && old_instance != new_instance
    {
        return Err(ApiFault::conflict(format!(
            "Node {} is associated with instance {old_instance}.",
            old.id
        )));
    }
    let (before, after) = (&old.attributes, &new.attributes);
    if after.protected && !before.protected && !matches!(state, S::Active | S::Rescue) {
        return Err(ApiFault::conflict(format!(
            "Node {} can only be made protected in provision states 'active' or 'rescue', the \
             current state is '{state}'",
            old.id
        )));
    }
    if after.retired && !before.retired && state == S::Available {
        return Err(ApiFault::conflict(format!(
            "Node {} can not have 'retired' set in provision state 'available', the current state \
             is '{state}'",
            old.id
        )));
    }
    let left = before.chassis_uuid.is_some() && after.chassis_uuid.is_none();
    if left && !call.has(25) {
        return Err(ApiFault::too_new("removing chassis_uuid", 25));
    }
    check_console(old, new)
}

/// A console belongs to the driver that opened it.
fn check_console(old: &Node, new: &Node) -> Result<(), ApiFault> {
    if old.driver != new.driver && old.attributes.console_enabled {
        return Err(ApiFault::conflict(format!(
            "Node {} can not update the driver while the console is enabled. Please stop the \
             console first.",
            old.id
        )));
    }
    Ok(())
}
