//! Ethernet frames from the network.

use core::net::Ipv4Addr;

use trivet_link::{
    ArpClaims, BOOT_PORT, CLIENT_PORT, ChecksumStatus, ReceivedPacket, RouterAdvertiser,
    SERVER_PORT,
};
use trivet_link::{
    DhcpReplyTarget as Peer, PAYLOAD_BYTES_MAX, arp_probe_frame, dhcp_reply_frame, parse_frame,
};
use trivet_model::{MacAddr, Tick};

use crate::FuzzTarget;

pub(crate) const FRAMES: FuzzTarget = FuzzTarget {
    name: "link_frames",
    run,
    seeds,
    regressions: &[],
};

const OWN: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 2]);
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The headers of Ethernet, IPv4 and UDP.
const HEADERS_BYTES: usize = 14 + 20 + 8;

fn run(bytes: &[u8]) {
    let Some((first, frame)) = bytes.split_first() else {
        return;
    };
    let mut frame = frame.to_vec();
    if first & 1 == 0 {
        // A fuzzer does not find checksums.
        sum_header(&mut frame);
    }
    let open = parse_frame(&frame, OWN, ChecksumStatus::Unverified);
    let offloaded = parse_frame(&frame, OWN, ChecksumStatus::Offloaded);
    if open.is_ok() {
        assert_eq!(open, offloaded, "the checksum status changes the result");
    }
    match offloaded {
        Ok(ReceivedPacket::Dhcp {
            from,
            source,
            destination,
            payload,
        }) => {
            check_unicast(from);
            assert!([SERVER_PORT, CLIENT_PORT, BOOT_PORT].contains(&destination.port()));
            assert!(!source.ip().is_multicast() && !source.ip().is_broadcast());
            assert!(payload.len() + HEADERS_BYTES <= frame.len());
            check_round_trip(from, *source.ip(), payload);
        }
        Ok(ReceivedPacket::ArpClaim { address, mac }) => {
            check_unicast(mac);
            let mut claims = ArpClaims::new(Some((LOCAL, LOCAL)));
            assert_eq!(claims.record_claim(Tick(0), address, mac), address == LOCAL);
            assert!(
                !claims.record_claim(Tick(1), address, mac),
                "reported twice"
            );
        }
        Ok(ReceivedPacket::RouterSolicitation { from, source }) => {
            check_unicast(from);
            let message = RouterAdvertiser::new(Tick(0), OWN).solicited(Tick(0), from, source);
            assert_eq!(message.is_some(), source.is_some());
            assert!(message.is_none_or(|frame| frame.len() <= 128));
        }
        Err(_) => {}
    }
}

fn check_unicast(mac: MacAddr) {
    assert!(mac != OWN && mac.0 != [0; 6] && mac.0[0] & 1 == 0, "{mac}");
}

/// What was received can be sent back, and is received there as it was sent.
fn check_round_trip(mac: MacAddr, address: Ipv4Addr, payload: &[u8]) {
    let to = Peer {
        mac,
        address,
        broadcast: payload.first().is_some_and(|byte| byte & 1 == 1),
    };
    let Some(frame) = dhcp_reply_frame(OWN, LOCAL, to, payload) else {
        assert!(payload.len() > PAYLOAD_BYTES_MAX);
        return;
    };
    match parse_frame(&frame, mac, ChecksumStatus::Unverified) {
        Ok(ReceivedPacket::Dhcp {
            from,
            payload: received,
            ..
        }) => assert_eq!((from, received), (OWN, payload)),
        other => panic!("received {other:?}"),
    }
}

/// Writes the right checksum into the IPv4 header (RFC 791 section 3.1).
fn sum_header(frame: &mut [u8]) {
    let Some(header) = frame.get_mut(14..) else {
        return;
    };
    let length = usize::from(header.first().map_or(0, |byte| byte & 15)) * 4;
    let Some(header) = header.get_mut(..length).filter(|header| header.len() >= 20) else {
        return;
    };
    header[10..12].fill(0);
    let words = header.chunks_exact(2);
    let mut sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
}

fn seeds() -> Vec<Vec<u8>> {
    let to = |address, broadcast| Peer {
        mac: OWN,
        address,
        broadcast,
    };
    let written = |peer| dhcp_reply_frame(OTHER, LOCAL, peer, b"a message").unwrap_or_default();
    let mut claim = arp_probe_frame(OTHER, LOCAL);
    claim[28..32].copy_from_slice(&LOCAL.octets());
    // A router solicitation with offloaded checksum (RFC 4861 section 4.1).
    let mut solicitation = [0; 14 + 40 + 8];
    solicitation[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 2]);
    solicitation[6..12].copy_from_slice(&OTHER.0);
    solicitation[12..21].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 58]);
    solicitation[21] = 255;
    solicitation[22..24].copy_from_slice(&[0xfe, 0x80]);
    solicitation[38..40].copy_from_slice(&[0xff, 2]);
    solicitation[54] = 133;
    let frames = [
        written(to(Ipv4Addr::new(10, 0, 0, 9), false)),
        written(to(Ipv4Addr::BROADCAST, true)),
        claim,
        arp_probe_frame(OTHER, LOCAL),
        solicitation.to_vec(),
    ];
    frames
        .iter()
        .flat_map(|frame| [0, 1].map(|first| [&[first][..], frame].concat()))
        .collect()
}
