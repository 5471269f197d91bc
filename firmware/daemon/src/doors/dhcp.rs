//! DHCP datagrams.
//!
//! First form: plain UDP sockets. Clients that have no address yet get their
//! answers by broadcast.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use trivet_rack::dhcp::Arrival;
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
                let arrival = Arrival::datagram(local, source);
                engine.tell(Input::Dhcp { arrival, bytes });
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
        Destination::Relay(peer) | Destination::Asker(peer) => *peer,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::{self, Scratch};
    use std::sync::Mutex;
    use trivet_rack::Output;
    use trivet_rack::dhcp::{BootServer, Settings, Subnet};

    const BOX: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
    const RELAY: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 2);

    fn subnet() -> Subnet {
        Subnet {
            network: Ipv4Addr::new(127, 77, 0, 0),
            prefix: 16,
            first: Ipv4Addr::new(127, 77, 1, 1),
            last: Ipv4Addr::new(127, 77, 1, 9),
            server: BOX,
            router: None,
            dns: Vec::new(),
            boot: BootServer::new(BOX, "http://127.0.0.1/{mac}"),
            known_only: false,
            lease_s: 60,
        }
    }

    /// A discover as a relay passes it on (RFC 2131, sections 2 and 4.1).
    fn discover() -> Vec<u8> {
        let mut bytes = vec![0; 236];
        bytes[..4].copy_from_slice(&[1, 1, 6, 1]);
        bytes[24..28].copy_from_slice(&RELAY.octets());
        bytes[28..34].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 1]);
        // The relay wants its answer at the port it sends from (RFC 8357, section 5.2).
        bytes.extend([99, 130, 83, 99, 53, 1, 1, 82, 2, 19, 0, 255]);
        bytes
    }

    #[tokio::test]
    async fn a_request_through_a_relay_is_answered_to_the_relay() {
        let scratch = Scratch::new();
        let socket = Arc::new(UdpSocket::bind((BOX, 0)).await.unwrap());
        let relay = UdpSocket::bind((RELAY, 0)).await.unwrap();
        let doors = [Door {
            socket: Arc::clone(&socket),
            local: BOX,
        }];
        let destinations = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&destinations);
        let mut settings = testbed::settings(&scratch.0);
        settings.dhcp = Some(Settings {
            links: Vec::new(),
            subnets: vec![subnet()],
        });
        let (engine, _why) = testbed::carrying(settings, &scratch.0, move |output| {
            if let Output::Dhcp {
                local, to, bytes, ..
            } = output
            {
                seen.lock().unwrap().push(to);
                send(&doors, local, &to, &bytes);
            }
        });
        let address = socket.local_addr().unwrap();
        let door = tokio::spawn(run(socket, BOX, engine.clone()));
        for nonsense in [&b""[..], b"hello", &[0xff; 1500]] {
            relay.send_to(nonsense, address).await.unwrap();
        }
        relay.send_to(&discover(), address).await.unwrap();
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        let (length, from) = relay.recv_from(&mut buffer).await.unwrap();
        assert_eq!(from, address);
        assert!(length > 240 && buffer[0] == 2, "a reply");
        assert_eq!(buffer[16..20], [127, 77, 1, 1], "the first free address");
        assert_eq!(destinations.lock().unwrap().len(), 1);
        door.abort();
        engine.stop().await;
    }
}
