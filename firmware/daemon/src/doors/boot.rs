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
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::identity::ServerTls;
use trivet_httpboot::{self as httpboot, Answer, Body, Method, Nonsense, Request};
use trivet_model::secret::without_url_credentials;
use trivet_rack::{Door, Grant, Input};

use super::accept::{Places, Progress, Waits, accept};
use super::http::{DRAIN_BYTES_MAX, DRAIN_WAIT};
use crate::cache::{Cache, Reader};
use crate::clock::Clock;
use crate::engine::{Busy, Engine};
use crate::files::{self, Content};

mod found;
mod records;
mod secure;
mod socket;
mod transfer;
mod wire;

use found::Found;
use secure::Secure;
use transfer::Transfer;
use wire::Wire;

/// How long after the last byte we first look whether it was taken, and how long at
/// most until we look again. The client's next request makes us look at once.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LATER: Duration = Duration::from_millis(100);

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
                    engine,
                    cache,
                    clock,
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
    progress: Progress,
    engine: Engine,
    cache: Cache,
    clock: Clock,
}

impl Connection {
    async fn run(mut self) {
        // A client that breaks off is its own affair; what it took has been told.
        loop {
            match self.exchange().await {
                Ok(true) => {}
                Ok(false) => return self.wire.end().await,
                Err(_) => return,
            }
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
        let found = match self.find(&request).await {
            Ok(found) => found,
            Err(refused) => {
                let (status, why, answer) = match refused {
                    Unreadable::Now(why) => {
                        let answer = httpboot::unavailable(&request, &why, self.now());
                        (httpboot::UNAVAILABLE, why, answer)
                    }
                    Unreadable::Wrong(why) => {
                        let answer = httpboot::wrong_image(&request, &why, self.now());
                        (httpboot::NOT_FOUND, why, answer)
                    }
                };
                self.refused(&request, status, why);
                self.wire.write(&answer.head).await?;
                return Ok(answer.keep_alive);
            }
        };
        let thing = match &found {
            Some(found) => Some(found.thing(&request.path)?),
            None => None,
        };
        if thing.is_none() && request.method != Method::Other {
            self.refused(&request, httpboot::NOT_FOUND, httpboot::NO_FILE.to_owned());
        }
        let answer = httpboot::answer(&request, thing.as_ref(), self.now());
        let keep_alive = answer.keep_alive;
        match (found, answer.bytes) {
            (Some(found), Some((from, to))) => {
                self.transfer(request.path, found, answer, from..to).await?;
            }
            _ => self.wire.write(&answer.head).await?,
        }
        if request.body == Body::Unread {
            self.drain().await;
        }
        Ok(keep_alive)
    }

    /// The next request; none where there is no more, or not in time.
    async fn request(&mut self) -> io::Result<Option<Result<Request, Nonsense>>> {
        self.progress.serving(false);
        let deadline = Instant::now() + self.waits.head;
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
            match timeout_at(deadline, self.hear()).await {
                Ok(went) => went?,
                Err(_) => return Ok(None),
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

    /// Sends an answer with bytes of a file, and tells how it went.
    async fn transfer(
        &mut self,
        path: String,
        found: Found,
        answer: Answer,
        bytes: Range<u64>,
    ) -> io::Result<()> {
        let asked = bytes.end - bytes.start;
        let mut transfer = Transfer::new(self.engine.clone(), self.peer, path, asked);
        let body_from = self.wire.taken() + answer.head.len() as u64;
        let went = match found {
            Found::File(opened) => match opened.content {
                Content::Bytes(all) => self.send_bytes(answer.head, &all, bytes).await,
                Content::File(file) => {
                    let file = Arc::new(file);
                    self.send_file(&answer.head, &file, bytes, &mut transfer)
                        .await
                }
            },
            Found::Image(image) => {
                self.send_image(&answer.head, image.reader, bytes, &mut transfer)
                    .await
            }
        };
        if went.is_ok() {
            if !answer.keep_alive {
                self.wire.end().await;
            }
            self.settle().await;
        }
        let acknowledged = self.wire.acknowledged();
        let sent = acknowledged.saturating_sub(body_from).min(asked);
        transfer.end(sent).await;
        if went.is_err() || sent < asked {
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
        head: &[u8],
        file: &Arc<File>,
        bytes: Range<u64>,
        transfer: &mut Transfer,
    ) -> io::Result<()> {
        if bytes.is_empty() {
            return self.wire.write(head).await;
        }
        self.wire.write_more(head).await?;
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
            if transfer.is_worth_telling(at - first) {
                transfer.progress(at - first);
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
        head: &[u8],
        mut reader: Reader,
        bytes: Range<u64>,
        transfer: &mut Transfer,
    ) -> io::Result<()> {
        self.wire.write(head).await?;
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
                tokio::time::sleep(look).await;
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

#[cfg(test)]
mod tests;
