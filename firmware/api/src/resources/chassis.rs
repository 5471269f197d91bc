//! Chassis: places for nodes, with a description.

use super::{Column, Field, Kind, LIST_ASKS, Resource, ResourceKind, Route, Shape, Spec};
use super::{created, crud, detailed, every, kept, links, object, updated, uuid};
use crate::call::Call;
use crate::error::Fault;
use crate::field::{Write, columns, field};
use crate::route::Gives;
use Write::{Always, AtCreation, Never};
use trivet_model::index::{NodeKey, Span};

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
    by_name: false,
    list: Kind {
        name: "chassis",
        table: FIELDS,
        short: &["uuid", "description", "links"],
    },
    required: &[],
    check: |_, _, _| Ok(()),
    passes: every,
    may_go: is_empty,
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

fn is_empty(call: &Call<'_>, chassis: &Resource) -> Result<(), Fault> {
    let id = chassis.id.to_string();
    let span = Span::Value(Some(&id));
    let mut held = call
        .view
        .nodes
        .walk(NodeKey::ChassisUuid, span, None, false);
    if held.next().is_some() {
        return Err(Fault::bad(format!(
            "Cannot complete the requested action because chassis {id} contains nodes."
        )));
    }
    Ok(())
}
