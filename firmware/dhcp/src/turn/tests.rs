//! Modes: who is answered what on which link.

use super::*;
use crate::client::Client;
use crate::frame::{self, code};
use crate::server::Outcome;
use crate::settings::tests::{link, settings, subnet};
use crate::writer::Writer;
use trivet_model::{LinkId, MacAddr, NoteKind};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

fn server(mode: LinkMode, discovery: bool) -> Server {
    let mut settings = settings();
    let mut link = link(mode);
    link.discovery = discovery;
    link.boot.loaders_url = Some("http://10.0.0.1".into());
    settings.links = vec![link];
    Server::new(settings)
}

fn on_port(port: u16) -> Arrival {
    let source = if port == BOOT_PORT {
        CLIENT
    } else {
        Ipv4Addr::UNSPECIFIED
    };
    Arrival {
        port,
        ..Arrival::datagram(LOCAL, SocketAddrV4::new(source, 68))
    }
}

fn discover(arch: Option<u16>, ipxe: bool) -> Vec<u8> {
    let mut client = Client::new(MAC, arch, ipxe, Some([7; 16]), None);
    client.start(Tick(0));
    client.transmit().unwrap()
}

/// What firmware asks a boot server: a REQUEST that has its address already.
fn boot_request(kind: Kind, class: &[u8], arch: u8) -> Vec<u8> {
    let mut writer = Writer::new(1, [3; 4], MAC);
    writer.ciaddr(CLIENT);
    writer.option(code::KIND, &[kind.number()]);
    writer.option(code::CLASS, class);
    writer.option(code::ARCH, &[0, arch]);
    writer.option(code::MACHINE_ID, &[0; 17]);
    writer.finish(None)
}

fn ask(server: &mut Server, bytes: &[u8], known: bool) -> Outcome {
    server.handle(Tick(0), bytes, on_port(67), move |_| known)
}

#[track_caller]
fn reply(outcome: &Outcome) -> frame::Frame<'_> {
    let reply = outcome.reply.as_ref().expect("there is a reply");
    frame::decode(&reply.bytes, 2).unwrap()
}

/// An option of a reply, also one that servers do not read.
fn option(outcome: &Outcome, code: u8) -> Option<Vec<u8>> {
    use dhcproto::v4::{Message, OptionCode};
    use dhcproto::{Decodable, Decoder, Encodable};
    let reply = outcome.reply.as_ref().expect("there is a reply");
    let message = Message::decode(&mut Decoder::new(&reply.bytes)).unwrap();
    let option = message.opts().get(OptionCode::from(code))?;
    Some(option.to_vec().unwrap()[2..].to_vec())
}

#[test]
fn who_listens_never_says_a_word() {
    let mut server = server(LinkMode::Listen, true);
    for arch in [None, Some(0), Some(7), Some(16)] {
        for ipxe in [false, true] {
            let outcome = ask(&mut server, &discover(arch, ipxe), true);
            assert_eq!(outcome.dropped, Some(Reason::OnlyListening));
            assert_eq!((outcome.reply, outcome.probe), (None, None));
            assert!(outcome.seen.is_some());
        }
    }
    for kind in [Kind::Request, Kind::Inform, Kind::Release, Kind::Decline] {
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
    let outcome = ask(&mut server, &discover(None, false), false);
    assert_eq!(outcome.dropped, Some(Reason::UnknownClient));
    let outcome = ask(&mut server, &discover(None, false), true);
    assert_eq!(reply(&outcome).kind, Kind::Offer);
}

#[test]
fn a_server_serves_strangers_where_discovery_is_on() {
    for (discovery, served) in [(true, true), (false, false)] {
        let mut server = server(LinkMode::Server, discovery);
        let outcome = ask(&mut server, &discover(None, false), false);
        assert_eq!(outcome.reply.is_some(), served);
        assert!(
            ask(&mut server, &discover(None, false), true)
                .reply
                .is_some()
        );
    }
}

#[test]
fn a_link_that_is_not_listed_serves() {
    let mut server = server(LinkMode::Listen, false);
    let elsewhere = Arrival {
        link: LinkId(1),
        ..on_port(67)
    };
    let outcome = server.handle(Tick(0), &discover(None, false), elsewhere, |_| false);
    assert_eq!(reply(&outcome).kind, Kind::Offer);
}

#[test]
fn beside_another_server_pxe_is_told_its_file_and_no_address() {
    for (arch, file, control) in [
        (0, "undionly.kpxe", Some(vec![6, 1, 8, 255])),
        (7, "snponly.efi", None),
    ] {
        let mut server = server(LinkMode::Proxy, true);
        let outcome = ask(&mut server, &discover(Some(arch), false), false);
        let answer = reply(&outcome);
        assert_eq!(answer.kind, Kind::Offer);
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
            Destination::Client {
                broadcast: true,
                ..
            }
        ));
        assert_eq!((outcome.changes.len(), outcome.probe), (0, None));
    }
}

#[test]
fn beside_another_server_ipxe_is_told_its_script() {
    let mut server = server(LinkMode::Proxy, true);
    let outcome = ask(&mut server, &discover(Some(0), true), false);
    let answer = reply(&outcome);
    assert_eq!(answer.vendor_class(), Some(b"PXEClient".as_slice()));
    assert!(answer.boot_file().unwrap().ends_with("/script.ipxe"));
    assert_eq!(option(&outcome, 175), None, "it must not ignore proxies");
    assert_eq!(option(&outcome, 43), None);
}

#[test]
fn beside_another_server_http_boot_is_told_its_url() {
    let mut server = server(LinkMode::Proxy, true);
    let outcome = ask(&mut server, &discover(Some(16), false), false);
    let answer = reply(&outcome);
    assert_eq!(answer.yiaddr(), Ipv4Addr::UNSPECIFIED);
    assert_eq!(answer.vendor_class(), Some(b"HTTPClient".as_slice()));
    assert_eq!(answer.boot_file(), Some("http://10.0.0.1/snponly.efi"));
}

#[test]
fn beside_another_server_nobody_else_is_answered() {
    let mut server = server(LinkMode::Proxy, true);
    let outcome = ask(&mut server, &discover(None, false), true);
    assert_eq!(outcome.dropped, Some(Reason::OnlyBoot));
    let outcome = ask(&mut server, &discover(Some(11), false), true);
    assert_eq!(outcome.dropped, Some(Reason::NothingToBoot));
    for kind in [Kind::Request, Kind::Inform, Kind::Release, Kind::Decline] {
        let outcome = ask(&mut server, &boot_request(kind, b"PXEClient", 0), true);
        assert_eq!(outcome.dropped, Some(Reason::OnlyBoot), "{kind:?}");
    }
}

#[test]
fn beside_another_server_strangers_are_answered_with_discovery_only() {
    let mut server = server(LinkMode::Proxy, false);
    let outcome = ask(&mut server, &discover(Some(0), false), false);
    assert_eq!(outcome.dropped, Some(Reason::UnknownClient));
    assert!(
        ask(&mut server, &discover(Some(0), false), true)
            .reply
            .is_some()
    );
    let bytes = boot_request(Kind::Request, b"PXEClient", 0);
    let outcome = server.handle(Tick(0), &bytes, on_port(BOOT_PORT), |_| false);
    assert_eq!(outcome.dropped, Some(Reason::UnknownClient));
}

#[test]
fn the_boot_service_answers_who_asked() {
    for mode in [LinkMode::Proxy, LinkMode::Server] {
        for kind in [Kind::Request, Kind::Inform] {
            let mut server = server(mode, true);
            let bytes = boot_request(kind, b"PXEClient:Arch:00007", 7);
            let outcome = server.handle(Tick(0), &bytes, on_port(BOOT_PORT), |_| false);
            let answer = reply(&outcome);
            assert_eq!(answer.kind, Kind::Ack);
            assert_eq!(answer.ciaddr(), CLIENT);
            assert_eq!(answer.yiaddr(), Ipv4Addr::UNSPECIFIED);
            assert_eq!(answer.boot_file(), Some("snponly.efi"));
            assert_eq!(answer.siaddr(), LOCAL);
            assert_eq!(answer.vendor_class(), Some(b"PXEClient".as_slice()));
            let to = outcome.reply.as_ref().unwrap().to;
            assert_eq!(to, Destination::Asker(SocketAddrV4::new(CLIENT, 68)));
            assert_eq!(outcome.changes, []);
        }
    }
}

#[test]
fn the_boot_service_answers_nobody_without_an_address() {
    let mut server = server(LinkMode::Proxy, true);
    let nowhere = Arrival {
        port: BOOT_PORT,
        ..on_port(67)
    };
    let bytes = boot_request(Kind::Request, b"PXEClient", 0);
    let outcome = server.handle(Tick(0), &bytes, nowhere, |_| true);
    assert_eq!(outcome.dropped, Some(Reason::NoAddress));
    let system = boot_request(Kind::Inform, b"udhcp", 0);
    let outcome = server.handle(Tick(0), &system, on_port(BOOT_PORT), |_| true);
    assert_eq!(outcome.dropped, Some(Reason::OnlyBoot));
}

#[test]
fn two_links_have_their_own_modes_and_networks() {
    let mut settings = settings();
    let mut second = link(LinkMode::Server);
    second.server = subnet(1).server;
    settings.links = vec![link(LinkMode::Listen), second];
    let mut server = Server::new(settings);
    let bytes = discover(None, false);
    assert!(ask(&mut server, &bytes, true).reply.is_none());
    let there = Arrival {
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
        ask(&mut server, &discover(None, false), false).probe,
        Some(first)
    );
    assert_eq!(ask(&mut server, &discover(None, false), false).probe, None);
    let relay = Some(Ipv4Addr::new(10, 0, 1, 254));
    let mut client = Client::new(MacAddr([2; 6]), None, false, None, relay);
    client.start(Tick(0));
    let outcome = ask(&mut server, &client.transmit().unwrap(), false);
    assert!(outcome.reply.is_some());
    assert_eq!(outcome.probe, None);
}

#[test]
fn a_stranger_gets_only_what_it_was_offered() {
    let mut server = server(LinkMode::Server, true);
    let select = || {
        let mut writer = Writer::new(1, [3; 4], MAC);
        writer.option(code::KIND, &[Kind::Request.number()]);
        writer.option(code::REQUESTED, &subnet(0).first.octets());
        writer.option(code::SERVER, &LOCAL.octets());
        writer.finish(None)
    };
    let refused = ask(&mut server, &select(), false);
    assert_eq!(reply(&refused).kind, Kind::Nak);
    assert_eq!(refused.changes, [], "nothing is kept for it");
    let known = ask(&mut server.clone(), &select(), true);
    assert_eq!(reply(&known).kind, Kind::Ack, "a node is believed");
    ask(&mut server, &discover(None, false), false);
    let offered = ask(&mut server, &select(), false);
    assert_eq!(reply(&offered).kind, Kind::Ack);
}

/// One interface that only listens to its own network may still be where relays send to.
#[test]
fn what_a_relay_passes_on_follows_the_rules_of_the_network_it_stands_in() {
    let mut settings = settings();
    let far = |third: u8, mode| Link {
        relayed: true,
        network: Some((subnet(third).network, 24)),
        discovery: mode == LinkMode::Server,
        ..link(mode)
    };
    settings.links = vec![
        link(LinkMode::Proxy),
        far(0, LinkMode::Reservations),
        far(1, LinkMode::Server),
        Link {
            relayed: true,
            ..link(LinkMode::Proxy)
        },
    ];
    let mut server = Server::new(settings);
    let mut through = |relay: [u8; 4], arch| {
        let relay = Some(Ipv4Addr::from(relay));
        let mut client = Client::new(MAC, arch, false, None, relay);
        client.start(Tick(0));
        let outcome = ask(&mut server, &client.transmit().unwrap(), false);
        outcome.reply.map(|reply| {
            let frame = frame::decode(&reply.bytes, 2).unwrap();
            frame.yiaddr()
        })
    };
    assert_eq!(through([10, 0, 0, 254], Some(7)), None, "nobody knows it");
    assert_eq!(through([10, 0, 1, 254], Some(7)), Some(subnet(1).first));
    let elsewhere = through([192, 0, 2, 1], Some(7));
    assert_eq!(elsewhere, Some(Ipv4Addr::UNSPECIFIED), "only what to boot");
}

#[test]
fn who_was_offered_a_taken_address_is_refused_and_gets_another() {
    let mut server = server(LinkMode::Server, true);
    let mut client = Client::new(MAC, None, false, None, None);
    client.start(Tick(0));
    let outcome = ask(&mut server, &client.transmit().unwrap(), false);
    client.datagram(Tick(0), &outcome.reply.as_ref().unwrap().bytes);
    assert!(server.claimed(Tick(0), outcome.probe.unwrap(), MacAddr([4; 6])));
    let mut kinds = vec![];
    while let Some(bytes) = client.transmit() {
        let outcome = ask(&mut server, &bytes, false);
        kinds.push(reply(&outcome).kind);
        client.datagram(Tick(0), &outcome.reply.unwrap().bytes);
    }
    assert_eq!(kinds, [Kind::Nak, Kind::Offer, Kind::Ack]);
    let got = client.bound().unwrap().address;
    assert_eq!(got, Ipv4Addr::new(10, 0, 0, 101));
}

#[test]
fn an_exchange_is_told_in_words() {
    let mut server = server(LinkMode::Server, false);
    let said = |outcome: Outcome| outcome.note.unwrap().to_string();
    let offer = ask(&mut server, &discover(Some(0), false), true);
    assert_eq!(
        said(offer),
        "02:00:00:00:00:09 (BIOS PXE): DISCOVER, OFFER 10.0.0.100, boot undionly.kpxe"
    );
    let silence = ask(&mut server, &discover(Some(7), false), false);
    assert_eq!(
        said(silence),
        "02:00:00:00:00:09 (UEFI x64 PXE): DISCOVER, no answer: the machine is not known and \
         only known machines are served here"
    );
    let mut writer = Writer::new(1, [1; 4], MAC);
    writer.option(code::KIND, &[3]);
    writer.address_option(code::SERVER, LOCAL);
    writer.address_option(code::REQUESTED, Ipv4Addr::new(10, 0, 0, 2));
    let refusal = ask(&mut server, &writer.finish(None), true);
    let Some(NoteKind::Dhcp { said, why, .. }) = refusal.note else {
        panic!()
    };
    assert_eq!((said, why), (Some("NAK"), Some("the address is not free")));
}
