//! The typed store: nodes, ports, leases, resources and the counter of the box, as records of
//! the log.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use trivet_board_hal::{Flash, KeyVault};
use trivet_model::story::{AuditEntry, NodeStories, RunningJobStory};
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
    /// Writes a node.
    PutNode(Arc<Node>),
    /// Deletes a node.
    DeleteNode(NodeId),
    /// Writes a port.
    PutPort(Arc<Port>),
    /// Deletes a port.
    DeletePort(PortId),
    /// Writes a resource.
    PutResource(Arc<Resource>),
    /// Deletes a resource.
    DeleteResource(ResourceId),
    /// Writes a lease.
    PutLease(Lease),
    /// Deletes a lease.
    DeleteLease(MacAddr),
    /// Writes the counter: the last place given in the order of creation.
    PutSerial(u64),
    /// Writes the finished jobs and failures of a node.
    PutStories(Arc<NodeStories>),
    /// Deletes the finished jobs and failures of a node.
    DeleteStories(NodeId),
    /// Writes the job of a node, with its notes.
    PutJob(Arc<RunningJobStory>),
    /// Deletes the job of a node.
    DeleteJob(NodeId),
    /// Writes a request of a caller, in place of the one that is older by the size of the ring.
    PutAudit(Arc<AuditEntry>),
}

impl StoreChange {
    /// Whether it only tells what happened, so that a full store can do without it.
    pub fn is_story(&self) -> bool {
        matches!(
            self,
            Self::PutStories(_) | Self::PutJob(_) | Self::PutAudit(_)
        )
    }
}

/// All records, decoded.
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
    /// Finished jobs and failures of nodes.
    pub stories: BTreeMap<NodeId, NodeStories>,
    /// Jobs that run or failed last.
    pub jobs: BTreeMap<NodeId, RunningJobStory>,
    /// Requests of callers, by their numbers.
    pub audit: BTreeMap<u64, AuditEntry>,
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
            schema::StoredRecord::Stories(stories) => {
                self.stories.insert(stories.node, *stories);
            }
            schema::StoredRecord::Job(job) => {
                self.jobs.insert(job.node, *job);
            }
            schema::StoredRecord::Audit(entry) => {
                self.audit.insert(entry.number, entry);
            }
        }
    }
}

/// The records of a box on its flash.
#[derive(Clone)]
pub struct Store<F> {
    log: StoreLog<F>,
    sealer: Arc<Sealer>,
    /// The records that opening decoded, until they are taken or change.
    opened: Option<StoreRecords>,
}

impl<F: fmt::Debug> fmt::Debug for Store<F> {
    /// Shows neither the key nor decoded records.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Store");
        shown.field("log", &self.log).finish_non_exhaustive()
    }
}

impl<F: Flash> Store<F> {
    /// Opens the store and formats a blank region. Refuses a region with data that this program
    /// cannot read or this key cannot open, and does not change it. If the vault has no key and
    /// no value is sealed yet, the vault makes a key before anything is written.
    pub fn open(flash: F, vault: impl KeyVault) -> Result<Self, OpenError> {
        Self::open_with(flash, vault, SEGMENT_BYTES)
    }

    /// The same, with another segment size for a blank region.
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
        // Renewing changes the encoding of records and not their content.
        store.opened = Some(records);
        store.log.count_from_here();
        Ok(store)
    }

    /// Writes records of older versions, and records with unsealed secrets, in the newest
    /// version. The record of the box is the last. If it has the newest version already, only
    /// records of older versions are decoded. A record for which there is no space stays as it
    /// is until its next change.
    fn renew(&mut self) -> Result<(), OpenError> {
        let own = schema::unit_key();
        let unit = self.log.value(&own);
        let renewed = unit.is_some_and(|value| !schema::is_old(&own, value));
        let (mut old, mut last_serial) = (Vec::new(), 0);
        for (key, value) in self.log.iter() {
            if renewed && !schema::is_old(key, value) || !schema::is_known(key) {
                continue;
            }
            let change = match schema::decode(Some(&self.sealer), key, value)? {
                schema::StoredRecord::Node(node) => StoreChange::PutNode(Arc::new(*node)),
                schema::StoredRecord::Port(port) => StoreChange::PutPort(Arc::new(port)),
                schema::StoredRecord::Lease(lease) => StoreChange::PutLease(lease),
                schema::StoredRecord::Resource(resource) => {
                    StoreChange::PutResource(Arc::new(resource))
                }
                // These kinds have one version only, and nothing in them is sealed.
                schema::StoredRecord::Stories(_)
                | schema::StoredRecord::Job(_)
                | schema::StoredRecord::Audit(_) => continue,
                schema::StoredRecord::Serial(serial) => {
                    last_serial = serial;
                    continue;
                }
            };
            // Equal records have equal bytes, so other bytes have an older encoding.
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

    /// Writes the records as puts: a patch would need the bytes that are replaced.
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

    /// All records. Before the first commit these are the ones that opening decoded; later they
    /// are decoded again.
    pub fn take_records(&mut self) -> Result<StoreRecords, RecordError> {
        match self.opened.take() {
            Some(records) => Ok(records),
            None => self.records(),
        }
    }

    /// Counters since opening, and space.
    pub fn stats(&self) -> StoreStats {
        self.log.stats()
    }

    /// The layout and the limits of the region.
    pub fn layout(&self) -> &StoreLayout {
        self.log.layout()
    }

    /// The flash.
    pub fn flash(&self) -> &F {
        self.log.flash()
    }

    /// The flash, for tests that set faults in a simulated one. Writing to it damages the store.
    pub fn flash_mut(&mut self) -> &mut F {
        self.log.flash_mut()
    }

    /// Closes the store and returns the flash.
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
    // The record of the box distinguishes a wrong key from a damaged record.
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
        StoreChange::PutStories(stories) => {
            let bytes = schema::encode_stories(stories)?;
            (schema::stories_key(stories.node), Some(bytes))
        }
        StoreChange::DeleteStories(id) => (schema::stories_key(*id), None),
        StoreChange::PutJob(job) => (schema::job_key(job.node), Some(schema::encode_job(job)?)),
        StoreChange::DeleteJob(id) => (schema::job_key(*id), None),
        StoreChange::PutAudit(entry) => {
            let bytes = schema::encode_audit(entry)?;
            (schema::audit_key(entry.number), Some(bytes))
        }
    })
}

#[cfg(test)]
mod tests;
