//! Sends a file with other bytes in some places.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{BootConnection, BootTransfer};

/// A part of a patched file.
#[derive(Clone, Debug, Eq, PartialEq)]
enum FilePart<'a> {
    /// These bytes of the file.
    Unchanged(Range<u64>),
    /// Bytes that replace those of the file.
    Replaced(&'a [u8]),
}

/// The parts that make up these bytes. The patches are sorted and do not overlap.
fn parts(bytes: Range<u64>, patches: &[(u64, Vec<u8>)]) -> Vec<FilePart<'_>> {
    let mut parts = Vec::new();
    let mut at = bytes.start;
    for (first, patch) in patches {
        let end = first + patch.len() as u64;
        let (from, to) = ((*first).max(at), end.min(bytes.end));
        if from >= to {
            continue;
        }
        if at < from {
            parts.push(FilePart::Unchanged(at..from));
        }
        let part = patch.get((from - first) as usize..(to - first) as usize);
        parts.push(FilePart::Replaced(part.unwrap_or_default()));
        at = to;
    }
    if at < bytes.end {
        parts.push(FilePart::Unchanged(at..bytes.end));
    }
    parts
}

impl BootConnection {
    /// Sends the body of a response. Its head was sent.
    pub(super) async fn send_patched(
        &mut self,
        (file, patches): (&Arc<File>, &[(u64, Vec<u8>)]),
        bytes: Range<u64>,
        transfer: &mut BootTransfer,
    ) -> io::Result<()> {
        let first = bytes.start;
        for part in parts(bytes, patches) {
            match part {
                FilePart::Unchanged(range) => self.send_part(file, range, first, transfer).await?,
                FilePart::Replaced(bytes) => self.stream.write(bytes).await?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies the parts to a file in memory.
    fn sent(file: &[u8], bytes: Range<u64>, patches: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in parts(bytes, patches) {
            match part {
                FilePart::Unchanged(range) => {
                    assert!(range.start < range.end);
                    out.extend_from_slice(&file[range.start as usize..range.end as usize]);
                }
                FilePart::Replaced(bytes) => out.extend_from_slice(bytes),
            }
        }
        out
    }

    #[test]
    fn every_range_is_that_of_the_whole_patched_file() {
        let file: Vec<u8> = (0..20).collect();
        let patches = [
            (0, vec![100]),
            (5, vec![101, 102]),
            (7, vec![103]),
            (18, vec![104, 105]),
        ];
        let mut whole = file.clone();
        for (at, patch) in &patches {
            whole[*at as usize..*at as usize + patch.len()].copy_from_slice(patch);
        }
        for start in 0..=20 {
            for end in start..=20 {
                let got = sent(&file, start as u64..end as u64, &patches);
                assert_eq!(got, whole[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn a_file_without_patches_is_one_part() {
        assert_eq!(parts(3..9, &[]), [FilePart::Unchanged(3..9)]);
        assert_eq!(parts(3..3, &[]), []);
    }
}
