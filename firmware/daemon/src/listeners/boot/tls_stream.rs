//! TLS to one client. Data is encrypted in pieces of a few records, each written with
//! one system call; a file passes through one buffer.

use std::fs::File;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use rustls::{CipherSuite, ProtocolVersion, ServerConnection};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use trivet_board_linux::read_cached;
use trivet_model::NodeCertificate;

use super::socket::{BootSocket, RECEIVE_BYTES};
use super::tls_records::{RECORD_BYTES, TlsRecordTracker};
use crate::listeners::http::node_certificate;

/// Bytes that are encrypted and written at a time: whole records, few enough to stay in
/// the core's cache between the two steps.
const PIECE_BYTES: usize = 8 * RECORD_BYTES as usize;

pub(super) struct BootTlsStream {
    socket: BootSocket,
    tls: ServerConnection,
    records: TlsRecordTracker,
    certificate: Option<NodeCertificate>,
    /// The buffer for bytes of files.
    piece: Vec<u8>,
    /// The head of a response, which is sent in the first record of its body.
    pending_head: Vec<u8>,
}

impl BootTlsStream {
    /// Performs the TLS handshake.
    pub(super) async fn accept(
        stream: TcpStream,
        stall: Duration,
        acceptor: &TlsAcceptor,
    ) -> io::Result<Self> {
        let (stream, mut tls) = acceptor.accept(stream).await?.into_inner();
        // The size of a piece is the bound.
        tls.set_buffer_limit(None);
        Ok(Self {
            socket: BootSocket::new(stream, stall),
            records: TlsRecordTracker::new(added_bytes(&tls)),
            certificate: node_certificate(&tls),
            tls,
            piece: Vec::new(),
            pending_head: Vec::new(),
        })
    }

    pub(super) fn socket(&self) -> &BootSocket {
        &self.socket
    }

    pub(super) fn certificate(&self) -> Option<NodeCertificate> {
        self.certificate
    }

    pub(super) fn taken(&self) -> u64 {
        self.records.written()
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.records.acknowledged(self.wire_acknowledged())
    }

    fn wire_acknowledged(&self) -> u64 {
        self.socket.taken - self.socket.unacknowledged()
    }

    pub(super) async fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            if let Some(length) = self.take_decrypted(into)? {
                return Ok(length);
            }
            self.socket.stream.readable().await?;
            match self.tls.read_tls(&mut NonBlockingTcp(&self.socket.stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                outcome => outcome?,
            };
            if let Err(error) = self.tls.process_new_packets() {
                // Send the TLS alert, if the socket has space for it.
                let _ = self.tls.write_tls(&mut NonBlockingTcp(&self.socket.stream));
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    /// Appends decrypted bytes; none if no more have arrived yet.
    fn take_decrypted(&mut self, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let before = into.len();
        into.resize(before + RECEIVE_BYTES, 0);
        let outcome = self.tls.reader().read(&mut into[before..]);
        into.truncate(before + outcome.as_ref().map_or(0, |length| *length));
        match outcome {
            Ok(length) => Ok(Some(length)),
            // A request declares its own length, so a missing close_notify is a normal
            // end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(0)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_BYTES) {
            self.write_piece(piece).await?;
        }
        Ok(())
    }

    async fn write_piece(&mut self, piece: &[u8]) -> io::Result<()> {
        // Messages of TLS itself are not counted among the records.
        self.flush().await?;
        self.records.discard_acknowledged(self.wire_acknowledged());
        self.records.add(self.socket.taken, piece.len() as u64);
        self.tls.writer().write_all(piece)?;
        self.flush().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut NonBlockingTcp(&self.socket.stream)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => self.socket.taken += length as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Stores bytes that [`Self::send_file`] continues.
    pub(super) fn set_pending_head(&mut self, bytes: &[u8]) {
        self.pending_head.extend_from_slice(bytes);
    }

    pub(super) async fn send_file(
        &mut self,
        file: &Arc<File>,
        at: u64,
        count: u64,
    ) -> io::Result<u64> {
        let mut piece = std::mem::take(&mut self.piece);
        piece.resize(PIECE_BYTES, 0);
        let held = self.pending_head.len().min(PIECE_BYTES);
        piece[..held].copy_from_slice(&self.pending_head[..held]);
        self.pending_head.drain(..held);
        let end =
            PIECE_BYTES.min(held.saturating_add(usize::try_from(count).unwrap_or(usize::MAX)));
        let cached = read_cached(file, at, &mut piece[held..end]);
        let got = if cached.is_ok_and(|got| got == end - held) {
            end - held
        } else {
            let file = Arc::clone(file);
            let read = move || {
                let got = file.read_at(&mut piece[held..end], at);
                (piece, got)
            };
            let (back, got) = tokio::task::spawn_blocking(read)
                .await
                .map_err(io::Error::other)?;
            piece = back;
            got?
        };
        let outcome = self.write_piece(&piece[..held + got]).await;
        self.piece = piece;
        outcome.map(|()| got as u64)
    }

    /// Sends close_notify, so that the client knows the data is complete.
    pub(super) async fn end(&mut self) {
        if self.socket.has_ended() {
            return;
        }
        self.tls.send_close_notify();
        if self.flush().await.is_ok() {
            self.socket.end();
        }
    }
}

/// Overhead of each record: five bytes of header and sixteen of tag. RFC 8446, section
/// 5.2 adds the inner content type, and RFC 5288, section 3 a nonce for AES in TLS 1.2.
fn added_bytes(tls: &ServerConnection) -> u64 {
    let suite = tls.negotiated_cipher_suite().map(|suite| suite.suite());
    match (tls.protocol_version(), suite) {
        (Some(ProtocolVersion::TLSv1_3), _) => 22,
        (
            _,
            Some(
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            ),
        ) => 21,
        _ => 29,
    }
}

/// Non-blocking I/O on the socket, for rustls.
struct NonBlockingTcp<'a>(&'a TcpStream);

impl io::Read for NonBlockingTcp<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl io::Write for NonBlockingTcp<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
