//! Filters of node lists.

use trivet_model::index::{IndexRange, NodeKey};
use trivet_model::view::NodeView;
use trivet_model::{NodeId, ProvisionState, Resource, ResourceId, ResourceKind};

use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::{self, ValueShape};
use crate::table::list::{PageStart, RecordWalk};
use crate::table::query::truth;
use crate::table::route::{ApiArg, arg};

/// Filters and the version of each.
pub(crate) const FILTERS: &[ApiArg] = &[
    arg("instance_uuid", 1, ValueShape::Uuid),
    arg("associated", 1, ValueShape::Flag),
    arg("maintenance", 1, ValueShape::Flag),
    arg("chassis_uuid", 1, ValueShape::Uuid),
    arg("provision_state", 9, ValueShape::Text),
    arg("driver", 16, ValueShape::Text),
    arg("resource_class", 21, ValueShape::Text),
    arg("fault", 42, ValueShape::Text),
    arg("conductor_group", 46, ValueShape::Text),
    arg("conductor", 49, ValueShape::Text),
    arg("owner", 50, ValueShape::Text),
    arg("description_contains", 1, ValueShape::Text),
    arg("retired", 1, ValueShape::Flag),
    arg("lessee", 65, ValueShape::Text),
    arg("project", 1, ValueShape::Text),
    arg("shard", 82, ValueShape::Text),
    arg("sharded", 1, ValueShape::Flag),
    arg("parent_node", 1, ValueShape::Text),
    arg("include_children", 1, ValueShape::Flag),
    arg("instance_name", 104, ValueShape::Text),
];

/// The faults that Ironic knows.
const FAULTS: [&str; 4] = [
    "power failure",
    "clean failure",
    "rescue abort failure",
    "service failure",
];

/// Filters that Ironic parses at every version, and refuses afterwards; not in `/detail`.
const CHECKED_LATER: [(&str, u16); 3] = [
    ("include_children", 83),
    ("parent_node", 83),
    ("sharded", 82),
];

/// Whether a node passes.
type NodePredicate = Box<dyn Fn(&NodeView) -> bool>;

/// One filter of a list.
pub(crate) struct NodeFilter {
    predicate: NodePredicate,
    /// The index that finds the nodes that pass without examining the others.
    index: Option<FilterIndex>,
}

/// A part of an index.
struct FilterIndex {
    key: NodeKey,
    part: IndexPart,
}

enum IndexPart {
    /// Nodes with a value.
    Present,
    /// Nodes with this value, or without one.
    Value(Option<String>),
}

impl NodeFilter {
    /// Only the nodes of this chassis.
    pub(crate) fn of_chassis(chassis: ResourceId) -> Self {
        let part = IndexPart::Value(Some(chassis.to_string()));
        let key = NodeKey::ChassisUuid;
        Self {
            predicate: Box::new(move |view| is_of_chassis(view, chassis)),
            index: Some(FilterIndex { key, part }),
        }
    }

    pub(crate) fn passes(&self, view: &NodeView) -> bool {
        (self.predicate)(view)
    }
}

/// The filters of a call. Values are validated even if there are no nodes.
pub(crate) fn read(call: &ApiCall<'_>) -> Result<Vec<NodeFilter>, ApiFault> {
    let mut filters: Vec<NodeFilter> = Vec::new();
    for arg in FILTERS {
        if let Some(value) = call.query.last(arg.name) {
            filters.push(NodeFilter {
                predicate: predicate(call, arg.name, value.to_owned())?,
                index: filter_index(call, arg.name, value),
            });
            let since = CHECKED_LATER.iter().find(|(name, _)| *name == arg.name);
            if let Some((name, since)) = since.filter(|(_, since)| !call.has(*since))
                && (call.last() != "detail" || *name == "sharded")
            {
                return Err(ApiFault::too_new(name, *since));
            }
        }
    }
    let about_children = ["parent_node", "include_children"];
    if about_children
        .iter()
        .all(|name| call.query.last(name).is_none())
    {
        filters.push(NodeFilter {
            predicate: Box::new(|view| view.node.attributes.parent_node.is_none()),
            index: None,
        });
    }
    Ok(filters)
}

/// The walks to the nodes that pass: the index of each filter that has one, and the index of the
/// order. Without any, all nodes.
pub(crate) fn walks<'a>(
    call: &ApiCall<'a>,
    filters: &[NodeFilter],
    cut: &PageStart<'a, NodeView>,
) -> Vec<RecordWalk<'a, NodeView>> {
    let nodes = &call.view.nodes;
    let after = cut.after.map(|view| &*view.node);
    let sort = match cut.by {
        None => Some(NodeKey::Created),
        // Older versions have other names for some states, which sort differently.
        Some("provision_state") if !call.has(39) => None,
        Some(name) => name.parse().ok().filter(|key: &NodeKey| key.sorts()),
    };
    let leads = filters.iter().filter_map(|filter| filter.index.as_ref());
    let mut walks: Vec<RecordWalk<'a, NodeView>> = leads
        .map(|lead| {
            let (span, ordered) = match &lead.part {
                IndexPart::Present => (IndexRange::WithValue, false),
                IndexPart::Value(value) => {
                    let value = value.as_deref();
                    // If the list is sorted by the filtered field itself, a marker with another
                    // value is not in this part of the index.
                    let here = after.is_none_or(|node| lead.key.value(node).as_deref() == value);
                    let by_value = sort == Some(lead.key) && here;
                    let ordered = sort == Some(NodeKey::Created) || by_value;
                    (IndexRange::Value(value), ordered)
                }
            };
            let after = after.filter(|_| ordered);
            let found = nodes.walk(lead.key, span, after, cut.descending);
            RecordWalk::new(found.map(|view| &**view), ordered)
        })
        .collect();
    if cut.by == Some("uuid") {
        let found = nodes.by_uuid(after.map(|node| node.id), cut.descending);
        walks.push(RecordWalk::new(found.map(|view| &**view), true));
    } else if let Some(key) = sort {
        let found = nodes.walk(key, IndexRange::All, after, cut.descending);
        walks.push(RecordWalk::new(found.map(|view| &**view), true));
    } else if walks.is_empty() {
        walks.push(RecordWalk::new(nodes.values().map(|view| &**view), false));
    }
    walks
}

/// The index of a filter whose value is valid; `None` if each node must be examined.
fn filter_index(call: &ApiCall<'_>, name: &str, value: &str) -> Option<FilterIndex> {
    let flag = truth(value);
    let (key, part) = match name {
        "associated" if flag == Some(true) => (NodeKey::InstanceUuid, IndexPart::Present),
        "associated" => (NodeKey::InstanceUuid, IndexPart::Value(None)),
        "sharded" if flag == Some(true) => (NodeKey::Shard, IndexPart::Present),
        _ => {
            let key: NodeKey = name.parse().ok()?;
            let value = match key {
                NodeKey::Maintenance => flag?.to_string(),
                NodeKey::Retired => flag.filter(|on| *on)?.to_string(),
                NodeKey::InstanceUuid => value.parse::<NodeId>().ok()?.to_string(),
                NodeKey::ChassisUuid => value.parse::<ResourceId>().ok()?.to_string(),
                NodeKey::ParentNode => call.view.node(value)?.node.id.to_string(),
                NodeKey::ConductorGroup if value.is_empty() => return None,
                NodeKey::ConductorGroup => value.to_ascii_lowercase(),
                NodeKey::Shard if value.contains(',') => return None,
                NodeKey::Shard if call.query.all(name).count() > 1 => return None,
                _ => value.to_owned(),
            };
            (key, IndexPart::Value(Some(value)))
        }
    };
    Some(FilterIndex { key, part })
}

fn is_of_chassis(view: &NodeView, chassis: ResourceId) -> bool {
    view.node.attributes.chassis_uuid == Some(chassis)
}

/// The chassis with this UUID, which must exist.
pub(crate) fn chassis<'a>(call: &ApiCall<'a>, ident: &str) -> Result<&'a Resource, ApiFault> {
    let id: ResourceId = ident
        .parse()
        .map_err(|_| field::expected_uuid("chassis_uuid", ident))?;
    let found = call.view.resources.get(&(ResourceKind::Chassis, id));
    found.map(|view| &**view).ok_or_else(|| {
        let ident = ident.escape_debug();
        ApiFault::not_found(format!("Chassis {ident} could not be found."))
    })
}

/// As in Ironic, whose databases ignore the case.
pub(crate) fn contains(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

/// A Boolean filter.
fn flagged(name: &'static str, want: bool) -> NodePredicate {
    match name {
        "associated" => Box::new(move |view| view.node.instance_uuid.is_some() == want),
        "maintenance" => Box::new(move |view| view.node.maintenance == want),
        "sharded" => Box::new(move |view| view.node.attributes.shard.is_some() == want),
        "include_children" => {
            Box::new(move |view| want || view.node.attributes.parent_node.is_none())
        }
        // `retired` is the only other one.
        _ => Box::new(move |view| view.node.attributes.retired == want),
    }
}

/// The filters whose values are of a known form; none for others.
fn checked_predicate(name: &str, value: &str) -> Result<Option<NodePredicate>, ApiFault> {
    let checked: NodePredicate = match name {
        "instance_uuid" => {
            let id: NodeId = value
                .parse()
                .map_err(|_| field::expected_uuid("instance_uuid", value))?;
            let id = id.to_string();
            Box::new(move |view| view.node.instance_uuid.as_deref() == Some(&id))
        }
        "provision_state" => {
            let want: ProvisionState = value.parse().map_err(|_| {
                let value = value.escape_debug();
                ApiFault::bad(format!("Provision state \"{value}\" is not valid"))
            })?;
            Box::new(move |view| view.node.provision_state == want)
        }
        "fault" if !FAULTS.contains(&value) => {
            return Err(ApiFault::bad(format!(
                "Unrecognized fault \"{}\" is specified, allowed faults are {FAULTS:?}",
                value.escape_debug()
            )));
        }
        _ => return Ok(None),
    };
    Ok(Some(checked))
}

fn predicate(
    call: &ApiCall<'_>,
    name: &'static str,
    value: String,
) -> Result<NodePredicate, ApiFault> {
    if let Some(ValueShape::Flag) = FILTERS
        .iter()
        .find(|arg| arg.name == name)
        .map(|arg| arg.shape)
    {
        return Ok(flagged(name, call.query.flag(name)?.unwrap_or_default()));
    }
    if let Some(checked) = checked_predicate(name, &value)? {
        return Ok(checked);
    }
    Ok(match name {
        "conductor" => {
            let ours = call.facts.hostname == value;
            Box::new(move |_| ours)
        }
        "chassis_uuid" => {
            let chassis = chassis(call, &value)?.id;
            Box::new(move |view| is_of_chassis(view, chassis))
        }
        "conductor_group" => {
            let value = value.to_ascii_lowercase();
            Box::new(move |view| {
                let group = view.node.attributes.conductor_group.as_deref();
                group.unwrap_or("") == value
            })
        }
        "project" => Box::new(move |view| {
            let attributes = &view.node.attributes;
            [&attributes.owner, &attributes.lessee].contains(&&Some(value.clone()))
        }),
        "description_contains" => Box::new(move |view| {
            let description = view.node.attributes.description.as_ref();
            description.is_some_and(|text| contains(text, &value))
        }),
        "shard" => {
            let wanted: Vec<String> = call
                .query
                .all(name)
                .flat_map(|list| list.split(','))
                .map(str::to_owned)
                .collect();
            Box::new(move |view| {
                let shard = view.node.attributes.shard.as_ref();
                shard.is_some_and(|shard| wanted.contains(shard))
            })
        }
        "parent_node" => {
            // Ironic has an empty list for a parent that does not exist.
            let parent = call.node(&value).ok().map(|parent| parent.node.id);
            Box::new(move |view| parent.is_some() && view.node.attributes.parent_node == parent)
        }
        // `driver`, `fault`, `instance_name`, `lessee`, `owner`, `resource_class`: values of an
        // index.
        other => {
            let key: Option<NodeKey> = other.parse().ok();
            Box::new(move |view| {
                let found = key.and_then(|key| key.value(&view.node));
                found.as_deref() == Some(value.as_str())
            })
        }
    })
}
