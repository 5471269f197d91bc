//! Opening sockets, with an error that says which port and who holds it.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::{TcpListener, UdpSocket};

use crate::holder::{Protocol, holder};

/// A socket that could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error(
        "{service}: {protocol:?} port {} of {} is in use{}; stop that program or choose another \
         port in the settings",
        address.port(), address.ip(), by(holder.as_ref())
    )]
    InUse {
        service: &'static str,
        protocol: Protocol,
        address: SocketAddr,
        holder: Option<String>,
    },
    #[error("{service}: cannot listen on {protocol:?} {address}{}", advice(source.kind()))]
    Other {
        service: &'static str,
        protocol: Protocol,
        address: SocketAddr,
        source: std::io::Error,
    },
}

fn by(holder: Option<&String>) -> String {
    holder
        .map(|holder| format!(" by {holder}"))
        .unwrap_or_default()
}

fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => "; ports below 1024 need root or CAP_NET_BIND_SERVICE",
        ErrorKind::AddrNotAvailable => "; no interface of this box has that address",
        _ => "",
    }
}

fn failed(
    service: &'static str,
    protocol: Protocol,
    address: SocketAddr,
    source: std::io::Error,
) -> SocketError {
    if source.kind() == ErrorKind::AddrInUse {
        let holder = holder(protocol, address);
        SocketError::InUse {
            service,
            protocol,
            address,
            holder,
        }
    } else {
        SocketError::Other {
            service,
            protocol,
            address,
            source,
        }
    }
}

/// A listening TCP socket.
pub(crate) async fn tcp(
    service: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, SocketError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| failed(service, Protocol::Tcp, address, error))
}

/// A UDP socket.
pub(crate) async fn udp(
    service: &'static str,
    address: SocketAddr,
) -> Result<UdpSocket, SocketError> {
    UdpSocket::bind(address)
        .await
        .map_err(|error| failed(service, Protocol::Udp, address, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_its_holder() {
        let first = tcp("API", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = first.local_addr().unwrap();
        let said = tcp("API", address).await.unwrap_err().to_string();
        assert!(said.contains(&format!("port {}", address.port())), "{said}");
        assert!(
            said.contains(&format!("(pid {})", std::process::id())),
            "{said}"
        );
    }

    #[tokio::test]
    async fn an_address_that_is_not_ours_is_said_to_be_so() {
        let said = udp("TFTP", "192.0.2.77:0".parse().unwrap())
            .await
            .unwrap_err()
            .to_string();
        assert!(said.contains("no interface of this box"), "{said}");
    }
}
