//! The socket of one client: what it took, and how long it may take nothing.
//!
//! Plain TCP. A connection over TLS would be another kind of wire with the same
//! calls, whose files pass through memory.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use trivet_board_linux as board;

/// Bytes of a file that leave in one call, at most.
const CHUNK_BYTES: u64 = 1024 * 1024;

/// Room for what comes next.
const HEAR_BYTES: usize = 4096;

pub(super) struct Wire {
    stream: Arc<TcpStream>,
    /// How long the client may take nothing at all.
    stall: Duration,
    taken: u64,
    ended: bool,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, stall: Duration) -> Self {
        Self {
            stream: Arc::new(stream),
            stall,
            taken: 0,
            ended: false,
        }
    }

    /// Bytes that the kernel took for this client.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes of these that the client's side has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        let left = board::unacknowledged(&*self.stream).unwrap_or(self.taken);
        // The end of the connection counts as a byte.
        left.saturating_sub(u64::from(self.ended)).min(self.taken)
    }

    /// The client has gone away.
    pub(super) fn is_broken(&self) -> bool {
        !matches!(self.stream.take_error(), Ok(None))
    }

    /// Appends what comes next; nothing at the client's end.
    pub(super) async fn read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            self.stream.readable().await?;
            into.reserve(HEAR_BYTES);
            match self.stream.try_read_buf(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                went => return went,
            }
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_with(bytes, TcpStream::try_write).await
    }

    /// Writes the beginning of what [`Self::send_file`] goes on with.
    pub(super) async fn write_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_with(bytes, |stream, rest| {
            stream.try_io(Interest::WRITABLE, || board::send_more(stream, rest))
        })
        .await
    }

    async fn write_with(
        &mut self,
        mut bytes: &[u8],
        write: impl Fn(&TcpStream, &[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            match write(&self.stream, bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.taken += length as u64;
                    bytes = &bytes[length..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends some bytes of a file, at most `count`; none at its end. Where they have
    /// to come from a disk first, a thread for that waits for it and not this one.
    pub(super) async fn send_file(
        &mut self,
        file: &Arc<File>,
        at: u64,
        count: u64,
    ) -> io::Result<u64> {
        let count = count.min(CHUNK_BYTES);
        loop {
            let (stream, source) = (Arc::clone(&self.stream), Arc::clone(file));
            let send = move || {
                let call = || board::send_file(&*stream, &*source, at, count as usize);
                stream.try_io(Interest::WRITABLE, call)
            };
            let last = at + count - 1;
            let went = if board::in_memory(&**file, at) && board::in_memory(&**file, last) {
                send()
            } else {
                tokio::task::spawn_blocking(send)
                    .await
                    .map_err(io::Error::other)?
            };
            match went {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
                Ok(sent) => {
                    self.taken += sent as u64;
                    return Ok(sent as u64);
                }
            }
        }
    }

    /// Waits until the client has taken some more. Room in the buffer is told late,
    /// so that a slow client is one whose acknowledgements still come.
    async fn writable(&self) -> io::Result<()> {
        let mut left = self.unacknowledged();
        loop {
            if let Ok(went) = timeout(self.stall, self.stream.writable()).await {
                return went;
            }
            let now = self.unacknowledged();
            if now >= left {
                return Err(io::ErrorKind::TimedOut.into());
            }
            left = now;
        }
    }

    /// Tells the client that nothing more comes.
    pub(super) fn end(&mut self) {
        if !self.ended {
            self.ended = SockRef::from(&*self.stream)
                .shutdown(Shutdown::Write)
                .is_ok();
        }
    }

    /// Ends the connection at once, and so that the client notices.
    pub(super) fn reset(&self) {
        let _ = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO));
    }
}
