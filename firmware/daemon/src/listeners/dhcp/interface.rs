//! An interface: receives frames, sends frames and datagrams.
//!
//! Everything is received as frames, so that requests of machines without an address,
//! replies of other servers and ARP claims are handled alike. Machines without an
//! address get replies as frames. Machines with an address, and relays, get them
//! through sockets on the DHCP ports; these also keep the kernel from rejecting what is
//! sent there. A listen-only interface holds no socket that can send.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};

use trivet_board_hal::FrameSender as _;
use trivet_board_linux::{EthernetInterface, PacketSocketReceiver, PacketSocketSender, interface};
use trivet_link::{
    ALL_ROUTERS_MAC, BOOT_PORT, DhcpReplyTarget, SERVER_PORT, arp_probe_frame, dhcp_reply_frame,
};
use trivet_metrics::MetricFamily;
use trivet_model::{LinkId, MacAddr, Tick};
use trivet_rack::DhcpDestination;

use super::frame_handler::{DhcpFrameAction, DhcpFrameHandler};
use crate::clock::DaemonClock;
use crate::engine::Engine;
use crate::sockets;

pub(super) use trivet_link::CLIENT_PORT;

/// How an interface is used.
#[derive(Clone, Debug)]
pub(crate) struct DhcpInterfaceConfig {
    pub(crate) name: String,
    /// Our address there; without one the box only listens.
    pub(crate) local_address: Option<Ipv4Addr>,
    /// First and last address of the pool there.
    pub(crate) range: Option<(Ipv4Addr, Ipv4Addr)>,
    pub(crate) advertises: bool,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DhcpInterfaceError {
    #[error("DHCP: there is no Ethernet interface {name}; `ip link` lists them")]
    Absent { name: String },
    #[error(
        "DHCP: frames of interface {name} cannot be received{}",
        advice(source)
    )]
    Frames { name: String, source: io::Error },
    #[error(transparent)]
    Socket(#[from] sockets::SocketError),
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; that needs root or CAP_NET_RAW",
        _ => "",
    }
}

/// One interface: its sending half and its receiver.
pub(crate) struct OpenedDhcpInterface {
    pub(super) interface: DhcpInterface,
    pub(super) receiver: DhcpInterfaceReceiver,
}

/// The receiver, and the state of the interface when it was opened.
pub(super) struct DhcpInterfaceReceiver {
    pub(super) frames: PacketSocketReceiver,
    facts: EthernetInterface,
}

impl DhcpInterfaceReceiver {
    /// Whether it is still the same interface, with the same up or down state.
    pub(super) fn is_current(&self, interfaces: &[EthernetInterface]) -> bool {
        let seen = |one: &EthernetInterface| (one.index, one.mac, one.is_up);
        let mut same = interfaces.iter().filter(|one| one.name == self.facts.name);
        same.next().map(seen) == Some(seen(&self.facts))
    }
}

impl fmt::Display for OpenedDhcpInterface {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DhcpInterfaceConfig {
            name,
            local_address: speaks_as,
            ..
        } = &self.interface.config;
        match speaks_as {
            Some(local) => write!(out, "on {name} as {local}"),
            None => write!(out, "on {name}, listen only"),
        }
    }
}

/// The sending half of one interface.
pub(super) struct DhcpInterface {
    config: DhcpInterfaceConfig,
    handler: Mutex<DhcpFrameHandler>,
    sender: Mutex<Option<DhcpInterfaceSender>>,
}

/// The sockets that send.
struct DhcpInterfaceSender {
    frames: PacketSocketSender,
    /// On the port of DHCP servers.
    server: UdpSocket,
    /// On the port of the PXE boot service.
    boot: UdpSocket,
}

impl OpenedDhcpInterface {
    /// Opens an interface.
    pub(crate) fn new(
        wants: DhcpInterfaceConfig,
        clock: DaemonClock,
    ) -> Result<Self, DhcpInterfaceError> {
        let parts = open(&wants, clock)?;
        let wire = DhcpInterface {
            config: wants,
            handler: Mutex::new(parts.handler),
            sender: Mutex::new(parts.sender),
        };
        let receiver = parts.receiver;
        Ok(Self {
            interface: wire,
            receiver,
        })
    }
}

struct DhcpInterfaceParts {
    receiver: DhcpInterfaceReceiver,
    handler: DhcpFrameHandler,
    sender: Option<DhcpInterfaceSender>,
}

fn open(
    wants: &DhcpInterfaceConfig,
    clock: DaemonClock,
) -> Result<DhcpInterfaceParts, DhcpInterfaceError> {
    let name = &wants.name;
    let frames = |source| DhcpInterfaceError::Frames {
        name: name.clone(),
        source,
    };
    let found = interface(name).map_err(frames)?;
    let facts = found.ok_or_else(|| DhcpInterfaceError::Absent { name: name.clone() })?;
    let groups: &[[u8; 6]] = if wants.advertises {
        &[ALL_ROUTERS_MAC.0]
    } else {
        &[]
    };
    let receiver = PacketSocketReceiver::open(&facts, groups).map_err(frames)?;
    let speech = wants.local_address.map(|local| open_sender(&facts, local));
    let local = wants.local_address.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let begins = wants.advertises.then(|| clock.now().tick);
    Ok(DhcpInterfaceParts {
        handler: DhcpFrameHandler::new(MacAddr(facts.mac), local, wants.range, begins),
        sender: speech.transpose()?,
        receiver: DhcpInterfaceReceiver {
            frames: receiver,
            facts,
        },
    })
}

fn open_sender(
    facts: &EthernetInterface,
    local: Ipv4Addr,
) -> Result<DhcpInterfaceSender, DhcpInterfaceError> {
    // Bound to our own address, so that replies have it as their source and broadcasts
    // do not fill the unread receive buffer.
    let socket = |port| {
        let address = SocketAddr::from((local, port));
        sockets::udp_on("DHCP", address, &facts.name)
    };
    let name = facts.name.clone();
    Ok(DhcpInterfaceSender {
        server: socket(SERVER_PORT)?,
        boot: socket(BOOT_PORT)?,
        frames: PacketSocketSender::open(facts)
            .map_err(|source| DhcpInterfaceError::Frames { name, source })?,
    })
}

impl DhcpInterface {
    pub(super) fn send(&self, local: Ipv4Addr, to: &DhcpDestination, bytes: &[u8]) {
        let mut speech = lock(&self.sender);
        let Some(speech) = speech.as_mut() else {
            return;
        };
        let (socket, address) = match *to {
            DhcpDestination::Relay(relay) => (&speech.server, relay),
            DhcpDestination::BootServiceClient(peer) => (&speech.boot, peer),
            DhcpDestination::Renewing(client) => {
                (&speech.server, SocketAddrV4::new(client, CLIENT_PORT))
            }
            DhcpDestination::Client {
                mac,
                address,
                broadcast,
            } => {
                let target = DhcpReplyTarget {
                    mac,
                    address,
                    broadcast,
                };
                let own = lock(&self.handler).own;
                if let Some(frame) = dhcp_reply_frame(own, local, target, bytes) {
                    let _ = speech.frames.send(&[frame]);
                }
                return;
            }
        };
        let _ = socket.send_to(bytes, address);
    }

    pub(super) fn probe(&self, address: Ipv4Addr) {
        let mut line = lock(&self.handler);
        line.expect_claim(address);
        let frame = arp_probe_frame(line.own, address);
        drop(line);
        self.send_frame(frame);
    }

    fn send_frame(&self, frame: Vec<u8>) {
        if let Some(speech) = lock(&self.sender).as_mut() {
            let _ = speech.frames.send(&[frame]);
        }
    }

    /// Opens the interface again after it disappeared or was replaced.
    pub(super) fn reopen(
        &self,
        clock: DaemonClock,
    ) -> Result<DhcpInterfaceReceiver, DhcpInterfaceError> {
        // Close the old sockets first, as they hold the ports.
        *lock(&self.sender) = None;
        let parts = open(&self.config, clock)?;
        *lock(&self.handler) = parts.handler;
        *lock(&self.sender) = parts.sender;
        Ok(parts.receiver)
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    pub(super) fn handle_frame(
        &self,
        now: Tick,
        frame: &[u8],
        is_verified: bool,
        link: LinkId,
        engine: &Engine,
    ) {
        let means = lock(&self.handler).handle_frame(now, link, frame, is_verified);
        match means {
            DhcpFrameAction::Input(input) => {
                engine.try_send(input);
            }
            DhcpFrameAction::Answer(frame) => self.send_frame(frame),
            DhcpFrameAction::Nothing => {}
            DhcpFrameAction::Dropped(reason) => {
                let mut counts = engine.telemetry().counts();
                counts.add(MetricFamily::DhcpDropped, [reason, ""], 1);
            }
        }
    }

    /// Sends what is due; returns the next deadline.
    pub(super) fn send_due(&self, now: Tick) -> Option<Tick> {
        let mut line = lock(&self.handler);
        let frame = line.due(now);
        let next = line.deadline();
        drop(line);
        if let Some(frame) = frame {
            self.send_frame(frame);
        }
        next
    }
}

/// A panic while the lock was held leaves the value consistent: every change in it is
/// one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
