//! Making and changing resources, in the way of nodes and ports.

use serde_json::Value;
use trivet_model::node::Object;
use trivet_model::{NodeId, Order, Resource, ResourceId};

use super::Spec;
use crate::body::{self, DEPTH_MAX, depth};
use crate::call::{Call, order};
use crate::error::Fault;
use crate::patch::{self, Op};
use crate::{Outcome, Then, field};

/// Largest resource, in bytes of JSON. Ours.
pub(crate) const RESOURCE_BYTES_MAX: usize = 32 * 1024;

pub(crate) fn create(call: &Call<'_>) -> Result<Outcome, Fault> {
    let spec = Spec::of(call)?;
    let mut document = body::object(call)?;
    document.retain(|_, value| !value.is_null());
    for name in document.keys() {
        let rows = &mut spec.list.table.iter();
        let Some(row) = rows.find(|row| row.name == name && row.at_creation()) else {
            return Err(Fault::bad(format!(
                "Additional properties are not allowed ('{}' was unexpected)",
                name.escape_debug()
            )));
        };
        if !call.has(row.since) {
            return Err(Fault::too_new(row.name, row.since));
        }
    }
    if let Some(name) = spec
        .required
        .iter()
        .find(|name| !document.contains_key(**name))
    {
        return Err(Fault::bad(format!("'{name}' is a required property")));
    }
    let mut resource = Resource::new(ResourceId(call.new_id()), spec.kind, call.now);
    read(call, spec, document, &mut resource)?;
    check(call, spec, &resource)?;
    let (kind, id) = (spec.kind, resource.id);
    let then = Then::Resource {
        kind,
        id,
        created: true,
    };
    order(Order::CreateResource(Box::new(resource)), then)
}

pub(crate) fn update(call: &Call<'_>) -> Result<Outcome, Fault> {
    let spec = Spec::of(call)?;
    let old = spec.named(call, call.last())?;
    let changes = patch::parse(call.body, call.has(98))?;
    for change in &changes {
        let root = change.root();
        let row = field::named(spec.list.table, root, call)?;
        if !row.in_patch() {
            return Err(Fault::bad(format!(
                "'/{root}' is an internal attribute and can not be updated"
            )));
        }
        if change.op == Op::Remove && spec.required.contains(&root) {
            return Err(Fault::bad(format!(
                "'/{root}' is mandatory and can not be removed"
            )));
        }
    }
    if changes.is_empty() {
        return Ok(Outcome::Reply(spec.whole(call, old, false)));
    }
    let mut document = Value::Object(
        spec.list
            .table
            .iter()
            .filter(|row| row.in_patch())
            .map(|row| (row.name.to_owned(), row.show(old, call)))
            .collect(),
    );
    patch::apply(&mut document, &changes)?;
    let mut resource = old.clone();
    if let Value::Object(mut document) = document {
        document.retain(|name, _| changes.iter().any(|change| change.root() == name));
        read(call, spec, document, &mut resource)?;
    }
    check(call, spec, &resource)?;
    let (kind, id) = (spec.kind, old.id);
    let then = Then::Resource {
        kind,
        id,
        created: false,
    };
    let based_on = old.revision;
    let resource = Box::new(resource);
    order(Order::ReplaceResource { resource, based_on }, then)
}

/// Writes a document into a record. Null means the default.
fn read(
    call: &Call<'_>,
    spec: &Spec,
    document: Object,
    resource: &mut Resource,
) -> Result<(), Fault> {
    for (name, value) in document {
        let Some(row) = spec.list.table.iter().find(|row| row.name == name) else {
            continue;
        };
        let value = field::read(row.name, row.shape, value)?;
        match (row.name, &value) {
            ("uuid", Value::String(text)) => {
                let id = text.parse();
                resource.id = id.map_err(|_| Fault::bad("uuid must be a UUID."))?;
            }
            ("name", value) => resource.name = value.as_str().map(str::to_owned),
            ("node_uuid", Value::String(ident)) => resource.node = Some(owner(call, ident)?),
            (name, Value::Null) => drop(resource.fields.remove(name)),
            (name, _) => drop(resource.fields.insert(name.to_owned(), value)),
        }
    }
    Ok(())
}

/// An unknown node in a body is the body's fault, not the path's.
fn owner(call: &Call<'_>, ident: &str) -> Result<NodeId, Fault> {
    let view = call.view.node(ident).ok_or_else(|| {
        let ident = ident.escape_debug();
        Fault::bad(format!("Node {ident} could not be found."))
    })?;
    Ok(view.node.id)
}

fn check(call: &Call<'_>, spec: &Spec, resource: &Resource) -> Result<(), Fault> {
    let fields = Value::Object(resource.fields.clone());
    if depth(&fields) > DEPTH_MAX {
        return Err(Fault::bad(format!(
            "Fields nest at most {DEPTH_MAX} levels."
        )));
    }
    if fields.to_string().len() > RESOURCE_BYTES_MAX {
        return Err(Fault::bad(format!(
            "The fields have at most {RESOURCE_BYTES_MAX} bytes together."
        )));
    }
    for claim in resource.claims() {
        let twin = call.view.claims.get(&(resource.kind, claim.clone()));
        if twin.is_some_and(|id| *id != resource.id) {
            return Err(Fault::conflict(format!(
                "A {} with {claim} already exists.",
                spec.noun.to_lowercase()
            )));
        }
    }
    (spec.check)(call, resource)
}
