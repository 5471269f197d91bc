//! Deploy templates: steps a deployment runs when the instance has a trait.

use super::{Column, Field, Kind, LIST_ASKS, Resource, ResourceKind, Route, Shape, Spec};
use super::{created, crud, every, freely, guarded, links, name, object, steps, updated, uuid};
use crate::field::{Write, columns, field};
use crate::nodes::traits;
use Write::{Always, AtCreation, Never};

const FIELDS: &[Field<Resource>] = &[
    field("created_at", 55, Shape::Text, Never, created),
    field("extra", 55, Shape::Object, Always, object),
    field("links", 55, Shape::Links, Never, links),
    field("name", 55, Shape::Text, Always, name),
    field("steps", 55, Shape::List, Always, steps::shown),
    field("updated_at", 55, Shape::Text, Never, updated),
    field("uuid", 55, Shape::Uuid, AtCreation, uuid),
];

fn all() -> Vec<Column> {
    columns(FIELDS)
}

pub(crate) const SPEC: Spec = Spec {
    kind: ResourceKind::DeployTemplate,
    path: "deploy_templates",
    by_name: true,
    list: Kind {
        name: "deploy_templates",
        table: FIELDS,
        short: &["uuid", "name", "links"],
    },
    required: &["name", "steps"],
    check: |_, _, template| {
        traits::checked(template.name.as_deref().unwrap_or_default())?;
        steps::check(template)
    },
    passes: every,
    may_go: freely,
};

pub(crate) const ROUTES: &[Route] = &guarded(crud(
    &["v1", "deploy_templates"],
    &["v1", "deploy_templates", "{template}"],
    55,
    "deploy_templates",
    all,
    &[LIST_ASKS],
));
