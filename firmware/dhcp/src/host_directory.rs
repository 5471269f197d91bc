//! Lookup of enrolled machines and reserved addresses, implemented by the caller.

use core::net::Ipv4Addr;

use trivet_model::MacAddr;

/// Enrolled machines and their reserved addresses. The server looks them up for every frame, so
/// a change takes effect without a notification.
pub trait HostDirectory {
    /// Whether the machine is enrolled.
    fn known(&self, mac: MacAddr) -> bool;

    /// The address reserved for this machine.
    fn reserved(&self, mac: MacAddr) -> Option<Ipv4Addr>;

    /// The machine this address is reserved for.
    fn owner(&self, address: Ipv4Addr) -> Option<MacAddr>;
}

/// A directory of enrolled machines without reservations.
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
