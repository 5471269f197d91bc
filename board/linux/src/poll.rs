//! Waits for many sockets at once in one thread (epoll), which other threads can wake.
//!
//! For listeners with so many small datagrams that a task per socket would cost more than the
//! datagrams.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

/// Most ready sockets of one call. Ours; further ones are reported by the next call.
const READY_MAX: usize = 256;

/// Longest wait of one call: the kernel takes milliseconds as a signed 32-bit number. The caller
/// waits again.
const WAIT_MS_MAX: u64 = 0x7fff_ffff;

/// The events to wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Readable.
    Read,
    /// Readable or writable.
    ReadAndWrite,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::ReadAndWrite => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// A set of sockets, each with a key chosen by its owner.
#[derive(Debug)]
pub struct Epoll {
    epoll: OwnedFd,
}

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Adds a socket. It leaves the set when it is closed.
    pub fn add(&self, socket: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(key);
        Ok(epoll::add(&self.epoll, socket, data, interest.flags())?)
    }

    /// Changes the events of a socket in the set.
    pub fn change(&self, socket: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(key);
        Ok(epoll::modify(&self.epoll, socket, data, interest.flags())?)
    }

    /// Waits until some sockets are ready or the timeout has passed, and puts their keys into
    /// `ready`, which is empty after a timeout.
    pub fn wait(&self, wait: Option<Duration>, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        // Rounded up to milliseconds, so that a deadline has passed afterwards.
        let wait = wait.map(|wait| {
            let ms = u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
            Timespec::try_from(Duration::from_millis(ms.min(WAIT_MS_MAX)))
        });
        let wait = wait.transpose().map_err(io::Error::other)?;
        // On the stack: an event can hold a pointer, so a set with a buffer of them could not move
        // to the thread that waits.
        let mut space = [const { MaybeUninit::<Event>::uninit() }; READY_MAX];
        match epoll::wait(&self.epoll, &mut space, wait.as_ref()) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Wakes a waiting thread from another thread.
#[derive(Clone, Debug)]
pub struct PollWaker(Arc<File>);

impl PollWaker {
    /// Wakes the thread that waits for this set, with this key.
    pub fn new(poll: &Epoll, key: u64) -> io::Result<Self> {
        let event = File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
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
        let poll = Epoll::new().unwrap();
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
        let poll = Epoll::new().unwrap();
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
        let poll = Epoll::new().unwrap();
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
