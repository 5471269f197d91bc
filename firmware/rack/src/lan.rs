//! The networks: addresses for machines, who else serves there, who is unknown, and
//! what is wrong.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use trivet_dhcp::{Arrival, Foreign, LeaseChange, Machines, Reason};
use trivet_model::boot::ClientSeen;
use trivet_model::lan::{FOREIGN_MAX, ForeignServer, LinkView};
use trivet_model::view::Stranger;
use trivet_model::{Fault, Lease, LinkId, LinkMode, MacAddr, NodeId, NoteKind, Now, Tick, View};

use crate::bounds::PORTS_MAX;
use crate::{Output, Rack, Settings};

/// How many addresses that nodes have from other servers are remembered. Ours.
const ELSEWHERE_MAX: usize = PORTS_MAX;

/// How many strangers are noted one by one in [`STRANGERS_NOTED_MS`]. Ours.
pub(crate) const STRANGERS_NOTED_MAX: u32 = 20;

/// After this long strangers are noted one by one again. Ours.
pub(crate) const STRANGERS_NOTED_MS: u64 = 60_000;

/// What is known of the networks and stands neither on flash nor in the view.
#[derive(Default)]
pub(crate) struct Lan {
    /// What nodes have from other servers, both ways.
    elsewhere: BTreeMap<MacAddr, Ipv4Addr>,
    at: BTreeMap<Ipv4Addr, MacAddr>,
    /// Ranges that were told to be full.
    exhausted: Vec<(Ipv4Addr, Ipv4Addr)>,
    strangers: Noted,
}

/// How many strangers were noted, and how many were not.
#[derive(Default)]
struct Noted {
    until: Tick,
    told: u32,
    more: u64,
}

impl Lan {
    /// When there is something to say of strangers.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        (self.strangers.more > 0).then_some(self.strangers.until)
    }

    /// Who has this address from another server.
    pub(crate) fn holder(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.at.get(&address).copied()
    }

    fn gave_elsewhere(&mut self, lease: Lease) {
        if self.elsewhere.len() >= ELSEWHERE_MAX
            && let Some((_, address)) = self.elsewhere.pop_first()
        {
            self.at.remove(&address);
        }
        if let Some(old) = self.elsewhere.insert(lease.mac, lease.address) {
            self.at.remove(&old);
        }
        if let Some(other) = self.at.insert(lease.address, lease.mac)
            && other != lease.mac
        {
            self.elsewhere.remove(&other);
        }
    }
}

/// The machines of nodes.
pub(crate) struct Ports<'a>(pub(crate) &'a View);

impl Machines for Ports<'_> {
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

/// The links for readers, with nobody heard on them yet.
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
    pub(crate) fn dhcp_heard(&mut self, now: Now, arrival: Arrival, bytes: &[u8]) {
        let Some(dhcp) = &mut self.dhcp else { return };
        let outcome = dhcp.handle(now.tick, bytes, arrival, Ports(&self.book.view));
        self.lease_changes(outcome.changes);
        if let Some(foreign) = outcome.foreign {
            self.server_heard(now, arrival.link, foreign);
        }
        if let Some(lease) = outcome.elsewhere
            && self.book.view.macs.contains_key(&lease.mac)
        {
            self.lan.gave_elsewhere(lease);
        }
        if let Some(client) = outcome.seen {
            match self.book.node_of_mac(client.mac) {
                Some(node) => self.node_heard(now, node, outcome.note),
                None => self.stranger_heard(now, client),
            }
        }
        if let Some(reply) = outcome.reply {
            self.outputs.push(Output::Dhcp {
                link: arrival.link,
                local: arrival.local,
                to: reply.to,
                bytes: reply.bytes,
            });
        }
        if let Some(address) = outcome.probe {
            let link = arrival.link;
            self.outputs.push(Output::Probe { link, address });
        }
        if outcome.dropped == Some(Reason::PoolExhausted) || !self.lan.exhausted.is_empty() {
            self.look_at_pools(now);
        }
    }

    fn node_heard(&mut self, now: Now, node: NodeId, note: Option<NoteKind>) {
        if let Some(NoteKind::Dhcp {
            mac,
            asked: "DISCOVER",
            ..
        }) = &note
        {
            self.heard_starting(now, node, *mac);
            self.restart_seen(node);
        }
        self.machine_heard(now, node);
        self.is_alive(now, node);
        if let Some(kind) = note {
            let output = self.book.note_exchange(now, node, kind);
            self.outputs.extend(output);
        }
    }

    /// A flood of invented machines is a line, not a log.
    fn stranger_heard(&mut self, now: Now, client: ClientSeen) {
        let mac = client.mac;
        let seen_at = now.wall;
        if !self.book.stranger(Stranger { seen_at, client }) {
            return;
        }
        self.tell_of_strangers(now);
        let noted = &mut self.lan.strangers;
        if noted.told == 0 {
            noted.until = now.tick.after_ms(STRANGERS_NOTED_MS);
        }
        if noted.told < STRANGERS_NOTED_MAX {
            noted.told += 1;
            self.note(now, None, NoteKind::StrangerSeen { mac });
        } else {
            noted.more += 1;
        }
    }

    /// How many strangers were not noted, when their time is over.
    pub(crate) fn tell_of_strangers(&mut self, now: Now) {
        let noted = &mut self.lan.strangers;
        if now.tick < noted.until {
            return;
        }
        let Noted { more, .. } = std::mem::take(noted);
        if more > 0 {
            self.note(now, None, NoteKind::StrangersSeen { more });
        }
    }

    /// Addresses whose time is over are free again.
    pub(crate) fn expire_leases(&mut self, now: Now) {
        if let Some(dhcp) = &mut self.dhcp
            && dhcp.deadline().is_some_and(|at| at <= now.tick)
        {
            let changes = dhcp.expire(now.tick);
            self.lease_changes(changes);
            self.look_at_pools(now);
        }
    }

    fn lease_changes(&mut self, changes: Vec<LeaseChange>) {
        for change in changes {
            match change {
                LeaseChange::Granted(lease) => self.book.put_lease(lease),
                LeaseChange::Released(lease) => self.book.remove_lease(lease.mac),
            }
        }
    }

    /// What flash holds of leases, at the start. Those that no subnet of ours can
    /// hold any more are forgotten.
    pub(crate) fn restore_leases(&mut self, now: Now) {
        let Some(dhcp) = &mut self.dhcp else { return };
        let view = &self.book.view;
        let leases = self.book.leases.values();
        let lost = leases.filter(|lease| !dhcp.restore(now.tick, **lease, Ports(view)));
        let lost: Vec<_> = lost.map(|lease| lease.mac).collect();
        for mac in lost {
            self.book.remove_lease(mac);
        }
    }

    /// Somebody answers for an address: another server, or who should not have it.
    pub(crate) fn claimed(&mut self, now: Now, link: LinkId, address: Ipv4Addr, by: MacAddr) {
        let view = self.book.view.links.get(&link);
        let mut servers = view.into_iter().flat_map(|view| &view.foreign);
        let server = servers.find(|server| server.address == address && server.mac.is_none());
        if let Some(server) = server {
            let foreign = Foreign {
                address,
                mac: Some(by),
                proxy: server.proxy,
                relayed: false,
            };
            self.server_heard(now, link, foreign);
        }
        if let Some(dhcp) = &mut self.dhcp
            && dhcp.claimed(now.tick, address, by)
        {
            self.fault_seen(now, Fault::AddressTaken { address, by });
        }
    }

    fn server_heard(&mut self, now: Now, id: LinkId, heard: Foreign) {
        let Some(link) = self.book.view.links.get_mut(&id).map(Arc::make_mut) else {
            return;
        };
        let (name, mode) = (link.name.clone(), link.mode);
        let before = remember(link, now, heard);
        let mac = heard.mac.or(before.as_ref().and_then(|before| before.mac));
        let address = heard.address;
        if before.is_none() && mac.is_none() && !heard.relayed {
            self.outputs.push(Output::Probe { link: id, address });
        }
        let fault = |mac| Fault::ForeignServer {
            link: name.clone(),
            address,
            mac,
        };
        match mode {
            LinkMode::Listen | LinkMode::Proxy => {
                if before.is_none() {
                    let link = name;
                    self.note(now, None, NoteKind::ServerHeard { link, address, mac });
                }
            }
            LinkMode::Reservations | LinkMode::Server => {
                if mac.is_some() {
                    self.forget_fault(&fault(None));
                }
                self.fault_seen(now, fault(mac));
            }
        }
    }

    /// Tells which ranges are full, and which are no longer.
    fn look_at_pools(&mut self, now: Now) {
        let Some(dhcp) = &self.dhcp else { return };
        let full: Vec<_> = dhcp.exhausted().collect();
        let told = std::mem::replace(&mut self.lan.exhausted, full.clone());
        for &(first, last) in &full {
            self.fault(now, Fault::PoolExhausted { first, last });
        }
        for (first, last) in told {
            if !full.contains(&(first, last)) {
                self.fault_gone(now, &Fault::PoolExhausted { first, last });
            }
        }
    }
}

/// Keeps a server in mind, in place of the one that was not heard for longest if
/// there are too many. What was known of it.
fn remember(link: &mut LinkView, now: Now, heard: Foreign) -> Option<ForeignServer> {
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
            // Who gives addresses at all is no proxy.
            server.proxy &= before.proxy;
            link.foreign[at] = server;
            Some(before)
        }
        Err(at) => {
            link.foreign.insert(at, server);
            if link.foreign.len() > FOREIGN_MAX {
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
