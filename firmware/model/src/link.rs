//! The networks the box is plugged into, and who else serves them.

use core::fmt;
use core::net::Ipv4Addr;

use crate::{MacAddr, UnixMs};

/// One place where DHCP is heard, by its number in the settings: an interface, or
/// an address that relays send to.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct LinkId(pub u16);

/// What the box does on a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkMode {
    /// It hears and never says a word.
    Listen,
    /// It tells machines what to boot; another server gives addresses.
    Proxy,
    /// It serves nodes it knows and nobody else.
    Reservations,
    /// It serves everybody.
    Server,
}

impl LinkMode {
    /// As the settings spell it.
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
    /// What the box does there.
    pub mode: LinkMode,
    /// Other DHCP servers that were heard, by address.
    pub foreign: Vec<ForeignServer>,
}

/// A DHCP server that is not us.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ForeignServer {
    /// As it names itself (option 54).
    pub address: Ipv4Addr,
    /// Its hardware address, as soon as one of its own frames was heard.
    pub mac: Option<MacAddr>,
    /// It gives no addresses, only what to boot.
    pub proxy: bool,
    /// When it was heard last.
    pub seen_at: UnixMs,
}
