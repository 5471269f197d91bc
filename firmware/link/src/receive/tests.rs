//! Frames as machines send them, and invalid variants of them.

use proptest::prelude::*;

use super::*;
use crate::testing::{BROADCAST, NODE, OTHER, OWN, arp, datagram, ethernet, fill_checksums};

const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::UNSPECIFIED, 68);
const ALL: (Ipv4Addr, u16) = (Ipv4Addr::BROADCAST, 67);

fn discover() -> Vec<u8> {
    ethernet(BROADCAST, NODE, 0x0800, &datagram(CLIENT, ALL, b"discover"))
}

#[track_caller]
fn refused(frame: &[u8], want: FrameError) {
    assert_eq!(
        parse_frame(frame, OWN, ChecksumStatus::Unverified),
        Err(want)
    );
}

#[test]
fn a_discover_is_received_with_its_ports_and_its_sender() {
    let frame = discover();
    let received = parse_frame(&frame, OWN, ChecksumStatus::Unverified).unwrap();
    let ReceivedPacket::Dhcp {
        from,
        source,
        destination,
        payload,
    } = received
    else {
        panic!("{received:?}")
    };
    assert_eq!(from, NODE);
    assert_eq!(source, SocketAddrV4::new(CLIENT.0, CLIENT.1));
    assert_eq!(destination, SocketAddrV4::new(ALL.0, ALL.1));
    assert_eq!(payload, b"discover");
}

#[test]
fn padding_after_the_datagram_is_ignored() {
    let mut frame = discover();
    frame.resize(300, 0xee);
    let received = parse_frame(&frame, OWN, ChecksumStatus::Unverified).unwrap();
    assert!(matches!(received, ReceivedPacket::Dhcp { payload, .. } if payload == b"discover"));
}

#[test]
fn all_three_ports_are_received_and_no_other() {
    for (port, good) in [
        (67, true),
        (68, true),
        (4011, true),
        (69, false),
        (0, false),
    ] {
        let body = datagram(CLIENT, (Ipv4Addr::BROADCAST, port), b"x");
        let frame = ethernet(BROADCAST, NODE, 0x0800, &body);
        assert_eq!(
            parse_frame(&frame, OWN, ChecksumStatus::Unverified).is_ok(),
            good,
            "{port}"
        );
    }
}

#[test]
fn frames_to_others_are_ignored_except_replies_of_other_servers() {
    let server = (Ipv4Addr::new(10, 0, 0, 9), 67);
    let client = Ipv4Addr::new(10, 0, 0, 50);
    let renewal = datagram((client, 68), server, b"request");
    refused(
        &ethernet(OTHER, NODE, 0x0800, &renewal),
        FrameError::NotForUs,
    );
    let to_us = ethernet(OWN, NODE, 0x0800, &renewal);
    assert!(parse_frame(&to_us, OWN, ChecksumStatus::Unverified).is_ok());
    let answer = ethernet(NODE, OTHER, 0x0800, &datagram(server, (client, 68), b"ack"));
    let received = parse_frame(&answer, OWN, ChecksumStatus::Unverified).unwrap();
    assert!(matches!(received, ReceivedPacket::Dhcp { from, .. } if from == OTHER));
}

#[test]
fn our_own_frames_are_dropped() {
    let body = datagram(CLIENT, ALL, b"discover");
    refused(
        &ethernet(BROADCAST, OWN, 0x0800, &body),
        FrameError::NotForUs,
    );
    let claim = arp(1, OWN, Ipv4Addr::new(10, 0, 0, 1));
    refused(
        &ethernet(BROADCAST, NODE, 0x0806, &claim),
        FrameError::NotForUs,
    );
}

#[test]
fn damage_is_noticed_unless_checksums_are_offloaded() {
    let mut frame = discover();
    *frame.last_mut().unwrap() ^= 1;
    refused(&frame, FrameError::Damaged);
    assert!(parse_frame(&frame, OWN, ChecksumStatus::Offloaded).is_ok());
    let mut without = discover();
    without[14 + 20 + 6..14 + 20 + 8].fill(0);
    *without.last_mut().unwrap() ^= 1;
    assert!(
        parse_frame(&without, OWN, ChecksumStatus::Unverified).is_ok(),
        "no checksum"
    );
    let mut header = discover();
    header[14 + 8] ^= 1;
    assert_eq!(
        parse_frame(&header, OWN, ChecksumStatus::Offloaded),
        Err(FrameError::Damaged),
        "the header checksum is always there"
    );
}

#[test]
fn fragments_are_not_reassembled() {
    for (high, low) in [(0x20, 0), (0, 1), (0x1f, 0xff)] {
        let mut frame = discover();
        frame[14 + 6..14 + 8].copy_from_slice(&[high, low]);
        fill_checksums(&mut frame[14..34]);
        refused(&frame, FrameError::Fragment);
    }
    let mut whole = discover();
    whole[14 + 6] = 0x40;
    fill_checksums(&mut whole[14..34]);
    assert!(
        parse_frame(&whole, OWN, ChecksumStatus::Unverified).is_ok(),
        "don't fragment"
    );
}

#[test]
fn wrong_lengths_are_refused() {
    let good = discover();
    for cut in 0..good.len() {
        let received = parse_frame(&good[..cut], OWN, ChecksumStatus::Offloaded);
        assert!(received.is_err(), "cut at {cut}");
    }
    for (at, value) in [
        (14, 0x44), // a header of 16 bytes
        (14, 0x4f), // of 60
        (14, 0x65), // of version 6
        (17, 27),   // a datagram without space for UDP
        (17, 200),  // longer than the frame
    ] {
        let mut frame = good.clone();
        frame[at] = value;
        fill_checksums(&mut frame[14..34]);
        refused(&frame, FrameError::Malformed);
    }
    for length in [0, 7, 200] {
        let mut frame = good.clone();
        frame[14 + 20 + 5] = length;
        let received = parse_frame(&frame, OWN, ChecksumStatus::Offloaded);
        assert_eq!(received, Err(FrameError::Malformed), "{length}");
    }
}

#[test]
fn addresses_that_no_machine_can_have_are_refused() {
    let body = datagram(CLIENT, ALL, b"x");
    for mac in [MacAddr([0; 6]), BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        refused(
            &ethernet(BROADCAST, mac, 0x0800, &body),
            FrameError::BadAddress,
        );
    }
    for source in [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)] {
        let body = datagram((source, 68), ALL, b"x");
        refused(
            &ethernet(BROADCAST, NODE, 0x0800, &body),
            FrameError::BadAddress,
        );
    }
}

#[test]
fn other_protocols_are_ignored() {
    refused(
        &ethernet(BROADCAST, NODE, 0x88cc, &[0; 60]),
        FrameError::Other,
    );
    let mut tcp = datagram(CLIENT, ALL, b"x");
    tcp[9] = 6;
    fill_checksums(&mut tcp);
    refused(&ethernet(BROADCAST, NODE, 0x0800, &tcp), FrameError::Other);
}

#[test]
fn an_arp_message_claims_its_senders_address() {
    let address = Ipv4Addr::new(10, 0, 0, 50);
    let want = ReceivedPacket::ArpClaim { address, mac: NODE };
    for operation in [1, 2] {
        let frame = ethernet(OWN, NODE, 0x0806, &arp(operation, NODE, address));
        assert_eq!(
            parse_frame(&frame, OWN, ChecksumStatus::Unverified),
            Ok(want)
        );
        let mut padded = frame;
        padded.resize(60, 0);
        assert_eq!(
            parse_frame(&padded, OWN, ChecksumStatus::Unverified),
            Ok(want)
        );
    }
}

#[test]
fn an_arp_message_without_a_claim_is_refused() {
    let address = Ipv4Addr::new(10, 0, 0, 50);
    for nobody in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST] {
        let frame = ethernet(BROADCAST, NODE, 0x0806, &arp(1, NODE, nobody));
        refused(&frame, FrameError::BadAddress);
    }
    let group = arp(2, BROADCAST, address);
    refused(&ethernet(OWN, NODE, 0x0806, &group), FrameError::BadAddress);
    for (at, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16)] {
        let mut odd = arp(2, NODE, address);
        odd[at] = value;
        odd.resize(64, 0);
        refused(&ethernet(OWN, NODE, 0x0806, &odd), FrameError::Other);
    }
    let good = ethernet(OWN, NODE, 0x0806, &arp(2, NODE, address));
    for cut in 14..good.len() {
        refused(&good[..cut], FrameError::Malformed);
    }
}

#[test]
fn a_router_solicitation_is_received_with_and_without_an_address() {
    let group = MacAddr([0x33, 0x33, 0, 0, 0, 2]);
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    for (source, want) in [(local, Some(local)), (Ipv6Addr::UNSPECIFIED, None)] {
        let body = crate::testing::solicitation(source);
        let frame = ethernet(group, NODE, 0x86dd, &body);
        let received = parse_frame(&frame, OWN, ChecksumStatus::Unverified);
        let want = ReceivedPacket::RouterSolicitation {
            from: NODE,
            source: want,
        };
        assert_eq!(received, Ok(want));
    }
}

#[test]
fn a_router_solicitation_from_afar_or_damaged_is_refused() {
    let group = MacAddr([0x33, 0x33, 0, 0, 0, 2]);
    let good = crate::testing::solicitation(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9));
    for (at, value, want) in [
        (7, 64, FrameError::Malformed),   // it has passed a router
        (41, 1, FrameError::Malformed),   // its code is not 0
        (40, 135, FrameError::Malformed), // a neighbour's, and too short for one
        (6, 17, FrameError::Other),       // UDP
        (0, 0x40, FrameError::Malformed), // version 4
        (44, 1, FrameError::Damaged),     // its sum does not hold
        (8, 0xff, FrameError::Damaged),   // a request to a group
        (5, 200, FrameError::Malformed),  // longer than the frame
    ] {
        let mut body = good.clone();
        body[at] = value;
        refused(&ethernet(group, NODE, 0x86dd, &body), want);
    }
    for cut in 0..good.len() {
        refused(
            &ethernet(group, NODE, 0x86dd, &good[..cut]),
            FrameError::Malformed,
        );
    }
}

#[test]
fn each_error_has_a_name_and_only_losses_are_counted() {
    let all = [
        (FrameError::Other, "other_protocol", false),
        (FrameError::NotForUs, "not_for_us", false),
        (FrameError::Malformed, "malformed_frame", true),
        (FrameError::Damaged, "damaged_frame", true),
        (FrameError::Fragment, "fragment", true),
        (FrameError::BadAddress, "bad_address", true),
    ];
    for (error, name, is_loss) in all {
        assert_eq!((error.name(), error.is_loss()), (name, is_loss), "{error}");
    }
    refused(b"", FrameError::Malformed);
    refused(&[0xff; 60], FrameError::BadAddress);
}

proptest! {
    #[test]
    fn noise_is_never_more_than_noise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_frame(&bytes, OWN, ChecksumStatus::Offloaded);
        for kind in [0x0800, 0x0806, 0x86dd] {
            let frame = ethernet(BROADCAST, NODE, kind, &bytes);
            let _ = parse_frame(&frame, OWN, ChecksumStatus::Offloaded);
        }
    }

    /// A valid frame with one byte changed reaches the inner checks.
    #[test]
    fn a_mangled_frame_never_panics(at in 0usize..60, value in any::<u8>(), cut in 0usize..60) {
        let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
        for mut frame in [
            discover(),
            ethernet(OWN, NODE, 0x0806, &arp(2, NODE, Ipv4Addr::new(10, 0, 0, 1))),
            ethernet(BROADCAST, NODE, 0x86dd, &crate::testing::solicitation(local)),
        ] {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
            frame.truncate(frame.len() - cut.min(frame.len()));
            let _ = parse_frame(&frame, OWN, ChecksumStatus::Unverified);
            let _ = parse_frame(&frame, OWN, ChecksumStatus::Offloaded);
        }
    }
}
