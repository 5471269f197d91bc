//! A snapshot for readers: the API and the page answer from it and never wait
//! for the machine. Taking one costs the same however many nodes there are.

use core::net::Ipv4Addr;
use std::sync::Arc;

use imbl::OrdMap;

use crate::boot::ClientSeen;
use crate::fault::{BoxFault, FaultTimes};
use crate::image::ImageStatus;
use crate::index::{IndexRange, NodeIndex, NodeKey, PortIndex};
use crate::link::{LinkId, LinkView};
pub use crate::timeline::Timeline;
use crate::{MacAddr, Node, NodeId, Port, PortId, Resource, ResourceId, ResourceKind, UnixMs};

/// How many notes of each node are kept in memory.
pub const TIMELINE_NOTES_MAX: usize = 200;

/// How many unknown machines are remembered.
pub const UNKNOWN_MACHINES_MAX: usize = 1024;

/// Everything readers may see.
#[derive(Clone, Debug, Default)]
pub struct RackView {
    /// Nodes.
    pub nodes: NodeIndex,
    /// Names of nodes.
    pub names: OrdMap<String, NodeId>,
    /// The node each instance is on.
    pub instances: OrdMap<String, NodeId>,
    /// Ports.
    pub ports: PortIndex,
    /// Addresses of ports.
    pub macs: OrdMap<MacAddr, PortId>,
    /// The port each address is kept for.
    pub reserved: OrdMap<Ipv4Addr, PortId>,
    /// Names of ports.
    pub port_names: OrdMap<String, PortId>,
    /// Resources, kind by kind.
    pub resources: OrdMap<(ResourceKind, ResourceId), Arc<Resource>>,
    /// What resources claim for themselves, see [`Resource::claims`].
    pub claims: OrdMap<(ResourceKind, String), ResourceId>,
    /// Machines that asked for an address and are no port of any node.
    pub unknown_machines: OrdMap<MacAddr, UnknownMachine>,
    /// Where DHCP is heard, and who else serves there.
    pub links: OrdMap<LinkId, Arc<LinkView>>,
    /// What is wrong now.
    pub faults: OrdMap<BoxFault, FaultTimes>,
    /// Images in the cache, by what they are called there.
    pub images: OrdMap<String, Arc<ImageStatus>>,
    /// Who boots from the network, and who waits for it.
    pub boot_queue: BootQueueCounts,
    /// How often a machine is booted for one job at most; zero where that is not known.
    pub boots_max: u32,
}

/// How many machines boot from the network at once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BootQueueCounts {
    /// How many may.
    pub limit: usize,
    /// How many do.
    pub booting: usize,
    /// How many wait for their turn.
    pub waiting: usize,
    /// How many have had their turn after waiting.
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
    /// What is not on flash.
    pub live: NodeLiveState,
    /// What happened, oldest first.
    pub timeline: Timeline,
}

/// What we know of a node from moment to moment and do not keep.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeLiveState {
    /// When the agent last beat.
    pub heartbeat_at: Option<UnixMs>,
    /// Bytes of the present file that left, and its size.
    pub transfer: Option<(u64, u64)>,
    /// The name of the present file.
    pub transfer_path: Option<String>,
    /// Its number among those that wait to boot; see [`View::ahead`].
    pub queue_number: Option<u64>,
    /// How well its BMC answers; none until it was asked.
    pub bmc: Option<BmcHealth>,
    /// What is kept of its agents' logs, oldest first.
    pub logs: Vec<LogBundle>,
}

/// The logs of one agent, as a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogBundle {
    /// What it is called: when it was collected.
    pub name: String,
    /// How large it is.
    pub bytes: u64,
}

/// How well a BMC answered lately.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BmcHealth {
    /// How many of its last answers are counted.
    pub requests: u32,
    /// How many of them came.
    pub replies: u32,
    /// How long the middle one took.
    pub median_ms: Option<u64>,
    /// Of which kind the last failure was, see [`crate::PowerError::kind`].
    pub last_error: Option<&'static str>,
    /// 0 to 100: the share that came, less for being slow.
    pub score: u8,
}

/// A machine that is no port of any node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownMachine {
    /// When it last asked.
    pub seen_at: UnixMs,
    /// What it said of itself.
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

    /// How many others boot before this one, if it waits for its turn.
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
