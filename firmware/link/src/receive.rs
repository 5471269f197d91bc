//! Decodes one received frame, or gives the reason why it is ignored.
//!
//! The input is untrusted: each length is checked before it is used, and a packet with a wrong
//! checksum is rejected.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use smoltcp::wire::{
    ArpHardware, ArpPacket, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv6Message,
    Icmpv6Packet, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, UdpPacket,
};
use trivet_model::MacAddr;

/// The DHCP server port (RFC 2131 section 4.1).
pub const SERVER_PORT: u16 = 67;
/// The DHCP client port (RFC 2131 section 4.1).
pub const CLIENT_PORT: u16 = 68;
/// The port of the PXE boot service (PXE 2.1, section 2.2.4).
pub const BOOT_PORT: u16 = 4011;

/// The shortest IPv4 header (RFC 791 section 3.1).
const IPV4_HEADER_BYTES_MIN: usize = 20;

/// The hop limit of a packet that passed no router (RFC 4861 section 6.1.1).
const HOP_LIMIT: u8 = 255;

/// Whether the checksums of a frame must be verified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChecksumStatus {
    /// The checksums must be verified.
    Unverified,
    /// The sender runs on this machine and left the checksums to the network card, or the
    /// receiving card has verified them.
    Offloaded,
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReceivedPacket<'a> {
    /// A DHCP message.
    Dhcp {
        /// The source hardware address.
        from: MacAddr,
        /// Source of the datagram.
        source: SocketAddrV4,
        /// Destination of the datagram, with a DHCP port.
        destination: SocketAddrV4,
        /// The message.
        payload: &'a [u8],
    },
    /// A machine claims an address by ARP.
    ArpClaim {
        /// The claimed address.
        address: Ipv4Addr,
        /// The hardware address of the claiming machine.
        mac: MacAddr,
    },
    /// A machine requests a router advertisement.
    RouterSolicitation {
        /// Its hardware address.
        from: MacAddr,
        /// Its address, if it has one already.
        source: Option<Ipv6Addr>,
    },
}

/// Why a frame is ignored.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// A protocol that this crate does not handle.
    #[error("another protocol")]
    Other,
    /// Sent to another machine, or by this box.
    #[error("for another machine")]
    NotForUs,
    /// A length field does not match the frame.
    #[error("cut short or malformed")]
    Malformed,
    /// A checksum is wrong.
    #[error("damaged")]
    Damaged,
    /// A fragment of a datagram. DHCP fits one frame.
    #[error("a fragment")]
    Fragment,
    /// An address that no single machine can have.
    #[error("an address that no machine can have")]
    BadAddress,
}

impl FrameError {
    /// The name, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other_protocol",
            Self::NotForUs => "not_for_us",
            Self::Malformed => "malformed_frame",
            Self::Damaged => "damaged_frame",
            Self::Fragment => "fragment",
            Self::BadAddress => "bad_address",
        }
    }

    /// Whether the frame was lost for this box: other frames of a network are none of its
    /// business.
    pub const fn is_loss(self) -> bool {
        !matches!(self, Self::Other | Self::NotForUs)
    }
}

/// Decodes a frame for a box whose hardware address is `own`.
///
/// Frames to other machines are ignored, except replies of other DHCP servers, which show who
/// else serves the network.
pub fn parse_frame(
    frame: &[u8],
    own: MacAddr,
    checksums: ChecksumStatus,
) -> Result<ReceivedPacket<'_>, FrameError> {
    let frame = EthernetFrame::new_checked(frame).map_err(|_| FrameError::Malformed)?;
    let from = machine(frame.src_addr()).ok_or(FrameError::BadAddress)?;
    if from == own {
        return Err(FrameError::NotForUs);
    }
    let to = frame.dst_addr();
    let for_us = to.is_multicast() || MacAddr(to.0) == own;
    let received = match frame.ethertype() {
        EthernetProtocol::Ipv4 => datagram(frame.payload(), from, checksums)?,
        EthernetProtocol::Arp => claim(frame.payload(), own)?,
        EthernetProtocol::Ipv6 => solicitation(frame.payload(), from, checksums)?,
        EthernetProtocol::Unknown(_) => return Err(FrameError::Other),
    };
    let overheard = matches!(received, ReceivedPacket::Dhcp { destination, .. }
        if destination.port() == CLIENT_PORT);
    if for_us || overheard {
        Ok(received)
    } else {
        Err(FrameError::NotForUs)
    }
}

/// The address of one machine: neither a group address nor zero.
fn machine(address: EthernetAddress) -> Option<MacAddr> {
    (address.is_unicast() && address.0 != [0; 6]).then_some(MacAddr(address.0))
}

fn datagram(
    bytes: &[u8],
    from: MacAddr,
    checksums: ChecksumStatus,
) -> Result<ReceivedPacket<'_>, FrameError> {
    let packet = Ipv4Packet::new_checked(bytes).map_err(|_| FrameError::Malformed)?;
    if packet.version() != 4 || usize::from(packet.header_len()) < IPV4_HEADER_BYTES_MIN {
        return Err(FrameError::Malformed);
    }
    if packet.next_header() != IpProtocol::Udp {
        return Err(FrameError::Other);
    }
    // The header checksum is always there: it is never offloaded to a network card.
    if !packet.verify_checksum() {
        return Err(FrameError::Damaged);
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return Err(FrameError::Fragment);
    }
    let (source, destination) = (packet.src_addr(), packet.dst_addr());
    if source.is_multicast() || source.is_broadcast() {
        return Err(FrameError::BadAddress);
    }
    let udp = UdpPacket::new_checked(packet.payload()).map_err(|_| FrameError::Malformed)?;
    if ![SERVER_PORT, CLIENT_PORT, BOOT_PORT].contains(&udp.dst_port()) {
        return Err(FrameError::Other);
    }
    // A checksum of zero means that there is none (RFC 768).
    let whole = checksums == ChecksumStatus::Offloaded
        || udp.checksum() == 0
        || udp.verify_checksum(&IpAddress::Ipv4(source), &IpAddress::Ipv4(destination));
    if !whole {
        return Err(FrameError::Damaged);
    }
    Ok(ReceivedPacket::Dhcp {
        from,
        source: SocketAddrV4::new(source, udp.src_port()),
        destination: SocketAddrV4::new(destination, udp.dst_port()),
        payload: udp.payload(),
    })
}

/// Every ARP message states its sender's address (RFC 826), except a probe (RFC 5227
/// section 2.1.1).
fn claim(bytes: &[u8], own: MacAddr) -> Result<ReceivedPacket<'_>, FrameError> {
    let packet = ArpPacket::new_checked(bytes).map_err(|_| FrameError::Malformed)?;
    let ours = packet.hardware_type() == ArpHardware::Ethernet
        && packet.protocol_type() == EthernetProtocol::Ipv4
        && packet.hardware_len() == 6
        && packet.protocol_len() == 4;
    if !ours {
        return Err(FrameError::Other);
    }
    let mac = EthernetAddress::from_bytes(packet.source_hardware_addr());
    let mac = machine(mac).ok_or(FrameError::BadAddress)?;
    let address = packet.source_protocol_addr();
    let address: [u8; 4] = address.try_into().map_err(|_| FrameError::Malformed)?;
    let address = Ipv4Addr::from(address);
    if address.is_unspecified() || address.is_broadcast() || address.is_multicast() {
        return Err(FrameError::BadAddress);
    }
    if mac == own {
        return Err(FrameError::NotForUs);
    }
    Ok(ReceivedPacket::ArpClaim { address, mac })
}

/// Checks of RFC 4861 section 6.1.1.
fn solicitation(
    bytes: &[u8],
    from: MacAddr,
    checksums: ChecksumStatus,
) -> Result<ReceivedPacket<'_>, FrameError> {
    let packet = Ipv6Packet::new_checked(bytes).map_err(|_| FrameError::Malformed)?;
    if packet.version() != 6 {
        return Err(FrameError::Malformed);
    }
    if packet.next_header() != IpProtocol::Icmpv6 {
        return Err(FrameError::Other);
    }
    let (source, destination) = (packet.src_addr(), packet.dst_addr());
    let icmp = Icmpv6Packet::new_checked(packet.payload()).map_err(|_| FrameError::Malformed)?;
    if icmp.msg_type() != Icmpv6Message::RouterSolicit {
        return Err(FrameError::Other);
    }
    if packet.hop_limit() != HOP_LIMIT || icmp.msg_code() != 0 {
        return Err(FrameError::Malformed);
    }
    if checksums == ChecksumStatus::Unverified && !icmp.verify_checksum(&source, &destination) {
        return Err(FrameError::Damaged);
    }
    if source.is_multicast() {
        return Err(FrameError::BadAddress);
    }
    Ok(ReceivedPacket::RouterSolicitation {
        from,
        source: (!source.is_unspecified()).then_some(source),
    })
}

#[cfg(test)]
mod tests;
