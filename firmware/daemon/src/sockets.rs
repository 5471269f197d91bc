//! Opens sockets, with an error that names the port and its owner.

use std::io::ErrorKind;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

use crate::port_owner::{PortProtocol, owner_of};

/// A socket that could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error(
        "{service}: {protocol} port {} of {} is in use{}; stop that program or choose another \
         port in the settings",
        address.port(),
        address.ip(),
        by(holder.as_ref())
    )]
    InUse {
        service: &'static str,
        protocol: PortProtocol,
        address: SocketAddr,
        holder: Option<String>,
    },
    #[error(
        "{service}: cannot listen on {address} of interface {interface}{}; `ip link` lists them",
        advice(source.kind())
    )]
    Interface {
        service: &'static str,
        interface: String,
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("{service}: cannot listen on {protocol} {address}{}", advice(source.kind()))]
    Other {
        service: &'static str,
        protocol: PortProtocol,
        address: SocketAddr,
        source: std::io::Error,
    },
}

impl SocketError {
    /// Whether no interface has the address now.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Other { source, .. } if source.kind() == ErrorKind::AddrNotAvailable)
    }
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
    protocol: PortProtocol,
    address: SocketAddr,
    source: std::io::Error,
) -> SocketError {
    if source.kind() == ErrorKind::AddrInUse {
        let holder = owner_of(protocol, address);
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
        .map_err(|error| failed(service, PortProtocol::Tcp, address, error))
}

/// A UDP socket.
pub(crate) async fn udp(
    service: &'static str,
    address: SocketAddr,
) -> Result<UdpSocket, SocketError> {
    UdpSocket::bind(address)
        .await
        .map_err(|error| failed(service, PortProtocol::Udp, address, error))
}

/// A non-blocking UDP socket of one interface. It is bound to the interface before the
/// port: otherwise the same port on a second interface would be in use.
pub(crate) fn udp_on(
    service: &'static str,
    address: SocketAddr,
    interface: &str,
) -> Result<std::net::UdpSocket, SocketError> {
    let open = || -> std::io::Result<std::net::UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().map_err(|source| {
        if source.kind() == ErrorKind::AddrInUse {
            return failed(service, PortProtocol::Udp, address, source);
        }
        let interface = interface.to_owned();
        SocketError::Interface {
            service,
            interface,
            address,
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_its_holder() {
        let first = tcp("API", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = first.local_addr().unwrap();
        let text = tcp("API", address).await.unwrap_err().to_string();
        assert!(text.contains(&format!("port {}", address.port())), "{text}");
        assert!(
            text.contains(&format!("(pid {})", std::process::id())),
            "{text}"
        );
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_reported_as_such() {
        let text = udp("TFTP", "192.0.2.77:0".parse().unwrap())
            .await
            .unwrap_err()
            .to_string();
        assert!(text.contains("no interface of this box"), "{text}");
    }

    /// Two DHCP networks need this: port 67 on each of two interfaces.
    #[test]
    fn two_interfaces_have_the_same_port_each() {
        let any = "0.0.0.0:0".parse().unwrap();
        let first = udp_on("DHCP", any, "lo").unwrap();
        let port = first.local_addr().unwrap().port();
        let same = SocketAddr::from(([0, 0, 0, 0], port));
        let other = std::fs::read_dir("/sys/class/net")
            .unwrap()
            .flatten()
            .find_map(|entry| {
                entry
                    .file_name()
                    .into_string()
                    .ok()
                    .filter(|name| name != "lo")
            });
        if let Some(other) = other {
            udp_on("DHCP", same, &other).unwrap();
        }
        let text = udp_on("DHCP", same, "lo").unwrap_err().to_string();
        assert!(text.contains(&format!("port {port}")), "{text}");
        let text = udp_on("DHCP", any, "no-such-if").unwrap_err().to_string();
        assert!(text.contains("interface no-such-if"), "{text}");
    }
}
