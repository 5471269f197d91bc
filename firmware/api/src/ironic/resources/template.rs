//! Deploy templates: steps that a deployment runs if the instance has a trait.

use super::{
    ApiRoute, Column, Field, LIST_QUERY_ARGS, ListKind, Resource, ResourceKind, ResourceSpec,
    ValueShape,
};
use super::{
    admin_only, allow_delete, created, crud, links, name, object, pass_all, steps, updated, uuid,
};
use crate::ironic::nodes::traits;
use crate::table::field::{FieldWrite, columns, field};
use FieldWrite::{Always, AtCreation, Never};

const FIELDS: &[Field<Resource>] = &[
    field("created_at", 55, ValueShape::Text, Never, created),
    field("extra", 55, ValueShape::Object, Always, object),
    field("links", 55, ValueShape::Links, Never, links),
    field("name", 55, ValueShape::Text, Always, name),
    field("steps", 55, ValueShape::List, Always, steps::shown),
    field("updated_at", 55, ValueShape::Text, Never, updated),
    field("uuid", 55, ValueShape::Uuid, AtCreation, uuid),
];

fn all() -> Vec<Column> {
    columns(FIELDS)
}

pub(crate) const SPEC: ResourceSpec = ResourceSpec {
    kind: ResourceKind::DeployTemplate,
    path: "deploy_templates",
    by_name: true,
    list: ListKind {
        name: "deploy_templates",
        table: FIELDS,
        short: &["uuid", "name", "links"],
        detail_of_all_versions: false,
    },
    required: &["name", "steps"],
    check: |_, _, template| {
        super::check_not_empty("template", template)?;
        traits::checked(template.name.as_deref().unwrap_or_default())?;
        steps::check(template)
    },
    passes: pass_all,
    check_deletable: allow_delete,
};

pub(crate) const ROUTES: &[ApiRoute] = &admin_only(crud(
    &["v1", "deploy_templates"],
    &["v1", "deploy_templates", "{template}"],
    55,
    "deploy_templates",
    all,
    &[LIST_QUERY_ARGS],
));
