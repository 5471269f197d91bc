//! The networks: leases for machines, other DHCP servers, unknown machines, and faults.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use trivet_dhcp::{DhcpArrival, DhcpForeignServer, HostDirectory, LeaseChange, Reason};
use trivet_model::boot::ClientSeen;
use trivet_model::link::{FOREIGN_SERVERS_MAX, ForeignServer, LinkView};
use trivet_model::view::UnknownMachine;
use trivet_model::{
    BoxFault, Lease, LinkId, LinkMode, MacAddr, NodeId, NoteKind, Now, RackView, Tick,
};

use crate::bounds::PORTS_MAX;
use crate::{Rack, RackOutput, Settings};

/// How many leases of nodes from other servers are remembered. Ours.
const FOREIGN_LEASES_MAX: usize = PORTS_MAX;

/// How many unknown machines are noted one by one in [`UNKNOWN_MACHINES_NOTED_MS`]. Ours.
pub(crate) const UNKNOWN_MACHINES_NOTED_MAX: u32 = 20;

/// After this time unknown machines are noted one by one again. Ours.
pub(crate) const UNKNOWN_MACHINES_NOTED_MS: u64 = 60_000;

/// The state of the networks that is neither on flash nor in the view.
#[derive(Default)]
pub(crate) struct DhcpNetworkState {
    /// Leases of nodes from other servers, in both directions.
    foreign_leases: BTreeMap<MacAddr, Ipv4Addr>,
    foreign_lease_holders: BTreeMap<Ipv4Addr, MacAddr>,
    /// Ranges that were reported as full.
    exhausted: Vec<(Ipv4Addr, Ipv4Addr)>,
    unknown_machines: UnknownMachineNoteCount,
}

/// How many unknown machines were noted, and how many were not.
#[derive(Default)]
struct UnknownMachineNoteCount {
    until: Tick,
    noted: u32,
    suppressed: u64,
}

impl DhcpNetworkState {
    /// When the number of suppressed unknown machines is noted.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        (self.unknown_machines.suppressed > 0).then_some(self.unknown_machines.until)
    }

    /// The machine that has this address from another server.
    pub(crate) fn holder(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.foreign_lease_holders.get(&address).copied()
    }

    fn record_foreign_lease(&mut self, lease: Lease) {
        if self.foreign_leases.len() >= FOREIGN_LEASES_MAX
            && let Some((_, address)) = self.foreign_leases.pop_first()
        {
            self.foreign_lease_holders.remove(&address);
        }
        if let Some(old) = self.foreign_leases.insert(lease.mac, lease.address) {
            self.foreign_lease_holders.remove(&old);
        }
        if let Some(other) = self.foreign_lease_holders.insert(lease.address, lease.mac)
            && other != lease.mac
        {
            self.foreign_leases.remove(&other);
        }
    }
}

/// The machines of nodes.
pub(crate) struct PortHostDirectory<'a>(pub(crate) &'a RackView);

impl HostDirectory for PortHostDirectory<'_> {
    fn known(&self, mac: MacAddr) -> bool {
        self.0.macs.contains_key(&mac)
    }

    fn reserved(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.0.port_by_mac(mac)?.reserved()
    }

    fn owner(&self, address: Ipv4Addr) -> Option<MacAddr> {
        let port = self.0.ports.get(self.0.reserved.get(&address)?)?;
        Some(port.address)
    }
}

/// The links for readers, before any message was received on them.
pub(crate) fn links(settings: &Settings) -> impl Iterator<Item = (LinkId, Arc<LinkView>)> {
    let links = settings.dhcp.iter().flat_map(|dhcp| &dhcp.links);
    (0..).map(LinkId).zip(links).map(|(id, link)| {
        let view = LinkView {
            name: link.name.clone(),
            mode: link.mode,
            foreign: Vec::new(),
        };
        (id, Arc::new(view))
    })
}

impl Rack {
    pub(crate) fn handle_dhcp(&mut self, now: Now, arrival: DhcpArrival, bytes: &[u8]) {
        let Some(dhcp) = &mut self.dhcp else { return };
        let outcome = dhcp.handle(
            now.tick,
            bytes,
            arrival,
            PortHostDirectory(&self.records.view),
        );
        self.lease_changes(outcome.changes);
        if let Some(foreign) = outcome.foreign_server {
            self.record_foreign_server(now, arrival.link, foreign);
        }
        if let Some(lease) = outcome.foreign_lease
            && self.records.view.macs.contains_key(&lease.mac)
        {
            self.lan.record_foreign_lease(lease);
        }
        if let Some(client) = outcome.seen {
            match self.records.node_of_mac(client.mac) {
                Some(node) => self.handle_node_dhcp(now, node, outcome.note),
                None => self.handle_unknown_machine(now, client),
            }
        }
        if let Some(reply) = outcome.reply {
            self.outputs.push(RackOutput::Dhcp {
                link: arrival.link,
                local: arrival.local,
                to: reply.to,
                bytes: reply.bytes,
            });
        }
        if let Some(address) = outcome.probe {
            let link = arrival.link;
            self.outputs.push(RackOutput::Probe { link, address });
        }
        if outcome.dropped == Some(Reason::PoolExhausted) || !self.lan.exhausted.is_empty() {
            self.check_pools(now);
        }
    }

    fn handle_node_dhcp(&mut self, now: Now, node: NodeId, note: Option<NoteKind>) {
        if let Some(NoteKind::Dhcp {
            mac,
            request: "DISCOVER",
            ..
        }) = &note
        {
            self.machine_start_seen(now, node, *mac);
            self.restart_seen(node);
        }
        self.machine_seen(now, node);
        self.sync_power_of_seen_machine(now, node);
        if let Some(kind) = note {
            let output = self.records.note_exchange(now, node, kind);
            self.outputs.extend(output);
        }
    }

    /// Notes an unknown machine. A flood of invented machines becomes one note with their
    /// number.
    fn handle_unknown_machine(&mut self, now: Now, client: ClientSeen) {
        let mac = client.mac;
        let seen_at = now.wall;
        if !self
            .records
            .add_unknown_machine(UnknownMachine { seen_at, client })
        {
            return;
        }
        self.note_suppressed_unknown_machines(now);
        let noted = &mut self.lan.unknown_machines;
        if noted.noted == 0 {
            noted.until = now.tick.after_ms(UNKNOWN_MACHINES_NOTED_MS);
        }
        if noted.noted < UNKNOWN_MACHINES_NOTED_MAX {
            noted.noted += 1;
            self.note(now, None, NoteKind::UnknownMachineSeen { mac });
        } else {
            noted.suppressed += 1;
        }
    }

    /// Notes how many unknown machines were suppressed, at the end of the interval.
    pub(crate) fn note_suppressed_unknown_machines(&mut self, now: Now) {
        let noted = &mut self.lan.unknown_machines;
        if now.tick < noted.until {
            return;
        }
        let UnknownMachineNoteCount {
            suppressed: more, ..
        } = std::mem::take(noted);
        if more > 0 {
            self.note(now, None, NoteKind::UnknownMachinesSeen { more });
        }
    }

    /// Frees the addresses of expired leases.
    pub(crate) fn expire_leases(&mut self, now: Now) {
        if let Some(dhcp) = &mut self.dhcp
            && dhcp.deadline().is_some_and(|at| at <= now.tick)
        {
            let changes = dhcp.expire(now.tick);
            self.lease_changes(changes);
            self.check_pools(now);
        }
    }

    fn lease_changes(&mut self, changes: Vec<LeaseChange>) {
        for change in changes {
            match change {
                LeaseChange::Granted(lease) => self.records.put_lease(lease),
                LeaseChange::Released(lease) => self.records.remove_lease(lease.mac),
            }
        }
    }

    /// Restores the leases from flash, at start. Leases outside all present subnets are
    /// dropped.
    pub(crate) fn restore_leases(&mut self, now: Now) {
        let Some(dhcp) = &mut self.dhcp else { return };
        let view = &self.records.view;
        let leases = self.records.leases.values();
        let lost = leases.filter(|lease| !dhcp.restore(now.tick, **lease, PortHostDirectory(view)));
        let lost: Vec<_> = lost.map(|lease| lease.mac).collect();
        for mac in lost {
            self.records.remove_lease(mac);
        }
    }

    /// A machine claims an address by ARP: another server, or a machine without a lease for it.
    pub(crate) fn handle_arp_claim(
        &mut self,
        now: Now,
        link: LinkId,
        address: Ipv4Addr,
        by: MacAddr,
    ) {
        let view = self.records.view.links.get(&link);
        let mut servers = view.into_iter().flat_map(|view| &view.foreign);
        let server = servers.find(|server| server.address == address && server.mac.is_none());
        if let Some(server) = server {
            let foreign = DhcpForeignServer {
                address,
                mac: Some(by),
                proxy: server.proxy,
                relayed: false,
            };
            self.record_foreign_server(now, link, foreign);
        }
        if let Some(dhcp) = &mut self.dhcp
            && dhcp.claimed(now.tick, address, by)
        {
            self.fault_seen(now, BoxFault::AddressTaken { address, by });
        }
    }

    fn record_foreign_server(&mut self, now: Now, id: LinkId, heard: DhcpForeignServer) {
        let Some(link) = self.records.view.links.get_mut(&id).map(Arc::make_mut) else {
            return;
        };
        let (name, mode) = (link.name.clone(), link.mode);
        let before = remember(link, now, heard);
        let mac = heard.mac.or(before.as_ref().and_then(|before| before.mac));
        let address = heard.address;
        if before.is_none() && mac.is_none() && !heard.relayed {
            self.outputs.push(RackOutput::Probe { link: id, address });
        }
        let fault = |mac| BoxFault::ForeignServer {
            link: name.clone(),
            address,
            mac,
        };
        match mode {
            LinkMode::Listen | LinkMode::Proxy => {
                if before.is_none() {
                    let link = name;
                    self.note(
                        now,
                        None,
                        NoteKind::ForeignServerSeen { link, address, mac },
                    );
                }
            }
            LinkMode::Reservations | LinkMode::Server => {
                if mac.is_some() {
                    self.remove_fault(&fault(None));
                }
                self.fault_seen(now, fault(mac));
            }
        }
    }

    /// Raises and clears the faults of full ranges.
    fn check_pools(&mut self, now: Now) {
        let Some(dhcp) = &self.dhcp else { return };
        let full: Vec<_> = dhcp.exhausted().collect();
        let told = std::mem::replace(&mut self.lan.exhausted, full.clone());
        for &(first, last) in &full {
            self.fault(now, BoxFault::PoolExhausted { first, last });
        }
        for (first, last) in told {
            if !full.contains(&(first, last)) {
                self.fault_gone(now, &BoxFault::PoolExhausted { first, last });
            }
        }
    }
}

/// Stores a server, in place of the one that was silent for longest if there are too many.
/// Returns its former entry.
fn remember(link: &mut LinkView, now: Now, heard: DhcpForeignServer) -> Option<ForeignServer> {
    let place = link
        .foreign
        .binary_search_by_key(&heard.address, |server| server.address);
    let mut server = ForeignServer {
        address: heard.address,
        mac: heard.mac,
        proxy: heard.proxy,
        seen_at: now.wall,
    };
    match place {
        Ok(at) => {
            let before = link.foreign[at].clone();
            server.mac = server.mac.or(before.mac);
            // A server that leases addresses is not a proxy.
            server.proxy &= before.proxy;
            link.foreign[at] = server;
            Some(before)
        }
        Err(at) => {
            link.foreign.insert(at, server);
            if link.foreign.len() > FOREIGN_SERVERS_MAX {
                let others = link
                    .foreign
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != at);
                let oldest = others.min_by_key(|(_, server)| server.seen_at);
                if let Some((oldest, _)) = oldest {
                    link.foreign.remove(oldest);
                }
            }
            None
        }
    }
}
