//! The pages that were found in a region, in the order of their commits.

use crate::layout::StoreLayout;
use crate::page::CommitHeader;

/// A page that is at the position in its header.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct FoundPage {
    /// The header of its commit.
    pub(crate) header: CommitHeader,
    /// Its index in the commit.
    pub(crate) index: u16,
}

impl FoundPage {
    /// The page, if its position matches its place in the ring.
    pub(crate) fn at(
        layout: &StoreLayout,
        (header, index): (CommitHeader, u16),
        place: u64,
    ) -> Option<Self> {
        let stands_right = (header.start + u64::from(index)) % layout.pages() == place
            && u64::from(header.pages) <= layout.pages();
        stands_right.then_some(Self { header, index })
    }
}

/// All pages of a region, sorted by commit and then by attempt. A commit has more than one
/// attempt if a power cut left pages of an earlier one.
#[derive(Debug)]
pub(crate) struct PageList {
    pages: Vec<FoundPage>,
}

impl PageList {
    /// Sorts the pages. No two are equal, because each has its own position.
    pub(crate) fn new(mut pages: Vec<FoundPage>) -> Self {
        // The log is a ring, so the pages are read as two sorted runs.
        pages.sort();
        Self { pages }
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are no pages.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The number of the newest commit that has a page.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.pages.last().map(|page| page.header.commit)
    }

    /// The pages of each commit, oldest commit first.
    pub(crate) fn commits(&self) -> impl DoubleEndedIterator<Item = &[FoundPage]> {
        self.pages
            .chunk_by(|one, other| one.header.commit == other.header.commit)
    }

    /// The first page of this commit, or of the next commit that has a page.
    pub(crate) fn first_from(&self, commit: u64) -> Option<&FoundPage> {
        self.pages.get(self.position(commit))
    }

    /// The header of a commit, if all its pages are present.
    pub(crate) fn complete(&self, commit: u64) -> Option<CommitHeader> {
        let from = &self.pages[self.position(commit)..];
        let count = from.partition_point(|page| page.header.commit == commit);
        complete(&from[..count])
    }

    /// The header of the newest commit with all its pages.
    pub(crate) fn last_complete(&self) -> Option<CommitHeader> {
        self.commits().rev().find_map(complete)
    }

    fn position(&self, commit: u64) -> usize {
        self.pages
            .partition_point(|page| page.header.commit < commit)
    }
}

/// The attempts at one commit, each with the header of its pages.
pub(crate) fn attempts(
    commit: &[FoundPage],
) -> impl Iterator<Item = (&CommitHeader, &[FoundPage])> {
    commit
        .chunk_by(|one, other| one.header == other.header)
        .filter_map(|pages| Some((&pages.first()?.header, pages)))
}

fn complete(commit: &[FoundPage]) -> Option<CommitHeader> {
    attempts(commit)
        .find(|(header, pages)| pages.len() == usize::from(header.pages))
        .map(|(header, _)| *header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::PAGE_PAYLOAD_BYTES;

    /// Pages of a commit of two pages: (commit, first byte of the payload, index).
    fn seen(pages: &[(u64, u8, u16)]) -> PageList {
        let page = |&(commit, byte, index): &(u64, u8, u16)| {
            let payload = vec![byte; 2 * PAGE_PAYLOAD_BYTES];
            let header = CommitHeader::new(commit, 1, 2 * commit, 1, &payload);
            FoundPage { header, index }
        };
        PageList::new(pages.iter().map(page).collect())
    }

    #[test]
    fn a_commit_is_complete_when_all_pages_of_one_attempt_are_there() {
        let seen = seen(&[(5, 0, 1), (4, 0, 0), (5, 1, 0), (4, 1, 0), (4, 1, 1)]);
        assert_eq!(seen.len(), 5);
        assert_eq!(seen.newest(), Some(5));
        assert_eq!(seen.complete(5), None, "the two pages are of two attempts");
        let four = seen.complete(4).unwrap();
        assert!(four.matches(&vec![1; 2 * PAGE_PAYLOAD_BYTES]));
        assert_eq!(seen.last_complete(), Some(four));
        for absent in [0, 3, 6, u64::MAX] {
            assert_eq!(seen.complete(absent), None);
        }
    }

    #[test]
    fn commits_come_in_order_and_their_attempts_apart() {
        let seen = seen(&[(9, 0, 0), (2, 0, 1), (2, 1, 0), (2, 0, 0)]);
        let counts: Vec<usize> = seen.commits().map(<[FoundPage]>::len).collect();
        assert_eq!(counts, [3, 1]);
        let first = seen.commits().next().unwrap();
        let mut sizes: Vec<usize> = attempts(first).map(|(_, pages)| pages.len()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2]);
        let from = |commit| seen.first_from(commit).map(|page| page.header.commit);
        assert_eq!(
            [from(0), from(2), from(3), from(10)],
            [Some(2), Some(2), Some(9), None]
        );
    }

    #[test]
    fn nothing_is_found_where_there_is_no_page() {
        let seen = seen(&[]);
        assert!(seen.is_empty());
        assert_eq!(seen.newest(), None);
        assert_eq!(seen.complete(1), None);
        assert_eq!(seen.last_complete(), None);
    }
}
