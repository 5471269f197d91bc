//! A snapshot for readers: the API and the web page answer from it and never wait for the rack.
//! Its cost does not depend on the number of nodes.

use core::net::Ipv4Addr;
use std::sync::Arc;

use imbl::OrdMap;

use crate::boot::ClientSeen;
use crate::fault::{BoxFault, FaultTimes};
use crate::image::ImageStatus;
use crate::index::{IndexRange, NodeIndex, NodeKey, PortIndex};
use crate::link::{LinkId, LinkView};
use crate::power::HardwareHealth;
use crate::story::{AuditEntry, NodeStoryView};
pub use crate::timeline::Timeline;
use crate::{
    Diagnosis, MacAddr, Node, NodeId, Port, PortId, Resource, ResourceId, ResourceKind, UnixMs,
};

/// How many notes of each node are in memory.
pub const TIMELINE_NOTES_MAX: usize = 200;

/// How many unknown machines are remembered.
pub const UNKNOWN_MACHINES_MAX: usize = 1024;

/// All data that readers may see.
#[derive(Clone, Debug, Default)]
pub struct RackView {
    /// Nodes.
    pub nodes: NodeIndex,
    /// Names of nodes.
    pub names: OrdMap<String, NodeId>,
    /// The node of each instance.
    pub instances: OrdMap<String, NodeId>,
    /// Ports.
    pub ports: PortIndex,
    /// Ports by hardware address.
    pub macs: OrdMap<MacAddr, PortId>,
    /// The port that each address is reserved for.
    pub reserved: OrdMap<Ipv4Addr, PortId>,
    /// Names of ports.
    pub port_names: OrdMap<String, PortId>,
    /// Resources, by kind.
    pub resources: OrdMap<(ResourceKind, ResourceId), Arc<Resource>>,
    /// Unique values of resources, see [`Resource::claims`].
    pub claims: OrdMap<(ResourceKind, String), ResourceId>,
    /// Machines that requested an address and are not a port of any node.
    pub unknown_machines: OrdMap<MacAddr, UnknownMachine>,
    /// The links where DHCP is received, and the other servers there.
    pub links: OrdMap<LinkId, Arc<LinkView>>,
    /// Present faults.
    pub faults: OrdMap<BoxFault, FaultTimes>,
    /// Images in the cache, by their keys there.
    pub images: OrdMap<String, Arc<ImageStatus>>,
    /// How many machines boot from the network, and how many wait for admission.
    pub boot_queue: BootQueueCounts,
    /// The most boots of a machine for one job; zero where that is not known.
    pub boots_max: u32,
    /// The last requests of callers, by their numbers.
    pub audit: OrdMap<u64, Arc<AuditEntry>>,
}

/// How many machines boot from the network at once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BootQueueCounts {
    /// How many may boot at once.
    pub limit: usize,
    /// How many boot now.
    pub booting: usize,
    /// How many wait in the queue.
    pub waiting: usize,
    /// How many were admitted after waiting.
    pub served: u64,
}

/// One node for readers.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Its record.
    pub node: Arc<Node>,
    /// Its ports, in order of creation.
    pub ports: Vec<PortId>,
    /// The resources that belong to it.
    pub resources: Vec<(ResourceKind, ResourceId)>,
    /// Its state that is not on flash.
    pub live: NodeLiveState,
    /// Its notes, oldest first.
    pub timeline: Timeline,
    /// Its jobs and failures, as they are stored.
    pub story: NodeStoryView,
}

/// The present state of a node that is not stored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeLiveState {
    /// When the agent last sent a heartbeat.
    pub heartbeat_at: Option<UnixMs>,
    /// Bytes of the present file that were sent, and its size.
    pub transfer: Option<(u64, u64)>,
    /// The name of the present file.
    pub transfer_path: Option<String>,
    /// Its number in the boot queue; see [`RackView::ahead`].
    pub queue_number: Option<u64>,
    /// How well its BMC answers; none before the first request.
    pub bmc: Option<BmcHealth>,
    /// The state of its hardware as the BMC reports it; none if that is not known.
    pub health: Option<HardwareHealth>,
    /// The stored logs of its agents, oldest first.
    pub logs: Vec<LogBundle>,
    /// Why its last or present job does not go on, as far as that is known.
    pub diagnosis: Option<Arc<Diagnosis>>,
}

/// The logs of one agent, as a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogBundle {
    /// Its file name: when it was collected.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// How well a BMC answered the latest requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BmcHealth {
    /// How many of its latest requests are counted.
    pub requests: u32,
    /// How many of them were answered.
    pub replies: u32,
    /// The median time of a reply, in ms.
    pub median_ms: Option<u64>,
    /// The kind of the last failure, see [`crate::PowerError::kind`].
    pub last_error: Option<&'static str>,
    /// 0 to 100: the percentage of replies, reduced for slow ones.
    pub score: u8,
}

/// A machine that is not a port of any node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownMachine {
    /// When it last sent a DHCP request.
    pub seen_at: UnixMs,
    /// The data in its DHCP requests.
    pub client: ClientSeen,
}

impl RackView {
    /// The node with this UUID or name.
    pub fn node(&self, ident: &str) -> Option<&Arc<NodeView>> {
        let id = ident
            .parse()
            .ok()
            .or_else(|| self.names.get(ident).copied())?;
        self.nodes.get(&id)
    }

    /// How many others are before this one in the boot queue, if it waits there.
    pub fn ahead(&self, node: &NodeView) -> Option<u64> {
        let number = node.live.queue_number?;
        Some(number.saturating_sub(self.boot_queue.served))
    }

    /// The port with this UUID or name.
    pub fn port(&self, ident: &str) -> Option<&Arc<Port>> {
        let named = || self.port_names.get(ident).copied();
        let id = ident.parse().ok().or_else(named)?;
        self.ports.get(&id)
    }

    /// The port with this address.
    pub fn port_by_mac(&self, mac: MacAddr) -> Option<&Arc<Port>> {
        self.ports.get(self.macs.get(&mac)?)
    }

    /// The resource of this kind with this UUID or name.
    pub fn resource(&self, kind: ResourceKind, ident: &str) -> Option<&Arc<Resource>> {
        let named = || self.claims.get(&(kind, format!("name {ident}"))).copied();
        let id = ident.parse().ok().or_else(named)?;
        self.resources.get(&(kind, id))
    }

    /// All resources of a kind.
    pub fn resources_of(&self, kind: ResourceKind) -> impl Iterator<Item = &Arc<Resource>> {
        let first = (kind, ResourceId(uuid::Uuid::nil()));
        let last = (kind, ResourceId(uuid::Uuid::max()));
        self.resources
            .range(first..=last)
            .map(|(_, resource)| resource)
    }

    /// Nodes in order of creation.
    pub fn nodes_by_age(&self) -> Vec<&Arc<NodeView>> {
        let nodes = self
            .nodes
            .walk(NodeKey::Created, IndexRange::All, None, false);
        nodes.collect()
    }

    /// Ports in order of creation.
    pub fn ports_by_age(&self) -> Vec<&Arc<Port>> {
        self.ports.by_creation(None, false).collect()
    }
}
