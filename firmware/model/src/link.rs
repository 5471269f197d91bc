//! The networks of the box, and other DHCP servers there.

use core::fmt;
use core::net::Ipv4Addr;

use crate::{MacAddr, UnixMs};

/// One link where DHCP is received, by its number in the settings: an interface, or an address
/// that relays send to.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct LinkId(pub u16);

/// The mode of the box on a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkMode {
    /// It receives and never sends.
    Listen,
    /// It sends only boot information; another server leases addresses.
    Proxy,
    /// It serves known nodes only.
    Reservations,
    /// It serves all machines.
    Server,
}

impl LinkMode {
    /// The spelling in the settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Proxy => "proxy",
            Self::Reservations => "reservations",
            Self::Server => "server",
        }
    }
}

impl fmt::Display for LinkMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// How many foreign servers of one link are remembered.
pub const FOREIGN_SERVERS_MAX: usize = 16;

/// One link for readers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkView {
    /// The interface, or the address for relays.
    pub name: String,
    /// The mode of the box there.
    pub mode: LinkMode,
    /// Other DHCP servers that were seen, by address.
    pub foreign: Vec<ForeignServer>,
}

/// Another DHCP server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ForeignServer {
    /// Its server identifier (option 54).
    pub address: Ipv4Addr,
    /// Its hardware address, known after one of its own frames was received.
    pub mac: Option<MacAddr>,
    /// It leases no addresses and sends only boot information.
    pub proxy: bool,
    /// When its last message was received.
    pub seen_at: UnixMs,
}
