//! Facts about network interfaces that are not in `/sys`: the permanent hardware address, the
//! supported link modes, and all addresses.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;

use rustix::net::{AddressFamily, SocketType, socket};

use crate::block::outcome;

/// `SIOCETHTOOL` of `linux/sockios.h`.
const SIOCETHTOOL: u64 = 0x8946;

/// `ETHTOOL_GSET` and `ETHTOOL_GPERMADDR` of `linux/ethtool.h`.
const ETHTOOL_GSET: u32 = 1;
const ETHTOOL_GPERMADDR: u32 = 0x20;

/// `MAX_ADDR_LEN` of `linux/netdevice.h`.
const ADDRESS_BYTES_MAX: usize = 32;

/// Words of `struct ethtool_cmd`.
const SETTINGS_WORDS: usize = 11;

/// `struct ethtool_perm_addr` with space for the longest address.
#[repr(C)]
struct PermanentAddress {
    command: u32,
    bytes: u32,
    address: [u8; ADDRESS_BYTES_MAX],
}

/// An address of an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InterfaceAddress {
    /// The name of the interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// It is valid on its link only, and needs the interface as a zone.
    pub is_link_local: bool,
}

/// The hardware address that a card was made with. `None` if the driver does not know it.
pub fn permanent_address(interface: &str) -> io::Result<Option<Vec<u8>>> {
    let mut request = PermanentAddress {
        command: ETHTOOL_GPERMADDR,
        bytes: ADDRESS_BYTES_MAX as u32,
        address: [0; ADDRESS_BYTES_MAX],
    };
    ethtool(interface, &mut request)?;
    let address = &request.address[..(request.bytes as usize).min(ADDRESS_BYTES_MAX)];
    Ok(address
        .iter()
        .any(|&byte| byte != 0)
        .then(|| address.to_vec()))
}

/// The link modes that an interface supports: the bits `SUPPORTED_*` of `linux/ethtool.h`.
pub fn supported_link_modes(interface: &str) -> io::Result<u32> {
    let mut settings = [0_u32; SETTINGS_WORDS];
    settings[0] = ETHTOOL_GSET;
    ethtool(interface, &mut settings)?;
    Ok(settings[1])
}

#[expect(unsafe_code, reason = "requests to a socket are not in std")]
fn ethtool<T>(interface: &str, request: &mut T) -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut ifreq: libc::ifreq = unsafe { mem::zeroed() };
    let name = interface.as_bytes();
    if name.is_empty() || name.len() >= ifreq.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, &from) in ifreq.ifr_name.iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = std::ptr::from_mut(request).cast();
    // SAFETY: both callers pass the structure of their command, which outlives the call.
    outcome(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut ifreq) })
}

/// The addresses of all interfaces, in the kernel's order.
#[expect(
    unsafe_code,
    reason = "the list of addresses has no safe wrapper in std"
)]
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the pointer is valid for the one pointer that is written to it.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list, which lives until `freeifaddrs`.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: an entry's name is a string with its closing zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: the address of an entry is null or a valid address.
        let address = unsafe { ip_address(entry.ifa_addr) };
        if let (Ok(name), Some((address, is_link_local))) = (name.to_str(), address) {
            found.push(InterfaceAddress {
                interface: name.to_owned(),
                address,
                is_link_local,
            });
        }
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
///
/// The pointer is null or points to an address as long as its family says.
#[expect(
    unsafe_code,
    reason = "the list of addresses has no safe wrapper in std"
)]
unsafe fn ip_address(at: *const libc::sockaddr) -> Option<(IpAddr, bool)> {
    if at.is_null() {
        return None;
    }
    // SAFETY: a non-null address holds at least its family.
    match i32::from(unsafe { (*at).sa_family }) {
        libc::AF_INET => {
            // SAFETY: addresses of this family have this type. The read works with any
            // alignment.
            let inet = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            let address = Ipv4Addr::from_bits(u32::from_be(inet.sin_addr.s_addr));
            Some((address.into(), false))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let inet = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(inet.sin6_addr.s6_addr);
            Some((address.into(), address.is_unicast_link_local()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::testing::{ip, wire};

    #[test]
    fn loopback_has_addresses_and_no_permanent_one() {
        let all = interface_addresses().unwrap();
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(
            all.iter()
                .any(|one| one.interface == "lo" && one.address == loopback)
        );
        assert!(!matches!(permanent_address("lo"), Ok(Some(_))));
    }

    #[test]
    fn names_that_cannot_exist_are_errors() {
        for name in ["", "an-interface-with-a-long-name", "no-such-if"] {
            assert!(permanent_address(name).is_err(), "{name}");
            assert!(supported_link_modes(name).is_err(), "{name}");
        }
    }

    #[test]
    fn addresses_come_in_the_order_of_the_kernel() {
        wire(|| {
            ip("addr add 192.0.2.7/24 dev left");
            ip("addr add 2001:db8::7/64 dev left nodad");
            let all = interface_addresses().unwrap();
            let left: Vec<IpAddr> = all
                .iter()
                .filter(|one| one.interface == "left" && !one.is_link_local)
                .map(|one| one.address)
                .collect();
            let want: [IpAddr; 2] = [
                Ipv4Addr::new(192, 0, 2, 7).into(),
                "2001:db8::7".parse().unwrap(),
            ];
            assert_eq!(left, want);
        });
    }
}
