//! Recovery: reads the records of the last complete commit from a region.
//!
//! All pages are read and sorted by commit. The newest commit with all its pages is the last
//! one; its header names the oldest commit that is needed. Pages of the next commit are the rest
//! of a commit that a power cut interrupted and that was not acknowledged. They are overwritten
//! with zeros, so that no later power cut can complete them. A page with a wrong checksum whose
//! header names a commit after the last one is damage. Everything else that is missing or too
//! new is damage as well, and damage is refused.

use std::collections::BTreeSet;

use trivet_board_hal::Flash;

use crate::RecordKey;
use crate::entry::LogEntry;
use crate::error::OpenError;
use crate::layout::{PAGE_BYTES, PAGE_HEADER_BYTES, StoreLayout};
use crate::page::{self, CommitHeader, PageClaim};
use crate::page_list::{FoundPage, PageList};
use crate::table::{RecordTable, RecordTableBuilder};

/// The records and the end of a log.
#[derive(Debug)]
pub(crate) struct RecoveredLog {
    pub(crate) table: RecordTable,
    pub(crate) head: u64,
    pub(crate) next_commit: u64,
}

impl RecoveredLog {
    /// The log of a blank region.
    pub(crate) fn empty() -> Self {
        Self {
            table: RecordTable::default(),
            head: 0,
            next_commit: 1,
        }
    }
}

/// Reads the records of the last complete commit.
pub(crate) fn recover<F: Flash>(
    flash: &mut F,
    layout: &StoreLayout,
) -> Result<RecoveredLog, OpenError> {
    let mut reader = SegmentReader::new(layout);
    let (seen, claims) = scan(flash, &mut reader)?;
    let newest = seen.newest().unwrap_or_default();
    let last = seen.last_complete();
    let last_commit = last.map_or(0, |header| header.commit);
    if newest > last_commit + 1 {
        return Err(OpenError::Damaged {
            commit: last_commit + 1,
            what: "a newer commit follows it, but it is not whole",
        });
    }
    let head = last.map_or(0, |header| header.end());
    let mut claims = claims.iter();
    if claims.any(|claim| {
        claim.commit > last_commit + 1 && claim.follows(head, last_commit, layout.pages())
    }) {
        return Err(OpenError::Damaged {
            commit: last_commit + 1,
            what: "it and a newer one that follows it are not whole",
        });
    }
    let Some(last) = last else {
        return Ok(RecoveredLog::empty());
    };
    let mut replay = RecoveryReplay::default();
    let mut payload = Vec::new();
    let mut expected_start = None;
    for commit in last.tail_commit..=last.commit {
        let damaged = |what| OpenError::Damaged { commit, what };
        let header = seen.complete(commit).ok_or(damaged("it is not whole"))?;
        if expected_start.is_some_and(|start| start != header.start) {
            return Err(damaged("it does not stand after the one before it"));
        }
        expected_start = Some(header.end());
        reader.payload(flash, &header, &mut payload)?;
        if !header.matches(&payload) {
            return Err(damaged("its checksum is wrong"));
        }
        replay
            .commit(layout.segment_of(header.start), &header, &payload)
            .map_err(damaged)?;
    }
    if !replay.orphans.is_empty() {
        return Err(OpenError::Damaged {
            commit: last.commit,
            what: "a record is patched but nowhere whole",
        });
    }
    let mut table = replay.table.build();
    table.release();
    Ok(RecoveredLog {
        table,
        head: last.end(),
        next_commit: last.commit + 1,
    })
}

/// Overwrites the pages of an interrupted commit at the head with zeros.
///
/// Otherwise the commit could become complete later: a second power cut may tear the next
/// commit so that bytes of both attempts together form the first one, after the store was
/// opened without it. If a power cut interrupts this function, the store was not opened yet.
pub(crate) fn wipe_torn<F: Flash>(
    flash: &mut F,
    layout: &StoreLayout,
    found: &RecoveredLog,
) -> Result<(), OpenError> {
    let mut reader = SegmentReader::new(layout);
    for position in found.head..found.head + layout.commit_pages_max() {
        let at = layout.offset_of(position);
        let page = reader.page(flash, position)?;
        let is_blank = *page == [0_u8; PAGE_BYTES];
        let is_old = page::decode(page).is_some_and(|(header, index)| {
            header.commit < found.next_commit
                && layout.offset_of(header.start + u64::from(index)) == at
        });
        if !is_blank && !is_old {
            flash.write(at, &[0; PAGE_BYTES])?;
        }
    }
    Ok(())
}

/// The pages that are at their positions, and the headers of pages with wrong checksums.
fn scan<F: Flash>(
    flash: &mut F,
    reader: &mut SegmentReader,
) -> Result<(PageList, Vec<PageClaim>), OpenError> {
    let layout = reader.layout;
    let (mut pages, mut claims) = (Vec::new(), Vec::new());
    for number in 0..layout.segments {
        let first = number * layout.segment_pages;
        let segment = reader.segment(flash, first)?;
        for (bytes, place) in segment.chunks(PAGE_BYTES).zip(first..) {
            match page::decode(bytes) {
                Some(decoded) => pages.extend(FoundPage::at(&layout, decoded, place)),
                None => claims.extend(PageClaim::at(&layout, bytes, place)),
            }
        }
    }
    Ok((PageList::new(pages), claims))
}

/// Reads the log a segment at a time: one call of the flash for many pages.
#[derive(Debug)]
struct SegmentReader {
    layout: StoreLayout,
    bytes: Vec<u8>,
    /// Position of the first page of the segment that was read last.
    held: Option<u64>,
}

impl SegmentReader {
    fn new(layout: &StoreLayout) -> Self {
        Self {
            layout: *layout,
            bytes: vec![0; layout.segment_pages as usize * PAGE_BYTES],
            held: None,
        }
    }

    /// The segment that begins with this page of the log.
    fn segment<F: Flash>(&mut self, flash: &mut F, first: u64) -> Result<&[u8], OpenError> {
        let place = first % self.layout.pages();
        if self.held != Some(place) {
            self.held = None;
            flash.read(self.layout.offset_of(place), &mut self.bytes)?;
            self.held = Some(place);
        }
        Ok(&self.bytes)
    }

    /// The page of a log position.
    fn page<F: Flash>(&mut self, flash: &mut F, position: u64) -> Result<&[u8], OpenError> {
        let within = position % self.layout.segment_pages;
        let from = within as usize * PAGE_BYTES;
        let segment = self.segment(flash, position - within)?;
        Ok(&segment[from..from + PAGE_BYTES])
    }

    /// The payload of a commit with all its pages.
    fn payload<F: Flash>(
        &mut self,
        flash: &mut F,
        header: &CommitHeader,
        out: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        out.clear();
        for position in header.start..header.end() {
            let page = self.page(flash, position)?;
            out.extend_from_slice(&page[PAGE_HEADER_BYTES..]);
        }
        out.truncate(header.payload_bytes as usize);
        Ok(())
    }
}

/// The records while the commits are applied in order.
#[derive(Debug, Default)]
struct RecoveryReplay {
    table: RecordTableBuilder,
    /// Records with a patch after the tail and their put before it. A later commit carries or
    /// deletes them.
    orphans: BTreeSet<RecordKey>,
}

impl RecoveryReplay {
    fn commit(
        &mut self,
        segment: u64,
        header: &CommitHeader,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        self.table.begin(segment, header.commit);
        let mut rest = payload;
        for _ in 0..header.entries {
            let (entry, after) = LogEntry::decode(rest).ok_or("an entry is malformed")?;
            rest = after;
            match entry {
                LogEntry::Put(key, value) => {
                    self.orphans.remove(&key);
                    self.table.put(key, value.to_vec(), segment);
                }
                LogEntry::Delete(key) => {
                    self.orphans.remove(&key);
                    self.table.delete(&key);
                }
                LogEntry::Patch(key, patch) => match self.table.value(&key) {
                    Some(old) => {
                        let new = patch.apply(old).ok_or("a patch does not fit its record")?;
                        self.table.patch(&key, new);
                    }
                    None => {
                        self.orphans.insert(key);
                    }
                },
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err("bytes are left over after its entries")
        }
    }
}

#[cfg(test)]
mod tests {
    use trivet_board_sim::SimFlash;

    use super::*;
    use crate::patch::RecordPatch;

    const KEY: RecordKey = RecordKey {
        kind: 1,
        id: [7; 16],
    };

    fn layout() -> StoreLayout {
        StoreLayout::checked(16384, 8).unwrap()
    }

    fn put(value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        LogEntry::Put(KEY, value).encode(&mut out);
        out
    }

    fn patch(old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        LogEntry::Patch(KEY, RecordPatch::between(old, new)).encode(&mut out);
        out
    }

    /// A region with these commits: (commit, tail, start, payload).
    fn region(commits: &[(u64, u64, u64, Vec<u8>)]) -> SimFlash {
        let mut flash = SimFlash::new(layout().region_bytes() as usize);
        for (commit, tail, start, payload) in commits {
            let header = CommitHeader::new(*commit, *tail, *start, 1, payload);
            let at = layout().offset_of(*start);
            flash.write(at, &header.encode(payload)).unwrap();
        }
        flash
    }

    fn found(commits: &[(u64, u64, u64, Vec<u8>)]) -> Result<Option<Vec<u8>>, &'static str> {
        match recover(&mut region(commits), &layout()) {
            Ok(found) => Ok(found.table.value(&KEY).map(<[u8]>::to_vec)),
            Err(OpenError::Damaged { what, .. }) => Err(what),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn recovery_reads_whole_segments_and_not_page_by_page() {
        let commits: Vec<_> = (0..24_u64)
            .map(|at| (at + 1, 1, at, put(&[at as u8; 100])))
            .collect();
        let mut flash = region(&commits);
        let found = recover(&mut flash, &layout()).unwrap();
        assert_eq!(found.next_commit, 25);
        // Eight segments are scanned, and six of them are read again for their records.
        assert_eq!(flash.counts().reads, 8 + 6);
        wipe_torn(&mut flash, &layout(), &found).unwrap();
        assert_eq!(flash.counts().reads, 8 + 6 + 2);
    }

    #[test]
    fn an_empty_log_starts_with_commit_one() {
        let empty = recover(&mut region(&[]), &layout()).unwrap();
        assert_eq!((empty.head, empty.next_commit), (0, 1));
        assert_eq!(found(&[]), Ok(None));
    }

    #[test]
    fn the_last_complete_commit_counts() {
        let commits = [(1, 1, 0, put(b"one")), (2, 1, 1, put(b"two"))];
        assert_eq!(found(&commits), Ok(Some(b"two".to_vec())));
    }

    #[test]
    fn a_missing_commit_before_a_whole_one_is_damage() {
        let commits = [(1, 1, 0, put(b"one")), (3, 1, 2, put(b"two"))];
        assert_eq!(found(&commits), Err("it is not whole"));
        assert_eq!(found(&[(2, 1, 1, put(b"two"))]), Err("it is not whole"));
    }

    #[test]
    fn a_part_of_a_commit_two_ahead_proves_that_one_is_lost() {
        let mut flash = region(&[(1, 1, 0, put(b"one")), (3, 1, 2, put(&[1; 9000]))]);
        flash.write(layout().offset_of(3), &[0; 4096]).unwrap();
        let error = recover(&mut flash, &layout()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { commit: 2, .. }));
    }

    #[test]
    fn a_part_of_the_next_commit_is_dropped() {
        let mut flash = region(&[(1, 1, 0, put(b"one")), (2, 1, 1, put(&[1; 9000]))]);
        flash.write(layout().offset_of(2), &[0; 4096]).unwrap();
        let found = recover(&mut flash, &layout()).unwrap();
        assert_eq!(found.table.value(&KEY), Some(b"one".as_slice()));
        assert_eq!((found.head, found.next_commit), (1, 2));
    }

    #[test]
    fn pages_of_two_attempts_do_not_make_one_commit() {
        let mut flash = region(&[(1, 1, 0, put(&[1; 6000]))]);
        let again = put(&[2; 6000]);
        let header = CommitHeader::new(1, 1, 0, 1, &again);
        let bytes = header.encode(&again);
        flash.write(layout().offset_of(0), &bytes[..4096]).unwrap();
        let found = recover(&mut flash, &layout()).unwrap();
        assert_eq!(found.table.value(&KEY), None);
    }

    #[test]
    fn what_is_left_of_a_cut_off_commit_is_wiped_and_old_pages_are_not() {
        let mut flash = region(&[(1, 1, 0, put(b"one")), (2, 1, 1, put(&[1; 9000]))]);
        flash.write(layout().offset_of(2), &[9; 4096]).unwrap();
        let found = recover(&mut flash, &layout()).unwrap();
        let writes = flash.counts().writes;
        wipe_torn(&mut flash, &layout(), &found).unwrap();
        assert_eq!(flash.counts().writes - writes, 3);
        let end = layout().offset_of(1) as usize;
        assert!(flash.bytes()[end..].iter().all(|&byte| byte == 0));
        let found = recover(&mut flash, &layout()).unwrap();
        assert_eq!(found.table.value(&KEY), Some(b"one".as_slice()));
        wipe_torn(&mut flash, &layout(), &found).unwrap();
        assert_eq!(flash.counts().writes - writes, 3);
    }

    #[test]
    fn a_page_in_the_wrong_place_is_none() {
        let payload = put(b"one");
        let header = CommitHeader::new(1, 1, 0, 1, &payload);
        let mut flash = region(&[]);
        flash
            .write(layout().offset_of(5), &header.encode(&payload))
            .unwrap();
        assert_eq!(recover(&mut flash, &layout()).unwrap().next_commit, 1);
    }

    #[test]
    fn a_commit_out_of_line_is_damage() {
        let commits = [(1, 1, 0, put(b"one")), (2, 1, 5, put(b"two"))];
        assert_eq!(
            found(&commits),
            Err("it does not stand after the one before it")
        );
    }

    #[test]
    fn a_patch_whose_record_stands_before_the_tail_waits_for_it() {
        let commits = [
            (5, 5, 8, patch(b"one", b"oNe")),
            (6, 5, 9, put(b"whole")),
            (7, 5, 10, patch(b"whole", b"wholly")),
        ];
        assert_eq!(found(&commits), Ok(Some(b"wholly".to_vec())));
        assert_eq!(
            found(&commits[..1]),
            Err("a record is patched but nowhere whole")
        );
    }

    #[test]
    fn a_patch_that_does_not_fit_is_damage() {
        let commits = [
            (1, 1, 0, put(b"one")),
            (2, 1, 1, patch(b"other", b"othello")),
        ];
        assert_eq!(found(&commits), Err("a patch does not fit its record"));
    }

    #[test]
    fn entries_must_fill_their_payload() {
        let mut long = put(b"one");
        long.push(0);
        assert_eq!(
            found(&[(1, 1, 0, long)]),
            Err("bytes are left over after its entries")
        );
        let mut short = put(b"one");
        short.pop();
        assert_eq!(found(&[(1, 1, 0, short)]), Err("an entry is malformed"));
    }
}
