//! The records of a damaged region: which are kept, older or lost, and their names in reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use trivet_board_hal::BoxKey;
use trivet_model::{MacAddr, NodeId};
use uuid::Uuid;

use crate::RecordKey;
use crate::error::{OpenError, RecordError};
use crate::layout::{PAGE_BYTES, SUPERBLOCK_PAGES, StoreLayout};
use crate::salvage::{Salvage, StoreDamage};
use crate::schema::{self, RecordKind, StoredRecord};
use crate::seal::Sealer;

/// What happened to a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecordDamage {
    /// No version of it can be read.
    Lost,
    /// An older version of it is kept.
    Older,
    /// It is kept, but the node it belongs to is not.
    WithoutNode,
}

/// A record that is lost, older or without its node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DamagedRecord {
    /// The record.
    pub key: RecordKey,
    /// What happened to it.
    pub damage: RecordDamage,
    /// Kind, UUID and name, as far as they are known.
    pub label: String,
    /// The damaged commit that last changed it, if one did.
    pub commit: Option<u64>,
}

impl fmt::Display for DamagedRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = &self.label;
        match (self.damage, self.commit) {
            (RecordDamage::Lost, Some(commit)) => write!(
                out,
                "lost: {label}: no version of it can be read; commit {commit} changed it last"
            ),
            (RecordDamage::Lost, None) => write!(out, "lost: {label}: the record cannot be read"),
            (RecordDamage::Older, Some(commit)) => write!(
                out,
                "older version of {label} kept: commit {commit} changed or deleted it, and is \
                 damaged or needs what is damaged"
            ),
            (RecordDamage::Older, None) => write!(out, "older version of {label} kept"),
            (RecordDamage::WithoutNode, _) => write!(
                out,
                "{label} kept, but its node is lost: enrol the node again with this UUID, or \
                 delete the record"
            ),
        }
    }
}

/// The records for a new store, and a report about the others.
#[derive(Clone, Debug, Default)]
pub struct SalvageOutcome {
    /// The records, by key.
    pub records: BTreeMap<RecordKey, Vec<u8>>,
    /// Number of records of each kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// The damaged places, each in a sentence: its offset and the records there, whether or not
    /// one of them is lost.
    pub damages: Vec<String>,
    /// Records that are lost, older or without their node.
    pub damaged_records: Vec<DamagedRecord>,
    /// A sentence about records that damaged commits may have contained and that have no name.
    pub unnamed: Option<String>,
    /// A sentence about the bytes after the last complete commit.
    pub unfinished: Option<String>,
    /// Whether a value is sealed and there was no key to open it.
    pub needs_key: bool,
    /// Kind, UUID and name of each record.
    pub(crate) labels: BTreeMap<RecordKey, String>,
}

impl SalvageOutcome {
    /// Kind, UUID and name of a record.
    pub fn label(&self, key: &RecordKey) -> &str {
        self.labels.get(key).map_or("record", String::as_str)
    }

    /// The offset of a damaged place and the records there.
    fn describe(&self, layout: &StoreLayout, damage: &StoreDamage) -> String {
        let mut message = Self::place(layout, damage);
        let _ = write!(message, ": {}", damage.what);
        self.name_hit(&mut message, "; it held ", damage);
        if damage.unknown {
            let _ = match damage.changes {
                Some(changes) => write!(
                    message,
                    "; {changes} changes of records were here, of which {} are named",
                    damage.hit.len()
                ),
                None => write!(
                    message,
                    "; how many changes of records were here is not known"
                ),
            };
        }
        message
    }

    /// The bytes after the last complete commit.
    fn describe_end(&self, layout: &StoreLayout, damage: &StoreDamage) -> String {
        let mut message = Self::place(layout, damage);
        let _ = write!(message, ", at the end: {}", damage.what);
        if damage.bytes > 0 {
            let pages = damage.bytes / PAGE_BYTES as u64;
            let commits = match pages {
                0 | 1 => "one commit is damaged here, and what it".to_owned(),
                pages => format!("up to {pages} commits are damaged here, and what they"),
            };
            let _ = write!(
                message,
                "; if the box was stopped in order, {commits} changed (nodes, ports, resources, \
                 leases) is lost or older"
            );
        }
        self.name_hit(&mut message, "; it changed ", damage);
        message
    }

    fn name_hit(&self, message: &mut String, verb: &str, damage: &StoreDamage) {
        let named = |key: &RecordKey| {
            let lost = self
                .damaged_records
                .iter()
                .find(|finding| finding.key == *key);
            let known = self.labels.get(key).cloned();
            let known = lost.map(|finding| finding.label.clone()).or(known);
            known.unwrap_or_else(|| label(key, None))
        };
        let hit: Vec<String> = damage.hit.iter().map(named).collect();
        if !hit.is_empty() {
            let _ = write!(message, "{verb}{}", hit.join(", "));
        }
    }

    /// The offset of a damaged place, and the commits there.
    fn place(layout: &StoreLayout, damage: &StoreDamage) -> String {
        let mut text = match damage.at {
            Some(at) => format!("{} bytes at offset {at}", damage.bytes),
            None => "at an offset that is not known".to_owned(),
        };
        let page = damage.at.map(|at| at / PAGE_BYTES as u64);
        if let Some(page) = page.and_then(|page| page.checked_sub(SUPERBLOCK_PAGES)) {
            let (segment, page) = (page / layout.segment_pages, page % layout.segment_pages);
            let _ = write!(text, " (segment {segment}, page {page})");
        }
        match damage.commits {
            Some((first, last)) if first == last => {
                let _ = write!(text, ", commit {first}");
            }
            Some((first, last)) => {
                let _ = write!(text, ", commits {first} to {last}");
            }
            None => {}
        }
        text
    }
}

impl Salvage {
    /// Reads the records with the key of the store. Without a key, sealed values
    /// are not opened. Refuses a wrong key, and records of a newer program.
    pub fn review(&self, key: Option<&BoxKey>) -> Result<SalvageOutcome, OpenError> {
        let sealer = key.map(Sealer::new);
        let sealer = sealer.as_ref();
        let own = schema::unit_key();
        let unit = self.records.get(&own).map(|stored| stored.value.as_slice());
        let read_unit = unit.map(|value| schema::decode(sealer, &own, value));
        if sealer.is_some() && matches!(read_unit, Some(Err(RecordError::Sealed { .. }))) {
            return Err(OpenError::WrongKey);
        }
        let proven = unit.is_some_and(schema::proves_key);
        let mut checked = SalvageReview::default();
        for (key, stored) in &self.records {
            let older = stored.older.map(|commit| (RecordDamage::Older, commit));
            match schema::decode(sealer, key, &stored.value) {
                Ok(record) => checked.keep(sealer, key, &stored.value, &record, older)?,
                // A newer program wrote it: kept as it is.
                Err(RecordError::UnknownKind { .. }) => {
                    checked.add(key, stored.value.clone(), label(key, None), older);
                }
                Err(error @ RecordError::NewerVersion { .. }) => return Err(error.into()),
                Err(RecordError::Sealed { .. }) if sealer.is_none() => {
                    checked.keep_sealed(key, &stored.value, older);
                }
                Err(RecordError::Sealed { .. }) if !proven => return Err(OpenError::WrongKey),
                Err(_) => checked.add_damaged(*key, RecordDamage::Lost, label(key, None), None),
            }
        }
        for (key, commit) in &self.lost {
            checked.add_damaged(*key, RecordDamage::Lost, label(key, None), Some(*commit));
        }
        if !self.is_whole() {
            checked.name_orphans();
        }
        let unnamed = self.unnamed(&checked);
        checked.restore_counter(sealer)?;
        let mut outcome = checked.outcome;
        outcome.unnamed = unnamed;
        let end = self.unfinished.as_ref();
        outcome.unfinished = end.map(|end| outcome.describe_end(&self.layout, end));
        let damages = self.damages.iter();
        outcome.damages = damages
            .map(|damage| outcome.describe(&self.layout, damage))
            .collect();
        Ok(outcome)
    }

    /// How many records of which kinds may be lost or older because of commits of which not
    /// everything is known; none if there are no such commits.
    fn unnamed(&self, checked: &SalvageReview) -> Option<String> {
        let unknown = self.damages.iter().filter(|damage| damage.unknown);
        let (first, last) = unknown
            .filter_map(|damage| damage.commits)
            .fold((u64::MAX, 0), |(first, last), (from, to)| {
                (first.min(from), last.max(to))
            });
        if first > last {
            return None;
        }
        let mut text = if first == last {
            format!("commit {first} may have held the only version of ")
        } else {
            format!(
                "the damaged ones of commits {first} to {last} may have held the only version of "
            )
        };
        let own = self.records.get(&schema::unit_key());
        // The counter is written with every record that is created.
        if own.is_some_and(|own| own.changed > last) && !checked.is_uncounted {
            let known = self.proven.iter().filter(|key| is_counted(key));
            let created = checked.serial_max;
            let missing = created.saturating_sub(known.count() as u64);
            let _ = write!(
                text,
                "at most {missing} of the {created} nodes, ports and resources that the box \
                 created, and of leases"
            );
        } else {
            text.push_str("nodes, ports, resources and leases; how many is not known");
        }
        let mut older: BTreeMap<&str, u64> = BTreeMap::new();
        let stored = self.records.iter();
        for (key, _) in
            stored.filter(|(key, stored)| stored.changed < last && key.kind != own_kind())
        {
            *older.entry(schema::kind_name(key.kind)).or_default() += 1;
        }
        let older: Vec<String> = older
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        if !older.is_empty() {
            let _ = write!(
                text,
                "; of the records kept, those that no later commit changed may be older than they \
                 were, or were deleted: {}",
                older.join(", ")
            );
        }
        Some(text)
    }
}

/// Whether the box's counter counts records of this kind.
fn is_counted(key: &RecordKey) -> bool {
    matches!(
        RecordKind::from_number(key.kind),
        Some(RecordKind::Node | RecordKind::Port | RecordKind::Resource)
    )
}

fn own_kind() -> u8 {
    RecordKind::Box as u8
}

/// The records that were read so far.
#[derive(Debug, Default)]
struct SalvageReview {
    outcome: SalvageOutcome,
    nodes: BTreeSet<NodeId>,
    /// Records that belong to nodes, with their nodes.
    belonging: Vec<(RecordKey, NodeId)>,
    /// The highest place in the order of creation that a record has.
    serial_max: u64,
    /// The counter in the record of the box.
    serial: Option<u64>,
    /// Whether a record has no place in the order of creation.
    is_uncounted: bool,
}

impl SalvageReview {
    fn add_damaged(
        &mut self,
        key: RecordKey,
        fate: RecordDamage,
        label: String,
        commit: Option<u64>,
    ) {
        self.outcome.damaged_records.push(DamagedRecord {
            key,
            damage: fate,
            label,
            commit,
        });
    }

    /// Keeps a record. A record of an older version is written in the newest one, so that its
    /// secrets are sealed in an export too.
    fn keep(
        &mut self,
        sealer: Option<&Sealer>,
        key: &RecordKey,
        value: &[u8],
        record: &StoredRecord,
        older: Option<(RecordDamage, u64)>,
    ) -> Result<(), OpenError> {
        let serial = match record {
            StoredRecord::Node(node) => {
                self.nodes.insert(node.id);
                node.serial
            }
            StoredRecord::Port(port) => {
                self.belonging.push((*key, port.node));
                port.serial
            }
            StoredRecord::Resource(resource) => {
                self.belonging
                    .extend(resource.node.map(|node| (*key, node)));
                resource.serial
            }
            StoredRecord::Lease(_) | StoredRecord::Audit(_) => 0,
            StoredRecord::Serial(serial) => {
                self.serial = Some(*serial);
                *serial
            }
            StoredRecord::Stories(stories) => {
                self.belonging.push((*key, stories.node));
                0
            }
            StoredRecord::Job(job) => {
                self.belonging.push((*key, job.node));
                0
            }
        };
        self.serial_max = self.serial_max.max(serial);
        self.is_uncounted |= serial == 0 && is_counted(key);
        // Earlier programs did not seal credentials in URLs.
        let value = match sealer {
            Some(sealer) => schema::carry_over(key, Some(value), encode(sealer, record)?)?,
            None => value.to_vec(),
        };
        self.add(key, value, label(key, Some(record)), older);
        Ok(())
    }

    fn keep_sealed(&mut self, key: &RecordKey, value: &[u8], older: Option<(RecordDamage, u64)>) {
        self.outcome.needs_key = true;
        // Its place in the order of creation is not known.
        self.is_uncounted = true;
        if let Some(id) = schema::node_of(key) {
            self.nodes.insert(id);
        }
        self.add(key, value.to_vec(), label(key, None), older);
    }

    fn add(
        &mut self,
        key: &RecordKey,
        value: Vec<u8>,
        label: String,
        older: Option<(RecordDamage, u64)>,
    ) {
        *self
            .outcome
            .counts
            .entry(schema::kind_name(key.kind))
            .or_default() += 1;
        self.outcome.records.insert(*key, value);
        if let Some((fate, commit)) = older {
            self.add_damaged(*key, fate, label.clone(), Some(commit));
        }
        self.outcome.labels.insert(*key, label);
    }

    fn name_orphans(&mut self) {
        for (key, node) in std::mem::take(&mut self.belonging) {
            if !self.nodes.contains(&node) {
                let label = self.outcome.labels.get(&key).cloned();
                let label = format!("{} of node {node}", label.unwrap_or_default());
                self.add_damaged(key, RecordDamage::WithoutNode, label, None);
            }
        }
    }

    /// Sets the counter of the box to the highest serial of all records, so that no place in
    /// the order of creation is given twice. A lost counter is not reported as lost.
    fn restore_counter(&mut self, sealer: Option<&Sealer>) -> Result<(), OpenError> {
        let Some(sealer) = sealer else {
            return Ok(());
        };
        let own = schema::unit_key();
        self.outcome
            .damaged_records
            .retain(|finding| finding.key != own);
        if self.serial.is_some_and(|serial| serial >= self.serial_max) {
            return Ok(());
        }
        let value = schema::encode_serial(sealer, self.serial_max)?;
        let earlier = self.outcome.records.get(&own);
        let value = schema::carry_over(&own, earlier.map(Vec::as_slice), value)?;
        if self.outcome.records.insert(own, value).is_none() {
            *self
                .outcome
                .counts
                .entry(RecordKind::Box.name())
                .or_default() += 1;
            self.outcome.labels.insert(own, label(&own, None));
        }
        Ok(())
    }
}

fn encode(sealer: &Sealer, record: &StoredRecord) -> Result<Vec<u8>, RecordError> {
    match record {
        StoredRecord::Node(node) => schema::encode_node(sealer, node),
        StoredRecord::Port(port) => schema::encode_port(port),
        StoredRecord::Lease(lease) => schema::encode_lease(lease),
        StoredRecord::Resource(resource) => schema::encode_resource(sealer, resource),
        StoredRecord::Serial(serial) => schema::encode_serial(sealer, *serial),
        StoredRecord::Stories(stories) => schema::encode_stories(stories),
        StoredRecord::Job(job) => schema::encode_job(job),
        StoredRecord::Audit(entry) => schema::encode_audit(entry),
    }
}

/// Kind, UUID and name of a record, for people.
fn label(key: &RecordKey, record: Option<&StoredRecord>) -> String {
    let kind = schema::kind_name(key.kind);
    let id = Uuid::from_bytes(key.id).hyphenated();
    let named = |name: &str| format!("{kind} {id} ({name})");
    match (RecordKind::from_number(key.kind), record) {
        (_, Some(StoredRecord::Node(node))) => match &node.name {
            Some(name) => named(name),
            None => format!("{kind} {id}"),
        },
        (_, Some(StoredRecord::Port(port))) => named(&port.address.to_string()),
        (_, Some(StoredRecord::Resource(resource))) => match &resource.name {
            Some(name) => format!("{} {id} ({name})", resource.kind),
            None => format!("{} {id}", resource.kind),
        },
        (_, Some(StoredRecord::Lease(lease))) => {
            format!("lease of {} ({})", lease.mac, lease.address)
        }
        (Some(RecordKind::Lease), _) => {
            let mut mac = [0; 6];
            mac.copy_from_slice(&key.id[..6]);
            format!("lease of {}", MacAddr(mac))
        }
        (Some(RecordKind::Box), _) => "counter of the box".to_owned(),
        (Some(RecordKind::Stories), _) => format!("finished jobs of node {id}"),
        (Some(RecordKind::Job), _) => format!("notes of the job of node {id}"),
        (Some(RecordKind::Audit), Some(StoredRecord::Audit(entry))) => {
            format!("request {} of {}", entry.number, entry.caller)
        }
        (None, _) => format!("record {id} of kind {} of a newer program", key.kind),
        _ => format!("{kind} {id}"),
    }
}
