//! The handling of one frame: what it is answered, by the mode of its link.

use core::net::{Ipv4Addr, SocketAddrV4};

use trivet_model::{LinkMode, Tick};

use crate::boot::{Answer, Firmware};
use crate::frame::{Frame, Kind, Reason};
use crate::machines::Machines;
use crate::reply::{self, Content};
use crate::server::{Arrival, BOOT_PORT, Destination, Reply, SERVER_PORT, Server};
use crate::settings::{BootServer, Link, Subnet};
use crate::table::LeaseChange;

/// A reply, and what is told of it.
pub(crate) struct Given {
    pub(crate) reply: Reply,
    pub(crate) kind: Kind,
    /// The address it gives.
    pub(crate) address: Option<Ipv4Addr>,
    /// What it says to load.
    pub(crate) boot: Option<String>,
    /// Why it refuses.
    pub(crate) why: Option<&'static str>,
}

/// The handling of one frame.
pub(crate) struct Turn<'a, M> {
    pub(crate) server: &'a mut Server,
    pub(crate) now: Tick,
    pub(crate) arrived: Arrival,
    pub(crate) frame: &'a Frame<'a>,
    pub(crate) firmware: Firmware,
    pub(crate) machines: &'a M,
    pub(crate) changes: &'a mut Vec<LeaseChange>,
    pub(crate) probe: &'a mut Option<Ipv4Addr>,
}

impl<M: Machines> Turn<'_, M> {
    pub(crate) fn answer(&mut self) -> Result<Given, Reason> {
        let link = self.link();
        // Who listens nowhere in particular serves everywhere.
        let (mode, discovery) =
            link.map_or((LinkMode::Server, true), |link| (link.mode, link.discovery));
        let known_only = match mode {
            LinkMode::Listen => return Err(Reason::OnlyListening),
            LinkMode::Reservations => true,
            LinkMode::Proxy | LinkMode::Server => !discovery,
        };
        match self.frame.kind {
            Kind::Release | Kind::Decline if mode == LinkMode::Proxy => Err(Reason::OnlyBoot),
            Kind::Release => Err(self.release()),
            Kind::Decline => Err(self.decline()),
            Kind::Discover | Kind::Request | Kind::Inform if mode == LinkMode::Proxy => {
                self.beside(known_only)
            }
            Kind::Request | Kind::Inform if self.arrived.port == BOOT_PORT => {
                let at = self.subnet().ok_or(Reason::NoSubnet)?;
                let subnet = &self.server.settings.subnets[at];
                self.check_known(known_only || subnet.known_only)?;
                self.boot_service(subnet.server, &subnet.boot)
            }
            Kind::Discover | Kind::Request | Kind::Inform => self.serve(known_only),
            _ => Err(Reason::UnknownMessageType),
        }
    }

    /// Whose rules count: those of the network the relay stands in, or else those of
    /// where the frame was heard.
    fn link(&self) -> Option<&Link> {
        let heard = self.server.link(self.arrived.link);
        if !self.frame.is_relayed() {
            return heard;
        }
        let relay = self.frame.giaddr();
        let links = &self.server.settings.links;
        let of = |known: bool| {
            let mut links = links
                .iter()
                .filter(move |one| one.network.is_some() == known);
            links.find(|one| one.serves_relay(relay))
        };
        of(true).or_else(|| of(false)).or(heard)
    }

    fn check_known(&self, known_only: bool) -> Result<(), Reason> {
        if known_only && !self.machines.known(self.frame.mac) {
            return Err(Reason::UnknownClient);
        }
        Ok(())
    }

    /// Beside another server: what to boot, to who boots from the network.
    fn beside(&self, known_only: bool) -> Result<Given, Reason> {
        let link = self.link().ok_or(Reason::NoSubnet)?;
        if self.arrived.port == BOOT_PORT {
            self.check_known(known_only)?;
            return self.boot_service(link.server, &link.boot);
        }
        if self.frame.kind != Kind::Discover {
            return Err(Reason::OnlyBoot);
        }
        let boot = self.boot_of(&link.boot)?;
        self.check_known(known_only)?;
        let to = self.relay().unwrap_or(self.everybody());
        self.boot_only(Kind::Offer, link.server, &boot, to)
    }

    /// Answers who asks for its file at the port of boot servers. Its address is
    /// its own affair.
    fn boot_service(&self, server: Ipv4Addr, boot: &BootServer) -> Result<Given, Reason> {
        let boot = self.boot_of(boot)?;
        let asker = self.arrived.source;
        if asker.ip().is_unspecified() {
            return Err(Reason::NoAddress);
        }
        self.boot_only(Kind::Ack, server, &boot, Destination::Asker(asker))
    }

    fn boot_of<'b>(&self, boot: &'b BootServer) -> Result<Answer<'b>, Reason> {
        if self.firmware.is_system() {
            return Err(Reason::OnlyBoot);
        }
        match self.firmware.answer(self.frame, boot) {
            Answer::Nothing => Err(Reason::NothingToBoot),
            boot => Ok(boot),
        }
    }

    fn boot_only(
        &self,
        kind: Kind,
        server: Ipv4Addr,
        boot: &Answer<'_>,
        to: Destination,
    ) -> Result<Given, Reason> {
        let bytes = reply::boot_only(self.frame, kind, server, boot).ok_or(Reason::NoRoom)?;
        Ok(Given {
            reply: Reply { to, bytes },
            kind,
            address: None,
            boot: boot.file().map(str::to_owned),
            why: None,
        })
    }

    fn serve(&mut self, known_only: bool) -> Result<Given, Reason> {
        let at = self.subnet().ok_or(Reason::NoSubnet)?;
        self.check_known(known_only || self.server.settings.subnets[at].known_only)?;
        match self.frame.kind {
            Kind::Discover => {
                let offered = self.server.table.offer(
                    self.now,
                    at,
                    self.frame.mac,
                    self.frame.requested(),
                    self.machines,
                    self.changes,
                )?;
                if offered.fresh && !self.frame.is_relayed() {
                    *self.probe = Some(offered.address);
                }
                self.give(Kind::Offer, at, Some(offered.address))
            }
            Kind::Request => self.request(at),
            _ => self.give(Kind::Ack, at, None),
        }
    }

    /// The subnet the client is on: by its relay, else by the address it has,
    /// else by our interface.
    fn subnet(&self) -> Option<usize> {
        let subnets = &self.server.settings.subnets;
        let holding = |address: Ipv4Addr| {
            if address.is_unspecified() {
                return None;
            }
            subnets.iter().position(|subnet| subnet.contains(address))
        };
        if self.frame.is_relayed() {
            return holding(self.frame.giaddr());
        }
        let by_client = match self.frame.kind {
            Kind::Discover => None,
            _ => holding(self.frame.ciaddr()),
        };
        by_client.or_else(|| holding(self.arrived.local))
    }

    fn may_have(&self, at: usize, address: Ipv4Addr) -> bool {
        let mac = self.frame.mac;
        self.server.table.may_have(at, mac, address, self.machines)
    }

    /// The four kinds of REQUEST (RFC 2131 section 4.3.2).
    fn request(&mut self, at: usize) -> Result<Given, Reason> {
        let mac = self.frame.mac;
        let has = self.frame.ciaddr();
        let chosen = self.frame.server();
        if !self.is_for_us() {
            self.server.table.withdraw_offer(mac);
            return Err(Reason::OtherServer);
        }
        if !has.is_unspecified() {
            return self.renew(at, has);
        }
        let wanted = self.frame.requested().ok_or(Reason::NoAddress)?;
        if chosen.is_some() {
            // A stranger takes what it was offered: or a few frames would take a range.
            let table = &self.server.table;
            let offered = [table.offer_of(mac), table.lease_of(mac)].contains(&Some(wanted));
            if !offered && !self.machines.known(mac) {
                return self.refuse(at, "the address was not offered");
            }
            if self.may_have(at, wanted) {
                return self.confirm(at, wanted);
            }
            return self.refuse(at, "the address is not free");
        }
        // The client has restarted and remembers an address.
        if !self.server.settings.subnets[at].contains(wanted) {
            return self.refuse(at, "the address is of another network");
        }
        match self.server.table.lease_of(mac) {
            Some(lease) if lease == wanted && self.may_have(at, wanted) => self.confirm(at, wanted),
            Some(_) => self.refuse(at, "the lease is for another address"),
            None => Err(Reason::NoRecord),
        }
    }

    /// The client uses the address and wants to keep it. If we have lost its
    /// lease but nobody else has the address, the client is believed.
    fn renew(&mut self, at: usize, has: Ipv4Addr) -> Result<Given, Reason> {
        let table = &self.server.table;
        let lease = table.lease_of(self.frame.mac);
        if lease.is_none_or(|lease| lease == has) && self.may_have(at, has) {
            return self.confirm(at, has);
        }
        if lease.is_some() || table.covers(at, has) {
            return self.refuse(at, "the address is not yours");
        }
        Err(Reason::NoRecord)
    }

    fn confirm(&mut self, at: usize, address: Ipv4Addr) -> Result<Given, Reason> {
        let table = &mut self.server.table;
        table.grant(self.now, at, self.frame.mac, address, self.changes)?;
        self.give(Kind::Ack, at, Some(address))
    }

    /// Always says why no reply leaves.
    fn release(&mut self) -> Reason {
        let has = self.frame.ciaddr();
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
        let chosen = self.frame.server();
        chosen.is_none_or(|id| self.server.is_ours(id, &self.arrived))
    }

    fn give(&self, kind: Kind, at: usize, address: Option<Ipv4Addr>) -> Result<Given, Reason> {
        let subnet: &Subnet = &self.server.settings.subnets[at];
        let to = self.destination(address)?;
        let boot = self.firmware.answer(self.frame, &subnet.boot);
        let content = Content {
            kind,
            subnet,
            address,
            boot: &boot,
        };
        let bytes = reply::give(self.frame, &content).ok_or(Reason::NoRoom)?;
        Ok(Given {
            reply: Reply { to, bytes },
            kind,
            address,
            boot: boot.file().map(str::to_owned),
            why: None,
        })
    }

    fn refuse(&mut self, at: usize, why: &'static str) -> Result<Given, Reason> {
        self.server.table.withdraw_offer(self.frame.mac);
        let server = self.server.settings.subnets[at].server;
        let to = self.relay().unwrap_or(self.everybody());
        let bytes = reply::refuse(self.frame, server, why).ok_or(Reason::NoRoom)?;
        Ok(Given {
            reply: Reply { to, bytes },
            kind: Kind::Nak,
            address: None,
            boot: None,
            why: Some(why),
        })
    }

    fn relay(&self) -> Option<Destination> {
        let relay = self.frame.giaddr();
        let port = if self.frame.relay_port_counts() {
            self.arrived.source.port()
        } else {
            SERVER_PORT
        };
        let to = Destination::Relay(SocketAddrV4::new(relay, port));
        self.frame.is_relayed().then_some(to)
    }

    /// To a client whose address is none, or wrong.
    fn everybody(&self) -> Destination {
        Destination::Client {
            mac: self.frame.mac,
            address: Ipv4Addr::BROADCAST,
            broadcast: true,
        }
    }

    /// RFC 2131 section 4.1, and 4.3.5 for INFORM, which is answered directly.
    fn destination(&self, address: Option<Ipv4Addr>) -> Result<Destination, Reason> {
        let has = self.frame.ciaddr();
        let has = (!has.is_unspecified()).then_some(Destination::Renewing(has));
        let Some(address) = address else {
            return has.ok_or(Reason::NoAddress);
        };
        Ok(self.relay().or(has).unwrap_or(Destination::Client {
            mac: self.frame.mac,
            address,
            broadcast: self.frame.wants_broadcast(),
        }))
    }
}

#[cfg(test)]
mod tests;
