//! The listener of the agent's own API: HTTP, over TLS if the agent has a certificate.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, LOCATION, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::AgentShellContext;
use crate::state_machine::{AgentApiReply, AgentWork, REQUEST_BYTES_MAX};

/// Connections at the same time; further ones wait. Ours: there is one appliance.
const CONNECTIONS_MAX: usize = 16;

/// Timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after accept fails, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until dropped.
pub(super) async fn serve(
    listener: TcpListener,
    shared: Arc<AgentShellContext>,
    orders: mpsc::Sender<(String, AgentWork)>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut callers = JoinSet::new();
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        while callers.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (shared, orders) = (Arc::clone(&shared), orders.clone());
        callers.spawn(async move {
            match shared
                .options
                .tls
                .as_ref()
                .map(|tls| Arc::clone(&tls.server))
            {
                None => serve_connection(stream, shared, orders).await,
                Some(server) => {
                    let handshake = TlsAcceptor::from(server).accept(stream);
                    // A peer that does not speak TLS has no effect.
                    if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, handshake).await {
                        serve_connection(stream, shared, orders).await;
                    }
                }
            }
            drop(place);
        });
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    shared: Arc<AgentShellContext>,
    orders: mpsc::Sender<(String, AgentWork)>,
) {
    let service = service_fn(|request| {
        let (shared, orders) = (Arc::clone(&shared), orders.clone());
        async move { Ok::<_, Infallible>(handle_request(&shared, &orders, request).await) }
    });
    // An interrupted connection has no effect.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn handle_request(
    shared: &AgentShellContext,
    orders: &mpsc::Sender<(String, AgentWork)>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let method = request.method().as_str().to_owned();
    let target = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    // One byte more than the limit, so that the state machine detects a body that is too long.
    let body = Limited::new(request.into_body(), REQUEST_BYTES_MAX + 1);
    let Ok(body) = timeout(BODY_TIMEOUT, body.collect()).await else {
        return plain(408);
    };
    let Ok(body) = body else {
        return plain(413);
    };
    let body = body.to_bytes();
    let mut reply = shared
        .state()
        .handle_request(shared.now(), &method, &target, &body);
    shared.changed.notify_one();
    if let Some(work) = reply.work.take()
        && orders.send(work).await.is_err()
    {
        return plain(503);
    }
    if let Some(id) = reply.awaits.take() {
        reply = wait_until_finished(shared, &id).await;
    }
    response(reply)
}

/// Waits until the command has ended.
async fn wait_until_finished(shared: &AgentShellContext, id: &str) -> AgentApiReply {
    loop {
        // Created before the check, so that a change in between is not missed.
        let woken = shared.ended.notified();
        {
            let state = shared.state();
            if state.is_finished(id) {
                return state.command(id);
            }
        }
        woken.await;
    }
}

fn response(reply: AgentApiReply) -> Response<Full<Bytes>> {
    let mut response = Response::builder()
        .status(reply.status)
        .header(SERVER, "trivet-agent")
        .header(CONTENT_TYPE, reply.content_type);
    if let Some(location) = reply.location {
        response = response.header(LOCATION, location);
    }
    if let Some(allow) = reply.allow {
        response = response.header(ALLOW, allow);
    }
    let body = Full::new(Bytes::from(reply.body));
    response.body(body).unwrap_or_else(|_| plain(500))
}

fn plain(status: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    if let Ok(status) = hyper::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    response
}
