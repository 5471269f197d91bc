//! The Ethernet interfaces of this machine and their properties.
//!
//! They come from system calls, not from `/sys`, which may show another network namespace than
//! that of this process.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

/// One Ethernet interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EthernetInterface {
    /// Its name.
    pub name: String,
    /// Its index; an interface that is created again under the same name has another.
    pub index: u32,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// It is administratively up.
    pub is_up: bool,
    /// It is a member of a bridge or a bond, which receives all of its frames.
    pub is_member: bool,
    /// It is a wireless interface.
    pub is_wireless: bool,
    /// Its IPv4 addresses, in the kernel's order.
    pub addresses: Vec<Ipv4Addr>,
}

/// All Ethernet interfaces, by name.
#[expect(
    unsafe_code,
    reason = "the list of interfaces has no safe wrapper in std"
)]
pub fn interfaces() -> io::Result<Vec<EthernetInterface>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the pointer is valid for the one pointer that is written to it.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found: BTreeMap<String, EthernetInterface> = BTreeMap::new();
    let mut addresses: Vec<(String, Ipv4Addr)> = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list, which lives until `freeifaddrs`.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: an entry's name is a string with its closing zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let Ok(name) = name.to_str() else { continue };
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: a non-null address holds at least its family.
        match i32::from(unsafe { (*entry.ifa_addr).sa_family }) {
            libc::AF_PACKET => {
                let at = entry.ifa_addr;
                // SAFETY: addresses of this family have this type. The read works with any
                // alignment.
                let link = unsafe { at.cast::<libc::sockaddr_ll>().read_unaligned() };
                if let Some(facts) = ethernet(name, &link, entry.ifa_flags) {
                    found.insert(name.to_owned(), facts);
                }
            }
            libc::AF_INET => {
                let at = entry.ifa_addr;
                // SAFETY: as above.
                let inet = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
                let address = Ipv4Addr::from_bits(u32::from_be(inet.sin_addr.s_addr));
                addresses.push((name.to_owned(), address));
            }
            _ => {}
        }
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    for (name, address) in addresses {
        if let Some(interface) = found.get_mut(&name) {
            interface.addresses.push(address);
        }
    }
    Ok(found.into_values().collect())
}

fn ethernet(name: &str, link: &libc::sockaddr_ll, flags: u32) -> Option<EthernetInterface> {
    let loopback = flags & libc::IFF_LOOPBACK as u32 != 0;
    if link.sll_hatype != libc::ARPHRD_ETHER || link.sll_halen != 6 || loopback {
        return None;
    }
    let home = Path::new("/sys/class/net").join(name);
    Some(EthernetInterface {
        name: name.to_owned(),
        index: u32::try_from(link.sll_ifindex).ok()?,
        mac: link.sll_addr[..6].try_into().ok()?,
        is_up: flags & libc::IFF_UP as u32 != 0,
        is_member: home.join("master").exists(),
        is_wireless: home.join("phy80211").exists(),
        addresses: Vec::new(),
    })
}

/// The interface of this name, if it exists.
pub fn interface(name: &str) -> io::Result<Option<EthernetInterface>> {
    let all = interfaces()?;
    Ok(all.into_iter().find(|interface| interface.name == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::testing::{ip, wire};

    #[test]
    fn loopback_and_missing_names_are_not_ethernet() {
        assert_eq!(interface("lo").unwrap(), None);
        assert_eq!(interface("no-such-if").unwrap(), None);
    }

    #[test]
    fn properties_follow_changes_of_the_interface() {
        wire(|| {
            ip("link set left address 52:54:00:77:00:01");
            ip("addr add 192.0.2.7/24 dev left");
            ip("addr add 192.0.2.9/32 dev left");
            let left = interface("left").unwrap().unwrap();
            assert_eq!(left.mac, [0x52, 0x54, 0, 0x77, 0, 1]);
            assert!(left.is_up && !left.is_wireless);
            let want = [Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 9)];
            assert_eq!(left.addresses, want);
            ip("link set left down");
            assert!(!interface("left").unwrap().unwrap().is_up);
            let names: Vec<_> = interfaces().unwrap();
            let names: Vec<_> = names.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, ["left", "right"]);
            ip("link del left");
            assert_eq!(interface("left").unwrap(), None);
        });
    }
}
