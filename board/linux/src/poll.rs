//! Waits for many sockets at once in one thread (epoll), which other threads can wake.
//!
//! For listeners with so many small datagrams that a task per socket would cost more than the
//! datagrams.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Most ready sockets of one call. Ours; further ones are reported by the next call.
const READY_MAX: usize = 256;

/// The events to wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Readable.
    Read,
    /// Readable or writable.
    ReadAndWrite,
}

impl Interest {
    fn bits(self) -> u32 {
        let bits = match self {
            Self::Read => libc::EPOLLIN,
            Self::ReadAndWrite => libc::EPOLLIN | libc::EPOLLOUT,
        };
        bits.cast_unsigned()
    }
}

/// A set of sockets, each with a key chosen by its owner.
#[derive(Debug)]
pub struct Epoll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// An empty set.
    #[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes a flag and touches no memory of ours.
        let epoll = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            // SAFETY: the call has just made it, and it has no other owner.
            epoll: unsafe { OwnedFd::from_raw_fd(epoll) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; READY_MAX],
        })
    }

    /// Adds a socket. It leaves the set when it is closed.
    pub fn add(&self, socket: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, key, interest)
    }

    /// Changes the events of a socket in the set.
    pub fn change(&self, socket: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, key, interest)
    }

    #[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
    fn control(
        &self,
        what: libc::c_int,
        socket: impl AsFd,
        key: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest.bits(),
            u64: key,
        };
        let (epoll, socket) = (self.epoll.as_raw_fd(), socket.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open, and the event outlives the call.
        checked(unsafe { libc::epoll_ctl(epoll, what, socket, &raw mut event) }).map(drop)
    }

    /// Waits until some sockets are ready or the timeout has passed, and puts their keys into
    /// `ready`, which is empty after a timeout.
    #[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
    pub fn wait(&mut self, wait: Option<Duration>, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        let wait_ms = wait.map_or(-1, |wait| {
            // Rounded up, so that a deadline has passed afterwards.
            let ms = wait.as_micros().div_ceil(1000);
            libc::c_int::try_from(ms).unwrap_or(libc::c_int::MAX)
        });
        let (epoll, room) = (self.epoll.as_raw_fd(), self.events.len());
        let room = libc::c_int::try_from(room).unwrap_or(libc::c_int::MAX);
        // SAFETY: `events` has space for the given number of events.
        let count =
            checked(unsafe { libc::epoll_wait(epoll, self.events.as_mut_ptr(), room, wait_ms) });
        let count = match count {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        let count = usize::try_from(count).unwrap_or(0);
        ready.extend(self.events[..count].iter().map(|event| event.u64));
        Ok(())
    }
}

/// Wakes a waiting thread from another thread.
#[derive(Clone, Debug)]
pub struct PollWaker(Arc<File>);

impl PollWaker {
    /// Wakes the thread that waits for this set, with this key.
    #[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
    pub fn new(poll: &Epoll, key: u64) -> io::Result<Self> {
        // SAFETY: takes two numbers and touches no memory of ours.
        let event = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the call has just made it, and it has no other owner.
        let event = unsafe { File::from_raw_fd(event) };
        poll.add(&event, key, Interest::Read)?;
        Ok(Self(Arc::new(event)))
    }

    /// Wakes the thread. Several calls before it runs count as one.
    pub fn wake(&self) {
        // It fails only if the counter is full, and then the thread is woken anyway.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }

    /// Resets the waker after a wake.
    pub fn clear(&self) {
        let _ = (&*self.0).read(&mut [0; 8]);
    }
}

pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn reports_a_readable_socket_until_it_is_read() {
        let mut poll = Epoll::new().unwrap();
        let sockets: Vec<_> = (0..3)
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        for (key, socket) in (7..).zip(&sockets) {
            poll.add(socket, key, Interest::Read).unwrap();
        }
        let mut ready = vec![1];
        poll.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
        let to = sockets[1].local_addr().unwrap();
        sockets[0].send_to(b"x", to).unwrap();
        for _ in 0..2 {
            poll.wait(None, &mut ready).unwrap();
            assert_eq!(ready, [8]);
        }
        sockets[1].recv(&mut [0; 1]).unwrap();
        poll.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn a_writable_socket_is_reported_if_requested() {
        let mut poll = Epoll::new().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        poll.add(&socket, 1, Interest::ReadAndWrite).unwrap();
        let mut ready = Vec::new();
        poll.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [1]);
        poll.change(&socket, 1, Interest::Read).unwrap();
        poll.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn a_wake_from_another_thread_ends_the_wait() {
        let mut poll = Epoll::new().unwrap();
        let waker = PollWaker::new(&poll, 5).unwrap();
        let other = waker.clone();
        let thread = std::thread::spawn(move || {
            other.wake();
            other.wake();
        });
        let mut ready = Vec::new();
        poll.wait(None, &mut ready).unwrap();
        thread.join().unwrap();
        assert_eq!(ready, [5]);
        waker.clear();
        poll.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty(), "two wakes were one");
    }
}
