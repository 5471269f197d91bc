//! From which addresses a node's agent may call, and where it may be called back.
//!
//! Until agents authenticate with certificates, the address that this box leased to a node's
//! hardware address authenticates the node's agent. A node without such a lease is weakly
//! authenticated: the first caller is accepted, and a second one stops the job.

use std::net::{IpAddr, Ipv4Addr};

use trivet_model::image::{ImageState, ImageStatus};
use trivet_model::secret::without_url_credentials;
use trivet_model::{
    AgentAuthentication, AgentCaller, BoxFault, LinkMode, MacAddr, Node, NodeId, NoteKind, Now,
    OrderRefusal,
};
use trivet_node::NodeEvent;

use crate::Rack;
use crate::lan::advertised_addresses::host;

/// Settings for the addresses of agents.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AgentAddresses {
    /// Every address is accepted, as tests and demonstrations need where agents run on
    /// loopback or behind address translation.
    pub any: bool,
    /// A node without a lease from this box is refused.
    pub require_lease: bool,
    /// Networks of BMCs, as address and length of the prefix: no agent is called there.
    pub bmc_networks: Vec<(Ipv4Addr, u8)>,
}

const NOT_LEASED: &str = "it calls from another address than the one that this box leased to the \
                          node; only the node's own machine may look it up";

const LEASED_TO_OTHER: &str = "this box leased its address to an interface that is not a port of \
                               this node; create a port for that interface if it is the node's";

const IN_OWN_NETWORK: &str = "its address is in a network whose addresses this box leases, and was \
                              not leased to this node; let the agent use DHCP";

const NO_LEASE: &str = "this box leases the addresses in all its networks and leased none to the \
                        node; let the agent use DHCP";

const LEASE_REQUIRED: &str = "this box leased no address to the node, and the settings say \
                              agent.address_check = \"strict\"";

const NO_MAC_OF_NODE: &str = "its lookup names no hardware address of this node";

const OTHER_CALLER: &str = "it calls from another address than the one that received the token";

const CALLBACK_ELSEWHERE: &str = "callback_url is not at the address the agent calls from";

const CALLBACK_AT_BMC: &str = "callback_url is at the address of a BMC, or in one of \
                               hardware.bmc_networks";

impl Rack {
    /// Whether the agent of this node may call from this address.
    pub(crate) fn check_caller(
        &self,
        node: &Node,
        from: IpAddr,
    ) -> Result<AgentAuthentication, &'static str> {
        let from = from.to_canonical();
        let rules = &self.settings.agent_addresses;
        let leased = self.leased_to(node.id);
        if let IpAddr::V4(from) = from
            && leased.contains(&from)
        {
            return Ok(AgentAuthentication::Lease);
        }
        if rules.any {
            return Ok(AgentAuthentication::Weak);
        }
        if let IpAddr::V4(from) = from
            && self.records.holder(from).is_some()
        {
            return Err(LEASED_TO_OTHER);
        }
        if !leased.is_empty() {
            return Err(NOT_LEASED);
        }
        if self.leases_in_network_of(from) {
            return Err(IN_OWN_NETWORK);
        }
        if self.leases_everywhere() {
            return Err(NO_LEASE);
        }
        if rules.require_lease {
            return Err(LEASE_REQUIRED);
        }
        Ok(AgentAuthentication::Weak)
    }

    /// The addresses that this box has leased to the node's ports.
    pub(crate) fn leased_to(&self, id: NodeId) -> Vec<Ipv4Addr> {
        let view = self.records.view.nodes.get(&id);
        let ports = view.into_iter().flat_map(|view| &view.ports);
        let ports = ports.filter_map(|port| self.records.view.ports.get(port));
        let leases = ports.filter_map(|port| self.records.lease(port.address));
        leases.map(|lease| lease.address).collect()
    }

    fn leases_in_network_of(&self, address: IpAddr) -> bool {
        let subnets = self.settings.dhcp.iter().flat_map(|dhcp| &dhcp.subnets);
        match address {
            IpAddr::V4(address) => subnets.into_iter().any(|subnet| subnet.contains(address)),
            // The networks whose addresses this box leases are IPv4 only.
            IpAddr::V6(_) => false,
        }
    }

    /// Whether this box leases addresses on every link: then no agent has one from another
    /// server.
    fn leases_everywhere(&self) -> bool {
        let Some(dhcp) = &self.settings.dhcp else {
            return false;
        };
        let gives = |mode| matches!(mode, LinkMode::Server | LinkMode::Reservations);
        !dhcp.links.is_empty() && dhcp.links.iter().all(|link| gives(link.mode))
    }

    /// Whether a lookup of this node's agent is accepted; otherwise the reply is "not found".
    pub(crate) fn check_lookup(
        &mut self,
        now: Now,
        node: &Node,
        addresses: &[MacAddr],
        from: IpAddr,
    ) -> Result<AgentAuthentication, OrderRefusal> {
        let own = |mac: &MacAddr| self.records.node_of_mac(*mac) == Some(node.id);
        let proof = match self.check_caller(node, from) {
            // A UUID is not secret: the web page, logs and kernel command lines contain it.
            Ok(AgentAuthentication::Lease) if !addresses.iter().any(own) => Err(NO_MAC_OF_NODE),
            other => other,
        };
        if proof == Err(NO_MAC_OF_NODE) {
            self.note_lookup_unmatched(now, node.id, from, (addresses, 0));
        }
        let proof = proof.map_err(|why| self.lookup_refused(now, node.id, from, why))?;
        self.check_contested(now, node, from, proof)?;
        Ok(proof)
    }

    /// Inspection data are accepted from the same addresses as a lookup.
    pub(crate) fn check_inspection_caller(
        &mut self,
        now: Now,
        node: &Node,
        from: IpAddr,
    ) -> Result<AgentAuthentication, OrderRefusal> {
        let proof = self.check_caller(node, from);
        let proof = proof.map_err(|why| self.lookup_refused(now, node.id, from, why))?;
        self.check_contested(now, node, from, proof)?;
        Ok(proof)
    }

    fn lookup_refused(
        &mut self,
        now: Now,
        id: NodeId,
        from: IpAddr,
        why: &'static str,
    ) -> OrderRefusal {
        self.note_refused(now, id, from, why);
        Self::nothing_found()
    }

    /// A second caller from another address: one of the two is not the node's machine, so both
    /// are refused.
    fn check_contested(
        &mut self,
        now: Now,
        node: &Node,
        second: IpAddr,
        proof: AgentAuthentication,
    ) -> Result<(), OrderRefusal> {
        let first = node.agent.as_ref().and(node.agent_address());
        let second = second.to_canonical();
        let Some(first) = first.filter(|first| *first != second) else {
            return Ok(());
        };
        // A machine may have several ports with a lease each.
        let both_leased = proof == AgentAuthentication::Lease && !node.is_weakly_authenticated();
        if both_leased || self.settings.agent_addresses.any {
            return Ok(());
        }
        let fault = BoxFault::AgentContested {
            node: node.label(),
            first,
            second,
        };
        let why = fault.to_string();
        self.fault_seen(now, fault);
        self.note_refused(now, node.id, second, OTHER_CALLER);
        self.events
            .push_back((node.id, NodeEvent::AgentContested { why }));
        Err(Self::nothing_found())
    }

    /// Whether a heartbeat may come from this address. Its token was compared before.
    pub(crate) fn check_heartbeat(&self, node: &Node, from: IpAddr) -> Result<(), &'static str> {
        if self.settings.agent_addresses.any {
            return Ok(());
        }
        let first = node.agent_address();
        match self.check_caller(node, from) {
            // A machine may have several ports with a lease each.
            Ok(AgentAuthentication::Lease) if !node.is_weakly_authenticated() => Ok(()),
            _ if first.is_some_and(|first| first != from.to_canonical()) => Err(OTHER_CALLER),
            // An agent that does not renew its lease keeps its previous address.
            Err(_) if first.is_some() && self.leased_to(node.id).is_empty() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Whether an agent that called from this address may be called back at this URL.
    pub(crate) fn check_callback(&self, url: &str, from: IpAddr) -> Result<(), &'static str> {
        let rules = &self.settings.agent_addresses;
        if rules.any {
            return Ok(());
        }
        let to = host(url).ok_or(CALLBACK_ELSEWHERE)?;
        if to != from.to_canonical() {
            return Err(CALLBACK_ELSEWHERE);
        }
        let in_networks = rules
            .bmc_networks
            .iter()
            .any(|(network, prefix)| is_within(to, *network, *prefix));
        if in_networks || self.bmcs.is_bmc(to) {
            return Err(CALLBACK_AT_BMC);
        }
        Ok(())
    }

    /// Stores in the record which address received the token, and how it was authenticated.
    pub(crate) fn record_caller(
        &mut self,
        now: Now,
        node: &mut Node,
        from: IpAddr,
        proof: AgentAuthentication,
    ) {
        let from = from.to_canonical();
        node.agent_caller = Some(AgentCaller {
            address: from,
            authentication: proof,
        });
        if proof == AgentAuthentication::Weak {
            self.note(
                now,
                Some(node.id),
                NoteKind::AgentWeaklyAuthenticated { from },
            );
        }
    }

    /// Whether this address is the node's own: leased to it by this box, or the one that
    /// received its token.
    pub(crate) fn is_of_node(&self, node: &Node, address: IpAddr) -> bool {
        if self.settings.agent_addresses.any {
            return true;
        }
        let address = address.to_canonical();
        let received = node.agent.as_ref().and(node.agent_address());
        let leased = |address| self.leased_to(node.id).contains(&address);
        received == Some(address) || matches!(address, IpAddr::V4(address) if leased(address))
    }

    /// Whether this box has received a frame from this hardware address.
    pub(crate) fn was_seen(&self, mac: MacAddr) -> bool {
        self.records.lease(mac).is_some() || self.records.view.unknown_machines.contains_key(&mac)
    }
}

/// The state of an image without the credentials that its source URLs may contain.
pub(crate) fn without_credentials(mut news: ImageStatus) -> ImageStatus {
    news.state = match news.state {
        ImageState::Failed(why) => ImageState::Failed(redacted(why)),
        ImageState::Wrong(why) => ImageState::Wrong(redacted(why)),
        other => other,
    };
    news
}

/// A sentence without the credentials of the URLs in it.
pub(crate) fn redacted(sentence: String) -> String {
    without_url_credentials(&sentence).unwrap_or(sentence)
}

/// Whether the network contains this address.
fn is_within(address: IpAddr, network: Ipv4Addr, prefix: u8) -> bool {
    let IpAddr::V4(address) = address else {
        return false;
    };
    let shift = 32 - u32::from(prefix.min(32));
    let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
    address.to_bits() & mask == network.to_bits() & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_is_an_address() {
        let v4 = Some(IpAddr::from([192, 0, 2, 7]));
        assert_eq!(host("http://192.0.2.7:9999"), v4);
        assert_eq!(host("https://192.0.2.7/agent/x"), v4);
        assert_eq!(host("https://[::ffff:192.0.2.7]:9999/"), v4);
        assert_eq!(
            host("https://[2001:db8::7]:9999"),
            "2001:db8::7".parse().ok()
        );
        for url in [
            "http://agent:9999",
            "192.0.2.7",
            "http://[2001:db8::7",
            "http://",
        ] {
            assert_eq!(host(url), None, "{url}");
        }
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        let within = |address: &str, network: &str, prefix| {
            is_within(address.parse().unwrap(), network.parse().unwrap(), prefix)
        };
        assert!(within("10.1.2.3", "10.1.2.0", 24));
        assert!(!within("10.1.3.3", "10.1.2.0", 24));
        assert!(within("10.1.3.3", "10.1.2.0", 0));
        assert!(within("10.1.2.0", "10.1.2.0", 32));
        assert!(!within("2001:db8::7", "0.0.0.0", 0));
    }
}
