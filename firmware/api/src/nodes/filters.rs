//! Which nodes a list shows.

use serde_json::Value;
use trivet_model::view::NodeView;
use trivet_model::{NodeId, ProvisionState};

use crate::call::Call;
use crate::error::Fault;
use crate::list::LIST_ARGS;

/// Filters and the version they came with.
const FILTERS: [(&str, u16); 20] = [
    ("instance_uuid", 1),
    ("associated", 1),
    ("maintenance", 1),
    ("chassis_uuid", 1),
    ("provision_state", 9),
    ("driver", 16),
    ("resource_class", 21),
    ("fault", 42),
    ("conductor_group", 46),
    ("conductor", 49),
    ("owner", 50),
    ("description_contains", 51),
    ("retired", 61),
    ("lessee", 65),
    ("project", 65),
    ("shard", 82),
    ("sharded", 82),
    ("parent_node", 83),
    ("include_children", 83),
    ("instance_name", 104),
];

/// Whether a node passes.
pub(crate) type Filter = Box<dyn Fn(&NodeView) -> bool>;

/// The filters of a call. Values are checked whether or not there are nodes.
pub(crate) fn read(call: &Call<'_>) -> Result<Vec<Filter>, Fault> {
    let known: Vec<&str> = FILTERS
        .iter()
        .map(|(name, _)| *name)
        .chain(LIST_ARGS)
        .collect();
    call.query.only(&known)?;
    let mut filters: Vec<Filter> = Vec::new();
    for (name, since) in FILTERS {
        let Some(value) = call.query.last(name) else {
            continue;
        };
        if !call.has(since) {
            return Err(Fault::too_new(name, since));
        }
        filters.push(filter(call, name, value.to_owned())?);
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

fn filter(call: &Call<'_>, name: &'static str, value: String) -> Result<Filter, Fault> {
    let flag = || Ok::<_, Fault>(call.query.flag(name)?.unwrap_or_default());
    Ok(match name {
        "instance_uuid" => {
            let id: NodeId = value
                .parse()
                .map_err(|_| Fault::bad("instance_uuid must be a UUID."))?;
            let id = id.to_string();
            Box::new(move |view| view.node.instance_uuid.as_deref() == Some(&id))
        }
        "associated" => {
            let want = flag()?;
            Box::new(move |view| view.node.instance_uuid.is_some() == want)
        }
        "maintenance" => {
            let want = flag()?;
            Box::new(move |view| view.node.maintenance == want)
        }
        "retired" => {
            let want = flag()?;
            Box::new(move |view| {
                (view.node.kept.get("retired") == Some(&Value::Bool(true))) == want
            })
        }
        "sharded" => {
            let want = flag()?;
            Box::new(move |view| kept(view, "shard").is_some() == want)
        }
        "include_children" => {
            let all = flag()?;
            Box::new(move |view| all || kept(view, "parent_node").is_none())
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
        "conductor_group" => {
            Box::new(move |view| kept(view, "conductor_group").unwrap_or("") == value)
        }
        "project" => Box::new(move |view| {
            kept(view, "owner") == Some(&value) || kept(view, "lessee") == Some(&value)
        }),
        "description_contains" => Box::new(move |view| {
            kept(view, "description").is_some_and(|text| text.contains(&value))
        }),
        "shard" => Box::new(move |view| {
            kept(view, "shard").is_some_and(|shard| value.split(',').any(|one| one == shard))
        }),
        "parent_node" => {
            let parent = call.node(&value)?.node.id.to_string();
            Box::new(move |view| kept(view, "parent_node") == Some(&parent))
        }
        // There are no chassis, so no node is in one.
        "chassis_uuid" => Box::new(|_| false),
        other => Box::new(move |view| kept(view, other) == Some(&value)),
    })
}
