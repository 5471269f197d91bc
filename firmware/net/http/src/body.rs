//! The body of a response.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::JoinHandle;

use crate::HttpError;

/// The body of a response. Its connection is closed when it is dropped.
#[derive(Debug)]
pub struct HttpBody {
    incoming: Incoming,
    _connection: ConnectionTask,
}

/// The task that reads and writes a connection; it ends with its owner.
#[derive(Debug)]
pub(crate) struct ConnectionTask(JoinHandle<()>);

impl ConnectionTask {
    pub(crate) fn new(task: JoinHandle<()>) -> Self {
        Self(task)
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HttpBody {
    pub(crate) fn new(incoming: Incoming, connection: ConnectionTask) -> Self {
        Self {
            incoming,
            _connection: connection,
        }
    }

    /// The next bytes; none at the end that the protocol signals.
    pub async fn next(&mut self) -> Option<Result<Bytes, HttpError>> {
        loop {
            match self.incoming.frame().await? {
                Err(error) => return Some(Err(HttpError::Disconnected(error))),
                // A frame without data has trailers, which no caller uses.
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
            }
        }
    }

    /// All bytes, at most `bytes_max`.
    pub async fn collect(mut self, bytes_max: usize) -> Result<Bytes, HttpError> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if piece.len() > bytes_max - whole.len() {
                return Err(HttpError::TooLong { bytes_max });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}
