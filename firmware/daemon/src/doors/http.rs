//! HTTP/1.1, plain or over TLS, with bounds: connections, header and body sizes.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// How long a client may take to send the head of a request.
const HEAD_WAIT: Duration = Duration::from_secs(30);

/// How long a client may take for its TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// A body that may stream.
pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

/// A future answer.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// What answers requests: the peer, whether it came over TLS, the request.
pub(crate) type Handler = Arc<dyn Fn(SocketAddr, bool, Request<Incoming>) -> Answer + Send + Sync>;

/// A whole body in memory.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed()
}

/// No body.
pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// A plain text answer.
pub(crate) fn text(status: StatusCode, sentence: &str) -> Response<Body> {
    let mut response = Response::new(full(format!("{sentence}\n")));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    response
}

/// Why a body was not read.
pub(crate) enum BodyError {
    /// It is longer than allowed.
    TooLong,
    /// The client broke off.
    Broken,
}

/// Reads a body of at most `bytes_max`.
pub(crate) async fn read(body: Incoming, bytes_max: usize) -> Result<Bytes, BodyError> {
    match http_body_util::Limited::new(body, bytes_max)
        .collect()
        .await
    {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(BodyError::TooLong),
        Err(_) => Err(BodyError::Broken),
    }
}

/// Serves a listener for ever.
pub(crate) async fn run(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    places: Arc<Semaphore>,
    handler: Handler,
) {
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors, most likely: let others finish first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (tls, handler) = (tls.clone(), Arc::clone(&handler));
        tokio::spawn(async move {
            connection(stream, peer, tls, handler).await;
            drop(place);
        });
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    handler: Handler,
) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => requests(TokioIo::new(stream), peer, false, handler).await,
        Some(acceptor) => {
            let handshake = tokio::time::timeout(HANDSHAKE_WAIT, acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                requests(TokioIo::new(stream), peer, true, handler).await;
            }
        }
    }
}

async fn requests<S>(stream: S, peer: SocketAddr, secure: bool, handler: Handler)
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let answer = handler(peer, secure, request);
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    // A client that breaks off is its own affair.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .serve_connection(stream, service)
        .await;
}
