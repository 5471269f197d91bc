//! UDP features that std lacks: the destination address of a datagram, the path MTU, and many
//! datagrams in one call.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd as _;

use crate::poll::checked;

/// Most datagrams of one call: the limit of every kernel with segmentation offload
/// (`UDP_MAX_SEGMENTS`).
pub const SEGMENTS_MAX: usize = 64;

/// Most bytes of one call: what fits one IPv4 packet before it is split.
pub const SEGMENTS_BYTES_MAX: usize = 65_507;

/// Space for the control messages of a datagram: one `in_pktinfo` or `in6_pktinfo`.
const CONTROL_WORDS: usize = 16;

/// A received datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceivedDatagram {
    /// Its length, at most that of the buffer.
    pub length: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The destination, if it was enabled.
    pub to: Option<DatagramDestination>,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DatagramDestination {
    /// Our address, which replies should have as source.
    pub address: IpAddr,
    /// The index of the receiving interface.
    pub interface: u32,
    /// False for broadcast and multicast.
    pub unicast: bool,
}

/// Enables the destination of received datagrams on a socket.
pub fn enable_destination_info(socket: &UdpSocket) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        SocketAddr::V6(_) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    }
}

/// The known path MTU to the peer of a connected socket, including the IP header.
pub fn path_mtu(socket: &UdpSocket) -> io::Result<usize> {
    let mtu = match socket.local_addr()? {
        SocketAddr::V4(_) => get(socket, libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => get(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    mtu.map(|mtu| usize::try_from(mtu).unwrap_or(0))
}

/// Limits the receive buffer of a socket, in bytes.
pub fn set_receive_buffer(socket: &UdpSocket, bytes_max: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes_max).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

/// Receives one datagram.
#[expect(unsafe_code, reason = "std cannot read control messages")]
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<ReceivedDatagram> {
    // SAFETY: all of these are plain numbers, for which zero is a value.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    let mut control = [0_u64; CONTROL_WORDS];
    let mut piece = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: as above; all pointers are set below or stay null.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = length_of::<libc::sockaddr_storage>();
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message's pointers and lengths are those of values that outlive the call, and
    // of `buffer`, which is borrowed for writing.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let Ok(length) = usize::try_from(length) else {
        return Err(io::Error::last_os_error());
    };
    let from =
        address(&name).ok_or_else(|| io::Error::other("unknown address family of a sender"))?;
    Ok(ReceivedDatagram {
        length,
        from,
        to: destination(&message),
    })
}

#[expect(unsafe_code, reason = "the family determines the structure")]
pub(crate) fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is larger and aligned for all families.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the storage is larger and aligned for all families.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[expect(unsafe_code, reason = "control messages are read by macros of C")]
fn destination(message: &libc::msghdr) -> Option<DatagramDestination> {
    // SAFETY: the kernel has filled the control buffer and set its length; the
    // macros stay within it, and data is read unaligned.
    unsafe {
        let mut one = libc::CMSG_FIRSTHDR(message);
        while let Some(head) = one.as_ref() {
            let data = libc::CMSG_DATA(one);
            if (head.cmsg_level, head.cmsg_type) == (libc::IPPROTO_IP, libc::IP_PKTINFO) {
                let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                let (sent_to, ours) = (info.ipi_addr.s_addr, info.ipi_spec_dst.s_addr);
                return Some(DatagramDestination {
                    address: Ipv4Addr::from(u32::from_be(ours)).into(),
                    interface: info.ipi_ifindex.cast_unsigned(),
                    unicast: sent_to == ours,
                });
            }
            if (head.cmsg_level, head.cmsg_type) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) {
                let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                return Some(DatagramDestination {
                    address: IpAddr::V6(address),
                    interface: info.ipi6_ifindex,
                    unicast: !address.is_multicast(),
                });
            }
            one = libc::CMSG_NXTHDR(message, one);
        }
    }
    None
}

/// Sends many datagrams of one length on a connected socket: by segmentation offload if the
/// kernel and the path support it, otherwise one by one.
#[derive(Clone, Debug)]
pub struct SegmentSender {
    offload: bool,
    set_to: usize,
}

impl SegmentSender {
    /// Without `offload`, or once it has failed, datagrams are sent one by one.
    #[must_use]
    pub fn new(offload: bool) -> Self {
        Self { offload, set_to: 0 }
    }

    /// Whether segmentation offload is still used.
    #[must_use]
    pub fn is_offloaded(&self) -> bool {
        self.offload
    }

    /// Sends `bytes` as datagrams of `each` bytes; the last may be shorter. At most
    /// [`SEGMENTS_MAX`] and [`SEGMENTS_BYTES_MAX`]. Returns how many bytes were sent, which is
    /// less than all if the socket buffer is full.
    pub fn send(&mut self, socket: &UdpSocket, bytes: &[u8], each: usize) -> io::Result<usize> {
        if bytes.len() <= each {
            self.set(
                socket,
                if bytes.len() <= self.set_to {
                    self.set_to
                } else {
                    0
                },
            )?;
            return socket.send(bytes);
        }
        if self.offload {
            match self.set(socket, each).and_then(|()| socket.send(bytes)) {
                Err(error) if is_unable(&error) => {
                    self.offload = false;
                    self.set(socket, 0)?;
                }
                other => return other,
            }
        }
        one_by_one(socket, bytes, each)
    }

    fn set(&mut self, socket: &UdpSocket, each: usize) -> io::Result<()> {
        if each != self.set_to {
            let value = libc::c_int::try_from(each).unwrap_or(0);
            set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, value)?;
            self.set_to = each;
        }
        Ok(())
    }
}

/// Whether segmentation, not the datagram, was refused: by a kernel without the option, a
/// device without checksum offload, or a path whose MTU has become smaller.
fn is_unable(error: &io::Error) -> bool {
    let refusals = [
        libc::EIO,
        libc::EINVAL,
        libc::EMSGSIZE,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| refusals.contains(&code))
}

/// One system call, but the kernel handles each datagram separately.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
fn one_by_one(socket: &UdpSocket, bytes: &[u8], each: usize) -> io::Result<usize> {
    let mut pieces: Vec<_> = bytes
        .chunks(each)
        .take(SEGMENTS_MAX)
        .map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        })
        .collect();
    let mut messages: Vec<_> = pieces
        .iter_mut()
        .map(|piece| {
            // SAFETY: plain numbers and pointers, for which zero is a value.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    let count = libc::c_uint::try_from(messages.len()).unwrap_or(0);
    // SAFETY: each message points to one piece of `bytes`, which the kernel only reads, and all
    // of them outlive the call.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    let sent = usize::try_from(checked(sent)?).unwrap_or(0);
    Ok((sent * each).min(bytes.len()))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "structures of system calls are small"
)]
pub(crate) fn length_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub(crate) fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = length_of::<libc::c_int>();
    // SAFETY: `value` has that length and outlives the call.
    checked(unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, name, value, length)
    })
    .map(drop)
}

#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
fn get(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = length_of::<libc::c_int>();
    // SAFETY: `value` has that length and both outlive the call.
    checked(unsafe {
        let (value, length) = ((&raw mut value).cast(), &raw mut length);
        libc::getsockopt(socket.as_raw_fd(), level, name, value, length)
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests;
