//! Volume connectors and targets: the two ends of a volume that a node boots from. They are stored
//! and shown; this box attaches no volumes.

use serde_json::{Value, json};
use trivet_model::secret::masked;
use trivet_model::{Node, PowerState, ProvisionState};

use super::{
    ApiRoute, Column, Field, LIST_QUERY_ARGS, ListKind, NODE_QUERY_ARGS, Resource, ResourceKind,
    ResourceSpec, ValueShape,
};
use super::{created, crud, links, node, object, of_node, stored_field, updated, uuid};
use crate::ApiOutcome;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::{FieldWrite, columns, field, quoted};
use FieldWrite::{Always, AtCreation, Never};

const CONNECTOR_FIELDS: &[Field<Resource>] = &[
    field("connector_id", 32, ValueShape::Text, Always, stored_field),
    field("created_at", 32, ValueShape::Text, Never, created),
    field("extra", 32, ValueShape::Object, Always, object),
    field("links", 32, ValueShape::Links, Never, links),
    field("node_uuid", 32, ValueShape::Uuid, Always, node),
    field("type", 32, ValueShape::Text, Always, stored_field),
    field("updated_at", 32, ValueShape::Text, Never, updated),
    field("uuid", 32, ValueShape::Uuid, AtCreation, uuid),
];

fn connector_columns() -> Vec<Column> {
    columns(CONNECTOR_FIELDS)
}

pub(crate) const CONNECTOR: ResourceSpec = ResourceSpec {
    kind: ResourceKind::VolumeConnector,
    path: "volume/connectors",
    by_name: false,
    list: ListKind {
        name: "connectors",
        table: CONNECTOR_FIELDS,
        short: &["uuid", "node_uuid", "type", "connector_id", "links"],
        detail_of_all_versions: false,
    },
    required: &["node_uuid", "type", "connector_id"],
    check: |call, old, connector| check_off(call, old, connector),
    passes: of_node,
    check_deletable,
};

const TARGET_FIELDS: &[Field<Resource>] = &[
    field("boot_index", 32, ValueShape::Integer, Always, stored_field),
    field("created_at", 32, ValueShape::Text, Never, created),
    field("extra", 32, ValueShape::Object, Always, object),
    field("links", 32, ValueShape::Links, Never, links),
    field("node_uuid", 32, ValueShape::Uuid, Always, node),
    field(
        "properties",
        32,
        ValueShape::Object,
        Always,
        |target, _, name| {
            let stored = target.fields.get(name).and_then(Value::as_object);
            json!(stored.map(masked).unwrap_or_default())
        },
    ),
    field("updated_at", 32, ValueShape::Text, Never, updated),
    field("uuid", 32, ValueShape::Uuid, AtCreation, uuid),
    field("volume_id", 32, ValueShape::Text, Always, stored_field),
    field("volume_type", 32, ValueShape::Text, Always, stored_field),
];

fn target_columns() -> Vec<Column> {
    columns(TARGET_FIELDS)
}

pub(crate) const TARGET: ResourceSpec = ResourceSpec {
    kind: ResourceKind::VolumeTarget,
    path: "volume/targets",
    by_name: false,
    list: ListKind {
        name: "targets",
        table: TARGET_FIELDS,
        short: &[
            "uuid",
            "node_uuid",
            "volume_type",
            "boot_index",
            "volume_id",
            "links",
        ],
        detail_of_all_versions: false,
    },
    required: &["node_uuid", "volume_type", "boot_index", "volume_id"],
    check: |call, old, target| {
        let index = target.fields.get("boot_index").unwrap_or(&Value::Null);
        if !index.is_i64() {
            return Err(ApiFault::bad(format!(
                "Schema error for target: {} is not of type 'integer': boot_index must be a whole \
                 number.",
                quoted(index)
            )));
        }
        check_off(call, old, target)
    },
    passes: of_node,
    check_deletable,
};

const fn rows() -> [ApiRoute; 11] {
    let [list, make, show, change, remove] = crud(
        &["v1", "volume", "connectors"],
        &["v1", "volume", "connectors", "{connector}"],
        32,
        "connectors",
        connector_columns,
        &[LIST_QUERY_ARGS, NODE_QUERY_ARGS],
    );
    let [list2, make2, show2, change2, remove2] = crud(
        &["v1", "volume", "targets"],
        &["v1", "volume", "targets", "{target}"],
        32,
        "targets",
        target_columns,
        &[LIST_QUERY_ARGS, NODE_QUERY_ARGS],
    );
    let root = ApiRoute::get(
        &["v1", "volume"],
        32,
        "Show the links to volume resources",
        volume,
    );
    [
        root, list, make, show, change, remove, list2, make2, show2, change2, remove2,
    ]
}

pub(crate) const ROUTES: &[ApiRoute] = &rows();

fn volume(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    reply(&json!({
        "links": call.links("volume/"),
        "connectors": call.links("volume/connectors"),
        "targets": call.links("volume/targets"),
    }))
}

/// A running machine may use its volumes: they can be changed only while it is off.
fn check_off(call: &ApiCall<'_>, old: Option<&Resource>, new: &Resource) -> Result<(), ApiFault> {
    let Some(old) = old else { return Ok(()) };
    for resource in [old, new] {
        super::node_is_free(call, resource)?;
        if let Some(node) = owner(call, resource).filter(|node| !is_off(node)) {
            return Err(in_use(node, resource, "update"));
        }
    }
    Ok(())
}

fn check_deletable(call: &ApiCall<'_>, resource: &Resource) -> Result<(), ApiFault> {
    use ProvisionState as S;
    super::node_is_free(call, resource)?;
    match owner(call, resource) {
        Some(node)
            if !is_off(node)
                && !matches!(
                    node.provision_state,
                    S::Manageable | S::Enroll | S::AdoptFail
                ) =>
        {
            Err(in_use(node, resource, "deletion"))
        }
        _ => Ok(()),
    }
}

fn owner<'a>(call: &ApiCall<'a>, resource: &Resource) -> Option<&'a Node> {
    let view = call.view.nodes.get(&resource.node?)?;
    Some(&view.node)
}

fn is_off(node: &Node) -> bool {
    node.power_state == Some(PowerState::Off)
}

fn in_use(node: &Node, resource: &Resource, action: &str) -> ApiFault {
    let power = node.power_state.map_or("None", |state| state.as_str());
    ApiFault::bad(format!(
        "The requested action \"{} {action}\" can not be performed on node \"{}\" while it is in \
         state \"{power}\". Switch it off first.",
        resource.kind.noun(),
        node.id
    ))
}
