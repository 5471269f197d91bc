use super::frame_handler::{DhcpFrameAction, DhcpFrameHandler};
use super::*;
use crate::testbed::{self, TestbedDirectory};
use std::sync::Mutex;
use tokio::net::UdpSocket;
use trivet_link::{DhcpReplyTarget, arp_probe_frame, dhcp_reply_frame};
use trivet_model::{MacAddr, Tick};
use trivet_rack::dhcp::{BootServer, DhcpServerSettings, Subnet};
use trivet_rack::{RackInput, RackOutput};

const BOX: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
const RELAY: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 2);
const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const LINK: LinkId = LinkId(3);

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

/// A DISCOVER as a relay forwards it (RFC 2131, sections 2 and 4.1).
fn discover() -> Vec<u8> {
    let mut bytes = vec![0; 236];
    bytes[..4].copy_from_slice(&[1, 1, 6, 1]);
    bytes[24..28].copy_from_slice(&RELAY.octets());
    bytes[28..34].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 1]);
    // The relay requests the reply on its source port (RFC 8357, section 5.2).
    bytes.extend([99, 130, 83, 99, 53, 1, 1, 82, 2, 19, 0, 255]);
    bytes
}

#[tokio::test]
async fn a_request_through_a_relay_is_answered_to_the_relay() {
    let scratch = TestbedDirectory::new();
    let socket = UdpSocket::bind((BOX, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    let relay = UdpSocket::bind((RELAY, 0)).await.unwrap();
    let place = OpenedDhcpListener::Relayed(DhcpRelaySocket { socket, local: BOX });
    assert_eq!(
        place.to_string(),
        format!("at {address} for relays, as {BOX}")
    );
    let (listeners, receivers) = DhcpListeners::new(vec![place]);
    let destinations = Arc::new(Mutex::new(Vec::new()));
    let (seen, out) = (Arc::clone(&destinations), listeners.clone());
    let mut settings = testbed::settings(&scratch.0);
    settings.dhcp = Some(DhcpServerSettings {
        links: Vec::new(),
        subnets: vec![subnet()],
    });
    let (engine, _why) = testbed::engine_with_sink(settings, &scratch.0, move |output| {
        if let RackOutput::Dhcp {
            link,
            local,
            to,
            bytes,
        } = output
        {
            seen.lock().unwrap().push(to);
            out.send(link, local, &to, &bytes);
            // Sending on a listener that does not exist does nothing.
            out.send(LinkId(7), local, &to, &bytes);
            out.probe(link, local);
        }
    });
    let mut tasks = JoinSet::new();
    listeners.receive(receivers, &mut tasks, &engine, DaemonClock::start());
    for nonsense in [&b""[..], b"hello", &[0xff; 1500]] {
        relay.send_to(nonsense, address).await.unwrap();
    }
    relay.send_to(&discover(), address).await.unwrap();
    let mut buffer = [0; 1500];
    let (length, from) = relay.recv_from(&mut buffer).await.unwrap();
    assert_eq!(from, address);
    assert!(length > 240 && buffer[0] == 2, "a reply");
    assert_eq!(buffer[16..20], [127, 77, 1, 1], "the first free address");
    assert_eq!(destinations.lock().unwrap().len(), 1);
    drop(tasks);
    engine.stop().await;
}

fn frame_handler(advertises: Option<Tick>) -> DhcpFrameHandler {
    let range = (Ipv4Addr::new(10, 0, 0, 10), Ipv4Addr::new(10, 0, 0, 20));
    DhcpFrameHandler::new(OWN, Ipv4Addr::new(10, 0, 0, 1), Some(range), advertises)
}

/// A broadcast of another DHCP server.
fn frame_of(from: MacAddr) -> Vec<u8> {
    let everybody = DhcpReplyTarget {
        mac: from,
        address: Ipv4Addr::BROADCAST,
        broadcast: true,
    };
    dhcp_reply_frame(from, Ipv4Addr::new(10, 0, 0, 2), everybody, b"message").unwrap()
}

#[test]
fn a_dhcp_frame_goes_to_the_rack_with_where_it_came_in() {
    let received = frame_handler(None).handle_frame(Tick(5), LINK, &frame_of(OTHER), false);
    let DhcpFrameAction::Input(RackInput::Dhcp { arrival, bytes }) = received else {
        panic!("{received:?}");
    };
    assert_eq!((arrival.link, arrival.from), (LINK, Some(OTHER)));
    assert_eq!(arrival.local, Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(arrival.source, "10.0.0.2:67".parse().unwrap());
    assert_eq!(arrival.port, 68);
    assert_eq!(bytes, b"message");
}

#[test]
fn our_own_frames_damaged_ones_and_nonsense_are_ignored() {
    let mut line = frame_handler(Some(Tick(0)));
    let mut damaged = frame_of(OTHER);
    *damaged.last_mut().unwrap() ^= 1;
    // The frame is padded, so its last significant byte is further to the front.
    damaged[14 + 20 + 8] ^= 1;
    for frame in [&frame_of(OWN)[..], &damaged, b"", &[0xff; 60]] {
        let means = line.handle_frame(Tick(0), LINK, frame, false);
        assert!(!matches!(means, DhcpFrameAction::Input(_)), "{means:?}");
    }
    let means = line.handle_frame(Tick(0), LINK, &damaged, false);
    assert!(
        matches!(means, DhcpFrameAction::Dropped("damaged_frame")),
        "{means:?}"
    );
    let offloaded = line.handle_frame(Tick(0), LINK, &damaged, true);
    assert!(
        matches!(offloaded, DhcpFrameAction::Input(_)),
        "a card has checked it"
    );
}

/// An ARP reply of a machine, made from our own request.
fn claim(address: Ipv4Addr, mac: MacAddr) -> Vec<u8> {
    let mut frame = arp_probe_frame(mac, address);
    frame[14 + 7] = 2;
    frame[14 + 14..14 + 18].copy_from_slice(&address.octets());
    frame
}

#[test]
fn claims_of_addresses_that_matter_go_to_the_rack() {
    let mut line = frame_handler(None);
    let (ours, server) = (Ipv4Addr::new(10, 0, 0, 12), Ipv4Addr::new(10, 0, 0, 2));
    let means = line.handle_frame(Tick(0), LINK, &claim(ours, OTHER), false);
    let DhcpFrameAction::Input(RackInput::ArpClaimed { link, address, mac }) = means else {
        panic!("{means:?}");
    };
    assert_eq!((link, address, mac), (LINK, ours, OTHER));
    let means = line.handle_frame(Tick(0), LINK, &claim(server, OTHER), false);
    assert!(
        matches!(means, DhcpFrameAction::Nothing),
        "without a request"
    );
    line.expect_claim(server);
    let means = line.handle_frame(Tick(0), LINK, &claim(server, OTHER), false);
    assert!(matches!(means, DhcpFrameAction::Input(_)), "{means:?}");
}

#[test]
fn only_an_interface_that_advertises_has_something_due() {
    let mut silent = frame_handler(None);
    assert_eq!((silent.deadline(), silent.due(Tick(9))), (None, None));
    let mut line = frame_handler(Some(Tick(9)));
    assert_eq!(line.deadline(), Some(Tick(9)));
    assert!(line.due(Tick(9)).is_some());
    assert!(line.deadline() > Some(Tick(9)));
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let wants = DhcpInterfaceConfig {
        name: "no-such-if".to_owned(),
        local_address: None,
        range: None,
        advertises: false,
    };
    let error = OpenedDhcpInterface::new(wants, DaemonClock::start())
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("no Ethernet interface no-such-if")
    );
}
