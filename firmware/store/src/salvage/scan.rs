//! All pages of a damaged region: the undamaged ones, and the headers of the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use trivet_board_hal::Flash;

use super::{StoreDamage, damage_at};
use crate::error::OpenError;
use crate::layout::{PAGE_BYTES, StoreLayout};
use crate::page::{self, CommitHeader, PageClaim};
use crate::page_list::{FoundPage, PageList};
use crate::superblock;

/// Smallest piece that a device reads on its own.
pub(super) const SECTOR_BYTES: usize = 512;

/// The layout in which most pages are at their positions.
pub(super) fn best_scan<F: Flash>(
    flash: &mut F,
    layouts: &[StoreLayout],
    segment_bytes: u32,
) -> Result<RegionScan, OpenError> {
    let bytes = flash.size();
    let mut best: Option<RegionScan> = None;
    let fresh = StoreLayout::fresh(bytes, segment_bytes);
    for layout in layouts.iter().copied().chain(fresh) {
        let scan = RegionScan::of(flash, layout);
        if best
            .as_ref()
            .is_none_or(|best| scan.seen.len() > best.seen.len())
        {
            best = Some(scan);
        }
    }
    let best = best.ok_or(OpenError::TooSmall {
        bytes,
        segment_bytes,
    })?;
    if best.seen.is_empty() && !superblock::is_blank(flash)? {
        return Err(OpenError::Foreign);
    }
    Ok(best)
}

/// All pages of a region, by commit.
#[derive(Debug)]
pub(super) struct RegionScan {
    pub(super) layout: StoreLayout,
    /// The pages that are at their positions.
    pub(super) seen: PageList,
    /// Indices in the ring that the flash cannot read.
    pub(super) unreadable: BTreeSet<u64>,
    /// Indices in the ring with bytes that are not a page.
    broken: BTreeSet<u64>,
    /// Indices in the ring with a page that is at its position.
    sound: BTreeSet<u64>,
    /// The headers of pages with wrong checksums, by position.
    claims: BTreeMap<u64, PageClaim>,
}

impl RegionScan {
    pub(super) fn of<F: Flash>(flash: &mut F, layout: StoreLayout) -> Self {
        let mut pages = Vec::new();
        let (mut unreadable, mut broken) = (BTreeSet::new(), BTreeSet::new());
        let (mut sound, mut claims) = (BTreeSet::new(), BTreeMap::new());
        let mut segment = vec![0; layout.segment_pages as usize * PAGE_BYTES];
        for number in 0..layout.segments {
            let first = number * layout.segment_pages;
            let read = flash.read(layout.offset_of(first), &mut segment);
            for (bytes, damage_at) in segment.chunks_mut(PAGE_BYTES).zip(first..) {
                if read.is_err() && flash.read(layout.offset_of(damage_at), bytes).is_err() {
                    unreadable.insert(damage_at);
                    continue;
                }
                let decoded = page::decode(bytes);
                let seen = decoded.and_then(|decoded| FoundPage::at(&layout, decoded, damage_at));
                if seen.is_none() && bytes.iter().any(|&byte| byte != 0) {
                    broken.insert(damage_at);
                    let claim = PageClaim::at(&layout, bytes, damage_at);
                    claims.extend(claim.map(|claim| (claim.position, claim)));
                }
                sound.extend(seen.map(|_| damage_at));
                pages.extend(seen);
            }
        }
        Self {
            layout,
            seen: PageList::new(pages),
            unreadable,
            broken,
            sound,
            claims,
        }
    }

    /// First position and number of the newest commit with readable pages after the one that
    /// ends at `head`.
    pub(super) fn newest_after(&self, last_commit: u64, head: u64) -> Option<(u64, u64)> {
        let seen = self.seen.newest().filter(|&commit| commit > last_commit);
        let seen = seen.and_then(|commit| {
            let page = self.seen.first_from(commit)?;
            Some((commit, page.header.start))
        });
        let ring = self.layout.pages();
        let claims = self.claims.values();
        let claimed = claims
            .filter(|claim| claim.follows(head, last_commit, ring))
            .map(|claim| (claim.commit, claim.position - u64::from(claim.index)))
            .filter(|&(_, start)| start >= head)
            .max_by_key(|&(commit, start)| (commit, Reverse(start)));
        seen.max(claimed)
    }

    /// Number of changes of the missing commits at these positions, if their headers contain
    /// it.
    pub(super) fn claimed_changes(&self, commits: Range<u64>, places: Range<u64>) -> Option<u64> {
        let mut changes = 0;
        for commit in commits {
            let mut claims = self.claims.range(places.clone()).map(|(_, claim)| claim);
            let claim = claims.find(|claim| claim.commit == commit)?;
            changes += u64::from(claim.entries);
        }
        Some(changes)
    }

    /// Whether the bytes at this position are not a page, or cannot be read.
    pub(super) fn is_broken(&self, position: u64) -> bool {
        let damage_at = position % self.layout.pages();
        self.broken.contains(&damage_at) || self.unreadable.contains(&damage_at)
    }

    /// Whether there is an undamaged page at this position.
    pub(super) fn is_sound(&self, position: u64) -> bool {
        self.sound.contains(&(position % self.layout.pages()))
    }

    /// The end of the damaged pages from here that can belong to a commit.
    pub(super) fn broken_until(&self, start: u64) -> u64 {
        let mut pages = start..start + self.layout.commit_pages_max();
        let last = pages.rfind(|&position| self.is_broken(position));
        let Some(last) = last else {
            return start;
        };
        let end = start + self.layout.pages();
        let mut sound = (last..end).filter(|&position| !self.is_broken(position));
        sound.next().unwrap_or(end)
    }

    pub(super) fn free_segments(&self, last: Option<&CommitHeader>) -> u64 {
        let Some(last) = last else {
            return self.layout.segments;
        };
        let tail = self.seen.first_from(last.tail_commit);
        let tail = tail.map_or(last.start, |page| page.header.start);
        let first = self.layout.segment_of(tail) * self.layout.segment_pages;
        let used = last.end().saturating_sub(first);
        self.layout.pages().saturating_sub(used) / self.layout.segment_pages
    }

    /// Places that the flash cannot read and that no other damage contains.
    pub(super) fn unreadable_elsewhere(&self, named: &[StoreDamage]) -> Vec<StoreDamage> {
        let mut damages: Vec<StoreDamage> = Vec::new();
        let offsets = self.unreadable.iter().map(|&at| self.layout.offset_of(at));
        let elsewhere = offsets.filter(|&at| {
            let covers =
                |from: u64, damage: &StoreDamage| (from..from + damage.bytes).contains(&at);
            !named
                .iter()
                .any(|damage| damage.at.is_some_and(|from| covers(from, damage)))
        });
        let what = "the flash cannot be read here; no commit that is known to be durable was here";
        for at in elsewhere {
            match damages.last_mut() {
                Some(last) if last.at.is_some_and(|from| from + last.bytes == at) => {
                    last.bytes += PAGE_BYTES as u64;
                }
                _ => damages.push(damage_at(at, PAGE_BYTES as u64, what)),
            }
        }
        damages
    }
}

/// The bytes of a page. If the device cannot read all of it, its sectors are read one by one.
pub(super) fn raw_page<F: Flash>(flash: &mut F, at: u64) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    if flash.read(at, &mut page).is_ok() {
        return page;
    }
    for (sector, from) in page
        .chunks_mut(SECTOR_BYTES)
        .zip((at..).step_by(SECTOR_BYTES))
    {
        if flash.read(from, sector).is_err() {
            sector.fill(0);
        }
    }
    page
}
