//! `/metrics`, `/healthz` and `/trivet/events`.
//!
//! A client of events has a position in the ring of events and one piece of text on its way,
//! nothing else: a client that reads too slowly is disconnected and can resume.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};
use trivet_api::{Access, EventQuery, TelemetryRequest};
use trivet_events::{BoxEvent, StreamReset, StreamStart};
use trivet_metrics::MetricFamily;
use trivet_model::Tick;

use super::{ApiService, refuse, response};
use crate::listeners::http::{self, ByteStream, HttpResponseBody};
use crate::telemetry::Telemetry;

/// The most clients of events. Ours.
const EVENT_CLIENTS_MAX: usize = 64;

/// How many events are put into one piece of text.
const EVENTS_AT_ONCE_MAX: usize = 64;

/// Without events, a client receives its position at this interval, so that it notices a
/// connection that is gone.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How long a client may take for one piece of text.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream ends after this time, so that a client whose credentials were withdrawn does not
/// read for ever. Clients resume by themselves.
const STREAM_TIME_MAX: Duration = Duration::from_hours(1);

/// How long the engine may take to answer; it counts as hanging after that. Ours: a batch with a
/// slow flush takes less.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(5);

/// For this time a result about the health is used again, so that requests without credentials
/// cannot fill the engine's queue.
const HEALTH_MS: u64 = 1000;

/// What these paths need in addition to the rest of the API.
pub(crate) struct ApiTelemetry {
    /// `/metrics` needs no credentials.
    allow_open: bool,
    streams: Arc<Semaphore>,
    health: tokio::sync::Mutex<Option<(Tick, Result<(), &'static str>)>>,
}

impl ApiTelemetry {
    pub(crate) fn new(allow_open: bool) -> Self {
        Self {
            allow_open,
            streams: Arc::new(Semaphore::new(EVENT_CLIENTS_MAX)),
            health: tokio::sync::Mutex::new(None),
        }
    }
}

impl ApiService {
    /// The response, if the request is for one of these paths.
    pub(super) async fn telemetry(
        &self,
        request: &trivet_api::Request<'_>,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Option<Response<HttpResponseBody>> {
        let wanted = trivet_api::telemetry_request(request)?;
        if wanted == Ok(TelemetryRequest::Health) {
            return Some(self.health().await);
        }
        if let Err(refused) = self.check_browser(headers) {
            return Some(response(refuse(request, &refused)));
        }
        let is_open = wanted == Ok(TelemetryRequest::Metrics) && self.observed.allow_open;
        if !is_open && let Err(refused) = self.caller(request, Access::Reader, headers, peer).await
        {
            return Some(*refused);
        }
        Some(match wanted {
            Err(refused) => response(refused),
            Ok(TelemetryRequest::Events(query)) => match self.missing_node(&query) {
                Some(sentence) => response(trivet_api::refuse(request, 404, &sentence)),
                None => self.event_stream(headers, query),
            },
            Ok(_) => {
                let text = self.engine.telemetry().exposition(&self.engine.view());
                response_of_type(trivet_metrics::CONTENT_TYPE, http::full(text))
            }
        })
    }

    /// Whether the box works, in one word or one short sentence: callers are not authenticated.
    async fn health(&self) -> Response<HttpResponseBody> {
        let mut last = self.observed.health.lock().await;
        let now = self.clock.now().tick;
        let known = last.filter(|(at, _)| now.since_ms(*at) < HEALTH_MS);
        let result = match known {
            Some((_, result)) => result,
            None => {
                let answers = timeout(ENGINE_TIMEOUT, self.engine.answers()).await;
                let result = match self.engine.telemetry().store_refusal() {
                    _ if answers != Ok(true) => Err("the engine does not answer"),
                    Some(why) => Err(why),
                    None => Ok(()),
                };
                *last = Some((self.clock.now().tick, result));
                result
            }
        };
        drop(last);
        let mut response = match result {
            Ok(()) => http::text(StatusCode::OK, "ok"),
            Err(why) => http::text(StatusCode::SERVICE_UNAVAILABLE, why),
        };
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().insert(CACHE_CONTROL, no_store);
        response
    }

    /// The error for events of a node that does not exist: none would ever come.
    fn missing_node(&self, query: &EventQuery) -> Option<String> {
        let ident = query.node.as_deref()?;
        let found = self.engine.view().node(ident).is_some();
        (!found).then(|| format!("Node {} could not be found.", ident.escape_debug()))
    }

    fn event_stream(&self, headers: &HeaderMap, query: EventQuery) -> Response<HttpResponseBody> {
        let Ok(permit) = Arc::clone(&self.observed.streams).try_acquire_owned() else {
            return http::text(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many clients receive events; close some, and this one can connect again",
            );
        };
        let last = headers.get("last-event-id");
        let last = last
            .and_then(|value| value.to_str().ok())
            .or(query.after.as_deref());
        let telemetry = Arc::clone(self.engine.telemetry());
        let events = telemetry.events();
        let start = match last {
            Some(last) => events.resume(last),
            None => events.start(query.with_kept),
        };
        drop(events);
        let (sender, receiver) = mpsc::channel(1);
        let stream = EventStream {
            telemetry,
            query,
            position: start.after,
            sender,
            _permit: permit,
        };
        tokio::spawn(stream.run(start));
        response_of_type(
            "text/event-stream",
            StreamBody::new(ByteStream(receiver)).boxed(),
        )
    }
}

fn response_of_type(kind: &'static str, body: HttpResponseBody) -> Response<HttpResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// One client of events.
struct EventStream {
    telemetry: Arc<Telemetry>,
    query: EventQuery,
    /// The sequence number of the last event that the client needs no more.
    position: u64,
    sender: mpsc::Sender<Bytes>,
    _permit: OwnedSemaphorePermit,
}

/// Why a stream ends.
enum StreamEnd {
    /// The client has all that it wants, or is gone.
    Complete,
    /// It read too slowly.
    Cut,
}

impl EventStream {
    async fn run(mut self, start: StreamStart) {
        self.telemetry.event_clients.fetch_add(1, Ordering::Relaxed);
        let end = self.send_events(start).await;
        self.telemetry.event_clients.fetch_sub(1, Ordering::Relaxed);
        if let StreamEnd::Cut = end {
            self.telemetry.count(MetricFamily::EventClientsCut);
        }
    }

    async fn send_events(&mut self, start: StreamStart) -> StreamEnd {
        let mut news = self.telemetry.watch_events();
        let deadline = Instant::now() + STREAM_TIME_MAX;
        let id = self.telemetry.events().id(self.position);
        if let Err(end) = self.send(first_frame(&id, start.reset)).await {
            return end;
        }
        loop {
            news.borrow_and_update();
            let read = self
                .telemetry
                .events()
                .read(self.position, EVENTS_AT_ONCE_MAX);
            let Ok(events) = read else {
                return StreamEnd::Cut;
            };
            if let Some(last) = events.last() {
                self.position = last.sequence;
                let wanted = events.iter().filter(|event| self.wants(event));
                let text: String = wanted.map(|event| event.frame()).collect();
                if !text.is_empty()
                    && let Err(end) = self.send(text).await
                {
                    return end;
                }
                continue;
            }
            if !self.query.follows {
                return StreamEnd::Complete;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() {
                    return StreamEnd::Complete;
                },
                () = self.sender.closed() => return StreamEnd::Complete,
                () = tokio::time::sleep_until(deadline) => return StreamEnd::Complete,
                () = tokio::time::sleep(KEEPALIVE) => {
                    // An event without data only sets the position of the client.
                    let id = self.telemetry.events().id(self.position);
                    if let Err(end) = self.send(format!("id: {id}\n\n")).await {
                        return end;
                    }
                }
            }
        }
    }

    fn wants(&self, event: &BoxEvent) -> bool {
        let EventQuery { topics, node, .. } = &self.query;
        let is_topic = topics.is_empty() || topics.contains(&event.topic);
        is_topic && node.as_deref().is_none_or(|node| event.is_of_node(node))
    }

    async fn send(&self, text: String) -> Result<(), StreamEnd> {
        let until = Instant::now() + PIECE_TIMEOUT;
        match timeout_at(until, self.sender.send(text.into())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(StreamEnd::Complete),
            Err(_) => Err(StreamEnd::Cut),
        }
    }
}

/// The first event of a stream: from where it continues, or that events were lost.
fn first_frame(id: &str, reset: Option<StreamReset>) -> String {
    let Some(reset) = reset else {
        return format!("id: {id}\nevent: ready\ndata: {{}}\n\n");
    };
    let message = match reset {
        StreamReset::Restarted => "Trivet was restarted, or this position is not one of it.",
        StreamReset::TooOld => "The events after this position are no longer kept.",
    };
    let message = format!("{message} Read the present state again.");
    let json = json!({"reason": reset.name(), "message": message});
    format!("id: {id}\nevent: reset\ndata: {json}\n\n")
}
