//! The content of a transfer: bytes in memory, or a file that is read ahead.
//!
//! The thread that serves all transfers never waits for a disk. It reads what is in the
//! page cache; for the rest it returns the missing range, a blocking thread fetches it,
//! and the transfer continues after that.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use embedded_tftp::{FileSource, ReadError};
use trivet_board_linux::read_cached;

use crate::files::{self, OpenedFile};

/// Bytes fetched from a disk at once, and kept until they are sent. Ours: as many as
/// one burst can have.
pub(super) const AHEAD_BYTES: usize = 64 * 1024;

/// Bytes read from memory at once, and kept until they are sent. Ours: small enough for
/// the blocks of many transfers to stay in the processor's cache.
const CACHED_BYTES: usize = DIRECT_BYTES_MIN;

/// A read of at least this many bytes goes directly to its target, not through `ahead`.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

/// A range that must be fetched from a disk.
#[derive(Clone, Debug)]
pub(super) struct MissingFileRange {
    file: Arc<File>,
    offset: u64,
    length: usize,
}

impl MissingFileRange {
    /// Reads the range; blocks until the disk has delivered it.
    pub(super) fn fetch(&self) -> io::Result<FetchedFileRange> {
        let mut bytes = vec![0; self.length];
        self.file.read_exact_at(&mut bytes, self.offset)?;
        Ok(FetchedFileRange {
            offset: self.offset,
            bytes,
        })
    }
}

/// The bytes of a range that was missing.
#[derive(Debug)]
pub(super) struct FetchedFileRange {
    offset: u64,
    bytes: Vec<u8>,
}

enum TftpContentSource {
    Bytes(Vec<u8>),
    File(Arc<File>),
}

/// The content of one transfer.
pub(super) struct TftpContent {
    source: TftpContentSource,
    size: u64,
    ahead: Vec<u8>,
    ahead_at: u64,
    disk: TftpDiskRead,
}

/// The state of reading from the disk.
enum TftpDiskRead {
    Idle,
    /// A range is missing and not being fetched yet.
    Wanted(MissingFileRange),
    Fetching,
    /// The range cannot be read.
    Broken,
}

impl TftpContent {
    pub(super) fn new(opened: OpenedFile) -> Self {
        Self {
            size: opened.size,
            source: match opened.content {
                files::OpenedFileContent::Bytes(bytes) => TftpContentSource::Bytes(bytes),
                // The rack grants no patches over TFTP.
                files::OpenedFileContent::File(file)
                | files::OpenedFileContent::Patched(file, _) => TftpContentSource::File(file),
            },
            ahead: Vec::new(),
            ahead_at: 0,
            disk: TftpDiskRead::Idle,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The range that the last read lacked. The caller must fetch it and call
    /// [`Self::fetched`].
    pub(super) fn missing(&mut self) -> Option<MissingFileRange> {
        match std::mem::replace(&mut self.disk, TftpDiskRead::Fetching) {
            TftpDiskRead::Wanted(missing) => Some(missing),
            other => {
                self.disk = other;
                None
            }
        }
    }

    /// Records the fetched range, or that it cannot be read.
    pub(super) fn fetched(&mut self, fetched: io::Result<FetchedFileRange>) {
        match fetched {
            Ok(fetched) => {
                self.ahead = fetched.bytes;
                self.ahead_at = fetched.offset;
                self.disk = TftpDiskRead::Idle;
            }
            Err(_) => self.disk = TftpDiskRead::Broken,
        }
    }

    /// These bytes of `ahead`, if it has them all.
    fn read_ahead(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.ahead_at)?).ok()?;
        self.ahead.get(from..from.checked_add(length)?)
    }

    /// Reads into `out` what is in memory, or else records the missing range.
    fn read_file(&mut self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let TftpContentSource::File(file) = &self.source else {
            return Err(ReadError::Failed);
        };
        let rest = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut wanted = out.len();
        let mut read = 0;
        if wanted >= DIRECT_BYTES_MIN {
            read = cached(file, offset, out)?;
        } else {
            wanted = rest.min(CACHED_BYTES);
            self.ahead.resize(wanted, 0);
            let ahead = cached(file, offset, &mut self.ahead)?;
            self.ahead.truncate(ahead);
            self.ahead_at = offset;
            if let Some(held) = self.ahead.get(..out.len()) {
                out.copy_from_slice(held);
                read = out.len();
            }
        }
        if read < out.len() {
            // Not in memory, or no longer in the file: fetching shows which.
            self.disk = TftpDiskRead::Wanted(MissingFileRange {
                file: Arc::clone(file),
                offset,
                length: rest.min(AHEAD_BYTES.max(wanted)),
            });
            return Err(ReadError::NotYet);
        }
        Ok(())
    }
}

/// Reads as much as is in memory.
fn cached(file: &File, offset: u64, out: &mut [u8]) -> Result<usize, ReadError> {
    match read_cached(file, offset, out) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other.map_err(|_| ReadError::Failed),
    }
}

impl FileSource for TftpContent {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        if let TftpContentSource::Bytes(bytes) = &self.source {
            return FileSource::read(&mut bytes.as_slice(), offset, out);
        }
        if let Some(held) = self.read_ahead(offset, out.len()) {
            out.copy_from_slice(held);
            return Ok(());
        }
        match self.disk {
            TftpDiskRead::Idle | TftpDiskRead::Wanted(_) => self.read_file(offset, out),
            TftpDiskRead::Fetching => Err(ReadError::NotYet),
            TftpDiskRead::Broken => Err(ReadError::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;

    fn content(bytes: &[u8]) -> [TftpContent; 2] {
        let scratch = TestbedDirectory::new();
        let path = scratch.file("x", bytes);
        let opened = |content| OpenedFile {
            size: bytes.len() as u64,
            content,
        };
        [
            TftpContent::new(opened(files::OpenedFileContent::File(Arc::new(
                File::open(path).unwrap(),
            )))),
            TftpContent::new(opened(files::OpenedFileContent::Bytes(bytes.to_vec()))),
        ]
    }

    #[test]
    fn the_same_bytes_come_whatever_the_order() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n / 7) as u8).collect();
        for mut content in content(&bytes) {
            for (offset, length) in [
                (0, 512),
                (512, 512),
                (65_000, 2000),
                (0, 200_000),
                (299_000, 1000),
                (100, 1),
                (300_000, 0),
            ] {
                let mut out = vec![0; length];
                let read = content.read(offset, &mut out);
                assert_eq!(read, Ok(()), "{offset} {length}");
                assert!(out == bytes[offset as usize..][..length]);
                assert!(content.missing().is_none());
            }
        }
    }

    #[test]
    fn a_file_that_shrank_is_found_out_by_fetching() {
        let scratch = TestbedDirectory::new();
        let path = scratch.file("x", &[1; 1000]);
        let opened = OpenedFile {
            size: 1000,
            content: files::OpenedFileContent::File(Arc::new(File::open(&path).unwrap())),
        };
        let mut content = TftpContent::new(opened);
        std::fs::write(&path, [2; 600]).unwrap();
        let mut out = [0; 500];
        assert_eq!(content.read(0, &mut out), Ok(()));
        assert_eq!(content.read(500, &mut out), Err(ReadError::NotYet));
        let missing = content.missing().unwrap();
        assert!(content.missing().is_none(), "reported once");
        assert_eq!(content.read(500, &mut out), Err(ReadError::NotYet));
        content.fetched(missing.fetch());
        assert_eq!(content.read(500, &mut out), Err(ReadError::Failed));
    }

    #[test]
    fn what_was_fetched_is_what_was_missing() {
        let scratch = TestbedDirectory::new();
        let path = scratch.file("x", &[7; 1000]);
        let file = Arc::new(File::open(&path).unwrap());
        let missing = MissingFileRange {
            file,
            offset: 200,
            length: 800,
        };
        let [mut content, _] = content(&[0; 1000]);
        content.fetched(missing.fetch());
        let mut out = [0; 800];
        assert_eq!(content.read(200, &mut out), Ok(()));
        assert_eq!(out, [7; 800]);
    }
}
