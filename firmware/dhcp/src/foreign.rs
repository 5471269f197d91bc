//! Detects other DHCP servers, from their replies and from the messages that clients send to
//! them.

use core::net::Ipv4Addr;

use trivet_model::{Lease, MacAddr};

use crate::message::{self, DhcpMessage, DhcpMessageType};
use crate::server::{BOOT_PORT, DhcpArrival, DhcpServer};

/// A DHCP server other than this box.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DhcpForeignServer {
    /// Its server identifier (option 54).
    pub address: Ipv4Addr,
    /// Its hardware address, known only if its own frame was received.
    pub mac: Option<MacAddr>,
    /// A proxy server: gives a boot file and no address.
    pub proxy: bool,
    /// Its replies come through a relay.
    pub relayed: bool,
}

impl DhcpServer {
    /// The server that sent a received reply.
    pub(crate) fn foreign_answer(
        &self,
        bytes: &[u8],
        arrived: &DhcpArrival,
    ) -> (Option<DhcpForeignServer>, Option<Lease>) {
        let Ok(frame) = message::decode(bytes, 2) else {
            return (None, None);
        };
        let source = *arrived.source.ip();
        let address = frame.server().unwrap_or(source);
        let answers = matches!(
            frame.message_type,
            DhcpMessageType::Offer | DhcpMessageType::Ack | DhcpMessageType::Nak
        );
        let ours = self.is_ours(address, arrived) || self.is_ours(source, arrived);
        if !answers || !is_host(address) || ours {
            return (None, None);
        }
        let foreign = DhcpForeignServer {
            address,
            // Through a relay, the source is the relay's hardware address.
            mac: arrived.from.filter(|_| !frame.is_relayed()),
            proxy: gives_no_address(&frame),
            relayed: frame.is_relayed(),
        };
        let gives = frame.message_type == DhcpMessageType::Ack && is_host(frame.yiaddr());
        let lease = Lease {
            mac: frame.mac,
            address: frame.yiaddr(),
        };
        (Some(foreign), gives.then_some(lease))
    }

    /// The other server that a client has selected.
    pub(crate) fn foreign_choice(
        &self,
        frame: &DhcpMessage<'_>,
        arrived: &DhcpArrival,
    ) -> Option<DhcpForeignServer> {
        let address = frame
            .server()
            .filter(|_| frame.message_type == DhcpMessageType::Request)?;
        (is_host(address) && !self.is_ours(address, arrived)).then_some(DhcpForeignServer {
            address,
            mac: None,
            proxy: false,
            relayed: frame.is_relayed(),
        })
    }
}

/// The lease of a client from another server, known from its boot service request or from its
/// REQUEST.
pub(crate) fn foreign_lease(
    frame: &DhcpMessage<'_>,
    arrived: &DhcpArrival,
    chose: bool,
) -> Option<Lease> {
    let address = if arrived.port == BOOT_PORT {
        frame.ciaddr()
    } else {
        frame.requested().filter(|_| chose)?
    };
    is_host(address).then_some(Lease {
        mac: frame.mac,
        address,
    })
}

/// An ACK to INFORM has no address either; its sender is a proxy only if its vendor class is
/// that of a boot server.
fn gives_no_address(frame: &DhcpMessage<'_>) -> bool {
    let class = frame.vendor_class().unwrap_or_default();
    let boots = class.starts_with(b"PXEClient") || class.starts_with(b"HTTPClient");
    let offers = frame.message_type == DhcpMessageType::Offer
        || boots && frame.message_type == DhcpMessageType::Ack;
    offers && frame.yiaddr().is_unspecified()
}

fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast()
}

#[cfg(test)]
mod tests;
