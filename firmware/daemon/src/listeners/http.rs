//! HTTP/1.1, plain or over TLS, with bounds: connections, header and body sizes.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConnection;
use trivet_model::{KeyDigest, NodeCertificate};
use trivet_net_tls::{NODE_URI_PREFIX, PeerCertificate};

use crate::tls_identity::ServerTls;

use super::accept::accept;
pub(crate) use super::accept::{ClientTimeouts, ConnectionLimit, RequestProgress, connections_max};
use super::stall_timeout::StallTimeoutStream;

mod response_tracking;

use response_tracking::TrackedStream;

/// How long a client may take for the whole body of a request.
const BODY_WAIT: Duration = Duration::from_mins(1);

/// How many bytes and how long a client may still send of a body that is too long. It
/// would not read the response if the box closed the connection while it sends.
pub(super) const DRAIN_BYTES_MAX: usize = 64 * 1024 * 1024;
pub(super) const DRAIN_WAIT: Duration = Duration::from_secs(10);

/// A body that may stream.
pub(crate) type HttpResponseBody = BoxBody<Bytes, std::io::Error>;

/// A response in preparation.
pub(crate) type HttpResponseFuture =
    Pin<Box<dyn Future<Output = Response<HttpResponseBody>> + Send>>;

/// Handles requests: the peer, whether it uses TLS, and the request.
pub(crate) type HttpHandler =
    Arc<dyn Fn(SocketAddr, bool, Request<Incoming>) -> HttpResponseFuture + Send + Sync>;

/// A whole body in memory.
pub(crate) fn full(bytes: impl Into<Bytes>) -> HttpResponseBody {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed()
}

/// No body.
pub(crate) fn empty() -> HttpResponseBody {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// A body whose pieces come through a channel.
pub(crate) struct ByteStream(pub(crate) tokio::sync::mpsc::Receiver<Bytes>);

impl futures_core::Stream for ByteStream {
    type Item = Result<Frame<Bytes>, std::io::Error>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0
            .poll_recv(context)
            .map(|item| item.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A plain text response.
pub(crate) fn text(status: StatusCode, sentence: &str) -> Response<HttpResponseBody> {
    let mut response = Response::new(full(format!("{sentence}\n")));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    response
}

/// Adds headers that keep browsers from guessing types and from sending the URL of this
/// page to other sites.
pub(crate) fn harden(response: &mut Response<HttpResponseBody>) {
    use hyper::header::{HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// Why a body was not read.
pub(crate) enum HttpBodyError {
    /// It is longer than allowed.
    TooLong,
    /// The client disconnected.
    Broken,
    /// It was not complete in time.
    TimedOut,
}

impl HttpBodyError {
    /// The status and the message for it.
    pub(crate) fn answer(&self, bytes_max: usize) -> (StatusCode, String) {
        match self {
            Self::TooLong => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("The body is longer than {bytes_max} bytes."),
            ),
            Self::Broken => (
                StatusCode::BAD_REQUEST,
                "The body is incomplete.".to_owned(),
            ),
            Self::TimedOut => (
                StatusCode::REQUEST_TIMEOUT,
                format!("The body took longer than {} s.", BODY_WAIT.as_secs()),
            ),
        }
    }
}

/// Reads a body of at most `bytes_max`, in bounded time. A body that declares a greater
/// length is refused at once.
pub(crate) async fn read<B>(body: B, bytes_max: usize) -> Result<Bytes, HttpBodyError>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    read_within(BODY_WAIT, body, bytes_max).await
}

async fn read_within<B>(
    wait: Duration,
    mut body: B,
    bytes_max: usize,
) -> Result<Bytes, HttpBodyError>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    let declared_length = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let whole = if declared_length > bytes_max {
        Err(HttpBodyError::TooLong)
    } else {
        tokio::time::timeout(wait, collect(&mut body, bytes_max))
            .await
            .unwrap_or(Err(HttpBodyError::TimedOut))
    };
    if matches!(whole, Err(HttpBodyError::TooLong)) {
        tokio::spawn(tokio::time::timeout(DRAIN_WAIT, drain(body)));
    }
    whole
}

async fn collect<B>(body: &mut B, bytes_max: usize) -> Result<Bytes, HttpBodyError>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| HttpBodyError::Broken)?;
        if let Ok(data) = frame.into_data() {
            if data.len() > bytes_max - whole.len() {
                return Err(HttpBodyError::TooLong);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

/// Reads and discards a body, so that the client reads its response.
pub(super) fn drain_in_background(body: Incoming) {
    tokio::spawn(tokio::time::timeout(DRAIN_WAIT, drain(body)));
}

async fn drain<B>(mut body: B)
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let mut left = DRAIN_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// Serves the listeners of one service until aborted.
pub(crate) fn serve(
    tasks: &mut tokio::task::JoinSet<()>,
    listeners: Vec<TcpListener>,
    tls: Option<&ServerTls>,
    (places, waits): (&ConnectionLimit, ClientTimeouts),
    handler: &HttpHandler,
) {
    let (tls, handler) = (tls.cloned(), Arc::clone(handler));
    let limits = (places, waits);
    accept(
        tasks,
        listeners,
        limits,
        move |stream, peer, waits, progress| {
            let tls = tls.as_ref().map(ServerTls::current);
            let handler = tracking_handler(&handler, progress.clone());
            connection((stream, progress), peer, tls, waits, handler)
        },
    );
}

/// The handler, extended to report its progress. A request without a body is complete
/// when it arrives; one with a body when the handler has read it. It counts as being
/// served until its whole response is written.
fn tracking_handler(handler: &HttpHandler, progress: RequestProgress) -> HttpHandler {
    let handler = Arc::clone(handler);
    Arc::new(move |peer, secure, mut request| -> HttpResponseFuture {
        progress.serving(request.body().is_end_stream());
        request.extensions_mut().insert(progress.clone());
        let (answer, progress) = (handler(peer, secure, request), progress.clone());
        Box::pin(async move {
            let answer = answer.await;
            response_tracking::tracked(answer, &progress)
        })
    })
}

async fn connection(
    (stream, progress): (TcpStream, RequestProgress),
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    waits: ClientTimeouts,
    handler: HttpHandler,
) {
    let stream = StallTimeoutStream::new(stream, waits.stall);
    match tls {
        None => {
            let stream = TrackedStream::new(stream, progress);
            requests(TokioIo::new(stream), peer, false, waits, handler).await;
        }
        Some(acceptor) => {
            let handshake = tokio::time::timeout(waits.handshake, acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                let handler = match node_certificate(stream.get_ref().1) {
                    Some(certificate) => handler_for_node(handler, certificate),
                    None => handler,
                };
                let stream = TrackedStream::new(stream, progress);
                requests(TokioIo::new(stream), peer, true, waits, handler).await;
            }
        }
    }
}

/// The node that the verified certificate of the client names.
pub(super) fn node_certificate(connection: &ServerConnection) -> Option<NodeCertificate> {
    let shown = PeerCertificate::read(connection.peer_certificates()?.first()?)?;
    let node = shown.uri?.strip_prefix(NODE_URI_PREFIX)?.parse().ok()?;
    let key = KeyDigest(shown.key);
    Some(NodeCertificate { node, key })
}

/// The handler, whose requests have the certificate of their connection.
fn handler_for_node(handler: HttpHandler, certificate: NodeCertificate) -> HttpHandler {
    Arc::new(move |peer, secure, mut request| -> HttpResponseFuture {
        request.extensions_mut().insert(certificate);
        handler(peer, secure, request)
    })
}

async fn requests<S>(
    stream: S,
    peer: SocketAddr,
    secure: bool,
    waits: ClientTimeouts,
    handler: HttpHandler,
) where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let answer = handler(peer, secure, request);
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    // A disconnect of the client is not an error of the box.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(waits.head)
        .serve_connection(stream, service)
        .await;
}

#[cfg(test)]
mod tests;
