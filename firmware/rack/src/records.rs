//! The records in memory, the snapshot for readers, and what changed.

mod audit;
mod job_evidence;
mod recently_seen;
mod stories;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use trivet_model::index::{NodeIndex, PortIndex, restored_map};
use trivet_model::story::{AUDIT_ENTRIES_MAX, Stage, StoryDiagnosis};
use trivet_model::view::{
    NodeLiveState, NodeView, TIMELINE_NOTES_MAX, Timeline, UNKNOWN_MACHINES_MAX, UnknownMachine,
};
use trivet_model::{
    Lease, MacAddr, Node, NodeId, Note, NoteKind, Now, Port, PortId, RackView, Resource,
    ResourceId, ResourceKind, Tick,
};
use trivet_store::StoreChange;
use trivet_story::JobEvidence;

use crate::{RackOutput, RefusedRequest};
use job_evidence::JobEvidenceTable;
use recently_seen::RecentlySeenMacs;
use stories::StoryIndex;

/// How many exchanges back an equal one is searched. Ours: a boot has six.
const EXCHANGES_FOLDED_MAX: usize = 8;

/// All records. Readers get clones of the view; changes for flash are collected until the end
/// of the batch, once per record.
#[derive(Default)]
pub(crate) struct RecordIndex {
    pub(crate) view: RackView,
    leases: BTreeMap<MacAddr, Lease>,
    /// The holder of each leased address.
    lease_holders: BTreeMap<Ipv4Addr, MacAddr>,
    /// Unknown machines, by when they were last seen.
    unknown_machines: RecentlySeenMacs,
    /// What the notes of each node's job show.
    evidence: JobEvidenceTable,
    serial: u64,
    serial_changed: bool,
    nodes_changed: BTreeSet<NodeId>,
    ports_changed: BTreeSet<PortId>,
    resources_changed: BTreeSet<(ResourceKind, ResourceId)>,
    leases_changed: BTreeSet<MacAddr>,
    /// Nodes whose BMC address or label may have changed.
    bmcs_changed: BTreeSet<NodeId>,
    stories: StoryIndex,
}

impl RecordIndex {
    pub(crate) fn restore(mut records: trivet_store::StoreRecords) -> Self {
        let mut evidence = JobEvidenceTable::default();
        let mut index = Self {
            serial: records.serial,
            stories: StoryIndex::restore(&mut records, &mut evidence),
            evidence,
            ..Self::default()
        };
        let mut ports: Vec<_> = records.ports.into_values().map(Arc::new).collect();
        ports.sort_by_key(|port| port.serial);
        let nodes = records.nodes.into_iter();
        let mut views: BTreeMap<NodeId, NodeView> = nodes
            .map(|(id, node)| (id, view_of(Arc::new(node))))
            .collect();
        for port in &ports {
            if let Some(view) = views.get_mut(&port.node) {
                view.ports.push(port.id);
            }
        }
        for (id, view) in &mut views {
            for note in index.stories.restored_notes(*id) {
                view.timeline.push_back(note);
            }
            view.live.diagnosis = index.stories.restored_diagnosis(*id).map(Arc::new);
        }
        index.bmcs_changed = views.keys().copied().collect();
        index.restore_names(&views, &ports);
        index.view.nodes = NodeIndex::restored(views.into_values());
        index.view.ports = PortIndex::restored(ports);
        for resource in records.resources.into_values() {
            index.index_resource(resource);
        }
        index.lease_holders = records
            .leases
            .values()
            .map(|lease| (lease.address, lease.mac))
            .collect();
        index.leases = records.leases;
        index.publish_stories();
        index
    }

    /// Builds the indexes of nodes and ports by name and address, in one pass.
    fn restore_names(&mut self, views: &BTreeMap<NodeId, NodeView>, ports: &[Arc<Port>]) {
        let nodes = || views.values().map(|view| &view.node);
        let names = nodes().filter_map(|node| Some((node.name.clone()?, node.id)));
        self.view.names = restored_map(names.collect());
        let instances = nodes().filter_map(|node| Some((node.instance_uuid.clone()?, node.id)));
        self.view.instances = restored_map(instances.collect());
        let macs = ports.iter().map(|port| (port.address, port.id));
        self.view.macs = restored_map(macs.collect());
        let reserved = ports.iter();
        let reserved = reserved.filter_map(|port| Some((port.reserved()?, port.id)));
        self.view.reserved = restored_map(reserved.collect());
        let names = ports.iter();
        let names = names.filter_map(|port| Some((port.name()?.to_owned(), port.id)));
        self.view.port_names = restored_map(names.collect());
    }

    /// The changes of this batch, each record once.
    pub(crate) fn take_changes(&mut self) -> Vec<StoreChange> {
        let mut changes = Vec::new();
        if std::mem::take(&mut self.serial_changed) {
            changes.push(StoreChange::PutSerial(self.serial));
        }
        for id in std::mem::take(&mut self.nodes_changed) {
            changes.push(match self.node(id) {
                Some(node) => StoreChange::PutNode(Arc::clone(node)),
                None => StoreChange::DeleteNode(id),
            });
        }
        for id in std::mem::take(&mut self.ports_changed) {
            changes.push(match self.view.ports.get(&id) {
                Some(port) => StoreChange::PutPort(Arc::clone(port)),
                None => StoreChange::DeletePort(id),
            });
        }
        for key in std::mem::take(&mut self.resources_changed) {
            changes.push(match self.view.resources.get(&key) {
                Some(resource) => StoreChange::PutResource(Arc::clone(resource)),
                None => StoreChange::DeleteResource(key.1),
            });
        }
        for mac in std::mem::take(&mut self.leases_changed) {
            changes.push(match self.leases.get(&mac) {
                Some(lease) => StoreChange::PutLease(*lease),
                None => StoreChange::DeleteLease(mac),
            });
        }
        self.stories.take_changes(&self.evidence, &mut changes);
        changes
    }

    /// Takes the nodes whose BMC address or label may have changed.
    pub(crate) fn take_bmcs_changed(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.bmcs_changed)
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial_changed = true;
        self.serial
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.view.nodes.get(&id).map(|view| &view.node)
    }

    /// The ports of a node, in order of creation.
    pub(crate) fn ports_of(&self, id: NodeId) -> Vec<Port> {
        let ids = self
            .view
            .nodes
            .get(&id)
            .map(|view| view.ports.as_slice())
            .unwrap_or_default();
        ids.iter()
            .filter_map(|id| self.view.ports.get(id))
            .map(|port| (**port).clone())
            .collect()
    }

    /// Stores a node's record, new or changed. A node without an instance loses its allocation
    /// too.
    pub(crate) fn put_node(&mut self, now: Now, mut node: Node) {
        if node.instance_uuid.is_none()
            && let Some(id) = node.attributes.allocation_uuid.take()
        {
            self.remove_resource(ResourceKind::Allocation, id);
        }
        node.revision += 1;
        node.updated_at = (node.revision > 1).then_some(now.wall);
        self.nodes_changed.insert(node.id);
        let before = self.view.nodes.get(&node.id).map(|view| &*view.node);
        self.stories.node_changed(now, before, &node);
        self.index_node(Arc::new(node));
    }

    fn index_node(&mut self, node: Arc<Node>) {
        let id = node.id;
        let old = self.view.nodes.get(&id);
        let same = |old: &NodeView| {
            let old = &old.node;
            (&old.driver, &old.driver_info, &old.attributes, &old.name)
                == (
                    &node.driver,
                    &node.driver_info,
                    &node.attributes,
                    &node.name,
                )
        };
        if !old.is_some_and(|old| same(old)) {
            self.bmcs_changed.insert(id);
        }
        if let Some(name) = old.and_then(|old| old.node.name.clone())
            && node.name.as_ref() != Some(&name)
        {
            self.view.names.remove(&name);
        }
        if let Some(name) = &node.name {
            self.view.names.insert(name.clone(), id);
        }
        if let Some(instance) = old.and_then(|old| old.node.instance_uuid.clone())
            && node.instance_uuid.as_ref() != Some(&instance)
        {
            self.view.instances.remove(&instance);
        }
        if let Some(instance) = &node.instance_uuid {
            self.view.instances.insert(instance.clone(), id);
        }
        let view = match self.view.nodes.get(&id) {
            Some(old) => NodeView {
                node,
                ..(**old).clone()
            },
            None => view_of(node),
        };
        self.view.nodes.insert(id, Arc::new(view));
    }

    pub(crate) fn remove_node(&mut self, id: NodeId) {
        let Some(view) = self.view.nodes.remove(&id) else {
            return;
        };
        if let Some(name) = &view.node.name {
            self.view.names.remove(name);
        }
        if let Some(instance) = &view.node.instance_uuid {
            self.view.instances.remove(instance);
        }
        for port in &view.ports {
            self.remove_port(*port);
        }
        for (kind, resource) in &view.resources {
            self.remove_resource(*kind, *resource);
        }
        self.nodes_changed.insert(id);
        self.bmcs_changed.insert(id);
        self.stories.remove_node(id);
        self.evidence.remove(id);
    }

    /// What the notes of a node's job show.
    pub(crate) fn evidence_of(&self, id: NodeId) -> Option<&JobEvidence> {
        self.evidence.of(id)
    }

    /// The machine of a node with a job is switched on by nobody or by a person, which has no
    /// note of a request to a BMC.
    pub(crate) fn switched_on_without_bmc(&mut self, now: Now, id: NodeId) {
        if self.node(id).is_some_and(|node| node.job.is_some()) {
            self.evidence.switched_on(now.wall, id);
        }
    }

    /// The same of all nodes.
    pub(crate) fn all_evidence(&self) -> impl Iterator<Item = (&NodeId, &JobEvidence)> {
        self.evidence.all()
    }

    /// Takes the nodes whose job has begun.
    pub(crate) fn take_jobs_begun(&mut self) -> BTreeSet<NodeId> {
        self.evidence.take_begun()
    }

    /// Takes the nodes whose evidence has changed so that their diagnosis may.
    pub(crate) fn take_evidence_changed(&mut self) -> BTreeSet<NodeId> {
        self.evidence.take_changed()
    }

    pub(crate) fn put_port(&mut self, now: Now, mut port: Port) {
        port.revision += 1;
        port.updated_at = (port.revision > 1).then_some(now.wall);
        self.ports_changed.insert(port.id);
        self.remove_from_view(port.id);
        self.index_port(port);
    }

    fn index_port(&mut self, port: Port) {
        self.unknown_machines.remove(port.address);
        self.view.unknown_machines.remove(&port.address);
        self.view.macs.insert(port.address, port.id);
        if let Some(address) = port.reserved() {
            self.view.reserved.insert(address, port.id);
        }
        if let Some(name) = port.name() {
            self.view.port_names.insert(name.to_owned(), port.id);
        }
        self.change_view(port.node, |view| view.ports.push(port.id));
        self.view.ports.insert(port.id, Arc::new(port));
    }

    pub(crate) fn remove_port(&mut self, id: PortId) {
        self.ports_changed.insert(id);
        self.remove_from_view(id);
    }

    fn remove_from_view(&mut self, id: PortId) {
        if let Some(port) = self.view.ports.remove(&id) {
            self.view.macs.remove(&port.address);
            if let Some(address) = port.reserved() {
                self.view.reserved.remove(&address);
            }
            if let Some(name) = port.name() {
                self.view.port_names.remove(name);
            }
            self.change_view(port.node, |view| view.ports.retain(|other| *other != id));
        }
    }

    /// Stores a resource's record, new or changed.
    pub(crate) fn put_resource(&mut self, now: Now, mut resource: Resource) {
        resource.revision += 1;
        // An allocation is changed right after its creation: it gets its node.
        let changed = resource.revision > 1 || resource.kind == ResourceKind::Allocation;
        resource.updated_at = changed.then_some(now.wall);
        self.remove_resource(resource.kind, resource.id);
        self.index_resource(resource);
    }

    fn index_resource(&mut self, resource: Resource) {
        let key = (resource.kind, resource.id);
        for claim in resource.claims() {
            self.view.claims.insert((key.0, claim), key.1);
        }
        if let Some(node) = resource.node {
            self.change_view(node, |view| view.resources.push(key));
        }
        self.view.resources.insert(key, Arc::new(resource));
    }

    pub(crate) fn remove_resource(&mut self, kind: ResourceKind, id: ResourceId) {
        let key = (kind, id);
        self.resources_changed.insert(key);
        let Some(resource) = self.view.resources.remove(&key) else {
            return;
        };
        for claim in resource.claims() {
            self.view.claims.remove(&(kind, claim));
        }
        if let Some(node) = resource.node {
            self.change_view(node, |view| view.resources.retain(|other| *other != key));
        }
    }

    pub(crate) fn change_view(&mut self, id: NodeId, change: impl FnOnce(&mut NodeView)) {
        self.view.nodes.change(id, change);
    }

    pub(crate) fn put_lease(&mut self, lease: Lease) {
        self.remove_lease(lease.mac);
        self.lease_holders.insert(lease.address, lease.mac);
        self.leases.insert(lease.mac, lease);
    }

    pub(crate) fn remove_lease(&mut self, mac: MacAddr) {
        self.leases_changed.insert(mac);
        if let Some(lease) = self.leases.remove(&mac) {
            self.lease_holders.remove(&lease.address);
        }
    }

    /// All leases.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// The lease of a machine.
    pub(crate) fn lease(&self, mac: MacAddr) -> Option<&Lease> {
        self.leases.get(&mac)
    }

    /// The machine that has leased this address.
    pub(crate) fn holder(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.lease_holders.get(&address).copied()
    }

    /// Stores a note and returns it for the log.
    pub(crate) fn note(&mut self, now: Now, id: Option<NodeId>, kind: NoteKind) -> RackOutput {
        self.note_before(now, id, kind, 0)
    }

    /// Stores a note before the newest `follow` notes of the node.
    pub(crate) fn note_before(
        &mut self,
        now: Now,
        id: Option<NodeId>,
        kind: NoteKind,
        follow: usize,
    ) -> RackOutput {
        let note = Note {
            at: now.wall,
            node: id,
            kind,
        };
        let mut label = None;
        let subject = id
            .and_then(|id| self.view.nodes.get(&id))
            .map(|view| &*view.node);
        self.stories.noted(now, subject, &note, follow);
        if let Some(id) = id
            && let Some(node) = self.node(id)
        {
            label = Some(node.label());
            let has_job = node.job.is_some();
            self.evidence.observe(now.wall, id, has_job, &note.kind);
            self.change_view(id, |view| {
                if view.timeline.len() >= TIMELINE_NOTES_MAX {
                    view.timeline.pop_front();
                }
                let place = view.timeline.len().saturating_sub(follow);
                view.timeline.insert(place, note.clone());
            });
        } else if id.is_none() {
            self.evidence.observe_box(now.wall, &note.kind);
        }
        RackOutput::Note { note, label }
    }

    /// Stores an exchange with a machine's firmware. None if it repeats one of the latest
    /// exchanges with no other note in between: then it replaces that one.
    pub(crate) fn note_exchange(
        &mut self,
        now: Now,
        id: NodeId,
        kind: NoteKind,
    ) -> Option<RackOutput> {
        let timeline = &self.view.nodes.get(&id)?.timeline;
        let newest = timeline.iter().rev().take(EXCHANGES_FOLDED_MAX);
        let same = newest
            .take_while(|note| matches!(note.kind, NoteKind::Dhcp { .. }))
            .position(|note| note.kind == kind);
        let Some(back) = same else {
            return Some(self.note(now, Some(id), kind));
        };
        let note = Note {
            at: now.wall,
            node: Some(id),
            kind,
        };
        self.change_view(id, |view| {
            view.timeline.remove(view.timeline.len() - 1 - back);
            view.timeline.push_back(note);
        });
        None
    }

    /// Shows changed stories to readers.
    pub(crate) fn publish_stories(&mut self) {
        while let Some((id, story)) = self.stories.take_unpublished() {
            self.change_view(id, |view| view.story = story);
        }
        let newest = self.view.audit.get_max().map(|(number, _)| *number);
        let news = self
            .stories
            .audit()
            .range(newest.map_or(0, |number| number + 1)..);
        for (number, entry) in news {
            self.view.audit.insert(*number, Arc::clone(entry));
        }
        while self.view.audit.len() > AUDIT_ENTRIES_MAX {
            self.view.audit = self.view.audit.without_min().1;
        }
    }

    /// Adds a request to the audit that never became an order.
    pub(crate) fn audit_refused(&mut self, now: Now, refused: &RefusedRequest) {
        let node = refused.node.and_then(|id| self.node(id)).map(Arc::clone);
        self.stories.audit_refused(now, node.as_deref(), refused);
    }

    /// See [`StoryIndex::write_audit`].
    pub(crate) fn write_audit(&mut self) {
        self.stories.write_audit();
    }

    /// See [`StoryIndex::limit`].
    pub(crate) fn limit_stories(&mut self, live_bytes_max: u64) {
        self.stories.limit(live_bytes_max);
    }

    /// See [`StoryIndex::resume`].
    pub(crate) fn resume_story(&mut self, now: Now, id: NodeId) -> bool {
        let node = self.view.nodes.get(&id).map(|view| Arc::clone(&view.node));
        node.is_some_and(|node| self.stories.resume(now, &node))
    }

    /// See [`StoryIndex::deadline`].
    pub(crate) fn next_lateness(&self) -> Option<Tick> {
        self.stories.deadline()
    }

    /// See [`StoryIndex::take_late`].
    pub(crate) fn take_late(&mut self, now: Now) -> Option<NodeId> {
        self.stories.take_late(now)
    }

    /// See [`StoryIndex::take_ended`].
    pub(crate) fn take_ended_job(&mut self) -> Option<NodeId> {
        self.stories.take_ended()
    }

    /// See [`StoryIndex::has_failed`].
    pub(crate) fn has_failed(&self, id: NodeId) -> bool {
        self.stories.has_failed(id)
    }

    /// See [`StoryIndex::finish`].
    pub(crate) fn finish_job(&mut self, now: Now, id: NodeId) {
        self.stories.finish(now, id);
    }

    /// See [`StoryIndex::set_diagnosis`].
    pub(crate) fn set_diagnosis(&mut self, now: Now, id: NodeId, diagnosis: StoryDiagnosis) {
        self.stories.set_diagnosis(now, id, diagnosis);
    }

    /// Stores what readers see of a node that has no job.
    pub(crate) fn keep_diagnosis(&mut self, id: NodeId) {
        let Some(view) = self.view.nodes.get(&id) else {
            return;
        };
        let shown = view.live.diagnosis.as_deref().map(StoryDiagnosis::from);
        self.stories.keep_diagnosis(id, shown);
    }

    /// See [`StoryIndex::present_stage`].
    pub(crate) fn present_stage(&self, now: Now, id: NodeId) -> Option<(Stage, u64, Option<u64>)> {
        self.stories.present_stage(now, id)
    }

    /// Stores an unknown machine; true if it was not known yet.
    pub(crate) fn add_unknown_machine(&mut self, machine: UnknownMachine) -> bool {
        let mac = machine.client.mac;
        if self.unknown_machines.touch(mac)
            && self.unknown_machines.len() > UNKNOWN_MACHINES_MAX
            && let Some(oldest) = self.unknown_machines.oldest()
        {
            self.unknown_machines.remove(oldest);
            self.view.unknown_machines.remove(&oldest);
        }
        self.view.unknown_machines.insert(mac, machine).is_none()
    }

    /// The node whose port has this address.
    pub(crate) fn node_of_mac(&self, mac: MacAddr) -> Option<NodeId> {
        self.view.port_by_mac(mac).map(|port| port.node)
    }
}

/// The view of a node before anything but its record is known.
fn view_of(node: Arc<Node>) -> NodeView {
    NodeView {
        node,
        ports: Vec::new(),
        resources: Vec::new(),
        live: NodeLiveState::default(),
        timeline: Timeline::new(),
        story: trivet_model::story::NodeStoryView::default(),
    }
}

#[cfg(test)]
mod tests {
    use trivet_model::{SeededRandom, UnixMs};

    use super::*;

    fn port(number: u16, node: NodeId, seeded: &mut SeededRandom) -> Port {
        let [high, low] = number.to_be_bytes();
        let mut port = Port {
            id: PortId::random(seeded),
            revision: 1,
            // Not in the order of creation.
            serial: u64::from(number) * 91 % 1009,
            node,
            address: MacAddr([2, 0, 0, 0, high, low]),
            pxe_enabled: true,
            extra: serde_json::Map::new(),
            attributes: trivet_model::attributes::PortAttributes::default(),
            created_at: UnixMs(1),
            updated_at: None,
        };
        port.attributes.name = Some(format!("port-{number}"));
        port
    }

    #[test]
    fn a_restored_index_is_the_one_that_was_written_record_by_record() {
        let mut seeded = SeededRandom::new(35);
        let now = Now::default();
        let mut written = RecordIndex::default();
        for number in 0..200_u16 {
            let id = NodeId::random(&mut seeded);
            let mut node = Node::new(id, "ipmi", UnixMs(1));
            node.serial = number.into();
            node.name = (number % 3 > 0).then(|| format!("name-{number}"));
            node.instance_uuid = (number % 5 == 0).then(|| format!("instance-{number}"));
            written.put_node(now, node);
            for number in [2 * number, 2 * number + 1] {
                written.put_port(now, port(number, id, &mut seeded));
            }
        }
        // A port without its node is found as well.
        let absent = NodeId::random(&mut seeded);
        written.put_port(now, port(999, absent, &mut seeded));
        let view = &written.view;
        let mut records = trivet_store::StoreRecords::default();
        let nodes = view.nodes.iter();
        records.nodes = nodes
            .map(|(id, view)| (*id, (*view.node).clone()))
            .collect();
        let ports = view.ports.iter();
        records.ports = ports.map(|(id, port)| (*id, (**port).clone())).collect();

        let restored = RecordIndex::restore(records);
        assert_eq!(restored.view.names, view.names);
        assert_eq!(restored.view.instances, view.instances);
        assert_eq!(restored.view.macs, view.macs);
        assert_eq!(restored.view.port_names, view.port_names);
        assert_eq!(restored.bmcs_changed, written.bmcs_changed);
        assert!(restored.view.ports.iter().eq(view.ports.iter()));
        assert!(restored.view.nodes.keys().eq(view.nodes.keys()));
        for id in view.nodes.keys() {
            let (one, other) = (&restored.view.nodes[id], &view.nodes[id]);
            assert_eq!(one.node, other.node);
            let mut ports = other.ports.clone();
            ports.sort_by_key(|port| view.ports[port].serial);
            assert_eq!(one.ports, ports, "in the order of creation");
        }
    }
}
