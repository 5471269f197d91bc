//! Calls to agents: one HTTP exchange each, plain or pinned to the agent's own
//! certificate. No retries here; the node's job decides those.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use trivet_rack::Call;

/// Longest answer we take from an agent.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Makes one call; status and body, or what the connection said.
pub(crate) async fn call(
    url: &str,
    verify_ca: Option<&str>,
    request: &Call,
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
    request: &Call,
) -> Result<(u16, Vec<u8>), String> {
    let uri: Uri = url
        .parse()
        .map_err(|_| "its address is no URL".to_owned())?;
    let host = uri.host().ok_or("its address has no host")?.to_owned();
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port))
        .await
        .map_err(|error| error.to_string())?;
    if !secure {
        return talk(TokioIo::new(stream), &uri, request).await;
    }
    let pem = verify_ca.ok_or("it speaks TLS but sent no certificate to trust")?;
    let config = trivet_certs_authority::pinned_client_config(pem).map_err(|e| e.to_string())?;
    let name = rustls_pki_types::ServerName::try_from(bare.to_owned())
        .map_err(|_| "its address is no host".to_owned())?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    talk(TokioIo::new(stream), &uri, request).await
}

async fn talk<S>(stream: S, uri: &Uri, request: &Call) -> Result<(u16, Vec<u8>), String>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let method = match request.method {
        trivet_rack::Method::Get => Method::GET,
        trivet_rack::Method::Post => Method::POST,
    };
    let body = request.body.clone().unwrap_or_default();
    let message = Request::builder()
        .method(method)
        .uri(request.path_and_query.as_str())
        .header(
            "host",
            uri.authority()
                .map_or("agent", |authority| authority.as_str()),
        )
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
