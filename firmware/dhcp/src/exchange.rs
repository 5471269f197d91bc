//! Handles one frame: decides the reply by the DHCP mode of the link.

use core::net::{Ipv4Addr, SocketAddrV4};

use trivet_model::{LinkMode, Tick};

use crate::boot::{ClientFirmware, DhcpBootInfo};
use crate::host_directory::HostDirectory;
use crate::lease_table::LeaseChange;
use crate::message::{DhcpMessage, DhcpMessageType, Reason};
use crate::reply::{self, DhcpReplyContent};
use crate::server::{BOOT_PORT, DhcpArrival, DhcpDestination, DhcpReply, DhcpServer, SERVER_PORT};
use crate::settings::{BootServer, DhcpLinkSettings, Subnet};

/// A reply with the details for its note.
pub(crate) struct DhcpExchangeReply {
    pub(crate) reply: DhcpReply,
    pub(crate) message_type: DhcpMessageType,
    /// The address that the reply gives.
    pub(crate) address: Option<Ipv4Addr>,
    /// The boot file that the reply names.
    pub(crate) boot: Option<String>,
    /// The reason of a NAK.
    pub(crate) why: Option<&'static str>,
}

/// State for handling one frame.
pub(crate) struct DhcpExchange<'a, M> {
    pub(crate) server: &'a mut DhcpServer,
    pub(crate) now: Tick,
    pub(crate) arrived: DhcpArrival,
    pub(crate) frame: &'a DhcpMessage<'a>,
    pub(crate) firmware: ClientFirmware,
    pub(crate) machines: &'a M,
    pub(crate) changes: &'a mut Vec<LeaseChange>,
    pub(crate) probe: &'a mut Option<Ipv4Addr>,
}

impl<M: HostDirectory> DhcpExchange<'_, M> {
    pub(crate) fn handle(&mut self) -> Result<DhcpExchangeReply, Reason> {
        let link = self.link();
        // Without any configured link, every link is served.
        let (mode, discovery) =
            link.map_or((LinkMode::Server, true), |link| (link.mode, link.discovery));
        let known_only = match mode {
            LinkMode::Listen => return Err(Reason::OnlyListening),
            LinkMode::Reservations => true,
            LinkMode::Proxy | LinkMode::Server => !discovery,
        };
        match self.frame.message_type {
            DhcpMessageType::Release | DhcpMessageType::Decline if mode == LinkMode::Proxy => {
                Err(Reason::OnlyBoot)
            }
            DhcpMessageType::Release => Err(self.release()),
            DhcpMessageType::Decline => Err(self.decline()),
            DhcpMessageType::Discover | DhcpMessageType::Request | DhcpMessageType::Inform
                if mode == LinkMode::Proxy =>
            {
                self.proxy_reply(known_only)
            }
            DhcpMessageType::Request | DhcpMessageType::Inform
                if self.arrived.port == BOOT_PORT =>
            {
                let at = self.subnet().ok_or(Reason::NoSubnet)?;
                let subnet = &self.server.settings.subnets[at];
                self.check_known(known_only || subnet.known_only)?;
                self.boot_service(subnet.server, &subnet.boot)
            }
            DhcpMessageType::Discover | DhcpMessageType::Request | DhcpMessageType::Inform => {
                self.serve(known_only)
            }
            _ => Err(Reason::UnknownMessageType),
        }
    }

    /// The settings that apply: those of the relay's network, otherwise those of the link that
    /// received the frame.
    fn link(&self) -> Option<&DhcpLinkSettings> {
        let received = self.server.link(self.arrived.link);
        if !self.frame.is_relayed() {
            return received;
        }
        let relay = self.frame.giaddr();
        let links = &self.server.settings.links;
        let of = |known: bool| {
            let mut links = links
                .iter()
                .filter(move |one| one.network.is_some() == known);
            links.find(|one| one.serves_relay(relay))
        };
        of(true).or_else(|| of(false)).or(received)
    }

    fn check_known(&self, known_only: bool) -> Result<(), Reason> {
        if known_only && !self.machines.known(self.frame.mac) {
            return Err(Reason::UnknownClient);
        }
        Ok(())
    }

    /// Replies to network boot clients with the boot file only, where another server gives the
    /// addresses.
    fn proxy_reply(&self, known_only: bool) -> Result<DhcpExchangeReply, Reason> {
        let link = self.link().ok_or(Reason::NoSubnet)?;
        if self.arrived.port == BOOT_PORT {
            self.check_known(known_only)?;
            return self.boot_service(link.server, &link.boot);
        }
        if self.frame.message_type != DhcpMessageType::Discover {
            return Err(Reason::OnlyBoot);
        }
        let boot = self.boot_of(&link.boot)?;
        self.check_known(known_only)?;
        let to = self.relay().unwrap_or(self.broadcast());
        self.boot_only(DhcpMessageType::Offer, link.server, &boot, to)
    }

    /// Replies to a boot service request (port 4011). The client already has an address from
    /// elsewhere.
    fn boot_service(
        &self,
        server: Ipv4Addr,
        boot: &BootServer,
    ) -> Result<DhcpExchangeReply, Reason> {
        let boot = self.boot_of(boot)?;
        let client = self.arrived.source;
        if client.ip().is_unspecified() {
            return Err(Reason::NoAddress);
        }
        self.boot_only(
            DhcpMessageType::Ack,
            server,
            &boot,
            DhcpDestination::BootServiceClient(client),
        )
    }

    fn boot_of<'b>(&self, boot: &'b BootServer) -> Result<DhcpBootInfo<'b>, Reason> {
        if self.firmware.is_system() {
            return Err(Reason::OnlyBoot);
        }
        match self.firmware.boot_info(self.frame, boot) {
            DhcpBootInfo::Nothing => Err(Reason::NothingToBoot),
            boot => Ok(boot),
        }
    }

    fn boot_only(
        &self,
        kind: DhcpMessageType,
        server: Ipv4Addr,
        boot: &DhcpBootInfo<'_>,
        to: DhcpDestination,
    ) -> Result<DhcpExchangeReply, Reason> {
        let bytes =
            reply::boot_only(self.frame, kind, server, boot).ok_or(Reason::NoSpaceForReply)?;
        Ok(DhcpExchangeReply {
            reply: DhcpReply { to, bytes },
            message_type: kind,
            address: None,
            boot: boot.file().map(str::to_owned),
            why: None,
        })
    }

    fn serve(&mut self, known_only: bool) -> Result<DhcpExchangeReply, Reason> {
        let at = self.subnet().ok_or(Reason::NoSubnet)?;
        self.check_known(known_only || self.server.settings.subnets[at].known_only)?;
        match self.frame.message_type {
            DhcpMessageType::Discover => {
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
                self.offer_or_ack(DhcpMessageType::Offer, at, Some(offered.address))
            }
            DhcpMessageType::Request => self.request(at),
            _ => self.offer_or_ack(DhcpMessageType::Ack, at, None),
        }
    }

    /// The subnet of the client: chosen by its relay, otherwise by its present address,
    /// otherwise by our interface.
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
        let by_client = match self.frame.message_type {
            DhcpMessageType::Discover => None,
            _ => holding(self.frame.ciaddr()),
        };
        by_client.or_else(|| holding(self.arrived.local))
    }

    fn may_have(&self, at: usize, address: Ipv4Addr) -> bool {
        let mac = self.frame.mac;
        self.server.table.may_have(at, mac, address, self.machines)
    }

    /// The four kinds of REQUEST (RFC 2131 section 4.3.2).
    fn request(&mut self, at: usize) -> Result<DhcpExchangeReply, Reason> {
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
            // An unknown machine gets only the address it was offered; otherwise a few frames
            // could use up a range.
            let table = &self.server.table;
            let offered = [table.offer_of(mac), table.lease_of(mac)].contains(&Some(wanted));
            if !offered && !self.machines.known(mac) {
                return self.nak(at, "the address was not offered");
            }
            if self.may_have(at, wanted) {
                return self.confirm(at, wanted);
            }
            return self.nak(at, "the address is not free");
        }
        // The client has restarted and requests its previous address (INIT-REBOOT).
        if !self.server.settings.subnets[at].contains(wanted) {
            return self.nak(at, "the address is of another network");
        }
        match self.server.table.lease_of(mac) {
            Some(lease) if lease == wanted && self.may_have(at, wanted) => self.confirm(at, wanted),
            Some(_) => self.nak(at, "the lease is for another address"),
            None => Err(Reason::NoRecord),
        }
    }

    /// The client renews an address that it uses. If we lost its lease but no other client has
    /// the address, the lease is granted.
    fn renew(&mut self, at: usize, has: Ipv4Addr) -> Result<DhcpExchangeReply, Reason> {
        let table = &self.server.table;
        let lease = table.lease_of(self.frame.mac);
        if lease.is_none_or(|lease| lease == has) && self.may_have(at, has) {
            return self.confirm(at, has);
        }
        if lease.is_some() || table.covers(at, has) {
            return self.nak(at, "the address is not yours");
        }
        Err(Reason::NoRecord)
    }

    fn confirm(&mut self, at: usize, address: Ipv4Addr) -> Result<DhcpExchangeReply, Reason> {
        let table = &mut self.server.table;
        table.grant(self.now, at, self.frame.mac, address, self.changes)?;
        self.offer_or_ack(DhcpMessageType::Ack, at, Some(address))
    }

    /// Returns the reason why no reply is sent.
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

    /// Returns the reason why no reply is sent.
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

    fn offer_or_ack(
        &self,
        kind: DhcpMessageType,
        at: usize,
        address: Option<Ipv4Addr>,
    ) -> Result<DhcpExchangeReply, Reason> {
        let subnet: &Subnet = &self.server.settings.subnets[at];
        let to = self.destination(address)?;
        let boot = self.firmware.boot_info(self.frame, &subnet.boot);
        let content = DhcpReplyContent {
            message_type: kind,
            subnet,
            address,
            boot: &boot,
        };
        let bytes = reply::offer_or_ack(self.frame, &content).ok_or(Reason::NoSpaceForReply)?;
        Ok(DhcpExchangeReply {
            reply: DhcpReply { to, bytes },
            message_type: kind,
            address,
            boot: boot.file().map(str::to_owned),
            why: None,
        })
    }

    fn nak(&mut self, at: usize, why: &'static str) -> Result<DhcpExchangeReply, Reason> {
        self.server.table.withdraw_offer(self.frame.mac);
        let server = self.server.settings.subnets[at].server;
        let to = self.relay().unwrap_or(self.broadcast());
        let bytes = reply::nak(self.frame, server, why).ok_or(Reason::NoSpaceForReply)?;
        Ok(DhcpExchangeReply {
            reply: DhcpReply { to, bytes },
            message_type: DhcpMessageType::Nak,
            address: None,
            boot: None,
            why: Some(why),
        })
    }

    fn relay(&self) -> Option<DhcpDestination> {
        let relay = self.frame.giaddr();
        let port = if self.frame.relay_port_counts() {
            self.arrived.source.port()
        } else {
            SERVER_PORT
        };
        let to = DhcpDestination::Relay(SocketAddrV4::new(relay, port));
        self.frame.is_relayed().then_some(to)
    }

    /// For a client without an address or with a wrong one.
    fn broadcast(&self) -> DhcpDestination {
        DhcpDestination::Client {
            mac: self.frame.mac,
            address: Ipv4Addr::BROADCAST,
            broadcast: true,
        }
    }

    /// RFC 2131 section 4.1, and section 4.3.5 for INFORM, which gets a unicast reply.
    fn destination(&self, address: Option<Ipv4Addr>) -> Result<DhcpDestination, Reason> {
        let has = self.frame.ciaddr();
        let has = (!has.is_unspecified()).then_some(DhcpDestination::Renewing(has));
        let Some(address) = address else {
            return has.ok_or(Reason::NoAddress);
        };
        Ok(self.relay().or(has).unwrap_or(DhcpDestination::Client {
            mac: self.frame.mac,
            address,
            broadcast: self.frame.wants_broadcast(),
        }))
    }
}

#[cfg(test)]
mod tests;
