use super::*;
use crate::message::{self, DhcpMessageType};
use crate::settings::tests::settings;
use crate::{DhcpArrival, DhcpServer};
use core::net::SocketAddrV4;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn client() -> DhcpClient {
    DhcpClient::new(MAC, Some(0), false, Some([1; 16]), None)
}

fn served(server: &mut DhcpServer, now: Tick, client: &mut DhcpClient) {
    let arrived = DhcpArrival::datagram(
        Ipv4Addr::new(10, 0, 0, 1),
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
    );
    while let Some(bytes) = client.transmit() {
        let outcome = server.handle(now, &bytes, arrived, |_| true);
        if let Some(reply) = outcome.reply {
            client.datagram(now, &reply.bytes);
        }
    }
}

/// A server and a client that has a lease.
fn bound() -> (DhcpServer, DhcpClient) {
    let mut server = DhcpServer::new(settings());
    let mut client = client();
    client.start(Tick(0));
    served(&mut server, Tick(0), &mut client);
    assert!(client.bound().is_some());
    (server, client)
}

#[test]
fn gets_an_address_and_a_boot_file() {
    let (_, client) = bound();
    let want = BoundLease {
        address: Ipv4Addr::new(10, 0, 0, 100),
        server: Ipv4Addr::new(10, 0, 0, 1),
        boot_file: Some("undionly.kpxe".into()),
        next_server: Ipv4Addr::new(10, 0, 0, 1),
        lease_s: 600,
        netmask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        router: Some(Ipv4Addr::new(10, 0, 0, 1)),
        name_servers: vec![Ipv4Addr::new(10, 0, 0, 1)],
        host_name: None,
    };
    assert_eq!(client.bound(), Some(&want));
    assert_eq!(client.granted_at(), Some(Tick(0)));
    assert_eq!(client.deadline(), None);
}

#[test]
fn the_second_stage_gets_the_same_address_and_its_script() {
    let (mut server, _) = bound();
    let mut ipxe = DhcpClient::new(MAC, Some(0), true, Some([1; 16]), None);
    ipxe.start(Tick(9));
    served(&mut server, Tick(9), &mut ipxe);
    let bound = ipxe.bound().unwrap();
    assert_eq!(bound.address, Ipv4Addr::new(10, 0, 0, 100));
    let script = bound.boot_file.as_deref().unwrap();
    assert!(script.ends_with("/script.ipxe"), "{script}");
}

#[test]
fn works_through_a_relay() {
    let mut server = DhcpServer::new(settings());
    let relay = Some(Ipv4Addr::new(10, 0, 1, 200));
    let mut client = DhcpClient::new(MAC, Some(7), false, None, relay);
    client.start(Tick(0));
    served(&mut server, Tick(0), &mut client);
    let address = client.bound().unwrap().address;
    assert_eq!(address, Ipv4Addr::new(10, 0, 1, 100));
}

#[test]
fn sends_again_with_doubling_waits_and_gives_up() {
    let mut client = client();
    client.start(Tick(0));
    let mut waits = vec![];
    let mut sent = 0;
    let mut now = Tick(0);
    while let Some(at) = client.deadline() {
        sent += usize::from(client.transmit().is_some());
        assert_eq!(client.transmit(), None);
        waits.push(at.since_ms(now));
        now = at;
        client.tick(Tick(at.0 - 1));
        assert_eq!(client.transmit(), None, "too early");
        client.tick(at);
    }
    assert_eq!(waits[..5], [1000, 2000, 4000, 8000, 8000]);
    assert_eq!(sent, DISCOVERS_MAX as usize);
    assert!(client.has_given_up());
}

#[test]
fn starts_over_when_the_request_is_not_answered() {
    let mut server = DhcpServer::new(settings());
    let mut client = client();
    client.start(Tick(0));
    let discover = client.transmit().unwrap();
    let arrived = DhcpArrival::datagram(
        Ipv4Addr::new(10, 0, 0, 1),
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
    );
    let offer = server.handle(Tick(0), &discover, arrived, |_| true);
    client.datagram(Tick(0), &offer.reply.unwrap().bytes);
    let kind = |client: &mut DhcpClient| {
        let bytes = client.transmit().unwrap();
        message::decode(&bytes, 1).unwrap().message_type
    };
    for _ in 0..REQUESTS_MAX {
        assert_eq!(kind(&mut client), DhcpMessageType::Request);
        client.tick(client.deadline().unwrap());
    }
    assert_eq!(kind(&mut client), DhcpMessageType::Discover);
}

#[test]
fn renews_without_a_new_address_and_keeps_it_without_a_reply() {
    let (mut server, mut client) = bound();
    client.renew(Tick(300_000));
    served(&mut server, Tick(300_000), &mut client);
    assert_eq!(client.deadline(), None);
    client.renew(Tick(400_000));
    while let Some(at) = client.deadline() {
        client.tick(at);
    }
    assert!(client.bound().is_some());
}

#[test]
fn starts_over_when_refused() {
    let (_, mut client) = bound();
    let mut other = DhcpServer::new(settings());
    let lease = trivet_model::Lease {
        mac: MacAddr([2, 0, 0, 0, 0, 7]),
        address: Ipv4Addr::new(10, 0, 0, 100),
    };
    other.restore(Tick(0), lease, |_| true);
    client.renew(Tick(1));
    served(&mut other, Tick(1), &mut client);
    let address = client.bound().unwrap().address;
    assert_eq!(address, Ipv4Addr::new(10, 0, 0, 101));
}

#[test]
fn a_release_gives_the_address_back() {
    let (mut server, mut client) = bound();
    let bytes = client.release().unwrap();
    let arrived = DhcpArrival::datagram(
        Ipv4Addr::new(10, 0, 0, 1),
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
    );
    let outcome = server.handle(Tick(1), &bytes, arrived, |_| true);
    assert_eq!(outcome.changes.len(), 1);
    assert_eq!(client.bound(), None);
    assert_eq!(client.release(), None);
}

#[test]
fn answers_for_others_are_ignored() {
    let mut server = DhcpServer::new(settings());
    let mut other = DhcpClient::new(MacAddr([2, 0, 0, 0, 0, 2]), None, false, None, None);
    other.start(Tick(0));
    let discover = other.transmit().unwrap();
    let arrived = DhcpArrival::datagram(
        Ipv4Addr::new(10, 0, 0, 1),
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
    );
    let offer = server.handle(Tick(0), &discover, arrived, |_| true);
    let mut client = client();
    client.start(Tick(0));
    client.transmit();
    client.datagram(Tick(0), &offer.reply.unwrap().bytes);
    assert_eq!(client.transmit(), None);
}

/// Offsets of the fields of BOOTP (RFC 951).
const FLAGS_AT: usize = 10;

#[test]
fn the_client_of_the_agent_gets_replies_by_broadcast_until_it_has_an_address() {
    let mut server = DhcpServer::new(settings());
    let mut client = DhcpClient::for_agent(MAC);
    client.start(Tick(0));
    let discover = client.transmit().unwrap();
    assert_eq!(discover[FLAGS_AT], 0x80);
    let class = b"trivet-agent";
    assert!(discover.windows(class.len()).any(|part| part == class));
    client.start(Tick(0));
    served(&mut server, Tick(0), &mut client);
    let bound = client.bound().unwrap().clone();
    assert_eq!(bound.netmask, Some(Ipv4Addr::new(255, 255, 255, 0)));
    client.renew(Tick(300_000));
    // It has an address: the reply may come there.
    let renewal = client.clone().transmit().unwrap();
    assert_eq!(renewal[FLAGS_AT], 0);
    served(&mut server, Tick(300_000), &mut client);
    assert_eq!(client.granted_at(), Some(Tick(300_000)));
    assert_eq!(client.bound(), Some(&bound));
    // Without a lease there is no time of one.
    client.start(Tick(400_000));
    assert_eq!((client.granted_at(), client.bound()), (None, None));
}

#[test]
fn at_most_three_name_servers_are_taken() {
    let (mut server, mut client) = bound();
    client.renew(Tick(1));
    let request = client.transmit().unwrap();
    let arrived = DhcpArrival::datagram(
        Ipv4Addr::new(10, 0, 0, 1),
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
    );
    let reply = server
        .handle(Tick(1), &request, arrived, |_| true)
        .reply
        .unwrap();
    let mut bytes = reply.bytes;
    // Option 6 with five servers, before the other options, behind the magic cookie.
    let mut option = vec![6, 20];
    option.extend_from_slice(&[9; 20]);
    bytes.splice(240..240, option);
    client.datagram(Tick(2), &bytes);
    let servers = &client.bound().unwrap().name_servers;
    assert!(servers.len() <= NAME_SERVERS_MAX, "{servers:?}");
}
