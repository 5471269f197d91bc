//! Volume connectors and targets: the two sides of a volume a node boots from.
//! They are kept and served; this box attaches no volumes.

use serde_json::{Value, json};
use trivet_model::secret::masked;
use trivet_model::{Node, PowerState, ProvisionState};

use super::{Column, Field, Kind, LIST_ASKS, NODE_ASK, Resource, ResourceKind, Route, Shape, Spec};
use super::{created, crud, kept, links, node, object, of_node, updated, uuid};
use crate::Outcome;
use crate::call::{Call, reply};
use crate::error::Fault;
use crate::field::{Write, columns, field};
use Write::{Always, AtCreation, Never};

const CONNECTOR_FIELDS: &[Field<Resource>] = &[
    field("connector_id", 32, Shape::Text, Always, kept),
    field("created_at", 32, Shape::Text, Never, created),
    field("extra", 32, Shape::Object, Always, object),
    field("links", 32, Shape::Links, Never, links),
    field("node_uuid", 32, Shape::Uuid, Always, node),
    field("type", 32, Shape::Text, Always, kept),
    field("updated_at", 32, Shape::Text, Never, updated),
    field("uuid", 32, Shape::Uuid, AtCreation, uuid),
];

fn connector_columns() -> Vec<Column> {
    columns(CONNECTOR_FIELDS)
}

pub(crate) const CONNECTOR: Spec = Spec {
    kind: ResourceKind::VolumeConnector,
    path: "volume/connectors",
    by_name: false,
    list: Kind {
        name: "connectors",
        table: CONNECTOR_FIELDS,
        short: &["uuid", "node_uuid", "type", "connector_id", "links"],
    },
    required: &["node_uuid", "type", "connector_id"],
    check: |call, old, connector| check_off(call, old, connector),
    passes: of_node,
    may_go,
};

const TARGET_FIELDS: &[Field<Resource>] = &[
    field("boot_index", 32, Shape::Number, Always, kept),
    field("created_at", 32, Shape::Text, Never, created),
    field("extra", 32, Shape::Object, Always, object),
    field("links", 32, Shape::Links, Never, links),
    field("node_uuid", 32, Shape::Uuid, Always, node),
    field(
        "properties",
        32,
        Shape::Object,
        Always,
        |target, _, name| {
            let kept = target.fields.get(name).and_then(Value::as_object);
            json!(kept.map(masked).unwrap_or_default())
        },
    ),
    field("updated_at", 32, Shape::Text, Never, updated),
    field("uuid", 32, Shape::Uuid, AtCreation, uuid),
    field("volume_id", 32, Shape::Text, Always, kept),
    field("volume_type", 32, Shape::Text, Always, kept),
];

fn target_columns() -> Vec<Column> {
    columns(TARGET_FIELDS)
}

pub(crate) const TARGET: Spec = Spec {
    kind: ResourceKind::VolumeTarget,
    path: "volume/targets",
    by_name: false,
    list: Kind {
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
    },
    required: &["node_uuid", "volume_type", "boot_index", "volume_id"],
    check: |call, old, target| {
        if target
            .fields
            .get("boot_index")
            .and_then(Value::as_i64)
            .is_none()
        {
            return Err(Fault::bad("boot_index must be a whole number."));
        }
        check_off(call, old, target)
    },
    passes: of_node,
    may_go,
};

const fn rows() -> [Route; 11] {
    let [list, make, show, change, remove] = crud(
        &["v1", "volume", "connectors"],
        &["v1", "volume", "connectors", "{connector}"],
        32,
        "connectors",
        connector_columns,
        &[LIST_ASKS, NODE_ASK],
    );
    let [list2, make2, show2, change2, remove2] = crud(
        &["v1", "volume", "targets"],
        &["v1", "volume", "targets", "{target}"],
        32,
        "targets",
        target_columns,
        &[LIST_ASKS, NODE_ASK],
    );
    let root = Route::get(&["v1", "volume"], 32, "Where volumes are", volume);
    [
        root, list, make, show, change, remove, list2, make2, show2, change2, remove2,
    ]
}

pub(crate) const ROUTES: &[Route] = &rows();

fn volume(call: &Call<'_>) -> Result<Outcome, Fault> {
    reply(&json!({
        "links": call.links("volume/"),
        "connectors": call.links("volume/connectors"),
        "targets": call.links("volume/targets"),
    }))
}

/// A running machine may use its volumes: they change while it is off.
fn check_off(call: &Call<'_>, old: Option<&Resource>, new: &Resource) -> Result<(), Fault> {
    let Some(old) = old else { return Ok(()) };
    for resource in [old, new] {
        super::node_is_free(call, resource)?;
        if let Some(node) = owner(call, resource).filter(|node| !is_off(node)) {
            return Err(in_use(node, resource, "update"));
        }
    }
    Ok(())
}

fn may_go(call: &Call<'_>, resource: &Resource) -> Result<(), Fault> {
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

fn owner<'a>(call: &Call<'a>, resource: &Resource) -> Option<&'a Node> {
    let view = call.view.nodes.get(&resource.node?)?;
    Some(&view.node)
}

fn is_off(node: &Node) -> bool {
    node.power_state == Some(PowerState::Off)
}

fn in_use(node: &Node, resource: &Resource, action: &str) -> Fault {
    let power = node.power_state.map_or("None", |state| state.as_str());
    Fault::bad(format!(
        "The requested action \"{} {action}\" can not be performed on node \"{}\" while it is in \
         state \"{power}\". Switch it off first.",
        resource.kind.noun(),
        node.id
    ))
}
