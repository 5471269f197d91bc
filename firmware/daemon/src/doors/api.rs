//! The Ironic API over HTTP: authentication, bodies, and the way to the engine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use trivet_api::{Facts, Outcome};
use trivet_model::{Entropy, Order, Refusal, RefusalKind};

use super::agents;
use super::http::{self, Answer, Body, Handler};
use crate::auth::Auth;
use crate::clock::{Clock, System};
use crate::engine::Engine;

/// How often a change is tried anew when somebody else changed the record meanwhile.
const TRIES_MAX: u32 = 8;

/// What every request needs.
pub(crate) struct Api {
    pub(crate) engine: Engine,
    pub(crate) facts: Facts,
    pub(crate) auth: Auth,
    pub(crate) clock: Clock,
}

/// The handler for this API.
pub(crate) fn handler(api: Arc<Api>) -> Handler {
    Arc::new(move |peer: SocketAddr, secure, request| -> Answer {
        let api = Arc::clone(&api);
        Box::pin(async move { api.answer(peer.ip(), secure, request).await })
    })
}

impl Api {
    async fn answer(
        &self,
        peer: IpAddr,
        secure: bool,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let public = trivet_api::access(head.method.as_str(), path) <= trivet_api::Access::Agent;
        if !public && let Err(why) = self.auth.check(&head.headers).await {
            return unauthorised(why);
        }
        let body = match http::read(body, trivet_api::BODY_BYTES_MAX).await {
            Ok(body) => body,
            Err(error) => {
                let (status, sentence) = error.answer(trivet_api::BODY_BYTES_MAX);
                return http::text(status, &sentence);
            }
        };
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let request_id = format!("req-{}", trivet_model::NodeId::random(&mut System::new()));
        let request = trivet_api::Request {
            method: head.method.as_str(),
            path,
            query: head.uri.query().unwrap_or_default(),
            host: header("host").unwrap_or("localhost"),
            scheme: if secure { "https" } else { "http" },
            version: header("x-openstack-ironic-api-version"),
            openstack_version: header("openstack-api-version"),
            body: &body,
            request_id: &request_id,
        };
        response(self.carry_out(peer, &request).await)
    }

    async fn carry_out(
        &self,
        peer: IpAddr,
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
                &mut System::new() as &mut dyn Entropy,
            );
            let (order, then) = match outcome {
                Outcome::Reply(response) => return response,
                Outcome::Order { order, then } => (order, then),
            };
            let result = match refused(&order, peer) {
                Some(refusal) => Err(refusal),
                None => self.engine.order(order).await,
            };
            let stale = matches!(&result, Err(refusal) if refusal.kind == RefusalKind::Stale);
            if !stale || tries >= TRIES_MAX {
                let view = self.engine.view();
                return trivet_api::finish(request, &then, result, &view, &self.facts);
            }
        }
    }
}

/// What the box refuses for where the caller is.
fn refused(order: &Order, peer: IpAddr) -> Option<Refusal> {
    let Order::Heartbeat { node, beat } = order else {
        return None;
    };
    let why = agents::check_callback(&beat.callback_url, peer).err()?;
    let sentence = format!("Heartbeat for node {node} refused: {why}.");
    Some(Refusal::new(RefusalKind::Invalid, sentence))
}

fn response(answer: trivet_api::Response) -> Response<Body> {
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
    response
}

/// Ironic's body for this one error differs from all its others.
fn unauthorised(why: &'static str) -> Response<Body> {
    let body = format!("{{\"error\":{{\"message\":\"{why}\",\"code\":401}}}}");
    let mut response = Response::new(http::full(body));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    let realm = HeaderValue::from_static("Basic realm=\"Baremetal API\"");
    headers.insert(hyper::header::WWW_AUTHENTICATE, realm);
    let json = HeaderValue::from_static("application/json");
    headers.insert(hyper::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests;
