//! The records in memory, and the segment that each one depends on.
//!
//! A record depends on the segment in which the commit with its last put starts: patches after
//! it are useless without it. A segment is free if no record depends on it or on an older one.

use std::collections::{BTreeMap, BTreeSet};

use crate::RecordKey;
use crate::entry::PUT_OVERHEAD_BYTES;

/// One record.
#[derive(Clone, Debug)]
struct LiveRecord {
    value: Vec<u8>,
    segment: u64,
}

/// One segment in use.
#[derive(Clone, Debug)]
struct LiveSegment {
    /// First commit that starts in it.
    first_commit: u64,
    /// Records that depend on it.
    keys: BTreeSet<RecordKey>,
}

/// All records.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordTable {
    records: BTreeMap<RecordKey, LiveRecord>,
    segments: BTreeMap<u64, LiveSegment>,
    live_bytes: u64,
}

impl RecordTable {
    pub(crate) fn value(&self, key: &RecordKey) -> Option<&[u8]> {
        self.records.get(key).map(|record| record.value.as_slice())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RecordKey, &[u8])> {
        self.records
            .iter()
            .map(|(key, record)| (key, record.value.as_slice()))
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes of all records as puts.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The oldest segment in use; none before the first commit.
    pub(crate) fn tail_segment(&self) -> Option<u64> {
        self.segments.keys().next().copied()
    }

    /// The records that depend on segments before `head`, oldest segment first.
    pub(crate) fn keys_before(&self, head: u64) -> impl Iterator<Item = RecordKey> {
        self.segments
            .range(..head)
            .flat_map(|(_, segment)| segment.keys.iter().copied())
    }

    /// A commit starts in the segment.
    pub(crate) fn begin(&mut self, segment: u64, commit: u64) {
        self.segments.entry(segment).or_insert_with(|| LiveSegment {
            first_commit: commit,
            keys: BTreeSet::new(),
        });
    }

    /// A commit that starts in the segment has a put of the record.
    pub(crate) fn put(&mut self, key: RecordKey, value: Vec<u8>, segment: u64) {
        self.live_bytes += cost(&value);
        if let Some(old) = self.records.insert(key, LiveRecord { value, segment }) {
            self.live_bytes -= cost(&old.value);
            if let Some(segment) = self.segments.get_mut(&old.segment) {
                segment.keys.remove(&key);
            }
        }
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.keys.insert(key);
        }
    }

    /// A commit has a patch of the record, which depends on the same segment as before.
    pub(crate) fn patch(&mut self, key: &RecordKey, value: Vec<u8>) {
        if let Some(record) = self.records.get_mut(key) {
            self.live_bytes = self.live_bytes - cost(&record.value) + cost(&value);
            record.value = value;
        }
    }

    pub(crate) fn delete(&mut self, key: &RecordKey) {
        if let Some(record) = self.records.remove(key) {
            self.live_bytes -= cost(&record.value);
            if let Some(segment) = self.segments.get_mut(&record.segment) {
                segment.keys.remove(key);
            }
        }
    }

    /// Removes segments at the tail on which no record depends, but never the newest.
    pub(crate) fn release(&mut self) {
        while self.segments.len() > 1 {
            match self.segments.first_entry() {
                Some(oldest) if oldest.get().keys.is_empty() => oldest.remove(),
                _ => return,
            };
        }
    }

    /// The oldest commit that recovery needs after `commit`, which starts in
    /// segment `head` and moves or deletes these records.
    pub(crate) fn tail_commit_after<'a>(
        &self,
        commit: u64,
        head: u64,
        leaving: impl Iterator<Item = &'a RecordKey>,
    ) -> u64 {
        let mut leaving_by_segment: BTreeMap<u64, usize> = BTreeMap::new();
        for record in leaving.filter_map(|key| self.records.get(key)) {
            *leaving_by_segment.entry(record.segment).or_default() += 1;
        }
        self.segments
            .iter()
            .find(|&(&number, segment)| {
                let leaving = leaving_by_segment.get(&number).copied().unwrap_or_default();
                number >= head || segment.keys.len() > leaving
            })
            .map_or(commit, |(_, segment)| segment.first_commit)
    }
}

/// The records while a log is read. The sets of keys are made once, at the end.
#[derive(Debug, Default)]
pub(crate) struct RecordTableBuilder {
    records: BTreeMap<RecordKey, LiveRecord>,
    /// The first commit that starts in each segment.
    segments: BTreeMap<u64, u64>,
}

impl RecordTableBuilder {
    pub(crate) fn value(&self, key: &RecordKey) -> Option<&[u8]> {
        self.records.get(key).map(|record| record.value.as_slice())
    }

    /// A commit starts in the segment.
    pub(crate) fn begin(&mut self, segment: u64, commit: u64) {
        self.segments.entry(segment).or_insert(commit);
    }

    /// A commit that starts in the segment has a put of the record.
    pub(crate) fn put(&mut self, key: RecordKey, value: Vec<u8>, segment: u64) {
        self.records.insert(key, LiveRecord { value, segment });
    }

    /// A commit has a patch of the record, which depends on the same segment as before.
    pub(crate) fn patch(&mut self, key: &RecordKey, value: Vec<u8>) {
        if let Some(record) = self.records.get_mut(key) {
            record.value = value;
        }
    }

    pub(crate) fn delete(&mut self, key: &RecordKey) {
        self.records.remove(key);
    }

    /// The table of these records.
    pub(crate) fn build(self) -> RecordTable {
        let mut keys: BTreeMap<u64, Vec<RecordKey>> = BTreeMap::new();
        let mut live_bytes = 0;
        for (key, record) in &self.records {
            keys.entry(record.segment).or_default().push(*key);
            live_bytes += cost(&record.value);
        }
        let segment = |(number, first_commit): (u64, u64)| {
            let keys = keys.remove(&number).unwrap_or_default();
            // The keys are in order, so the set is built without searching.
            let keys = keys.into_iter().collect();
            (number, LiveSegment { first_commit, keys })
        };
        RecordTable {
            segments: self.segments.into_iter().map(segment).collect(),
            records: self.records,
            live_bytes,
        }
    }
}

/// Bytes of a put of the value in a payload.
pub(crate) fn cost(value: &[u8]) -> u64 {
    (PUT_OVERHEAD_BYTES + value.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> RecordKey {
        RecordKey {
            kind: 1,
            id: [number; 16],
        }
    }

    /// Records 1 and 2 hang on segment 0, record 3 on segment 1; segment 2 is the head.
    fn table() -> RecordTable {
        let mut table = RecordTable::default();
        for (segment, commit) in [(0, 1), (1, 5), (2, 9)] {
            table.begin(segment, commit);
        }
        table.put(key(1), vec![0; 10], 0);
        table.put(key(2), vec![0; 10], 0);
        table.put(key(3), vec![0; 10], 1);
        table
    }

    #[test]
    fn a_patch_leaves_a_record_where_it_hangs() {
        let mut table = table();
        table.patch(&key(1), vec![1; 30]);
        assert_eq!(table.value(&key(1)), Some([1; 30].as_slice()));
        assert_eq!(table.keys_before(1).collect::<Vec<_>>(), [key(1), key(2)]);
        assert_eq!(table.live_bytes(), 50 + 3 * PUT_OVERHEAD_BYTES as u64);
    }

    #[test]
    fn a_segment_is_released_when_its_last_record_leaves() {
        let mut table = table();
        table.put(key(1), vec![2], 2);
        table.release();
        assert_eq!(table.tail_segment(), Some(0));
        table.delete(&key(2));
        table.release();
        assert_eq!(table.tail_segment(), Some(1));
        table.delete(&key(3));
        table.release();
        assert_eq!(table.tail_segment(), Some(2));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn an_empty_segment_between_full_ones_is_kept() {
        let mut table = table();
        table.delete(&key(3));
        table.release();
        assert_eq!(table.tail_segment(), Some(0));
    }

    #[test]
    fn the_tail_after_a_commit_is_known_before_it_is_written() {
        let table = table();
        let after = |leaving: &[RecordKey]| table.tail_commit_after(10, 2, leaving.iter());
        assert_eq!(after(&[]), 1);
        assert_eq!(after(&[key(1)]), 1);
        assert_eq!(after(&[key(1), key(2)]), 5);
        assert_eq!(after(&[key(1), key(3)]), 1);
        assert_eq!(after(&[key(1), key(2), key(3)]), 9);
        let all = [key(1), key(2), key(3)];
        assert_eq!(table.tail_commit_after(10, 3, all.iter()), 10);
        assert_eq!(RecordTable::default().tail_commit_after(1, 0, [].iter()), 1);
    }

    #[test]
    fn a_table_made_at_once_is_the_one_that_grew_record_by_record() {
        let mut grown = table();
        let mut builder = RecordTableBuilder::default();
        for (segment, commit) in [(0, 1), (0, 2), (1, 5), (2, 9)] {
            builder.begin(segment, commit);
        }
        builder.put(key(1), vec![0; 10], 0);
        builder.put(key(2), vec![0; 10], 0);
        builder.put(key(3), vec![0; 10], 1);
        builder.put(key(4), vec![0; 10], 1);
        builder.patch(&key(1), vec![1; 30]);
        builder.patch(&key(9), vec![1; 30]);
        builder.put(key(2), vec![2; 5], 2);
        builder.delete(&key(4));
        grown.patch(&key(1), vec![1; 30]);
        grown.put(key(2), vec![2; 5], 2);
        assert_eq!(builder.value(&key(1)), Some([1; 30].as_slice()));
        let built = builder.build();
        assert_eq!(built.live_bytes(), grown.live_bytes());
        assert!(built.iter().eq(grown.iter()));
        for head in 0..4 {
            assert!(built.keys_before(head).eq(grown.keys_before(head)));
            let leaving = [key(1)];
            assert_eq!(
                built.tail_commit_after(10, head, leaving.iter()),
                grown.tail_commit_after(10, head, leaving.iter())
            );
        }
    }

    #[test]
    fn live_bytes_follow_puts_and_deletes() {
        let mut table = table();
        for number in 1..=3 {
            table.delete(&key(number));
            table.delete(&key(number));
        }
        assert_eq!(table.live_bytes(), 0);
        assert_eq!(table.iter().count(), 0);
    }
}
