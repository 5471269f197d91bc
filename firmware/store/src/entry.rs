//! Entries: what a commit changes, record by record.
//!
//! An entry puts a whole record, patches one, or deletes one. A patch keeps the
//! bytes both values share at their beginning and end.

use crate::Key;

/// Bytes of a put beside the value.
pub(crate) const PUT_OVERHEAD_BYTES: usize = 1 + KEY_BYTES + 4;

/// Bytes of a patch beside what it inserts.
const PATCH_OVERHEAD_BYTES: usize = 1 + KEY_BYTES + 16;

const KEY_BYTES: usize = 17;
const PUT: u8 = 1;
const PATCH: u8 = 2;
const DELETE: u8 = 3;

/// One entry, as read from a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Entry<'a> {
    /// The record is now this.
    Put(Key, &'a [u8]),
    /// The record has changed in the middle.
    Patch(Key, Patch<'a>),
    /// The record is gone.
    Delete(Key),
}

/// A change in the middle of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Patch<'a> {
    prefix: u32,
    suffix: u32,
    crc: u32,
    insert: &'a [u8],
}

impl<'a> Patch<'a> {
    /// What turns `old` into `new`.
    pub(crate) fn between(old: &[u8], new: &'a [u8]) -> Self {
        let prefix = shared(old.iter(), new.iter());
        let suffix = shared(old[prefix..].iter().rev(), new[prefix..].iter().rev());
        Self {
            prefix: prefix as u32,
            suffix: suffix as u32,
            crc: crc32c::crc32c(new),
            insert: &new[prefix..new.len() - suffix],
        }
    }

    /// The new value; none if the patch was not made for `old`.
    pub(crate) fn apply(&self, old: &[u8]) -> Option<Vec<u8>> {
        let (prefix, suffix) = (self.prefix as usize, self.suffix as usize);
        if prefix.checked_add(suffix)? > old.len() {
            return None;
        }
        let new = [&old[..prefix], self.insert, &old[old.len() - suffix..]].concat();
        (crc32c::crc32c(&new) == self.crc).then_some(new)
    }

    /// Whether it takes fewer bytes than a put of `new`.
    pub(crate) fn is_smaller_than(&self, new: &[u8]) -> bool {
        PATCH_OVERHEAD_BYTES + self.insert.len() < PUT_OVERHEAD_BYTES + new.len()
    }
}

fn shared<'a>(one: impl Iterator<Item = &'a u8>, two: impl Iterator<Item = &'a u8>) -> usize {
    one.zip(two).take_while(|(one, two)| one == two).count()
}

impl<'a> Entry<'a> {
    /// Appends the entry to a payload.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (op, key) = match self {
            Self::Put(key, _) => (PUT, key),
            Self::Patch(key, _) => (PATCH, key),
            Self::Delete(key) => (DELETE, key),
        };
        out.extend_from_slice(&[op, key.kind]);
        out.extend_from_slice(&key.id);
        match self {
            Self::Put(_, value) => {
                out.extend_from_slice(&(value.len() as u32).to_le_bytes());
                out.extend_from_slice(value);
            }
            Self::Patch(_, patch) => {
                let length = patch.insert.len() as u32;
                for field in [patch.prefix, patch.suffix, patch.crc, length] {
                    out.extend_from_slice(&field.to_le_bytes());
                }
                out.extend_from_slice(patch.insert);
            }
            Self::Delete(_) => {}
        }
    }

    /// Splits the first entry off a payload; none if there is no whole one.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&op, rest) = payload.split_first()?;
        let (&kind, rest) = rest.split_first()?;
        let (&id, rest) = rest.split_first_chunk::<16>()?;
        let key = Key { kind, id };
        match op {
            PUT => {
                let (value, rest) = sized(rest)?;
                Some((Self::Put(key, value), rest))
            }
            PATCH => {
                let (prefix, rest) = word(rest)?;
                let (suffix, rest) = word(rest)?;
                let (crc, rest) = word(rest)?;
                let (insert, rest) = sized(rest)?;
                let patch = Patch {
                    prefix,
                    suffix,
                    crc,
                    insert,
                };
                Some((Self::Patch(key, patch), rest))
            }
            DELETE => Some((Self::Delete(key), rest)),
            _ => None,
        }
    }
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (&word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(word), rest))
}

fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = word(bytes)?;
    rest.split_at_checked(length as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: Key = Key {
        kind: 1,
        id: *b"0123456789abcdef",
    };

    #[test]
    fn the_bytes_of_version_one_are_pinned() {
        let mut out = Vec::new();
        Entry::Put(KEY, b"abc").encode(&mut out);
        Entry::Delete(KEY).encode(&mut out);
        Entry::Patch(KEY, Patch::between(b"abc", b"abXYc")).encode(&mut out);
        let mut want = b"\x01\x010123456789abcdef\x03\0\0\0abc".to_vec();
        want.extend_from_slice(b"\x03\x010123456789abcdef");
        want.extend_from_slice(b"\x02\x010123456789abcdef\x02\0\0\0\x01\0\0\0");
        want.extend_from_slice(&crc32c::crc32c(b"abXYc").to_le_bytes());
        want.extend_from_slice(b"\x02\0\0\0XY");
        assert_eq!(out, want);
    }

    #[test]
    fn a_repeated_byte_is_shared_only_once() {
        let patch = Patch::between(b"aaa", b"aaaa");
        assert_eq!(patch.apply(b"aaa").unwrap(), b"aaaa");
        let patch = Patch::between(b"aaaa", b"aaa");
        assert_eq!(patch.apply(b"aaaa").unwrap(), b"aaa");
    }

    #[test]
    fn a_patch_for_another_value_does_not_apply() {
        let patch = Patch::between(b"hello world", b"hello brave world");
        assert_eq!(patch.apply(b"hellO world"), None);
        assert_eq!(patch.apply(b"hell"), None);
    }

    #[test]
    fn refuses_entries_cut_short_and_unknown_ones() {
        let mut out = Vec::new();
        Entry::Patch(KEY, Patch::between(b"abc", b"abXYc")).encode(&mut out);
        for end in 0..out.len() {
            assert_eq!(Entry::decode(&out[..end]), None, "{end} bytes");
        }
        out[0] = 4;
        assert_eq!(Entry::decode(&out), None);
    }

    proptest! {
        #[test]
        fn a_patch_turns_the_old_value_into_the_new_one(
            old in proptest::collection::vec(0_u8..3, 0..40),
            new in proptest::collection::vec(0_u8..3, 0..40),
        ) {
            let mut out = Vec::new();
            Entry::Patch(KEY, Patch::between(&old, &new)).encode(&mut out);
            let Some((Entry::Patch(key, patch), [])) = Entry::decode(&out) else {
                panic!("no patch: {out:?}");
            };
            prop_assert_eq!(key, KEY);
            prop_assert_eq!(patch.apply(&old), Some(new));
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut rest = bytes.as_slice();
            while let Some((entry, after)) = Entry::decode(rest) {
                if let Entry::Patch(_, patch) = entry {
                    let _ = patch.apply(b"some value");
                }
                rest = after;
            }
        }
    }
}
