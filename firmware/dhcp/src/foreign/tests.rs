use super::*;
use crate::message::code;
use crate::settings::tests::{link, settings};
use crate::writer::DhcpMessageWriter;
use core::net::SocketAddrV4;
use trivet_model::{LinkMode, Tick};

const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SERVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xee]);

fn arrival(source: Ipv4Addr) -> DhcpArrival {
    DhcpArrival {
        port: 68,
        from: Some(SERVER),
        ..DhcpArrival::datagram(OURS, SocketAddrV4::new(source, 67))
    }
}

fn answer(
    kind: DhcpMessageType,
    server: Ipv4Addr,
    change: impl FnOnce(&mut DhcpMessageWriter),
) -> Vec<u8> {
    let mut writer = DhcpMessageWriter::new(2, [1; 4], CLIENT);
    writer.option(code::MESSAGE_TYPE, &[kind.number()]);
    writer.address_option(code::SERVER_ID, server);
    change(&mut writer);
    writer.finish(None)
}

fn foreign_server(bytes: &[u8], arrived: DhcpArrival) -> Option<DhcpForeignServer> {
    let mut settings = settings();
    settings.links = vec![link(LinkMode::Listen)];
    settings.links[0].server = Ipv4Addr::new(10, 7, 7, 7);
    let outcome = DhcpServer::new(settings).handle(Tick(0), bytes, arrived, |_| true);
    assert_eq!((outcome.reply, outcome.seen), (None, None));
    outcome.foreign_server
}

#[test]
fn a_reply_reveals_its_server() {
    for kind in [
        DhcpMessageType::Offer,
        DhcpMessageType::Ack,
        DhcpMessageType::Nak,
    ] {
        let bytes = answer(kind, OTHER, |writer| writer.yiaddr([10, 0, 0, 50].into()));
        let want = DhcpForeignServer {
            address: OTHER,
            mac: Some(SERVER),
            proxy: false,
            relayed: false,
        };
        assert_eq!(
            foreign_server(&bytes, arrival(OTHER)),
            Some(want),
            "{kind:?}"
        );
    }
}

#[test]
fn without_an_identifier_it_is_named_by_its_source_address() {
    let mut writer = DhcpMessageWriter::new(2, [1; 4], CLIENT);
    writer.option(code::MESSAGE_TYPE, &[2]);
    let found = foreign_server(&writer.finish(None), arrival(OTHER)).unwrap();
    assert_eq!(found.address, OTHER);
}

#[test]
fn an_offer_without_address_comes_from_a_proxy() {
    let bytes = answer(DhcpMessageType::Offer, OTHER, |_| ());
    assert!(foreign_server(&bytes, arrival(OTHER)).unwrap().proxy);
    let to_inform = answer(DhcpMessageType::Ack, OTHER, |_| ());
    assert!(!foreign_server(&to_inform, arrival(OTHER)).unwrap().proxy);
    let boots = answer(DhcpMessageType::Ack, OTHER, |writer| {
        writer.option(code::VENDOR_CLASS, b"PXEClient");
    });
    assert!(foreign_server(&boots, arrival(OTHER)).unwrap().proxy);
}

#[test]
fn our_own_replies_are_not_foreign() {
    let second = Ipv4Addr::new(10, 0, 1, 1);
    let of_a_link = Ipv4Addr::new(10, 7, 7, 7);
    for ours in [OURS, second, of_a_link] {
        assert_eq!(
            foreign_server(
                &answer(DhcpMessageType::Offer, ours, |_| ()),
                arrival(OTHER)
            ),
            None
        );
        assert_eq!(
            foreign_server(
                &answer(DhcpMessageType::Offer, OTHER, |_| ()),
                arrival(ours)
            ),
            None
        );
    }
}

#[test]
fn behind_a_relay_the_hardware_address_is_not_the_servers() {
    let bytes = answer(DhcpMessageType::Offer, OTHER, |writer| {
        writer.giaddr([10, 0, 0, 254].into());
    });
    let found = foreign_server(&bytes, arrival(OTHER)).unwrap();
    assert_eq!((found.mac, found.relayed), (None, true));
}

#[test]
fn invalid_frames_reveal_no_server() {
    for address in [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
    ] {
        assert_eq!(
            foreign_server(
                &answer(DhcpMessageType::Offer, address, |_| ()),
                arrival(OTHER)
            ),
            None
        );
    }
    assert_eq!(
        foreign_server(
            &answer(DhcpMessageType::Discover, OTHER, |_| ()),
            arrival(OTHER)
        ),
        None
    );
    let mut bytes = answer(DhcpMessageType::Offer, OTHER, |_| ());
    bytes.truncate(240);
    assert_eq!(foreign_server(&bytes, arrival(OTHER)), None);
}

#[test]
fn a_client_that_chose_another_server_reveals_it_without_its_hardware_address() {
    let request = |kind: DhcpMessageType, server| {
        let mut writer = DhcpMessageWriter::new(1, [1; 4], CLIENT);
        writer.option(code::MESSAGE_TYPE, &[kind.number()]);
        writer.address_option(code::SERVER_ID, server);
        writer.address_option(code::REQUESTED_ADDRESS, Ipv4Addr::new(10, 0, 0, 50));
        let bytes = writer.finish(None);
        let mut server = DhcpServer::new(settings());
        server
            .handle(Tick(0), &bytes, arrival(OTHER), |_| true)
            .foreign_server
    };
    let want = DhcpForeignServer {
        address: OTHER,
        mac: None,
        proxy: false,
        relayed: false,
    };
    assert_eq!(request(DhcpMessageType::Request, OTHER), Some(want));
    assert_eq!(request(DhcpMessageType::Request, OURS), None);
    assert_eq!(request(DhcpMessageType::Discover, OTHER), None);
    assert_eq!(
        request(DhcpMessageType::Request, Ipv4Addr::UNSPECIFIED),
        None
    );
}

#[test]
fn foreign_leases_are_known_from_servers_and_from_clients() {
    let address = Ipv4Addr::new(10, 0, 0, 50);
    let lease = Some(Lease {
        mac: CLIENT,
        address,
    });
    let mut server = DhcpServer::new(settings());
    let mut lease_of = |bytes: &[u8], port| {
        let arrived = DhcpArrival {
            port,
            ..arrival(OTHER)
        };
        server
            .handle(Tick(0), bytes, arrived, |_| true)
            .foreign_lease
    };
    let ack = answer(DhcpMessageType::Ack, OTHER, |writer| writer.yiaddr(address));
    assert_eq!(lease_of(&ack, 68), lease);
    let offer = answer(DhcpMessageType::Offer, OTHER, |writer| {
        writer.yiaddr(address);
    });
    assert_eq!(lease_of(&offer, 68), None, "it may choose another offer");
    let request_of = |server: Ipv4Addr, has: Ipv4Addr| {
        let mut writer = DhcpMessageWriter::new(1, [1; 4], CLIENT);
        writer.ciaddr(has);
        writer.option(code::MESSAGE_TYPE, &[DhcpMessageType::Request.number()]);
        writer.address_option(code::SERVER_ID, server);
        writer.address_option(code::REQUESTED_ADDRESS, address);
        writer.finish(None)
    };
    assert_eq!(
        lease_of(&request_of(OTHER, Ipv4Addr::UNSPECIFIED), 67),
        lease
    );
    assert_eq!(lease_of(&request_of(OURS, Ipv4Addr::UNSPECIFIED), 67), None);
    assert_eq!(lease_of(&request_of(OURS, address), BOOT_PORT), lease);
    assert_eq!(
        lease_of(&request_of(OURS, Ipv4Addr::UNSPECIFIED), BOOT_PORT),
        None
    );
}
