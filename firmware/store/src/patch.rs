//! Patches: a new value as pieces of the old value and inserts between them.
//!
//! Fields that change together are far apart in a record (the revision is at its beginning, the
//! job at its end, an inventory of many KiB between them), so a patch has several hunks. Shared
//! pieces are found as in rsync: fixed blocks of the old value are indexed, and a window moves
//! over the new value.

use crate::layout::RECORD_BYTES_MAX;

/// Most hunks of one patch; the rest of the value is inserted whole.
pub(crate) const HUNKS_MAX: usize = 64;

/// Bytes of a patch without its hunks.
const HEADER_BYTES: usize = 6;
/// Bytes of a hunk without its insert.
const HUNK_BYTES: usize = 12;
/// Size of the indexed blocks.
const BLOCK_BYTES: usize = 16;
/// Shortest shared piece that saves bytes.
const SHARED_BYTES_MIN: usize = 2 * HUNK_BYTES;

/// The changes from one value to another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RecordPatch<'a> {
    /// Checksum of the new value.
    crc: u32,
    hunks: Vec<PatchHunk<'a>>,
}

/// A piece of the old value, and the insert after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct PatchHunk<'a> {
    from: u32,
    length: u32,
    insert: &'a [u8],
}

impl<'a> RecordPatch<'a> {
    /// The patch from `old` to `new`.
    pub(crate) fn between(old: &[u8], new: &'a [u8]) -> Self {
        let prefix = shared(old.iter(), new.iter());
        let suffix = shared(old[prefix..].iter().rev(), new[prefix..].iter().rev());
        let new_end = new.len() - suffix;
        let mut hunks = Vec::new();
        let (mut from, mut length) = (0, prefix);
        let mut at = prefix;
        let middle = &old[prefix..old.len() - suffix];
        let index = BlockIndex::new(middle);
        // One hunk is reserved for the shared end.
        while hunks.len() + 2 < HUNKS_MAX {
            let Some(piece) = index.next_shared(&new[at..new_end]) else {
                break;
            };
            let insert = &new[at..at + piece.new_at];
            hunks.push(hunk(from, length, insert));
            (from, length) = (prefix + piece.old_at, piece.length);
            at += piece.new_at + piece.length;
        }
        hunks.push(hunk(from, length, &new[at..new_end]));
        hunks.push(hunk(old.len() - suffix, suffix, &[]));
        Self {
            crc: crc32c::crc32c(new),
            hunks,
        }
    }

    /// The new value; none if the patch was not made for `old`.
    pub(crate) fn apply(&self, old: &[u8]) -> Option<Vec<u8>> {
        let mut new = Vec::new();
        for hunk in &self.hunks {
            let (from, length) = (hunk.from as usize, hunk.length as usize);
            new.extend_from_slice(old.get(from..from.checked_add(length)?)?);
            new.extend_from_slice(hunk.insert);
            if new.len() > RECORD_BYTES_MAX {
                return None;
            }
        }
        (crc32c::crc32c(&new) == self.crc).then_some(new)
    }

    /// Bytes of the encoded patch.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let hunks = self.hunks.iter();
        HEADER_BYTES
            + hunks
                .map(|hunk| HUNK_BYTES + hunk.insert.len())
                .sum::<usize>()
    }

    /// Appends the patch to a payload.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(&(self.hunks.len() as u16).to_le_bytes());
        for hunk in &self.hunks {
            for field in [hunk.from, hunk.length, hunk.insert.len() as u32] {
                out.extend_from_slice(&field.to_le_bytes());
            }
            out.extend_from_slice(hunk.insert);
        }
    }

    /// Splits a patch off a payload; none if it is not complete.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (crc, rest) = word(payload)?;
        let (&count, mut rest) = rest.split_first_chunk::<2>()?;
        let count = usize::from(u16::from_le_bytes(count));
        if count > HUNKS_MAX {
            return None;
        }
        let mut hunks = Vec::with_capacity(count);
        for _ in 0..count {
            let (from, after) = word(rest)?;
            let (length, after) = word(after)?;
            let (insert, after) = sized(after)?;
            rest = after;
            hunks.push(PatchHunk {
                from,
                length,
                insert,
            });
        }
        Some((Self { crc, hunks }, rest))
    }
}

fn hunk(from: usize, length: usize, insert: &[u8]) -> PatchHunk<'_> {
    PatchHunk {
        from: from as u32,
        length: length as u32,
        insert,
    }
}

fn shared<'a>(one: impl Iterator<Item = &'a u8>, two: impl Iterator<Item = &'a u8>) -> usize {
    one.zip(two).take_while(|(one, two)| one == two).count()
}

/// Reads a little-endian word.
pub(crate) fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (&word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(word), rest))
}

/// Reads a length and as many bytes.
pub(crate) fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = word(bytes)?;
    rest.split_at_checked(length as usize)
}

/// The offsets of the blocks of the old value, by their hashes. Of blocks with equal hashes
/// only the first is found: a missed piece makes a patch longer, not wrong.
struct BlockIndex<'a> {
    old: &'a [u8],
    slots: Vec<Option<u32>>,
}

/// A piece that both values have.
struct SharedRun {
    old_at: usize,
    new_at: usize,
    length: usize,
}

impl<'a> BlockIndex<'a> {
    fn new(old: &'a [u8]) -> Self {
        let blocks = old.len() / BLOCK_BYTES;
        let mut index = Self {
            old,
            slots: vec![None; (2 * blocks).next_power_of_two()],
        };
        for (block, number) in old.chunks_exact(BLOCK_BYTES).zip(0_u32..) {
            let slot = index.slot(block);
            index.slots[slot].get_or_insert(number * BLOCK_BYTES as u32);
        }
        index
    }

    /// The slot of a block, by the upper bits of a product with 2^128 divided by the
    /// golden ratio (Fibonacci hashing).
    fn slot(&self, block: &[u8]) -> usize {
        let number = block
            .iter()
            .fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (product >> 64) as usize & (self.slots.len() - 1)
    }

    /// The first shared piece of `new` that saves bytes.
    fn next_shared(&self, new: &[u8]) -> Option<SharedRun> {
        for (at, window) in new.windows(BLOCK_BYTES).enumerate() {
            let Some(old_at) = self.slots[self.slot(window)] else {
                continue;
            };
            let old_at = old_at as usize;
            if self.old[old_at..old_at + BLOCK_BYTES] != *window {
                continue;
            }
            let back = shared(self.old[..old_at].iter().rev(), new[..at].iter().rev());
            let forth = shared(self.old[old_at..].iter(), new[at..].iter());
            if back + forth >= SHARED_BYTES_MIN {
                return Some(SharedRun {
                    old_at: old_at - back,
                    new_at: at - back,
                    length: back + forth,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(old: &[u8], new: &[u8]) -> usize {
        let patch = RecordPatch::between(old, new);
        assert_eq!(patch.apply(old).as_deref(), Some(new));
        let mut out = Vec::new();
        patch.encode(&mut out);
        assert_eq!(out.len(), patch.encoded_bytes());
        assert_eq!(RecordPatch::decode(&out), Some((patch, [].as_slice())));
        out.len()
    }

    #[test]
    fn the_bytes_of_version_one_are_pinned() {
        let mut out = Vec::new();
        RecordPatch::between(b"abc", b"abXYc").encode(&mut out);
        let mut want = crc32c::crc32c(b"abXYc").to_le_bytes().to_vec();
        want.extend_from_slice(b"\x02\0");
        want.extend_from_slice(b"\0\0\0\0\x02\0\0\0\x02\0\0\0XY");
        want.extend_from_slice(b"\x02\0\0\0\x01\0\0\0\0\0\0\0");
        assert_eq!(out, want);
    }

    #[test]
    fn changes_far_apart_take_a_hunk_each() {
        let old: Vec<u8> = (0..30_000_u32).map(|at| (at * at / 7) as u8).collect();
        let mut new = old.clone();
        new[100] ^= 1;
        new.splice(9_000..9_009, *b"wait call-back");
        new.drain(20_000..20_003);
        new[29_900] ^= 1;
        let bytes = check(&old, &new);
        assert!(bytes < 200, "{bytes}");
    }

    #[test]
    fn equal_bytes_in_a_row_are_shared_only_once() {
        check(b"aaa", b"aaaa");
        check(b"aaaa", b"aaa");
        check(&[7; 500], &[7; 300]);
        check(&[7; 300], &[7; 500]);
        check(b"", b"abc");
        check(b"abc", b"");
        check(b"", b"");
    }

    #[test]
    fn a_patch_has_no_more_hunks_than_the_limit() {
        let old: Vec<u8> = (0..40_000_u32).map(|at| (at * at / 7) as u8).collect();
        let mut new = old.clone();
        for at in (50..40_000).step_by(200) {
            new[at] ^= 1;
        }
        let patch = RecordPatch::between(&old, &new);
        assert_eq!(patch.hunks.len(), HUNKS_MAX);
        check(&old, &new);
    }

    #[test]
    fn a_patch_with_more_hunks_is_refused() {
        let mut bytes = vec![0; 6 + 65 * 12];
        bytes[4] = 65;
        assert_eq!(RecordPatch::decode(&bytes), None);
        bytes[4] = 64;
        assert!(RecordPatch::decode(&bytes).is_some());
    }

    #[test]
    fn a_patch_for_another_value_does_not_apply() {
        let patch = RecordPatch::between(b"hello world", b"hello brave world");
        assert_eq!(patch.apply(b"hellO world"), None);
        assert_eq!(patch.apply(b"hell"), None);
    }

    #[test]
    fn a_patch_that_would_blow_up_does_not_apply() {
        let hunks = vec![hunk(0, 100_000, &[]); 2];
        let patch = RecordPatch { crc: 0, hunks };
        assert_eq!(patch.apply(&vec![0; 100_000]), None);
        let hunks = vec![PatchHunk {
            from: u32::MAX,
            length: u32::MAX,
            insert: &[],
        }];
        assert_eq!(RecordPatch { crc: 0, hunks }.apply(&[0; 10]), None);
    }

    proptest! {
        #[test]
        fn a_patch_turns_the_old_value_into_the_new_one(
            old in proptest::collection::vec(0_u8..2, 0..120),
            new in proptest::collection::vec(0_u8..2, 0..120),
        ) {
            check(&old, &new);
        }

        #[test]
        fn edited_values_read_back(
            mut value in proptest::collection::vec(any::<u8>(), 100..600),
            edits in proptest::collection::vec((any::<u16>(), any::<u8>(), 0..20_usize), 0..6),
        ) {
            let old = value.clone();
            for (at, byte, length) in edits {
                let at = usize::from(at) % value.len();
                let end = (at + length / 2).min(value.len());
                value.splice(at..end, vec![byte; length]);
            }
            check(&old, &value);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some((patch, _)) = RecordPatch::decode(&bytes) {
                let _ = patch.apply(b"some value");
            }
        }
    }
}
