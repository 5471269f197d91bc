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

use trivet_board_hal::FramesOut as _;
use trivet_board_linux::{Ear, Interface, Voice, interface};
use trivet_lan::{BOOT_PORT, SERVER_PORT, SOLICITED_MAC, Target, answer, probe};
use trivet_model::{LinkId, MacAddr, Tick};
use trivet_rack::Destination;

use super::line::{Line, Means};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::sockets;

pub(super) use trivet_lan::CLIENT_PORT;

/// What is wanted of an interface.
#[derive(Clone, Debug)]
pub(crate) struct Wants {
    pub(crate) name: String,
    /// Our address there; without one the box only listens.
    pub(crate) speaks_as: Option<Ipv4Addr>,
    /// First and last address that is given there.
    pub(crate) range: Option<(Ipv4Addr, Ipv4Addr)>,
    pub(crate) advertises: bool,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
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
pub(crate) struct Opened {
    pub(super) wire: Wire,
    pub(super) hearing: Hearing,
}

/// What hears, and the interface as it was when it was opened.
pub(super) struct Hearing {
    pub(super) ear: Ear,
    facts: Interface,
}

impl Hearing {
    /// Is it still the same interface, and as much up or down as it was?
    pub(super) fn is_current(&self, interfaces: &[Interface]) -> bool {
        let seen = |one: &Interface| (one.index, one.mac, one.is_up);
        let mut same = interfaces.iter().filter(|one| one.name == self.facts.name);
        same.next().map(seen) == Some(seen(&self.facts))
    }
}

impl fmt::Display for Opened {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wants {
            name, speaks_as, ..
        } = &self.wire.wants;
        match speaks_as {
            Some(local) => write!(out, "on {name} as {local}"),
            None => write!(out, "on {name}, only heard"),
        }
    }
}

/// One interface.
pub(super) struct Wire {
    wants: Wants,
    line: Mutex<Line>,
    speech: Mutex<Option<Speech>>,
}

/// What the box speaks with.
struct Speech {
    voice: Voice,
    /// At the port of servers.
    server: UdpSocket,
    /// At the port of PXE's boot service.
    boot: UdpSocket,
}

impl Opened {
    /// Opens an interface for good.
    pub(crate) fn new(wants: Wants, clock: Clock) -> Result<Self, WireError> {
        let parts = open(&wants, clock)?;
        let wire = Wire {
            wants,
            line: Mutex::new(parts.line),
            speech: Mutex::new(parts.speech),
        };
        let hearing = parts.hearing;
        Ok(Self { wire, hearing })
    }
}

struct Parts {
    hearing: Hearing,
    line: Line,
    speech: Option<Speech>,
}

fn open(wants: &Wants, clock: Clock) -> Result<Parts, WireError> {
    let name = &wants.name;
    let frames = |source| WireError::Frames {
        name: name.clone(),
        source,
    };
    let found = interface(name).map_err(frames)?;
    let facts = found.ok_or_else(|| WireError::Absent { name: name.clone() })?;
    let groups: &[[u8; 6]] = if wants.advertises {
        &[SOLICITED_MAC.0]
    } else {
        &[]
    };
    let ear = Ear::open(&facts, groups).map_err(frames)?;
    let speech = wants.speaks_as.map(|local| speech(&facts, local));
    let local = wants.speaks_as.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let begins = wants.advertises.then(|| clock.now().tick);
    Ok(Parts {
        line: Line::new(MacAddr(facts.mac), local, wants.range, begins),
        speech: speech.transpose()?,
        hearing: Hearing { ear, facts },
    })
}

fn speech(facts: &Interface, local: Ipv4Addr) -> Result<Speech, WireError> {
    // At our own address, so that answers come from there and nothing that is sent to
    // everybody waits in them unread.
    let socket = |port| {
        let address = SocketAddr::from((local, port));
        sockets::udp_on("DHCP", address, &facts.name)
    };
    let name = facts.name.clone();
    Ok(Speech {
        server: socket(SERVER_PORT)?,
        boot: socket(BOOT_PORT)?,
        voice: Voice::open(facts).map_err(|source| WireError::Frames { name, source })?,
    })
}

impl Wire {
    pub(super) fn send(&self, local: Ipv4Addr, to: &Destination, bytes: &[u8]) {
        let mut speech = held(&self.speech);
        let Some(speech) = speech.as_mut() else {
            return;
        };
        let (socket, address) = match *to {
            Destination::Relay(relay) => (&speech.server, relay),
            Destination::Asker(peer) => (&speech.boot, peer),
            Destination::Renewing(client) => {
                (&speech.server, SocketAddrV4::new(client, CLIENT_PORT))
            }
            Destination::Client {
                mac,
                address,
                broadcast,
            } => {
                let target = Target {
                    mac,
                    address,
                    broadcast,
                };
                let own = held(&self.line).own;
                if let Some(frame) = answer(own, local, target, bytes) {
                    let _ = speech.voice.send(&[frame]);
                }
                return;
            }
        };
        let _ = socket.send_to(bytes, address);
    }

    pub(super) fn probe(&self, address: Ipv4Addr) {
        let mut line = held(&self.line);
        line.probed(address);
        let frame = probe(line.own, address);
        drop(line);
        self.say(frame);
    }

    fn say(&self, frame: Vec<u8>) {
        if let Some(speech) = held(&self.speech).as_mut() {
            let _ = speech.voice.send(&[frame]);
        }
    }

    /// Opens the interface again: it was gone, or has become another one.
    pub(super) fn reopen(&self, clock: Clock) -> Result<Hearing, WireError> {
        // The ports are free again only when what held them is gone.
        *held(&self.speech) = None;
        let parts = open(&self.wants, clock)?;
        *held(&self.line) = parts.line;
        *held(&self.speech) = parts.speech;
        Ok(parts.hearing)
    }

    pub(super) fn name(&self) -> &str {
        &self.wants.name
    }

    pub(super) fn heard(
        &self,
        now: Tick,
        frame: &[u8],
        vouched: bool,
        link: LinkId,
        engine: &Engine,
    ) {
        let means = held(&self.line).heard(now, link, frame, vouched);
        match means {
            Means::Input(input) => {
                engine.tell(input);
            }
            Means::Answer(frame) => self.say(frame),
            Means::Nothing => {}
        }
    }

    /// Says what is due, and when the next is.
    pub(super) fn speak_due(&self, now: Tick) -> Option<Tick> {
        let mut line = held(&self.line);
        let frame = line.due(now);
        let next = line.deadline();
        drop(line);
        if let Some(frame) = frame {
            self.say(frame);
        }
        next
    }
}

/// Whoever panicked while holding it left it whole: nothing in here is half done.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
