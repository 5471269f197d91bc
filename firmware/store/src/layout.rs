//! The layout of a region and all limits of the store.
//!
//! Both follow from two numbers of the superblock: pages per segment and number of segments.
//! The README of this crate is the normative text.

/// Unit of writing. Ours: the block size of ext4 and the usual program unit of eMMC.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of the header of a page.
pub const PAGE_HEADER_BYTES: usize = 48;

/// Bytes of a page for entries.
pub const PAGE_PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;

/// Pages before the log: two copies of the superblock.
pub const SUPERBLOCK_PAGES: u64 = 2;

/// Segment size of a region formatted by [`crate::Store::open`].
pub const SEGMENT_BYTES: u32 = 256 * 1024;

/// Fewest segments: with fewer, there is no space between head and tail.
pub const SEGMENTS_MIN: u64 = 8;

/// Fewest pages of a segment: smaller ones are too small for commits.
pub const SEGMENT_PAGES_MIN: u64 = 4;

/// A superblock with more pages than this (1 TiB) counts as damaged.
pub const REGION_PAGES_MAX: u64 = 1 << 28;

/// Largest encoded record, in regions that are large enough for it.
pub const RECORD_BYTES_MAX: usize = 128 * 1024;

/// Most pages of one batch, without carried records.
pub const BATCH_PAGES_MAX: u64 = 48;

/// Most changes of one batch.
pub const BATCH_CHANGES_MAX: usize = 4096;

/// Pages of old records carried to the head for each page of new ones while
/// less than half of the region is free.
pub const RELOCATED_PAGES_PER_PAGE: u64 = 3;

/// Most records that are tried for the spare bytes of a page.
pub const RELOCATION_LOOKS_MAX: usize = 32;

/// The layout of one region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StoreLayout {
    /// Pages of one segment.
    pub segment_pages: u64,
    /// Number of segments.
    pub segments: u64,
}

impl StoreLayout {
    /// The layout of a blank region of `region_bytes`; none if it is too small for this segment
    /// size, or if the segment size is not a multiple of the page size.
    pub fn fresh(region_bytes: u64, segment_bytes: u32) -> Option<Self> {
        let log_bytes = region_bytes.checked_sub(SUPERBLOCK_PAGES * PAGE_BYTES as u64)?;
        let segments = log_bytes.checked_div(u64::from(segment_bytes))?;
        Self::checked(segment_bytes, u32::try_from(segments).ok()?)
    }

    /// The layout with the numbers of a superblock; none if they are not valid.
    pub fn checked(segment_bytes: u32, segments: u32) -> Option<Self> {
        let layout = Self {
            segment_pages: u64::from(segment_bytes) / PAGE_BYTES as u64,
            segments: u64::from(segments),
        };
        let sound = u64::from(segment_bytes) % PAGE_BYTES as u64 == 0
            && layout.segment_pages >= SEGMENT_PAGES_MIN
            && layout.segments >= SEGMENTS_MIN
            && layout.pages() <= REGION_PAGES_MAX;
        sound.then_some(layout)
    }

    /// Pages of the log.
    pub const fn pages(&self) -> u64 {
        self.segment_pages * self.segments
    }

    /// Bytes of superblock and log.
    pub const fn region_bytes(&self) -> u64 {
        (SUPERBLOCK_PAGES + self.pages()) * PAGE_BYTES as u64
    }

    /// The segment, counted since the region was formatted, of a log position.
    pub const fn segment_of(&self, position: u64) -> u64 {
        position / self.segment_pages
    }

    /// Offset of the page of a log position in the region.
    pub const fn offset_of(&self, position: u64) -> u64 {
        (SUPERBLOCK_PAGES + position % self.pages()) * PAGE_BYTES as u64
    }

    /// Most pages of one batch in this region.
    pub const fn batch_pages_max(&self) -> u64 {
        let share = self.pages() / 32;
        if share < BATCH_PAGES_MAX {
            share
        } else {
            BATCH_PAGES_MAX
        }
    }

    /// Most bytes of entries of one batch.
    pub const fn batch_bytes_max(&self) -> usize {
        self.batch_pages_max() as usize * PAGE_PAYLOAD_BYTES
    }

    /// Largest record: one that fits into a batch of its own.
    pub const fn record_bytes_max(&self) -> usize {
        let space = self.batch_bytes_max() - crate::entry::PUT_OVERHEAD_BYTES;
        if space < RECORD_BYTES_MAX {
            space
        } else {
            RECORD_BYTES_MAX
        }
    }

    /// Most pages of one commit: a batch, the carried records, and one record of the largest
    /// size too many.
    pub const fn commit_pages_max(&self) -> u64 {
        (2 + RELOCATED_PAGES_PER_PAGE) * self.batch_pages_max()
    }

    /// Carrying starts when fewer pages than this are free.
    pub const fn pressure_pages(&self) -> u64 {
        self.pages() / 2
    }

    /// Most bytes of live records.
    ///
    /// While the tail passes once over all that was written, at most the live
    /// bytes are carried. Each commit carries three pages for each of its own and
    /// rounds up by at most one, so this takes at most 5/3 of the live bytes. That,
    /// one segment not yet released and the largest commit must fit into the half
    /// that is free when carrying starts.
    pub const fn live_bytes_max(&self) -> u64 {
        let margin = self.segment_pages + self.commit_pages_max();
        self.pressure_pages().saturating_sub(margin) * 3 / 5 * PAGE_PAYLOAD_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: StoreLayout = StoreLayout {
        segment_pages: 8,
        segments: 16,
    };

    #[test]
    fn refuses_regions_that_no_store_fits_into() {
        assert_eq!(StoreLayout::fresh(0, SEGMENT_BYTES), None);
        assert_eq!(StoreLayout::fresh(4096, SEGMENT_BYTES), None);
        assert_eq!(StoreLayout::fresh(1 << 20, SEGMENT_BYTES), None);
        assert_eq!(StoreLayout::fresh(1 << 20, 0), None);
        assert_eq!(StoreLayout::fresh(1 << 20, 5000), None);
        assert_eq!(StoreLayout::fresh(1 << 20, 4096), None);
        assert_eq!(StoreLayout::checked(1 << 20, u32::MAX), None);
    }

    #[test]
    fn a_fresh_region_is_used_to_its_last_whole_segment() {
        let layout = StoreLayout::fresh(16 << 20, SEGMENT_BYTES).unwrap();
        assert_eq!(layout.segments, 63);
        assert!(layout.region_bytes() <= 16 << 20);
        assert_eq!(StoreLayout::fresh(8192 + 16 * 32768, 32768), Some(SMALL));
    }

    #[test]
    fn positions_go_round() {
        assert_eq!(SMALL.offset_of(0), 8192);
        assert_eq!(SMALL.offset_of(127), 8192 + 127 * 4096);
        assert_eq!(SMALL.offset_of(128), 8192);
        assert_eq!(SMALL.segment_of(127), 15);
        assert_eq!(SMALL.segment_of(128), 16);
    }

    #[test]
    fn large_regions_take_the_largest_record_and_nearly_a_third_of_their_bytes() {
        let layout = StoreLayout::fresh(64 << 20, SEGMENT_BYTES).unwrap();
        assert_eq!(layout.record_bytes_max(), RECORD_BYTES_MAX);
        assert!(layout.live_bytes_max() > 18 << 20);
    }

    #[test]
    fn the_smallest_region_still_takes_a_record_of_nearly_a_page() {
        let layout = StoreLayout::checked(4 * 4096, 8).unwrap();
        assert_eq!(layout.batch_pages_max(), 1);
        assert!(layout.record_bytes_max() > 4000);
        assert!(layout.live_bytes_max() > 4096);
    }
}
