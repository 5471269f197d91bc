//! The socket of one client: the bytes it acknowledged, and its stall timeout.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;
use trivet_board_linux as board;

/// Size of the receive buffer in bytes.
pub(super) const RECEIVE_BYTES: usize = 4096;

pub(super) struct BootSocket {
    pub(super) stream: Arc<TcpStream>,
    /// How long the client may acknowledge nothing.
    stall: Duration,
    /// Bytes that the kernel accepted for this client.
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

    /// Accepted bytes that the client has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        let left = board::unacknowledged(&*self.stream).unwrap_or(self.taken);
        // The end of the connection (FIN) counts as a byte.
        left.saturating_sub(u64::from(self.ended)).min(self.taken)
    }

    /// Whether the connection is broken.
    pub(super) fn is_broken(&self) -> bool {
        !matches!(self.stream.take_error(), Ok(None))
    }

    /// Waits until more can be written. The kernel reports free buffer space late, so a
    /// client counts as slow, not stalled, while its acknowledgements arrive.
    pub(super) async fn writable(&self) -> io::Result<()> {
        let mut left = self.unacknowledged();
        loop {
            if let Ok(outcome) = timeout(self.stall, self.stream.writable()).await {
                return outcome;
            }
            let now = self.unacknowledged();
            if now >= left {
                return Err(io::ErrorKind::TimedOut.into());
            }
            left = now;
        }
    }

    /// Closes the sending side.
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

    /// Resets the connection, so that the client notices the failure.
    pub(super) fn reset(&self) {
        let _ = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO));
    }
}
