//! A small REST client: what an operator's script would do.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Uri};
use serde_json::Value;
use trivet_net_http::{HttpClient, HttpServer, HttpTimeouts};

/// Longest response that is accepted.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The API microversion of the demo's operator.
const VERSION: &str = "1.104";

/// How long one exchange may take. A machine loads its ramdisk in one.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_mins(1),
    total: Duration::from_mins(1),
};

/// One exchange from the address `local`; returns status and body.
pub(crate) async fn exchange(
    local: Option<Ipv4Addr>,
    method: &str,
    url: &str,
    body: Option<&Value>,
) -> anyhow::Result<(u16, Bytes)> {
    let uri: Uri = url.parse()?;
    let authority = uri.authority().context("a URL without a host")?;
    let server = HttpServer::plain(authority.host(), authority.port_u16().unwrap_or(80));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let bytes = body.map(ToString::to_string).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", authority.as_str())
        .header("content-type", "application/json")
        .header("x-openstack-ironic-api-version", VERSION)
        .body(Full::new(Bytes::from(bytes)))?;
    let mut client = HttpClient::new(TIMEOUTS);
    if let Some(local) = local {
        client = client.from_address(local.into());
    }
    let answer = client.exchange(&server, request, ANSWER_BYTES_MAX).await?;
    Ok((answer.status().as_u16(), answer.into_body()))
}
