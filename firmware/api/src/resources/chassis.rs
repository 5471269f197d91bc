//! Chassis: places for nodes, with a description.

use super::{Column, Field, Kind, LIST_ASKS, Resource, ResourceKind, Route, Shape, Spec};
use super::{anything, created, crud, detailed, every, kept, links, object, updated, uuid};
use crate::field::{Write, columns, field};
use crate::route::Gives;
use Write::{Always, AtCreation, Never};

const FIELDS: &[Field<Resource>] = &[
    field("created_at", 1, Shape::Text, Never, created),
    field("description", 1, Shape::Text, Always, kept),
    field("extra", 1, Shape::Object, Always, object),
    field("links", 1, Shape::Links, Never, links),
    field("nodes", 1, Shape::Links, Never, |resource, call, _| {
        call.links(&format!("chassis/{}/nodes", resource.id))
    }),
    field("updated_at", 1, Shape::Text, Never, updated),
    field("uuid", 1, Shape::Uuid, AtCreation, uuid),
];

fn all() -> Vec<Column> {
    columns(FIELDS)
}

pub(crate) const SPEC: Spec = Spec {
    kind: ResourceKind::Chassis,
    path: "chassis",
    noun: "Chassis",
    list: Kind {
        name: "chassis",
        table: FIELDS,
        short: &["uuid", "description", "links"],
    },
    required: &[],
    check: anything,
    passes: every,
};

const fn rows() -> [Route; 6] {
    let [list, make, show, change, remove] = crud(
        &["v1", "chassis"],
        &["v1", "chassis", "{chassis}"],
        1,
        "chassis",
        all,
        &[LIST_ASKS],
    );
    let detail = Route::get(
        &["v1", "chassis", "detail"],
        1,
        "List them with every field",
        detailed,
    )
    .asks(&[LIST_ASKS])
    .gives(Gives::List("chassis", all));
    [list, make, detail, show, change, remove]
}

pub(crate) const ROUTES: &[Route] = &rows();
