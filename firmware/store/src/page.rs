//! Pages: the payload of a commit in pieces with checksums.
//!
//! The header of a page contains its position in the log and its commit, so no payload can be
//! mistaken for a page, and a page at another position is ignored.

use crate::layout::{PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_PAYLOAD_BYTES, StoreLayout};

const MAGIC: [u8; 4] = *b"TRVP";

/// Commits and positions from here on count as damage, so that no sum of them can overflow.
/// With one commit per microsecond it takes 290,000 years to get there.
const COUNT_MAX: u64 = 1 << 63;

/// The header fields that all pages of a commit have in common.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct CommitHeader {
    /// Sequence number; the first commit has 1.
    pub(crate) commit: u64,
    /// The oldest commit that recovery needs once this one is complete.
    pub(crate) tail_commit: u64,
    /// Log position of the commit's first page.
    pub(crate) start: u64,
    /// Number of pages.
    pub(crate) pages: u16,
    /// Number of entries.
    pub(crate) entries: u32,
    /// Bytes of entries.
    pub(crate) payload_bytes: u32,
    /// Checksum over the entries and the fields above. Pages of two attempts at
    /// one commit, with a power cut between them, differ in it.
    pub(crate) payload_crc: u32,
}

impl CommitHeader {
    /// The header of a commit with this payload.
    pub(crate) fn new(
        commit: u64,
        tail_commit: u64,
        start: u64,
        entries: u32,
        payload: &[u8],
    ) -> Self {
        let mut header = Self {
            commit,
            tail_commit,
            start,
            pages: payload.len().div_ceil(PAGE_PAYLOAD_BYTES) as u16,
            entries,
            payload_bytes: payload.len() as u32,
            payload_crc: 0,
        };
        header.payload_crc = header.crc_with(payload);
        header
    }

    /// Whether the payload matches the checksum of the header.
    pub(crate) fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_bytes as usize && self.crc_with(payload) == self.payload_crc
    }

    /// First log position after the commit.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.pages)
    }

    fn crc_with(&self, payload: &[u8]) -> u32 {
        let mut crc = crc32c::crc32c(payload);
        for field in [
            self.commit,
            self.tail_commit,
            self.start,
            u64::from(self.entries),
        ] {
            crc = crc32c::crc32c_append(crc, &field.to_le_bytes());
        }
        crc
    }

    /// The pages of the commit, one after the other.
    pub(crate) fn encode(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0; usize::from(self.pages) * PAGE_BYTES];
        let pieces = payload.chunks(PAGE_PAYLOAD_BYTES);
        for ((page, piece), index) in out.chunks_mut(PAGE_BYTES).zip(pieces).zip(0_u16..) {
            page[..4].copy_from_slice(&MAGIC);
            page[8..16].copy_from_slice(&(self.start + u64::from(index)).to_le_bytes());
            page[16..24].copy_from_slice(&self.commit.to_le_bytes());
            page[24..32].copy_from_slice(&self.tail_commit.to_le_bytes());
            page[32..36].copy_from_slice(&self.payload_crc.to_le_bytes());
            page[36..40].copy_from_slice(&self.payload_bytes.to_le_bytes());
            page[40..42].copy_from_slice(&index.to_le_bytes());
            page[42..44].copy_from_slice(&self.pages.to_le_bytes());
            page[44..48].copy_from_slice(&self.entries.to_le_bytes());
            page[PAGE_HEADER_BYTES..][..piece.len()].copy_from_slice(piece);
            let crc = crc32c::crc32c(&page[8..]);
            page[4..8].copy_from_slice(&crc.to_le_bytes());
        }
        out
    }
}

/// Reads the header of a page: the commit it belongs to and its index there.
/// None if the checksum is wrong or this is not a page of a store.
pub(crate) fn decode(page: &[u8]) -> Option<(CommitHeader, u16)> {
    if page.len() != PAGE_BYTES || page[..4] != MAGIC {
        return None;
    }
    if number(page, 4, 4) != u64::from(crc32c::crc32c(&page[8..])) {
        return None;
    }
    let index = number(page, 40, 2);
    let header = CommitHeader {
        commit: number(page, 16, 8),
        tail_commit: number(page, 24, 8),
        start: number(page, 8, 8).checked_sub(index)?,
        pages: number(page, 42, 2) as u16,
        entries: number(page, 44, 4) as u32,
        payload_bytes: number(page, 36, 4) as u32,
        payload_crc: number(page, 32, 4) as u32,
    };
    let sound = index < u64::from(header.pages)
        && (header.payload_bytes as usize).div_ceil(PAGE_PAYLOAD_BYTES)
            == usize::from(header.pages)
        && (1..=header.commit).contains(&header.tail_commit)
        && header.commit < COUNT_MAX
        && header.start < COUNT_MAX;
    sound.then_some((header, index as u16))
}

/// The header of a page with a wrong checksum. No checksum confirms it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PageClaim {
    pub(crate) position: u64,
    pub(crate) commit: u64,
    pub(crate) index: u16,
    pub(crate) entries: u32,
}

impl PageClaim {
    /// Reads the header of a page and ignores the checksum; none if its fields contradict each
    /// other. The caller compares the position with the place of the page.
    pub(crate) fn read(page: &[u8]) -> Option<Self> {
        if page.len() != PAGE_BYTES {
            return None;
        }
        let claim = Self {
            position: number(page, 8, 8),
            commit: number(page, 16, 8),
            index: number(page, 40, 2) as u16,
            entries: number(page, 44, 4) as u32,
        };
        let sound = (1..=claim.commit).contains(&number(page, 24, 8))
            && claim.commit < COUNT_MAX
            && claim.position < COUNT_MAX
            && u64::from(claim.index) <= claim.position
            && number(page, 40, 2) < number(page, 42, 2);
        sound.then_some(claim)
    }

    /// The same; none if the page is not at the position in its header.
    pub(crate) fn at(layout: &StoreLayout, page: &[u8], place: u64) -> Option<Self> {
        Self::read(page).filter(|claim| claim.position % layout.pages() == place)
    }

    /// Whether the position is after a commit that ends at `head`, in a ring of so many pages,
    /// and the commit is one that fits between.
    pub(crate) fn follows(&self, head: u64, last_commit: u64, ring: u64) -> bool {
        let Some(behind) = self
            .position
            .checked_sub(head)
            .filter(|&pages| pages < ring)
        else {
            return false;
        };
        let first_commit = last_commit + 1;
        (first_commit..=first_commit + behind).contains(&self.commit)
    }
}

fn number(page: &[u8], at: usize, width: usize) -> u64 {
    page[at..at + width]
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(length: usize) -> (CommitHeader, Vec<u8>) {
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        (CommitHeader::new(7, 3, 40, 2, &payload), payload)
    }

    #[test]
    fn the_bytes_of_version_one_are_pinned() {
        let (header, payload) = sample(5);
        let page = header.encode(&payload);
        let mut want = vec![0; PAGE_BYTES];
        want[..4].copy_from_slice(b"TRVP");
        want[4..8].copy_from_slice(&crc32c::crc32c(&page[8..]).to_le_bytes());
        (want[8], want[16], want[24], want[36], want[42], want[44]) = (40, 7, 3, 5, 1, 2);
        want[32..36].copy_from_slice(&header.payload_crc.to_le_bytes());
        want[48..53].copy_from_slice(&[0, 1, 2, 3, 4]);
        assert_eq!(page, want);
        assert_eq!(header.payload_crc, 0xb2a6_b2ea);
    }

    #[test]
    fn every_page_of_a_long_commit_names_its_place() {
        let (header, payload) = sample(3 * PAGE_PAYLOAD_BYTES - 1);
        let bytes = header.encode(&payload);
        let mut read = Vec::new();
        for (page, index) in bytes.chunks(PAGE_BYTES).zip(0..) {
            assert_eq!(decode(page), Some((header, index)));
            read.extend_from_slice(&page[PAGE_HEADER_BYTES..]);
        }
        read.truncate(header.payload_bytes as usize);
        assert!(header.matches(&read));
        assert_eq!(header.end(), 43);
    }

    #[test]
    fn every_flipped_bit_makes_a_page_invalid() {
        let (header, payload) = sample(100);
        let mut page = header.encode(&payload);
        for bit in 0..PAGE_BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&page), None, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn refuses_what_is_no_page() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0; PAGE_BYTES]), None);
        assert_eq!(decode(&[0xff; PAGE_BYTES]), None);
    }

    #[test]
    fn refuses_a_page_whose_fields_contradict_each_other() {
        let (header, payload) = sample(100);
        let mut page = header.encode(&payload);
        for (at, value) in [(42, 0), (42, 2), (40, 1), (24, 0), (24, 8)] {
            let before = page[at];
            page[at] = value;
            let crc = crc32c::crc32c(&page[8..]).to_le_bytes();
            page[4..8].copy_from_slice(&crc);
            assert_eq!(decode(&page), None, "byte {at} = {value}");
            page[at] = before;
        }
    }

    #[test]
    fn a_page_with_a_wrong_checksum_still_says_what_it_was() {
        let (header, payload) = sample(2 * PAGE_PAYLOAD_BYTES);
        let mut page = header.encode(&payload)[PAGE_BYTES..].to_vec();
        page[0] = 0;
        page[2000] ^= 1;
        assert_eq!(decode(&page), None);
        let claim = PageClaim::read(&page).unwrap();
        assert_eq!((claim.position, claim.commit), (41, 7));
        assert_eq!((claim.index, claim.entries), (1, 2));
        assert!(claim.follows(40, 6, 100) && claim.follows(40, 5, 100));
        assert!(!claim.follows(40, 7, 100), "that commit is known");
        assert!(
            !claim.follows(40, 4, 100),
            "no space for the commit between"
        );
        assert!(!claim.follows(42, 6, 100) && !claim.follows(10, 6, 31));
        for blank in [[0; PAGE_BYTES], [0xff; PAGE_BYTES]] {
            assert_eq!(PageClaim::read(&blank), None);
        }
        assert_eq!(PageClaim::read(&[]), None);
    }

    #[test]
    fn two_attempts_at_one_commit_differ() {
        let (one, payload) = sample(100);
        let two = CommitHeader::new(7, 4, 40, 2, &payload);
        assert_ne!(one.payload_crc, two.payload_crc);
        assert!(!one.matches(&payload[..99]));
        assert!(!two.matches(&[0; 100]));
    }
}
