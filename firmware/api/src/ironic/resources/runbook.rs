//! Runbooks: clean and service steps by name, and the traits of the nodes they apply to.

use serde_json::{Value, json};

use super::{
    ApiRoute, Column, Field, LIST_QUERY_ARGS, ListKind, Resource, ResourceKind, ResourceSpec,
    ValueShape, write,
};
use super::{
    admin_only, allow_delete, created, crud, flag, items, links, name, object, pass_all, steps,
    stored_field,
};
use super::{updated, uuid};
use crate::ApiOutcome;
use crate::ironic::nodes::traits::{self, TRAITS_MAX};
use crate::table::access::Access;
use crate::table::call::{ApiCall, empty, reply};
use crate::table::error::ApiFault;
use crate::table::field::{FieldWrite, columns, field, quoted};
use crate::table::route::{ApiArg, BodySchema, required};
use FieldWrite::{Always, AtCreation, Never};

const FIELDS: &[Field<Resource>] = &[
    field("created_at", 92, ValueShape::Text, Never, created),
    field("description", 112, ValueShape::Text, Always, stored_field),
    field("disable_ramdisk", 92, ValueShape::Boolean, Always, flag),
    field("extra", 92, ValueShape::Object, Always, object),
    field("links", 92, ValueShape::Links, Never, links),
    field("name", 92, ValueShape::Text, Always, name),
    field("owner", 92, ValueShape::Text, Always, stored_field),
    field("public", 92, ValueShape::Boolean, Always, flag),
    field("steps", 92, ValueShape::List, Always, steps::shown),
    field("traits", 112, ValueShape::List, Never, items),
    field("updated_at", 92, ValueShape::Text, Never, updated),
    field("uuid", 92, ValueShape::Uuid, AtCreation, uuid),
];

fn all() -> Vec<Column> {
    columns(FIELDS)
}

pub(crate) const SPEC: ResourceSpec = ResourceSpec {
    kind: ResourceKind::Runbook,
    path: "runbooks",
    by_name: true,
    list: ListKind {
        name: "runbooks",
        table: FIELDS,
        short: &["uuid", "name", "links"],
        detail_of_all_versions: false,
    },
    required: &["name", "steps"],
    check,
    passes: pass_all,
    check_deletable: allow_delete,
};

const TRAITS: &[ApiArg] = &[required("traits", 112, ValueShape::List)];

const fn rows() -> [ApiRoute; 10] {
    let [list, make, show, change, remove] = admin_only(crud(
        &["v1", "runbooks"],
        &["v1", "runbooks", "{runbook}"],
        92,
        "runbooks",
        all,
        &[LIST_QUERY_ARGS],
    ));
    let path = &["v1", "runbooks", "{runbook}", "traits"];
    let one = &["v1", "runbooks", "{runbook}", "traits", "{trait}"];
    let admin = Access::Admin;
    [
        list,
        make,
        show,
        change,
        remove,
        ApiRoute::get(path, 112, "List its traits", |call| {
            let traits = present(SPEC.named(call, call.word(2))?);
            reply(&json!({ "traits": traits }))
        }),
        ApiRoute::new("PUT", path, 112, "Set its traits", set_traits)
            .body(BodySchema::Args(TRAITS))
            .for_(admin),
        ApiRoute::new("DELETE", path, 112, "Remove all its traits", |call| {
            keep(call, Vec::new(), None)
        })
        .for_(admin),
        ApiRoute::new("PUT", one, 112, "Add a trait", add_trait).for_(admin),
        ApiRoute::new("DELETE", one, 112, "Remove a trait", |call| {
            let mut traits = present(SPEC.named(call, call.word(2))?);
            traits.retain(|present| present != call.last());
            keep(call, traits, None)
        })
        .for_(admin),
    ]
}

pub(crate) const ROUTES: &[ApiRoute] = &rows();

/// Names must be traits until the version in which a runbook has traits of its own.
fn check(
    call: &ApiCall<'_>,
    old: Option<&Resource>,
    runbook: &mut Resource,
) -> Result<(), ApiFault> {
    super::check_not_empty("runbook", runbook)?;
    let renamed = old.is_none_or(|old| old.name != runbook.name);
    if call.has(112) {
        let name = runbook.name.as_deref().unwrap_or_default();
        if !super::is_logical_name(name) {
            return Err(ApiFault::bad(format!(
                "Schema error for runbook: {} does not match '^[A-Za-z0-9\\-._~]+$': it is an \
                 invalid name",
                quoted(&Value::from(name))
            )));
        }
    } else if renamed {
        traits::checked(runbook.name.as_deref().unwrap_or_default())?;
    }
    check_owner(old, runbook)?;
    steps::check(runbook)
}

/// A public runbook has no owner.
fn check_owner(old: Option<&Resource>, runbook: &mut Resource) -> Result<(), ApiFault> {
    let public = |runbook: &Resource| runbook.fields.get("public") == Some(&Value::Bool(true));
    if !public(runbook) || runbook.text("owner").is_none() {
        return Ok(());
    }
    let published =
        old.is_some_and(|old| !public(old) && old.text("owner") == runbook.text("owner"));
    if published {
        runbook.fields.remove("owner");
        return Ok(());
    }
    let why = "There cannot be an owner for a public runbook";
    Err(ApiFault::bad(match old {
        None => why.to_owned(),
        Some(_) => format!("Couldn't apply patch to '/owner'. Reason: {why}"),
    }))
}

fn present(runbook: &Resource) -> Vec<String> {
    let stored = runbook.fields.get("traits").and_then(Value::as_array);
    let texts = stored.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn set_traits(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    keep(call, traits::whole(call, "runbook")?, None)
}

fn add_trait(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let (ident, name) = (call.word(2), call.last());
    let mut traits = present(SPEC.named(call, ident)?);
    traits::without_body(call)?;
    traits::checked(name)?;
    traits.push(name.to_owned());
    let location = call.location(&format!("runbooks/{ident}/traits/{name}"));
    keep(call, traits, Some(location))
}

fn keep(
    call: &ApiCall<'_>,
    mut traits: Vec<String>,
    location: Option<String>,
) -> Result<ApiOutcome, ApiFault> {
    let old = SPEC.named(call, call.word(2))?;
    traits.sort_unstable();
    traits.dedup();
    if traits.len() > TRAITS_MAX {
        return Err(ApiFault::bad(format!(
            "A runbook has at most {TRAITS_MAX} traits."
        )));
    }
    let mut runbook = old.clone();
    runbook.fields.insert("traits".into(), json!(traits));
    write::replace(old, runbook, empty(204, location))
}
