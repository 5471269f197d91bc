//! DHCP client, used by the simulated machines and by our agent in its ramdisk.
//!
//! Messages are written and read by dhcproto, so that the server meets a codec that is not ours.
//! Sends the options that were captured from SeaBIOS iPXE, OVMF and busybox. Sans-IO: frames
//! and time in, frames out. It accepts the first offer, retransmits with doubling delays, and
//! restarts with DISCOVER after a NAK. Transaction ids come from the hardware address and a
//! counter: on a simulated network they must be unique, not secret.

use core::net::Ipv4Addr;

use dhcproto::v4::relay::{RelayAgentInformation, RelayCode, RelayInfo, UnknownInfo};
use dhcproto::v4::{
    Architecture, DhcpOption, Flags, Message, MessageType, OptionCode, UnknownOption,
};
use dhcproto::{Decodable as _, Decoder, Encodable as _};
use trivet_model::{MacAddr, Tick};

use crate::message::swap_uuid;

/// Shortest message, as BOOTP relays expect it (RFC 1542 section 2.1).
const MESSAGE_BYTES_MIN: usize = 300;

/// Where the length of the hardware address is in a message, and that of an Ethernet address.
const HLEN_AT: usize = 2;
const ETHERNET_HLEN: u8 = 6;

/// Option 175 holds what iPXE says about itself; it is not in the registry of IANA.
const IPXE_OPTION: u8 = 175;

/// Sub-option of option 82: the relay wants the reply at its source port (RFC 8357).
const RELAY_PORT_OPTION: u8 = 19;

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
    /// A system whose sockets receive no unicast before it has an address.
    needs_broadcast: bool,
}

/// Vendor class of our agent.
const AGENT_CLASS: &str = "trivet-agent";

/// Most name servers that are taken from a lease. Ours: resolvers ask three.
pub const NAME_SERVERS_MAX: usize = 3;

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
    /// The mask of the network (option 1).
    pub netmask: Option<Ipv4Addr>,
    /// The first router (option 3).
    pub router: Option<Ipv4Addr>,
    /// Name servers (option 6), at most [`NAME_SERVERS_MAX`].
    pub name_servers: Vec<Ipv4Addr>,
    /// The host name (option 12).
    pub host_name: Option<String>,
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
    granted: Option<Tick>,
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
            needs_broadcast: false,
        };
        Self {
            profile: machine,
            phase: DhcpClientPhase::Idle,
            counter: 0,
            due: false,
            tries: 0,
            deadline: None,
            granted: None,
        }
    }

    /// The client of our agent: its sockets receive no unicast before it has an address, so it
    /// asks for replies by broadcast (RFC 2131, section 4.1).
    pub fn for_agent(mac: MacAddr) -> Self {
        let mut client = Self::new(mac, None, false, None, None);
        client.profile.needs_broadcast = true;
        client
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
        let mut message = self.message(MessageType::Release, bound.address);
        insert(&mut message, DhcpOption::ServerIdentifier(bound.server));
        encode(&message)
    }

    /// Handles a received frame. Invalid frames and frames for other clients are ignored.
    pub fn datagram(&mut self, now: Tick, bytes: &[u8]) {
        let Some(message) = decode(bytes) else {
            return;
        };
        if message.chaddr() != self.profile.mac.0 || message.xid() != self.xid() {
            return;
        }
        match (&self.phase, message_type(&message)) {
            (DhcpClientPhase::Discovering, Some(MessageType::Offer)) => {
                let address = message.yiaddr();
                if let Some(server) = server_id(&message).filter(|_| !address.is_unspecified()) {
                    self.enter(now, DhcpClientPhase::Requesting { address, server });
                }
            }
            (
                DhcpClientPhase::Requesting { address, .. }
                | DhcpClientPhase::Renewing(BoundLease { address, .. }),
                Some(MessageType::Ack),
            ) => {
                if let Some(bound) = bound(&message).filter(|bound| bound.address == *address) {
                    self.phase = DhcpClientPhase::Bound(bound);
                    self.granted = Some(now);
                    self.settle();
                }
            }
            (
                DhcpClientPhase::Requesting { .. } | DhcpClientPhase::Renewing(_),
                Some(MessageType::Nak),
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
            DhcpClientPhase::Discovering => self.message(MessageType::Discover, none),
            DhcpClientPhase::Requesting { address, server } => {
                let mut message = self.message(MessageType::Request, none);
                insert(&mut message, DhcpOption::RequestedIpAddress(*address));
                insert(&mut message, DhcpOption::ServerIdentifier(*server));
                message
            }
            DhcpClientPhase::Renewing(bound) => self.message(MessageType::Request, bound.address),
            DhcpClientPhase::Idle | DhcpClientPhase::Bound(_) | DhcpClientPhase::GivenUp => {
                return None;
            }
        };
        encode(&message)
    }

    /// The present lease, if there is one.
    pub fn bound(&self) -> Option<&BoundLease> {
        match &self.phase {
            DhcpClientPhase::Bound(bound) | DhcpClientPhase::Renewing(bound) => Some(bound),
            _ => None,
        }
    }

    /// When the present lease was granted or last renewed.
    pub fn granted_at(&self) -> Option<Tick> {
        self.bound().and(self.granted)
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

    fn xid(&self) -> u32 {
        let [_, _, a, b, c, d] = self.profile.mac.0;
        u32::from_be_bytes([a, b, c, d]) ^ self.counter.wrapping_mul(0x9e37_79b1)
    }

    fn message(&self, kind: MessageType, ciaddr: Ipv4Addr) -> Message {
        let none = Ipv4Addr::UNSPECIFIED;
        let machine = &self.profile;
        let relay = machine.giaddr.unwrap_or(none);
        let mut message =
            Message::new_with_id(self.xid(), ciaddr, none, none, relay, &machine.mac.0);
        let uefi = machine.arch.is_some_and(|arch| arch != 0) && !machine.ipxe;
        if (uefi || machine.needs_broadcast) && ciaddr.is_unspecified() {
            message.set_flags(Flags::default().set_broadcast());
        }
        if machine.giaddr.is_some() {
            message.set_hops(1);
            let port = UnknownInfo::new(RelayCode::from(RELAY_PORT_OPTION), Vec::new());
            let mut information = RelayAgentInformation::default();
            information.insert(RelayInfo::AgentCircuitId(b"sim".to_vec()));
            information.insert(RelayInfo::Unknown(port));
            insert(&mut message, DhcpOption::RelayAgentInformation(information));
        }
        insert(&mut message, DhcpOption::MessageType(kind));
        if kind != MessageType::Release {
            self.describe(&mut message, uefi);
        }
        message
    }

    /// The options by which firmware and systems describe themselves.
    fn describe(&self, message: &mut Message, uefi: bool) {
        let machine = &self.profile;
        insert(message, DhcpOption::MaxMessageSize(1472));
        let class = self.vendor_class().into_bytes();
        insert(message, DhcpOption::ClassIdentifier(class));
        let requested = [1, 3, 6, 12, 15, 43, 54, 60, 66, 67, 97].map(OptionCode::from);
        insert(
            message,
            DhcpOption::ParameterRequestList(requested.to_vec()),
        );
        if !uefi {
            let id = [[1].as_slice(), &machine.mac.0].concat();
            insert(message, DhcpOption::ClientIdentifier(id));
        }
        if let Some(arch) = machine.arch {
            let architecture = Architecture::from(arch);
            insert(message, DhcpOption::ClientSystemArchitecture(architecture));
            let (kind, major, minor) = if arch == 0 { (1, 2, 1) } else { (1, 3, 0) };
            let interface = DhcpOption::ClientNetworkInterface(kind, major, minor);
            insert(message, interface);
        }
        if let Some(uuid) = machine.uuid {
            let id = [[0].as_slice(), &swap_uuid(uuid)].concat();
            insert(message, DhcpOption::ClientMachineIdentifier(id));
        }
        if machine.ipxe {
            insert(message, DhcpOption::UserClass(b"iPXE".to_vec()));
            // The iPXE version, as captured.
            let version = vec![0xeb, 3, 1, 0, 0];
            let version = UnknownOption::new(OptionCode::from(IPXE_OPTION), version);
            insert(message, DhcpOption::Unknown(version));
        }
    }

    fn vendor_class(&self) -> String {
        let Some(arch) = self.profile.arch else {
            if self.profile.needs_broadcast {
                return AGENT_CLASS.to_owned();
            }
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

fn insert(message: &mut Message, option: DhcpOption) {
    message.opts_mut().insert(option);
}

/// The bytes of a message, filled up to the shortest length.
fn encode(message: &Message) -> Option<Vec<u8>> {
    let mut bytes = message.to_vec().ok()?;
    bytes.resize(bytes.len().max(MESSAGE_BYTES_MIN), 0);
    Some(bytes)
}

/// Reads a message. dhcproto panics when it reads a hardware address of more than 16
/// bytes, so that another length than Ethernet's is refused first.
fn decode(bytes: &[u8]) -> Option<Message> {
    if bytes.get(HLEN_AT) != Some(&ETHERNET_HLEN) {
        return None;
    }
    Message::decode(&mut Decoder::new(bytes)).ok()
}

fn message_type(message: &Message) -> Option<MessageType> {
    match message.opts().get(OptionCode::MessageType)? {
        DhcpOption::MessageType(kind) => Some(*kind),
        _ => None,
    }
}

fn server_id(message: &Message) -> Option<Ipv4Addr> {
    match message.opts().get(OptionCode::ServerIdentifier)? {
        DhcpOption::ServerIdentifier(server) => Some(*server),
        _ => None,
    }
}

fn boot_file(message: &Message) -> Option<String> {
    let bytes = match message.opts().get(OptionCode::BootfileName) {
        Some(DhcpOption::BootfileName(name)) => name.as_slice(),
        _ => message.fname()?,
    };
    let end = bytes.iter().position(|&byte| byte == 0);
    let name = core::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

fn bound(message: &Message) -> Option<BoundLease> {
    let address = message.yiaddr();
    let lease_s = match message.opts().get(OptionCode::AddressLeaseTime)? {
        DhcpOption::AddressLeaseTime(seconds) => *seconds,
        _ => return None,
    };
    (!address.is_unspecified()).then_some(BoundLease {
        address,
        server: server_id(message)?,
        boot_file: boot_file(message),
        next_server: message.siaddr(),
        lease_s,
        netmask: match message.opts().get(OptionCode::SubnetMask) {
            Some(DhcpOption::SubnetMask(mask)) => Some(*mask),
            _ => None,
        },
        router: match message.opts().get(OptionCode::Router) {
            Some(DhcpOption::Router(routers)) => routers.first().copied(),
            _ => None,
        },
        name_servers: match message.opts().get(OptionCode::DomainNameServer) {
            Some(DhcpOption::DomainNameServer(all)) => {
                all.iter().copied().take(NAME_SERVERS_MAX).collect()
            }
            _ => Vec::new(),
        },
        host_name: match message.opts().get(OptionCode::Hostname) {
            Some(DhcpOption::Hostname(name)) => Some(name.clone()),
            _ => None,
        },
    })
}

#[cfg(test)]
mod tests;
