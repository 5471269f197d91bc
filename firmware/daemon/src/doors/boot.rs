//! Boot files and images over HTTP: whole files and single ranges.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, HeaderValue, IF_RANGE, RANGE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::mpsc;
use trivet_rack::{Door, Input};

use super::http::{self, Answer, Body, Handler};
use crate::engine::Engine;
use crate::files::{self, Opened};

/// Bytes read and sent at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file's progress is told after this many bytes.
const TELL_BYTES: u64 = 4 * 1024 * 1024;

/// The handler for boot files.
pub(crate) fn handler(engine: Engine) -> Handler {
    Arc::new(move |peer, _secure, request| -> Answer {
        let engine = engine.clone();
        Box::pin(async move { answer(&engine, peer.ip(), &request).await })
    })
}

async fn answer<B>(engine: &Engine, peer: IpAddr, request: &Request<B>) -> Response<Body> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return http::text(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are served here",
        );
    }
    let path = request.uri().path().to_owned();
    let grant = engine.file(Door::Http, peer, path.clone()).await;
    let opened = match grant {
        Some(grant) => files::open(grant).await,
        None => None,
    };
    let Some(opened) = opened else {
        return http::text(StatusCode::NOT_FOUND, "there is no such file on this box");
    };
    let size = opened.size;
    // Ranges are defined for GET alone (RFC 9110, section 14.2).
    let asked = match *request.method() {
        Method::GET => range(request.headers(), size),
        _ => Ok(None),
    };
    let range = match asked {
        Ok(range) => range,
        Err(Unsatisfiable) => {
            let mut response = http::text(StatusCode::RANGE_NOT_SATISFIABLE, "beyond the end");
            content_range(response.headers_mut(), format!("bytes */{size}"));
            return response;
        }
    };
    let (from, to) = range.unwrap_or((0, size));
    let body = if request.method() == Method::HEAD {
        http::empty()
    } else {
        stream(
            opened,
            from,
            to,
            Teller {
                engine: engine.clone(),
                peer,
                path,
                size: to - from,
                began: tokio::time::Instant::now(),
            },
        )
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(to - from));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if range.is_some() {
        content_range(headers, format!("bytes {from}-{}/{size}", to - 1));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

fn content_range(headers: &mut HeaderMap, text: String) {
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(CONTENT_RANGE, value);
    }
}

#[derive(Debug, Eq, PartialEq)]
struct Unsatisfiable;

/// The one range a client asks for, as first byte and the byte after the last.
/// A header that is not one byte range is ignored, as RFC 9110 section 14.2 allows.
/// So is one that holds only for a file like the client's: we name no versions of
/// files yet, and half of one must not be joined to half of another.
fn range(headers: &HeaderMap, size: u64) -> Result<Option<(u64, u64)>, Unsatisfiable> {
    if headers.contains_key(IF_RANGE) {
        return Ok(None);
    }
    let text = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let Some((first, last)) = text
        .and_then(|text| text.strip_prefix("bytes="))
        .and_then(|text| text.split_once('-'))
    else {
        return Ok(None);
    };
    let number = |text: &str| {
        let digits = text.trim();
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()).flatten()
    };
    let (from, to) = match (number(first), number(last)) {
        (Some(from), Some(last)) if from <= last => (from, last.saturating_add(1).min(size)),
        (Some(from), None) if last.trim().is_empty() => (from, size),
        (None, Some(suffix)) if first.trim().is_empty() => (size - suffix.min(size), size),
        _ => return Ok(None),
    };
    if from < to {
        Ok(Some((from, to)))
    } else {
        Err(Unsatisfiable)
    }
}

/// Reads ahead of the client, each piece on a thread that is given back after it:
/// however many clients are slow, there are threads left for others.
fn stream(mut opened: Opened, from: u64, to: u64, teller: Teller) -> Body {
    let (sender, pieces) = mpsc::channel::<Piece>(1);
    tokio::spawn(async move {
        let mut at = from;
        while at < to {
            let want = usize::try_from(to - at)
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            let read = tokio::task::spawn_blocking(move || {
                let piece = piece(&mut opened, at, want);
                (opened, piece)
            });
            let Ok((back, piece)) = read.await else {
                return;
            };
            opened = back;
            let failed = piece.is_err();
            if sender.send(piece).await.is_err() || failed {
                return;
            }
            at += want as u64;
        }
    });
    StreamBody::new(Sending {
        pieces,
        teller,
        sent: 0,
        told: 0,
    })
    .boxed()
}

type Piece = Result<Bytes, std::io::Error>;

fn piece(opened: &mut Opened, at: u64, want: usize) -> Piece {
    let mut chunk = vec![0; want];
    if opened.read(at, &mut chunk)? == want {
        Ok(Bytes::from(chunk))
    } else {
        // The file shrank: a short body must not look whole.
        Err(std::io::Error::other("the file changed while it was sent"))
    }
}

struct Teller {
    engine: Engine,
    peer: IpAddr,
    path: String,
    size: u64,
    began: tokio::time::Instant,
}

/// Pieces on their way to one client. Counts what the client's connection took,
/// and tells the end when the connection lets go of it, whole or not.
struct Sending {
    pieces: mpsc::Receiver<Piece>,
    teller: Teller,
    sent: u64,
    told: u64,
}

impl Sending {
    fn tell(&mut self, ended: bool) {
        self.told = self.sent;
        self.teller.engine.tell(Input::FileSent {
            peer: self.teller.peer,
            door: Door::Http,
            path: self.teller.path.clone(),
            sent: self.sent,
            asked: self.teller.size,
            took_ms: u64::try_from(self.teller.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            ended,
        });
    }
}

impl futures_core::Stream for Sending {
    type Item = Result<Frame<Bytes>, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = std::task::ready!(self.pieces.poll_recv(context));
        if let Some(Ok(bytes)) = &item {
            self.sent += bytes.len() as u64;
            if self.sent - self.told >= TELL_BYTES && self.sent < self.teller.size {
                self.tell(false);
            }
        }
        Poll::Ready(item.map(|piece| piece.map(Frame::data)))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.tell(true);
    }
}

#[cfg(test)]
mod tests;
