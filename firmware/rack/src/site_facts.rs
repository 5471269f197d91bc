//! The facts of the box and of a node's record that the diagnosis reads.

use std::net::IpAddr;

use serde_json::Value;
use trivet_dhcp::Subnet;
use trivet_model::{BoxFault, LinkId, Node, NodeId};
use trivet_story::{FileEvidence, JobEvidence, SiteFacts, SiteLink, TransferInProgress};

use crate::Rack;
use crate::lan::advertised_addresses::host;

/// The most unknown machines that a diagnosis considers. Ours.
const UNKNOWN_MACHINES_READ_MAX: usize = 16;

/// A median needs the transfers of so many other nodes. Ours.
const NEIGHBOURS_MIN: usize = 3;

/// Smaller transfers say nothing about a link. Ours.
const TRANSFER_BYTES_MIN: u64 = 1 << 20;

impl Rack {
    pub(crate) fn site_facts(&self, node: &Node, evidence: &JobEvidence) -> SiteFacts {
        let peer = evidence.boot.address.as_ref();
        let peer = peer.and_then(|address| address.parse().ok());
        let urls = self.settings.urls_for(peer);
        let subnet = self.subnet_of(peer);
        let bmc = trivet_drivers::bmc_keys(node);
        let bmc_keys = bmc.map_or("", |(keys, _)| keys);
        let bmc_address = bmc.map(|(_, address)| address.to_owned());
        let ports = self.records.ports_of(node.id);
        let only_here = |address: IpAddr| address.is_loopback() || address.is_unspecified();
        SiteFacts {
            has_agent: self.check_agent_files(node).is_ok(),
            api_is_loopback: host(&urls.api).is_some_and(only_here),
            api_outside_of: outside_of(host(&urls.api), subnet),
            api_url: urls.api,
            own_address: subnet.map(|subnet| subnet.server.to_string()),
            links: self.site_links(),
            unknown_machines: self.unknown_machines_read(),
            bmc_keys,
            bmc_address,
            bmc_user: text(node, &format!("{bmc_keys}_username")),
            bmc_shared_with: self.bmc_shared_with(node),
            other_nodes: self.names_of(evidence),
            port_macs: ports.iter().map(|port| port.address.to_string()).collect(),
            memory_mib: memory_mib(node),
            netboots_instance: trivet_drivers::netboots_instance(node),
            neighbour_image_rate: evidence.image_transfer.as_ref().and_then(|_| {
                let large = |file: &&FileEvidence| file.sent >= TRANSFER_BYTES_MIN;
                self.neighbour_rate(node.id, |other| other.image_transfer.as_ref().filter(large))
            }),
            neighbour_loader_rate: evidence.boot.loader.as_ref().and_then(|_| {
                let whole = |file: &&FileEvidence| file.is_whole();
                self.neighbour_rate(node.id, |other| other.boot.loader.as_ref().filter(whole))
            }),
            transfer: self.transfer(node.id),
        }
    }

    /// The network of a machine; without an address of it, the first.
    fn subnet_of(&self, peer: Option<IpAddr>) -> Option<&Subnet> {
        let mut subnets = self.settings.dhcp.iter().flat_map(|dhcp| &dhcp.subnets);
        match peer {
            Some(IpAddr::V4(peer)) => subnets.find(|subnet| subnet.contains(peer)),
            _ => subnets.next(),
        }
    }

    /// The names of the nodes whose machines booted in place of this one.
    fn names_of(&self, evidence: &JobEvidence) -> Vec<(String, String)> {
        let seen = evidence.other_nodes.iter();
        let named = seen.filter_map(|seen| {
            let id: NodeId = seen.node.parse().ok()?;
            let view = self.records.view.nodes.get(&id)?;
            Some((seen.node.clone(), view.node.label()))
        });
        named.collect()
    }

    fn transfer(&self, id: NodeId) -> Option<TransferInProgress> {
        let live = &self.records.view.nodes.get(&id)?.live;
        let (sent, requested) = live.transfer?;
        Some(TransferInProgress {
            path: live.transfer_path.clone()?,
            sent,
            requested,
        })
    }

    fn site_links(&self) -> Vec<SiteLink> {
        let links = self.records.view.links.iter();
        let links = links.map(|(_, link): (&LinkId, _)| SiteLink {
            name: link.name.clone(),
            mode: link.mode.as_str(),
        });
        links.collect()
    }

    /// The unknown machines that were seen last.
    fn unknown_machines_read(&self) -> Vec<(String, trivet_model::UnixMs)> {
        let unknown = self.records.view.unknown_machines.iter();
        let mut unknown: Vec<_> = unknown
            .map(|(mac, machine)| (machine.seen_at, *mac))
            .collect();
        unknown.sort_unstable_by(|one, other| other.cmp(one));
        unknown.truncate(UNKNOWN_MACHINES_READ_MAX);
        let unknown = unknown.into_iter();
        unknown.map(|(at, mac)| (mac.to_string(), at)).collect()
    }

    fn bmc_shared_with(&self, node: &Node) -> Option<String> {
        let label = node.label();
        self.records
            .view
            .faults
            .keys()
            .find_map(|fault| match fault {
                BoxFault::BmcShared { node, other, .. } if *node == label => Some(other.clone()),
                _ => None,
            })
    }

    /// The median rate of such files of other nodes, where there are enough.
    fn neighbour_rate<'a>(
        &'a self,
        id: NodeId,
        file: impl Fn(&'a JobEvidence) -> Option<&'a FileEvidence>,
    ) -> Option<u64> {
        let others = self
            .records
            .all_evidence()
            .filter(|(other, _)| **other != id);
        let files = others.filter_map(|(_, evidence)| file(evidence));
        let mut rates: Vec<_> = files.map(FileEvidence::rate).collect();
        if rates.len() < NEIGHBOURS_MIN {
            return None;
        }
        rates.sort_unstable();
        rates.get(rates.len() / 2).copied()
    }
}

/// The network, if it has no router and the address is not in it.
fn outside_of(address: Option<IpAddr>, subnet: Option<&Subnet>) -> Option<String> {
    let subnet = subnet.filter(|subnet| subnet.router.is_none())?;
    let IpAddr::V4(address) = address? else {
        return None;
    };
    let outside = !subnet.contains(address);
    outside.then(|| format!("{}/{}", subnet.network, subnet.prefix))
}

fn text(node: &Node, key: &str) -> Option<String> {
    let value = node.driver_info.get(key)?.as_str()?;
    Some(value.to_owned())
}

fn memory_mib(node: &Node) -> Option<u64> {
    let memory = node.properties.get("memory_mb")?;
    match memory {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    }
}
