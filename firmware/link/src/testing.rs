//! Frames encoded by hand, and advertisements decoded byte by byte: an independent check of
//! what this crate sends.

use core::net::{Ipv4Addr, Ipv6Addr};

use trivet_model::MacAddr;

pub(crate) const OWN: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);
pub(crate) const NODE: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 2]);
pub(crate) const OTHER: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 3]);
pub(crate) const BROADCAST: MacAddr = MacAddr([0xff; 6]);

/// The checksum of RFC 1071.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            total += u32::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

pub(crate) fn ethernet(to: MacAddr, from: MacAddr, kind: u16, body: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.to_be_bytes(), body].concat()
}

/// A UDP datagram in IPv4 with right checksums.
pub(crate) fn datagram(
    (source, source_port): (Ipv4Addr, u16),
    (destination, port): (Ipv4Addr, u16),
    payload: &[u8],
) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut udp = Vec::new();
    for word in [source_port, port, length, 0] {
        udp.extend(word.to_be_bytes());
    }
    udp.extend(payload);
    let (from, to) = (source.octets(), destination.octets());
    let pseudo = [&from[..], &to, &[0, 17], &length.to_be_bytes()].concat();
    let check = sum(&[&pseudo, &udp]);
    udp[6..8].copy_from_slice(&check.to_be_bytes());
    let mut ip = vec![0x45, 0];
    ip.extend((20 + length).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ip.extend(from);
    ip.extend(to);
    fill_checksums(&mut ip);
    ip.extend(udp);
    ip
}

/// Writes the checksum of an IPv4 header of 20 bytes.
pub(crate) fn fill_checksums(ip: &mut [u8]) {
    ip[10..12].fill(0);
    let check = sum(&[&ip[..20]]);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
}

/// An ARP message.
pub(crate) fn arp(operation: u16, mac: MacAddr, address: Ipv4Addr) -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4];
    body.extend(operation.to_be_bytes());
    body.extend(mac.0);
    body.extend(address.octets());
    body.extend([0; 10]);
    body
}

/// A router solicitation in IPv6.
pub(crate) fn solicitation(source: Ipv6Addr) -> Vec<u8> {
    let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2).octets();
    let mut icmp = vec![133, 0, 0, 0, 0, 0, 0, 0];
    let pseudo = [&source.octets()[..], &to, &[0, 0, 0, 8, 0, 0, 0, 58]].concat();
    let check = sum(&[&pseudo, &icmp]);
    icmp[2..4].copy_from_slice(&check.to_be_bytes());
    [
        &[0x60, 0, 0, 0, 0, 8, 58, 255][..],
        &source.octets(),
        &to,
        &icmp,
    ]
    .concat()
}

/// The destination and content of an advertisement.
pub(crate) struct SentAdvertisement {
    pub(crate) mac: MacAddr,
    pub(crate) address: Ipv6Addr,
    pub(crate) icmp: Vec<u8>,
}

/// Decodes an advertisement; its checksum must be right and its hop limit 255.
#[track_caller]
pub(crate) fn sent(frame: &[u8]) -> SentAdvertisement {
    let ip = &frame[14..];
    assert_eq!(frame[12..14], [0x86, 0xdd]);
    assert_eq!((ip[0] >> 4, ip[6], ip[7]), (6, 58, 255));
    let length = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let icmp = &ip[40..40 + length];
    let pseudo = [&ip[8..40], &(length as u32).to_be_bytes(), &[0, 0, 0, 58]].concat();
    assert_eq!(sum(&[&pseudo, icmp]), 0, "the checksum is right");
    SentAdvertisement {
        mac: MacAddr(frame[..6].try_into().unwrap()),
        address: Ipv6Addr::from(<[u8; 16]>::try_from(&ip[24..40]).unwrap()),
        icmp: icmp.to_vec(),
    }
}
