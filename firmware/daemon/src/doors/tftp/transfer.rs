//! One transfer: its socket, its sender, and what has not left yet.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

use embedded_tftp as tftp;
use trivet_board_linux::{
    Interest, Poll, SEGMENTS_BYTES_MAX, SEGMENTS_MAX, Segments, SentTo, bound_unread, path_mtu,
};

use super::content::Content;
use super::room::Place;

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
pub(super) struct Asker {
    pub(super) peer: SocketAddr,
    pub(super) local: IpAddr,
    interface: u32,
}

impl Asker {
    pub(super) fn new(peer: SocketAddr, to: SentTo) -> Self {
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
fn limits(socket: &UdpSocket) -> tftp::Limits {
    let default = tftp::Limits::default();
    let heads = match socket.peer_addr() {
        Ok(SocketAddr::V6(_)) => HEADS_V6_BYTES,
        _ => HEADS_V4_BYTES,
    };
    let fits = path_mtu(socket).ok().and_then(|mtu| {
        let bytes = mtu.checked_sub(heads)?;
        Some(u16::try_from(bytes).unwrap_or(u16::MAX))
    });
    let fits = fits.unwrap_or(default.block_bytes_max);
    tftp::Limits {
        block_bytes_max: fits.clamp(tftp::BLOCK_BYTES_DEFAULT, tftp::BLOCK_BYTES_MAX),
        ..default
    }
}

/// What came of a step.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// It goes on, or waits.
    Running,
    /// It is over.
    Over,
}

/// One file on its way.
pub(super) struct Transfer {
    pub(super) asker: Asker,
    pub(super) path: String,
    pub(super) request: Vec<u8>,
    pub(super) sender: tftp::Sender,
    pub(super) content: Content,
    pub(super) began_us: u64,
    /// When the client last said something.
    heard_us: u64,
    /// Bytes that the rack was told of.
    pub(super) told: u64,
    /// When the thread looks at it next without a datagram.
    pub(super) alarm_us: u64,
    key: u64,
    socket: UdpSocket,
    segments: Segments,
    /// What the socket had no room for, and the length of each datagram.
    unsent: Vec<u8>,
    each: usize,
    port_closed: bool,
    _place: Place,
}

impl Transfer {
    /// Begins to answer, with a port of its own. The socket is added to the poll.
    pub(super) fn begin(
        (key, asker): (u64, Asker),
        request: Vec<u8>,
        content: Content,
        (poll, offload): (&Poll, bool),
        (place, now_us): (Place, u64),
    ) -> io::Result<Self> {
        let socket = asker.socket()?;
        bound_unread(&socket, UNREAD_BYTES_MAX)?;
        poll.add(&socket, key, Interest::Read)?;
        let Ok(tftp::Packet::Read(asked)) = tftp::parse(&request) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self {
            asker,
            path: asked.file.to_owned(),
            sender: tftp::Sender::new(&asked, content.size(), limits(&socket), now_us),
            request,
            content,
            began_us: now_us,
            heard_us: now_us,
            told: 0,
            alarm_us: u64::MAX,
            key,
            socket,
            segments: Segments::new(offload),
            unsent: Vec::new(),
            each: 0,
            port_closed: false,
            _place: place,
        })
    }

    /// The socket has something, or room. What follows from it is for [`Self::pump`].
    pub(super) fn hear(&mut self, poll: &Poll, now_us: u64, out: &mut Vec<u8>) -> Step {
        if !self.unsent.is_empty() {
            out.clone_from(&self.unsent);
            self.unsent.clear();
            self.send(poll, out, self.each);
            if self.unsent.is_empty() {
                let _ = poll.change(&self.socket, self.key, Interest::Read);
            }
        }
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        match self.socket.recv(&mut buffer) {
            Ok(length) => {
                self.heard_us = now_us;
                self.sender.datagram(now_us, &buffer[..length]);
            }
            // The client closed its port: done with us, whatever it has.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.port_closed = true;
                return Step::Over;
            }
            Err(_) => {}
        }
        Step::Running
    }

    /// Sends all that is to be sent now.
    pub(super) fn pump(&mut self, poll: &Poll, out: &mut Vec<u8>) -> Step {
        while self.unsent.is_empty() {
            let burst = self
                .sender
                .burst(&mut self.content, SEGMENTS_MAX, SEGMENTS_BYTES_MAX, out);
            let Some(each) = burst else { break };
            self.send(poll, out, each);
        }
        if self.sender.state() == tftp::State::Running {
            Step::Running
        } else {
            Step::Over
        }
    }

    /// What cannot be sent now waits for room; what fails is lost like on a wire,
    /// and the sender repeats it.
    fn send(&mut self, poll: &Poll, bytes: &[u8], each: usize) {
        let mut at = 0;
        while at < bytes.len() {
            match self.segments.send(&self.socket, &bytes[at..], each) {
                Ok(sent) => at += sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(&bytes[at..]);
                    self.each = each;
                    let _ = poll.change(&self.socket, self.key, Interest::ReadAndWrite);
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// Ends it with a word to the client.
    pub(super) fn cut_off(&self, message: &str) {
        let mut answer = Vec::new();
        tftp::write_error(tftp::ErrorCode::Other, message, &mut answer);
        let _ = self.socket.send(&answer);
    }

    /// Bytes that the client has, as far as we know. One that closes its port when
    /// everything has left has what it wanted: only its last word was lost.
    pub(super) fn arrived(&self) -> u64 {
        if self.port_closed && self.sender.is_all_sent() {
            return self.content.size();
        }
        self.sender.bytes()
    }

    /// Whether nothing but the size was wanted: UEFI refuses our offer once it has read
    /// it, and asks again for the file.
    pub(super) fn is_question(&self) -> bool {
        let refused = tftp::Failure::Peer {
            code: tftp::ErrorCode::OptionsRefused as u16,
        };
        self.sender.state()
            == tftp::State::Failed {
                bytes: 0,
                reason: refused,
            }
    }

    /// Whether this is the request that it answers: before anything has come of it, or so
    /// soon that it is the wire's repetition and not the client's.
    pub(super) fn is_repeated_by(&self, request: &[u8], now_us: u64) -> bool {
        let soon = now_us.saturating_sub(self.heard_us) < LATE_US;
        (soon || self.sender.bytes() == 0) && self.request == request
    }
}
