//! Calls to agents: one HTTP exchange each, plain or pinned to the agent's own
//! certificate. Nothing is retried here; the node's job decides that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use trivet_rack::{ANSWER_BYTES_MAX, AgentHttpRequest};

/// The address on which an agent listens.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct AgentEndpoint {
    address: SocketAddr,
    secure: bool,
}

impl AgentEndpoint {
    /// Parses the URL that the agent sent. It comes from the network: only IP addresses
    /// are accepted, so that no machine can make the box resolve names.
    fn of(url: &str) -> Result<Self, &'static str> {
        let uri: Uri = url.parse().map_err(|_| "its address is not a URL")?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("its address is neither http nor https"),
        };
        let authority = uri.authority().ok_or("its address has no host")?;
        let host = authority.host();
        let ip: IpAddr = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .map_err(|_| "its address must be an IP address, not a name")?;
        let port = match authority.as_str().strip_prefix(host) {
            Some("") if secure => 443,
            Some("") => 80,
            Some(_) => authority
                .port_u16()
                .ok_or("its address has an invalid port")?,
            None => return Err("its address has user information"),
        };
        let address = SocketAddr::new(ip, port);
        Ok(Self { address, secure })
    }
}

/// Whether the box may call an agent at `url`. The box is on networks that an agent is
/// not: a heartbeat must not direct it to its own services or to link-local ones. `any`
/// allows loopback, link-local and the box's own addresses, for tests and the demo. The
/// rack checks that `url` has the address from which the agent calls.
pub(crate) fn check_callback(url: &str, any: bool) -> Result<(), &'static str> {
    let to = AgentEndpoint::of(url)?.address.ip().to_canonical();
    let link_local = match to {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let broadcast = matches!(to, IpAddr::V4(ip) if ip.is_broadcast());
    if to.is_unspecified() || to.is_multicast() || broadcast {
        return Err("callback_url is not the address of a machine");
    }
    if any {
        return Ok(());
    }
    if to.is_loopback() {
        return Err("callback_url is a loopback address");
    }
    if link_local {
        return Err("callback_url is a link-local address");
    }
    if is_own(to) {
        return Err("callback_url is an address of this box");
    }
    Ok(())
}

/// Whether an interface of this machine has the address: only then can it be bound,
/// unless the system allows binding any address.
fn is_own(address: IpAddr) -> bool {
    let binds = |address: IpAddr| std::net::UdpSocket::bind((address, 0)).is_ok();
    // Documentation addresses (RFC 5737, RFC 3849), which no machine has.
    let nobody: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 77).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 77).into(),
    };
    binds(address) && !binds(nobody)
}

/// Makes one call; returns status and body, or the error of the connection.
pub(crate) async fn call(
    url: &str,
    verify_ca: Option<&str>,
    request: &AgentHttpRequest,
) -> Result<(u16, Vec<u8>), String> {
    let limit = Duration::from_millis(request.timeout_ms);
    match tokio::time::timeout(limit, exchange(url, verify_ca, request)).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} ms", request.timeout_ms)),
    }
}

async fn exchange(
    url: &str,
    verify_ca: Option<&str>,
    request: &AgentHttpRequest,
) -> Result<(u16, Vec<u8>), String> {
    let place = AgentEndpoint::of(url)?;
    let stream = TcpStream::connect(place.address)
        .await
        .map_err(|error| error.to_string())?;
    if !place.secure {
        return send_request(TokioIo::new(stream), place.address, request).await;
    }
    let pem = verify_ca.ok_or("it uses TLS but sent no certificate to trust")?;
    let config = trivet_certs_authority::pinned_client_config(pem).map_err(|e| e.to_string())?;
    let name = rustls_pki_types::ServerName::from(place.address.ip());
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    send_request(TokioIo::new(stream), place.address, request).await
}

async fn send_request<S>(
    stream: S,
    to: SocketAddr,
    request: &AgentHttpRequest,
) -> Result<(u16, Vec<u8>), String>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let method = match request.method {
        trivet_rack::AgentHttpMethod::Get => Method::GET,
        trivet_rack::AgentHttpMethod::Post => Method::POST,
    };
    let body = request.body.clone().unwrap_or_default();
    let message = Request::builder()
        .method(method)
        .uri(request.path_and_query.as_str())
        .header("host", to.to_string())
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let outcome = async {
        let answer = sender
            .send_request(message)
            .await
            .map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes().to_vec()))
    }
    .await;
    connection.abort();
    outcome
}

#[cfg(test)]
mod tests;
