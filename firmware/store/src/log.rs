//! The log: each batch of changes is one commit, which is durable on return.
//!
//! The log contains keys and bytes and does not decode them. It is a ring of segments. New
//! commits are written at the head. Each commit also carries records that depend on the oldest
//! segments: those that fit into the spare bytes of its last page and, while less than half of
//! the region is free, three pages for each page of the batch. So there is no separate cleaning
//! pass, the cost of cleaning per commit is bounded by the batch, and the head cannot reach the
//! tail.

use std::collections::{BTreeMap, BTreeSet};

use trivet_board_hal::{Flash, FlashError};

use crate::entry::{LogEntry, PUT_OVERHEAD_BYTES};
use crate::error::{CommitError, OpenError};
use crate::layout::{
    BATCH_CHANGES_MAX, PAGE_BYTES, PAGE_PAYLOAD_BYTES, RELOCATED_PAGES_PER_PAGE,
    RELOCATION_LOOKS_MAX, StoreLayout,
};
use crate::page::CommitHeader;
use crate::recover::RecoveredLog;
use crate::table::{RecordTable, cost};
use crate::{RecordKey, recover, schema, superblock};

/// Counters since the log was opened, and its space.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreStats {
    /// Number of commits.
    pub commits: u64,
    /// Bytes written by commits.
    pub written_bytes: u64,
    /// Flushes of commits.
    pub flushes: u64,
    /// Old records carried to the head.
    pub relocated: u64,
    /// Number of records.
    pub records: u64,
    /// Bytes of all records.
    pub live_bytes: u64,
    /// Limit of `live_bytes`.
    pub live_bytes_max: u64,
    /// Segments that recovery does not need.
    pub free_segments: u64,
    /// Number of segments.
    pub segments: u64,
}

/// Values by key on a flash.
#[derive(Clone, Debug)]
pub struct StoreLog<F> {
    flash: F,
    layout: StoreLayout,
    table: RecordTable,
    /// Log position of the next page.
    head: u64,
    next_commit: u64,
    poisoned: bool,
    stats: StoreStats,
}

/// How a commit writes a record that changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WriteForm {
    /// As a patch of the value before, if that is shorter.
    Shortest,
    /// With all its bytes.
    Whole,
}

/// The change of a record by a commit.
#[derive(Debug)]
enum RecordEffect {
    Put(Vec<u8>),
    Patch(Vec<u8>),
    Delete,
}

/// A commit that is not yet written.
#[derive(Debug)]
struct CommitPlan {
    effects: BTreeMap<RecordKey, RecordEffect>,
    relocated: Vec<RecordKey>,
    payload: Vec<u8>,
}

impl<F: Flash> StoreLog<F> {
    /// Opens the region, formatting it with this segment size if it is blank.
    pub fn open(flash: F, segment_bytes: u32) -> Result<Self, OpenError> {
        let (log, ()) = Self::open_if(flash, segment_bytes, |_| Ok(()))?;
        Ok(log)
    }

    /// The same, unless `admit` refuses the records: then nothing was written.
    pub(crate) fn open_if<T>(
        mut flash: F,
        segment_bytes: u32,
        admit: impl FnOnce(&RecordTable) -> Result<T, OpenError>,
    ) -> Result<(Self, T), OpenError> {
        let shape = superblock::find(&mut flash, segment_bytes)?;
        let layout = shape.layout;
        let found = if shape.is_blank {
            RecoveredLog::empty()
        } else {
            recover::recover(&mut flash, &layout)?
        };
        let admitted = admit(&found.table)?;
        superblock::complete(&mut flash, &shape)?;
        if !shape.is_blank {
            recover::wipe_torn(&mut flash, &layout, &found)?;
        }
        // If a program ended before its flush, the newest commit may be in a cache only.
        // Callers rely on it from now on.
        flash.flush()?;
        let log = Self {
            flash,
            layout,
            table: found.table,
            head: found.head,
            next_commit: found.next_commit,
            poisoned: false,
            stats: StoreStats::default(),
        };
        Ok((log, admitted))
    }

    /// Resets the counters at the end of opening.
    pub(crate) fn count_from_here(&mut self) {
        self.stats = StoreStats::default();
    }

    /// All records, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&RecordKey, &[u8])> {
        self.table.iter()
    }

    /// One record.
    pub fn value(&self, key: &RecordKey) -> Option<&[u8]> {
        self.table.value(key)
    }

    /// Writes all changes or none: `None` deletes. They are durable when this
    /// returns. Changes that change nothing are left out; if none is left,
    /// nothing is written.
    pub fn commit(
        &mut self,
        changes: BTreeMap<RecordKey, Option<Vec<u8>>>,
    ) -> Result<(), CommitError> {
        self.commit_as(WriteForm::Shortest, changes)
    }

    /// The same, but every changed record is written as a put, so that its earlier values are
    /// no longer needed.
    pub(crate) fn commit_whole(
        &mut self,
        changes: BTreeMap<RecordKey, Option<Vec<u8>>>,
    ) -> Result<(), CommitError> {
        self.commit_as(WriteForm::Whole, changes)
    }

    fn commit_as(
        &mut self,
        form: WriteForm,
        changes: BTreeMap<RecordKey, Option<Vec<u8>>>,
    ) -> Result<(), CommitError> {
        if self.poisoned {
            return Err(CommitError::Poisoned);
        }
        let Some(mut plan) = self.plan(form, changes)? else {
            return Ok(());
        };
        self.relocate(&mut plan);
        let header = self.header(&plan);
        if u64::from(header.pages) > self.free_pages() {
            // StoreLayout::live_bytes_max prevents this. If it is wrong, the commit is
            // refused and the tail is not overwritten.
            return Err(self.full(self.table.live_bytes()));
        }
        if let Err(error) = self.write(&header, &plan.payload) {
            self.poisoned = true;
            return Err(CommitError::Flash(error));
        }
        self.apply(plan, &header);
        Ok(())
    }

    /// Counters and space.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            records: self.table.len() as u64,
            live_bytes: self.table.live_bytes(),
            live_bytes_max: self.layout.live_bytes_max(),
            free_segments: self.free_pages() / self.layout.segment_pages,
            segments: self.layout.segments,
            ..self.stats
        }
    }

    /// The layout and the limits of the region.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// The flash.
    pub fn flash(&self) -> &F {
        &self.flash
    }

    /// The flash, for tests that set faults in a simulated one. Writing to it damages the store.
    pub fn flash_mut(&mut self) -> &mut F {
        &mut self.flash
    }

    /// Closes the log and returns the flash.
    pub fn into_flash(self) -> F {
        self.flash
    }

    fn head_segment(&self) -> u64 {
        self.layout.segment_of(self.head)
    }

    fn free_pages(&self) -> u64 {
        let tail_segment = self.table.tail_segment().unwrap_or(self.head_segment());
        let used = self.head - tail_segment * self.layout.segment_pages;
        self.layout.pages().saturating_sub(used)
    }

    fn full(&self, bytes: u64) -> CommitError {
        CommitError::Full {
            bytes,
            limit: self.layout.live_bytes_max(),
        }
    }

    /// Turns changes into entries and checks every limit; none if nothing changes.
    fn plan(
        &self,
        form: WriteForm,
        changes: BTreeMap<RecordKey, Option<Vec<u8>>>,
    ) -> Result<Option<CommitPlan>, CommitError> {
        if changes.len() > BATCH_CHANGES_MAX {
            return Err(CommitError::TooManyChanges {
                changes: changes.len(),
            });
        }
        let mut plan = CommitPlan {
            effects: BTreeMap::new(),
            relocated: Vec::new(),
            payload: Vec::new(),
        };
        let mut live_bytes = self.table.live_bytes();
        for (key, new) in changes {
            let old = self.table.value(&key);
            if old == new.as_deref() {
                continue;
            }
            live_bytes = live_bytes - old.map_or(0, cost) + new.as_deref().map_or(0, cost);
            let base = old.filter(|_| form == WriteForm::Shortest);
            let effect = self.effect(&key, base, new, &mut plan.payload)?;
            plan.effects.insert(key, effect);
        }
        let limit = self.layout.batch_bytes_max();
        if plan.payload.len() > limit {
            let bytes = plan.payload.len();
            return Err(CommitError::BatchTooLarge { bytes, limit });
        }
        if live_bytes > self.layout.live_bytes_max().max(self.table.live_bytes()) {
            return Err(self.full(live_bytes));
        }
        Ok((!plan.effects.is_empty()).then_some(plan))
    }

    fn effect(
        &self,
        key: &RecordKey,
        old: Option<&[u8]>,
        new: Option<Vec<u8>>,
        payload: &mut Vec<u8>,
    ) -> Result<RecordEffect, CommitError> {
        let Some(new) = new else {
            LogEntry::Delete(*key).encode(payload);
            return Ok(RecordEffect::Delete);
        };
        if new.len() > self.layout.record_bytes_max() {
            return Err(CommitError::RecordTooLarge {
                kind: schema::kind_name(key.kind),
                node: schema::node_of(key),
                bytes: new.len(),
                limit: self.layout.record_bytes_max(),
            });
        }
        let entry = LogEntry::change(*key, old, &new);
        entry.encode(payload);
        let is_patch = matches!(entry, LogEntry::Patch(..));
        Ok(if is_patch {
            RecordEffect::Patch(new)
        } else {
            RecordEffect::Put(new)
        })
    }

    /// Adds puts of records that depend on old segments.
    fn relocate(&self, plan: &mut CommitPlan) {
        let own_pages = plan.payload.len().div_ceil(PAGE_PAYLOAD_BYTES) as u64;
        let pressed = self.free_pages().saturating_sub(own_pages) < self.layout.pressure_pages();
        let mut due = if pressed {
            RELOCATED_PAGES_PER_PAGE * own_pages * PAGE_PAYLOAD_BYTES as u64
        } else {
            0
        };
        let mut looks = 0;
        for key in self.table.keys_before(self.head_segment()) {
            let spare = plan.payload.len().next_multiple_of(PAGE_PAYLOAD_BYTES);
            let spare = (spare - plan.payload.len()) as u64;
            if due == 0 && (spare <= PUT_OVERHEAD_BYTES as u64 || looks == RELOCATION_LOOKS_MAX) {
                return;
            }
            let value = match plan.effects.get(&key) {
                Some(RecordEffect::Put(_) | RecordEffect::Delete) => continue,
                Some(RecordEffect::Patch(new)) => new.as_slice(),
                None => self.table.value(&key).unwrap_or_default(),
            };
            if due == 0 && cost(value) > spare {
                looks += 1;
                continue;
            }
            due = due.saturating_sub(cost(value));
            LogEntry::Put(key, value).encode(&mut plan.payload);
            plan.relocated.push(key);
        }
    }

    fn header(&self, plan: &CommitPlan) -> CommitHeader {
        let moved = plan
            .effects
            .iter()
            .filter(|(_, effect)| !matches!(effect, RecordEffect::Patch(_)))
            .map(|(key, _)| key);
        let leaving: BTreeSet<&RecordKey> = moved.chain(&plan.relocated).collect();
        let tail_commit = self.table.tail_commit_after(
            self.next_commit,
            self.head_segment(),
            leaving.into_iter(),
        );
        let entries = (plan.effects.len() + plan.relocated.len()) as u32;
        CommitHeader::new(
            self.next_commit,
            tail_commit,
            self.head,
            entries,
            &plan.payload,
        )
    }

    /// One write, two at the end of the ring, and one flush.
    fn write(&mut self, header: &CommitHeader, payload: &[u8]) -> Result<(), FlashError> {
        let bytes = header.encode(payload);
        let pages_to_end = self.layout.pages() - header.start % self.layout.pages();
        let bytes_to_end = pages_to_end as usize * PAGE_BYTES;
        let (first, wrapped) = bytes.split_at(bytes_to_end.min(bytes.len()));
        self.flash
            .write(self.layout.offset_of(header.start), first)?;
        if !wrapped.is_empty() {
            self.flash.write(self.layout.offset_of(0), wrapped)?;
        }
        self.flash.flush()?;
        self.stats.commits += 1;
        self.stats.flushes += 1;
        self.stats.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn apply(&mut self, plan: CommitPlan, header: &CommitHeader) {
        let segment = self.head_segment();
        self.table.begin(segment, header.commit);
        for (key, effect) in plan.effects {
            match effect {
                RecordEffect::Put(value) => self.table.put(key, value, segment),
                RecordEffect::Patch(value) => self.table.patch(&key, value),
                RecordEffect::Delete => self.table.delete(&key),
            }
        }
        for key in plan.relocated {
            self.stats.relocated += 1;
            if let Some(value) = self.table.value(&key).map(<[u8]>::to_vec) {
                self.table.put(key, value, segment);
            }
        }
        self.table.release();
        self.head = header.end();
        self.next_commit += 1;
    }
}

#[cfg(test)]
mod tests;
