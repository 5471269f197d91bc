//! DHCP client, used by the simulated machines.
//!
//! Sends the options that were captured from SeaBIOS iPXE, OVMF and busybox. Sans-IO: frames
//! and time in, frames out. It accepts the first offer, retransmits with doubling delays, and
//! restarts with DISCOVER after a NAK. Transaction ids come from the hardware address and a
//! counter: on a simulated network they must be unique, not secret.

use core::net::Ipv4Addr;

use trivet_model::{MacAddr, Tick};

use crate::message::{self, DhcpMessage, DhcpMessageType, code};
use crate::writer::DhcpMessageWriter;

/// First delay before a retransmission.
pub const RETRY_MS_MIN: u64 = 1000;

/// Longest delay before a retransmission.
pub const RETRY_MS_MAX: u64 = 8000;

/// How many times DISCOVER is sent before the client gives up.
pub const DISCOVERS_MAX: u32 = 16;

/// How many times REQUEST is sent before the client restarts with DISCOVER.
pub const REQUESTS_MAX: u32 = 4;

/// Identity of the machine and what its firmware reports in the DHCP options.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct DhcpClientProfile {
    mac: MacAddr,
    arch: Option<u16>,
    ipxe: bool,
    uuid: Option<[u8; 16]>,
    giaddr: Option<Ipv4Addr>,
}

/// The lease that the client has been granted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BoundLease {
    /// The leased address (`yiaddr`).
    pub address: Ipv4Addr,
    /// The server identifier (option 54).
    pub server: Ipv4Addr,
    /// The boot file (option 67 or `file`).
    pub boot_file: Option<String>,
    /// The server of the boot file (`siaddr`).
    pub next_server: Ipv4Addr,
    /// Lease time in seconds (option 51).
    pub lease_s: u32,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum DhcpClientPhase {
    Idle,
    Discovering,
    Requesting { address: Ipv4Addr, server: Ipv4Addr },
    Bound(BoundLease),
    Renewing(BoundLease),
    GivenUp,
}

/// State machine of one DHCP client.
#[derive(Clone, Debug)]
pub struct DhcpClient {
    profile: DhcpClientProfile,
    phase: DhcpClientPhase,
    counter: u32,
    due: bool,
    tries: u32,
    deadline: Option<Tick>,
}

impl DhcpClient {
    /// A client that has not started. `arch` is option 93 (0 BIOS, 7 UEFI, 16 UEFI HTTP boot;
    /// `None` for a running operating system), `ipxe` is true if the first loader has run,
    /// `uuid` is in text order (option 97), and with `giaddr` every frame looks as if that
    /// relay forwarded it.
    pub fn new(
        mac: MacAddr,
        arch: Option<u16>,
        ipxe: bool,
        uuid: Option<[u8; 16]>,
        giaddr: Option<Ipv4Addr>,
    ) -> Self {
        let machine = DhcpClientProfile {
            mac,
            arch,
            ipxe,
            uuid,
            giaddr,
        };
        Self {
            profile: machine,
            phase: DhcpClientPhase::Idle,
            counter: 0,
            due: false,
            tries: 0,
            deadline: None,
        }
    }

    /// Starts with DISCOVER, whatever the present state.
    pub fn start(&mut self, now: Tick) {
        self.counter = self.counter.wrapping_add(1);
        self.enter(now, DhcpClientPhase::Discovering);
    }

    /// Requests to renew the lease. Does nothing without a lease.
    pub fn renew(&mut self, now: Tick) {
        if let DhcpClientPhase::Bound(bound) = &self.phase {
            self.counter = self.counter.wrapping_add(1);
            let phase = DhcpClientPhase::Renewing(bound.clone());
            self.enter(now, phase);
        }
    }

    /// Releases the address: returns the frame to send, if there is a lease.
    pub fn release(&mut self) -> Option<Vec<u8>> {
        let bound = self.bound()?.clone();
        self.phase = DhcpClientPhase::Idle;
        self.settle();
        let mut message = self.message(DhcpMessageType::Release, bound.address);
        message.address_option(code::SERVER_ID, bound.server);
        Some(message.finish(self.relay_info()))
    }

    /// Handles a received frame. Invalid frames and frames for other clients are ignored.
    pub fn datagram(&mut self, now: Tick, bytes: &[u8]) {
        let Ok(frame) = message::decode(bytes, 2) else {
            return;
        };
        if frame.mac != self.profile.mac || frame.xid() != self.xid() {
            return;
        }
        match (&self.phase, frame.message_type) {
            (DhcpClientPhase::Discovering, DhcpMessageType::Offer) => {
                let address = frame.yiaddr();
                if let Some(server) = frame.server().filter(|_| !address.is_unspecified()) {
                    self.enter(now, DhcpClientPhase::Requesting { address, server });
                }
            }
            (
                DhcpClientPhase::Requesting { address, .. }
                | DhcpClientPhase::Renewing(BoundLease { address, .. }),
                DhcpMessageType::Ack,
            ) => {
                if let Some(bound) = bound(&frame).filter(|bound| bound.address == *address) {
                    self.phase = DhcpClientPhase::Bound(bound);
                    self.settle();
                }
            }
            (
                DhcpClientPhase::Requesting { .. } | DhcpClientPhase::Renewing(_),
                DhcpMessageType::Nak,
            ) => self.start(now),
            _ => {}
        }
    }

    /// Retransmits, restarts or gives up, if the deadline has passed.
    pub fn tick(&mut self, now: Tick) {
        if self.deadline.is_none_or(|at| now < at) {
            return;
        }
        let tries_max = match self.phase {
            DhcpClientPhase::Discovering => DISCOVERS_MAX,
            _ => REQUESTS_MAX,
        };
        if self.tries < tries_max {
            self.arm(now);
            return;
        }
        match &self.phase {
            DhcpClientPhase::Discovering => {
                self.phase = DhcpClientPhase::GivenUp;
                self.settle();
            }
            // The lease is still valid: keep it and let the caller renew again.
            DhcpClientPhase::Renewing(bound) => {
                self.phase = DhcpClientPhase::Bound(bound.clone());
                self.settle();
            }
            _ => self.start(now),
        }
    }

    /// When to call [`DhcpClient::tick`] next.
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
            DhcpClientPhase::Discovering => self.message(DhcpMessageType::Discover, none),
            DhcpClientPhase::Requesting { address, server } => {
                let mut message = self.message(DhcpMessageType::Request, none);
                message.address_option(code::REQUESTED_ADDRESS, *address);
                message.address_option(code::SERVER_ID, *server);
                message
            }
            DhcpClientPhase::Renewing(bound) => {
                self.message(DhcpMessageType::Request, bound.address)
            }
            DhcpClientPhase::Idle | DhcpClientPhase::Bound(_) | DhcpClientPhase::GivenUp => {
                return None;
            }
        };
        Some(message.finish(self.relay_info()))
    }

    /// The present lease, if there is one.
    pub fn bound(&self) -> Option<&BoundLease> {
        match &self.phase {
            DhcpClientPhase::Bound(bound) | DhcpClientPhase::Renewing(bound) => Some(bound),
            _ => None,
        }
    }

    /// Whether the client stopped because no server replied.
    pub fn has_given_up(&self) -> bool {
        self.phase == DhcpClientPhase::GivenUp
    }

    fn enter(&mut self, now: Tick, phase: DhcpClientPhase) {
        self.phase = phase;
        self.tries = 0;
        self.arm(now);
    }

    /// Sends now, and again after a delay that doubles each time.
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
        let [_, _, a, b, c, d] = self.profile.mac.0;
        let xid = u32::from_be_bytes([a, b, c, d]) ^ self.counter.wrapping_mul(0x9e37_79b1);
        xid.to_be_bytes()
    }

    /// RFC 3046 with RFC 8357: sub-option 19 requests the reply at the source port of the
    /// relay.
    fn relay_info(&self) -> Option<&'static [u8]> {
        self.profile
            .giaddr
            .map(|_| [1, 3, b's', b'i', b'm', 19, 0].as_slice())
    }

    fn message(&self, kind: DhcpMessageType, has: Ipv4Addr) -> DhcpMessageWriter {
        let machine = &self.profile;
        let mut message = DhcpMessageWriter::new(1, self.xid(), machine.mac);
        message.ciaddr(has);
        if let Some(relay) = machine.giaddr {
            message.giaddr(relay);
            message.hops(1);
        }
        let uefi = machine.arch.is_some_and(|arch| arch != 0) && !machine.ipxe;
        if uefi && has.is_unspecified() {
            message.broadcast();
        }
        message.option(code::MESSAGE_TYPE, &[kind.number()]);
        if matches!(kind, DhcpMessageType::Release | DhcpMessageType::Decline) {
            return message;
        }
        message.option(code::MESSAGE_SIZE_MAX, &[0x05, 0xc0]);
        message.option(code::VENDOR_CLASS, self.vendor_class().as_bytes());
        let asked = [1, 3, 6, 12, 15, 43, 54, 60, 66, 67, 97];
        message.option(code::PARAMETER_REQUEST_LIST, &asked);
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
            let id = [[0].as_slice(), &message::swap_uuid(uuid)].concat();
            message.option(code::MACHINE_ID, &id);
        }
        if machine.ipxe {
            message.option(code::USER_CLASS, b"iPXE");
            // The iPXE version, as captured.
            message.option(code::IPXE, &[0xeb, 3, 1, 0, 0]);
        }
        message
    }

    fn vendor_class(&self) -> String {
        let Some(arch) = self.profile.arch else {
            return "udhcp 1.35.0".to_owned();
        };
        // 15 to 20 are the architectures that boot by HTTP (IANA registry).
        let method = if (15..=20).contains(&arch) {
            "HTTPClient"
        } else {
            "PXEClient"
        };
        let interface = match (arch, self.profile.ipxe) {
            (0, _) => "002001",
            (_, true) => "003010",
            _ => "003000",
        };
        format!("{method}:Arch:{arch:05}:UNDI:{interface}")
    }
}

fn bound(frame: &DhcpMessage<'_>) -> Option<BoundLease> {
    let address = frame.yiaddr();
    (!address.is_unspecified()).then_some(BoundLease {
        address,
        server: frame.server()?,
        boot_file: frame.boot_file().map(str::to_owned),
        next_server: frame.siaddr(),
        lease_s: frame.lease_s()?,
    })
}

#[cfg(test)]
mod tests;
