//! Connections: TCP, and TLS over it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::HttpError;

/// Connects to the first address of `host` that accepts. With `local`, from that address, where
/// the server's is of the same family.
pub(crate) async fn connect(
    local: Option<IpAddr>,
    (host, port): (&str, u16),
) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for server in tokio::net::lookup_host((host, port)).await? {
        let socket = match server {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(local) = local.filter(|local| local.is_ipv4() == server.is_ipv4()) {
            socket.bind(SocketAddr::new(local, 0))?;
        }
        match socket.connect(server).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What the server's certificate must be valid for.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, HttpError> {
    ServerName::try_from(host.to_owned()).map_err(|_| HttpError::InvalidName)
}

/// The TLS handshake with the server.
pub(crate) async fn secure(
    stream: TcpStream,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, HttpError> {
    let connector = TlsConnector::from(config);
    connector
        .connect(name, stream)
        .await
        .map_err(HttpError::Tls)
}
