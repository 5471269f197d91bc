//! Datagrams that did not get to their destination: what the network reports about them. A socket
//! that sends to many peers learns this from its error queue only.

use std::io;
use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use crate::datagram::{address, length_of, set};

/// Space for the control messages of an error: `sock_extended_err`, and the address of the machine
/// that reported it.
const CONTROL_WORDS: usize = 32;

/// A datagram that did not get to its destination.
#[derive(Debug)]
pub struct UndeliveredDatagram {
    /// Its destination.
    pub to: SocketAddr,
    /// What the network reported.
    pub error: io::Error,
}

/// Enables reports about datagrams that are not delivered. After that, sending on the socket may
/// fail with a report about a datagram before: the caller sends once more.
pub fn enable_delivery_errors(socket: &UdpSocket) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
        SocketAddr::V6(_) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
    }
}

/// Takes the oldest report; none if there is none, without waiting.
#[expect(unsafe_code, reason = "std cannot read the error queue of a socket")]
pub fn receive_delivery_error(socket: &impl AsRawFd) -> io::Result<Option<UndeliveredDatagram>> {
    // SAFETY: all of these are plain numbers, for which zero is a value.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: as above; the pointers are set below or stay null. No part of the datagram is read.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = length_of::<libc::sockaddr_storage>();
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message's pointers and lengths are those of values that outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        };
    }
    let missing = || io::Error::other("a delivery error without its destination");
    Ok(Some(UndeliveredDatagram {
        to: address(&name).ok_or_else(missing)?,
        error: reported(&message).ok_or_else(missing)?,
    }))
}

#[expect(unsafe_code, reason = "control messages are read by macros of C")]
fn reported(message: &libc::msghdr) -> Option<io::Error> {
    // SAFETY: the kernel has filled the control buffer and set its length; the
    // macros stay within it, and data is read unaligned.
    unsafe {
        let mut one = libc::CMSG_FIRSTHDR(message);
        while let Some(head) = one.as_ref() {
            let kind = (head.cmsg_level, head.cmsg_type);
            if kind == (libc::IPPROTO_IP, libc::IP_RECVERR)
                || kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            {
                let data = libc::CMSG_DATA(one);
                let report = data.cast::<libc::sock_extended_err>().read_unaligned();
                let code = report.ee_errno;
                return Some(io::Error::from_raw_os_error(code.cast_signed()));
            }
            one = libc::CMSG_NXTHDR(message, one);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn a_closed_port_is_reported_with_the_destination() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        enable_delivery_errors(&socket).expect("the option is supported");
        assert!(receive_delivery_error(&socket).expect("no error").is_none());
        // A port that was free a moment ago, and is closed again.
        let closed = {
            let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            other.local_addr().expect("its address")
        };
        socket.send_to(b"ping", closed).expect("it is sent");
        let limit = Timespec {
            tv_sec: 30,
            tv_nsec: 0,
        };
        let mut waiting = [PollFd::new(&socket, PollFlags::ERR)];
        assert_eq!(poll(&mut waiting, Some(&limit)), Ok(1));
        let report = receive_delivery_error(&socket).expect("no error");
        let report = report.expect("a report");
        assert_eq!(report.to, closed);
        assert_eq!(report.error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
