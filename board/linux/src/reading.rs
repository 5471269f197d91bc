//! Reads a file without waiting for its disk.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt as _;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Reads the bytes from `offset` that are in the page cache. The error is `WouldBlock` if the
/// disk must be read first. On file systems without support (those in memory, and some old
/// ones) it is a normal read.
pub fn read_cached(file: &File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    // The kernel takes offsets as signed numbers; no file is that long.
    if i64::try_from(offset).is_err() {
        return Ok(0);
    }
    let mut pieces = [IoSliceMut::new(out)];
    match preadv2(file, &mut pieces, offset, ReadWriteFlags::NOWAIT) {
        Ok(length) => Ok(length),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.read_at(out, offset),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn reads_what_is_there_and_nothing_beyond_the_end() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("trivet-reading-{}", std::process::id()));
        let mut file = File::create_new(&path).unwrap();
        file.write_all(b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut out = [0; 4];
        // Just written, so it is in the page cache.
        assert_eq!(read_cached(&file, 3, &mut out).unwrap(), 4);
        assert_eq!(&out, b"3456");
        assert_eq!(read_cached(&file, 8, &mut out).unwrap(), 2);
        assert_eq!(read_cached(&file, 10, &mut out).unwrap(), 0);
        assert_eq!(read_cached(&file, u64::MAX, &mut out).unwrap(), 0);
    }
}
