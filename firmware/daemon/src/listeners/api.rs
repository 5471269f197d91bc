//! The Ironic API over HTTP: authentication, request bodies, and orders to the engine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, Response, StatusCode};
use serde_json::Value;
use tokio::sync::Semaphore;
use tracing::{debug, warn};
use trivet_api::{Access, ApiFacts, ApiOutcome};
use trivet_certs_authority::Authority;
use trivet_metrics::MetricFamily;
use trivet_model::{
    ApiCaller, CallerIdentity, Entropy, NodeId, OrderOutcome, OrderRefusal, RackOrder, RefusalKind,
    Tick,
};
use trivet_rack::{RackInput, RefusedAgent, RefusedRequest};

use super::agents;
use super::browser::{self, BrowserRefusal, HostNames};
use super::http::{self, HttpHandler, HttpResponseBody, HttpResponseFuture, RequestProgress};
use crate::agent_logs::AgentLogStore;
use crate::auth::{AuthDenial, Authenticator, Role};
use crate::cache::ImageCache;
use crate::clock::{DaemonClock, DaemonEntropy};
use crate::engine::{self, Engine};
use crate::log::throttle::{self, LogThrottle};

mod enrolment;
mod telemetry;
mod upload;

pub(crate) use telemetry::ApiTelemetry;

/// How often a change is retried when another client changed the record meanwhile.
const TRIES_MAX: u32 = 8;

/// How many notes about refused agents may wait for a busy engine, how often each is
/// retried, and the delay after the last attempt. Ours.
static LATE_NOTES: Semaphore = Semaphore::const_new(16);
const LATE_NOTE_TRIES_MAX: u32 = 100;
const LATE_NOTE_GAP: Duration = Duration::from_millis(100);

/// The state that every request needs.
pub(crate) struct ApiService {
    pub(crate) engine: Engine,
    pub(crate) facts: ApiFacts,
    pub(crate) auth: Authenticator,
    pub(crate) clock: DaemonClock,
    /// Stores uploaded images.
    pub(crate) cache: ImageCache,
    /// The logs that agents sent.
    pub(crate) logs: AgentLogStore,
    /// Whether agents may be called at loopback, link-local and own addresses.
    pub(crate) any_agent_address: bool,
    /// The host names under which clients may call it.
    pub(crate) hosts: HostNames,
    /// Signs certificates of nodes; none where the API is without TLS.
    pub(crate) authority: Option<Arc<Authority>>,
    /// The log of refused agents.
    pub(crate) refusals: RefusalLog,
    /// Metrics, health and events.
    pub(crate) observed: ApiTelemetry,
}

/// A rate-limited log of refused agents: any client that reaches the API can cause
/// these lines.
pub(crate) struct RefusalLog(Mutex<LogThrottle>);

impl RefusalLog {
    pub(crate) fn new(now: Tick) -> Self {
        Self(Mutex::new(LogThrottle::new(now)))
    }

    /// Whether a line may be logged now. Logs how many were dropped before.
    fn allows(&self, now: Tick) -> bool {
        let mut throttle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = throttle.take_dropped(now) {
            throttle::log_dropped(count);
        }
        throttle.allows(now)
    }
}

/// The handler for this API.
pub(crate) fn handler(api: Arc<ApiService>) -> HttpHandler {
    Arc::new(
        move |peer: SocketAddr, secure, request| -> HttpResponseFuture {
            let api = Arc::clone(&api);
            Box::pin(async move {
                let (start, method) = (api.clock.now().tick, request.method().clone());
                let answer = api.answer(peer.ip(), secure, request).await;
                let took_ms = api.clock.now().tick.since_ms(start);
                let telemetry = api.engine.telemetry();
                telemetry.api_request(method.as_str(), answer.status().as_u16(), took_ms);
                answer
            })
        },
    )
}

impl ApiService {
    async fn answer(
        &self,
        peer: IpAddr,
        secure: bool,
        request: Request<Incoming>,
    ) -> Response<HttpResponseBody> {
        let (head, body) = request.into_parts();
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let request_id = format!(
            "req-{}",
            trivet_model::NodeId::random(&mut DaemonEntropy::new())
        );
        let mut request = trivet_api::Request {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query().unwrap_or_default(),
            host: header("host").unwrap_or("localhost"),
            scheme: if secure { "https" } else { "http" },
            version: header("x-openstack-ironic-api-version"),
            openstack_version: header("openstack-api-version"),
            body: &[],
            request_id: &request_id,
        };
        if let Some(mut answer) = self.telemetry(&request, &head.headers, peer).await {
            for (name, id) in trivet_api::request_id_headers(&request_id) {
                if let Ok(id) = HeaderValue::from_str(&id) {
                    answer.headers_mut().insert(name, id);
                }
            }
            return answer;
        }
        let access = trivet_api::access(request.method, request.path);
        if let Err(refused) = self.check_browser(&head.headers) {
            return response(refuse(&request, &refused));
        }
        let (mut caller, role) = match self.caller(&request, access, &head.headers, peer).await {
            Ok(found) => found,
            Err(response) => return *response,
        };
        caller.certificate = head.extensions.get().copied();
        let caller = Arc::new(caller);
        let progress = head
            .extensions
            .get::<RequestProgress>()
            .cloned()
            .unwrap_or_default();
        if let Some(image) = trivet_api::upload_target(request.method, request.path) {
            progress.serving(true);
            return response(
                self.upload(&caller, &request, &image, &head.headers, body)
                    .await,
            );
        }
        let body = match http::read(body, trivet_api::BODY_BYTES_MAX).await {
            Ok(body) => body,
            Err(error) => {
                let (status, sentence) = error.answer(trivet_api::BODY_BYTES_MAX);
                self.note_refused(&request, peer, &sentence);
                return response(trivet_api::refuse(&request, status.as_u16(), &sentence));
            }
        };
        progress.serving(true);
        if access > Access::Agent
            && let Err(refused) = browser::check_json(&head.headers, &body)
        {
            self.note_refused_write(&caller, &request, &refused.message);
            return response(refuse(&request, &refused));
        }
        request.body = &body;
        let response = response(self.execute(&caller, role, &request).await);
        let status = response.status().as_u16();
        let what = method_and_path(&request);
        debug!(%peer, request_id, status, "{what} from {peer}: {status}");
        response
    }

    /// Refuses requests that a web page of another site made a browser send.
    pub(crate) fn check_browser(&self, headers: &HeaderMap) -> Result<(), BrowserRefusal> {
        let open = matches!(self.auth, Authenticator::Open);
        self.hosts.check(headers, open)
    }

    /// The caller and its role, if the role permits this request; otherwise the
    /// response.
    pub(crate) async fn caller(
        &self,
        request: &trivet_api::Request<'_>,
        access: Access,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<(ApiCaller, Role), Box<Response<HttpResponseBody>>> {
        let caller = ApiCaller::agent(peer);
        if access <= Access::Agent {
            return Ok((caller, Role::Reader));
        }
        let known = match self.auth.check(headers, peer).await {
            Ok(known) => known,
            Err(denied) => return Err(Box::new(self.denied(request, &denied, peer))),
        };
        let global = headers.get("x-openstack-request-id");
        let global = global.and_then(|value| value.to_str().ok());
        let caller = ApiCaller {
            identity: known.who,
            request: request.request_id.to_owned(),
            global_request: global.filter(|id| is_request_id(id)).map(str::to_owned),
            ..caller
        };
        let caller = caller.with_request_line(request.method, request.path);
        if known.role.permits(access) {
            return Ok((caller, known.role));
        }
        let answer = lacks_role(request, &caller, known.role, access);
        self.note_refused_write(&Arc::new(caller), request, &error_message(&answer.body));
        Err(Box::new(response(answer)))
    }

    fn denied(
        &self,
        request: &trivet_api::Request<'_>,
        denied: &AuthDenial,
        peer: IpAddr,
    ) -> Response<HttpResponseBody> {
        let id = request.request_id;
        match denied {
            AuthDenial::Missing => self.unauthorised(id, "Authorization required"),
            AuthDenial::Wrong { whose, wait_s } => {
                let wait = wait_s.map_or(String::new(), |wait_s| {
                    format!("; credentials from there are ignored for {wait_s} s")
                });
                let what = method_and_path(request);
                warn!(
                    %peer,
                    request_id = id,
                    "wrong credentials of {whose} from {peer} ({what}, {id}){wait}"
                );
                self.unauthorised(id, "Incorrect username or password")
            }
            AuthDenial::TooManyFailures { wait_s } => {
                let sentence =
                    format!("Too many wrong credentials; try again in {wait_s} seconds.");
                let mut answer = trivet_api::refuse(request, 429, &sentence);
                answer.headers.push(("Retry-After", wait_s.to_string()));
                response(answer)
            }
        }
    }

    /// Ironic's body for this one error differs from all its others.
    fn unauthorised(&self, request_id: &str, why: &'static str) -> Response<HttpResponseBody> {
        let body = format!("{{\"error\":{{\"message\":\"{why}\",\"code\":401}}}}");
        let mut headers = vec![("Content-Type", "application/json".to_owned())];
        headers.extend(trivet_api::request_id_headers(request_id));
        let challenges = self.auth.challenges();
        headers.extend(challenges.map(|challenge| ("WWW-Authenticate", challenge.to_owned())));
        response(trivet_api::Response {
            status: 401,
            headers,
            body: body.into_bytes(),
        })
    }

    async fn execute(
        &self,
        caller: &Arc<ApiCaller>,
        role: Role,
        request: &trivet_api::Request<'_>,
    ) -> trivet_api::Response {
        let mut tries = 0;
        loop {
            tries += 1;
            let now = self.clock.now().wall;
            let outcome = trivet_api::handle(
                request,
                &self.engine.view(),
                &self.facts,
                now,
                &mut DaemonEntropy::new() as &mut dyn Entropy,
            );
            let (mut order, then) = match outcome {
                ApiOutcome::Reply(response) => {
                    if response.status >= 400 {
                        self.note_refusal(caller, request, &response);
                    }
                    return trivet_api::conflict_after_retry(tries, response);
                }
                ApiOutcome::Order { order, then } => (order, then),
                ApiOutcome::Logs { node, name } => return self.bundle(request, node, name).await,
            };
            let needed = trivet_api::access_of(&order, &self.engine.view());
            if needed > Access::Operator && !role.permits(needed) {
                let answer = lacks_role(request, caller, role, needed);
                self.note_refused_write(caller, request, &error_message(&answer.body));
                return answer;
            }
            if let RackOrder::Heartbeat { heartbeat, .. } = &mut order {
                let any = self.any_agent_address;
                heartbeat.callback_refused =
                    agents::check_callback(&heartbeat.callback_url, any).err();
            }
            let signing = match self.signing_request(request, caller, &mut order) {
                Ok(signing) => signing,
                Err(response) => return *response,
            };
            let last = (tries >= TRIES_MAX).then(|| order.clone());
            let result = match callback_refusal(&order, self.any_agent_address) {
                Some(why) => {
                    self.log_refused_agent(request, caller.from, why);
                    self.note_refused(request, caller.from, why);
                    // The caller has not authenticated, so the error reveals nothing
                    // about the node.
                    Err(OrderRefusal::of_heartbeat())
                }
                None => self.engine.order(Arc::clone(caller), order).await,
            };
            if let (Ok(OrderOutcome::Enrolled(node)), Some(signing)) = (&result, &signing) {
                return self.certificate(request, *node, signing);
            }
            // The rack itself records all other refused orders.
            if let Err(refusal) = &result
                && refusal.kind == RefusalKind::Unavailable
            {
                self.note_refused(request, caller.from, &refusal.sentence);
            }
            let stale = match &result {
                Err(refusal) if refusal.kind == RefusalKind::Stale => Some(refusal),
                _ => None,
            };
            if let (Some(refusal), Some(order)) = (stale, &last) {
                engine::log_refusal(caller, order, refusal);
            }
            if stale.is_none() || last.is_some() {
                let view = self.engine.view();
                let answer = trivet_api::finish(request, &then, result, &view, &self.facts);
                return trivet_api::conflict_after_retry(tries, answer);
            }
        }
    }
}

impl ApiService {
    /// Logs the refusal for the operator, as the agent cannot repair the cause. The
    /// rack itself records the orders that it refuses.
    fn log_refused_agent(&self, request: &trivet_api::Request<'_>, from: IpAddr, why: &str) {
        if self.refusals.allows(self.clock.now().tick) {
            let what = method_and_path(request);
            warn!(%from, "{what} by an agent at {from} refused: {why}");
        }
    }

    /// Notes that a request was refused before it became an order.
    fn note_refusal(
        &self,
        caller: &Arc<ApiCaller>,
        request: &trivet_api::Request<'_>,
        answer: &trivet_api::Response,
    ) {
        let why = error_message(&answer.body);
        if caller.identity != CallerIdentity::Agent {
            return self.note_refused_write(caller, request, &why);
        }
        if answer.status == 400 {
            self.log_refused_agent(request, caller.from, &why);
        }
        self.note_refused(request, caller.from, &why);
    }

    /// Counts a request that would have changed something, and reports it to the rack for the
    /// audit. A busy engine leaves it out.
    fn note_refused_write(
        &self,
        caller: &Arc<ApiCaller>,
        request: &trivet_api::Request<'_>,
        why: &str,
    ) {
        if !["POST", "PUT", "PATCH", "DELETE"].contains(&request.method) {
            return;
        }
        let labels = [RefusedRequest::ORDER, "refused"];
        let telemetry = self.engine.telemetry();
        telemetry.counts().add(MetricFamily::Orders, labels, 1);
        if self.refusals.allows(self.clock.now().tick) {
            warn!(%caller, "refused to {caller}: {why}");
        }
        self.engine
            .try_send(RackInput::RequestRefused(RefusedRequest {
                caller: Arc::clone(caller),
                node: trivet_api::node_of_path(request.path, &self.engine.view()),
                why: why.to_owned(),
            }));
    }

    /// Reports to the rack that a request of an agent was refused, for a note on its
    /// node. Retried for a while if the engine is busy.
    pub(crate) fn note_refused(&self, request: &trivet_api::Request<'_>, from: IpAddr, why: &str) {
        let Some((what, node)) = trivet_api::agent_call(request, &self.engine.view()) else {
            return;
        };
        let input = RackInput::AgentRefused(RefusedAgent {
            from,
            node,
            request: what,
            why: why.to_owned(),
        });
        let Err(mut input) = self.engine.offer(input) else {
            return;
        };
        let (engine, Ok(place)) = (self.engine.clone(), LATE_NOTES.try_acquire()) else {
            return;
        };
        tokio::spawn(async move {
            for _ in 0..LATE_NOTE_TRIES_MAX {
                tokio::time::sleep(LATE_NOTE_GAP).await;
                match engine.offer(input) {
                    Ok(()) => break,
                    Err(back) => input = back,
                }
            }
            drop(place);
        });
    }

    /// Sends a log bundle. It may have been evicted since it was listed.
    async fn bundle(
        &self,
        request: &trivet_api::Request<'_>,
        node: NodeId,
        name: String,
    ) -> trivet_api::Response {
        let (logs, file) = (self.logs.clone(), name.clone());
        let read = tokio::task::spawn_blocking(move || logs.read(node, &file)).await;
        let Ok(Ok(body)) = read else {
            let sentence = format!("The logs {name} of node {node} were removed.");
            return trivet_api::refuse(request, 404, &sentence);
        };
        let as_file = format!("attachment; filename=\"{name}\"");
        let mut headers = vec![
            ("Content-Type", "application/gzip".to_owned()),
            ("Content-Disposition", as_file),
        ];
        headers.extend(trivet_api::request_id_headers(request.request_id));
        trivet_api::Response {
            status: 200,
            headers,
            body,
        }
    }
}

/// The response to an authenticated caller without the required role.
fn lacks_role(
    request: &trivet_api::Request<'_>,
    caller: &ApiCaller,
    role: Role,
    needed: Access,
) -> trivet_api::Response {
    let sentence = format!(
        "This needs the role {needed}; {} has the role {role}. Ask an admin of this box for \
         credentials with that role.",
        caller.identity
    );
    trivet_api::refuse(request, 403, &sentence)
}

fn refuse(request: &trivet_api::Request<'_>, refused: &BrowserRefusal) -> trivet_api::Response {
    trivet_api::refuse(request, refused.status, &refused.message)
}

/// Method and path, escaped for the log.
fn method_and_path(request: &trivet_api::Request<'_>) -> String {
    let nobody = ApiCaller::agent(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    nobody
        .with_request_line(request.method, request.path)
        .request_line
}

/// The message in a body of Ironic's errors.
fn error_message(body: &[u8]) -> String {
    let outer: Value = serde_json::from_slice(body).unwrap_or_default();
    let inner = outer["error_message"].as_str().unwrap_or_default();
    let inner: Value = serde_json::from_str(inner).unwrap_or_default();
    let why = inner.get("faultstring").or(inner.get("description"));
    why.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether it is `req-` and a UUID.
fn is_request_id(text: &str) -> bool {
    text.strip_prefix("req-").is_some_and(|uuid| {
        uuid.len() == 36
            && uuid.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    })
}

/// Why the box refuses the agent's callback address.
fn callback_refusal(order: &RackOrder, any: bool) -> Option<&'static str> {
    let RackOrder::LegacyHeartbeat { url, .. } = order else {
        return None;
    };
    agents::check_callback(url, any).err()
}

pub(crate) fn response(answer: trivet_api::Response) -> Response<HttpResponseBody> {
    let body = if answer.body.is_empty() {
        http::empty()
    } else {
        http::full(answer.body)
    };
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
            response.headers_mut().append(name, value);
        }
    }
    http::harden(&mut response);
    response
}

#[cfg(test)]
mod tests;
