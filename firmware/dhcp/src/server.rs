//! The server: one frame in, at most one reply and its lease changes out.
//!
//! A machine is identified by its hardware address, not by option 61: the same machine runs a
//! ROM, a loader, a ramdisk and a system in turn, each with its own client identifier, and must
//! keep one address through all of them.

use core::net::{Ipv4Addr, SocketAddrV4};

use trivet_model::boot::ClientSeen;
use trivet_model::{Lease, LinkId, LinkMode, MacAddr, NoteKind, Tick};

use crate::boot::ClientFirmware;
use crate::exchange::{DhcpExchange, DhcpExchangeReply};
use crate::foreign::{DhcpForeignServer, foreign_lease};
use crate::host_directory::HostDirectory;
use crate::lease_table::{LeaseChange, LeaseTable};
use crate::message::{self, DhcpMessage, Reason};
use crate::settings::{DhcpLinkSettings, DhcpServerSettings, LINKS_MAX, SUBNETS_MAX};

/// The port of servers and relays (RFC 2131 section 4.1).
pub(crate) const SERVER_PORT: u16 = 67;

/// The port of the boot service (PXE 2.1).
pub(crate) const BOOT_PORT: u16 = 4011;

/// Longest vendor class that is recorded. Ours.
const VENDOR_CLASS_BYTES_MAX: usize = 64;

/// How a frame arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DhcpArrival {
    /// The link that received it.
    pub link: LinkId,
    /// Our address on that link.
    pub local: Ipv4Addr,
    /// Source of the datagram.
    pub source: SocketAddrV4,
    /// The port it was sent to: 67 and 4011 are ours, 68 is the clients'.
    pub port: u16,
    /// The source hardware address, where whole frames are received.
    pub from: Option<MacAddr>,
}

impl DhcpArrival {
    /// A datagram at the server's port, on the first link.
    pub fn datagram(local: Ipv4Addr, source: SocketAddrV4) -> Self {
        Self {
            link: LinkId(0),
            local,
            source,
            port: SERVER_PORT,
            from: None,
        }
    }
}

/// Where a reply is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DhcpDestination {
    /// To the relay: port 67, or its source port if it requested that.
    Relay(SocketAddrV4),
    /// To a client without an address on the link: to port 68, by this hardware address or by
    /// broadcast.
    Client {
        /// Its hardware address.
        mac: MacAddr,
        /// The address the client will have; all ones in a NAK.
        address: Ipv4Addr,
        /// The client cannot receive unicast yet.
        broadcast: bool,
    },
    /// To a client that has this address, at port 68, by normal routing.
    Renewing(Ipv4Addr),
    /// To the sender of a boot service request (port 4011), from that port.
    BootServiceClient(SocketAddrV4),
}

/// A frame to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DhcpReply {
    /// The destination.
    pub to: DhcpDestination,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// The result of handling a frame.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DhcpOutcome {
    /// The reply to send, once `changes` are durable.
    pub reply: Option<DhcpReply>,
    /// The lease changes to make durable first, in this order.
    pub changes: Vec<LeaseChange>,
    /// The client that sent it, if a client did.
    pub seen: Option<ClientSeen>,
    /// The note on the exchange, for the timeline of that client.
    pub note: Option<NoteKind>,
    /// Why there is no reply.
    pub dropped: Option<Reason>,
    /// Another server that the frame reveals.
    pub foreign_server: Option<DhcpForeignServer>,
    /// The lease that a machine has, or is about to have, from another server.
    pub foreign_lease: Option<Lease>,
    /// An address to probe by ARP on the link, see [`DhcpServer::claimed`].
    pub probe: Option<Ipv4Addr>,
}

/// The DHCP server: settings and lease table.
#[derive(Clone, Debug)]
pub struct DhcpServer {
    pub(crate) settings: DhcpServerSettings,
    pub(crate) table: LeaseTable,
}

impl DhcpServer {
    /// A server without leases. Subnets past [`SUBNETS_MAX`] are left out, and links
    /// past [`LINKS_MAX`] only listen.
    pub fn new(mut settings: DhcpServerSettings) -> Self {
        settings.subnets.truncate(SUBNETS_MAX);
        for link in settings.links.iter_mut().skip(LINKS_MAX) {
            link.mode = LinkMode::Listen;
        }
        Self {
            table: LeaseTable::new(&settings),
            settings,
        }
    }

    /// Restores a durable lease, with its time starting at `now`. False if the address is no
    /// longer in our ranges (the settings were changed): the caller may remove the record.
    pub fn restore(&mut self, now: Tick, lease: Lease, machines: impl HostDirectory) -> bool {
        self.table.restore(now, lease, &machines)
    }

    /// Ends the lease of a machine, by order of the operator.
    pub fn forget(&mut self, mac: MacAddr) -> Option<LeaseChange> {
        self.table.forget(mac)
    }

    /// Ends expired offers, leases and quarantines. To be called at [`DhcpServer::deadline`].
    pub fn expire(&mut self, now: Tick) -> Vec<LeaseChange> {
        self.table.expire(now)
    }

    /// When a lease, an offer or a quarantine ends next.
    pub fn deadline(&self) -> Option<Tick> {
        self.table.deadline()
    }

    /// The leased address of a machine.
    pub fn lease_of(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.table.lease_of(mac)
    }

    /// All leases, in order of hardware address.
    pub fn leases(&self) -> impl Iterator<Item = Lease> {
        self.table.leases()
    }

    /// First and last address of each range whose last request found no free address, and to
    /// which none was returned since.
    pub fn exhausted(&self) -> impl Iterator<Item = (Ipv4Addr, Ipv4Addr)> {
        let subnets = &self.settings.subnets;
        self.table
            .exhausted()
            .filter_map(|at| subnets.get(at))
            .map(|subnet| (subnet.first, subnet.last))
    }

    /// Whether the address can be reserved for a machine: it is in one of our networks, and is
    /// not the network, broadcast, server or router address. Without any configured network,
    /// every address can.
    pub fn could_keep(&self, address: Ipv4Addr) -> bool {
        self.settings.subnets.is_empty() || self.table.could_hold(address)
    }

    /// A machine claims an address by ARP. True if that address is offered or leased to another
    /// machine: the offer is withdrawn and the address goes into quarantine; a lease stays.
    pub fn claimed(&mut self, now: Tick, address: Ipv4Addr, mac: MacAddr) -> bool {
        self.table.claimed(now, address, mac)
    }

    /// Handles one frame.
    pub fn handle(
        &mut self,
        now: Tick,
        frame: &[u8],
        arrived: DhcpArrival,
        machines: impl HostDirectory,
    ) -> DhcpOutcome {
        let mut outcome = DhcpOutcome::default();
        if frame.first() == Some(&2) {
            (outcome.foreign_server, outcome.foreign_lease) = self.foreign_answer(frame, &arrived);
            outcome.dropped = Some(Reason::WrongDirection);
            return outcome;
        }
        let frame = match message::decode(frame, 1) {
            Ok(frame) => frame,
            Err(reason) => {
                outcome.dropped = Some(reason);
                return outcome;
            }
        };
        outcome.foreign_server = self.foreign_choice(&frame, &arrived);
        outcome.foreign_lease = foreign_lease(&frame, &arrived, outcome.foreign_server.is_some());
        let firmware = ClientFirmware::of(&frame);
        let mut exchange = DhcpExchange {
            server: self,
            now,
            arrived,
            frame: &frame,
            firmware,
            machines: &machines,
            changes: &mut outcome.changes,
            probe: &mut outcome.probe,
        };
        let given = exchange.handle();
        outcome.seen = Some(seen(&frame, &arrived, given.as_ref().ok()));
        outcome.note = Some(note(&frame, firmware, &given));
        match given {
            Ok(given) => outcome.reply = Some(given.reply),
            Err(reason) => outcome.dropped = Some(reason),
        }
        outcome
    }

    pub(crate) fn link(&self, id: LinkId) -> Option<&DhcpLinkSettings> {
        self.settings.links.get(usize::from(id.0))
    }

    /// Whether this is one of our own addresses.
    pub(crate) fn is_ours(&self, address: Ipv4Addr, arrived: &DhcpArrival) -> bool {
        let DhcpServerSettings { links, subnets } = &self.settings;
        address == arrived.local
            || subnets.iter().any(|subnet| subnet.server == address)
            || links.iter().any(|link| link.server == address)
    }
}

fn seen(
    frame: &DhcpMessage<'_>,
    arrived: &DhcpArrival,
    given: Option<&DhcpExchangeReply>,
) -> ClientSeen {
    let class = frame.vendor_class().unwrap_or_default();
    let class = &class[..class.len().min(VENDOR_CLASS_BYTES_MAX)];
    let class = core::str::from_utf8(class).ok();
    ClientSeen {
        mac: frame.mac,
        link: arrived.link,
        arch: frame.arch(),
        uuid: frame.uuid(),
        ipxe: frame.is_ipxe(),
        vendor_class: class.filter(|text| !text.is_empty()).map(str::to_owned),
        address: given.and_then(|given| given.address),
    }
}

fn note(
    frame: &DhcpMessage<'_>,
    firmware: ClientFirmware,
    given: &Result<DhcpExchangeReply, Reason>,
) -> NoteKind {
    let (message, address, boot, why) = match given {
        Ok(given) => (
            Some(given.message_type.name()),
            given.address,
            given.boot.clone(),
            given.why,
        ),
        Err(reason) => (None, None, None, Some(reason.sentence())),
    };
    NoteKind::Dhcp {
        mac: frame.mac,
        request: frame.message_type.name(),
        reply: message,
        address,
        firmware: firmware.name(),
        boot,
        why,
    }
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
