//! The web page and its live data.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::browser::HostNames;
use super::http::{self, HttpHandler, HttpResponseBody, HttpResponseFuture};
use crate::clock::DaemonClock;
use crate::engine::Engine;

/// The shortest time between two updates of a page.
const PUSH_GAP: Duration = Duration::from_millis(250);

/// Without updates, a page receives a keepalive at this interval.
const KEEPALIVE: Duration = Duration::from_millis(1500);

/// The most pages with live updates at once. Each update renders the whole rack for
/// each page.
const STREAMS_MAX: usize = 64;

/// The handler for the page.
pub(crate) fn handler(engine: Engine, clock: DaemonClock, hosts: HostNames) -> HttpHandler {
    let page = WebPageService {
        hosts,
        engine,
        clock,
        streams: Arc::new(Semaphore::new(STREAMS_MAX)),
    };
    Arc::new(move |_peer, _secure, request| -> HttpResponseFuture {
        let mut answer = match page.hosts.check(request.headers(), true) {
            Ok(()) => page.answer(request.method(), request.uri().path()),
            Err(refused) => http::text(StatusCode::FORBIDDEN, &refused.message),
        };
        http::harden(&mut answer);
        Box::pin(std::future::ready(answer))
    })
}

struct WebPageService {
    hosts: HostNames,
    engine: Engine,
    clock: DaemonClock,
    streams: Arc<Semaphore>,
}

impl WebPageService {
    fn answer(&self, method: &Method, path: &str) -> Response<HttpResponseBody> {
        if method != Method::GET && method != Method::HEAD {
            return http::text(StatusCode::METHOD_NOT_ALLOWED, "this page is read-only");
        }
        match path {
            "/" => {
                let mut response =
                    response_of_type("text/html; charset=utf-8", http::full(trivet_web::page()));
                let policy = HeaderValue::from_static(trivet_web::CSP);
                response
                    .headers_mut()
                    .insert(CONTENT_SECURITY_POLICY, policy);
                response
            }
            "/panel/page.js" => response_of_type(
                "text/javascript; charset=utf-8",
                http::full(trivet_web::script()),
            ),
            "/panel/page.css" => {
                response_of_type("text/css; charset=utf-8", http::full(trivet_web::style()))
            }
            "/panel/nodes.json" => {
                let json = trivet_web::json(&self.engine.view(), self.clock.now().wall);
                response_of_type("application/json", http::full(json))
            }
            "/panel/events" if method == Method::HEAD => {
                response_of_type("text/event-stream", http::empty())
            }
            "/panel/events" => match Arc::clone(&self.streams).try_acquire_owned() {
                Ok(place) => response_of_type("text/event-stream", self.events(place)),
                Err(_) => http::text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many pages are open; close some, and this one reconnects",
                ),
            },
            _ => http::text(StatusCode::NOT_FOUND, "there is no such page"),
        }
    }

    /// Server-sent events: the whole model after each change.
    fn events(&self, place: OwnedSemaphorePermit) -> HttpResponseBody {
        let (mut view, clock) = (self.engine.watch(), self.clock);
        let (sender, receiver) = mpsc::channel::<Bytes>(1);
        tokio::spawn(async move {
            let _place = place;
            loop {
                let json = trivet_web::json(&view.borrow_and_update(), clock.now().wall);
                let event = format!("data: {json}\n\n");
                if sender.send(event.into()).await.is_err() {
                    return;
                }
                // A closed page must not hold its permit until the next update.
                let news = async {
                    tokio::time::sleep(PUSH_GAP).await;
                    tokio::time::timeout(KEEPALIVE, view.changed()).await
                };
                tokio::select! {
                    news = news => if let Ok(Err(_)) = news {
                        return;
                    },
                    () = sender.closed() => return,
                }
            }
        });
        StreamBody::new(http::ByteStream(receiver)).boxed()
    }
}

fn response_of_type(kind: &'static str, body: HttpResponseBody) -> Response<HttpResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
