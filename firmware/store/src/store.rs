//! The typed store: nodes, ports, leases and the box's counter over the log.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use trivet_board_hal::{Flash, KeyVault};
use trivet_model::{Lease, MacAddr, Node, NodeId, Port, PortId, Resource, ResourceId};

use crate::decode::decode_all;
use crate::error::{CommitError, OpenError, RecordError};
use crate::layout::{BATCH_CHANGES_MAX, SEGMENT_BYTES, StoreLayout};
use crate::log::{StoreLog, StoreStats};
use crate::seal::Sealer;
use crate::table::RecordTable;
use crate::{RecordKey, schema};

/// One change of one record.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreChange {
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
pub struct StoreRecords {
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

impl StoreRecords {
    pub(crate) fn add(&mut self, record: schema::StoredRecord) {
        match record {
            schema::StoredRecord::Node(node) => {
                self.nodes.insert(node.id, *node);
            }
            schema::StoredRecord::Port(port) => {
                self.ports.insert(port.id, port);
            }
            schema::StoredRecord::Resource(resource) => {
                self.resources.insert(resource.id, resource);
            }
            schema::StoredRecord::Lease(lease) => {
                self.leases.insert(lease.mac, lease);
            }
            schema::StoredRecord::Serial(serial) => self.serial = serial,
        }
    }
}

/// The records of a box on its flash.
#[derive(Clone)]
pub struct Store<F> {
    log: StoreLog<F>,
    sealer: Arc<Sealer>,
    /// The records as opening read them, until they are taken or change.
    opened: Option<StoreRecords>,
}

impl<F: fmt::Debug> fmt::Debug for Store<F> {
    /// Without the key, and without records whose secrets are open.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Store");
        shown.field("log", &self.log).finish_non_exhaustive()
    }
}

impl<F: Flash> Store<F> {
    /// Opens the store and formats a blank region. Refuses a region that holds
    /// anything this program cannot read or this key cannot open, and leaves it as it
    /// is. Where the vault has no key and nothing is sealed yet, one is made in it
    /// before anything is written.
    pub fn open(flash: F, vault: impl KeyVault) -> Result<Self, OpenError> {
        Self::open_with(flash, vault, SEGMENT_BYTES)
    }

    /// The same, with a segment size of one's own for a blank region.
    pub fn open_with(
        flash: F,
        mut vault: impl KeyVault,
        segment_bytes: u32,
    ) -> Result<Self, OpenError> {
        let admit = |table: &RecordTable| admit(table, &mut vault);
        let (log, (sealer, records)) = StoreLog::open_if(flash, segment_bytes, admit)?;
        let mut store = Self {
            log,
            sealer: Arc::new(sealer),
            opened: None,
        };
        store.renew()?;
        // Renewing changes how records are written and not what they say.
        store.opened = Some(records);
        store.log.count_from_here();
        Ok(store)
    }

    /// Writes what earlier programs left unsealed, and last the record that says so and shows
    /// later whether a key is the right one. Where that record is there, only records of older
    /// versions are looked at. Where there is no room for a record it stays as it is until its
    /// next change.
    fn renew(&mut self) -> Result<(), OpenError> {
        let own = schema::unit_key();
        let unit = self.log.value(&own);
        let renewed = unit.is_some_and(|value| !schema::is_old(&own, value));
        let (mut old, mut last_serial) = (Vec::new(), 0);
        for (key, value) in self.log.iter() {
            if renewed && !schema::is_old(key, value) {
                continue;
            }
            let change = match schema::decode(Some(&self.sealer), key, value)? {
                schema::StoredRecord::Node(node) => StoreChange::PutNode(Arc::new(*node)),
                schema::StoredRecord::Port(port) => StoreChange::PutPort(Arc::new(port)),
                schema::StoredRecord::Lease(lease) => StoreChange::PutLease(lease),
                schema::StoredRecord::Resource(resource) => {
                    StoreChange::PutResource(Arc::new(resource))
                }
                schema::StoredRecord::Serial(serial) => {
                    last_serial = serial;
                    continue;
                }
            };
            // Equal records have equal bytes: others have something to be sealed.
            let sealed = self.encoded_change(&BTreeMap::new(), &change);
            if sealed.is_ok_and(|(_, bytes)| bytes.as_deref() != Some(value)) {
                old.push(change);
            }
        }
        for batch in old.chunks(BATCH_CHANGES_MAX) {
            self.rewrite(batch)?;
        }
        if renewed {
            return Ok(());
        }
        self.rewrite(&[StoreChange::PutSerial(last_serial)])
    }

    /// Writes the records whole: a patch would need the bytes that are to be replaced.
    fn rewrite(&mut self, batch: &[StoreChange]) -> Result<(), OpenError> {
        let written = self
            .encoded(batch)
            .and_then(|batch| self.log.commit_whole(batch));
        match written {
            Err(CommitError::Flash(error)) => Err(error.into()),
            Err(_) if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                self.rewrite(first)?;
                self.rewrite(second)
            }
            _ => Ok(()),
        }
    }

    /// Writes all changes or none, in one commit with one flush; they are durable
    /// when this returns. Of several changes of one record the last one counts.
    /// A change that leaves the bytes of its record as they are writes nothing.
    pub fn commit(&mut self, changes: &[StoreChange]) -> Result<(), CommitError> {
        if changes.len() > BATCH_CHANGES_MAX {
            let changes = changes.len();
            return Err(CommitError::TooManyChanges { changes });
        }
        self.opened = None;
        let batch = self.encoded(changes)?;
        self.log.commit(batch)
    }

    fn encoded(
        &self,
        changes: &[StoreChange],
    ) -> Result<BTreeMap<RecordKey, Option<Vec<u8>>>, CommitError> {
        let mut batch = BTreeMap::new();
        for change in changes {
            let (key, value) = self.encoded_change(&batch, change)?;
            batch.insert(key, value);
        }
        Ok(batch)
    }

    /// The new value of a record, with the fields of the value before it that this program
    /// does not know.
    fn encoded_change(
        &self,
        batch: &BTreeMap<RecordKey, Option<Vec<u8>>>,
        change: &StoreChange,
    ) -> Result<(RecordKey, Option<Vec<u8>>), RecordError> {
        let (key, value) = encode(&self.sealer, change)?;
        let earlier = match batch.get(&key) {
            Some(earlier) => earlier.as_deref(),
            None => self.log.value(&key),
        };
        let value = value.map(|value| schema::carry_over(&key, earlier, value));
        Ok((key, value.transpose()?))
    }

    /// Reads all records.
    pub fn records(&self) -> Result<StoreRecords, RecordError> {
        decode_all(Some(&self.sealer), self.log.iter())
    }

    /// All records. Opening has decoded them to check them; who takes them before the
    /// first commit gets those, and none is decoded again.
    pub fn take_records(&mut self) -> Result<StoreRecords, RecordError> {
        match self.opened.take() {
            Some(records) => Ok(records),
            None => self.records(),
        }
    }

    /// What was done since opening, and what room is left.
    pub fn stats(&self) -> StoreStats {
        self.log.stats()
    }

    /// The shape and the limits of the region.
    pub fn layout(&self) -> &StoreLayout {
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

/// Reads every record with the key of the vault, or makes a key if none is needed.
fn admit(
    table: &RecordTable,
    vault: &mut impl KeyVault,
) -> Result<(Sealer, StoreRecords), OpenError> {
    let read = |sealer: Option<&Sealer>| decode_all(sealer, table.iter());
    let Some(key) = vault.key()? else {
        return match read(None) {
            Ok(records) => Ok((Sealer::new(&vault.make_key()?), records)),
            Err(RecordError::Sealed { .. }) => Err(OpenError::KeyMissing),
            Err(error) => Err(error.into()),
        };
    };
    let sealer = Sealer::new(&key);
    // The box's own record tells a wrong key from a damaged record.
    let own = schema::unit_key();
    let unit = table.value(&own);
    if let Some(value) = unit
        && let Err(RecordError::Sealed { .. }) = schema::decode(Some(&sealer), &own, value)
    {
        return Err(OpenError::WrongKey);
    }
    let proven = unit.is_some_and(schema::proves_key);
    match read(Some(&sealer)) {
        Err(RecordError::Sealed { .. }) if !proven => Err(OpenError::WrongKey),
        outcome => Ok((sealer, outcome?)),
    }
}

fn encode(
    sealer: &Sealer,
    change: &StoreChange,
) -> Result<(RecordKey, Option<Vec<u8>>), RecordError> {
    Ok(match change {
        StoreChange::PutNode(node) => {
            let bytes = schema::encode_node(sealer, node)?;
            (schema::node_key(node.id), Some(bytes))
        }
        StoreChange::DeleteNode(id) => (schema::node_key(*id), None),
        StoreChange::PutPort(port) => (schema::port_key(port.id), Some(schema::encode_port(port)?)),
        StoreChange::DeletePort(id) => (schema::port_key(*id), None),
        StoreChange::PutResource(resource) => {
            let bytes = schema::encode_resource(sealer, resource)?;
            (schema::resource_key(resource.id), Some(bytes))
        }
        StoreChange::DeleteResource(id) => (schema::resource_key(*id), None),
        StoreChange::PutLease(lease) => {
            let bytes = schema::encode_lease(lease)?;
            (schema::lease_key(lease.mac), Some(bytes))
        }
        StoreChange::DeleteLease(mac) => (schema::lease_key(*mac), None),
        StoreChange::PutSerial(serial) => {
            let bytes = schema::encode_serial(sealer, *serial)?;
            (schema::unit_key(), Some(bytes))
        }
    })
}

#[cfg(test)]
mod tests;
