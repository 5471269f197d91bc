//! Packet sockets: frames of one interface.
//!
//! The receiver gets only DHCP, ARP and router solicitations: a filter in the kernel drops all
//! other traffic, such as image data. It cannot send; the sender is a second socket that
//! receives nothing.

mod filter;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use trivet_board_hal::{FRAME_BYTES_MAX, FRAMES_MAX, FrameReceiver, FrameSender};

use crate::EthernetInterface;

/// Receive buffer in the kernel. Ours: some 5000 requests, more than the machines of one
/// network send at once.
pub const RECEIVE_BYTES_MAX: libc::c_int = 8 << 20;

/// The VLAN id is the low bits of its tag (IEEE 802.1Q, section 9.6). Id 0 means no VLAN, only
/// a priority.
const VLAN_NUMBER: u16 = 0x0fff;

/// Space for one control message with the metadata of a frame.
const CONTROL_WORDS: usize = 8;

/// Receives the frames of one interface that the box needs for DHCP.
#[derive(Debug)]
pub struct PacketSocketReceiver {
    socket: OwnedFd,
    mac: [u8; 6],
    buffer: Box<[[u8; FRAME_BYTES_MAX]]>,
}

impl PacketSocketReceiver {
    /// Opens an interface for receiving, including frames to these multicast groups. Needs
    /// `CAP_NET_RAW`.
    pub fn open(interface: &EthernetInterface, groups: &[[u8; 6]]) -> io::Result<Self> {
        // Without a protocol the socket receives nothing until it is bound: nothing of other
        // interfaces, and nothing before the filter is set.
        let socket = packet_socket()?;
        filter::attach(&socket)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1_i32)?;
        // Spares the kernel a copy of all outgoing frames. Kernels before 4.20 do not support
        // it; then outgoing frames are skipped below.
        let _ = set(
            &socket,
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            &1_i32,
        );
        // Above the system's limit with CAP_NET_ADMIN, otherwise up to it.
        let (level, size) = (libc::SOL_SOCKET, RECEIVE_BYTES_MAX);
        if set(&socket, level, libc::SO_RCVBUFFORCE, &size).is_err() {
            set(&socket, level, libc::SO_RCVBUF, &size)?;
        }
        bind(&socket, interface.index, libc::ETH_P_ALL as u16)?;
        for group in groups {
            join(&socket, interface.index, *group)?;
        }
        Ok(Self {
            socket,
            mac: interface.mac,
            buffer: vec![[0; FRAME_BYTES_MAX]; FRAMES_MAX].into_boxed_slice(),
        })
    }
}

impl AsFd for PacketSocketReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for PacketSocketReceiver {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl FrameReceiver for PacketSocketReceiver {
    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    #[expect(unsafe_code, reason = "many frames at a time have no safe wrapper")]
    fn receive(&mut self, each: &mut dyn FnMut(&[u8], bool)) -> io::Result<usize> {
        let mut controls = [[0_u64; CONTROL_WORDS]; FRAMES_MAX];
        // SAFETY: all zeros is a valid value of these plain structures.
        let mut names: [libc::sockaddr_ll; FRAMES_MAX] = unsafe { mem::zeroed() };
        // SAFETY: as above; null pointers with a length of zero are valid.
        let mut parts: [libc::iovec; FRAMES_MAX] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut heads: [libc::mmsghdr; FRAMES_MAX] = unsafe { mem::zeroed() };
        for at in 0..FRAMES_MAX {
            parts[at].iov_base = self.buffer[at].as_mut_ptr().cast();
            parts[at].iov_len = FRAME_BYTES_MAX;
            let head = &mut heads[at].msg_hdr;
            head.msg_name = (&raw mut names[at]).cast();
            head.msg_namelen = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            head.msg_iov = &raw mut parts[at];
            head.msg_iovlen = 1;
            head.msg_control = controls[at].as_mut_ptr().cast();
            head.msg_controllen = mem::size_of_val(&controls[at]) as _;
        }
        // SAFETY: every head points to a name, a part and a control buffer of its own, which
        // outlive the call and have the given lengths.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                heads.as_mut_ptr(),
                FRAMES_MAX as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for at in 0..count {
            let head = &heads[at].msg_hdr;
            let cut = head.msg_flags & libc::MSG_TRUNC != 0;
            let knows = packet_metadata(head);
            if cut || knows.tagged || names[at].sll_pkttype == libc::PACKET_OUTGOING {
                continue;
            }
            let length = (heads[at].msg_len as usize).min(FRAME_BYTES_MAX);
            each(&self.buffer[at][..length], knows.checksum_offloaded);
        }
        Ok(count)
    }
}

/// The kernel's metadata of a frame.
#[derive(Clone, Copy, Default)]
struct PacketMetadata {
    /// It had a VLAN tag; a VLAN is an interface of its own.
    tagged: bool,
    /// Its checksums were verified, or were not filled in yet.
    checksum_offloaded: bool,
}

#[expect(
    unsafe_code,
    reason = "control messages are read by the system's macros"
)]
fn packet_metadata(head: &libc::msghdr) -> PacketMetadata {
    let mut knows = PacketMetadata::default();
    // SAFETY: the head was filled by the kernel and points to its control buffer.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(head) };
    while !next.is_null() {
        // SAFETY: the pointer comes from the macros, which stay within the buffer.
        let control = unsafe { &*next };
        let kind = (control.cmsg_level, control.cmsg_type);
        let length = mem::size_of::<libc::tpacket_auxdata>() as libc::c_uint;
        // SAFETY: the macro computes a number from a number.
        let whole = control.cmsg_len as usize >= unsafe { libc::CMSG_LEN(length) } as usize;
        if kind == (libc::SOL_PACKET, libc::PACKET_AUXDATA) && whole {
            // SAFETY: a message of this type and length contains this structure. The read works
            // with any alignment.
            let reported = unsafe {
                libc::CMSG_DATA(control)
                    .cast::<libc::tpacket_auxdata>()
                    .read_unaligned()
            };
            let status = reported.tp_status;
            let number = reported.tp_vlan_tci & VLAN_NUMBER;
            knows.tagged = status & libc::TP_STATUS_VLAN_VALID != 0 && number != 0;
            let sums = libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID;
            knows.checksum_offloaded = status & sums != 0;
        }
        // SAFETY: both pointers belong to this head.
        next = unsafe { libc::CMSG_NXTHDR(head, next) };
    }
    knows
}

/// Sends frames on one interface.
#[derive(Debug)]
pub struct PacketSocketSender {
    socket: OwnedFd,
}

impl PacketSocketSender {
    /// Opens an interface for sending. Needs `CAP_NET_RAW`.
    pub fn open(interface: &EthernetInterface) -> io::Result<Self> {
        let socket = packet_socket()?;
        bind(&socket, interface.index, 0)?;
        Ok(Self { socket })
    }
}

impl FrameSender for PacketSocketSender {
    fn send(&mut self, frames: &[Vec<u8>]) -> io::Result<usize> {
        let mut sent = 0;
        for batch in frames.chunks(FRAMES_MAX) {
            let mut rest = batch;
            while !rest.is_empty() {
                match send_some(&self.socket, rest) {
                    Ok(count) => {
                        sent += count;
                        rest = &rest[count.clamp(1, rest.len())..];
                    }
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EINTR) => {}
                        // Longer than the MTU of the interface: skip this frame and send the
                        // others.
                        Some(libc::EMSGSIZE) => rest = &rest[1..],
                        Some(libc::EAGAIN | libc::ENOBUFS) => return Ok(sent),
                        _ => return Err(error),
                    },
                }
            }
        }
        Ok(sent)
    }
}

/// Sends at most [`FRAMES_MAX`] frames with one call; returns how many were sent.
#[expect(unsafe_code, reason = "many frames at a time have no safe wrapper")]
fn send_some(socket: &OwnedFd, frames: &[Vec<u8>]) -> io::Result<usize> {
    // SAFETY: all zeros is a valid value of these plain structures.
    let mut parts: [libc::iovec; FRAMES_MAX] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut heads: [libc::mmsghdr; FRAMES_MAX] = unsafe { mem::zeroed() };
    let count = frames.len().min(FRAMES_MAX);
    for (at, frame) in frames.iter().take(count).enumerate() {
        // The kernel reads through this pointer and never writes.
        parts[at].iov_base = frame.as_ptr().cast_mut().cast();
        parts[at].iov_len = frame.len();
        heads[at].msg_hdr.msg_iov = &raw mut parts[at];
        heads[at].msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the first `count` heads point to a part each, and each part to a frame; all
    // outlive the call.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            heads.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[expect(unsafe_code, reason = "packet sockets are not in std")]
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

#[expect(unsafe_code, reason = "packet sockets are not in std")]
pub(crate) fn bind(socket: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as libc::c_int;
    // SAFETY: the pointer is to an address of the given length.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Network cards drop frames to multicast groups that were not joined.
pub(crate) fn join(socket: &OwnedFd, index: u32, group: [u8; 6]) -> io::Result<()> {
    let mut address = [0; 8];
    address[..6].copy_from_slice(&group);
    let request = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_MULTICAST as u16,
        mr_alen: 6,
        mr_address: address,
    };
    set(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        &request,
    )
}

#[expect(unsafe_code, reason = "socket options are not in std")]
fn set<T: Copy>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer is to a value of the given length; the kernel copies it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
