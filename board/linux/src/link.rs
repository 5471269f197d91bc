//! Changes to network interfaces: up, an address, the default route (netdevice(7), route in
//! the address family IPv4).

use std::io;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Sets an interface up.
#[expect(unsafe_code, reason = "the request has no safe wrapper")]
pub fn set_link_up(name: &str) -> io::Result<()> {
    let mut request = named(name)?;
    change(libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: SIOCGIFFLAGS has filled the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    change(libc::SIOCSIFFLAGS, &mut request)
}

/// Sets an interface down.
#[expect(unsafe_code, reason = "the request has no safe wrapper")]
pub fn set_link_down(name: &str) -> io::Result<()> {
    let mut request = named(name)?;
    change(libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: SIOCGIFFLAGS has filled the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags & !(libc::IFF_UP as libc::c_short);
    change(libc::SIOCSIFFLAGS, &mut request)
}

/// Gives an interface this address, in the place of its first one.
pub fn set_link_address(name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let mut request = named(name)?;
    request.ifr_ifru.ifru_addr = inet(address);
    change(libc::SIOCSIFADDR, &mut request)?;
    let bits = u32::MAX.checked_shl(32 - u32::from(prefix.min(32)));
    request.ifr_ifru.ifru_netmask = inet(Ipv4Addr::from_bits(bits.unwrap_or(0)));
    change(libc::SIOCSIFNETMASK, &mut request)
}

/// Adds a default route through this interface. The route of the least metric is used.
#[expect(
    unsafe_code,
    reason = "the structure has padding that only the system names"
)]
pub fn add_default_route(name: &str, gateway: Ipv4Addr, metric: u16) -> io::Result<()> {
    let mut device = interface_name(name)?;
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut route: libc::rtentry = unsafe { mem::zeroed() };
    route.rt_dst = inet(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = inet(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = inet(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // The kernel subtracts one.
    route.rt_metric = metric.saturating_add(1).cast_signed();
    route.rt_dev = device.as_mut_ptr();
    match change(libc::SIOCADDRT, &mut route) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        outcome => outcome,
    }
}

type InterfaceName = [libc::c_char; libc::IFNAMSIZ];

/// A name with its closing zero.
fn interface_name(name: &str) -> io::Result<InterfaceName> {
    let mut bytes = [0; libc::IFNAMSIZ];
    if name.is_empty() || name.len() >= bytes.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(bytes)
}

#[expect(unsafe_code, reason = "the structure has a union")]
fn named(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_name = interface_name(name)?;
    Ok(request)
}

#[expect(unsafe_code, reason = "an address has the type of its family")]
fn inet(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut inet: libc::sockaddr_in = unsafe { mem::zeroed() };
    inet.sin_family = libc::AF_INET as libc::sa_family_t;
    inet.sin_addr.s_addr = address.to_bits().to_be();
    // SAFETY: both structures have 16 bytes, and every value of them is valid.
    unsafe { mem::transmute(inet) }
}

/// Sends a request of netdevice(7), whose type must be the one that it takes.
#[expect(unsafe_code, reason = "the system call has no safe wrapper")]
fn change<T>(request: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let socket: OwnedFd = socket_with(family, SocketType::DGRAM, flags, None)?;
    // SAFETY: the argument is of the type that the request takes, and outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut *argument) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::testing::{ip, wire};
    use crate::interface;

    #[test]
    fn an_interface_goes_up_and_gets_an_address_and_a_route() {
        wire(|| {
            ip("link set left down");
            set_link_up("left").unwrap();
            assert!(interface("left").unwrap().unwrap().is_up);
            set_link_address("left", Ipv4Addr::new(192, 0, 2, 7), 24).unwrap();
            // Another one takes the place of the first.
            set_link_address("left", Ipv4Addr::new(192, 0, 2, 8), 25).unwrap();
            let left = interface("left").unwrap().unwrap();
            assert_eq!(left.addresses, [Ipv4Addr::new(192, 0, 2, 8)]);
            let gateway = Ipv4Addr::new(192, 0, 2, 1);
            add_default_route("left", gateway, 3).unwrap();
            add_default_route("left", gateway, 3).unwrap();
            set_link_down("left").unwrap();
            assert!(!interface("left").unwrap().unwrap().is_up);
        });
    }

    #[test]
    fn a_name_that_is_too_long_or_missing_is_an_error() {
        for name in ["", "a-name-of-sixteen", "no-such-if"] {
            assert!(set_link_up(name).is_err(), "{name}");
        }
    }
}
