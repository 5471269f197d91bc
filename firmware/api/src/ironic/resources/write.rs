//! Creating and changing resources, as for nodes and ports.

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{NodeId, RackOrder, Resource, ResourceId, ResourceKind};

use super::{ResourceSpec, steps};
use crate::ironic::nodes::secrets;
use crate::table::body::{self, DEPTH_MAX, depth};
use crate::table::call::{ApiCall, order};
use crate::table::error::ApiFault;
use crate::table::field::{self, Field, ValueShape};
use crate::table::patch::{self, PatchChange, PatchOp};
use crate::{ApiOutcome, ResponsePlan};

/// Largest resource, in bytes of JSON. Ours.
pub(crate) const RESOURCE_BYTES_MAX: usize = 32 * 1024;

pub(crate) fn create(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let spec = ResourceSpec::of(call)?;
    let resource = Resource::new(ResourceId(call.new_id()), spec.kind, call.now);
    make(call, spec, body::object(call)?, resource)
}

/// Creates a resource from a document.
pub(crate) fn make(
    call: &ApiCall<'_>,
    spec: &ResourceSpec,
    mut document: JsonObject,
    mut resource: Resource,
) -> Result<ApiOutcome, ApiFault> {
    for (name, value) in &document {
        let rows = &mut spec.list.table.iter();
        let Some(row) = rows.find(|row| row.name == name && row.at_creation()) else {
            return Err(ApiFault::bad(format!(
                "Schema error for {}: Additional properties are not allowed ('{}' was unexpected)",
                spec.kind.noun(),
                name.escape_debug()
            )));
        };
        if value.is_null() && spec.required.contains(&row.name) {
            return Err(required(row));
        }
        if !call.has(row.since) && !value.is_null() {
            return Err(ApiFault::too_new(row.name, row.since));
        }
    }
    document.retain(|_, value| !value.is_null());
    read(call, spec, document, &mut resource)?;
    check(call, spec, None, &mut resource)?;
    let then = ResponsePlan::Resource {
        kind: spec.kind,
        id: resource.id,
        created: true,
    };
    order(RackOrder::CreateResource(Box::new(resource)), then)
}

pub(crate) fn update(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let spec = ResourceSpec::of(call)?;
    let old = spec.named(call, call.last())?;
    let changes = patch::parse(call.body, call.has(98))?;
    for change in &changes {
        if spec.kind == ResourceKind::PortGroup {
            patch::check_new_name(&format!("Portgroup {}", old.id), change)?;
        }
        check_change(call, spec, change)?;
    }
    if changes.is_empty() {
        return Ok(ApiOutcome::Reply(spec.whole(call, old, false)));
    }
    let mut document = Value::Object(
        spec.list
            .table
            .iter()
            .filter(|row| row.in_patch())
            .map(|row| {
                // The stored values, not the shown ones: otherwise secrets would become masks.
                let stored = old.fields.get(row.name).cloned();
                let value = stored.unwrap_or_else(|| row.show(old, call));
                (row.name.to_owned(), value)
            })
            .collect(),
    );
    patch::apply(&mut document, &changes)?;
    let mut resource = old.clone();
    if let Value::Object(mut document) = document {
        document.retain(|name, _| changes.iter().any(|change| change.root() == name));
        for (name, value) in &mut document {
            match old.fields.get(name) {
                Some(stored) if name == "steps" => steps::restore(value, stored),
                Some(stored) => secrets::restore(value, stored),
                None => {}
            }
        }
        read(call, spec, document, &mut resource)?;
    }
    check(call, spec, Some(old), &mut resource)?;
    let then = ResponsePlan::Resource {
        kind: spec.kind,
        id: old.id,
        created: false,
    };
    replace(old, resource, then)
}

/// The order that replaces the record that was read by the changed one.
pub(crate) fn replace(
    old: &Resource,
    new: Resource,
    then: ResponsePlan,
) -> Result<ApiOutcome, ApiFault> {
    let based_on = old.revision;
    let resource = Box::new(new);
    order(RackOrder::ReplaceResource { resource, based_on }, then)
}

fn check_change(
    call: &ApiCall<'_>,
    spec: &ResourceSpec,
    change: &PatchChange,
) -> Result<(), ApiFault> {
    let root = change.root();
    if spec.kind == ResourceKind::Allocation && change.value().is_array() {
        return Err(ApiFault::bad(format!(
            "Schema error: {} is not of type 'string', 'object', 'null', 'integer', 'boolean': no \
             field of an allocation that can be changed is a list.",
            field::quoted(change.value())
        )));
    }
    if spec.kind == ResourceKind::PortGroup
        && root == "mode"
        && change.op == PatchOp::Remove
        && change.is_whole()
    {
        return Err(ApiFault::bad(
            "'mode' is a mandatory attribute and can not be removed",
        ));
    }
    let writable = || spec.list.table.iter().filter(|row| row.in_patch());
    match writable().find(|row| row.name == root) {
        Some(row) if !call.has(row.since) => return Err(ApiFault::too_new(row.name, row.since)),
        Some(_) => {}
        None => {
            return Err(field::not_in_patch(spec.list.table, root, call));
        }
    }
    if change.op == PatchOp::Remove && change.is_whole() && spec.required.contains(&root) {
        return Err(ApiFault::bad(format!(
            "Schema error for patch: '{root}' is a required property: '/{root}' is mandatory and \
             can not be removed"
        )));
    }
    Ok(())
}

/// Writes a document into a record. Null means the default.
fn read(
    call: &ApiCall<'_>,
    spec: &ResourceSpec,
    document: JsonObject,
    resource: &mut Resource,
) -> Result<(), ApiFault> {
    for (name, value) in document {
        let Some(row) = spec.list.table.iter().find(|row| row.name == name) else {
            continue;
        };
        let value = field::read(row.name, row.shape, value)?;
        match (row.name, &value) {
            ("uuid", Value::String(text)) => {
                let id = text.parse();
                resource.id = id.map_err(|_| field::expected_uuid("uuid", text))?;
            }
            ("name", value) => resource.name = value.as_str().map(str::to_owned),
            ("node_uuid", Value::String(ident)) => {
                let volume = spec.path.starts_with("volume/");
                resource.node = Some(match call.view.node(ident) {
                    Some(view) => view.node.id,
                    None if volume => return Err(invalid_owner(ident)),
                    None => owner(call, ident)?,
                });
            }
            ("node_uuid", _) => resource.node = None,
            (name, Value::Null) => drop(resource.fields.remove(name)),
            (name, _) => drop(resource.fields.insert(name.to_owned(), value)),
        }
    }
    Ok(())
}

/// The error for a required field that is null.
fn required(row: &Field<Resource>) -> ApiFault {
    let kind = match row.shape {
        ValueShape::List => "array",
        ValueShape::Number | ValueShape::Integer => "integer",
        _ => "string",
    };
    let name = row.name;
    ApiFault::bad(format!(
        "Schema error: None is not of type '{kind}': '{name}' is a required property"
    ))
}

/// The same for volumes, in Ironic's words for them.
fn invalid_owner(ident: &str) -> ApiFault {
    let ident = ident.escape_debug();
    ApiFault::bad(format!(
        "Invalid input for field/attribute node_uuid. Value: '{ident}'. Node {ident} could not be \
         found."
    ))
}

/// An unknown node in a body is 400, not 404.
pub(crate) fn owner(call: &ApiCall<'_>, ident: &str) -> Result<NodeId, ApiFault> {
    let view = call.view.node(ident).ok_or_else(|| {
        let ident = ident.escape_debug();
        ApiFault::bad(format!("Node {ident} could not be found."))
    })?;
    Ok(view.node.id)
}

fn check(
    call: &ApiCall<'_>,
    spec: &ResourceSpec,
    old: Option<&Resource>,
    resource: &mut Resource,
) -> Result<(), ApiFault> {
    for name in spec.required {
        let there = match *name {
            "name" => resource.name.is_some(),
            "node_uuid" => resource.node.is_some(),
            name => resource.fields.contains_key(name),
        };
        let row = spec.list.table.iter().find(|row| row.name == *name);
        match row {
            Some(row) if !there && old.is_some() => return Err(required(row)),
            _ if !there => {
                return Err(ApiFault::bad(format!(
                    "Schema error for {}: '{name}' is a required property",
                    spec.kind.noun()
                )));
            }
            _ => {}
        }
    }
    let fields = Value::Object(resource.fields.clone());
    if depth(&fields) > DEPTH_MAX {
        return Err(ApiFault::bad(format!(
            "Fields nest at most {DEPTH_MAX} levels."
        )));
    }
    (spec.check)(call, old, resource)?;
    // After the checks, because a check can convert fields to their stored form.
    if Value::Object(resource.fields.clone()).to_string().len() > RESOURCE_BYTES_MAX {
        return Err(ApiFault::bad(format!(
            "The fields have at most {RESOURCE_BYTES_MAX} bytes together."
        )));
    }
    for claim in resource.claims() {
        let key = (resource.kind, claim);
        let other = call.view.claims.get(&key);
        if other.is_some_and(|id| *id != resource.id) {
            return Err(ApiFault::conflict(resource.kind.taken(&key.1)));
        }
    }
    Ok(())
}
