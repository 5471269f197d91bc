//! What a machine gets when it boots from the network.

use core::net::Ipv4Addr;

use crate::MacAddr;

/// What a machine with a known port boots into.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BootPlan {
    /// The agent's ramdisk.
    Agent,
    /// Its own disk.
    Disk,
    /// Nobody has decided: wait and ask again.
    Wait,
}

/// Who asked for an address and how its firmware described itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientSeen {
    /// Its hardware address.
    pub mac: MacAddr,
    /// DHCP option 93, first entry.
    pub arch: Option<u16>,
    /// DHCP option 97, as a UUID in text order.
    pub uuid: Option<[u8; 16]>,
    /// It is iPXE (option 175 or user class).
    pub ipxe: bool,
    /// DHCP option 60, as far as it is text.
    pub vendor_class: Option<String>,
    /// The address it was given, if any.
    pub address: Option<Ipv4Addr>,
}
