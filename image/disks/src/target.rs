//! A disk that is written or erased, and how its errors are named.

use std::io;

use trivet_board_linux::BlockFile;

/// A disk. Offsets and lengths are multiples of its sectors.
pub trait TargetDisk {
    /// Its size.
    fn bytes(&self) -> u64;

    /// Bytes of a logical sector.
    fn sector_bytes(&self) -> u64;

    /// Whether it refuses writes.
    fn is_read_only(&self) -> bool;

    /// Fills the buffer with the bytes at an offset.
    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes bytes at an offset.
    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes a range read as zeros.
    fn write_zeroes(&mut self, at: u64, bytes: u64) -> io::Result<()>;

    /// Tells the disk that a range is not in use.
    fn discard(&mut self, at: u64, bytes: u64) -> io::Result<()>;

    /// Waits until all writes are on the medium.
    fn flush(&mut self) -> io::Result<()>;

    /// Makes the kernel read the partition table again.
    fn reread_partitions(&mut self) -> io::Result<()>;

    /// Whether the disk still exists.
    fn is_present(&self) -> bool;
}

impl TargetDisk for BlockFile {
    fn bytes(&self) -> u64 {
        self.geometry().bytes
    }

    fn sector_bytes(&self) -> u64 {
        u64::from(self.geometry().logical_sector_bytes)
    }

    fn is_read_only(&self) -> bool {
        self.geometry().is_read_only
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        BlockFile::read_at(self, buffer, at)
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        BlockFile::write_at(self, bytes, at)
    }

    fn write_zeroes(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        BlockFile::write_zeroes(self, at, bytes)
    }

    fn discard(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        BlockFile::discard(self, at, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        BlockFile::flush(self)
    }

    fn reread_partitions(&mut self) -> io::Result<()> {
        BlockFile::reread_partitions(self)
    }

    fn is_present(&self) -> bool {
        BlockFile::is_present(self)
    }
}

/// Why work on a disk failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TargetDiskError {
    /// The disk was removed.
    #[error("the disk is gone: {operation} at byte {at} failed")]
    Gone {
        /// What was done.
        operation: &'static str,
        /// Where.
        at: u64,
    },
    /// The disk has an error.
    #[error("the disk failed: {operation} at byte {at}: {message}")]
    Failed {
        /// What was done.
        operation: &'static str,
        /// Where.
        at: u64,
        /// The error of the system.
        message: String,
    },
    /// The disk refuses writes.
    #[error("the disk is read-only")]
    ReadOnly,
    /// What is to be written does not fit.
    #[error("the disk is too small: {needed_bytes} bytes are needed, and it has {disk_bytes}")]
    TooSmall {
        /// Bytes that are needed.
        needed_bytes: u64,
        /// Bytes of the disk.
        disk_bytes: u64,
    },
}

/// Names an error of a disk: a disk that does not exist any more is gone, whatever the system
/// calls the error.
pub(crate) fn disk_error(
    disk: &dyn TargetDisk,
    operation: &'static str,
    at: u64,
    error: &io::Error,
) -> TargetDiskError {
    if disk.is_present() {
        TargetDiskError::Failed {
            operation,
            at,
            message: error.to_string(),
        }
    } else {
        TargetDiskError::Gone { operation, at }
    }
}

/// Reads bytes, with errors named.
pub(crate) fn read(
    disk: &mut dyn TargetDisk,
    buffer: &mut [u8],
    at: u64,
) -> Result<(), TargetDiskError> {
    let outcome = disk.read_at(buffer, at);
    outcome.map_err(|error| disk_error(disk, "read", at, &error))
}

/// Writes bytes, with errors named.
pub(crate) fn write(
    disk: &mut dyn TargetDisk,
    bytes: &[u8],
    at: u64,
) -> Result<(), TargetDiskError> {
    let outcome = disk.write_at(bytes, at);
    outcome.map_err(|error| disk_error(disk, "write", at, &error))
}

/// Zeroes a range, with errors named.
pub(crate) fn write_zeroes(
    disk: &mut dyn TargetDisk,
    at: u64,
    bytes: u64,
) -> Result<(), TargetDiskError> {
    let outcome = disk.write_zeroes(at, bytes);
    outcome.map_err(|error| disk_error(disk, "write of zeros", at, &error))
}

/// Flushes, with errors named.
pub(crate) fn flush(disk: &mut dyn TargetDisk) -> Result<(), TargetDiskError> {
    let outcome = disk.flush();
    outcome.map_err(|error| disk_error(disk, "flush", 0, &error))
}

/// Zeroes as many whole sectors as possible at both ends: partition tables and what makes a disk
/// bootable.
pub(crate) fn clear_ends(disk: &mut dyn TargetDisk, end_bytes: u64) -> Result<(), TargetDiskError> {
    let length = end_bytes.min(disk.bytes());
    write_zeroes(disk, 0, length)?;
    let tail = (disk.bytes() - length) / disk.sector_bytes() * disk.sector_bytes();
    if tail > 0 {
        let bytes = disk.bytes() - tail;
        write_zeroes(disk, tail, bytes)?;
    }
    flush(disk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryDisk;

    #[test]
    fn both_ends_are_cleared_and_the_middle_remains() {
        let mut disk = MemoryDisk::filled(4 << 20, 7);
        clear_ends(&mut disk, 1 << 20).unwrap();
        let zeros: usize = disk.data.iter().map(|&byte| usize::from(byte == 0)).sum();
        assert_eq!(zeros, 2 << 20);
        assert_eq!(
            (disk.data[0], disk.data[2 << 20], disk.data[(4 << 20) - 1]),
            (0, 7, 0)
        );
        let mut small = MemoryDisk::filled(4096, 7);
        clear_ends(&mut small, 1 << 20).unwrap();
        assert!(small.data.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_removed_disk_and_a_failing_one_are_told_apart() {
        let mut disk = MemoryDisk::filled(8192, 0);
        disk.fails_at = Some(4096);
        let error = write(&mut disk, &[0; 512], 4096).unwrap_err();
        assert!(
            matches!(error, TargetDiskError::Failed { at: 4096, .. }),
            "{error}"
        );
        disk.is_removed = true;
        let error = write(&mut disk, &[0; 512], 0).unwrap_err();
        let operation = "write";
        assert_eq!(error, TargetDiskError::Gone { operation, at: 0 });
        assert!(read(&mut disk, &mut [0; 512], 0).is_err());
        assert!(flush(&mut disk).is_err());
    }
}
