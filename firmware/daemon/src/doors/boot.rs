//! Boot files and images over HTTP.
//!
//! What to answer says `trivet-httpboot`; here are the connection and the bytes. A
//! file leaves by sendfile(2) and never passes through our memory, for which hyper
//! has no way; over TLS it passes through one buffer. Each transfer is told to the
//! rack, with what the client really took.

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

use crate::identity::ServerTls;
use trivet_board_linux::read_cached;
use trivet_httpboot::{self as httpboot, Answer, Body, Method, Nonsense, Request};
use trivet_model::secret::without_url_credentials;
use trivet_rack::{Door, Grant, Input};

use super::accept::{Places, RequestProgress, Waits, accept};
use super::http::{DRAIN_BYTES_MAX, DRAIN_WAIT};
use crate::cache::{Cache, Reader};
use crate::clock::Clock;
use crate::engine::{Busy, Engine};
use crate::files::{self, Content};

mod found;
mod granted;
mod records;
mod secure;
mod socket;
mod transfer;
mod wire;

use found::Found;
use granted::{GRANT_LASTS, Granted};
use secure::Secure;
use transfer::Transfer;
use wire::Wire;

/// How long after the last byte we first look whether it was taken, and how long at
/// most until we look again. The client's next request makes us look at once.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LATER: Duration = Duration::from_millis(100);

/// Up to so many bytes of a file are copied behind the head of their answer: to send a file
/// costs three system calls more, which is more than the copy. Of 64 KiB the copy costs twice
/// as much.
const SMALL_BYTES_MAX: u64 = 16 * 1024;

/// Serves boot files on these listeners for ever.
pub(crate) fn serve(
    doors: &mut JoinSet<()>,
    (listeners, tls): (Vec<TcpListener>, Option<&ServerTls>),
    (places, waits): (&Places, Waits),
    (engine, cache): (&Engine, &Cache),
    clock: Clock,
) {
    let (engine, cache, tls) = (engine.clone(), cache.clone(), tls.cloned());
    let seats = (places, waits);
    accept(
        doors,
        listeners,
        seats,
        move |stream, peer, waits, progress| {
            let (engine, cache) = (engine.clone(), cache.clone());
            let tls = tls.as_ref().map(ServerTls::current);
            async move {
                // Who does not get through the handshake has been told by TLS itself.
                let Some(wire) = wire(stream, tls.as_ref(), waits).await else {
                    return;
                };
                let connection = Connection {
                    wire,
                    heard: Vec::new(),
                    client_ended: false,
                    // The same machine, whether it came to an IPv4 or an IPv6 socket.
                    peer: peer.ip().to_canonical(),
                    waits,
                    progress,
                    alarm: Box::pin(sleep(waits.head)),
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

async fn wire(stream: TcpStream, tls: Option<&TlsAcceptor>, waits: Waits) -> Option<Wire> {
    let Some(tls) = tls else {
        return Some(Wire::plain(stream, waits.stall));
    };
    let handshake = Secure::accept(stream, waits.stall, tls);
    let secure = timeout(waits.handshake, handshake).await.ok()?.ok()?;
    Some(Wire::Secure(Box::new(secure)))
}

/// Why an image cannot be read: a sentence.
enum Unreadable {
    /// A later request may succeed.
    Now(String),
    /// Its source has other bytes than it should; a repeated request fails too.
    Wrong(String),
}

/// One client.
struct Connection {
    wire: Wire,
    /// What has come and is not yet understood.
    heard: Vec<u8>,
    /// The client says nothing more; it may still read.
    client_ended: bool,
    peer: IpAddr,
    waits: Waits,
    progress: RequestProgress,
    /// When the next request must be here. One timer for all of them: a new one for each
    /// would wake the runtime's thread each time.
    alarm: Pin<Box<Sleep>>,
    engine: Engine,
    cache: Cache,
    clock: Clock,
    /// What the last request was granted, if it was for a part of a file.
    granted: Option<Granted>,
    /// Parts of one file that have been sent and are not told yet.
    parts: Option<Transfer>,
}

impl Connection {
    async fn run(mut self) {
        // A client that breaks off is its own affair; what it took is told.
        let went = loop {
            match self.exchange().await {
                Ok(true) => {}
                went => break went,
            }
        };
        if went.is_err() {
            // The connection is broken: nobody takes what is left, so nothing is waited for.
            if let Some(parts) = self.parts.take() {
                let _ = self.end_transfer(parts, false).await;
            }
        } else if self.end_parts().await.is_ok() {
            self.wire.end().await;
        }
    }

    /// One request and its answer; whether another may follow.
    async fn exchange(&mut self) -> io::Result<bool> {
        let request = match self.request().await? {
            None => return Ok(false),
            Some(Ok(request)) => request,
            Some(Err(nonsense)) => {
                let answer = httpboot::refusal(nonsense, self.now());
                self.wire.write(&answer).await?;
                self.drain().await;
                return Ok(false);
            }
        };
        if let Body::Dropped(bytes) = request.body {
            self.drop_body(bytes).await?;
        }
        self.progress.serving(true);
        let earlier = self.granted.take();
        let mut granted = match earlier.filter(|granted| granted.serves(&request)) {
            Some(granted) => Some(granted),
            None => match self.find(&request).await {
                Ok(found) => found.map(|found| Granted::now(request.path.clone(), found)),
                Err(refused) => return self.refuse(&request, refused).await,
            },
        };
        let thing = match &mut granted {
            Some(granted) => Some(granted.found().thing(&request.path)?),
            None => None,
        };
        if thing.is_none() && request.method != Method::Other {
            self.refused(&request, httpboot::NOT_FOUND, httpboot::NO_FILE.to_owned());
        }
        let answer = httpboot::answer(&request, thing.as_ref(), self.now());
        let keep_alive = answer.keep_alive;
        match (granted, answer.bytes) {
            (Some(granted), Some((from, to))) => self.transfer(granted, answer, from..to).await?,
            _ => self.wire.write(&answer.head).await?,
        }
        if request.body == Body::Unread {
            self.drain().await;
        }
        Ok(keep_alive)
    }

    /// Answers a request for what cannot be read; whether another may follow.
    async fn refuse(&mut self, request: &Request, refused: Unreadable) -> io::Result<bool> {
        let (status, why, answer) = match refused {
            Unreadable::Now(why) => {
                let answer = httpboot::unavailable(request, &why, self.now());
                (httpboot::UNAVAILABLE, why, answer)
            }
            Unreadable::Wrong(why) => {
                let answer = httpboot::wrong_image(request, &why, self.now());
                (httpboot::NOT_FOUND, why, answer)
            }
        };
        self.refused(request, status, why);
        self.wire.write(&answer.head).await?;
        Ok(answer.keep_alive)
    }

    /// The next request; none where there is no more, or not in time.
    async fn request(&mut self) -> io::Result<Option<Result<Request, Nonsense>>> {
        self.progress.serving(false);
        let now = Instant::now();
        let (deadline, parts_end) = (now + self.waits.head, now + GRANT_LASTS);
        loop {
            match httpboot::parse(&self.heard) {
                Err(nonsense) => return Ok(Some(Err(nonsense))),
                Ok(Some((request, length))) => {
                    self.heard.drain(..length);
                    return Ok(Some(Ok(request)));
                }
                Ok(None) if self.client_ended => return Ok(None),
                Ok(None) => {}
            }
            let until = match &self.parts {
                Some(_) => deadline.min(parts_end),
                None => deadline,
            };
            self.alarm.as_mut().reset(until);
            let in_time = tokio::select! {
                biased;
                went = self.wire.read(&mut self.heard) => {
                    self.client_ended = went? == 0;
                    true
                }
                () = self.alarm.as_mut() => false,
            };
            match in_time {
                true => {}
                false if self.parts.is_some() => self.end_parts().await?,
                false => return Ok(None),
            }
        }
    }

    /// Takes in what comes next.
    async fn hear(&mut self) -> io::Result<()> {
        if self.wire.read(&mut self.heard).await? == 0 {
            self.client_ended = true;
        }
        Ok(())
    }

    async fn drop_body(&mut self, bytes: u64) -> io::Result<()> {
        let deadline = Instant::now() + self.waits.head;
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        loop {
            let here = left.min(self.heard.len());
            self.heard.drain(..here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            if self.client_ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            timeout_at(deadline, self.hear()).await??;
        }
    }

    /// What was asked for, if there is such a thing; an error says why it cannot be read.
    async fn find(&self, request: &Request) -> Result<Option<Found>, Unreadable> {
        if request.method == Method::Other {
            return Ok(None);
        }
        let path = request.path.clone();
        match self.engine.file(Door::Http, self.peer, path).await {
            Err(Busy) => Err(Unreadable::Now("the box has too much to do".to_owned())),
            Ok(None) => Ok(None),
            Ok(Some(Grant::Image(wanted))) => {
                let found = Found::image(&self.cache, &wanted).await;
                let refused = |why: String| {
                    // Nodes do not learn the credentials of sources.
                    let why = without_url_credentials(&why).unwrap_or(why);
                    if self.cache.is_wrong(&wanted) {
                        Unreadable::Wrong(why)
                    } else {
                        Unreadable::Now(why)
                    }
                };
                found.map(Some).map_err(refused)
            }
            Ok(Some(Grant::Unavailable(why))) => {
                let why = without_url_credentials(&why).unwrap_or(why);
                Err(Unreadable::Now(why))
            }
            Ok(Some(Grant::ChunkList(wanted))) => {
                let list = self.cache.list(&wanted).await.map(Grant::Bytes);
                Ok(match list {
                    Some(list) => files::open(list).await.map(Found::File),
                    None => None,
                })
            }
            Ok(Some(grant)) => Ok(files::open(grant).await.map(Found::File)),
        }
    }

    /// Tells the rack what this client was refused. A full queue loses the note only.
    fn refused(&self, request: &Request, answer: &'static str, why: String) {
        self.engine.tell(Input::FileRefused {
            peer: self.peer,
            door: Door::Http,
            path: request.path.clone(),
            answer,
            why,
        });
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.clock.now().wall.0)
    }

    /// Sends an answer with bytes of a file. How it went is told at once, or of a part
    /// when no other part of the same file follows.
    async fn transfer(
        &mut self,
        mut granted: Granted,
        answer: Answer,
        bytes: Range<u64>,
    ) -> io::Result<()> {
        let goes_on = |parts: &Transfer| answer.is_part && parts.path() == granted.path();
        if !self.parts.as_ref().is_some_and(goes_on) {
            self.end_parts().await?;
        }
        let mut transfer = self.parts.take().unwrap_or_else(|| {
            let path = granted.path().to_owned();
            Transfer::new(self.engine.clone(), self.peer, path)
        });
        let body_from = self.wire.taken() + answer.head.len() as u64;
        transfer.add(body_from, bytes.end - bytes.start);
        let (is_part, keep_alive) = (answer.is_part, answer.keep_alive);
        let went = match granted.found() {
            Found::File(opened) => match &opened.content {
                Content::Bytes(all) => self.send_bytes(answer.head, all, bytes).await,
                Content::File(file) => {
                    self.send_file(answer.head, file, bytes, &mut transfer)
                        .await
                }
            },
            Found::Image(image) => {
                self.send_image(answer.head, &mut image.reader, bytes, &mut transfer)
                    .await
            }
        };
        if went.is_ok() && is_part && keep_alive {
            self.parts = Some(transfer);
            self.granted = Some(granted);
            return Ok(());
        }
        if went.is_ok() && !keep_alive {
            self.wire.end().await;
        }
        self.end_transfer(transfer, went.is_ok()).await
    }

    /// No further part of the file follows for now.
    async fn end_parts(&mut self) -> io::Result<()> {
        self.granted = None;
        match self.parts.take() {
            Some(transfer) => self.end_transfer(transfer, true).await,
            None => Ok(()),
        }
    }

    /// Tells what the client took.
    async fn end_transfer(&mut self, transfer: Transfer, all_left: bool) -> io::Result<()> {
        if all_left {
            self.settle().await;
        }
        let sent = transfer.sent(self.wire.acknowledged());
        let all_taken = sent == transfer.asked();
        transfer.end(sent).await;
        if !all_left || !all_taken {
            // Neither does half a file look whole, nor does the kernel go on with it.
            self.wire.reset();
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Head and body of a small answer leave together.
    async fn send_bytes(
        &mut self,
        mut head: Vec<u8>,
        all: &[u8],
        bytes: Range<u64>,
    ) -> io::Result<()> {
        let place = |at: u64| usize::try_from(at).map_err(io::Error::other);
        let part = all.get(place(bytes.start)?..place(bytes.end)?);
        head.extend_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        self.wire.write(&head).await
    }

    async fn send_file(
        &mut self,
        mut head: Vec<u8>,
        file: &Arc<File>,
        bytes: Range<u64>,
        transfer: &mut Transfer,
    ) -> io::Result<()> {
        if append_small(&mut head, file, &bytes) {
            return self.wire.write(&head).await;
        }
        self.wire.write_more(&head).await?;
        self.send_part(file, bytes.clone(), bytes.start, transfer)
            .await
    }

    /// Sends these bytes of an answer that began with byte `first`.
    async fn send_part(
        &mut self,
        file: &Arc<File>,
        bytes: Range<u64>,
        first: u64,
        transfer: &mut Transfer,
    ) -> io::Result<()> {
        let mut at = bytes.start;
        while at < bytes.end {
            match self.wire.send_file(file, at, bytes.end - at).await? {
                // The file shrank: a short body must not look whole.
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                sent => at += sent,
            }
            if transfer.progress(at - first) {
                // A client that is as fast as we are must not keep others waiting.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Follows an image that may still be on its way. Where it turns out to be wrong,
    /// the answer ends short, which no client takes for an end.
    async fn send_image(
        &mut self,
        head: Vec<u8>,
        reader: &mut Reader,
        bytes: Range<u64>,
        transfer: &mut Transfer,
    ) -> io::Result<()> {
        if reader.readable_now() >= bytes.end {
            let file = Arc::clone(reader.file());
            return self.send_file(head, &file, bytes, transfer).await;
        }
        self.wire.write(&head).await?;
        let mut at = bytes.start;
        while at < bytes.end {
            let readable = reader.readable(at).await.map_err(io::Error::other)?;
            let until = readable.min(bytes.end);
            let file = Arc::clone(reader.file());
            self.send_part(&file, at..until, bytes.start, transfer)
                .await?;
            at = until;
        }
        Ok(())
    }

    /// Waits until the client's side has taken everything, as long as it goes on
    /// taking: what is in our own buffers when it goes away never arrived.
    async fn settle(&mut self) {
        let mut left = self.wire.unacknowledged();
        let mut since = Instant::now();
        let mut look = LOOK_FIRST;
        while left > 0 && !self.wire.is_broken() {
            let listens = !self.client_ended && self.heard.len() < httpboot::HEAD_BYTES_MAX;
            if listens {
                match timeout(look, self.hear()).await {
                    Ok(Err(_)) => return,
                    Ok(Ok(())) => {}
                    Err(_) => look = LOOK_LATER.min(look * 2),
                }
            } else {
                sleep(look).await;
                look = LOOK_LATER.min(look * 2);
            }
            let now = self.wire.unacknowledged();
            if now < left {
                since = Instant::now();
            } else if since.elapsed() >= self.waits.stall {
                return;
            }
            left = now;
        }
    }

    /// Reads what a client still sends. It would not read its answer if the box
    /// closed meanwhile.
    async fn drain(&mut self) {
        self.wire.end().await;
        let _ = timeout(DRAIN_WAIT, async {
            let mut left = DRAIN_BYTES_MAX;
            while !self.client_ended {
                left = left.checked_sub(self.heard.len())?;
                self.heard.clear();
                self.hear().await.ok()?;
            }
            Some(())
        })
        .await;
    }
}

/// Appends bytes of a file to the head of an answer, if they are few and in memory.
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
