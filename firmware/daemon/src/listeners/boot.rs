//! Serves boot files and images over HTTP.
//!
//! The crate `trivet-bootfiles` decides the response; this module has the connection
//! and the bytes. A file is sent by sendfile(2) without a copy in user space, which
//! hyper does not support; over TLS it passes through one buffer. Each transfer is
//! reported to the rack, with the bytes that the client acknowledged.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::tls_identity::ServerTls;
use trivet_board_linux::read_cached;
use trivet_bootfiles::{
    self as httpboot, BootHttpMethod, BootHttpRequest, BootHttpResponse, BootRequestBody,
    RequestParseError,
};
use trivet_model::secret::without_url_credentials;
use trivet_rack::{FileGrant, FileServerProtocol, RackInput};

use super::accept::{ClientTimeouts, ConnectionLimit, RequestProgress, accept};
use super::http::{DRAIN_BYTES_MAX, DRAIN_WAIT};
use crate::cache::{ImageCache, ImageReader};
use crate::clock::DaemonClock;
use crate::engine::{Engine, EngineBusy};
use crate::files::{self, OpenedFileContent};

mod content;
mod grant;
mod patched;
mod socket;
mod stream;
mod tls_records;
mod tls_stream;
mod transfer;

use content::BootContent;
use grant::{GRANT_DURATION, GrantedBootFile};
use stream::BootStream;
use tls_stream::BootTlsStream;
use transfer::BootTransfer;

/// How long after the last byte we first check whether it was acknowledged, and the
/// longest delay until the next check. The client's next request causes a check at
/// once.
const ACK_POLL_FIRST: Duration = Duration::from_millis(1);
const ACK_POLL_MAX: Duration = Duration::from_millis(100);

/// Files up to this size are copied behind the head of their response: sendfile needs
/// three more system calls, which cost more than the copy. At 64 KiB the copy costs
/// twice as much.
const SMALL_BYTES_MAX: u64 = 16 * 1024;

/// Serves boot files on these listeners until aborted.
pub(crate) fn serve(
    tasks: &mut JoinSet<()>,
    (listeners, tls): (Vec<TcpListener>, Option<&ServerTls>),
    (places, waits): (&ConnectionLimit, ClientTimeouts),
    (engine, cache): (&Engine, &ImageCache),
    clock: DaemonClock,
) {
    let (engine, cache, tls) = (engine.clone(), cache.clone(), tls.cloned());
    let limits = (places, waits);
    accept(
        tasks,
        listeners,
        limits,
        move |stream, peer, waits, progress| {
            let (engine, cache) = (engine.clone(), cache.clone());
            let tls = tls.as_ref().map(ServerTls::current);
            async move {
                // TLS itself has sent the alert for a failed handshake.
                let Some(wire) = open_stream(stream, tls.as_ref(), waits).await else {
                    return;
                };
                let connection = BootConnection {
                    stream: wire,
                    received: Vec::new(),
                    client_ended: false,
                    // One machine has one address, whether it connects to an IPv4 or an
                    // IPv6 socket.
                    peer: peer.ip().to_canonical(),
                    waits,
                    progress,
                    request_timeout: Box::pin(sleep(waits.head)),
                    engine,
                    cache,
                    clock,
                    granted: None,
                    parts: None,
                };
                connection.run().await;
            }
        },
    );
}

async fn open_stream(
    stream: TcpStream,
    tls: Option<&TlsAcceptor>,
    waits: ClientTimeouts,
) -> Option<BootStream> {
    let Some(tls) = tls else {
        return Some(BootStream::plain(stream, waits.stall));
    };
    let handshake = BootTlsStream::accept(stream, waits.stall, tls);
    let secure = timeout(waits.handshake, handshake).await.ok()?.ok()?;
    Some(BootStream::Tls(Box::new(secure)))
}

/// Why an image cannot be read: a sentence.
enum BootImageError {
    /// A later request may succeed.
    Temporary(String),
    /// Its source has wrong bytes; a repeated request fails too.
    Permanent(String),
    /// It is not for this client.
    Forbidden(&'static str),
}

impl BootImageError {
    fn temporary(why: String) -> Self {
        Self::Temporary(without_credentials(why))
    }

    fn permanent(why: String) -> Self {
        Self::Permanent(without_credentials(why))
    }
}

/// Does not reveal the credentials of sources to nodes.
fn without_credentials(why: String) -> String {
    without_url_credentials(&why).unwrap_or(why)
}

/// The connection of one client.
struct BootConnection {
    stream: BootStream,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
    /// The client has closed its sending side; it may still read.
    client_ended: bool,
    peer: IpAddr,
    waits: ClientTimeouts,
    progress: RequestProgress,
    /// The timeout of the next request. One timer for all requests: a new one for each
    /// would wake the runtime's thread each time.
    request_timeout: Pin<Box<Sleep>>,
    engine: Engine,
    cache: ImageCache,
    clock: DaemonClock,
    /// The content of the last request, if it was for a range of a file.
    granted: Option<GrantedBootFile>,
    /// Ranges of one file that were sent and are not reported yet.
    parts: Option<BootTransfer>,
}

impl BootConnection {
    async fn run(mut self) {
        // A disconnect is not an error of the box; the bytes that the client received
        // are reported.
        let outcome = loop {
            match self.exchange().await {
                Ok(true) => {}
                outcome => break outcome,
            }
        };
        if outcome.is_err() {
            // The connection is broken, so there is no acknowledgement to wait for.
            if let Some(parts) = self.parts.take() {
                let _ = self.end_transfer(parts, false).await;
            }
        } else if self.end_parts().await.is_ok() {
            self.stream.end().await;
        }
    }

    /// Handles one request; true if another may follow.
    async fn exchange(&mut self) -> io::Result<bool> {
        let request = match self.request().await? {
            None => return Ok(false),
            Some(Ok(request)) => request,
            Some(Err(nonsense)) => {
                let answer = httpboot::parse_error_response(nonsense, self.now());
                self.stream.write(&answer).await?;
                self.drain().await;
                return Ok(false);
            }
        };
        if let BootRequestBody::Dropped(bytes) = request.body {
            self.drop_body(bytes).await?;
        }
        self.progress.serving(true);
        let earlier = self.granted.take();
        let mut granted = match earlier.filter(|granted| granted.covers(&request)) {
            Some(granted) => Some(granted),
            None => match self.find(&request).await {
                Ok(found) => found.map(|found| GrantedBootFile::now(request.path.clone(), found)),
                Err(refused) => return self.refuse(&request, refused).await,
            },
        };
        let thing = match &mut granted {
            Some(granted) => Some(granted.content().thing(&request.path)?),
            None => None,
        };
        if thing.is_none() && request.method != BootHttpMethod::Other {
            self.note_refused(&request, httpboot::NOT_FOUND, httpboot::NO_FILE.to_owned());
        }
        let answer = httpboot::respond(&request, thing.as_ref(), self.now());
        let keep_alive = answer.keep_alive;
        match (granted, answer.bytes) {
            (Some(granted), Some((from, to))) => self.transfer(granted, answer, from..to).await?,
            _ => self.stream.write(&answer.head).await?,
        }
        if request.body == BootRequestBody::Unread {
            self.drain().await;
        }
        Ok(keep_alive)
    }

    /// Responds to a request for content that cannot be read; true if another may
    /// follow.
    async fn refuse(
        &mut self,
        request: &BootHttpRequest,
        refused: BootImageError,
    ) -> io::Result<bool> {
        let (status, why, answer) = match refused {
            BootImageError::Temporary(why) => {
                let answer = httpboot::unavailable(request, &why, self.now());
                (httpboot::UNAVAILABLE, why, answer)
            }
            BootImageError::Forbidden(why) => {
                let answer = httpboot::forbidden(request, why, self.now());
                (httpboot::FORBIDDEN, why.to_owned(), answer)
            }
            BootImageError::Permanent(why) => {
                let answer = httpboot::wrong_image(request, &why, self.now());
                (httpboot::NOT_FOUND, why, answer)
            }
        };
        self.note_refused(request, status, why);
        self.stream.write(&answer.head).await?;
        Ok(answer.keep_alive)
    }

    /// The next request; none at the end of the connection or after the timeout.
    async fn request(&mut self) -> io::Result<Option<Result<BootHttpRequest, RequestParseError>>> {
        self.progress.serving(false);
        let now = Instant::now();
        let (deadline, parts_end) = (now + self.waits.head, now + GRANT_DURATION);
        loop {
            match httpboot::parse(&self.received) {
                Err(nonsense) => return Ok(Some(Err(nonsense))),
                Ok(Some((request, length))) => {
                    self.received.drain(..length);
                    return Ok(Some(Ok(request)));
                }
                Ok(None) if self.client_ended => return Ok(None),
                Ok(None) => {}
            }
            let until = match &self.parts {
                Some(_) => deadline.min(parts_end),
                None => deadline,
            };
            self.request_timeout.as_mut().reset(until);
            let in_time = tokio::select! {
                biased;
                outcome = self.stream.read(&mut self.received) => {
                    self.client_ended = outcome? == 0;
                    true
                }
                () = self.request_timeout.as_mut() => false,
            };
            match in_time {
                true => {}
                false if self.parts.is_some() => self.end_parts().await?,
                false => return Ok(None),
            }
        }
    }

    /// Receives more bytes.
    async fn receive(&mut self) -> io::Result<()> {
        if self.stream.read(&mut self.received).await? == 0 {
            self.client_ended = true;
        }
        Ok(())
    }

    async fn drop_body(&mut self, bytes: u64) -> io::Result<()> {
        let deadline = Instant::now() + self.waits.head;
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        loop {
            let here = left.min(self.received.len());
            self.received.drain(..here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            if self.client_ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            timeout_at(deadline, self.receive()).await??;
        }
    }

    /// The requested content, if it exists; an error says why it cannot be read.
    async fn find(&self, request: &BootHttpRequest) -> Result<Option<BootContent>, BootImageError> {
        if request.method == BootHttpMethod::Other {
            return Ok(None);
        }
        let path = request.path.clone();
        match self
            .engine
            .file(
                FileServerProtocol::Http,
                (self.peer, self.stream.certificate()),
                path,
            )
            .await
        {
            Err(EngineBusy) => Err(BootImageError::Temporary(
                "the box is overloaded".to_owned(),
            )),
            Ok(None) => Ok(None),
            Ok(Some(FileGrant::Image(grant))) => {
                let found = BootContent::image(&self.cache, &grant).await;
                found.map(Some)
            }
            Ok(Some(FileGrant::Unavailable(why))) => Err(BootImageError::temporary(why)),
            Ok(Some(FileGrant::Forbidden(why))) => Err(BootImageError::Forbidden(why)),
            Ok(Some(FileGrant::ChunkList(key))) => {
                let list = self.cache.chunk_list(key).await.map(FileGrant::Bytes);
                Ok(match list {
                    Some(list) => files::open(list).await.map(BootContent::File),
                    None => None,
                })
            }
            Ok(Some(grant)) => Ok(files::open(grant).await.map(BootContent::File)),
        }
    }

    /// Reports the refusal to the rack. If the queue is full, only this note is lost.
    fn note_refused(&self, request: &BootHttpRequest, answer: &'static str, why: String) {
        self.engine.try_send(RackInput::FileRefused {
            peer: self.peer,
            protocol: FileServerProtocol::Http,
            path: request.path.clone(),
            answer,
            why,
        });
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.clock.now().wall.0)
    }

    /// Sends a response with bytes of a file. A whole file is reported at once; ranges
    /// are reported when no further range of the same file follows.
    async fn transfer(
        &mut self,
        mut granted: GrantedBootFile,
        answer: BootHttpResponse,
        bytes: Range<u64>,
    ) -> io::Result<()> {
        let goes_on = |parts: &BootTransfer| answer.is_partial && parts.path() == granted.path();
        if !self.parts.as_ref().is_some_and(goes_on) {
            self.end_parts().await?;
        }
        let mut transfer = self.parts.take().unwrap_or_else(|| {
            let path = granted.path().to_owned();
            BootTransfer::new(self.engine.clone(), self.peer, path)
        });
        let body_from = self.stream.taken() + answer.head.len() as u64;
        transfer.add(body_from, bytes.end - bytes.start);
        let (is_part, keep_alive) = (answer.is_partial, answer.keep_alive);
        let outcome = match granted.content() {
            BootContent::File(opened) => match &opened.content {
                OpenedFileContent::Bytes(all) => self.send_bytes(answer.head, all, bytes).await,
                OpenedFileContent::File(file) => {
                    self.send_file(answer.head, file, bytes, &mut transfer)
                        .await
                }
                OpenedFileContent::Patched(file, patches) => {
                    self.stream.write_more(&answer.head).await?;
                    self.send_patched((file, patches), bytes, &mut transfer)
                        .await
                }
            },
            BootContent::Image(image) => {
                self.send_image(answer.head, &mut image.reader, bytes, &mut transfer)
                    .await
            }
        };
        if outcome.is_ok() && is_part && keep_alive {
            self.parts = Some(transfer);
            self.granted = Some(granted);
            return Ok(());
        }
        if outcome.is_ok() && !keep_alive {
            self.stream.end().await;
        }
        self.end_transfer(transfer, outcome.is_ok()).await
    }

    /// Reports the ranges that were sent, because no further one follows now.
    async fn end_parts(&mut self) -> io::Result<()> {
        self.granted = None;
        match self.parts.take() {
            Some(transfer) => self.end_transfer(transfer, true).await,
            None => Ok(()),
        }
    }

    /// Reports the bytes that the client received.
    async fn end_transfer(&mut self, transfer: BootTransfer, all_left: bool) -> io::Result<()> {
        if all_left {
            self.wait_until_acknowledged().await;
        }
        let sent = transfer.sent(self.stream.acknowledged());
        let all_taken = sent == transfer.requested();
        transfer.end(sent).await;
        if !all_left || !all_taken {
            // Reset, so that half a file does not look complete and the kernel stops
            // sending.
            self.stream.reset();
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Sends head and body of a small response together.
    async fn send_bytes(
        &mut self,
        mut head: Vec<u8>,
        all: &[u8],
        bytes: Range<u64>,
    ) -> io::Result<()> {
        let place = |at: u64| usize::try_from(at).map_err(io::Error::other);
        let part = all.get(place(bytes.start)?..place(bytes.end)?);
        head.extend_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        self.stream.write(&head).await
    }

    async fn send_file(
        &mut self,
        mut head: Vec<u8>,
        file: &Arc<File>,
        bytes: Range<u64>,
        transfer: &mut BootTransfer,
    ) -> io::Result<()> {
        if append_small(&mut head, file, &bytes) {
            return self.stream.write(&head).await;
        }
        self.stream.write_more(&head).await?;
        self.send_part(file, bytes.clone(), bytes.start, transfer)
            .await
    }

    /// Sends these bytes of a response that began with byte `first`.
    async fn send_part(
        &mut self,
        file: &Arc<File>,
        bytes: Range<u64>,
        first: u64,
        transfer: &mut BootTransfer,
    ) -> io::Result<()> {
        let mut at = bytes.start;
        while at < bytes.end {
            match self.stream.send_file(file, at, bytes.end - at).await? {
                // The file shrank: a short body must not look complete.
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                sent => at += sent,
            }
            if transfer.progress(at - first) {
                // A client that is as fast as we are must not block the others.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends an image that may still be being fetched. If its digest is wrong, the
    /// connection is reset before the last chunk, so that no client takes the image as
    /// complete.
    async fn send_image(
        &mut self,
        head: Vec<u8>,
        reader: &mut ImageReader,
        bytes: Range<u64>,
        transfer: &mut BootTransfer,
    ) -> io::Result<()> {
        if reader.readable_now() >= bytes.end {
            let file = reader.file()?;
            return self.send_file(head, &file, bytes, transfer).await;
        }
        self.stream.write(&head).await?;
        let mut at = bytes.start;
        while at < bytes.end {
            let readable = reader.readable(at).await.map_err(io::Error::other)?;
            let until = readable.min(bytes.end);
            let file = reader.file()?;
            self.send_part(&file, at..until, bytes.start, transfer)
                .await?;
            at = until;
        }
        Ok(())
    }

    /// Waits until the client has acknowledged everything, as long as it makes
    /// progress: bytes that are in our buffers when it disconnects did not arrive.
    async fn wait_until_acknowledged(&mut self) {
        let mut left = self.stream.unacknowledged();
        let mut since = Instant::now();
        let mut look = ACK_POLL_FIRST;
        while left > 0 && !self.stream.is_broken() {
            let listens = !self.client_ended && self.received.len() < httpboot::HEAD_BYTES_MAX;
            if listens {
                match timeout(look, self.receive()).await {
                    Ok(Err(_)) => return,
                    Ok(Ok(())) => {}
                    Err(_) => look = ACK_POLL_MAX.min(look * 2),
                }
            } else {
                sleep(look).await;
                look = ACK_POLL_MAX.min(look * 2);
            }
            let now = self.stream.unacknowledged();
            if now < left {
                since = Instant::now();
            } else if since.elapsed() >= self.waits.stall {
                return;
            }
            left = now;
        }
    }

    /// Reads what a client still sends. It would not read the response if the box
    /// closed the connection meanwhile.
    async fn drain(&mut self) {
        self.stream.end().await;
        let _ = timeout(DRAIN_WAIT, async {
            let mut left = DRAIN_BYTES_MAX;
            while !self.client_ended {
                left = left.checked_sub(self.received.len())?;
                self.received.clear();
                self.receive().await.ok()?;
            }
            Some(())
        })
        .await;
    }
}

/// Appends bytes of a file to the head of a response, if they are few and in memory.
fn append_small(head: &mut Vec<u8>, file: &File, bytes: &Range<u64>) -> bool {
    let length = bytes.end - bytes.start;
    if length > SMALL_BYTES_MAX {
        return false;
    }
    let from = head.len();
    head.resize(from + length as usize, 0);
    let read = read_cached(file, bytes.start, &mut head[from..]);
    let all = read.is_ok_and(|read| read as u64 == length);
    if !all {
        head.truncate(from);
    }
    all
}

#[cfg(test)]
mod tests;
