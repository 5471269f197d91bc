//! One transfer: its socket, its sender, and what has not left yet.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

use embedded_tftp as tftp;
use trivet_board_linux::{
    DatagramDestination, Epoll, Interest, SEGMENTS_BYTES_MAX, SEGMENTS_MAX, SegmentSender,
    path_mtu, set_receive_buffer,
};

use super::content::TftpContent;
use super::transfer_limit::TftpTransferPermit;

/// Acknowledgements that wait unread, in bytes. A client sends one per window.
pub(super) const UNREAD_BYTES_MAX: usize = 16 * 1024;

/// Longest datagram that is read. A request has at most 512 bytes (RFC 2347).
pub(super) const DATAGRAM_BYTES_MAX: usize = 2048;

/// The same request from the same port, so soon after a word of the client, is one that the
/// wire has doubled or brought late. Ours: longer than any wire delays. A client that has
/// begun anew says nothing else meanwhile, and repeats its request.
const LATE_US: u64 = 1_000_000;

/// What a packet has beside a block: 4 bytes of TFTP, 8 of UDP, and those of IP.
const HEADS_V4_BYTES: usize = 4 + 8 + 20;
const HEADS_V6_BYTES: usize = 4 + 8 + 40;

/// Who asked, and at which of our addresses.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct TftpClientEndpoint {
    pub(super) peer: SocketAddr,
    pub(super) local: IpAddr,
    interface: u32,
}

impl TftpClientEndpoint {
    pub(super) fn new(peer: SocketAddr, to: DatagramDestination) -> Self {
        Self {
            // One machine, whether it came to an IPv4 or an IPv6 socket.
            peer: match peer {
                SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
                    SocketAddr::new(peer.ip().to_canonical(), peer.port())
                }
                other => other,
            },
            local: to.address.to_canonical(),
            interface: to.interface,
        }
    }

    /// A port of its own at the address that was asked (RFC 1350, section 4).
    pub(super) fn socket(&self) -> io::Result<UdpSocket> {
        let local = match self.local {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, 0, 0, self.interface).into()
            }
            ip => SocketAddr::new(ip, 0),
        };
        let socket = UdpSocket::bind(local)?;
        socket.connect(self.peer)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Says no. A client that does not hear it asks again.
    pub(super) fn refuse(&self, code: tftp::ErrorCode, message: &str) {
        let mut answer = Vec::new();
        tftp::write_error(code, message, &mut answer);
        let _ = self.socket().and_then(|socket| socket.send(&answer));
    }
}

/// What we agree to on this path: blocks that leave without fragments.
fn limits(socket: &UdpSocket) -> tftp::TransferLimits {
    let default = tftp::TransferLimits::default();
    let heads = match socket.peer_addr() {
        Ok(SocketAddr::V6(_)) => HEADS_V6_BYTES,
        _ => HEADS_V4_BYTES,
    };
    let fits = path_mtu(socket).ok().and_then(|mtu| {
        let bytes = mtu.checked_sub(heads)?;
        Some(u16::try_from(bytes).unwrap_or(u16::MAX))
    });
    let fits = fits.unwrap_or(default.block_bytes_max);
    tftp::TransferLimits {
        block_bytes_max: fits.clamp(tftp::BLOCK_BYTES_DEFAULT, tftp::BLOCK_BYTES_MAX),
        ..default
    }
}

/// What came of a step.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum TftpTransferStatus {
    /// It goes on, or waits.
    Running,
    /// It is over.
    Ended,
}

/// One file on its way.
pub(super) struct TftpServerTransfer {
    pub(super) client: TftpClientEndpoint,
    pub(super) path: String,
    pub(super) request: Vec<u8>,
    pub(super) sender: tftp::Sender,
    pub(super) content: TftpContent,
    pub(super) began_us: u64,
    /// When the client last said something.
    received_us: u64,
    /// Bytes that the rack was told of.
    pub(super) reported_bytes: u64,
    /// When the thread looks at it next without a datagram.
    pub(super) deadline_us: u64,
    key: u64,
    socket: UdpSocket,
    segments: SegmentSender,
    /// What the socket had no room for, and the length of each datagram.
    unsent: Vec<u8>,
    datagram_bytes: usize,
    port_closed: bool,
    _permit: TftpTransferPermit,
}

impl TftpServerTransfer {
    /// Begins to answer, with a port of its own. The socket is added to the poll.
    pub(super) fn begin(
        (key, asker): (u64, TftpClientEndpoint),
        request: Vec<u8>,
        content: TftpContent,
        (poll, offload): (&Epoll, bool),
        (place, now_us): (TftpTransferPermit, u64),
    ) -> io::Result<Self> {
        let socket = asker.socket()?;
        set_receive_buffer(&socket, UNREAD_BYTES_MAX)?;
        poll.add(&socket, key, Interest::Read)?;
        let Ok(tftp::Packet::Read(asked)) = tftp::parse(&request) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self {
            client: asker,
            path: asked.file.to_owned(),
            sender: tftp::Sender::new(&asked, content.size(), limits(&socket), now_us),
            request,
            content,
            began_us: now_us,
            received_us: now_us,
            reported_bytes: 0,
            deadline_us: u64::MAX,
            key,
            socket,
            segments: SegmentSender::new(offload),
            unsent: Vec::new(),
            datagram_bytes: 0,
            port_closed: false,
            _permit: place,
        })
    }

    /// The socket has something, or room. What follows from it is for [`Self::pump`].
    pub(super) fn receive(
        &mut self,
        poll: &Epoll,
        now_us: u64,
        out: &mut Vec<u8>,
    ) -> TftpTransferStatus {
        if !self.unsent.is_empty() {
            out.clone_from(&self.unsent);
            self.unsent.clear();
            self.send(poll, out, self.datagram_bytes);
            if self.unsent.is_empty() {
                let _ = poll.change(&self.socket, self.key, Interest::Read);
            }
        }
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        match self.socket.recv(&mut buffer) {
            Ok(length) => {
                self.received_us = now_us;
                self.sender.datagram(now_us, &buffer[..length]);
            }
            // The client closed its port: done with us, whatever it has.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.port_closed = true;
                return TftpTransferStatus::Ended;
            }
            Err(_) => {}
        }
        TftpTransferStatus::Running
    }

    /// Sends all that is to be sent now.
    pub(super) fn pump(&mut self, poll: &Epoll, out: &mut Vec<u8>) -> TftpTransferStatus {
        while self.unsent.is_empty() {
            let burst = self
                .sender
                .burst(&mut self.content, SEGMENTS_MAX, SEGMENTS_BYTES_MAX, out);
            let Some(each) = burst else { break };
            self.send(poll, out, each);
        }
        if self.sender.state() == tftp::TransferState::Running {
            TftpTransferStatus::Running
        } else {
            TftpTransferStatus::Ended
        }
    }

    /// What cannot be sent now waits for room; what fails is lost like on a wire,
    /// and the sender repeats it.
    fn send(&mut self, poll: &Epoll, bytes: &[u8], each: usize) {
        let mut at = 0;
        while at < bytes.len() {
            match self.segments.send(&self.socket, &bytes[at..], each) {
                Ok(sent) => at += sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(&bytes[at..]);
                    self.datagram_bytes = each;
                    let _ = poll.change(&self.socket, self.key, Interest::ReadAndWrite);
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// Ends it with a word to the client.
    pub(super) fn abort(&self, message: &str) {
        let mut answer = Vec::new();
        tftp::write_error(tftp::ErrorCode::Other, message, &mut answer);
        let _ = self.socket.send(&answer);
    }

    /// Bytes that the client has, as far as we know. One that closes its port when
    /// everything has left has what it wanted: only its last word was lost.
    pub(super) fn delivered_bytes(&self) -> u64 {
        if self.port_closed && self.sender.is_all_sent() {
            return self.content.size();
        }
        self.sender.bytes()
    }

    /// Whether nothing but the size was wanted: UEFI refuses our offer once it has read
    /// it, and asks again for the file.
    pub(super) fn is_size_query(&self) -> bool {
        let refused = tftp::TransferFailure::Peer {
            code: tftp::ErrorCode::OptionsRefused as u16,
        };
        self.sender.state()
            == tftp::TransferState::Failed {
                bytes: 0,
                reason: refused,
            }
    }

    /// Whether this is the request that it answers: before anything has come of it, or so
    /// soon that it is the wire's repetition and not the client's.
    pub(super) fn is_repeated_by(&self, request: &[u8], now_us: u64) -> bool {
        let soon = now_us.saturating_sub(self.received_us) < LATE_US;
        (soon || self.sender.bytes() == 0) && self.request == request
    }
}
