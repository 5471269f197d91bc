//! Requests that relays forward, over plain UDP.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use tokio::net::UdpSocket;
use trivet_model::LinkId;
use trivet_rack::dhcp::DhcpArrival;
use trivet_rack::{DhcpDestination, RackInput};

use crate::engine::Engine;

use super::interface::CLIENT_PORT;

/// Longest datagram: an Ethernet frame.
const DATAGRAM_BYTES_MAX: usize = 1500;

/// Pause after the system returns a receive error.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// One socket and the local address that it serves.
pub(crate) struct DhcpRelaySocket {
    pub(crate) socket: UdpSocket,
    pub(crate) local: Ipv4Addr,
}

impl fmt::Display for DhcpRelaySocket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { socket, local } = self;
        match socket.local_addr() {
            Ok(address) => write!(out, "at {address} for relays, as {local}"),
            Err(_) => write!(out, "for relays, as {local}"),
        }
    }
}

impl DhcpRelaySocket {
    pub(super) async fn receive(&self, link: LinkId, engine: &Engine) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, SocketAddr::V4(source))) => {
                    let bytes = buffer[..length].to_vec();
                    let arrival = DhcpArrival {
                        link,
                        ..DhcpArrival::datagram(self.local, source)
                    };
                    engine.try_send(RackInput::Dhcp { arrival, bytes });
                }
                Ok(_) => {}
                // Probably an interface that went down: retry after a pause.
                Err(_) => tokio::time::sleep(ERROR_PAUSE).await,
            }
        }
    }

    /// A client that sends here without a relay must have an address, or the reply does
    /// not reach it.
    pub(super) fn send(&self, to: &DhcpDestination, bytes: &[u8]) {
        let address = match to {
            DhcpDestination::Relay(peer) | DhcpDestination::BootServiceClient(peer) => *peer,
            DhcpDestination::Renewing(client) => SocketAddrV4::new(*client, CLIENT_PORT),
            DhcpDestination::Client { .. } => return,
        };
        let _ = self.socket.try_send_to(bytes, address.into());
    }
}
