//! Encodes whole frames to send.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::time::Duration;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv6Packet, Icmpv6Repr, IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr,
    Ipv6Packet, Ipv6Repr, NdiscRepr, NdiscRouterFlags, UdpPacket, UdpRepr,
};
use trivet_model::MacAddr;

use crate::receive::{CLIENT_PORT, SERVER_PORT};

/// Longest DHCP message in one frame of 1500 bytes, without the headers of IPv4 and UDP.
pub const PAYLOAD_BYTES_MAX: usize = 1500 - 20 - 8;

/// Shortest frame without its checksum (IEEE 802.3, section 4.4.2).
const FRAME_BYTES_MIN: usize = 60;

/// Time to live of replies. Ours: they never pass a router.
const TTL: u8 = 64;

/// The hop limit that receivers require (RFC 4861 section 6.1.2).
const HOP_LIMIT: u8 = 255;

/// The destination of a reply to a machine that has no address yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DhcpReplyTarget {
    /// Its hardware address.
    pub mac: MacAddr,
    /// The address it will have; unspecified or all ones if it gets none.
    pub address: Ipv4Addr,
    /// It requested the reply by broadcast.
    pub broadcast: bool,
}

/// A DHCP message from our port 67 to a machine that does not answer ARP yet (RFC 2131 section
/// 4.1). `None` if it does not fit one frame.
pub fn dhcp_reply_frame(
    own: MacAddr,
    local: Ipv4Addr,
    to: DhcpReplyTarget,
    payload: &[u8],
) -> Option<Vec<u8>> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return None;
    }
    let nowhere = to.address.is_unspecified() || to.address.is_broadcast();
    let (mac, address) = if to.broadcast || nowhere {
        (EthernetAddress::BROADCAST, Ipv4Addr::BROADCAST)
    } else {
        (EthernetAddress(to.mac.0), to.address)
    };
    let udp = UdpRepr {
        src_port: SERVER_PORT,
        dst_port: CLIENT_PORT,
    };
    let ip = Ipv4Repr {
        src_addr: local,
        dst_addr: address,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + payload.len(),
        hop_limit: TTL,
    };
    let length = ip.buffer_len() + ip.payload_len;
    let mut frame = ipv4_udp_frame(own, mac, EthernetProtocol::Ipv4, length);
    let body = EthernetFrame::<&mut [u8]>::header_len();
    let sums = ChecksumCapabilities::default();
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[body..body + length]);
    ip.emit(&mut packet, &sums);
    udp.emit(
        &mut UdpPacket::new_unchecked(packet.payload_mut()),
        &IpAddress::Ipv4(local),
        &IpAddress::Ipv4(address),
        payload.len(),
        |out| out.copy_from_slice(payload),
        &sums,
    );
    Some(frame)
}

/// An ARP probe for an address, which claims no address (RFC 5227 section 2.1.1).
pub fn arp_probe_frame(own: MacAddr, address: Ipv4Addr) -> Vec<u8> {
    let arp = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(own.0),
        source_protocol_addr: Ipv4Addr::UNSPECIFIED,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: address,
    };
    let everybody = EthernetAddress::BROADCAST;
    let length = arp.buffer_len();
    let mut frame = ipv4_udp_frame(own, everybody, EthernetProtocol::Arp, length);
    let body = EthernetFrame::<&mut [u8]>::header_len();
    arp.emit(&mut ArpPacket::new_unchecked(
        &mut frame[body..body + length],
    ));
    frame
}

/// A router advertisement that offers nothing: no router, no prefix, no further configuration.
/// A client that waits for an advertisement can stop waiting.
pub(crate) fn advertisement(own: MacAddr, mac: MacAddr, address: Ipv6Addr) -> Vec<u8> {
    let icmp = Icmpv6Repr::Ndisc(NdiscRepr::RouterAdvert {
        hop_limit: 0,
        flags: NdiscRouterFlags::empty(),
        router_lifetime: Duration::ZERO,
        reachable_time: Duration::ZERO,
        retrans_time: Duration::ZERO,
        lladdr: None,
        mtu: None,
        prefix_info: None,
    });
    let ip = Ipv6Repr {
        src_addr: link_local(own),
        dst_addr: address,
        next_header: IpProtocol::Icmpv6,
        payload_len: icmp.buffer_len(),
        hop_limit: HOP_LIMIT,
    };
    let length = ip.buffer_len() + ip.payload_len;
    let to = EthernetAddress(mac.0);
    let mut frame = ipv4_udp_frame(own, to, EthernetProtocol::Ipv6, length);
    let body = EthernetFrame::<&mut [u8]>::header_len();
    let mut packet = Ipv6Packet::new_unchecked(&mut frame[body..body + length]);
    ip.emit(&mut packet);
    icmp.emit(
        &ip.src_addr,
        &ip.dst_addr,
        &mut Icmpv6Packet::new_unchecked(packet.payload_mut()),
        &ChecksumCapabilities::default(),
    );
    frame
}

/// The link-local address derived from the hardware address (RFC 4291, appendix A). The box
/// does not answer there: it is not a router, so nothing is sent to it.
pub(crate) fn link_local(mac: MacAddr) -> Ipv6Addr {
    let mut address = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    address[8..11].copy_from_slice(&mac.0[..3]);
    address[13..].copy_from_slice(&mac.0[3..]);
    address[8] ^= 2;
    Ipv6Addr::from(address)
}

/// A frame with its header and space for `length` bytes, padded.
fn ipv4_udp_frame(
    own: MacAddr,
    to: EthernetAddress,
    ethertype: EthernetProtocol,
    length: usize,
) -> Vec<u8> {
    let header = EthernetRepr {
        src_addr: EthernetAddress(own.0),
        dst_addr: to,
        ethertype,
    };
    let size = (header.buffer_len() + length).max(FRAME_BYTES_MIN);
    let mut frame = alloc::vec![0; size];
    header.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
    frame
}

#[cfg(test)]
mod tests;
