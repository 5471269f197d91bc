//! Other servers, and how they give themselves away: by their own answers, and by
//! clients that speak to them.

use core::net::Ipv4Addr;

use trivet_model::{Lease, MacAddr};

use crate::frame::{self, Frame, Kind};
use crate::server::{Arrival, BOOT_PORT, Server};

/// A DHCP server that is not us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Foreign {
    /// As it names itself (option 54).
    pub address: Ipv4Addr,
    /// Its hardware address, where its own frame was heard.
    pub mac: Option<MacAddr>,
    /// It gives no address, only what to boot.
    pub proxy: bool,
    /// A relay stands between.
    pub relayed: bool,
}

impl Server {
    /// The server behind an answer that was heard.
    pub(crate) fn foreign_answer(
        &self,
        bytes: &[u8],
        arrived: &Arrival,
    ) -> (Option<Foreign>, Option<Lease>) {
        let Ok(frame) = frame::decode(bytes, 2) else {
            return (None, None);
        };
        let source = *arrived.source.ip();
        let address = frame.server().unwrap_or(source);
        let answers = matches!(frame.kind, Kind::Offer | Kind::Ack | Kind::Nak);
        let ours = self.is_ours(address, arrived) || self.is_ours(source, arrived);
        if !answers || !is_host(address) || ours {
            return (None, None);
        }
        let foreign = Foreign {
            address,
            // Behind a relay it would be the relay's.
            mac: arrived.from.filter(|_| !frame.is_relayed()),
            proxy: gives_no_address(&frame),
            relayed: frame.is_relayed(),
        };
        let gives = frame.kind == Kind::Ack && is_host(frame.yiaddr());
        let lease = Lease {
            mac: frame.mac,
            address: frame.yiaddr(),
        };
        (Some(foreign), gives.then_some(lease))
    }

    /// The other server that a client has chosen.
    pub(crate) fn foreign_choice(&self, frame: &Frame<'_>, arrived: &Arrival) -> Option<Foreign> {
        let address = frame.server().filter(|_| frame.kind == Kind::Request)?;
        (is_host(address) && !self.is_ours(address, arrived)).then_some(Foreign {
            address,
            mac: None,
            proxy: false,
            relayed: frame.is_relayed(),
        })
    }
}

/// What a client has from another server: it says so to the boot service, or it
/// takes what it was offered.
pub(crate) fn elsewhere(frame: &Frame<'_>, arrived: &Arrival, chose: bool) -> Option<Lease> {
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

/// An ACK to INFORM has no address either; its sender is no proxy if it does not
/// call itself a boot server.
fn gives_no_address(frame: &Frame<'_>) -> bool {
    let class = frame.vendor_class().unwrap_or_default();
    let boots = class.starts_with(b"PXEClient") || class.starts_with(b"HTTPClient");
    let offers = frame.kind == Kind::Offer || boots && frame.kind == Kind::Ack;
    offers && frame.yiaddr().is_unspecified()
}

fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast()
}

#[cfg(test)]
mod tests;
