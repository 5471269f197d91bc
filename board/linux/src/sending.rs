//! Sends files to sockets without a copy through user memory.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::fs::sendfile;
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::net::{SendFlags, send};

/// Sends bytes of a file from `at`, at most `count`; returns how many the socket accepted. Zero
/// means the end of the file.
pub fn send_file(socket: impl AsFd, file: impl AsFd, at: u64, count: usize) -> io::Result<usize> {
    // The kernel takes offsets as signed numbers.
    i64::try_from(at).map_err(io::Error::other)?;
    Ok(sendfile(socket, file, Some(&mut { at }), count)?)
}

/// Sends bytes that more will follow, so that no TCP segment is sent for them alone; returns
/// how many the socket accepted.
pub fn send_more(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(send(socket, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)?)
}

/// How many bytes the peer of a TCP connection has not acknowledged, sent or not; the FIN
/// counts as one. After a reset the number stays as it was.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ, writes one int to a variable that outlives
    // the call.
    let done = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) };
    match done {
        0 => u64::try_from(bytes).map_err(io::Error::other),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the byte at `at` can be read without waiting for a disk. False on file systems
/// without support.
pub fn in_memory(file: impl AsFd, at: u64) -> bool {
    let mut byte = [0_u8];
    let mut pieces = [IoSliceMut::new(&mut byte)];
    i64::try_from(at).is_ok() && preadv2(file, &mut pieces, at, ReadWriteFlags::NOWAIT).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU64, Ordering};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (here, listener.accept().unwrap().0)
    }

    /// A file that is already unlinked.
    fn file(bytes: &[u8]) -> File {
        // Equal bytes may have the same address, so a counter makes the names unique.
        static FILES: AtomicU64 = AtomicU64::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("trivet-sending-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_head_and_a_part_of_a_file_arrive_in_order() {
        let ((here, mut there), file) = (pair(), file(b"0123456789"));
        assert_eq!(send_more(&here, b"head ").unwrap(), 5);
        assert_eq!(send_file(&here, &file, 3, 4).unwrap(), 4);
        assert_eq!(send_file(&here, &file, 8, 100).unwrap(), 2);
        drop(here);
        let mut all = String::new();
        there.read_to_string(&mut all).unwrap();
        assert_eq!(all, "head 345689");
    }

    #[test]
    fn a_file_has_an_end_and_no_byte_before_its_beginning() {
        let ((here, _there), file) = (pair(), file(b"0123456789"));
        assert_eq!(send_file(&here, &file, 10, 4).unwrap(), 0);
        assert_eq!(send_file(&here, &file, 1 << 40, 4).unwrap(), 0);
        assert!(send_file(&here, &file, u64::MAX, 4).is_err());
        assert!(!in_memory(&file, u64::MAX));
    }

    #[test]
    fn what_was_just_written_is_in_memory() {
        let file = file(b"0123456789");
        assert!(in_memory(&file, 9));
    }

    #[test]
    fn unread_bytes_stay_unacknowledged() {
        let (here, there) = pair();
        assert_eq!(unacknowledged(&here).unwrap(), 0);
        here.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(more) = (&here).write(&[0; 4096]) {
            sent += more as u64;
        }
        let left = unacknowledged(&here).unwrap();
        assert!(left > 0 && left < sent, "{left} of {sent}");
        // Unread bytes are dropped with a reset.
        drop(there);
        here.set_nonblocking(false).unwrap();
        assert!((&here).read(&mut [0; 1]).is_err());
        assert!(unacknowledged(&here).unwrap() > 0);
    }

    /// Such a write ends a process by SIGPIPE unless that is disabled.
    #[test]
    fn a_write_to_a_closed_socket_is_an_error_and_no_signal() {
        let ((here, _there), file) = (pair(), file(b"0123456789"));
        here.shutdown(Shutdown::Write).unwrap();
        let error = send_more(&here, b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(send_file(&here, &file, 0, 4).is_err());
    }
}
