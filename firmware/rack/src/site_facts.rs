//! The facts of the box and of a node's record that the diagnosis reads.

use std::net::IpAddr;

use serde_json::Value;
use trivet_model::{BoxFault, LinkId, Node, NodeId};
use trivet_story::{JobEvidence, SiteFacts, SiteLink};

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
        let subnets = self.settings.dhcp.iter().flat_map(|dhcp| &dhcp.subnets);
        let bmc = trivet_drivers::bmc_keys(node);
        let bmc_keys = bmc.map_or("", |(keys, _)| keys);
        let bmc_address = bmc.map(|(_, address)| address.to_owned());
        let ports = self.records.ports_of(node.id);
        let only_here = |address: IpAddr| address.is_loopback() || address.is_unspecified();
        SiteFacts {
            has_agent: self.check_agent_files(node).is_ok(),
            api_is_loopback: host(&urls.api).is_some_and(only_here),
            api_url: urls.api,
            own_address: subnets.map(|subnet| subnet.server.to_string()).next(),
            links: self.site_links(),
            unknown_machines: self.unknown_machines_read(),
            bmc_keys,
            bmc_address,
            bmc_user: text(node, &format!("{bmc_keys}_username")),
            bmc_shared_with: self.bmc_shared_with(node),
            port_macs: ports.iter().map(|port| port.address.to_string()).collect(),
            memory_mib: memory_mib(node),
            netboots_instance: trivet_drivers::netboots_instance(node),
            neighbour_image_rate: self.neighbour_image_rate(node.id, evidence),
        }
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

    /// The median rate of the images of other nodes, where there are enough.
    fn neighbour_image_rate(&self, id: NodeId, evidence: &JobEvidence) -> Option<u64> {
        evidence.image_transfer.as_ref()?;
        let others = self
            .records
            .all_evidence()
            .filter(|(other, _)| **other != id);
        let transfers = others.filter_map(|(_, evidence)| evidence.image_transfer.as_ref());
        let large = transfers.filter(|transfer| transfer.sent >= TRANSFER_BYTES_MIN);
        let mut rates: Vec<_> = large.map(trivet_story::FileEvidence::rate).collect();
        if rates.len() < NEIGHBOURS_MIN {
            return None;
        }
        rates.sort_unstable();
        rates.get(rates.len() / 2).copied()
    }
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
