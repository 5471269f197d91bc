//! Every frame is decoded again, by our own parser and byte by byte.

use super::*;
use crate::receive::{ChecksumStatus, FrameError, ReceivedPacket, parse_frame};
use crate::testing::{BROADCAST, NODE, OWN, sent};

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GIVEN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

/// A reply: its hardware address, its address, its payload.
#[track_caller]
fn check(to: DhcpReplyTarget, mac: MacAddr, address: Ipv4Addr) {
    let frame = dhcp_reply_frame(OWN, LOCAL, to, b"an offer").unwrap();
    assert_eq!(frame[..6], mac.0);
    assert_eq!(frame[6..12], OWN.0);
    // As the client receives it.
    let received = parse_frame(&frame, NODE, ChecksumStatus::Unverified).unwrap();
    let ReceivedPacket::Dhcp {
        from,
        source,
        destination,
        payload,
    } = received
    else {
        panic!("{received:?}")
    };
    assert_eq!(from, OWN);
    assert_eq!((*source.ip(), source.port()), (LOCAL, 67));
    assert_eq!((*destination.ip(), destination.port()), (address, 68));
    assert_eq!(payload, b"an offer");
}

#[test]
fn a_client_that_receives_unicast_gets_a_unicast_reply() {
    let to = DhcpReplyTarget {
        mac: NODE,
        address: GIVEN,
        broadcast: false,
    };
    check(to, NODE, GIVEN);
}

#[test]
fn a_client_that_requests_it_gets_a_broadcast() {
    let to = DhcpReplyTarget {
        mac: NODE,
        address: GIVEN,
        broadcast: true,
    };
    check(to, BROADCAST, Ipv4Addr::BROADCAST);
}

#[test]
fn a_reply_without_an_address_is_broadcast() {
    for address in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST] {
        let to = DhcpReplyTarget {
            mac: NODE,
            address,
            broadcast: false,
        };
        check(to, BROADCAST, Ipv4Addr::BROADCAST);
    }
}

#[test]
fn a_reply_fits_one_frame_or_is_not_sent() {
    let to = DhcpReplyTarget {
        mac: NODE,
        address: GIVEN,
        broadcast: false,
    };
    let full = dhcp_reply_frame(OWN, LOCAL, to, &[7; PAYLOAD_BYTES_MAX]).unwrap();
    assert_eq!(full.len(), 1514);
    assert!(parse_frame(&full, NODE, ChecksumStatus::Unverified).is_ok());
    assert_eq!(
        dhcp_reply_frame(OWN, LOCAL, to, &[7; PAYLOAD_BYTES_MAX + 1]),
        None
    );
    assert_eq!(
        dhcp_reply_frame(OWN, LOCAL, to, b"").unwrap().len(),
        FRAME_BYTES_MIN
    );
}

#[test]
fn a_probe_is_broadcast_and_claims_nothing() {
    let frame = arp_probe_frame(OWN, GIVEN);
    assert_eq!(frame.len(), FRAME_BYTES_MIN);
    assert_eq!(frame[..6], BROADCAST.0);
    assert_eq!(frame[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    assert_eq!(frame[22..28], OWN.0);
    assert_eq!(frame[28..32], [0; 4], "no address of ours");
    assert_eq!(frame[32..38], [0; 6]);
    assert_eq!(frame[38..42], GIVEN.octets());
    let received = parse_frame(&frame, NODE, ChecksumStatus::Unverified);
    assert_eq!(
        received,
        Err(FrameError::BadAddress),
        "as others receive it"
    );
}

/// A running Linux must learn neither a route nor an address from it.
#[test]
fn an_advertisement_offers_nothing() {
    let to = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    let frame = advertisement(OWN, NODE, to);
    assert_eq!(frame[22..38], link_local(OWN).octets());
    let sent = sent(&frame);
    assert_eq!((sent.mac, sent.address), (NODE, to));
    assert_eq!(sent.icmp[..2], [134, 0], "a router advertisement");
    assert_eq!(
        sent.icmp[4..],
        [0; 12],
        "no hop limit, no flags, no lifetime, no timers, no options"
    );
}

#[test]
fn the_link_local_address_follows_the_hardware_address() {
    let mac = MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    let want: Ipv6Addr = "fe80::5054:ff:fe12:3456".parse().unwrap();
    assert_eq!(link_local(mac), want);
}
