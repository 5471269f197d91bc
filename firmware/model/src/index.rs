//! Nodes and ports with their indexes: by creation, and by the fields that lists filter and
//! sort by. Records are added and removed here only, so that the indexes always match the
//! records. The cost of a walk along an index depends on the entries it takes, not on the
//! number of records.

use core::fmt;
use core::ops::{Bound, Deref};
use core::str::FromStr;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::view::NodeView;
use crate::{MacAddr, Node, NodeId, Port, PortId, words};

words! {
    /// A field of nodes that has an index, by its name in lists.
    NodeKey {
        /// The order of creation alone.
        Created = "id",
        /// Name.
        Name = "name",
        /// Hardware type.
        Driver = "driver",
        /// Provision state.
        ProvisionState = "provision_state",
        /// Maintenance.
        Maintenance = "maintenance",
        /// Resource class for schedulers.
        ResourceClass = "resource_class",
        /// The instance on it.
        InstanceUuid = "instance_uuid",
        /// Ironic's name of the fault.
        Fault = "fault",
        /// Its chassis.
        ChassisUuid = "chassis_uuid",
        /// Its owner.
        Owner = "owner",
        /// Its lessee.
        Lessee = "lessee",
        /// Its shard.
        Shard = "shard",
        /// Its conductor group.
        ConductorGroup = "conductor_group",
        /// The node it is a part of.
        ParentNode = "parent_node",
        /// The name of the instance on it.
        InstanceName = "instance_name",
        /// Whether it is retired.
        Retired = "retired",
    }
}

impl NodeKey {
    /// Whether every node is in this index, so that it defines the order of a whole list. The
    /// others contain only the nodes that have a value, which are few: an entry for nodes
    /// without one would cost memory for each node.
    pub const fn sorts(self) -> bool {
        matches!(
            self,
            Self::Created
                | Self::Name
                | Self::Driver
                | Self::ProvisionState
                | Self::Maintenance
                | Self::ResourceClass
                | Self::InstanceUuid
        )
    }

    /// Whether the values of nodes are mostly different.
    const fn is_unique(self) -> bool {
        matches!(self, Self::Name | Self::InstanceUuid | Self::InstanceName)
    }

    /// The node's value, as a string.
    pub fn value(self, node: &Node) -> Option<Cow<'_, str>> {
        let text = match self {
            Self::Created => None,
            Self::Name => node.name.as_deref(),
            Self::Driver => Some(node.driver.as_str()),
            Self::ProvisionState => Some(node.provision_state.as_str()),
            Self::Maintenance => Some(if node.maintenance { "true" } else { "false" }),
            Self::ResourceClass => node.resource_class.as_deref(),
            Self::InstanceUuid => node.instance_uuid.as_deref(),
            Self::Fault => node.fault.as_deref(),
            Self::Retired => node.attributes.retired.then_some("true"),
            Self::ChassisUuid => {
                let chassis = node.attributes.chassis_uuid?;
                return Some(chassis.to_string().into());
            }
            Self::ParentNode => {
                let parent = node.attributes.parent_node?;
                return Some(parent.to_string().into());
            }
            Self::Owner => node.attributes.owner.as_deref(),
            Self::Lessee => node.attributes.lessee.as_deref(),
            Self::Shard => node.attributes.shard.as_deref(),
            Self::ConductorGroup => node.attributes.conductor_group.as_deref(),
            Self::InstanceName => node.attributes.instance_name.as_deref(),
        };
        text.map(Cow::Borrowed)
    }

    /// The node's position in this index, if it has one.
    fn position(self, node: &Node) -> Option<IndexPosition<'_>> {
        let value = self.value(node);
        let serial = node.serial;
        (self.sorts() || value.is_some()).then_some(IndexPosition { value, serial })
    }
}

/// A selection of records of an index.
#[derive(Clone, Copy, Debug)]
pub enum IndexRange<'s> {
    /// All records.
    All,
    /// Those with a value, in the order of the values.
    WithValue,
    /// Those with this value, or without one; in the order of creation.
    Value(Option<&'s str>),
}

/// Records in the order of one value, then of their creation.
#[derive(Clone, Debug, Default)]
struct FieldIndex {
    entries: OrdSet<IndexEntry>,
    /// The value that was shared last: the next one is often the same.
    latest: Option<Arc<str>>,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct IndexEntry {
    value: Option<Arc<str>>,
    serial: u64,
    id: Uuid,
}

/// The position of a record among others.
#[derive(Clone, Debug, Eq, PartialEq)]
struct IndexPosition<'p> {
    value: Option<Cow<'p, str>>,
    serial: u64,
}

impl IndexPosition<'_> {
    fn entry(self, id: Uuid) -> IndexEntry {
        IndexEntry {
            value: self.value.as_deref().map(Arc::from),
            serial: self.serial,
            id,
        }
    }
}

impl IndexEntry {
    /// Before all records with this value.
    fn first(value: Option<&str>) -> Self {
        Self {
            value: value.map(Arc::from),
            serial: 0,
            id: Uuid::nil(),
        }
    }

    /// After all records with this value.
    fn last(value: Option<&str>) -> Self {
        Self {
            value: value.map(Arc::from),
            serial: u64::MAX,
            id: Uuid::max(),
        }
    }
}

impl FieldIndex {
    /// The index of all these records, which are in the order of their creation; `share` where
    /// some have the same value.
    fn restored(mut records: Vec<(IndexPosition<'_>, Uuid)>, share: bool) -> Self {
        records.sort_by(|(one, _), (other, _)| one.value.cmp(&other.value));
        let mut before: Option<Arc<str>> = None;
        let entries = records.into_iter().map(|(place, id)| {
            let value = place.value.as_deref().map(|value| match &before {
                Some(before) if share && **before == *value => Arc::clone(before),
                _ => Arc::from(value),
            });
            before.clone_from(&value);
            let serial = place.serial;
            IndexEntry { value, serial, id }
        });
        Self {
            entries: every_second_first(entries).collect(),
            latest: None,
        }
    }

    /// Moves a record from its old position to its new one; `share` where others have its value
    /// too.
    fn replace(
        &mut self,
        id: Uuid,
        old: Option<IndexPosition<'_>>,
        new: Option<IndexPosition<'_>>,
        share: bool,
    ) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.entries.remove(&old.entry(id));
        }
        if let Some(new) = new {
            let value = if share {
                new.value.as_deref().map(|value| self.shared(value))
            } else {
                new.value.as_deref().map(Arc::from)
            };
            let serial = new.serial;
            self.entries.insert(IndexEntry { value, serial, id });
        }
    }

    /// Returns the copy of this string that another entry has already: equal strings are in
    /// memory once.
    fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(latest) = &self.latest
            && **latest == *text
        {
            return Arc::clone(latest);
        }
        let first = IndexEntry::first(Some(text));
        let bounds: KeyBounds<IndexEntry> = (Bound::Included(first), Bound::Unbounded);
        let near = self
            .entries
            .range::<KeyBounds<IndexEntry>, IndexEntry>(bounds)
            .next();
        let near = near.and_then(|entry| entry.value.clone());
        let near = near.filter(|near| **near == *text);
        let shared = near.unwrap_or_else(|| Arc::from(text));
        self.latest = Some(Arc::clone(&shared));
        shared
    }

    /// Identities in ascending or descending order, after an entry, if there is one.
    fn walk(
        &self,
        span: IndexRange<'_>,
        after: Option<IndexEntry>,
        descending: bool,
    ) -> Box<dyn Iterator<Item = Uuid> + '_> {
        let (mut low, mut high) = match span {
            IndexRange::All => (Bound::Unbounded, Bound::Unbounded),
            IndexRange::WithValue => (Bound::Excluded(IndexEntry::last(None)), Bound::Unbounded),
            IndexRange::Value(value) => (
                Bound::Included(IndexEntry::first(value)),
                Bound::Included(IndexEntry::last(value)),
            ),
        };
        if let Some(after) = after {
            let end = if descending { &mut high } else { &mut low };
            *end = Bound::Excluded(after);
        }
        let range = self
            .entries
            .range::<KeyBounds<IndexEntry>, IndexEntry>((low, high));
        let ids = range.map(|entry| entry.id);
        if descending {
            Box::new(ids.rev())
        } else {
            Box::new(ids)
        }
    }
}

type KeyBounds<K> = (Bound<K>, Bound<K>);

/// Builds this map in one pass and with little memory.
pub fn restored_map<K: Clone + Ord, V: Clone>(records: BTreeMap<K, V>) -> OrdMap<K, V> {
    every_second_first(records.into_iter()).collect()
}

/// Sorted items in the best order for inserting into a tree: first every second one, then those
/// between. Inserting at the end is fast and leaves all leaves of the tree half full; those
/// between fill them.
fn every_second_first<T>(sorted: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let (first, between): (Vec<_>, Vec<_>) = sorted.enumerate().partition(|(at, _)| at % 2 == 0);
    first.into_iter().chain(between).map(|(_, item)| item)
}

/// The entries of a map in ascending or descending order, after a key.
fn ordered<K: Ord, V>(
    map: &OrdMap<K, V>,
    after: Option<K>,
    descending: bool,
) -> Box<dyn Iterator<Item = &V> + '_> {
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    let bounds = if descending {
        (Bound::Unbounded, after)
    } else {
        (after, Bound::Unbounded)
    };
    let values = map.range::<KeyBounds<K>, K>(bounds).map(|(_, value)| value);
    if descending {
        Box::new(values.rev())
    } else {
        Box::new(values)
    }
}

/// All nodes, by UUID and by every [`NodeKey`].
#[derive(Clone, Debug, Default)]
pub struct NodeIndex {
    records: OrdMap<NodeId, Arc<NodeView>>,
    indexes: [FieldIndex; NodeKey::ALL.len()],
}

impl Deref for NodeIndex {
    type Target = OrdMap<NodeId, Arc<NodeView>>;

    fn deref(&self) -> &Self::Target {
        &self.records
    }
}

impl NodeIndex {
    /// All nodes at the start of the box. Each index is built in one pass, which is faster than
    /// inserting the nodes one by one.
    pub fn restored(views: impl IntoIterator<Item = NodeView>) -> Self {
        let views = views.into_iter().map(|view| (view.node.id, Arc::new(view)));
        let views: BTreeMap<NodeId, Arc<NodeView>> = views.collect();
        let mut created: Vec<&Node> = views.values().map(|view| &*view.node).collect();
        created.sort_unstable_by_key(|node| (node.serial, node.id));
        let indexes = core::array::from_fn(|at| {
            let key = NodeKey::ALL[at];
            let places = created.iter().copied();
            let places = places.filter_map(|node| Some((key.position(node)?, node.id.0)));
            FieldIndex::restored(places.collect(), !key.is_unique())
        });
        Self {
            indexes,
            records: restored_map(views),
        }
    }

    /// Stores a node; returns the one it replaces.
    pub fn insert(&mut self, id: NodeId, view: Arc<NodeView>) -> Option<Arc<NodeView>> {
        let node = Arc::clone(&view.node);
        let old = self.records.insert(id, view);
        self.reindex(id, old.as_ref().map(|old| &*old.node), Some(&node));
        old
    }

    /// Removes a node.
    pub fn remove(&mut self, id: &NodeId) -> Option<Arc<NodeView>> {
        let old = self.records.remove(id)?;
        self.reindex(*id, Some(&old.node), None);
        Some(old)
    }

    /// Changes a node in place, if it exists.
    pub fn change(&mut self, id: NodeId, change: impl FnOnce(&mut NodeView)) {
        let Some(view) = self.records.get_mut(&id) else {
            return;
        };
        let before = Arc::clone(&view.node);
        change(Arc::make_mut(view));
        let after = Arc::clone(&view.node);
        if !Arc::ptr_eq(&before, &after) {
            self.reindex(id, Some(&before), Some(&after));
        }
    }

    fn reindex(&mut self, id: NodeId, old: Option<&Node>, new: Option<&Node>) {
        for (key, index) in NodeKey::ALL.iter().zip(&mut self.indexes) {
            let old = old.and_then(|node| key.position(node));
            let new = new.and_then(|node| key.position(node));
            index.replace(id.0, old, new, !key.is_unique());
        }
    }

    /// Nodes in the order of an index, or reversed; after the position of a node, if there is
    /// one.
    pub fn walk(
        &self,
        key: NodeKey,
        span: IndexRange<'_>,
        after: Option<&Node>,
        descending: bool,
    ) -> Box<dyn Iterator<Item = &Arc<NodeView>> + '_> {
        let after = after.map(|node| {
            let value = match span {
                IndexRange::Value(value) => value.map(Cow::Borrowed),
                IndexRange::All | IndexRange::WithValue => key.value(node),
            };
            let serial = node.serial;
            IndexPosition { value, serial }.entry(node.id.0)
        });
        let ids = self.indexes[key as usize].walk(span, after, descending);
        Box::new(ids.filter_map(move |id| self.records.get(&NodeId(id))))
    }

    /// Nodes by UUID.
    pub fn by_uuid(
        &self,
        after: Option<NodeId>,
        descending: bool,
    ) -> Box<dyn Iterator<Item = &Arc<NodeView>> + '_> {
        ordered(&self.records, after, descending)
    }
}

/// All ports, by UUID and in order of creation.
#[derive(Clone, Debug, Default)]
pub struct PortIndex {
    records: OrdMap<PortId, Arc<Port>>,
    created: FieldIndex,
}

impl Deref for PortIndex {
    type Target = OrdMap<PortId, Arc<Port>>;

    fn deref(&self) -> &Self::Target {
        &self.records
    }
}

impl PortIndex {
    /// All ports at the start of the box.
    pub fn restored(ports: impl IntoIterator<Item = Arc<Port>>) -> Self {
        let ports = ports.into_iter().map(|port| (port.id, port));
        let ports: BTreeMap<PortId, Arc<Port>> = ports.collect();
        let places = ports.values().map(|port| (Self::position(port), port.id.0));
        let mut places: Vec<(IndexPosition<'_>, Uuid)> = places.collect();
        places.sort_unstable_by_key(|(place, id)| (place.serial, *id));
        Self {
            created: FieldIndex::restored(places, false),
            records: restored_map(ports),
        }
    }

    /// Stores a port; returns the one it replaces.
    pub fn insert(&mut self, id: PortId, port: Arc<Port>) -> Option<Arc<Port>> {
        let new = Self::position(&port);
        let old = self.records.insert(id, port);
        let place = old.as_ref().map(|old| Self::position(old));
        self.created.replace(id.0, place, Some(new), false);
        old
    }

    /// Removes a port.
    pub fn remove(&mut self, id: &PortId) -> Option<Arc<Port>> {
        let old = self.records.remove(id)?;
        let place = Some(Self::position(&old));
        self.created.replace(id.0, place, None, false);
        Some(old)
    }

    fn position(port: &Port) -> IndexPosition<'static> {
        IndexPosition {
            value: None,
            serial: port.serial,
        }
    }

    /// Ports in order of creation, or reversed; after a port, if there is one.
    pub fn by_creation(
        &self,
        after: Option<&Port>,
        descending: bool,
    ) -> Box<dyn Iterator<Item = &Arc<Port>> + '_> {
        let after = after.map(|port| Self::position(port).entry(port.id.0));
        let ids = self.created.walk(IndexRange::All, after, descending);
        Box::new(ids.filter_map(move |id| self.records.get(&PortId(id))))
    }

    /// Ports by UUID.
    pub fn by_uuid(
        &self,
        after: Option<PortId>,
        descending: bool,
    ) -> Box<dyn Iterator<Item = &Arc<Port>> + '_> {
        ordered(&self.records, after, descending)
    }

    /// Ports by address: in the order of `macs`, which maps addresses to ports.
    pub fn by_address<'p>(
        &'p self,
        macs: &'p OrdMap<MacAddr, PortId>,
        after: Option<MacAddr>,
        descending: bool,
    ) -> Box<dyn Iterator<Item = &'p Arc<Port>> + 'p> {
        let ids = ordered(macs, after, descending);
        Box::new(ids.filter_map(move |id| self.records.get(id)))
    }
}

#[cfg(test)]
mod tests;
