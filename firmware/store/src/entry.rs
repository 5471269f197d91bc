//! Entries of a commit.
//!
//! An entry puts a whole record, patches one, or deletes one.

use crate::RecordKey;
use crate::patch::{RecordPatch, sized};

/// Bytes of a put without the value.
pub(crate) const PUT_OVERHEAD_BYTES: usize = HEADER_BYTES + 4;

/// Operation and key.
const HEADER_BYTES: usize = 1 + 1 + 16;
const PUT: u8 = 1;
const PATCH: u8 = 2;
const DELETE: u8 = 3;

/// One entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum LogEntry<'a> {
    /// The whole new value.
    Put(RecordKey, &'a [u8]),
    /// The changes of a value.
    Patch(RecordKey, RecordPatch<'a>),
    /// The record is deleted.
    Delete(RecordKey),
}

impl<'a> LogEntry<'a> {
    /// The shortest entry that turns `old` into `new`.
    pub(crate) fn change(key: RecordKey, old: Option<&[u8]>, new: &'a [u8]) -> Self {
        let patch = old.map(|old| RecordPatch::between(old, new));
        match patch {
            Some(patch) if patch.encoded_bytes() < 4 + new.len() => Self::Patch(key, patch),
            _ => Self::Put(key, new),
        }
    }

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
            Self::Patch(_, patch) => patch.encode(out),
            Self::Delete(_) => {}
        }
    }

    /// Splits the first entry off a payload; none if it is not complete.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&[op, kind], rest) = payload.split_first_chunk::<2>()?;
        let (&id, rest) = rest.split_first_chunk::<16>()?;
        let key = RecordKey { kind, id };
        match op {
            PUT => {
                let (value, rest) = sized(rest)?;
                Some((Self::Put(key, value), rest))
            }
            PATCH => {
                let (patch, rest) = RecordPatch::decode(rest)?;
                Some((Self::Patch(key, patch), rest))
            }
            DELETE => Some((Self::Delete(key), rest)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: RecordKey = RecordKey {
        kind: 1,
        id: *b"0123456789abcdef",
    };

    #[test]
    fn the_bytes_of_version_one_are_pinned() {
        let mut out = Vec::new();
        LogEntry::Put(KEY, b"abc").encode(&mut out);
        LogEntry::Delete(KEY).encode(&mut out);
        let mut want = b"\x01\x010123456789abcdef\x03\0\0\0abc".to_vec();
        want.extend_from_slice(b"\x03\x010123456789abcdef");
        assert_eq!(out, want);
        assert_eq!(PUT_OVERHEAD_BYTES + 3 + HEADER_BYTES, want.len());

        let patch = RecordPatch::between(b"abc", b"abXYc");
        let mut bytes = Vec::new();
        patch.encode(&mut bytes);
        out.clear();
        LogEntry::Patch(KEY, patch).encode(&mut out);
        assert_eq!(out[..18], *b"\x02\x010123456789abcdef");
        assert_eq!(out[18..], bytes);
    }

    #[test]
    fn the_shorter_of_patch_and_put_is_chosen() {
        let (old, mut new) = (vec![1; 1000], vec![1; 1000]);
        new[500] = 2;
        assert!(matches!(
            LogEntry::change(KEY, Some(&old), &new),
            LogEntry::Patch(..)
        ));
        assert!(matches!(
            LogEntry::change(KEY, None, &new),
            LogEntry::Put(..)
        ));
        assert!(matches!(
            LogEntry::change(KEY, Some(b"abc"), b"abd"),
            LogEntry::Put(..)
        ));
    }

    #[test]
    fn refuses_entries_cut_short_and_unknown_ones() {
        for entry in [
            LogEntry::Patch(KEY, RecordPatch::between(b"abc", b"abXYc")),
            LogEntry::Put(KEY, b"abc"),
            LogEntry::Delete(KEY),
        ] {
            let mut out = Vec::new();
            entry.encode(&mut out);
            assert_eq!(LogEntry::decode(&out), Some((entry, [].as_slice())));
            for end in 0..out.len() {
                assert_eq!(LogEntry::decode(&out[..end]), None, "{end} bytes");
            }
            out[0] = 4;
            assert_eq!(LogEntry::decode(&out), None);
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut rest = bytes.as_slice();
            while let Some((_, after)) = LogEntry::decode(rest) {
                rest = after;
            }
        }
    }
}
