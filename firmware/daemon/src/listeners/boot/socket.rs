//! The socket of one client: what it took, and how long it may take nothing.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;
use trivet_board_linux as board;

/// Room for what comes next.
pub(super) const RECEIVE_BYTES: usize = 4096;

pub(super) struct BootSocket {
    pub(super) stream: Arc<TcpStream>,
    /// How long the client may take nothing at all.
    stall: Duration,
    /// Bytes that the kernel took for this client.
    pub(super) taken: u64,
    ended: bool,
}

impl BootSocket {
    pub(super) fn new(stream: TcpStream, stall: Duration) -> Self {
        Self {
            stream: Arc::new(stream),
            stall,
            taken: 0,
            ended: false,
        }
    }

    /// Bytes of those taken that the client's side has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        let left = board::unacknowledged(&*self.stream).unwrap_or(self.taken);
        // The end of the connection counts as a byte.
        left.saturating_sub(u64::from(self.ended)).min(self.taken)
    }

    /// The client has gone away.
    pub(super) fn is_broken(&self) -> bool {
        !matches!(self.stream.take_error(), Ok(None))
    }

    /// Waits until the client has taken some more. Room in the buffer is told late,
    /// so that a slow client is one whose acknowledgements still come.
    pub(super) async fn writable(&self) -> io::Result<()> {
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

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Ends the connection at once, and so that the client notices.
    pub(super) fn reset(&self) {
        let _ = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO));
    }
}
