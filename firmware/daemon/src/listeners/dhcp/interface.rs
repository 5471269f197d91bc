//! An interface: frames in, frames and datagrams out.
//!
//! All that is heard comes as frames, so that a machine without an address, another
//! server's answer and an ARP claim are heard alike. Machines without an address are
//! answered by frames. Those that have one, and relays, are answered through sockets at
//! the ports of DHCP; these also keep the kernel from refusing what is sent there. Where
//! the box only listens there is nothing that it could speak with.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};

use trivet_board_hal::FrameSender as _;
use trivet_board_linux::{EthernetInterface, PacketSocketReceiver, PacketSocketSender, interface};
use trivet_link::{
    ALL_ROUTERS_MAC, BOOT_PORT, DhcpReplyTarget, SERVER_PORT, arp_probe_frame, dhcp_reply_frame,
};
use trivet_model::{LinkId, MacAddr, Tick};
use trivet_rack::DhcpDestination;

use super::frame_handler::{DhcpFrameAction, DhcpFrameHandler};
use crate::clock::DaemonClock;
use crate::engine::Engine;
use crate::sockets;

pub(super) use trivet_link::CLIENT_PORT;

/// What is wanted of an interface.
#[derive(Clone, Debug)]
pub(crate) struct DhcpInterfaceConfig {
    pub(crate) name: String,
    /// Our address there; without one the box only listens.
    pub(crate) local_address: Option<Ipv4Addr>,
    /// First and last address that is given there.
    pub(crate) range: Option<(Ipv4Addr, Ipv4Addr)>,
    pub(crate) advertises: bool,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DhcpInterfaceError {
    #[error("DHCP: there is no Ethernet interface {name}; `ip link` lists them")]
    Absent { name: String },
    #[error("DHCP: frames of interface {name} cannot be heard{}", advice(source))]
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

/// One interface for who sends, with what hears there.
pub(crate) struct OpenedDhcpInterface {
    pub(super) interface: DhcpInterface,
    pub(super) receiver: DhcpInterfaceReceiver,
}

/// What hears, and the interface as it was when it was opened.
pub(super) struct DhcpInterfaceReceiver {
    pub(super) frames: PacketSocketReceiver,
    facts: EthernetInterface,
}

impl DhcpInterfaceReceiver {
    /// Is it still the same interface, and as much up or down as it was?
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
            None => write!(out, "on {name}, only heard"),
        }
    }
}

/// One interface.
pub(super) struct DhcpInterface {
    config: DhcpInterfaceConfig,
    handler: Mutex<DhcpFrameHandler>,
    sender: Mutex<Option<DhcpInterfaceSender>>,
}

/// What the box speaks with.
struct DhcpInterfaceSender {
    frames: PacketSocketSender,
    /// At the port of servers.
    server: UdpSocket,
    /// At the port of PXE's boot service.
    boot: UdpSocket,
}

impl OpenedDhcpInterface {
    /// Opens an interface for good.
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
        let hearing = parts.receiver;
        Ok(Self {
            interface: wire,
            receiver: hearing,
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
    let ear = PacketSocketReceiver::open(&facts, groups).map_err(frames)?;
    let speech = wants.local_address.map(|local| open_sender(&facts, local));
    let local = wants.local_address.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let begins = wants.advertises.then(|| clock.now().tick);
    Ok(DhcpInterfaceParts {
        handler: DhcpFrameHandler::new(MacAddr(facts.mac), local, wants.range, begins),
        sender: speech.transpose()?,
        receiver: DhcpInterfaceReceiver { frames: ear, facts },
    })
}

fn open_sender(
    facts: &EthernetInterface,
    local: Ipv4Addr,
) -> Result<DhcpInterfaceSender, DhcpInterfaceError> {
    // At our own address, so that answers come from there and nothing that is sent to
    // everybody waits in them unread.
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

    /// Opens the interface again: it was gone, or has become another one.
    pub(super) fn reopen(
        &self,
        clock: DaemonClock,
    ) -> Result<DhcpInterfaceReceiver, DhcpInterfaceError> {
        // The ports are free again only when what held them is gone.
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
        vouched: bool,
        link: LinkId,
        engine: &Engine,
    ) {
        let means = lock(&self.handler).handle_frame(now, link, frame, vouched);
        match means {
            DhcpFrameAction::Input(input) => {
                engine.try_send(input);
            }
            DhcpFrameAction::Answer(frame) => self.send_frame(frame),
            DhcpFrameAction::Nothing => {}
        }
    }

    /// Says what is due, and when the next is.
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

/// Whoever panicked while holding it left it whole: nothing in here is half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
