//! The client's side, as the simulated machines use it.
//!
//! Speaks like the firmware it stands for: the options are those captured from
//! SeaBIOS iPXE, OVMF and busybox. Pure: frames and time in, frames out. It
//! takes the first offer, sends again with doubling waits, and starts over when
//! refused. Transaction numbers come from the hardware address and a counter:
//! they need to differ, not to be secret, on a simulated wire.

use core::net::Ipv4Addr;

use trivet_model::{MacAddr, Tick};

use crate::frame::{self, Frame, Kind, code};
use crate::writer::Writer;

/// First wait before sending again.
pub const RETRY_MS_MIN: u64 = 1000;

/// Longest wait before sending again.
pub const RETRY_MS_MAX: u64 = 8000;

/// How often DISCOVER is sent before the client gives up.
pub const DISCOVERS_MAX: u32 = 16;

/// How often REQUEST is sent before the client starts over.
pub const REQUESTS_MAX: u32 = 4;

/// Which machine the client is, and what its firmware says of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Machine {
    mac: MacAddr,
    arch: Option<u16>,
    ipxe: bool,
    uuid: Option<[u8; 16]>,
    giaddr: Option<Ipv4Addr>,
}

/// What the client has got.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bound {
    /// Its address.
    pub address: Ipv4Addr,
    /// The server's identifier.
    pub server: Ipv4Addr,
    /// What to load (option 67 or `file`).
    pub boot_file: Option<String>,
    /// From where (`siaddr`).
    pub next_server: Ipv4Addr,
    /// For how long.
    pub lease_s: u32,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Phase {
    Idle,
    Discovering,
    Requesting { address: Ipv4Addr, server: Ipv4Addr },
    Bound(Bound),
    Renewing(Bound),
    GivenUp,
}

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    machine: Machine,
    phase: Phase,
    counter: u32,
    due: bool,
    tries: u32,
    deadline: Option<Tick>,
}

impl Client {
    /// A client that has not begun. `arch` is option 93 (0 BIOS, 7 UEFI, 16
    /// UEFI by HTTP; none for a system that is already running), `ipxe` says
    /// that the first loader has run, `uuid` is in text order (option 97), and
    /// with `giaddr` every frame looks as if it came through that relay.
    pub fn new(
        mac: MacAddr,
        arch: Option<u16>,
        ipxe: bool,
        uuid: Option<[u8; 16]>,
        giaddr: Option<Ipv4Addr>,
    ) -> Self {
        let machine = Machine {
            mac,
            arch,
            ipxe,
            uuid,
            giaddr,
        };
        Self {
            machine,
            phase: Phase::Idle,
            counter: 0,
            due: false,
            tries: 0,
            deadline: None,
        }
    }

    /// Begins with DISCOVER, whatever was before.
    pub fn start(&mut self, now: Tick) {
        self.counter = self.counter.wrapping_add(1);
        self.enter(now, Phase::Discovering);
    }

    /// Asks to keep the address. Does nothing without one.
    pub fn renew(&mut self, now: Tick) {
        if let Phase::Bound(bound) = &self.phase {
            self.counter = self.counter.wrapping_add(1);
            let phase = Phase::Renewing(bound.clone());
            self.enter(now, phase);
        }
    }

    /// Gives the address back: the frame to send, if there is an address.
    pub fn release(&mut self) -> Option<Vec<u8>> {
        let bound = self.bound()?.clone();
        self.phase = Phase::Idle;
        self.settle();
        let mut message = self.message(Kind::Release, bound.address);
        message.address_option(code::SERVER, bound.server);
        Some(message.finish(self.relay_info()))
    }

    /// Hears a frame. Nonsense and frames for others are ignored.
    pub fn datagram(&mut self, now: Tick, bytes: &[u8]) {
        let Ok(frame) = frame::decode(bytes, 2) else {
            return;
        };
        if frame.mac != self.machine.mac || frame.xid() != self.xid() {
            return;
        }
        match (&self.phase, frame.kind) {
            (Phase::Discovering, Kind::Offer) => {
                let address = frame.yiaddr();
                if let Some(server) = frame.server().filter(|_| !address.is_unspecified()) {
                    self.enter(now, Phase::Requesting { address, server });
                }
            }
            (
                Phase::Requesting { address, .. } | Phase::Renewing(Bound { address, .. }),
                Kind::Ack,
            ) => {
                if let Some(bound) = bound(&frame).filter(|bound| bound.address == *address) {
                    self.phase = Phase::Bound(bound);
                    self.settle();
                }
            }
            (Phase::Requesting { .. } | Phase::Renewing(_), Kind::Nak) => self.start(now),
            _ => {}
        }
    }

    /// Sends again, starts over or gives up, if it is time.
    pub fn tick(&mut self, now: Tick) {
        if self.deadline.is_none_or(|at| now < at) {
            return;
        }
        let tries_max = match self.phase {
            Phase::Discovering => DISCOVERS_MAX,
            _ => REQUESTS_MAX,
        };
        if self.tries < tries_max {
            self.arm(now);
            return;
        }
        match &self.phase {
            Phase::Discovering => {
                self.phase = Phase::GivenUp;
                self.settle();
            }
            // The lease still runs: keep it and let the caller ask again.
            Phase::Renewing(bound) => {
                self.phase = Phase::Bound(bound.clone());
                self.settle();
            }
            _ => self.start(now),
        }
    }

    /// When to call [`Client::tick`] next.
    pub fn deadline(&self) -> Option<Tick> {
        self.deadline
    }

    /// The next frame to send, if any.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        if !core::mem::take(&mut self.due) {
            return None;
        }
        let none = Ipv4Addr::UNSPECIFIED;
        let message = match &self.phase {
            Phase::Discovering => self.message(Kind::Discover, none),
            Phase::Requesting { address, server } => {
                let mut message = self.message(Kind::Request, none);
                message.address_option(code::REQUESTED, *address);
                message.address_option(code::SERVER, *server);
                message
            }
            Phase::Renewing(bound) => self.message(Kind::Request, bound.address),
            Phase::Idle | Phase::Bound(_) | Phase::GivenUp => return None,
        };
        Some(message.finish(self.relay_info()))
    }

    /// What it has got.
    pub fn bound(&self) -> Option<&Bound> {
        match &self.phase {
            Phase::Bound(bound) | Phase::Renewing(bound) => Some(bound),
            _ => None,
        }
    }

    /// No server answered.
    pub fn has_given_up(&self) -> bool {
        self.phase == Phase::GivenUp
    }

    fn enter(&mut self, now: Tick, phase: Phase) {
        self.phase = phase;
        self.tries = 0;
        self.arm(now);
    }

    /// Sends now, and again after a wait that doubles.
    fn arm(&mut self, now: Tick) {
        let wait_ms = (RETRY_MS_MIN << self.tries.min(8)).min(RETRY_MS_MAX);
        self.tries += 1;
        self.due = true;
        self.deadline = Some(now.after_ms(wait_ms));
    }

    fn settle(&mut self) {
        self.due = false;
        self.deadline = None;
    }

    fn xid(&self) -> [u8; 4] {
        let [_, _, a, b, c, d] = self.machine.mac.0;
        let xid = u32::from_be_bytes([a, b, c, d]) ^ self.counter.wrapping_mul(0x9e37_79b1);
        xid.to_be_bytes()
    }

    /// RFC 3046 with RFC 8357: sub-option 19 asks for the answer at our port.
    fn relay_info(&self) -> Option<&'static [u8]> {
        self.machine
            .giaddr
            .map(|_| [1, 3, b's', b'i', b'm', 19, 0].as_slice())
    }

    fn message(&self, kind: Kind, has: Ipv4Addr) -> Writer {
        let machine = &self.machine;
        let mut message = Writer::new(1, self.xid(), machine.mac);
        message.ciaddr(has);
        if let Some(relay) = machine.giaddr {
            message.giaddr(relay);
            message.hops(1);
        }
        let uefi = machine.arch.is_some_and(|arch| arch != 0) && !machine.ipxe;
        if uefi && has.is_unspecified() {
            message.broadcast();
        }
        message.option(code::KIND, &[kind.number()]);
        if matches!(kind, Kind::Release | Kind::Decline) {
            return message;
        }
        message.option(code::SIZE_MAX, &[0x05, 0xc0]);
        message.option(code::CLASS, self.vendor_class().as_bytes());
        let asked = [1, 3, 6, 12, 15, 43, 54, 60, 66, 67, 97];
        message.option(code::ASKED_FOR, &asked);
        if !uefi {
            let id = [[1].as_slice(), &machine.mac.0].concat();
            message.option(code::CLIENT_ID, &id);
        }
        if let Some(arch) = machine.arch {
            message.option(code::ARCH, &arch.to_be_bytes());
            let interface = if arch == 0 { [1, 2, 1] } else { [1, 3, 0] };
            message.option(code::INTERFACE, &interface);
        }
        if let Some(uuid) = machine.uuid {
            let id = [[0].as_slice(), &frame::swap_uuid(uuid)].concat();
            message.option(code::MACHINE_ID, &id);
        }
        if machine.ipxe {
            message.option(code::USER_CLASS, b"iPXE");
            // Its version, as captured.
            message.option(code::IPXE, &[0xeb, 3, 1, 0, 0]);
        }
        message
    }

    fn vendor_class(&self) -> String {
        let Some(arch) = self.machine.arch else {
            return "udhcp 1.35.0".to_owned();
        };
        // 15 to 20 are the architectures that boot by HTTP (IANA registry).
        let method = if (15..=20).contains(&arch) {
            "HTTPClient"
        } else {
            "PXEClient"
        };
        let interface = match (arch, self.machine.ipxe) {
            (0, _) => "002001",
            (_, true) => "003010",
            _ => "003000",
        };
        format!("{method}:Arch:{arch:05}:UNDI:{interface}")
    }
}

fn bound(frame: &Frame<'_>) -> Option<Bound> {
    let address = frame.yiaddr();
    (!address.is_unspecified()).then_some(Bound {
        address,
        server: frame.server()?,
        boot_file: frame.boot_file().map(str::to_owned),
        next_server: frame.siaddr(),
        lease_s: frame.lease_s()?,
    })
}

#[cfg(test)]
mod tests;
