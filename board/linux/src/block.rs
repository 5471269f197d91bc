//! Block devices, and files in their place.
//!
//! A device is opened with `O_DIRECT`, so an image does not pass through the page cache, and
//! with `O_EXCL`, so a device that is mounted or part of an array is refused by the kernel. A
//! file takes the place of a device in tests and in the demo.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

/// Alignment of buffers for `O_DIRECT`. Ours: no device has larger logical sectors.
pub const ALIGNMENT_BYTES: usize = 4096;

/// The longest transfer that goes through the bounce buffer at once.
const BOUNCE_BYTES_MAX: usize = 1 << 20;

// Request numbers of `linux/fs.h`.
const BLKRRPART: u64 = 0x125f;
const BLKROGET: u64 = 0x125e;
const BLKFLSBUF: u64 = 0x1261;
const BLKSSZGET: u64 = 0x1268;
const BLKGETSIZE64: u64 = 0x8008_1272;
const BLKDISCARD: u64 = 0x1277;
const BLKPBSZGET: u64 = 0x127b;
const BLKSECDISCARD: u64 = 0x127d;
const BLKZEROOUT: u64 = 0x127f;

/// Bytes whose start is aligned for `O_DIRECT`.
#[derive(Debug)]
pub struct AlignedBuffer {
    storage: Box<[u8]>,
    start: usize,
    bytes: usize,
}

impl AlignedBuffer {
    /// A buffer of zeros.
    pub fn new(bytes: usize) -> Self {
        let storage = vec![0; bytes + ALIGNMENT_BYTES].into_boxed_slice();
        let start = storage.as_ptr().align_offset(ALIGNMENT_BYTES);
        Self {
            start: start.min(ALIGNMENT_BYTES),
            storage,
            bytes,
        }
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.bytes]
    }

    /// Its bytes, to change.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.bytes]
    }
}

/// The size and the sectors of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockGeometry {
    /// Its size.
    pub bytes: u64,
    /// The smallest unit that can be written.
    pub logical_sector_bytes: u32,
    /// The unit that the device writes without reading first.
    pub physical_sector_bytes: u32,
    /// The device refuses writes.
    pub is_read_only: bool,
    /// A device, not a file in its place.
    pub is_device: bool,
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BlockAccess {
    /// For reading; it may be in use.
    Read,
    /// For reading and writing; the kernel refuses a device that is in use.
    Write,
}

/// An open block device, or a file in its place.
#[derive(Debug)]
pub struct BlockFile {
    file: File,
    geometry: BlockGeometry,
}

impl BlockFile {
    /// Opens a device or an existing file.
    pub fn open(path: &Path, access: BlockAccess) -> io::Result<Self> {
        let is_device = std::fs::metadata(path)?.file_type().is_block_device();
        let file = open(path, access, is_device)?;
        let geometry = geometry(&file, is_device)?;
        Ok(Self { file, geometry })
    }

    /// Its size and sectors.
    pub fn geometry(&self) -> BlockGeometry {
        self.geometry
    }

    /// Fills the buffer with the bytes at an offset.
    pub fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if is_aligned(buffer.as_ptr()) {
            return self.file.read_exact_at(buffer, at);
        }
        let mut bounce = AlignedBuffer::new(buffer.len().min(BOUNCE_BYTES_MAX));
        let mut at = at;
        for part in buffer.chunks_mut(BOUNCE_BYTES_MAX) {
            let aligned = &mut bounce.as_mut_slice()[..part.len()];
            self.file.read_exact_at(aligned, at)?;
            part.copy_from_slice(aligned);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes bytes at an offset. Offset and length are multiples of the logical sector.
    pub fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if is_aligned(bytes.as_ptr()) {
            return self.file.write_all_at(bytes, at);
        }
        let mut bounce = AlignedBuffer::new(bytes.len().min(BOUNCE_BYTES_MAX));
        let mut at = at;
        for part in bytes.chunks(BOUNCE_BYTES_MAX) {
            let aligned = &mut bounce.as_mut_slice()[..part.len()];
            aligned.copy_from_slice(part);
            self.file.write_all_at(aligned, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes a range read as zeros: by the device where it can, otherwise the kernel writes
    /// zeros.
    pub fn write_zeroes(&self, at: u64, bytes: u64) -> io::Result<()> {
        if self.geometry.is_device {
            return self.range(BLKZEROOUT, at, bytes);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, at, bytes)?)
    }

    /// Tells the device that a range is not in use. What is read afterwards is undefined.
    pub fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        if self.geometry.is_device {
            return self.range(BLKDISCARD, at, bytes);
        }
        self.write_zeroes(at, bytes)
    }

    /// The same, and the device erases all copies.
    pub fn secure_discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        if self.geometry.is_device {
            return self.range(BLKSECDISCARD, at, bytes);
        }
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Waits until all that was written is on the medium, and drops what the kernel has cached.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_all()?;
        if self.geometry.is_device {
            // Needs CAP_SYS_ADMIN; without it only reads of others may be old.
            let _ = control(&self.file, BLKFLSBUF, 0);
        }
        Ok(())
    }

    /// Makes the kernel read the partition table again. A file has none.
    pub fn reread_partitions(&self) -> io::Result<()> {
        if self.geometry.is_device {
            return control(&self.file, BLKRRPART, 0);
        }
        Ok(())
    }

    /// Whether the device still answers with its size: that of a removed device is zero or an
    /// error.
    pub fn is_present(&self) -> bool {
        geometry(&self.file, self.geometry.is_device).is_ok_and(|now| now.bytes > 0)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    #[expect(unsafe_code, reason = "requests to a device are not in std")]
    fn range(&self, request: u64, at: u64, bytes: u64) -> io::Result<()> {
        let range = [at, bytes];
        // SAFETY: the request reads two numbers of 64 bits.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), request as _, &raw const range) };
        outcome(done)
    }
}

fn is_aligned(at: *const u8) -> bool {
    at.align_offset(ALIGNMENT_BYTES) == 0
}

fn open(path: &Path, access: BlockAccess, is_device: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(access == BlockAccess::Write);
    let exclusive = if is_device && access == BlockAccess::Write {
        libc::O_EXCL
    } else {
        0
    };
    let direct = options
        .clone()
        .custom_flags(libc::O_DIRECT | exclusive)
        .open(path);
    match direct {
        // File systems in memory do not support it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            options.custom_flags(exclusive).open(path)
        }
        opened => opened,
    }
}

fn geometry(file: &File, is_device: bool) -> io::Result<BlockGeometry> {
    if !is_device {
        let facts = file.metadata()?;
        return Ok(BlockGeometry {
            bytes: facts.len(),
            logical_sector_bytes: 512,
            physical_sector_bytes: 512,
            is_read_only: facts.permissions().readonly(),
            is_device,
        });
    }
    let sector = |request| number(file, request).map(|bytes| bytes as u32);
    Ok(BlockGeometry {
        bytes: size(file)?,
        logical_sector_bytes: sector(BLKSSZGET)?,
        physical_sector_bytes: sector(BLKPBSZGET)?,
        is_read_only: number(file, BLKROGET)? != 0,
        is_device,
    })
}

#[expect(unsafe_code, reason = "requests to a device are not in std")]
fn number(file: &File, request: u64) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    // SAFETY: these requests write one int.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut value) };
    outcome(done).map(|()| value)
}

#[expect(unsafe_code, reason = "requests to a device are not in std")]
fn size(file: &File) -> io::Result<u64> {
    let mut value: u64 = 0;
    // SAFETY: the request writes one number of 64 bits.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64 as _, &raw mut value) };
    outcome(done).map(|()| value)
}

#[expect(unsafe_code, reason = "requests to a device are not in std")]
fn control(file: &File, request: u64, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these requests take a number only.
    outcome(unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) })
}

pub(crate) fn outcome(done: libc::c_int) -> io::Result<()> {
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct TemporaryFile(PathBuf);

    impl TemporaryFile {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let name = format!("trivet-block-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }
    }

    impl Drop for TemporaryFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_buffer_is_aligned_and_has_its_length() {
        for bytes in [0, 1, 512, 4096, 1 << 20] {
            let mut buffer = AlignedBuffer::new(bytes);
            assert_eq!(buffer.as_slice().len(), bytes);
            assert!(is_aligned(buffer.as_slice().as_ptr()));
            buffer.as_mut_slice().fill(7);
            assert!(buffer.as_slice().iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn bytes_are_read_as_they_were_written_whatever_the_buffer() {
        let file = TemporaryFile::new("bytes", &vec![1; 3 << 20]);
        let disk = BlockFile::open(&file.0, BlockAccess::Write).unwrap();
        assert_eq!(disk.geometry().bytes, 3 << 20);
        assert!(!disk.geometry().is_device && !disk.geometry().is_read_only);
        let given: Vec<u8> = (0..(2 << 20) + 1024).map(|at| (at % 251) as u8).collect();
        // One byte after an aligned address is never aligned.
        let mut odd = AlignedBuffer::new(given.len() + 1);
        odd.as_mut_slice()[1..].copy_from_slice(&given);
        disk.write_at(&odd.as_slice()[1..], 512).unwrap();
        disk.flush().unwrap();
        let mut got = AlignedBuffer::new(given.len() + 1);
        disk.read_at(&mut got.as_mut_slice()[1..], 512).unwrap();
        assert_eq!(&got.as_slice()[1..], given);
        let mut whole = AlignedBuffer::new(4096);
        disk.read_at(whole.as_mut_slice(), 0).unwrap();
        assert_eq!(&whole.as_slice()[..512], [1; 512]);
        assert_eq!(&whole.as_slice()[512..], &given[..3584]);
    }

    #[test]
    fn zeroed_and_discarded_ranges_of_a_file_are_holes() {
        let file = TemporaryFile::new("zeroes", &vec![9; 1 << 20]);
        let disk = BlockFile::open(&file.0, BlockAccess::Write).unwrap();
        disk.write_zeroes(4096, 8192).unwrap();
        disk.discard(65536, 4096).unwrap();
        let bytes = std::fs::read(&file.0).unwrap();
        assert_eq!(bytes.len(), 1 << 20);
        let zeros: usize = bytes.iter().map(|&byte| usize::from(byte == 0)).sum();
        assert_eq!(zeros, 12288);
        assert!(bytes[4096..12288].iter().all(|&byte| byte == 0));
        assert!(disk.secure_discard(0, 4096).is_err());
        assert!(disk.is_present());
        disk.reread_partitions().unwrap();
    }

    #[test]
    fn a_missing_device_and_bytes_past_the_end_are_errors() {
        assert!(BlockFile::open(Path::new("/nowhere/sda"), BlockAccess::Read).is_err());
        let file = TemporaryFile::new("short", &[0; 1024]);
        let disk = BlockFile::open(&file.0, BlockAccess::Read).unwrap();
        let mut buffer = AlignedBuffer::new(1024);
        assert!(disk.read_at(buffer.as_mut_slice(), 512).is_err());
        assert!(
            disk.write_at(buffer.as_slice(), 0).is_err(),
            "opened for reading"
        );
    }
}
