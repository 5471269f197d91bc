//! Recovery: from the bytes of a region to the records of its last complete commit.
//!
//! All pages are read and sorted by the commit they name. The newest commit of
//! which every page is there is the last one; its header says how far back to go.
//! Pages of the commit right after it are what a power cut left of a commit that
//! nobody was told of; they are wiped, so that no later cut can complete them.
//! Anything else that is missing or too new is damage, and damage is refused.

use std::collections::{BTreeMap, BTreeSet};

use trivet_board_hal::Flash;

use crate::Key;
use crate::entry::Entry;
use crate::error::OpenError;
use crate::layout::{Layout, PAGE_BYTES, PAGE_HEADER_BYTES};
use crate::page::{self, CommitHeader};
use crate::table::Table;

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) table: Table,
    pub(crate) head: u64,
    pub(crate) next_commit: u64,
}

/// For each commit the headers its pages carry, and which pages carry them. There
/// is more than one header where a cut-off attempt left pages behind.
pub(crate) type Seen = BTreeMap<u64, BTreeMap<CommitHeader, BTreeSet<u16>>>;

/// Reads the records of the last complete commit.
pub(crate) fn recover<F: Flash>(flash: &mut F, layout: &Layout) -> Result<Found, OpenError> {
    let seen = scan(flash, layout)?;
    let newest = seen.keys().next_back().copied().unwrap_or_default();
    let last = seen
        .keys()
        .rev()
        .find_map(|&commit| complete(&seen, commit));
    let last_commit = last.map_or(0, |header| header.commit);
    if newest > last_commit + 1 {
        return Err(OpenError::Damaged {
            commit: last_commit + 1,
            what: "a newer commit follows it, but it is not whole",
        });
    }
    let mut replay = Replay::default();
    let Some(last) = last else {
        return Ok(Found {
            table: replay.table,
            head: 0,
            next_commit: 1,
        });
    };
    let mut expected_start = None;
    for commit in last.tail_commit..=last.commit {
        let damaged = |what| OpenError::Damaged { commit, what };
        let header = complete(&seen, commit).ok_or(damaged("it is not whole"))?;
        if expected_start.is_some_and(|start| start != header.start) {
            return Err(damaged("it does not stand after the one before it"));
        }
        expected_start = Some(header.end());
        let payload = read_payload(flash, layout, &header)?;
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
    replay.table.release();
    Ok(Found {
        table: replay.table,
        head: last.end(),
        next_commit: last.commit + 1,
    })
}

/// Wipes what a cut-off commit may have left at the head.
///
/// Without this it could come back: a second cut may tear the next commit so that
/// bytes of both attempts together make the first one whole, after its absence
/// was already told. The wipe itself may be torn; then nobody was told yet.
pub(crate) fn wipe_torn<F: Flash>(
    flash: &mut F,
    layout: &Layout,
    found: &Found,
) -> Result<(), OpenError> {
    let mut page = [0; PAGE_BYTES];
    for position in found.head..found.head + layout.commit_pages_max() {
        let at = layout.offset_of(position);
        flash.read(at, &mut page)?;
        let is_blank = page == [0_u8; PAGE_BYTES];
        let is_old = page::decode(&page).is_some_and(|(header, index)| {
            header.commit < found.next_commit
                && layout.offset_of(header.start + u64::from(index)) == at
        });
        if !is_blank && !is_old {
            flash.write(at, &[0; PAGE_BYTES])?;
        }
    }
    Ok(())
}

fn scan<F: Flash>(flash: &mut F, layout: &Layout) -> Result<Seen, OpenError> {
    let mut seen = Seen::new();
    let mut segment = vec![0; layout.segment_pages as usize * PAGE_BYTES];
    for number in 0..layout.segments {
        let first = number * layout.segment_pages;
        flash.read(layout.offset_of(first), &mut segment)?;
        for (bytes, place) in segment.chunks(PAGE_BYTES).zip(first..) {
            let Some((header, index)) = page::decode(bytes) else {
                continue;
            };
            if !stands_right(layout, &header, index, place) {
                continue;
            }
            let attempts = seen.entry(header.commit).or_default();
            attempts.entry(header).or_default().insert(index);
        }
    }
    Ok(seen)
}

/// Whether this page of the commit belongs into this place of the ring.
pub(crate) fn stands_right(layout: &Layout, header: &CommitHeader, index: u16, place: u64) -> bool {
    (header.start + u64::from(index)) % layout.pages() == place
        && u64::from(header.pages) <= layout.pages()
}

/// The header of a commit of which all pages are there.
pub(crate) fn complete(seen: &Seen, commit: u64) -> Option<CommitHeader> {
    seen.get(&commit)?
        .iter()
        .find(|(header, indexes)| indexes.len() == usize::from(header.pages))
        .map(|(header, _)| *header)
}

fn read_payload<F: Flash>(
    flash: &mut F,
    layout: &Layout,
    header: &CommitHeader,
) -> Result<Vec<u8>, OpenError> {
    let mut payload = Vec::with_capacity(usize::from(header.pages) * PAGE_BYTES);
    let mut page = [0; PAGE_BYTES];
    for position in header.start..header.end() {
        flash.read(layout.offset_of(position), &mut page)?;
        payload.extend_from_slice(&page[PAGE_HEADER_BYTES..]);
    }
    payload.truncate(header.payload_bytes as usize);
    Ok(payload)
}

/// The records, while commits are done again one by one.
#[derive(Debug, Default)]
struct Replay {
    table: Table,
    /// Records of which patches were seen, but whose full image stands before the
    /// tail. A later commit carries them or deletes them.
    orphans: BTreeSet<Key>,
}

impl Replay {
    fn commit(
        &mut self,
        segment: u64,
        header: &CommitHeader,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        self.table.begin(segment, header.commit);
        let mut rest = payload;
        for _ in 0..header.entries {
            let (entry, after) = Entry::decode(rest).ok_or("an entry is malformed")?;
            rest = after;
            match entry {
                Entry::Put(key, value) => {
                    self.orphans.remove(&key);
                    self.table.put(key, value.to_vec(), segment);
                }
                Entry::Delete(key) => {
                    self.orphans.remove(&key);
                    self.table.delete(&key);
                }
                Entry::Patch(key, patch) => match self.table.value(&key) {
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
    use crate::patch::Patch;

    const KEY: Key = Key {
        kind: 1,
        id: [7; 16],
    };

    fn layout() -> Layout {
        Layout::checked(16384, 8).unwrap()
    }

    fn put(value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Entry::Put(KEY, value).encode(&mut out);
        out
    }

    fn patch(old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Entry::Patch(KEY, Patch::between(old, new)).encode(&mut out);
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
