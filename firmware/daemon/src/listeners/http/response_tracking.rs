//! Keeps a connection marked as being served until its whole response is written.
//!
//! hyper drops the body of a response when it has read the last bytes, which may still
//! be in its own buffer then. Only a flush after that shows that they are written to
//! the socket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::{Frame, SizeHint};
use hyper::header::CONTENT_TYPE;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::HttpResponseBody;
use crate::listeners::accept::RequestProgress;

/// The response, marked as being sent for as long as its body exists. An event stream
/// has no end, and its reader reconnects: it may be closed in favour of another
/// connection.
pub(super) fn tracked(
    answer: Response<HttpResponseBody>,
    progress: &RequestProgress,
) -> Response<HttpResponseBody> {
    let kind = answer.headers().get(CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        progress.serving(false);
        return answer;
    }
    progress.serving(true);
    answer.map(|body| {
        let tracked = TrackedBody {
            body,
            progress: progress.clone(),
        };
        tracked.boxed()
    })
}

/// A body that reports its end to the connection.
struct TrackedBody {
    body: HttpResponseBody,
    progress: RequestProgress,
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.progress.body_ended();
    }
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that reports to the connection when everything is written.
pub(super) struct TrackedStream<S> {
    stream: S,
    progress: RequestProgress,
}

impl<S> TrackedStream<S> {
    pub(super) fn new(stream: S, progress: RequestProgress) -> Self {
        Self { stream, progress }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.progress.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
