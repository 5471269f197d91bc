//! The server: one frame in, at most one reply and its lease changes out.
//!
//! A machine is known by its hardware address, not by option 61: the same
//! machine is a ROM, a loader, a ramdisk and a system in turn, each with its own
//! idea of an identifier, and must keep one address through all of them.

use core::net::{Ipv4Addr, SocketAddrV4};

use dhcproto::v4::MessageType;
use trivet_model::boot::ClientSeen;
use trivet_model::{Lease, LinkId, MacAddr, Tick};

use crate::boot;
use crate::frame::{self, Frame, Reason};
use crate::reply::{self, Content};
use crate::settings::{SUBNETS_MAX, Settings, Subnet};
use crate::table::{LeaseChange, Table};

/// The port of servers and relays (RFC 2131 section 4.1).
const SERVER_PORT: u16 = 67;

/// Longest vendor class that is passed on. Ours.
const VENDOR_CLASS_BYTES_MAX: usize = 64;

/// Where a frame came in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arrival {
    /// Where it was heard.
    pub link: LinkId,
    /// Our address there.
    pub local: Ipv4Addr,
    /// Who sent the datagram.
    pub source: SocketAddrV4,
    /// The port it was sent to: 67 and 4011 are ours, 68 is the clients'.
    pub port: u16,
    /// The hardware address it came from, where frames are heard.
    pub from: Option<MacAddr>,
}

impl Arrival {
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

/// Where a reply goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Destination {
    /// To the relay: port 67, or the port it sent from if it asked for that.
    Relay(SocketAddrV4),
    /// To a client without address on the link: to port 68, with this hardware
    /// address, or to everybody.
    Client {
        /// Its hardware address.
        mac: MacAddr,
        /// The address it is about to have; all ones in a refusal.
        address: Ipv4Addr,
        /// It cannot hear unicast yet.
        broadcast: bool,
    },
    /// To a client that has this address, at port 68, by plain routing.
    Renewing(Ipv4Addr),
    /// Back to who asked the boot service (port 4011), from that port.
    Asker(SocketAddrV4),
}

/// A frame to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// Where to.
    pub to: Destination,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// What came of a frame.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// What to send, once `changes` are durable.
    pub reply: Option<Reply>,
    /// What to make durable first, in this order.
    pub changes: Vec<LeaseChange>,
    /// Who it was, if it was a client at all.
    pub seen: Option<ClientSeen>,
    /// Why there is no reply.
    pub dropped: Option<Reason>,
}

/// The DHCP server.
#[derive(Clone, Debug)]
pub struct Server {
    settings: Settings,
    table: Table,
}

impl Server {
    /// A server without leases. Subnets past [`SUBNETS_MAX`] are left out.
    pub fn new(mut settings: Settings) -> Self {
        settings.subnets.truncate(SUBNETS_MAX);
        Self {
            table: Table::new(&settings),
            settings,
        }
    }

    /// Takes a durable lease back, counted anew from `now`. False if it cannot
    /// be ours any more (the range was changed): the caller may forget it.
    pub fn restore(&mut self, now: Tick, lease: Lease) -> bool {
        self.table.restore(now, lease)
    }

    /// Ends the lease of a machine, by order of the operator.
    pub fn forget(&mut self, mac: MacAddr) -> Option<LeaseChange> {
        self.table.forget(mac)
    }

    /// Ends what is over. To be called at [`Server::deadline`].
    pub fn expire(&mut self, now: Tick) -> Vec<LeaseChange> {
        self.table.expire(now)
    }

    /// When a lease, an offer or a rest ends next.
    pub fn deadline(&self) -> Option<Tick> {
        self.table.deadline()
    }

    /// The address of a machine.
    pub fn lease_of(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.table.lease_of(mac)
    }

    /// All leases, in order of hardware address.
    pub fn leases(&self) -> impl Iterator<Item = Lease> {
        self.table.leases()
    }

    /// Answers one frame. `known` says which machines a subnet of known
    /// machines serves.
    pub fn handle(
        &mut self,
        now: Tick,
        frame: &[u8],
        arrived: Arrival,
        known: impl Fn(MacAddr) -> bool,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let given = frame::decode(frame, 1).and_then(|frame| {
            let mut turn = Turn {
                server: self,
                now,
                arrived,
                frame: &frame,
                changes: &mut outcome.changes,
            };
            let given = turn.answer(known);
            outcome.seen = Some(seen(&frame, given.as_ref().ok().and_then(|it| it.address)));
            given
        });
        match given {
            Ok(given) => outcome.reply = Some(given.reply),
            Err(reason) => outcome.dropped = Some(reason),
        }
        outcome
    }
}

fn seen(frame: &Frame, address: Option<Ipv4Addr>) -> ClientSeen {
    let class = frame.vendor_class().unwrap_or_default();
    let class = &class[..class.len().min(VENDOR_CLASS_BYTES_MAX)];
    let class = core::str::from_utf8(class).ok();
    ClientSeen {
        mac: frame.mac,
        arch: frame.arch(),
        uuid: frame.uuid(),
        ipxe: frame.is_ipxe(),
        vendor_class: class.filter(|text| !text.is_empty()).map(str::to_owned),
        address,
    }
}

/// A reply, and the address it gives.
struct Given {
    reply: Reply,
    address: Option<Ipv4Addr>,
}

/// The handling of one frame.
struct Turn<'a> {
    server: &'a mut Server,
    now: Tick,
    arrived: Arrival,
    frame: &'a Frame,
    changes: &'a mut Vec<LeaseChange>,
}

impl Turn<'_> {
    fn answer(&mut self, known: impl Fn(MacAddr) -> bool) -> Result<Given, Reason> {
        let mac = self.frame.mac;
        match self.frame.kind {
            MessageType::Release => return Err(self.release()),
            MessageType::Decline => return Err(self.decline()),
            MessageType::Discover | MessageType::Request | MessageType::Inform => {}
            other => return Err(Reason::UnknownMessageType(other.into())),
        }
        let at = self.subnet().ok_or(Reason::NoSubnet)?;
        if self.server.settings.subnets[at].known_only && !known(mac) {
            return Err(Reason::UnknownClient);
        }
        match self.frame.kind {
            MessageType::Discover => {
                let wish = self.frame.requested();
                let table = &mut self.server.table;
                let address = table.offer(self.now, at, mac, wish, self.changes)?;
                self.give(MessageType::Offer, at, Some(address))
            }
            MessageType::Request => self.request(at),
            _ => self.give(MessageType::Ack, at, None),
        }
    }

    /// The subnet the client is on: by its relay, else by the address it has,
    /// else by our interface.
    fn subnet(&self) -> Option<usize> {
        let message = &self.frame.message;
        let subnets = &self.server.settings.subnets;
        let holding = |address: Ipv4Addr| {
            if address == Ipv4Addr::UNSPECIFIED {
                return None;
            }
            subnets.iter().position(|subnet| subnet.contains(address))
        };
        if message.giaddr() != Ipv4Addr::UNSPECIFIED {
            return holding(message.giaddr());
        }
        let by_client = match self.frame.kind {
            MessageType::Discover => None,
            _ => holding(message.ciaddr()),
        };
        by_client.or_else(|| holding(self.arrived.local))
    }

    /// The four kinds of REQUEST (RFC 2131 section 4.3.2).
    fn request(&mut self, at: usize) -> Result<Given, Reason> {
        let mac = self.frame.mac;
        let has = self.frame.message.ciaddr();
        let subnet = &self.server.settings.subnets[at];
        let chosen = self.frame.server();
        if chosen.is_some_and(|id| id != subnet.server && id != self.arrived.local) {
            self.server.table.withdraw_offer(mac);
            return Err(Reason::OtherServer);
        }
        if has != Ipv4Addr::UNSPECIFIED {
            return self.renew(at, has);
        }
        let wanted = self.frame.requested().ok_or(Reason::NoAddress)?;
        if chosen.is_some() {
            if self.server.table.may_have(at, mac, wanted) {
                return self.confirm(at, wanted);
            }
            return self.refuse(at, "the address is not free");
        }
        // The client has restarted and remembers an address.
        if !subnet.contains(wanted) {
            return self.refuse(at, "the address is of another network");
        }
        match self.server.table.lease_of(mac) {
            Some(lease) if lease == wanted => self.confirm(at, wanted),
            Some(_) => self.refuse(at, "the lease is for another address"),
            None => Err(Reason::NoRecord),
        }
    }

    /// The client uses the address and wants to keep it. If we have lost its
    /// lease but nobody else has the address, the client is believed.
    fn renew(&mut self, at: usize, has: Ipv4Addr) -> Result<Given, Reason> {
        let mac = self.frame.mac;
        let table = &self.server.table;
        let lease = table.lease_of(mac);
        if lease.is_none_or(|lease| lease == has) && table.may_have(at, mac, has) {
            return self.confirm(at, has);
        }
        if lease.is_some() || table.covers(at, has) {
            return self.refuse(at, "the address is not yours");
        }
        Err(Reason::NoRecord)
    }

    fn confirm(&mut self, at: usize, address: Ipv4Addr) -> Result<Given, Reason> {
        let table = &mut self.server.table;
        table.grant(self.now, self.frame.mac, address, self.changes)?;
        self.give(MessageType::Ack, at, Some(address))
    }

    /// Always says why no reply leaves.
    fn release(&mut self) -> Reason {
        let has = self.frame.message.ciaddr();
        if !self.is_for_us() {
            return Reason::OtherServer;
        }
        if self.server.table.lease_of(self.frame.mac) != Some(has) {
            return Reason::NoRecord;
        }
        self.changes
            .extend(self.server.table.forget(self.frame.mac));
        Reason::NoAnswerNeeded
    }

    /// Always says why no reply leaves.
    fn decline(&mut self) -> Reason {
        let Some(address) = self.frame.requested() else {
            return Reason::NoAddress;
        };
        if !self.is_for_us() {
            return Reason::OtherServer;
        }
        let table = &mut self.server.table;
        match table.decline(self.now, self.frame.mac, address) {
            Ok(change) => {
                self.changes.extend(change);
                Reason::NoAnswerNeeded
            }
            Err(reason) => reason,
        }
    }

    fn is_for_us(&self) -> bool {
        let subnets = &self.server.settings.subnets;
        self.frame.server().is_none_or(|id| {
            id == self.arrived.local || subnets.iter().any(|subnet| subnet.server == id)
        })
    }

    fn give(
        &self,
        kind: MessageType,
        at: usize,
        address: Option<Ipv4Addr>,
    ) -> Result<Given, Reason> {
        let subnet: &Subnet = &self.server.settings.subnets[at];
        let to = self.destination(address)?;
        let content = Content {
            kind,
            subnet,
            address,
            lease_s: self.server.settings.lease_s,
            boot: boot::answer(self.frame, &subnet.boot),
        };
        let bytes = reply::give(self.frame, content).ok_or(Reason::NotEncoded)?;
        Ok(Given {
            reply: Reply { to, bytes },
            address,
        })
    }

    fn refuse(&mut self, at: usize, why: &str) -> Result<Given, Reason> {
        self.server.table.withdraw_offer(self.frame.mac);
        let server = self.server.settings.subnets[at].server;
        let to = self.relay().unwrap_or(Destination::Client {
            mac: self.frame.mac,
            address: Ipv4Addr::BROADCAST,
            broadcast: true,
        });
        let bytes = reply::refuse(self.frame, server, why).ok_or(Reason::NotEncoded)?;
        Ok(Given {
            reply: Reply { to, bytes },
            address: None,
        })
    }

    fn relay(&self) -> Option<Destination> {
        let relay = self.frame.message.giaddr();
        let port = if self.frame.relay_port_counts() {
            self.arrived.source.port()
        } else {
            SERVER_PORT
        };
        (relay != Ipv4Addr::UNSPECIFIED).then(|| Destination::Relay(SocketAddrV4::new(relay, port)))
    }

    /// RFC 2131 section 4.1, and 4.3.5 for INFORM, which is answered directly.
    fn destination(&self, address: Option<Ipv4Addr>) -> Result<Destination, Reason> {
        let has = self.frame.message.ciaddr();
        let has = (has != Ipv4Addr::UNSPECIFIED).then_some(Destination::Renewing(has));
        let Some(address) = address else {
            return has.ok_or(Reason::NoAddress);
        };
        Ok(self.relay().or(has).unwrap_or(Destination::Client {
            mac: self.frame.mac,
            address,
            broadcast: self.frame.message.flags().broadcast(),
        }))
    }
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
