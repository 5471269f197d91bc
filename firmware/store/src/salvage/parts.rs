//! Entries of a commit with missing bytes.
//!
//! Each page has its own checksum, so entries that are completely on readable pages are valid.
//! An entry that reaches into a missing page is lost, but its key is known if its beginning is
//! readable. After a missing page, the next entry is found where a put has a value that begins
//! like a known record and the entries from there fill the payload up to its end.

use std::ops::Range;

use crate::RecordKey;
use crate::entry::{LogEntry, PUT_OVERHEAD_BYTES};
use crate::layout::RECORD_BYTES_MAX;
use crate::schema::{self, RecordKind};

/// Operation, kind and id.
const HEADER_BYTES: usize = PUT_OVERHEAD_BYTES - 4;
const PUT: u8 = 1;
const OPERATION_MAX: u8 = 3;

/// The readable part of a commit.
#[derive(Debug, Default)]
pub(crate) struct CommitParts<'a> {
    /// Complete entries, in order.
    pub(crate) entries: Vec<LogEntry<'a>>,
    /// Records with incomplete entries.
    pub(crate) hit: Vec<RecordKey>,
    /// Whether entries of unknown records may be missing.
    pub(crate) unknown: bool,
}

/// Reads the readable part of a payload. The missing ranges are in order and do not overlap;
/// their bytes are ignored.
pub(crate) fn read<'a>(payload: &'a [u8], missing: &[Range<usize>]) -> CommitParts<'a> {
    let mut parts = CommitParts::default();
    let mut start = 0;
    let mut at = Some(0);
    let ends = missing.iter().map(|gap| (gap.start, gap.end));
    for (end, next) in ends.chain([(payload.len(), payload.len())]) {
        let run = start..end.min(payload.len());
        let is_last = run.end == payload.len();
        // An entry may have ended within this run, or beyond it.
        at = match at {
            Some(at) if at >= run.end && !is_last => Some(at),
            Some(at) => parts.run(payload, at.max(run.start), run.end),
            None => first_entry(payload, run.clone(), is_last)
                .and_then(|at| parts.run(payload, at, run.end)),
        };
        if is_last {
            parts.unknown |= at != Some(payload.len());
            break;
        }
        // An entry that begins within the gap is not known.
        if at.is_none_or(|at| at < next) {
            parts.unknown = true;
            at = None;
        }
        start = next;
    }
    parts
}

/// A record that is named in a page with a wrong checksum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RecordHint {
    pub(crate) key: RecordKey,
    /// Whether its value also begins like a record.
    pub(crate) strong: bool,
}

/// The records that are named in a page with a wrong checksum. They are hints for the operator,
/// because no checksum confirms them. A hint that is not strong counts only if its record is
/// known from elsewhere: a UUID is not in a page by chance.
pub(crate) fn hints(payload: &[u8]) -> Vec<RecordHint> {
    let hint = |at: usize| {
        let rest = &payload[at..];
        let (operation, key) = header(rest)?;
        let value = rest.get(PUT_OVERHEAD_BYTES..).unwrap_or_default();
        let strong = operation == PUT && schema::has_envelope(&key, value);
        Some(RecordHint { key, strong })
    };
    let mut hints = Vec::new();
    let (mut at, mut is_start) = (0, true);
    while at < payload.len() {
        let found = hint(at);
        hints.extend(found);
        // The bytes of an entry are skipped only if it is a likely one.
        let found = found.filter(|hint| is_start || hint.strong);
        let after = found.and_then(|_| LogEntry::decode(&payload[at..]));
        is_start = after.is_some();
        at = match after {
            Some((_, after)) => payload.len() - after.len(),
            None => at + 1,
        };
    }
    hints
}

/// The key of an entry.
#[cfg(test)]
pub(crate) fn key_of(entry: &LogEntry<'_>) -> RecordKey {
    match entry {
        LogEntry::Put(key, _) | LogEntry::Patch(key, _) | LogEntry::Delete(key) => *key,
    }
}

impl<'a> CommitParts<'a> {
    /// Reads the entries from `at` up to the end of a readable range. Returns the beginning of
    /// the next entry, if known.
    fn run(&mut self, payload: &'a [u8], mut at: usize, end: usize) -> Option<usize> {
        while at < end {
            let rest = &payload[at..end];
            if let Some((entry, after)) = LogEntry::decode(rest) {
                self.entries.push(entry);
                at = end - after.len();
                continue;
            }
            let (operation, key) = header(rest)?;
            self.hit.push(key);
            let length = rest.get(HEADER_BYTES..PUT_OVERHEAD_BYTES)?;
            let length = length
                .iter()
                .rev()
                .fold(0_usize, |number, &byte| number << 8 | usize::from(byte));
            if operation != PUT || length > RECORD_BYTES_MAX {
                return None;
            }
            at += PUT_OVERHEAD_BYTES + length;
        }
        Some(at)
    }
}

/// Operation and key of an entry whose beginning is readable.
fn header(bytes: &[u8]) -> Option<(u8, RecordKey)> {
    let (&[operation, kind], rest) = bytes.split_first_chunk::<2>()?;
    let (&id, _) = rest.split_first_chunk::<16>()?;
    RecordKind::from_number(kind)?;
    (PUT..=OPERATION_MAX)
        .contains(&operation)
        .then_some((operation, RecordKey { kind, id }))
}

/// The beginning of the first entry in a range whose first bytes belong to a lost entry.
fn first_entry(payload: &[u8], run: Range<usize>, to_the_end: bool) -> Option<usize> {
    run.clone().find(|&at| {
        let rest = &payload[at..run.end];
        match LogEntry::decode(rest) {
            Some((LogEntry::Put(key, value), after)) => {
                schema::has_envelope(&key, value) && (!to_the_end || fills(after))
            }
            _ => false,
        }
    })
}

/// Whether entries fill these bytes exactly.
fn fills(mut bytes: &[u8]) -> bool {
    while let Some((_, after)) = LogEntry::decode(bytes) {
        bytes = after;
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::RecordPatch;

    fn key(number: u8) -> RecordKey {
        RecordKey {
            kind: 1,
            id: [number; 16],
        }
    }

    /// A value that begins like a node of version 2.
    fn value(number: u8, length: usize) -> Vec<u8> {
        let mut value = vec![number; length];
        value[..3].copy_from_slice(&[1, 2, 0]);
        value
    }

    /// Four puts of 100 bytes, 122 each, and where they begin.
    fn payload() -> Vec<u8> {
        let mut out = Vec::new();
        for number in 1..=4 {
            LogEntry::Put(key(number), &value(number, 100)).encode(&mut out);
        }
        out
    }

    #[track_caller]
    fn check(missing: &[(usize, usize)], whole: &[u8], hit: &[u8], unknown: bool) {
        let mut payload = payload();
        let missing: Vec<Range<usize>> = missing.iter().map(|&(from, to)| from..to).collect();
        for gap in &missing {
            payload[gap.clone()].fill(0xee);
        }
        let parts = read(&payload, &missing);
        let keys: Vec<RecordKey> = parts.entries.iter().map(key_of).collect();
        let want: Vec<RecordKey> = whole.iter().map(|&number| key(number)).collect();
        assert_eq!(keys, want, "{missing:?}");
        let want: Vec<RecordKey> = hit.iter().map(|&number| key(number)).collect();
        assert_eq!(parts.hit, want, "{missing:?}");
        assert_eq!(parts.unknown, unknown, "{missing:?}");
    }

    #[test]
    fn a_whole_payload_gives_every_entry() {
        check(&[], &[1, 2, 3, 4], &[], false);
    }

    #[test]
    fn an_entry_that_reaches_into_a_gap_is_hit_and_the_next_one_is_found_by_its_length() {
        check(&[(150, 200)], &[1, 3, 4], &[2], false);
        check(&[(50, 60)], &[2, 3, 4], &[1], false);
        check(&[(450, 488)], &[1, 2, 3], &[4], false);
        // Two gaps in one value.
        check(&[(150, 160), (180, 190)], &[1, 3, 4], &[2], false);
    }

    #[test]
    fn behind_a_gap_with_the_beginning_of_an_entry_the_next_whole_one_is_found() {
        check(&[(122, 150)], &[1, 3, 4], &[], true);
        check(&[(100, 250)], &[4], &[1], true);
        check(&[(0, 10)], &[2, 3, 4], &[], true);
        check(&[(0, 488)], &[], &[], true);
        check(&[(400, 488)], &[1, 2, 3], &[4], false);
        check(&[(366, 380)], &[1, 2, 3], &[], true);
    }

    #[test]
    fn a_patch_that_reaches_into_a_gap_is_hit() {
        let mut payload = Vec::new();
        let (old, mut new) = (vec![1; 200], vec![1; 200]);
        new[100] = 2;
        LogEntry::Patch(key(1), RecordPatch::between(&old, &new)).encode(&mut payload);
        let end = payload.len();
        LogEntry::Put(key(2), &value(2, 30)).encode(&mut payload);
        let gap = end - 10..end - 5;
        payload[gap.clone()].fill(0xee);
        let parts = read(&payload, &[gap]);
        assert_eq!(parts.hit, [key(1)]);
        let keys: Vec<RecordKey> = parts.entries.iter().map(key_of).collect();
        assert_eq!(keys, [key(2)]);
        assert!(parts.unknown, "more entries may have stood in the gap");
    }

    #[test]
    fn a_page_with_a_wrong_checksum_hints_at_its_records() {
        let mut payload = payload();
        payload.resize(600, 0);
        let strong = |number| RecordHint {
            key: key(number),
            strong: true,
        };
        let all: Vec<RecordHint> = (1..=4).map(strong).collect();
        let strong = |payload: &[u8]| {
            let mut hints = hints(payload);
            hints.retain(|hint| hint.strong);
            hints
        };
        assert_eq!(hints(&payload), all);
        payload[..40].fill(0xee);
        assert_eq!(strong(&payload), all[1..]);
        payload[122..150].fill(0xee);
        assert_eq!(strong(&payload), all[2..]);
        assert!(hints(&[0; 600]).is_empty());
        assert!(hints(&[0xff; 600]).is_empty());
    }

    #[test]
    fn a_patch_or_deletion_behind_damaged_bytes_is_hinted_at() {
        let (old, mut new) = (vec![9; 200], vec![9; 200]);
        new[100] = 8;
        for entry in [
            LogEntry::Patch(key(7), RecordPatch::between(&old, &new)),
            LogEntry::Delete(key(7)),
        ] {
            let mut payload = vec![0xee; 50];
            entry.encode(&mut payload);
            let weak = RecordHint {
                key: key(7),
                strong: false,
            };
            assert!(hints(&payload).contains(&weak), "{entry:?}");
        }
    }

    #[test]
    fn hostile_payloads_never_panic() {
        let payload = payload();
        for start in 0..payload.len() {
            for end in [start + 1, start + 20, start + 130] {
                let gap = start..end.min(payload.len());
                let _ = read(&payload, &[gap]);
            }
            let mut bent = payload.clone();
            bent[start] ^= 0xff;
            let _ = read(&bent, &[]);
            let _ = hints(&bent);
        }
    }
}
