//! Boot files and images over HTTP: whole files and single ranges.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, HeaderValue, RANGE};
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
    let range = match range(request.headers(), size) {
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
fn range(headers: &HeaderMap, size: u64) -> Result<Option<(u64, u64)>, Unsatisfiable> {
    let text = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let Some((first, last)) = text
        .and_then(|text| text.strip_prefix("bytes="))
        .and_then(|text| text.split_once('-'))
    else {
        return Ok(None);
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
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

struct Teller {
    engine: Engine,
    peer: IpAddr,
    path: String,
    size: u64,
}

impl Teller {
    fn tell(&self, sent: u64, ended: bool) {
        let (peer, path, size) = (self.peer, self.path.clone(), self.size);
        self.engine.tell(Input::FileSent {
            peer,
            door: Door::Http,
            path,
            sent,
            size,
            ended,
        });
    }
}

/// Reads on a thread of its own and hands chunks over as the client takes them.
fn stream(mut opened: Opened, from: u64, to: u64, teller: Teller) -> Body {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(2);
    tokio::task::spawn_blocking(move || {
        let (mut at, mut told) = (from, from);
        while at < to {
            let want = usize::try_from(to - at)
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            let mut chunk = vec![0; want];
            let item = match opened.read(at, &mut chunk) {
                Ok(length) if length == want => Ok(Bytes::from(chunk)),
                // The file shrank: a short body must not look whole.
                Ok(_) => Err(std::io::Error::other("the file changed while it was sent")),
                Err(error) => Err(error),
            };
            let failed = item.is_err();
            if sender.blocking_send(item).is_err() || failed {
                break;
            }
            at += want as u64;
            if at - told >= TELL_BYTES && at < to {
                told = at;
                teller.tell(at - from, false);
            }
        }
        teller.tell(at - from, true);
    });
    StreamBody::new(Receiving(receiver)).boxed()
}

struct Receiving(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl futures_core::Stream for Receiving {
    type Item = Result<Frame<Bytes>, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .poll_recv(context)
            .map(|item| item.map(|chunk| chunk.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, want: Result<Option<(u64, u64)>, Unsatisfiable>) {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_str(header).unwrap());
        assert_eq!(range(&headers, 100), want, "{header}");
    }

    #[test]
    fn takes_every_form_of_one_range() {
        check("bytes=0-9", Ok(Some((0, 10))));
        check("bytes=90-", Ok(Some((90, 100))));
        check("bytes=-10", Ok(Some((90, 100))));
        check("bytes=-1000", Ok(Some((0, 100))));
        check("bytes=50-1000", Ok(Some((50, 100))));
    }

    #[test]
    fn ignores_what_is_not_one_byte_range() {
        for header in [
            "bytes=9-0",
            "bytes=a-b",
            "bytes=0-1,5-6",
            "lines=0-1",
            "bytes=",
        ] {
            check(header, Ok(None));
        }
    }

    #[test]
    fn refuses_a_range_beyond_the_end() {
        check("bytes=100-", Err(Unsatisfiable));
        check("bytes=-0", Err(Unsatisfiable));
    }
}
