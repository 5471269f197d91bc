//! Reads a file without waiting for its disk.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

/// Reads the bytes from `offset` that are in the page cache. The error is `WouldBlock` if the
/// disk must be read first. On file systems without support (those in memory, and some old
/// ones) it is a normal read.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub fn read_cached(file: &File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    let Ok(at) = libc::off_t::try_from(offset) else {
        return Ok(0);
    };
    let piece = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    // SAFETY: the one piece is `out`, which is borrowed for writing.
    let length =
        unsafe { libc::preadv2(file.as_raw_fd(), &raw const piece, 1, at, libc::RWF_NOWAIT) };
    if let Ok(length) = usize::try_from(length) {
        return Ok(length);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => file.read_at(out, offset),
        _ => Err(error),
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
