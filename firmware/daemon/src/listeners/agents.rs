//! Calls to agents: one HTTP exchange each, plain or pinned to the agent's own
//! certificate. Nothing is retried here; the node's job decides that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::tls_identity::AgentCallIdentity;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Uri};
use trivet_net_http::{HttpClient, HttpError, HttpServer, HttpTimeouts};
use trivet_net_tls::pinned_client_config;
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
    shown: Option<&AgentCallIdentity>,
    request: &AgentHttpRequest,
) -> Result<(u16, Vec<u8>), String> {
    let endpoint = AgentEndpoint::of(url)?;
    let (host, port) = (endpoint.address.ip().to_string(), endpoint.address.port());
    let server = if endpoint.secure {
        let pem = verify_ca.ok_or("it uses TLS but sent no certificate to trust")?;
        let config = pinned_client_config(pem).map_err(|error| error.to_string())?;
        // An agent that has enrolled asks for it, others do not.
        let config = match shown {
            Some(shown) => shown.current().shown_by(config),
            None => config,
        };
        HttpServer::secure(&host, port, Arc::new(config))
    } else {
        HttpServer::plain(&host, port)
    };
    let total = Duration::from_millis(request.timeout_ms);
    let client = HttpClient::new(HttpTimeouts {
        connect: total,
        total,
    });
    let message = message(endpoint.address, request).map_err(|error| error.to_string())?;
    match client.exchange(&server, message, ANSWER_BYTES_MAX).await {
        Ok(response) => {
            let status = response.status().as_u16();
            Ok((status, response.into_body().into()))
        }
        Err(HttpError::ConnectTimedOut | HttpError::ResponseTimedOut) => {
            Err(format!("no answer within {} ms", request.timeout_ms))
        }
        Err(error) => Err(error.cause()),
    }
}

fn message(
    to: SocketAddr,
    request: &AgentHttpRequest,
) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let method = match request.method {
        trivet_rack::AgentHttpMethod::Get => Method::GET,
        trivet_rack::AgentHttpMethod::Post => Method::POST,
    };
    let body = request.body.clone().unwrap_or_default();
    Request::builder()
        .method(method)
        .uri(request.path_and_query.as_str())
        .header("host", to.to_string())
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Full::new(Bytes::from(body)))
}

#[cfg(test)]
mod tests;
