//! DHCP clients behind one relay, a fixed number at the same time.
//!
//! Every server gets the same load: unknown machines, each from DISCOVER to ACK, and when one
//! is done the next starts. So the load follows the rate of the server, and no server is
//! overloaded. A datagram without a reply is retransmitted and counted.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// Retransmission delay of a client. Ours: clients start with four seconds (RFC 2131, section
/// 4.1), but a run must not wait that long.
const RETRANSMIT_AFTER: Duration = Duration::from_secs(1);

/// Longest reply that is read.
const DATAGRAM_BYTES_MAX: usize = 1500;

/// The port of servers and relays (RFC 2131, section 4.1).
const SERVER_PORT: u16 = 67;

/// Message types in option 53 (RFC 2132, section 9.6).
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const NAK: u8 = 6;

/// Offsets of fields (RFC 2131, section 2).
const XID_AT: usize = 4;
const YIADDR_AT: usize = 16;
const GIADDR_AT: usize = 24;
const CHADDR_AT: usize = 28;
const OPTIONS_AT: usize = 240;

const MESSAGE_BYTES_MIN: usize = 300;

/// The parameters of a load.
#[derive(Clone, Copy, Debug)]
pub struct DhcpLoad {
    /// The address of the server.
    pub server: SocketAddrV4,
    /// The address of the relay.
    pub relay: SocketAddrV4,
    /// Total exchanges.
    pub exchanges: u32,
    /// Concurrent exchanges.
    pub at_once: u32,
}

/// The result of a load.
#[derive(Clone, Copy, Debug)]
pub struct DhcpLoadResult {
    /// Total duration.
    pub took: Duration,
    /// Retransmitted messages.
    pub retransmitted: u64,
    /// Machines that got a NAK for their offer, and started again.
    pub refused: u64,
}

struct DhcpLoadExchange {
    number: u32,
    sent: Vec<u8>,
    sent_at: Instant,
    /// The address of the offer, once it was requested.
    requested: Option<Ipv4Addr>,
}

/// Runs all exchanges.
///
/// # Errors
///
/// When the server gives an address twice, or does not reply for a long time.
pub fn run_exchanges(load: DhcpLoad) -> io::Result<DhcpLoadResult> {
    let socket = relay_socket(load.relay)?;
    socket.connect(load.server)?;
    socket.set_read_timeout(Some(RETRANSMIT_AFTER / 4))?;
    let began = now();
    let mut clients = DhcpLoadClients {
        load,
        socket,
        slots: Vec::new(),
        started: 0,
        done: 0,
        retransmitted: 0,
        refused: 0,
        acknowledged: HashSet::new(),
    };
    for _ in 0..load.at_once.min(load.exchanges) {
        let first = clients.begin(clients.started)?;
        clients.slots.push(first);
    }
    clients.run()?;
    Ok(DhcpLoadResult {
        took: began.elapsed(),
        retransmitted: clients.retransmitted,
        refused: clients.refused,
    })
}

/// A socket that coexists with servers that bind the port at every address, as dnsmasq does.
fn relay_socket(relay: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&relay.into())?;
    Ok(socket.into())
}

struct DhcpLoadClients {
    load: DhcpLoad,
    socket: UdpSocket,
    slots: Vec<Option<DhcpLoadExchange>>,
    started: u32,
    done: u32,
    retransmitted: u64,
    refused: u64,
    acknowledged: HashSet<Ipv4Addr>,
}

impl DhcpLoadClients {
    /// Starts the next machine, in the slot of its number.
    fn begin(&mut self, number: u32) -> io::Result<Option<DhcpLoadExchange>> {
        if number >= self.load.exchanges {
            return Ok(None);
        }
        self.started += 1;
        let discover = message(number, self.load.relay, DISCOVER, &[]);
        self.socket.send(&discover)?;
        Ok(Some(DhcpLoadExchange {
            number,
            sent: discover,
            sent_at: now(),
            requested: None,
        }))
    }

    fn run(&mut self) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        let mut looked = now();
        let mut silent = 0;
        while self.done < self.load.exchanges {
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    silent = 0;
                    self.handle_reply(&buffer[..length])?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => silent += 1,
                Err(error) => return Err(error),
            }
            if silent > 40 {
                return Err(io::Error::other("the server does not reply"));
            }
            if looked.elapsed() >= RETRANSMIT_AFTER / 4 {
                looked = now();
                self.retransmit()?;
            }
        }
        Ok(())
    }

    fn handle_reply(&mut self, answer: &[u8]) -> io::Result<()> {
        let Some(received) = DhcpLoadReply::read(answer) else {
            return Err(io::Error::other("a reply that is not DHCP"));
        };
        let place = (received.number % self.load.at_once) as usize;
        let Some(Some(exchange)) = self.slots.get_mut(place) else {
            return Ok(());
        };
        if exchange.number != received.number {
            return Ok(());
        }
        match (received.message_type, exchange.requested) {
            (OFFER, None) => {
                let mut options = vec![50, 4];
                options.extend(received.address.octets());
                options.extend([54, 4]);
                options.extend(received.server.octets());
                let discover = message(received.number, self.load.relay, REQUEST, &options);
                self.socket.send(&discover)?;
                exchange.sent = discover;
                exchange.sent_at = now();
                exchange.requested = Some(received.address);
            }
            // The reply to a retransmission.
            (OFFER, Some(_)) | (NAK, None) => {}
            // dnsmasq offers the same address to several concurrent clients.
            (NAK, Some(_)) => {
                self.refused += 1;
                exchange.requested = None;
                exchange.sent = message(received.number, self.load.relay, DISCOVER, &[]);
                exchange.sent_at = now();
                self.socket.send(&exchange.sent)?;
            }
            (ACK, Some(requested)) if requested == received.address => {
                if !self.acknowledged.insert(requested) {
                    return Err(io::Error::other(format!("{requested} was given twice")));
                }
                self.done += 1;
                self.slots[place] = self.begin(received.number + self.load.at_once)?;
            }
            other => return Err(io::Error::other(format!("answered with {other:?}"))),
        }
        Ok(())
    }

    fn retransmit(&mut self) -> io::Result<()> {
        for exchange in self.slots.iter_mut().flatten() {
            if exchange.sent_at.elapsed() >= RETRANSMIT_AFTER {
                self.socket.send(&exchange.sent)?;
                exchange.sent_at = now();
                self.retransmitted += 1;
            }
        }
        Ok(())
    }
}

/// The relevant fields of a reply.
struct DhcpLoadReply {
    number: u32,
    message_type: u8,
    address: Ipv4Addr,
    server: Ipv4Addr,
}

impl DhcpLoadReply {
    fn read(answer: &[u8]) -> Option<Self> {
        let field = |at: usize| answer.get(at..)?.first_chunk::<4>().copied();
        let mut received = Self {
            number: u32::from_be_bytes(field(XID_AT)?),
            message_type: 0,
            address: field(YIADDR_AT)?.into(),
            server: Ipv4Addr::UNSPECIFIED,
        };
        let mut options = answer.get(OPTIONS_AT..)?;
        while let [code, rest @ ..] = options {
            match code {
                0 => options = rest,
                255 => break,
                _ => {
                    let (length, rest) = rest.split_first()?;
                    let (value, rest) = rest.split_at_checked(usize::from(*length))?;
                    match (code, value) {
                        (53, [kind]) => received.message_type = *kind,
                        (54, value) => received.server = value.first_chunk::<4>().copied()?.into(),
                        _ => {}
                    }
                    options = rest;
                }
            }
        }
        Some(received)
    }
}

/// A message of the machine with this number, as the relay forwards it.
fn message(number: u32, relay: SocketAddrV4, kind: u8, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; OPTIONS_AT];
    bytes[..4].copy_from_slice(&[1, 1, 6, 1]);
    bytes[XID_AT..XID_AT + 4].copy_from_slice(&number.to_be_bytes());
    bytes[GIADDR_AT..GIADDR_AT + 4].copy_from_slice(&relay.ip().octets());
    // Locally administered unicast. Scattered, because dnsmasq starts its search for an address
    // from a hash of the hardware address, and neighbours have the same hash.
    let scattered = number.wrapping_mul(0x9e37_79b1);
    bytes[CHADDR_AT] = 2;
    bytes[CHADDR_AT + 2..CHADDR_AT + 6].copy_from_slice(&scattered.to_be_bytes());
    bytes[OPTIONS_AT - 4..].copy_from_slice(&[99, 130, 83, 99]);
    bytes.extend([53, 1, kind, 55, 3, 1, 3, 51]);
    bytes.extend(options);
    if relay.port() != SERVER_PORT {
        // The relay requests replies at its source port (RFC 8357, section 5.2).
        bytes.extend([82, 2, 19, 0]);
    }
    bytes.push(255);
    bytes.resize(bytes.len().max(MESSAGE_BYTES_MIN), 0);
    bytes
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}
