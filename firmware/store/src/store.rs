//! The typed store: nodes, ports, leases and the box's counter over the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use trivet_board_hal::Flash;
use trivet_model::{Lease, MacAddr, Node, NodeId, Port, PortId, Resource, ResourceId};

use crate::error::{CommitError, OpenError, RecordError};
use crate::layout::{BATCH_CHANGES_MAX, Layout, SEGMENT_BYTES};
use crate::log::{Log, Stats};
use crate::{Key, schema};

/// One change of one record.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The node is now this.
    PutNode(Arc<Node>),
    /// The node is gone.
    DeleteNode(NodeId),
    /// The port is now this.
    PutPort(Arc<Port>),
    /// The port is gone.
    DeletePort(PortId),
    /// The resource is now this.
    PutResource(Arc<Resource>),
    /// The resource is gone.
    DeleteResource(ResourceId),
    /// The lease is now this.
    PutLease(Lease),
    /// The lease is gone.
    DeleteLease(MacAddr),
    /// The last place given in the order of creation.
    PutSerial(u64),
}

/// All records, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// Nodes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Ports.
    pub ports: BTreeMap<PortId, Port>,
    /// Resources.
    pub resources: BTreeMap<ResourceId, Resource>,
    /// Leases.
    pub leases: BTreeMap<MacAddr, Lease>,
    /// The last place given in the order of creation; zero before the first.
    pub serial: u64,
}

/// The records of a box on its flash.
#[derive(Clone, Debug)]
pub struct Store<F> {
    log: Log<F>,
}

impl<F: Flash> Store<F> {
    /// Opens the store and formats a blank region. Refuses a region that holds
    /// anything this program cannot read, and leaves it as it is.
    pub fn open(flash: F) -> Result<Self, OpenError> {
        Self::open_with(flash, SEGMENT_BYTES)
    }

    /// The same, with a segment size of one's own for a blank region.
    pub fn open_with(flash: F, segment_bytes: u32) -> Result<Self, OpenError> {
        let store = Self {
            log: Log::open(flash, segment_bytes)?,
        };
        store.records()?;
        Ok(store)
    }

    /// Writes all changes or none, in one commit with one flush; they are durable
    /// when this returns. Of several changes of one record the last one counts.
    /// A change that leaves the bytes of its record as they are writes nothing.
    pub fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError> {
        if changes.len() > BATCH_CHANGES_MAX {
            let changes = changes.len();
            return Err(CommitError::TooManyChanges { changes });
        }
        let mut batch = BTreeMap::new();
        for change in changes {
            let (key, value) = encode(change)?;
            batch.insert(key, value);
        }
        self.log.commit(batch)
    }

    /// Reads all records.
    pub fn records(&self) -> Result<Records, RecordError> {
        let mut records = Records::default();
        for (key, value) in self.log.iter() {
            match schema::decode(key, value)? {
                schema::Record::Node(node) => {
                    records.nodes.insert(node.id, *node);
                }
                schema::Record::Port(port) => {
                    records.ports.insert(port.id, port);
                }
                schema::Record::Resource(resource) => {
                    records.resources.insert(resource.id, resource);
                }
                schema::Record::Lease(lease) => {
                    records.leases.insert(lease.mac, lease);
                }
                schema::Record::Serial(serial) => records.serial = serial,
            }
        }
        Ok(records)
    }

    /// What was done since opening, and what room is left.
    pub fn stats(&self) -> Stats {
        self.log.stats()
    }

    /// The shape and the limits of the region.
    pub fn layout(&self) -> &Layout {
        self.log.layout()
    }

    /// The flash beneath.
    pub fn flash(&self) -> &F {
        self.log.flash()
    }

    /// The flash beneath, to arm a simulated one. Writing to it breaks the store.
    pub fn flash_mut(&mut self) -> &mut F {
        self.log.flash_mut()
    }

    /// Gives the flash back.
    pub fn into_flash(self) -> F {
        self.log.into_flash()
    }
}

fn encode(change: &Change) -> Result<(Key, Option<Vec<u8>>), RecordError> {
    Ok(match change {
        Change::PutNode(node) => (schema::node_key(node.id), Some(schema::encode_node(node)?)),
        Change::DeleteNode(id) => (schema::node_key(*id), None),
        Change::PutPort(port) => (schema::port_key(port.id), Some(schema::encode_port(port)?)),
        Change::DeletePort(id) => (schema::port_key(*id), None),
        Change::PutResource(resource) => {
            let bytes = schema::encode_resource(resource)?;
            (schema::resource_key(resource.id), Some(bytes))
        }
        Change::DeleteResource(id) => (schema::resource_key(*id), None),
        Change::PutLease(lease) => {
            let bytes = schema::encode_lease(lease)?;
            (schema::lease_key(lease.mac), Some(bytes))
        }
        Change::DeleteLease(mac) => (schema::lease_key(*mac), None),
        Change::PutSerial(serial) => (schema::unit_key(), Some(schema::encode_serial(*serial)?)),
    })
}

#[cfg(test)]
mod tests;
