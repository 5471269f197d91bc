//! What the caller knows of machines.

use core::net::Ipv4Addr;

use trivet_model::MacAddr;

/// Which machines the caller knows, and which addresses it keeps for them. Asked
/// anew for every frame: a machine that becomes known needs no word to the server.
pub trait HostDirectory {
    /// Is it one of the caller's?
    fn known(&self, mac: MacAddr) -> bool;

    /// The address that is kept for this machine.
    fn reserved(&self, mac: MacAddr) -> Option<Ipv4Addr>;

    /// The machine this address is kept for.
    fn owner(&self, address: Ipv4Addr) -> Option<MacAddr>;
}

/// Who is known, with nothing reserved for anybody.
impl<Known: Fn(MacAddr) -> bool> HostDirectory for Known {
    fn known(&self, mac: MacAddr) -> bool {
        self(mac)
    }

    fn reserved(&self, _: MacAddr) -> Option<Ipv4Addr> {
        None
    }

    fn owner(&self, _: Ipv4Addr) -> Option<MacAddr> {
        None
    }
}
