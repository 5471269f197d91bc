//! Closes a connection whose peer stops reading.
//!
//! Without this a client that never reads its response would hold a connection, a file
//! and memory without limit. Receiving is bounded elsewhere: head and body have
//! timeouts of their own, and between requests only that of the head applies.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream that fails when it could not write for this long.
pub(crate) struct StallTimeoutStream<S> {
    stream: S,
    stall_timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> StallTimeoutStream<S> {
    pub(crate) fn new(stream: S, timeout: Duration) -> Self {
        Self {
            stream,
            stall_timeout: timeout,
            stalled: None,
        }
    }

    /// Returns the result, and starts or stops the stall timer accordingly.
    fn track_stall<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let timeout = self.stall_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.track_stall(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.track_stall(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.track_stall(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.track_stall(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_reader_that_stops_ends_the_connection() {
        let (here, _there) = tokio::io::duplex(16);
        let mut here = StallTimeoutStream::new(here, Duration::from_millis(20));
        let error = here.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_slow_reader_keeps_its_connection() {
        let (here, mut there) = tokio::io::duplex(16);
        let mut here = StallTimeoutStream::new(here, Duration::from_mins(10));
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            let mut byte = [0];
            while there.read(&mut byte).await.unwrap() > 0 {
                all.push(byte[0]);
                tokio::task::yield_now().await;
            }
            all.len()
        });
        here.write_all(&[7; 64]).await.unwrap();
        drop(here);
        assert_eq!(reading.await.unwrap(), 64);
    }
}
