//! Requests through a proxy: whole URLs for http, tunnels for https.

use std::io;

use hyper::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::HttpError;

/// Longest response of a proxy before the tunnel is open. Ours.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// Requests a tunnel to a server from a proxy (CONNECT, RFC 9110 section 9.3.6).
pub(crate) async fn open_tunnel(stream: &mut TcpStream, authority: &str) -> Result<(), HttpError> {
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    let failed = HttpError::Proxy;
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= ANSWER_BYTES_MAX {
            return Err(failed(io::Error::other("its response is too long")));
        }
        answer.push(stream.read_u8().await.map_err(failed)?);
    }
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(()),
        _ => Err(HttpError::ProxyRefused(line.to_owned())),
    }
}

/// The absolute form of a request target (RFC 9112, section 3.2.2).
pub(crate) fn absolute(authority: &str, target: &Uri) -> Option<Uri> {
    let path = target.path_and_query().map_or("/", |path| path.as_str());
    format!("http://{authority}{path}").parse().ok()
}
