//! A small REST client: what an operator's script would do.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};

/// Longest response that is accepted.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The API microversion of the demo's operator.
const VERSION: &str = "1.104";

/// How long one exchange may take. A machine loads its ramdisk in one.
const EXCHANGE_WAIT: Duration = Duration::from_mins(1);

/// One exchange from the address `local`; returns status and body.
pub(crate) async fn exchange(
    local: Option<std::net::Ipv4Addr>,
    method: &str,
    url: &str,
    body: Option<&Value>,
) -> anyhow::Result<(u16, Bytes)> {
    tokio::time::timeout(EXCHANGE_WAIT, whole(local, method, url, body))
        .await
        .context("no answer in time")?
}

async fn whole(
    local: Option<std::net::Ipv4Addr>,
    method: &str,
    url: &str,
    body: Option<&Value>,
) -> anyhow::Result<(u16, Bytes)> {
    let uri: Uri = url.parse()?;
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let stream = connect(local, authority.parse()?).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let bytes = body.map(ToString::to_string).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", authority)
        .header("content-type", "application/json")
        .header("x-openstack-ironic-api-version", VERSION)
        .body(Full::new(Bytes::from(bytes)))?;
    let outcome = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| anyhow::anyhow!(error))?;
        anyhow::Ok((status, body.to_bytes()))
    }
    .await;
    connection.abort();
    outcome
}

async fn connect(local: Option<std::net::Ipv4Addr>, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(local) = local {
        socket.bind(super::any_port(local))?;
    }
    socket.connect(to).await
}
