//! Sends bytes to one client: plain or over TLS.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use trivet_board_linux as board;
use trivet_model::NodeCertificate;

use super::socket::{BootSocket, RECEIVE_BYTES};
use super::tls_stream::BootTlsStream;

/// The most bytes of a file per system call.
const CHUNK_BYTES: u64 = 1024 * 1024;

pub(super) enum BootStream {
    Plain(BootPlainStream),
    Tls(Box<BootTlsStream>),
}

impl BootStream {
    pub(super) fn plain(stream: TcpStream, stall: Duration) -> Self {
        Self::Plain(BootPlainStream(BootSocket::new(stream, stall)))
    }

    fn socket(&self) -> &BootSocket {
        match self {
            Self::Plain(plain) => &plain.0,
            Self::Tls(secure) => secure.socket(),
        }
    }

    /// The node that the client's verified certificate names.
    pub(super) fn certificate(&self) -> Option<NodeCertificate> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(secure) => secure.certificate(),
        }
    }

    /// Bytes that the kernel accepted for this client, without the overhead of TLS.
    pub(super) fn taken(&self) -> u64 {
        match self {
            Self::Plain(plain) => plain.0.taken,
            Self::Tls(secure) => secure.taken(),
        }
    }

    /// How many of these the client has acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        match self {
            Self::Plain(plain) => plain.0.taken - plain.0.unacknowledged(),
            Self::Tls(secure) => secure.acknowledged(),
        }
    }

    /// Bytes on the wire that the client has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.socket().unacknowledged()
    }

    /// Whether the connection is broken.
    pub(super) fn is_broken(&self) -> bool {
        self.socket().is_broken()
    }

    /// Appends received bytes; none at the client's end. May be cancelled at any time
    /// without losing a byte.
    pub(super) async fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.read(into).await,
            Self::Tls(secure) => secure.read(into).await,
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.write(bytes, TcpStream::try_write).await,
            Self::Tls(secure) => secure.write(bytes).await,
        }
    }

    /// Writes bytes that [`Self::send_file`] continues.
    pub(super) async fn write_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(plain) => {
                let write = |stream: &TcpStream, rest: &[u8]| {
                    stream.try_io(Interest::WRITABLE, || board::send_more(stream, rest))
                };
                plain.write(bytes, write).await
            }
            Self::Tls(secure) => {
                secure.set_pending_head(bytes);
                Ok(())
            }
        }
    }

    /// Sends some bytes of a file, at most `count`; 0 at its end. If they must be read
    /// from a disk, a blocking thread waits for it instead of this one.
    pub(super) async fn send_file(
        &mut self,
        file: &Arc<File>,
        at: u64,
        count: u64,
    ) -> io::Result<u64> {
        match self {
            Self::Plain(plain) => plain.send_file(file, at, count).await,
            Self::Tls(secure) => secure.send_file(file, at, count).await,
        }
    }

    /// Closes the sending side.
    pub(super) async fn end(&mut self) {
        match self {
            Self::Plain(plain) => plain.0.end(),
            Self::Tls(secure) => secure.end().await,
        }
    }

    /// Resets the connection, so that the client notices the failure: over TLS no
    /// close_notify is sent either.
    pub(super) fn reset(&self) {
        self.socket().reset();
    }
}

/// Whether these bytes of a file can be read without waiting for a disk, judged by the
/// first and the last one.
fn in_memory(file: &File, at: u64, count: u64) -> bool {
    let last = at + count.saturating_sub(1);
    board::in_memory(file, at) && board::in_memory(file, last)
}

/// Plain TCP: a file is never copied to user space.
pub(super) struct BootPlainStream(BootSocket);

impl BootPlainStream {
    async fn read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        let stream = &self.0.stream;
        loop {
            stream.readable().await?;
            into.reserve(RECEIVE_BYTES);
            match stream.try_read_buf(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        }
    }

    async fn write(
        &mut self,
        mut bytes: &[u8],
        write: impl Fn(&TcpStream, &[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let socket = &mut self.0;
        while !bytes.is_empty() {
            match write(&socket.stream, bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    socket.taken += length as u64;
                    bytes = &bytes[length..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn send_file(&mut self, file: &Arc<File>, at: u64, count: u64) -> io::Result<u64> {
        let socket = &mut self.0;
        let count = count.min(CHUNK_BYTES);
        loop {
            let (stream, source) = (Arc::clone(&socket.stream), Arc::clone(file));
            let send = move || {
                let call = || board::send_file(&*stream, &*source, at, count as usize);
                stream.try_io(Interest::WRITABLE, call)
            };
            let outcome = if in_memory(file, at, count) {
                send()
            } else {
                tokio::task::spawn_blocking(send)
                    .await
                    .map_err(io::Error::other)?
            };
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.writable().await?;
                }
                Err(error) => return Err(error),
                Ok(sent) => {
                    socket.taken += sent as u64;
                    return Ok(sent as u64);
                }
            }
        }
    }
}
