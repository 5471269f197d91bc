//! Reads a damaged region: everything that checksums confirm.
//!
//! Opening a store refuses damage; this module reads past it and writes nothing. All commits
//! that are found are applied in order, also those before the tail whose pages are not yet
//! overwritten: they contain older versions of records whose newer versions are damaged. Every
//! value that is kept was committed; a patch is applied only if its result matches its checksum.
//! The report names the affected records as far as they are known.

mod parts;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use trivet_board_hal::Flash;

use crate::RecordKey;
use crate::entry::LogEntry;
use crate::error::OpenError;
use crate::layout::{PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_PAYLOAD_BYTES, StoreLayout};
use crate::page::{self, CommitHeader};
use crate::page_list::{self, FoundPage};
use crate::recover;
use crate::superblock;

use parts::RecordHint;
use scan::{RegionScan, best_scan, raw_page};

/// A damaged place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreDamage {
    /// Offset of its first byte in the region, if known.
    pub at: Option<u64>,
    /// Number of damaged bytes.
    pub bytes: u64,
    /// First and last commit there; none if no commit was there.
    pub commits: Option<(u64, u64)>,
    /// The reason.
    pub what: &'static str,
    /// Records there.
    pub hit: Vec<RecordKey>,
    /// Whether there may be other records there that have no name.
    pub unknown: bool,
    /// Number of changes there that cannot be read, if known.
    pub changes: Option<u64>,
}

/// A record that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SalvagedRecord {
    pub(crate) value: Vec<u8>,
    /// The commit of its last put.
    put: u64,
    /// The commit that last changed it.
    pub(crate) changed: u64,
    /// The damaged commit that changed it after that: this is an older version.
    pub(crate) older: Option<u64>,
}

/// The readable content of a region.
#[derive(Debug)]
pub struct Salvage {
    /// The layout of the region.
    pub layout: StoreLayout,
    /// The damaged places, in the order of the commits.
    pub damages: Vec<StoreDamage>,
    /// First and last commit that recovery needs; none in an empty store.
    pub commits: Option<(u64, u64)>,
    /// An incomplete commit at the end. Most likely a power cut interrupted it before it was
    /// acknowledged. Damage to the last commit looks the same.
    pub unfinished: Option<StoreDamage>,
    /// Segments that recovery does not need.
    pub free_segments: u64,
    pub(crate) records: BTreeMap<RecordKey, SalvagedRecord>,
    /// Records that cannot be read, with the commit that changed them last.
    pub(crate) lost: BTreeMap<RecordKey, u64>,
    /// All records with entries on undamaged pages, kept or not.
    pub(crate) proven: BTreeSet<RecordKey>,
}

impl Salvage {
    /// Reads the region. The segment size is the one that a blank region would be
    /// formatted with; it is used if both copies of the superblock are damaged. Refuses only a
    /// newer format, and a region that is not a store.
    pub fn read<F: Flash>(flash: &mut F, segment_bytes: u32) -> Result<Self, OpenError> {
        let copies = superblock::copies(flash, segment_bytes)?;
        let scan = match copies.layouts[..] {
            [layout] => RegionScan::of(flash, layout),
            [layout, other] if layout == other => RegionScan::of(flash, layout),
            _ => best_scan(flash, &copies.layouts, segment_bytes)?,
        };
        let layout = scan.layout;
        let is_new = copies.layouts.is_empty() && scan.seen.is_empty();
        let differ = copies.layouts.windows(2).any(|pair| pair[0] != pair[1]);
        let mut salvage = match recover::recover(flash, &layout) {
            Ok(found) => Self::whole(flash, &scan, found),
            Err(error) => Self::damaged(flash, &scan, &error),
        };
        let copies_damaged = copies.damaged.into_iter().filter(|_| !is_new);
        let superblocks = copies_damaged.map(|at| {
            let what = "a copy of the superblock is damaged";
            damage_at(at * PAGE_BYTES as u64, PAGE_BYTES as u64, what)
        });
        let mut damages: Vec<StoreDamage> = superblocks.collect();
        if differ {
            let what = "the two copies of the superblock differ";
            damages.push(damage_at(0, 2 * PAGE_BYTES as u64, what));
        }
        damages.append(&mut salvage.damages);
        let elsewhere = scan.unreadable_elsewhere(&damages);
        damages.extend(elsewhere);
        salvage.damages = damages;
        Ok(salvage)
    }

    /// Whether nothing is damaged.
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty()
    }

    /// A region that opens as it is.
    fn whole<F: Flash>(flash: &mut F, scan: &RegionScan, found: recover::RecoveredLog) -> Self {
        let last = scan.seen.last_complete();
        let records = found.table.iter().map(|(key, value)| {
            let stored = SalvagedRecord {
                value: value.to_vec(),
                put: 0,
                changed: 0,
                older: None,
            };
            (*key, stored)
        });
        let records: BTreeMap<RecordKey, SalvagedRecord> = records.collect();
        let last_commit = last.map_or(0, |last| last.commit);
        Self {
            layout: scan.layout,
            damages: Vec::new(),
            commits: last.map(|last| (last.tail_commit, last.commit)),
            unfinished: unfinished(flash, scan, (last_commit, found.head), &records),
            free_segments: scan.free_segments(last.as_ref()),
            records,
            lost: BTreeMap::new(),
            proven: BTreeSet::new(),
        }
    }

    fn damaged<F: Flash>(flash: &mut F, scan: &RegionScan, error: &OpenError) -> Self {
        let last = scan.seen.last_complete();
        let last_commit = last.map_or(0, |last| last.commit);
        let head = last.map_or(0, |last| last.end());
        let begun = scan.newest_after(last_commit, head);
        let mut replay = SalvageReplay {
            tail: last.map_or(1, |last| last.tail_commit),
            ..SalvageReplay::default()
        };
        // Commits after the last complete one were acknowledged, except the newest.
        let counted = begun.map_or(last_commit, |(newest, _)| newest - 1);
        let mut before: Option<(u64, u64)> = None;
        for commit in scan.seen.commits() {
            let most = page_list::attempts(commit).max_by_key(|(header, pages)| {
                let is_whole = pages.len() == usize::from(header.pages);
                (is_whole, pages.len())
            });
            let Some((header, pages)) = most.filter(|(header, _)| header.commit <= counted) else {
                break;
            };
            replay.gap(flash, scan, before, (header.commit, header.start));
            replay.commit(flash, &scan.layout, header, pages);
            before = Some((header.commit, header.end()));
        }
        if let Some(begun) = begun {
            replay.gap(flash, scan, before, begun);
        }
        if replay.damages.is_empty() && scan.unreadable.is_empty() {
            replay.damages.push(refused(error));
        }
        // This comes before hints are used: their keys may be damaged.
        let known = replay.settled.keys().chain(replay.lost.keys());
        let proven = known.copied().collect();
        replay.finish();
        let end = before.map_or((last_commit, head), |before| {
            before.max((last_commit, head))
        });
        Self {
            layout: scan.layout,
            unfinished: unfinished(flash, scan, end, &replay.records),
            proven,
            damages: replay.damages,
            commits: last.map(|last| (last.tail_commit, last.commit)),
            free_segments: scan.free_segments(last.as_ref()),
            records: replay.records,
            lost: replay.lost,
        }
    }
}

/// The bytes after the last complete commit: an interrupted commit, or damage to the last one.
fn unfinished<F: Flash>(
    flash: &mut F,
    scan: &RegionScan,
    (last_commit, head): (u64, u64),
    records: &BTreeMap<RecordKey, SalvagedRecord>,
) -> Option<StoreDamage> {
    let begun = scan.newest_after(last_commit, head);
    let (commit, start) = begun.unwrap_or((last_commit + 1, head));
    let end = scan.broken_until(start);
    if begun.is_none() && start == end {
        return None;
    }
    let mut found = damage_at(
        scan.layout.offset_of(start),
        (end - start) * PAGE_BYTES as u64,
        "it is not complete and does not count; most likely the power went while it was written",
    );
    found.commits = Some((commit, commit));
    let pages = start..end.min(start + scan.layout.commit_pages_max());
    for position in pages {
        let raw = raw_page(flash, scan.layout.offset_of(position));
        for hint in parts::hints(&raw[PAGE_HEADER_BYTES..]) {
            let is_likely = hint.strong || records.contains_key(&hint.key);
            if is_likely && !found.hit.contains(&hint.key) {
                found.hit.push(hint.key);
            }
        }
    }
    Some(found)
}

fn damage_at(at: u64, bytes: u64, what: &'static str) -> StoreDamage {
    StoreDamage {
        at: Some(at),
        bytes,
        commits: None,
        what,
        hit: Vec::new(),
        unknown: false,
        changes: None,
    }
}

/// The damage of a store that does not open although every commit can be read.
fn refused(error: &OpenError) -> StoreDamage {
    let (commits, what) = match error {
        OpenError::Damaged { commit, what } => (Some((*commit, *commit)), *what),
        _ => (None, "a place in the region cannot be read"),
    };
    StoreDamage {
        at: None,
        bytes: 0,
        commits,
        what,
        hit: Vec::new(),
        unknown: false,
        changes: None,
    }
}

/// The records while the readable commits are applied.
#[derive(Debug, Default)]
struct SalvageReplay {
    tail: u64,
    records: BTreeMap<RecordKey, SalvagedRecord>,
    lost: BTreeMap<RecordKey, u64>,
    /// The last commit with a put or a deletion of a record.
    settled: BTreeMap<RecordKey, u64>,
    damages: Vec<StoreDamage>,
    /// For each damaged place the records in pages with wrong checksums.
    hints: Vec<(u64, usize, RecordHint)>,
}

impl SalvageReplay {
    /// Reports commits that are missing before this one.
    fn gap<F: Flash>(
        &mut self,
        flash: &mut F,
        scan: &RegionScan,
        before: Option<(u64, u64)>,
        (commit, start): (u64, u64),
    ) {
        let (before, end) = before.unwrap_or_default();
        let first = self.tail.max(before + 1);
        if first >= commit {
            return;
        }
        // If the commit before does not end at the gap, the gap is the damaged place.
        let is_known = before + 1 == first && end < start && start - end <= scan.layout.pages();
        let from = if is_known {
            end
        } else {
            let mut known = (0..start).rev().take(scan.layout.pages() as usize);
            let sound = known.find(|&position| scan.is_sound(position));
            sound.map_or(0, |sound| sound + 1)
        };
        let places = from..start;
        let is_known = from < start;
        self.damages.push(StoreDamage {
            at: is_known.then(|| scan.layout.offset_of(from)),
            bytes: (start - from) * PAGE_BYTES as u64,
            commits: Some((first, commit - 1)),
            what: "not one page of these commits is readable",
            hit: Vec::new(),
            unknown: true,
            changes: scan.claimed_changes(first..commit, places.clone()),
        });
        self.hint(flash, &scan.layout, places, commit - 1);
    }

    /// Searches pages with wrong checksums for names of records.
    fn hint<F: Flash>(
        &mut self,
        flash: &mut F,
        layout: &StoreLayout,
        positions: Range<u64>,
        commit: u64,
    ) {
        let damage = self.damages.len().saturating_sub(1);
        for position in positions {
            let raw = raw_page(flash, layout.offset_of(position));
            // An undamaged page of an older commit: the newer commit was not written here.
            if page::decode(&raw).is_some_and(|(header, _)| header.commit < commit) {
                continue;
            }
            let hints = parts::hints(&raw[PAGE_HEADER_BYTES..]);
            let hints = hints.into_iter().map(|hint| (commit, damage, hint));
            self.hints.extend(hints);
        }
    }

    fn commit<F: Flash>(
        &mut self,
        flash: &mut F,
        layout: &StoreLayout,
        header: &CommitHeader,
        pages: &[FoundPage],
    ) {
        let (payload, missing) = read_payload(flash, layout, header, pages);
        let commit = header.commit;
        let is_whole = missing.is_empty() && header.matches(&payload);
        if !is_whole && commit < self.tail {
            // A commit before the tail that is overwritten in part is not damage.
            return;
        }
        let gaps: Vec<Range<usize>> = missing
            .iter()
            .map(|&index| {
                let from = usize::from(index) * PAGE_PAYLOAD_BYTES;
                from..(from + PAGE_PAYLOAD_BYTES).min(payload.len())
            })
            .collect();
        let left = parts::read(&payload, &gaps);
        if !is_whole || left.unknown || !left.hit.is_empty() {
            let first = missing.first().copied().unwrap_or_default();
            self.damages.push(StoreDamage {
                at: Some(layout.offset_of(header.start + u64::from(first))),
                bytes: missing.len() as u64 * PAGE_BYTES as u64,
                commits: Some((commit, commit)),
                what: "pages of this commit are damaged",
                hit: left.hit.clone(),
                unknown: left.unknown,
                changes: Some(u64::from(header.entries).saturating_sub(left.entries.len() as u64)),
            });
            for &index in &missing {
                let at = header.start + u64::from(index);
                self.hint(flash, layout, at..at + 1, commit);
            }
        }
        for key in left.hit {
            self.was_hit(key, commit);
        }
        for entry in left.entries {
            self.entry(entry, commit);
        }
    }

    fn entry(&mut self, entry: LogEntry<'_>, commit: u64) {
        match entry {
            LogEntry::Put(key, value) => {
                self.lost.remove(&key);
                self.settled.insert(key, commit);
                let stored = SalvagedRecord {
                    value: value.to_vec(),
                    put: commit,
                    changed: commit,
                    older: None,
                };
                self.records.insert(key, stored);
            }
            LogEntry::Delete(key) => {
                self.lost.remove(&key);
                self.settled.insert(key, commit);
                self.records.remove(&key);
            }
            LogEntry::Patch(key, patch) => {
                let Some(stored) = self.records.get_mut(&key) else {
                    self.lost.insert(key, commit);
                    return;
                };
                match patch.apply(&stored.value) {
                    // The checksum shows that no change between them is missing.
                    Some(new) => {
                        stored.value = new;
                        stored.changed = commit;
                        stored.older = None;
                    }
                    None => stored.older = Some(commit),
                }
            }
        }
    }

    /// A damaged commit changed this record.
    fn was_hit(&mut self, key: RecordKey, commit: u64) {
        match self.records.get_mut(&key) {
            Some(stored) => stored.older = Some(commit),
            None => {
                self.lost.insert(key, commit);
            }
        }
    }

    /// After all commits: uses the hints and the records before the tail.
    fn finish(&mut self) {
        for (commit, damage, hint) in std::mem::take(&mut self.hints) {
            self.take_hint(commit, damage, hint);
        }
        let hits = self.damages.iter().filter_map(|damage| damage.commits);
        let last_hit = hits.map(|(_, last)| last).max().unwrap_or_default();
        let tail = self.tail;
        // A live record has a put after the tail. A damaged commit carried, changed or deleted
        // a record without one.
        self.records
            .retain(|_, stored| stored.put >= tail || last_hit >= tail);
        for stored in self.records.values_mut() {
            if stored.put < tail && stored.changed < last_hit && stored.older.is_none() {
                stored.older = Some(last_hit);
            }
        }
        self.lost
            .retain(|_, commit| *commit >= tail || last_hit >= tail);
    }

    fn take_hint(&mut self, commit: u64, damage: usize, RecordHint { key, strong }: RecordHint) {
        let settled = self.settled.get(&key).copied();
        let is_known = settled.is_some() || self.lost.contains_key(&key);
        let is_likely = strong || is_known;
        if !is_likely || settled.is_some_and(|settled| settled >= commit) {
            return;
        }
        if let Some(damage) = self.damages.get_mut(damage)
            && !damage.hit.contains(&key)
        {
            damage.hit.push(key);
        }
        match self.records.get_mut(&key) {
            // A patch after the damaged commit matches its checksum: the record is unchanged.
            Some(stored) if stored.changed > commit => {}
            Some(stored) => {
                stored.older.get_or_insert(commit);
            }
            None => {
                self.lost.entry(key).or_insert(commit);
            }
        }
    }
}

/// The payload of a commit, with zeros for the pages that cannot be read, and the ranges of
/// these pages.
fn read_payload<F: Flash>(
    flash: &mut F,
    layout: &StoreLayout,
    header: &CommitHeader,
    pages: &[FoundPage],
) -> (Vec<u8>, Vec<u16>) {
    let mut payload = Vec::with_capacity(usize::from(header.pages) * PAGE_BYTES);
    let mut missing = Vec::new();
    for index in 0..header.pages {
        let mut page = [0; PAGE_BYTES];
        let at = layout.offset_of(header.start + u64::from(index));
        let is_there = pages
            .binary_search_by_key(&index, |page| page.index)
            .is_ok()
            && flash.read(at, &mut page).is_ok()
            && page::decode(&page) == Some((*header, index));
        if !is_there {
            missing.push(index);
            page = [0; PAGE_BYTES];
        }
        payload.extend_from_slice(&page[PAGE_HEADER_BYTES..]);
    }
    payload.truncate(header.payload_bytes as usize);
    (payload, missing)
}

#[cfg(test)]
mod tests;
