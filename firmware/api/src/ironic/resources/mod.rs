//! Ironic's smaller resources: chassis, portgroups, allocations, deploy templates, runbooks,
//! inspection rules, volume connectors and targets.
//!
//! They are created, listed, shown, patched and deleted in the same way; the differences are in one
//! [`ResourceSpec`] per kind: its fields, and the checks of a record.

mod allocation;
mod chassis;
mod node_resources;
mod portgroup;
pub(crate) mod rule;
mod runbook;
mod steps;
mod template;
#[cfg(test)]
mod tests;
mod volume;
mod write;

use serde_json::{Value, json};
use trivet_model::{RackOrder, Resource, ResourceId, ResourceKind};

use crate::ironic::{nodes, ports};
use crate::table::access::Access;
use crate::table::call::{ApiCall, empty, order, reply};
use crate::table::error::ApiFault;
use crate::table::field::{self, Column, Field, ValueShape, timestamp};
use crate::table::list::{self, LIST_QUERY_ARGS, ListKind, ListRecord, RecordWalk};
use crate::table::route::{ApiArg, ApiRoute, BodySchema, Columns, ResponseSchema, arg};
use crate::{ApiOutcome, Response};

pub(crate) use allocation::ROUTES as ALLOCATIONS;
pub(crate) use chassis::ROUTES as CHASSIS;
pub(crate) use node_resources::ROUTES as BELOW;
pub(crate) use portgroup::ROUTES as PORTGROUPS;
pub(crate) use rule::ROUTES as RULES;
pub(crate) use runbook::ROUTES as RUNBOOKS;
pub(crate) use template::ROUTES as TEMPLATES;
pub(crate) use volume::ROUTES as VOLUME;

/// The properties of one kind of resource.
pub(crate) struct ResourceSpec {
    pub(crate) kind: ResourceKind,
    /// Its path, below `/v1`.
    pub(crate) path: &'static str,
    /// Whether paths can contain its name instead of its UUID.
    pub(crate) by_name: bool,
    pub(crate) list: ListKind<Resource>,
    /// Required fields.
    pub(crate) required: &'static [&'static str],
    /// Refuses an invalid record, and converts a valid one to its stored form. Has the record
    /// before a change, if there is one.
    pub(crate) check: fn(&ApiCall<'_>, Option<&Resource>, &mut Resource) -> Result<(), ApiFault>,
    /// Whether the record passes the query's filters.
    pub(crate) passes: fn(&ApiCall<'_>, &Resource) -> Result<bool, ApiFault>,
    /// Refuses to delete a record that is in use.
    pub(crate) check_deletable: fn(&ApiCall<'_>, &Resource) -> Result<(), ApiFault>,
}

const SPECS: [&ResourceSpec; 8] = [
    &chassis::SPEC,
    &portgroup::SPEC,
    &allocation::SPEC,
    &template::SPEC,
    &runbook::SPEC,
    &rule::SPEC,
    &volume::CONNECTOR,
    &volume::TARGET,
];

/// The argument that limits a list to one node.
const NODE_QUERY_ARGS: &[ApiArg] = &[arg("node", 1, ValueShape::Text)];

impl ListRecord for Resource {
    fn uuid(&self) -> String {
        self.id.to_string()
    }

    fn serial(&self) -> u64 {
        self.serial
    }
}

impl ResourceSpec {
    /// The kind in a path.
    fn of(call: &ApiCall<'_>) -> Result<&'static Self, ApiFault> {
        let path = call.segments.get(1..).unwrap_or_default().join("/");
        let leads = |spec: &&&Self| {
            let rest = path.strip_prefix(spec.path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        SPECS
            .iter()
            .find(leads)
            .copied()
            .ok_or_else(ApiFault::no_path)
    }

    pub(crate) fn of_kind(kind: ResourceKind) -> Option<&'static Self> {
        SPECS.iter().find(|spec| spec.kind == kind).copied()
    }

    /// Ironic's name for the UUID in its paths.
    fn uuid_name(&self) -> &'static str {
        match self.kind {
            ResourceKind::Chassis => "chassis_uuid",
            ResourceKind::VolumeConnector => "connector_uuid",
            ResourceKind::VolumeTarget => "target_uuid",
            _ => "uuid",
        }
    }

    pub(crate) fn missing(&self, ident: &str) -> ApiFault {
        ApiFault::not_found(self.kind.missing(ident))
    }

    pub(crate) fn named<'a>(
        &self,
        call: &ApiCall<'a>,
        ident: &str,
    ) -> Result<&'a Resource, ApiFault> {
        if !self.by_name && ident.parse::<ResourceId>().is_err() {
            return Err(field::expected_uuid(self.uuid_name(), ident));
        }
        let found = call.view.resource(self.kind, ident);
        found.map(AsRef::as_ref).ok_or_else(|| self.missing(ident))
    }

    /// The whole record, as the response to a creation or a patch.
    pub(crate) fn whole(&self, call: &ApiCall<'_>, resource: &Resource, created: bool) -> Response {
        let fields = field::available_fields(self.list.table, call);
        let mut shown = Value::Object(field::render(&fields, resource, call));
        if created && self.kind == ResourceKind::Allocation {
            allocation::show_as_begun(call, &mut shown);
        }
        if !created {
            return Response::json(200, &shown);
        }
        let location = call.location(&format!("{}/{}", self.path, resource.id));
        Response::json(201, &shown).with_location(Some(location))
    }
}

/// The rows of a kind that is created, listed, shown, patched and deleted.
pub(crate) const fn crud(
    all: &'static [&'static str],
    one: &'static [&'static str],
    since: u16,
    key: &'static str,
    columns: Columns,
    query_args: &'static [&'static [ApiArg]],
) -> [ApiRoute; 5] {
    [
        ApiRoute::get(all, since, "List them, oldest first", list_all)
            .query_args(query_args)
            .response(ResponseSchema::List(key, columns)),
        ApiRoute::new("POST", all, since, "Create one", write::create)
            .body(BodySchema::Record(columns))
            .response(ResponseSchema::Record(201, columns)),
        ApiRoute::get(one, since, "Show one", show)
            .query_args(&[list::FIELDS_QUERY_ARGS])
            .response(ResponseSchema::Record(200, columns)),
        ApiRoute::new("PATCH", one, since, "Change one", write::update)
            .body(BodySchema::Patch(columns))
            .response(ResponseSchema::Record(200, columns)),
        ApiRoute::new("DELETE", one, since, "Remove one", delete),
    ]
}

/// The same rows for kinds whose changes can damage machines: they need an admin.
pub(crate) const fn admin_only([list, make, show, change, remove]: [ApiRoute; 5]) -> [ApiRoute; 5] {
    [
        list,
        make.for_(Access::Admin),
        show,
        change.for_(Access::Admin),
        remove.for_(Access::Admin),
    ]
}

fn list_all(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    listed(call, false)
}

/// The list with every field: `/detail`.
pub(crate) fn detailed(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    listed(call, true)
}

fn listed(call: &ApiCall<'_>, detailed: bool) -> Result<ApiOutcome, ApiFault> {
    let spec = ResourceSpec::of(call)?;
    page(call, spec, spec.passes, detailed)
}

/// One page of the resources of a kind that pass.
fn page(
    call: &ApiCall<'_>,
    spec: &ResourceSpec,
    passes: impl Fn(&ApiCall<'_>, &Resource) -> Result<bool, ApiFault>,
    detailed: bool,
) -> Result<ApiOutcome, ApiFault> {
    if call.query.last("node") == Some("") {
        return Err(ApiFault::bad(crate::ironic::ports::NO_NODE));
    }
    let mut shown = Vec::new();
    for resource in call.view.resources_of(spec.kind) {
        if passes(call, resource)? {
            shown.push(resource.as_ref());
        }
    }
    let find = |marker: &str| {
        let found = call.view.resource(spec.kind, marker);
        found.map(AsRef::as_ref)
    };
    list::page(
        call,
        &spec.list,
        |_| vec![RecordWalk::new(shown.into_iter(), false)],
        |_| true,
        find,
        detailed,
    )
}

fn show(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let spec = ResourceSpec::of(call)?;
    let resource = spec.named(call, call.last())?;
    let fields = match list::requested_fields(spec.list.table, call)? {
        Some(fields) => fields,
        None => field::available_fields(spec.list.table, call),
    };
    // What a list shows at every version is not in a single record.
    let fields: Vec<_> = fields
        .into_iter()
        .filter(|field| call.has(field.since))
        .collect();
    reply(&Value::Object(field::render(&fields, resource, call)))
}

fn delete(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let spec = ResourceSpec::of(call)?;
    let resource = spec.named(call, call.last())?;
    (spec.check_deletable)(call, resource)?;
    order(
        RackOrder::DeleteResource(spec.kind, resource.id),
        empty(204, None),
    )
}

// Functions for fields that several kinds have.

/// A field that is stored as it was written.
pub(crate) fn stored_field(resource: &Resource, _: &ApiCall<'_>, name: &'static str) -> Value {
    resource.fields.get(name).cloned().unwrap_or(Value::Null)
}

/// An object that is stored as it was written; empty by default.
pub(crate) fn object(resource: &Resource, _: &ApiCall<'_>, name: &'static str) -> Value {
    let stored = resource.fields.get(name).cloned();
    stored.unwrap_or_else(|| json!({}))
}

/// A list that is stored as it was written; empty by default.
pub(crate) fn items(resource: &Resource, _: &ApiCall<'_>, name: &'static str) -> Value {
    let stored = resource.fields.get(name).cloned();
    stored.unwrap_or_else(|| json!([]))
}

/// A flag; off by default.
pub(crate) fn flag(resource: &Resource, _: &ApiCall<'_>, name: &'static str) -> Value {
    json!(resource.fields.get(name) == Some(&Value::Bool(true)))
}

pub(crate) fn uuid(resource: &Resource, _: &ApiCall<'_>, _: &'static str) -> Value {
    json!(resource.id.to_string())
}

pub(crate) fn name(resource: &Resource, _: &ApiCall<'_>, _: &'static str) -> Value {
    json!(resource.name)
}

pub(crate) fn node(resource: &Resource, _: &ApiCall<'_>, _: &'static str) -> Value {
    json!(resource.node.map(|node| node.to_string()))
}

pub(crate) fn created(resource: &Resource, _: &ApiCall<'_>, _: &'static str) -> Value {
    timestamp(Some(resource.created_at))
}

pub(crate) fn updated(resource: &Resource, _: &ApiCall<'_>, _: &'static str) -> Value {
    timestamp(resource.updated_at)
}

pub(crate) fn links(resource: &Resource, call: &ApiCall<'_>, _: &'static str) -> Value {
    let path = ResourceSpec::of_kind(resource.kind).map_or("", |spec| spec.path);
    call.links(&format!("{path}/{}", resource.id))
}

/// Every record passes.
#[expect(clippy::unnecessary_wraps, reason = "one of several filters")]
pub(crate) fn pass_all(_: &ApiCall<'_>, _: &Resource) -> Result<bool, ApiFault> {
    Ok(true)
}

/// Only those of the node in the query.
pub(crate) fn of_node(call: &ApiCall<'_>, resource: &Resource) -> Result<bool, ApiFault> {
    match call.query.last("node") {
        None => Ok(true),
        Some(ident) => Ok(resource.node == Some(call.node(ident)?.node.id)),
    }
}

/// It can always be deleted.
#[expect(clippy::unnecessary_wraps, reason = "one of several guards")]
pub(crate) fn allow_delete(_: &ApiCall<'_>, _: &Resource) -> Result<(), ApiFault> {
    Ok(())
}

/// Refuses while the node it belongs to is locked.
fn node_is_free(call: &ApiCall<'_>, resource: &Resource) -> Result<(), ApiFault> {
    let node = resource.node.and_then(|id| call.view.nodes.get(&id));
    node.map_or(Ok(()), |view| nodes::unlocked(call, &view.node))
}

/// Whether a name can be part of a path, like Ironic's logical names.
fn is_logical_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let word = !name.is_empty() && name != "." && name != ".." && name != "detail";
    word && name.bytes().all(plain) && name.parse::<ResourceId>().is_err()
}

/// Refuses an empty name, in the words of Ironic's schema.
fn check_not_empty(noun: &str, resource: &Resource) -> Result<(), ApiFault> {
    if resource.name.as_deref() != Some("") {
        return Ok(());
    }
    Err(ApiFault::bad(format!(
        "Schema error for {noun}: '' should be non-empty: it is an invalid name."
    )))
}

/// Refuses a name that cannot be part of a path.
fn check_name(old: Option<&Resource>, resource: &Resource) -> Result<(), ApiFault> {
    let Some(name) = resource
        .name
        .as_deref()
        .filter(|name| !is_logical_name(name))
    else {
        return Ok(());
    };
    let (kind, name) = (resource.kind.noun(), name.escape_debug());
    Err(ApiFault::bad(match old {
        None => format!("Cannot create {kind} with invalid name '{name}'"),
        Some(_) if resource.kind == ResourceKind::PortGroup => format!(
            "Portgroup {}: Cannot change name to invalid name '{name}'",
            resource.id
        ),
        Some(_) => format!("Cannot update {kind} with invalid name '{name}'"),
    }))
}

/// Refuses a text that is not a hardware address; converts others to lower case.
fn check_address(resource: &mut Resource) -> Result<(), ApiFault> {
    let Some(text) = resource.text("address") else {
        return Ok(());
    };
    let address = ports::mac(text)?;
    resource.fields.insert("address".into(), json!(address));
    Ok(())
}
