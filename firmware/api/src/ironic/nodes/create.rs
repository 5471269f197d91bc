//! `POST /v1/nodes`.

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{Node, NodeId, ProvisionState, RackOrder};

use super::fields::FIELDS;
use super::write;
use crate::table::body;
use crate::table::call::{ApiCall, order};
use crate::table::error::ApiFault;
use crate::table::field::quoted;
use crate::{ApiOutcome, ResponsePlan};

pub(crate) fn create(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let mut document = body::object(call)?;
    if let Some(other) = document.get("driver").filter(|value| !value.is_string()) {
        return Err(ApiFault::bad(format!(
            "Schema error for node: {} is not of type 'string': driver must be a string.",
            quoted(other)
        )));
    }
    for (name, value) in &document {
        let field = FIELDS
            .iter()
            .find(|field| field.name == name && field.at_creation());
        let Some(field) = field else {
            return Err(ApiFault::bad(format!(
                "Schema error for node: Additional properties are not allowed ('{}' was \
                 unexpected)",
                name.escape_debug()
            )));
        };
        // Its default is accepted at every version.
        let default = field.name == "conductor_group" && *value == "";
        if !call.has(field.since) && !default && !value.is_null() {
            return Err(ApiFault::too_new(field.name, field.since));
        }
    }
    // An empty class is none, as in Ironic.
    document.retain(|name, value| !value.is_null() && (name != "resource_class" || *value != ""));
    if !document.get("driver").is_some_and(Value::is_string) {
        return Err(ApiFault::bad(
            "Schema error for node: 'driver' is a required property",
        ));
    }
    let mut node = Node::new(NodeId(call.new_id()), "", call.now);
    write::read(call, document, &mut node)?;
    // Clients older than the state `enroll` expect that a new node can be deployed.
    if !call.has(11) {
        node.provision_state = ProvisionState::Available;
    }
    if call.view.nodes.contains_key(&node.id) {
        return Err(ApiFault::conflict(format!(
            "A node with UUID {} already exists.",
            node.id
        )));
    }
    write::check(call, &node)?;
    write::check_driver_info(call, &JsonObject::new(), &node)?;
    let id = node.id;
    order(
        RackOrder::CreateNode(Box::new(node)),
        ResponsePlan::Node { id, created: true },
    )
}
