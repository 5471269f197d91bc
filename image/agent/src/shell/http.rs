//! A small HTTP client: one connection for each request, plain HTTP.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, RANGE, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use trivet_agent_wire::VERSION_HEADER;

use super::NO_ANSWER;
use crate::AGENT_VERSION;

/// Timeout of a request to the appliance. The stock agent's `http_request_timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server may take until its response starts.
const CONNECT_TIMEOUT: Duration = Duration::from_mins(1);

/// A longer response of the appliance counts as none. Ours.
pub(super) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("{url} is not a URL of the form http://host[:port]/path")]
    BadUrl { url: String },
    #[error("{authority} cannot be reached: {source}")]
    Connect {
        authority: String,
        source: std::io::Error,
    },
    #[error("{authority} ended the connection: {source}")]
    Broken {
        authority: String,
        source: hyper::Error,
    },
    #[error("{authority} did not answer in time")]
    TimedOut { authority: String },
}

/// Sends a request to the appliance. No response, a late one and one that is too long are all
/// [`NO_ANSWER`]: the state machine retries in each case.
pub(super) async fn call(
    own: IpAddr,
    (method, url): (&str, &str),
    version: Option<&str>,
    body: Vec<u8>,
) -> (u16, Vec<u8>) {
    let asked = async {
        let response = send(own, (method, url), version, body).await.ok()?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.ok()?.to_bytes();
        Some((status, body.to_vec()))
    };
    let answered = timeout(REQUEST_TIMEOUT, asked).await;
    answered.ok().flatten().unwrap_or((NO_ANSWER, Vec::new()))
}

/// Requests a file, or a byte range of it.
pub(super) async fn get(
    own: IpAddr,
    url: &str,
    bytes: Option<Range<u64>>,
) -> Result<Response<Incoming>, HttpError> {
    let range = bytes.map(|bytes| format!("bytes={}-{}", bytes.start, bytes.end.saturating_sub(1)));
    let range = range.map(|range| (RANGE, range));
    request(own, ("GET", url), range, Vec::new()).await
}

/// The size of a file, if the server reports it.
pub(super) async fn size(own: IpAddr, url: &str) -> Option<u64> {
    let response = request(own, ("HEAD", url), None, Vec::new()).await.ok()?;
    let size = response.headers().get(CONTENT_LENGTH)?;
    size.to_str().ok()?.parse().ok()
}

/// Sends a request from the machine's own address and waits for the head of the response.
async fn send(
    own: IpAddr,
    (method, url): (&str, &str),
    version: Option<&str>,
    body: Vec<u8>,
) -> Result<Response<Incoming>, HttpError> {
    let name = HeaderName::from_static(VERSION_HEADER);
    let version = version.map(|version| (name, version.to_owned()));
    request(own, (method, url), version, body).await
}

async fn request(
    own: IpAddr,
    (method, url): (&str, &str),
    header: Option<(HeaderName, String)>,
    body: Vec<u8>,
) -> Result<Response<Incoming>, HttpError> {
    let bad = || HttpError::BadUrl {
        url: url.chars().take(200).collect(),
    };
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(bad());
    };
    let authority = format!("{host}:{}", uri.port_u16().unwrap_or(80));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, &authority)
        .header(USER_AGENT, AGENT_VERSION)
        .header(ACCEPT, "application/json");
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| bad())?;
    let exchange = exchange(own, &authority, request);
    let late = || HttpError::TimedOut {
        authority: authority.clone(),
    };
    timeout(CONNECT_TIMEOUT, exchange)
        .await
        .map_err(|_| late())?
}

async fn exchange(
    own: IpAddr,
    authority: &str,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, HttpError> {
    let broken = |source| HttpError::Broken {
        authority: authority.to_owned(),
        source,
    };
    let stream = connect(own, authority)
        .await
        .map_err(|source| HttpError::Connect {
            authority: authority.to_owned(),
            source,
        })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // Ends by itself when the response is read or dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(broken)
}

/// Connects from the machine's own address, because the appliance identifies the node by it.
/// Without one, or with one of the other address family, the system chooses.
async fn connect(own: IpAddr, authority: &str) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for to in tokio::net::lookup_host(authority).await? {
        let socket = match to {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if !own.is_unspecified() && own.is_ipv4() == to.is_ipv4() {
            socket.bind(SocketAddr::new(own, 0))?;
        }
        match socket.connect(to).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
