//! Allocations: reservations of a node of a resource class. The rack selects the node; this module
//! validates the request.

use serde_json::{Value, json};
use trivet_model::ResourceId;

use super::{
    ApiRoute, Column, Field, LIST_QUERY_ARGS, ListKind, Resource, ResourceKind, ResourceSpec,
    ValueShape, write,
};
use super::{
    allow_delete, created, crud, items, links, name, node, object, stored_field, updated, uuid,
};
use crate::ApiOutcome;
use crate::ironic::nodes::traits;
use crate::ironic::nodes::write::CLASS_CHARS_MAX;
use crate::table::body;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::{self, FieldWrite, columns, field};
use crate::table::route::{ApiArg, BodySchema, arg};
use FieldWrite::{Always, AtCreation, Never};

const FIELDS: &[Field<Resource>] = &[
    field("candidate_nodes", 52, ValueShape::List, AtCreation, items),
    field("created_at", 52, ValueShape::Text, Never, created),
    field("extra", 52, ValueShape::Object, Always, object),
    field("last_error", 52, ValueShape::Text, Never, stored_field),
    field("links", 52, ValueShape::Links, Never, links),
    field("name", 52, ValueShape::Text, Always, name),
    field("node_uuid", 52, ValueShape::Uuid, Never, node),
    field("owner", 60, ValueShape::Text, AtCreation, stored_field),
    field(
        "resource_class",
        52,
        ValueShape::Text,
        AtCreation,
        stored_field,
    ),
    field("state", 52, ValueShape::Text, Never, stored_field),
    field("traits", 52, ValueShape::List, AtCreation, items),
    field("updated_at", 52, ValueShape::Text, Never, updated),
    field("uuid", 52, ValueShape::Uuid, AtCreation, uuid),
];

fn all() -> Vec<Column> {
    columns(FIELDS)
}

/// The fields of a creation: also the node of an existing instance (backfill).
fn taken() -> Vec<Column> {
    let node = Column {
        name: "node",
        since: 58,
        shape: ValueShape::Text,
        write: AtCreation,
    };
    columns(FIELDS).into_iter().chain([node]).collect()
}

pub(crate) const SPEC: ResourceSpec = ResourceSpec {
    kind: ResourceKind::Allocation,
    path: "allocations",
    by_name: true,
    list: ListKind {
        name: "allocations",
        table: FIELDS,
        short: &[
            "uuid",
            "name",
            "node_uuid",
            "resource_class",
            "state",
            "traits",
            "candidate_nodes",
            "last_error",
            "extra",
            "owner",
            "links",
            "created_at",
            "updated_at",
        ],
        detail_of_all_versions: false,
    },
    required: &[],
    check,
    passes,
    // The rack refuses while the node is in use.
    check_deletable: allow_delete,
};

const FILTERS: &[ApiArg] = &[
    arg("node", 52, ValueShape::Text),
    arg("resource_class", 52, ValueShape::Text),
    arg("state", 52, ValueShape::Text),
    arg("owner", 60, ValueShape::Text),
];

const fn rows() -> [ApiRoute; 5] {
    let [list, make, show, mut change, remove] = crud(
        &["v1", "allocations"],
        &["v1", "allocations", "{allocation}"],
        52,
        "allocations",
        all,
        &[LIST_QUERY_ARGS, FILTERS],
    );
    let mut make = make.body(BodySchema::Record(taken));
    make.answer = create;
    change.since = 57;
    [list, make, show, change, remove]
}

pub(crate) const ROUTES: &[ApiRoute] = &rows();

fn create(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let mut document = body::object(call)?;
    let kind = ResourceKind::Allocation;
    let mut allocation = Resource::new(ResourceId(call.new_id()), kind, call.now);
    match document.remove("node") {
        None | Some(Value::Null) => {}
        Some(_) if !call.has(58) => {
            return Err(ApiFault::bad(
                "Schema error: Additional properties are not allowed ('node' was unexpected): \
                 node needs API version 1.58 or newer.",
            ));
        }
        Some(Value::String(ident)) => {
            let id = write::owner(call, &ident)?;
            allocation.node = Some(id);
            let node = &call.node(&id.to_string())?.node;
            // The existing instance is the one that is allocated.
            let instance = node.instance_uuid.as_deref();
            if let Some(instance) = instance.and_then(|text| text.parse().ok()) {
                allocation.id = instance;
            }
            if let Some(class) = &node.resource_class {
                let class = json!(class);
                allocation.fields.insert("resource_class".into(), class);
            }
        }
        Some(_) => return Err(ApiFault::bad("node must be a string.")),
    }
    write::make(call, &SPEC, document, allocation)
}

/// The answer to a creation is as in Ironic, which chooses the node afterwards: clients wait until
/// the state is another one. Here the choice is part of the creation, so that the first read has
/// its result. A backfill has chosen already.
pub(super) fn show_as_begun(call: &ApiCall<'_>, shown: &mut Value) {
    let body = body::object(call).unwrap_or_default();
    if body.get("node").is_none_or(Value::is_null) {
        shown["state"] = json!("allocating");
        for name in ["node_uuid", "last_error", "updated_at"] {
            shown[name] = Value::Null;
        }
    }
}

fn check(
    call: &ApiCall<'_>,
    old: Option<&Resource>,
    allocation: &mut Resource,
) -> Result<(), ApiFault> {
    super::check_name(old, allocation)?;
    if old.is_some() {
        return Ok(());
    }
    match allocation.text("resource_class") {
        None | Some("") => {
            return Err(ApiFault::bad(
                "The resource_class field is mandatory when not backfilling",
            ));
        }
        Some(class) if field::is_longer(class, CLASS_CHARS_MAX) => {
            return Err(field::too_long("resource_class", class, CLASS_CHARS_MAX));
        }
        Some(_) => {}
    }
    for wanted in texts(allocation, "traits")? {
        traits::checked(&wanted)?;
    }
    let mut candidates = Vec::new();
    for ident in texts(allocation, "candidate_nodes")? {
        let node = call.view.node(&ident).ok_or_else(|| {
            let ident = ident.escape_debug();
            ApiFault::bad(format!("Nodes cannot be found: {ident}"))
        })?;
        candidates.push(node.node.id.to_string());
    }
    let candidates = json!(candidates);
    allocation
        .fields
        .insert("candidate_nodes".into(), candidates);
    Ok(())
}

fn texts(allocation: &Resource, name: &str) -> Result<Vec<String>, ApiFault> {
    let stored = allocation.fields.get(name).and_then(Value::as_array);
    let items = stored.into_iter().flatten();
    items
        .map(|item| item.as_str().map(str::to_owned))
        .collect::<Option<_>>()
        .ok_or_else(|| ApiFault::bad(format!("{name} must be a list of strings.")))
}

fn passes(call: &ApiCall<'_>, allocation: &Resource) -> Result<bool, ApiFault> {
    if let Some(ident) = call.query.last("node")
        && allocation.node != Some(write::owner(call, ident)?)
    {
        return Ok(false);
    }
    Ok(["resource_class", "state", "owner"].iter().all(|name| {
        let wanted = call.query.last(name);
        wanted.is_none() || wanted == allocation.text(name)
    }))
}
