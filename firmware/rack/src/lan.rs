//! The networks: leases for machines, other DHCP servers, unknown machines, and faults.

pub(crate) mod advertised_addresses;

pub use advertised_addresses::WildcardListeners;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use trivet_dhcp::{
    DhcpArrival, DhcpForeignServer, DhcpOutcome, DhcpServer, HostDirectory, LeaseChange, Reason,
};
use trivet_model::boot::ClientSeen;
use trivet_model::link::{FOREIGN_SERVERS_MAX, ForeignServer, LinkView};
use trivet_model::view::UnknownMachine;
use trivet_model::{
    BoxFault, EvidenceNote, Lease, LinkId, LinkMode, MacAddr, Measurement, NodeId, NoteKind, Now,
    RackView, Tick,
};

use crate::bounds::PORTS_MAX;
use crate::part_context::PartContext;
use crate::{Rack, RackOutput, Settings};

/// How many leases of nodes from other servers are remembered. Ours.
const FOREIGN_LEASES_MAX: usize = PORTS_MAX;

/// How many unknown machines are noted one by one in [`UNKNOWN_MACHINES_NOTED_MS`]. Ours.
pub(crate) const UNKNOWN_MACHINES_NOTED_MAX: u32 = 20;

/// After this time unknown machines are noted one by one again. Ours.
pub(crate) const UNKNOWN_MACHINES_NOTED_MS: u64 = 60_000;

/// The networks: the DHCP server, and what is neither on flash nor in the view.
pub(crate) struct LanPart {
    /// None where DHCP is off.
    dhcp: Option<DhcpServer>,
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

/// A message of a known machine.
pub(crate) struct NodeDhcpMessage {
    /// Its node.
    node: NodeId,
    /// What the message and the reply were.
    note: Option<NoteKind>,
    /// What the diagnosis reads of it.
    evidence: Option<EvidenceNote>,
}

impl LanPart {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            dhcp: settings.dhcp.clone().map(DhcpServer::new),
            foreign_leases: BTreeMap::new(),
            foreign_lease_holders: BTreeMap::new(),
            exhausted: Vec::new(),
            unknown_machines: UnknownMachineNoteCount::default(),
        }
    }

    /// When a lease expires, or the number of suppressed unknown machines is noted.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        let leases = self.dhcp.as_ref().and_then(DhcpServer::deadline);
        let suppressed = self.unknown_machines.suppressed > 0;
        let unknown = suppressed.then_some(self.unknown_machines.until);
        leases.into_iter().chain(unknown).min()
    }

    pub(crate) fn tick(&mut self, context: &mut PartContext) {
        self.expire_leases(context);
        self.note_suppressed_unknown_machines(context);
    }

    /// A node was deleted: what is known here belongs to machines and addresses.
    pub(crate) fn remove_node(&self) {
        let Self {
            dhcp: _,
            foreign_leases: _,
            foreign_lease_holders: _,
            exhausted: _,
            unknown_machines: _,
        } = self;
    }

    /// Whether this address can be reserved for a machine; also where DHCP is off.
    pub(crate) fn could_reserve(&self, address: Ipv4Addr) -> bool {
        let dhcp = self.dhcp.as_ref();
        dhcp.is_none_or(|dhcp| dhcp.could_keep(address))
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

impl LanPart {
    /// Handles a message from a client or another server. Returns it if it is of a node.
    pub(crate) fn handle_dhcp(
        &mut self,
        context: &mut PartContext,
        arrival: DhcpArrival,
        bytes: &[u8],
    ) -> Option<NodeDhcpMessage> {
        let dhcp = self.dhcp.as_mut()?;
        let mut outcome = dhcp.handle(
            context.now.tick,
            bytes,
            arrival,
            PortHostDirectory(&context.records.view),
        );
        context.measure(measurement(&outcome));
        lease_changes(context, std::mem::take(&mut outcome.changes));
        if let Some(foreign) = outcome.foreign_server {
            record_foreign_server(context, arrival.link, foreign);
        }
        if let Some(lease) = outcome.foreign_lease
            && context.records.view.macs.contains_key(&lease.mac)
        {
            self.record_foreign_lease(lease);
        }
        let mut message = None;
        if let Some(client) = outcome.seen.take() {
            match context.records.node_of_mac(client.mac) {
                Some(node) => {
                    let known = context.records.view.links.get(&arrival.link);
                    message = Some(NodeDhcpMessage {
                        node,
                        evidence: evidence_of(known.map(AsRef::as_ref), client.mac, &outcome),
                        note: outcome.note.take(),
                    });
                }
                None => self.handle_unknown_machine(context, client),
            }
        }
        if let Some(reply) = outcome.reply {
            context.outputs.push(RackOutput::Dhcp {
                link: arrival.link,
                local: arrival.local,
                to: reply.to,
                bytes: reply.bytes,
            });
        }
        if let Some(address) = outcome.probe {
            let link = arrival.link;
            context.outputs.push(RackOutput::Probe { link, address });
        }
        if outcome.dropped == Some(Reason::PoolExhausted) || !self.exhausted.is_empty() {
            self.check_pools(context);
        }
        message
    }

    /// Notes an unknown machine. A flood of invented machines becomes one note with their
    /// number.
    fn handle_unknown_machine(&mut self, context: &mut PartContext, client: ClientSeen) {
        let mac = client.mac;
        let seen_at = context.now.wall;
        if !context
            .records
            .add_unknown_machine(UnknownMachine { seen_at, client })
        {
            return;
        }
        self.note_suppressed_unknown_machines(context);
        let noted = &mut self.unknown_machines;
        if noted.noted == 0 {
            noted.until = context.now.tick.after_ms(UNKNOWN_MACHINES_NOTED_MS);
        }
        if noted.noted < UNKNOWN_MACHINES_NOTED_MAX {
            noted.noted += 1;
            context.note(None, NoteKind::UnknownMachineSeen { mac });
        } else {
            noted.suppressed += 1;
        }
    }

    /// Notes how many unknown machines were suppressed, at the end of the interval.
    pub(crate) fn note_suppressed_unknown_machines(&mut self, context: &mut PartContext) {
        let noted = &mut self.unknown_machines;
        if context.now.tick < noted.until {
            return;
        }
        let UnknownMachineNoteCount {
            suppressed: more, ..
        } = std::mem::take(noted);
        if more > 0 {
            context.note(None, NoteKind::UnknownMachinesSeen { more });
        }
    }

    /// Frees the addresses of expired leases.
    pub(crate) fn expire_leases(&mut self, context: &mut PartContext) {
        if let Some(dhcp) = &mut self.dhcp
            && dhcp.deadline().is_some_and(|at| at <= context.now.tick)
        {
            let changes = dhcp.expire(context.now.tick);
            lease_changes(context, changes);
            self.check_pools(context);
        }
    }

    /// Restores the leases from flash, at start. Leases outside all present subnets are
    /// dropped.
    pub(crate) fn restore_leases(&mut self, context: &mut PartContext) {
        let Some(dhcp) = &mut self.dhcp else { return };
        let view = &context.records.view;
        let leases = context.records.leases();
        let lost = leases
            .filter(|lease| !dhcp.restore(context.now.tick, **lease, PortHostDirectory(view)));
        let lost: Vec<_> = lost.map(|lease| lease.mac).collect();
        for mac in lost {
            context.records.remove_lease(mac);
        }
    }

    /// A machine claims an address by ARP: another server, or a machine without a lease for it.
    pub(crate) fn handle_arp_claim(
        &mut self,
        context: &mut PartContext,
        link: LinkId,
        address: Ipv4Addr,
        by: MacAddr,
    ) {
        let view = context.records.view.links.get(&link);
        let mut servers = view.into_iter().flat_map(|view| &view.foreign);
        let server = servers.find(|server| server.address == address && server.mac.is_none());
        if let Some(server) = server {
            let foreign = DhcpForeignServer {
                address,
                mac: Some(by),
                proxy: server.proxy,
                relayed: false,
            };
            record_foreign_server(context, link, foreign);
        }
        if let Some(dhcp) = &mut self.dhcp
            && dhcp.claimed(context.now.tick, address, by)
        {
            context.fault_seen(BoxFault::AddressTaken { address, by });
        }
    }

    /// Raises and clears the faults of full ranges.
    fn check_pools(&mut self, context: &mut PartContext) {
        let Some(dhcp) = &self.dhcp else { return };
        let full: Vec<_> = dhcp.exhausted().collect();
        let reported = std::mem::replace(&mut self.exhausted, full.clone());
        for &(first, last) in &full {
            context.fault(BoxFault::PoolExhausted { first, last });
        }
        for (first, last) in reported {
            if !full.contains(&(first, last)) {
                context.fault_gone(&BoxFault::PoolExhausted { first, last });
            }
        }
    }
}

fn record_foreign_server(context: &mut PartContext, id: LinkId, server: DhcpForeignServer) {
    let Some(link) = context.records.view.links.get_mut(&id).map(Arc::make_mut) else {
        return;
    };
    let (name, mode) = (link.name.clone(), link.mode);
    let before = remember(link, context.now, server);
    let mac = server.mac.or(before.as_ref().and_then(|before| before.mac));
    let address = server.address;
    if before.is_none() && mac.is_none() && !server.relayed {
        context
            .outputs
            .push(RackOutput::Probe { link: id, address });
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
                context.note(None, NoteKind::ForeignServerSeen { link, address, mac });
            }
        }
        LinkMode::Reservations | LinkMode::Server => {
            if mac.is_some() {
                context.remove_fault(&fault(None));
            }
            context.fault_seen(fault(mac));
        }
    }
}

impl Rack {
    /// A machine of a node sent a DHCP message: it is running, and may have just started.
    pub(crate) fn handle_node_dhcp(&mut self, now: Now, message: NodeDhcpMessage) {
        let NodeDhcpMessage {
            node,
            note,
            evidence,
        } = message;
        if let Some(NoteKind::Dhcp {
            mac,
            request: "DISCOVER",
            ..
        }) = &note
        {
            self.machine_start_seen(now, node, *mac);
            self.agents.restart_seen(node);
        }
        self.machine_seen(now, node);
        self.sync_power_of_seen_machine(now, node);
        if let Some(kind) = note {
            let output = self.records.note_exchange(now, node, kind);
            self.outputs.extend(output);
        }
        // Once for each boot.
        let known = self.records.evidence_of(node).map(|known| &known.boot);
        let is_new = match (&evidence, known) {
            (Some(EvidenceNote::DhcpNotServed { .. }), Some(boot)) => boot.unserved.is_none(),
            (Some(EvidenceNote::OtherServerChosen { .. }), Some(boot)) => {
                boot.other_server.is_none()
            }
            _ => false,
        };
        if let (true, Some(evidence)) = (is_new, evidence) {
            self.note(now, Some(node), NoteKind::Evidence(evidence));
        }
    }
}

/// What is counted of a message.
fn measurement(outcome: &DhcpOutcome) -> Measurement {
    let (request, reply) = match &outcome.note {
        Some(NoteKind::Dhcp { request, reply, .. }) => (Some(*request), *reply),
        _ => (None, None),
    };
    Measurement::DhcpMessage {
        request,
        reply,
        dropped: outcome.dropped.map(Reason::name),
    }
}

/// What the diagnosis reads of a message of a node's machine. On a link where the box only
/// listens it is expected that another server answers.
fn evidence_of(
    link: Option<&LinkView>,
    mac: MacAddr,
    outcome: &DhcpOutcome,
) -> Option<EvidenceNote> {
    let name = || link.map_or_else(|| "its network".to_owned(), |link| link.name.clone());
    if outcome.dropped == Some(Reason::OnlyListening) {
        return Some(EvidenceNote::DhcpNotServed { link: name(), mac });
    }
    let server = outcome.foreign_server?.address;
    let address = outcome.foreign_lease?.address;
    Some(EvidenceNote::OtherServerChosen {
        link: name(),
        mac,
        address,
        server,
    })
}

fn lease_changes(context: &mut PartContext, changes: Vec<LeaseChange>) {
    for change in changes {
        match change {
            LeaseChange::Granted(lease) => context.records.put_lease(lease),
            LeaseChange::Released(lease) => context.records.remove_lease(lease.mac),
        }
    }
}

/// Stores a server, in place of the one that was silent for longest if there are too many.
/// Returns its former entry.
fn remember(link: &mut LinkView, now: Now, received: DhcpForeignServer) -> Option<ForeignServer> {
    let place = link
        .foreign
        .binary_search_by_key(&received.address, |server| server.address);
    let mut server = ForeignServer {
        address: received.address,
        mac: received.mac,
        proxy: received.proxy,
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
