//! One transfer: its socket, its sender, and the datagrams that are not sent yet.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

use embedded_tftp as tftp;
use trivet_board_linux::{
    DatagramDestination, Epoll, Interest, SEGMENTS_BYTES_MAX, SEGMENTS_MAX, SegmentSender,
    path_mtu, set_receive_buffer,
};

use super::content::TftpContent;
use super::transfer_limit::TftpTransferPermit;

/// Limit of unread acknowledgements, in bytes. A client sends one per window.
pub(super) const UNREAD_BYTES_MAX: usize = 16 * 1024;

/// Longest datagram that is read. A request has at most 512 bytes (RFC 2347).
pub(super) const DATAGRAM_BYTES_MAX: usize = 2048;

/// The same request from the same port, this soon after a packet of the client, is one
/// that the network has duplicated or delayed. Ours: longer than any network delays. A
/// client that has started again sends only its request meanwhile, and repeats it.
const LATE_US: u64 = 1_000_000;

/// Overhead of a packet: 4 bytes of TFTP, 8 of UDP, and those of IP.
const HEADS_V4_BYTES: usize = 4 + 8 + 20;
const HEADS_V6_BYTES: usize = 4 + 8 + 40;

/// The client, and our address that received its request.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct TftpClientEndpoint {
    pub(super) peer: SocketAddr,
    pub(super) local: IpAddr,
    interface: u32,
}

impl TftpClientEndpoint {
    pub(super) fn new(peer: SocketAddr, to: DatagramDestination) -> Self {
        Self {
            // One machine has one address, whether it sends to an IPv4 or an IPv6
            // socket.
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

    /// Opens a socket on a new port of the address that received the request (RFC 1350,
    /// section 4).
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

    /// Sends an error packet. A client that does not receive it repeats its request.
    pub(super) fn refuse(&self, code: tftp::ErrorCode, message: &str) {
        let mut answer = Vec::new();
        tftp::write_error(code, message, &mut answer);
        let _ = self.socket().and_then(|socket| socket.send(&answer));
    }
}

/// The limits for this path: blocks that fit into one packet without fragmentation.
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

/// The result of a step.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum TftpTransferStatus {
    /// It continues, or waits.
    Running,
    /// It has ended.
    Ended,
}

/// One file that is being sent.
pub(super) struct TftpServerTransfer {
    pub(super) client: TftpClientEndpoint,
    pub(super) path: String,
    pub(super) request: Vec<u8>,
    pub(super) sender: tftp::Sender,
    pub(super) content: TftpContent,
    pub(super) began_us: u64,
    /// When the client's last packet was received.
    received_us: u64,
    /// Bytes that were reported to the rack.
    pub(super) reported_bytes: u64,
    /// When the thread handles it next if no datagram arrives.
    pub(super) deadline_us: u64,
    key: u64,
    socket: UdpSocket,
    segments: SegmentSender,
    /// Datagrams that did not fit into the socket's buffer, and the length of each.
    unsent: Vec<u8>,
    datagram_bytes: usize,
    port_closed: bool,
    _permit: TftpTransferPermit,
}

impl TftpServerTransfer {
    /// Starts the reply on a new port. The socket is added to the poll.
    pub(super) fn begin(
        (key, client): (u64, TftpClientEndpoint),
        request: Vec<u8>,
        content: TftpContent,
        (poll, offload): (&Epoll, bool),
        (place, now_us): (TftpTransferPermit, u64),
    ) -> io::Result<Self> {
        let socket = client.socket()?;
        set_receive_buffer(&socket, UNREAD_BYTES_MAX)?;
        poll.add(&socket, key, Interest::Read)?;
        let Ok(tftp::Packet::Read(requested)) = tftp::parse(&request) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self {
            client,
            path: requested.file.to_owned(),
            sender: tftp::Sender::new(&requested, content.size(), limits(&socket), now_us),
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

    /// The socket is readable or writable. [`Self::pump`] sends what follows from that.
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
            // The client closed its port, so the transfer has ended.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.port_closed = true;
                return TftpTransferStatus::Ended;
            }
            Err(_) => {}
        }
        TftpTransferStatus::Running
    }

    /// Sends all datagrams that are due now.
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

    /// Datagrams that do not fit into the socket's buffer wait; those that fail are
    /// lost as on a network, and the sender repeats them.
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

    /// Ends it with an error packet to the client.
    pub(super) fn abort(&self, message: &str) {
        let mut answer = Vec::new();
        tftp::write_error(tftp::ErrorCode::Other, message, &mut answer);
        let _ = self.socket.send(&answer);
    }

    /// Bytes that the client has, as far as we know. A client that closes its port
    /// after everything was sent has the whole file: only its last acknowledgement was
    /// lost.
    pub(super) fn delivered_bytes(&self) -> u64 {
        if self.port_closed && self.sender.is_all_sent() {
            return self.content.size();
        }
        self.sender.bytes()
    }

    /// Whether the client wanted only the size: UEFI refuses our offer once it has read
    /// it, and then requests the file.
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

    /// Whether this is a duplicate of the transfer's own request: before the client has
    /// sent anything else, or so soon that the network and not the client repeated it.
    pub(super) fn is_repeated_by(&self, request: &[u8], now_us: u64) -> bool {
        let soon = now_us.saturating_sub(self.received_us) < LATE_US;
        (soon || self.sender.bytes() == 0) && self.request == request
    }
}
