//! Inspection of nodes without ports: the machine is found by the address of its BMC, which it
//! reads from its own hardware.
//!
//! Clients register a node with its BMC alone and let the inspection create the ports. Until then
//! the box does not know which hardware addresses are the node's, so it gives the agent to every
//! machine without a node that boots from the network meanwhile; only the one whose inventory names
//! the node's BMC becomes the node.

use std::net::IpAddr;

use trivet_agent_inventory::InspectionResult;
use trivet_drivers::bmc_addresses;
use trivet_model::index::{IndexRange, NodeKey};
use trivet_model::{
    AgentAuthentication, BootPlan, JobKind, Node, NodeId, Now, OrderRefusal, ProvisionState,
};

use crate::Rack;
use crate::boot::plan::agent;
use crate::lan::advertised_addresses::AdvertisedUrls;

const SEVERAL: &str = "its inventory names a BMC that several nodes without ports have; create a \
                       port for one interface of each machine";

impl Rack {
    /// The nodes without ports whose machine is being inspected.
    fn inspected_without_ports(&self) -> impl Iterator<Item = &Node> {
        // By the index of states, because every unknown machine that boots asks for these.
        let states = [ProvisionState::Inspecting, ProvisionState::InspectWait];
        let views = states.into_iter().flat_map(move |state| {
            let range = IndexRange::Value(Some(state.as_str()));
            let nodes = &self.records.view.nodes;
            nodes.walk(NodeKey::ProvisionState, range, None, false)
        });
        let nodes = views.filter(|view| view.ports.is_empty());
        let nodes = nodes.map(|view| view.node.as_ref());
        nodes.filter(|node| {
            let job = node.job.as_ref();
            let inspects = job.is_some_and(|job| job.kind == JobKind::Inspect);
            inspects && trivet_node::boots_agent(node) && !bmc_addresses(node).is_empty()
        })
    }

    /// What a machine without a node boots: the agent while a node without ports is inspected,
    /// which may be this machine's, else its own disk. If there are several such nodes, it boots
    /// the box's own agent.
    pub(crate) fn boot_plan_of_unknown(&self, urls: &AdvertisedUrls) -> BootPlan {
        let mut nodes = self.inspected_without_ports();
        let Some(first) = nodes.next() else {
            return BootPlan::Disk;
        };
        if nodes.next().is_none() {
            return self.boot_plan(first, urls);
        }
        let mut any = first.clone();
        for key in crate::boot::plan::AGENT_FILES {
            any.driver_info.remove(key);
        }
        any.driver_info.remove("kernel_append_params");
        agent(&self.settings, urls, &any)
    }

    /// The one inspected node without ports whose BMC the inventory names.
    pub(crate) fn owner_by_bmc(
        &mut self,
        now: Now,
        from: IpAddr,
        findings: &InspectionResult,
    ) -> Option<NodeId> {
        let named = &findings.bmc_addresses;
        let has = |node: &&Node| bmc_addresses(node).iter().any(|one| named.contains(one));
        let owners = self.inspected_without_ports().filter(has);
        let owners: Vec<NodeId> = owners.map(|node| node.id).collect();
        match owners[..] {
            [only] => Some(only),
            _ => {
                for id in owners {
                    self.note_refused(now, id, from, SEVERAL);
                }
                None
            }
        }
    }

    /// Whether a machine that was found by its BMC may send inspection data from this address: one
    /// that the box leased to an interface in the inventory, or one that any agent may call from.
    /// What the inventory says is not proven, so it is weakly authenticated.
    pub(crate) fn check_found_by_bmc(
        &mut self,
        now: Now,
        node: &Node,
        from: IpAddr,
        findings: &InspectionResult,
    ) -> Result<AgentAuthentication, OrderRefusal> {
        let holder = match from.to_canonical() {
            IpAddr::V4(address) => self.records.holder(address),
            IpAddr::V6(_) => None,
        };
        if holder.is_some_and(|mac| findings.macs.contains(&mac)) {
            return Ok(AgentAuthentication::Weak);
        }
        self.check_inspection_caller(now, node, from)
    }
}
