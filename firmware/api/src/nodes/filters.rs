//! Which nodes a list shows.

use serde_json::Value;
use trivet_model::view::NodeView;
use trivet_model::{NodeId, ProvisionState, Resource, ResourceId, ResourceKind};

use crate::call::Call;
use crate::error::Fault;
use crate::field::Shape;
use crate::route::{Arg, arg};

/// Filters and the version they came with.
pub(crate) const FILTERS: &[Arg] = &[
    arg("instance_uuid", 1, Shape::Uuid),
    arg("associated", 1, Shape::Flag),
    arg("maintenance", 1, Shape::Flag),
    arg("chassis_uuid", 1, Shape::Uuid),
    arg("provision_state", 9, Shape::Text),
    arg("driver", 16, Shape::Text),
    arg("resource_class", 21, Shape::Text),
    arg("fault", 42, Shape::Text),
    arg("conductor_group", 46, Shape::Text),
    arg("conductor", 49, Shape::Text),
    arg("owner", 50, Shape::Text),
    arg("description_contains", 51, Shape::Text),
    arg("retired", 61, Shape::Flag),
    arg("lessee", 65, Shape::Text),
    arg("project", 65, Shape::Text),
    arg("shard", 82, Shape::Text),
    arg("sharded", 82, Shape::Flag),
    arg("parent_node", 83, Shape::Text),
    arg("include_children", 83, Shape::Flag),
    arg("instance_name", 104, Shape::Text),
];

/// Whether a node passes.
pub(crate) type Filter = Box<dyn Fn(&NodeView) -> bool>;

/// The filters of a call. Values are checked whether or not there are nodes.
pub(crate) fn read(call: &Call<'_>) -> Result<Vec<Filter>, Fault> {
    let mut filters: Vec<Filter> = Vec::new();
    for arg in FILTERS {
        if let Some(value) = call.query.last(arg.name) {
            filters.push(filter(call, arg.name, value.to_owned())?);
        }
    }
    let about_children = ["parent_node", "include_children"];
    if call.has(83)
        && about_children
            .iter()
            .all(|name| call.query.last(name).is_none())
    {
        filters.push(Box::new(|view| kept(view, "parent_node").is_none()));
    }
    Ok(filters)
}

fn kept<'v>(view: &'v NodeView, name: &str) -> Option<&'v str> {
    view.node.kept.get(name).and_then(Value::as_str)
}

/// The chassis of this UUID, which must be there.
pub(crate) fn chassis<'a>(call: &Call<'a>, ident: &str) -> Result<&'a Resource, Fault> {
    let id: ResourceId = ident.parse().map_err(|_| {
        let ident = ident.escape_debug();
        Fault::bad(format!("Expected a UUID but received {ident}."))
    })?;
    let found = call.view.resources.get(&(ResourceKind::Chassis, id));
    found.map(AsRef::as_ref).ok_or_else(|| {
        let ident = ident.escape_debug();
        Fault::not_found(format!("Chassis {ident} could not be found."))
    })
}

/// A filter that is on or off.
fn flagged(name: &'static str, want: bool) -> Filter {
    match name {
        "associated" => Box::new(move |view| view.node.instance_uuid.is_some() == want),
        "maintenance" => Box::new(move |view| view.node.maintenance == want),
        "sharded" => Box::new(move |view| kept(view, "shard").is_some() == want),
        "include_children" => Box::new(move |view| want || kept(view, "parent_node").is_none()),
        other => {
            Box::new(move |view| (view.node.kept.get(other) == Some(&Value::Bool(true))) == want)
        }
    }
}

fn filter(call: &Call<'_>, name: &'static str, value: String) -> Result<Filter, Fault> {
    if let Some(Shape::Flag) = FILTERS
        .iter()
        .find(|arg| arg.name == name)
        .map(|arg| arg.shape)
    {
        return Ok(flagged(name, call.query.flag(name)?.unwrap_or_default()));
    }
    Ok(match name {
        "instance_uuid" => {
            let id: NodeId = value
                .parse()
                .map_err(|_| Fault::bad("instance_uuid must be a UUID."))?;
            let id = id.to_string();
            Box::new(move |view| view.node.instance_uuid.as_deref() == Some(&id))
        }
        "provision_state" => {
            let want: ProvisionState = value.parse().map_err(|_| {
                let value = value.escape_debug();
                Fault::bad(format!("Provision state \"{value}\" is not valid"))
            })?;
            Box::new(move |view| view.node.provision_state == want)
        }
        "driver" => Box::new(move |view| view.node.driver == value),
        "resource_class" => {
            Box::new(move |view| view.node.resource_class.as_deref() == Some(&value))
        }
        "fault" => Box::new(move |view| view.node.fault.as_deref() == Some(&value)),
        "conductor" => {
            let ours = call.facts.hostname == value;
            Box::new(move |_| ours)
        }
        "chassis_uuid" => {
            let chassis = chassis(call, &value)?.id.to_string();
            Box::new(move |view| kept(view, "chassis_uuid") == Some(&chassis))
        }
        "conductor_group" => {
            let value = value.to_ascii_lowercase();
            Box::new(move |view| kept(view, "conductor_group").unwrap_or("") == value)
        }
        "project" => Box::new(move |view| {
            kept(view, "owner") == Some(&value) || kept(view, "lessee") == Some(&value)
        }),
        "description_contains" => Box::new(move |view| {
            kept(view, "description").is_some_and(|text| text.contains(&value))
        }),
        "shard" => {
            let wanted: Vec<String> = call
                .query
                .all(name)
                .flat_map(|list| list.split(','))
                .map(str::to_owned)
                .collect();
            Box::new(move |view| {
                kept(view, "shard").is_some_and(|shard| wanted.iter().any(|one| one == shard))
            })
        }
        "parent_node" => {
            let parent = call.node(&value)?.node.id.to_string();
            Box::new(move |view| kept(view, "parent_node") == Some(&parent))
        }
        other => Box::new(move |view| kept(view, other) == Some(&value)),
    })
}
