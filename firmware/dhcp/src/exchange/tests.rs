//! DHCP modes: which client gets which reply on which link.

use super::*;
use crate::client::DhcpClient;
use crate::message::{self, code};
use crate::server::DhcpOutcome;
use crate::settings::tests::{link, settings, subnet};
use crate::writer::DhcpMessageWriter;
use trivet_model::{LinkId, MacAddr, NoteKind};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

fn server(mode: LinkMode, discovery: bool) -> DhcpServer {
    let mut settings = settings();
    let mut link = link(mode);
    link.discovery = discovery;
    link.boot.loaders_url = Some("http://10.0.0.1".into());
    settings.links = vec![link];
    DhcpServer::new(settings)
}

fn on_port(port: u16) -> DhcpArrival {
    let source = if port == BOOT_PORT {
        CLIENT
    } else {
        Ipv4Addr::UNSPECIFIED
    };
    DhcpArrival {
        port,
        ..DhcpArrival::datagram(LOCAL, SocketAddrV4::new(source, 68))
    }
}

fn discover(arch: Option<u16>, ipxe: bool) -> Vec<u8> {
    let mut client = DhcpClient::new(MAC, arch, ipxe, Some([7; 16]), None);
    client.start(Tick(0));
    client.transmit().unwrap()
}

/// A boot service request of firmware: a REQUEST from a client that already has its address.
fn boot_request(kind: DhcpMessageType, class: &[u8], arch: u8) -> Vec<u8> {
    let mut writer = DhcpMessageWriter::new(1, [3; 4], MAC);
    writer.ciaddr(CLIENT);
    writer.option(code::MESSAGE_TYPE, &[kind.number()]);
    writer.option(code::VENDOR_CLASS, class);
    writer.option(code::ARCH, &[0, arch]);
    writer.option(code::MACHINE_ID, &[0; 17]);
    writer.finish(None)
}

fn handle(server: &mut DhcpServer, bytes: &[u8], known: bool) -> DhcpOutcome {
    server.handle(Tick(0), bytes, on_port(67), move |_| known)
}

#[track_caller]
fn reply(outcome: &DhcpOutcome) -> message::DhcpMessage<'_> {
    let reply = outcome.reply.as_ref().expect("there is a reply");
    message::decode(&reply.bytes, 2).unwrap()
}

/// An option of a reply, including options that servers do not read.
fn option(outcome: &DhcpOutcome, code: u8) -> Option<Vec<u8>> {
    use dhcproto::v4::{Message, OptionCode};
    use dhcproto::{Decodable, Decoder, Encodable};
    let reply = outcome.reply.as_ref().expect("there is a reply");
    let message = Message::decode(&mut Decoder::new(&reply.bytes)).unwrap();
    let option = message.opts().get(OptionCode::from(code))?;
    Some(option.to_vec().unwrap()[2..].to_vec())
}

#[test]
fn listen_mode_never_replies() {
    let mut server = server(LinkMode::Listen, true);
    for arch in [None, Some(0), Some(7), Some(16)] {
        for ipxe in [false, true] {
            let outcome = handle(&mut server, &discover(arch, ipxe), true);
            assert_eq!(outcome.dropped, Some(Reason::OnlyListening));
            assert_eq!((outcome.reply, outcome.probe), (None, None));
            assert!(outcome.seen.is_some());
        }
    }
    for kind in [
        DhcpMessageType::Request,
        DhcpMessageType::Inform,
        DhcpMessageType::Release,
        DhcpMessageType::Decline,
    ] {
        for port in [67, BOOT_PORT] {
            let bytes = boot_request(kind, b"PXEClient", 0);
            let outcome = server.handle(Tick(0), &bytes, on_port(port), |_| true);
            assert_eq!(outcome.reply, None, "{kind:?} on {port}");
        }
    }
}

#[test]
fn reservations_serve_the_known_even_if_discovery_is_on() {
    let mut server = server(LinkMode::Reservations, true);
    let outcome = handle(&mut server, &discover(None, false), false);
    assert_eq!(outcome.dropped, Some(Reason::UnknownClient));
    let outcome = handle(&mut server, &discover(None, false), true);
    assert_eq!(reply(&outcome).message_type, DhcpMessageType::Offer);
}

#[test]
fn a_server_serves_unknown_machines_where_discovery_is_on() {
    for (discovery, served) in [(true, true), (false, false)] {
        let mut server = server(LinkMode::Server, discovery);
        let outcome = handle(&mut server, &discover(None, false), false);
        assert_eq!(outcome.reply.is_some(), served);
        assert!(
            handle(&mut server, &discover(None, false), true)
                .reply
                .is_some()
        );
    }
}

#[test]
fn a_link_that_is_not_listed_serves() {
    let mut server = server(LinkMode::Listen, false);
    let elsewhere = DhcpArrival {
        link: LinkId(1),
        ..on_port(67)
    };
    let outcome = server.handle(Tick(0), &discover(None, false), elsewhere, |_| false);
    assert_eq!(reply(&outcome).message_type, DhcpMessageType::Offer);
}

#[test]
fn proxy_mode_gives_pxe_its_file_and_no_address() {
    for (arch, file, control) in [
        (0, "undionly.kpxe", Some(vec![6, 1, 8, 255])),
        (7, "snponly.efi", None),
    ] {
        let mut server = server(LinkMode::Proxy, true);
        let outcome = handle(&mut server, &discover(Some(arch), false), false);
        let answer = reply(&outcome);
        assert_eq!(answer.message_type, DhcpMessageType::Offer);
        assert_eq!(answer.yiaddr(), Ipv4Addr::UNSPECIFIED);
        assert_eq!(answer.siaddr(), LOCAL);
        assert_eq!(answer.server(), Some(LOCAL));
        assert_eq!(answer.vendor_class(), Some(b"PXEClient".as_slice()));
        assert_eq!(answer.uuid(), Some([7; 16]));
        assert_eq!(answer.boot_file(), Some(file));
        assert!(answer.wants_broadcast());
        assert_eq!(option(&outcome, 43), control);
        for address in [1, 3, 51, 58, 59] {
            assert_eq!(option(&outcome, address), None, "option {address}");
        }
        let to = outcome.reply.as_ref().unwrap().to;
        assert!(matches!(
            to,
            DhcpDestination::Client {
                broadcast: true,
                ..
            }
        ));
        assert_eq!((outcome.changes.len(), outcome.probe), (0, None));
    }
}

#[test]
fn proxy_mode_gives_ipxe_its_script() {
    let mut server = server(LinkMode::Proxy, true);
    let outcome = handle(&mut server, &discover(Some(0), true), false);
    let answer = reply(&outcome);
    assert_eq!(answer.vendor_class(), Some(b"PXEClient".as_slice()));
    assert!(answer.boot_file().unwrap().ends_with("/script.ipxe"));
    assert_eq!(option(&outcome, 175), None, "it must not ignore proxies");
    assert_eq!(option(&outcome, 43), None);
}

#[test]
fn proxy_mode_gives_http_boot_its_url() {
    let mut server = server(LinkMode::Proxy, true);
    let outcome = handle(&mut server, &discover(Some(16), false), false);
    let answer = reply(&outcome);
    assert_eq!(answer.yiaddr(), Ipv4Addr::UNSPECIFIED);
    assert_eq!(answer.vendor_class(), Some(b"HTTPClient".as_slice()));
    assert_eq!(answer.boot_file(), Some("http://10.0.0.1/snponly.efi"));
}

#[test]
fn proxy_mode_replies_to_no_other_client() {
    let mut server = server(LinkMode::Proxy, true);
    let outcome = handle(&mut server, &discover(None, false), true);
    assert_eq!(outcome.dropped, Some(Reason::OnlyBoot));
    let outcome = handle(&mut server, &discover(Some(11), false), true);
    assert_eq!(outcome.dropped, Some(Reason::NothingToBoot));
    for kind in [
        DhcpMessageType::Request,
        DhcpMessageType::Inform,
        DhcpMessageType::Release,
        DhcpMessageType::Decline,
    ] {
        let outcome = handle(&mut server, &boot_request(kind, b"PXEClient", 0), true);
        assert_eq!(outcome.dropped, Some(Reason::OnlyBoot), "{kind:?}");
    }
}

#[test]
fn proxy_mode_replies_to_unknown_machines_with_discovery_only() {
    let mut server = server(LinkMode::Proxy, false);
    let outcome = handle(&mut server, &discover(Some(0), false), false);
    assert_eq!(outcome.dropped, Some(Reason::UnknownClient));
    assert!(
        handle(&mut server, &discover(Some(0), false), true)
            .reply
            .is_some()
    );
    let bytes = boot_request(DhcpMessageType::Request, b"PXEClient", 0);
    let outcome = server.handle(Tick(0), &bytes, on_port(BOOT_PORT), |_| false);
    assert_eq!(outcome.dropped, Some(Reason::UnknownClient));
}

#[test]
fn the_boot_service_replies_to_the_sender() {
    for mode in [LinkMode::Proxy, LinkMode::Server] {
        for kind in [DhcpMessageType::Request, DhcpMessageType::Inform] {
            let mut server = server(mode, true);
            let bytes = boot_request(kind, b"PXEClient:Arch:00007", 7);
            let outcome = server.handle(Tick(0), &bytes, on_port(BOOT_PORT), |_| false);
            let answer = reply(&outcome);
            assert_eq!(answer.message_type, DhcpMessageType::Ack);
            assert_eq!(answer.ciaddr(), CLIENT);
            assert_eq!(answer.yiaddr(), Ipv4Addr::UNSPECIFIED);
            assert_eq!(answer.boot_file(), Some("snponly.efi"));
            assert_eq!(answer.siaddr(), LOCAL);
            assert_eq!(answer.vendor_class(), Some(b"PXEClient".as_slice()));
            let to = outcome.reply.as_ref().unwrap().to;
            assert_eq!(
                to,
                DhcpDestination::BootServiceClient(SocketAddrV4::new(CLIENT, 68))
            );
            assert_eq!(outcome.changes, []);
        }
    }
}

#[test]
fn the_boot_service_does_not_reply_to_a_client_without_an_address() {
    let mut server = server(LinkMode::Proxy, true);
    let nowhere = DhcpArrival {
        port: BOOT_PORT,
        ..on_port(67)
    };
    let bytes = boot_request(DhcpMessageType::Request, b"PXEClient", 0);
    let outcome = server.handle(Tick(0), &bytes, nowhere, |_| true);
    assert_eq!(outcome.dropped, Some(Reason::NoAddress));
    let system = boot_request(DhcpMessageType::Inform, b"udhcp", 0);
    let outcome = server.handle(Tick(0), &system, on_port(BOOT_PORT), |_| true);
    assert_eq!(outcome.dropped, Some(Reason::OnlyBoot));
}

#[test]
fn two_links_have_their_own_modes_and_networks() {
    let mut settings = settings();
    let mut second = link(LinkMode::Server);
    second.server = subnet(1).server;
    settings.links = vec![link(LinkMode::Listen), second];
    let mut server = DhcpServer::new(settings);
    let bytes = discover(None, false);
    assert!(handle(&mut server, &bytes, true).reply.is_none());
    let there = DhcpArrival {
        link: LinkId(1),
        local: subnet(1).server,
        ..on_port(67)
    };
    let outcome = server.handle(Tick(0), &bytes, there, |_| true);
    assert_eq!(reply(&outcome).yiaddr(), subnet(1).first);
    assert_eq!(outcome.seen.unwrap().link, LinkId(1));
}

#[test]
fn a_new_offer_is_probed_on_the_link_and_not_behind_a_relay() {
    let mut server = server(LinkMode::Server, true);
    let first = subnet(0).first;
    assert_eq!(
        handle(&mut server, &discover(None, false), false).probe,
        Some(first)
    );
    assert_eq!(
        handle(&mut server, &discover(None, false), false).probe,
        None
    );
    let relay = Some(Ipv4Addr::new(10, 0, 1, 254));
    let mut client = DhcpClient::new(MacAddr([2; 6]), None, false, None, relay);
    client.start(Tick(0));
    let outcome = handle(&mut server, &client.transmit().unwrap(), false);
    assert!(outcome.reply.is_some());
    assert_eq!(outcome.probe, None);
}

#[test]
fn an_unknown_machine_gets_only_what_it_was_offered() {
    let mut server = server(LinkMode::Server, true);
    let select = || {
        let mut writer = DhcpMessageWriter::new(1, [3; 4], MAC);
        writer.option(code::MESSAGE_TYPE, &[DhcpMessageType::Request.number()]);
        writer.option(code::REQUESTED_ADDRESS, &subnet(0).first.octets());
        writer.option(code::SERVER_ID, &LOCAL.octets());
        writer.finish(None)
    };
    let refused = handle(&mut server, &select(), false);
    assert_eq!(reply(&refused).message_type, DhcpMessageType::Nak);
    assert_eq!(refused.changes, [], "no lease is recorded");
    let known = handle(&mut server.clone(), &select(), true);
    assert_eq!(
        reply(&known).message_type,
        DhcpMessageType::Ack,
        "an enrolled node may request it"
    );
    handle(&mut server, &discover(None, false), false);
    let offered = handle(&mut server, &select(), false);
    assert_eq!(reply(&offered).message_type, DhcpMessageType::Ack);
}

/// An interface that only listens to its own network may still receive frames from relays.
#[test]
fn a_relayed_frame_follows_the_mode_of_the_relays_network() {
    let mut settings = settings();
    let far = |third: u8, mode| DhcpLinkSettings {
        relayed: true,
        network: Some((subnet(third).network, 24)),
        discovery: mode == LinkMode::Server,
        ..link(mode)
    };
    settings.links = vec![
        link(LinkMode::Proxy),
        far(0, LinkMode::Reservations),
        far(1, LinkMode::Server),
        DhcpLinkSettings {
            relayed: true,
            ..link(LinkMode::Proxy)
        },
    ];
    let mut server = DhcpServer::new(settings);
    let mut through = |relay: [u8; 4], arch| {
        let relay = Some(Ipv4Addr::from(relay));
        let mut client = DhcpClient::new(MAC, arch, false, None, relay);
        client.start(Tick(0));
        let outcome = handle(&mut server, &client.transmit().unwrap(), false);
        outcome.reply.map(|reply| {
            let frame = message::decode(&reply.bytes, 2).unwrap();
            frame.yiaddr()
        })
    };
    assert_eq!(through([10, 0, 0, 254], Some(7)), None, "unknown machine");
    assert_eq!(through([10, 0, 1, 254], Some(7)), Some(subnet(1).first));
    let elsewhere = through([192, 0, 2, 1], Some(7));
    assert_eq!(elsewhere, Some(Ipv4Addr::UNSPECIFIED), "boot file only");
}

#[test]
fn a_client_offered_an_address_in_use_is_refused_and_gets_another() {
    let mut server = server(LinkMode::Server, true);
    let mut client = DhcpClient::new(MAC, None, false, None, None);
    client.start(Tick(0));
    let outcome = handle(&mut server, &client.transmit().unwrap(), false);
    client.datagram(Tick(0), &outcome.reply.as_ref().unwrap().bytes);
    assert!(server.claimed(Tick(0), outcome.probe.unwrap(), MacAddr([4; 6])));
    let mut kinds = vec![];
    while let Some(bytes) = client.transmit() {
        let outcome = handle(&mut server, &bytes, false);
        kinds.push(reply(&outcome).message_type);
        client.datagram(Tick(0), &outcome.reply.unwrap().bytes);
    }
    assert_eq!(
        kinds,
        [
            DhcpMessageType::Nak,
            DhcpMessageType::Offer,
            DhcpMessageType::Ack
        ]
    );
    let got = client.bound().unwrap().address;
    assert_eq!(got, Ipv4Addr::new(10, 0, 0, 101));
}

#[test]
fn an_exchange_becomes_a_readable_note() {
    let mut server = server(LinkMode::Server, false);
    let message_of = |outcome: DhcpOutcome| outcome.note.unwrap().to_string();
    let offer = handle(&mut server, &discover(Some(0), false), true);
    assert_eq!(
        message_of(offer),
        "02:00:00:00:00:09 (BIOS PXE): DISCOVER, OFFER 10.0.0.100, boot undionly.kpxe"
    );
    let silence = handle(&mut server, &discover(Some(7), false), false);
    assert_eq!(
        message_of(silence),
        "02:00:00:00:00:09 (UEFI x64 PXE): DISCOVER, no answer: the machine is not known and \
         only known machines are served here"
    );
    let mut writer = DhcpMessageWriter::new(1, [1; 4], MAC);
    writer.option(code::MESSAGE_TYPE, &[3]);
    writer.address_option(code::SERVER_ID, LOCAL);
    writer.address_option(code::REQUESTED_ADDRESS, Ipv4Addr::new(10, 0, 0, 2));
    let refusal = handle(&mut server, &writer.finish(None), true);
    let Some(NoteKind::Dhcp {
        reply: message_of,
        why,
        ..
    }) = refusal.note
    else {
        panic!()
    };
    assert_eq!(
        (message_of, why),
        (Some("NAK"), Some("the address is not free"))
    );
}
