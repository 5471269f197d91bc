//! Chassis: groups of nodes, with a description.

use super::{
    ApiRoute, Column, Field, LIST_QUERY_ARGS, ListKind, Resource, ResourceKind, ResourceSpec,
    ValueShape,
};
use super::{created, crud, detailed, links, object, pass_all, stored_field, updated, uuid};
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::{FieldWrite, columns, field};
use crate::table::route::ResponseSchema;
use FieldWrite::{Always, AtCreation, Never};
use trivet_model::index::{IndexRange, NodeKey};

const FIELDS: &[Field<Resource>] = &[
    field("created_at", 1, ValueShape::Text, Never, created),
    field("description", 1, ValueShape::Text, Always, stored_field),
    field("extra", 1, ValueShape::Object, Always, object),
    field("links", 1, ValueShape::Links, Never, links),
    field("nodes", 1, ValueShape::Links, Never, |resource, call, _| {
        call.links(&format!("chassis/{}/nodes", resource.id))
    }),
    field("updated_at", 1, ValueShape::Text, Never, updated),
    field("uuid", 1, ValueShape::Uuid, AtCreation, uuid),
];

fn all() -> Vec<Column> {
    columns(FIELDS)
}

pub(crate) const SPEC: ResourceSpec = ResourceSpec {
    kind: ResourceKind::Chassis,
    path: "chassis",
    by_name: false,
    list: ListKind {
        name: "chassis",
        table: FIELDS,
        short: &["uuid", "description", "links"],
        detail_of_all_versions: false,
    },
    required: &[],
    check: |_, _, _| Ok(()),
    passes: pass_all,
    check_deletable: is_empty,
};

const fn rows() -> [ApiRoute; 6] {
    let [list, make, show, change, remove] = crud(
        &["v1", "chassis"],
        &["v1", "chassis", "{chassis}"],
        1,
        "chassis",
        all,
        &[LIST_QUERY_ARGS],
    );
    let detail = ApiRoute::get(
        &["v1", "chassis", "detail"],
        1,
        "List them with every field",
        detailed,
    )
    .query_args(&[LIST_QUERY_ARGS])
    .response(ResponseSchema::List("chassis", all));
    [list, make, detail, show, change, remove]
}

pub(crate) const ROUTES: &[ApiRoute] = &rows();

fn is_empty(call: &ApiCall<'_>, chassis: &Resource) -> Result<(), ApiFault> {
    let id = chassis.id.to_string();
    let span = IndexRange::Value(Some(&id));
    let mut held = call
        .view
        .nodes
        .walk(NodeKey::ChassisUuid, span, None, false);
    if held.next().is_some() {
        return Err(ApiFault::bad(format!(
            "Cannot complete the requested action because chassis {id} contains nodes."
        )));
    }
    Ok(())
}
