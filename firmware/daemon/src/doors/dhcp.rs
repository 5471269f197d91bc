//! DHCP datagrams.
//!
//! First form: plain UDP sockets. Clients that have no address yet get their
//! answers by broadcast.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use trivet_rack::{Destination, Input};

use crate::engine::Engine;

/// Longest datagram: an Ethernet frame.
const DATAGRAM_BYTES_MAX: usize = 1500;

/// Pause after the system refuses us a datagram.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// The ports of DHCP (RFC 2131, section 4.1).
const CLIENT_PORT: u16 = 68;

/// One socket and the address of ours that it stands for.
pub(crate) struct Door {
    pub(crate) socket: Arc<UdpSocket>,
    pub(crate) local: Ipv4Addr,
}

/// Reads datagrams for ever.
pub(crate) async fn run(socket: Arc<UdpSocket>, local: Ipv4Addr, engine: Engine) {
    let mut buffer = [0; DATAGRAM_BYTES_MAX];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, SocketAddr::V4(source))) => {
                let bytes = buffer[..length].to_vec();
                engine.tell(Input::Dhcp {
                    local,
                    source,
                    bytes,
                });
            }
            Ok(_) => {}
            // An interface that went down, most likely: look again, but not at once.
            Err(_) => tokio::time::sleep(ERROR_PAUSE).await,
        }
    }
}

/// Sends one answer.
pub(crate) fn send(doors: &[Door], local: Ipv4Addr, to: &Destination, bytes: &[u8]) {
    let address = match to {
        Destination::Relay(relay) => *relay,
        Destination::Renewing(client) => SocketAddrV4::new(*client, CLIENT_PORT),
        // A client without an address answers no ARP yet; RFC 2131 section 4.1 lets a
        // server that cannot write link-layer frames broadcast instead.
        Destination::Client { .. } => SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT),
    };
    if let Some(door) = doors.iter().find(|door| door.local == local) {
        // A datagram that does not leave is one the client asks for again.
        let _ = door.socket.try_send_to(bytes, address.into());
    }
}
