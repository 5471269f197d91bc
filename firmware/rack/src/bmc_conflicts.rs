//! Nodes that name the same BMC: each would receive the replies to the other, so only one of
//! them sends requests to it. That is the node that was enrolled first, before a restart and
//! after it; the others have a fault until one of the records is corrected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use trivet_bmc_ipmi::ipmi_address;
use trivet_bmc_redfish::RedfishTarget;
use trivet_drivers::{management_interface, power_interface, vendor_interface};
use trivet_model::interface::{ManagementInterface, PowerInterface, VendorInterface};
use trivet_model::{BoxFault, Node, NodeId, Now, PowerError};

use crate::Rack;

/// Which nodes name which BMC.
#[derive(Default)]
pub(crate) struct BmcAddressConflicts {
    /// Nodes by age: the oldest one uses the BMC.
    by_address: BTreeMap<String, BTreeSet<(u64, NodeId)>>,
    address_of: BTreeMap<NodeId, (String, u64)>,
    /// The faults of the nodes that may not use their BMC.
    faults: BTreeMap<NodeId, BoxFault>,
}

impl BmcAddressConflicts {
    /// Whether an older node names the same BMC as this node.
    pub(crate) fn is_conflicting(&self, id: NodeId) -> bool {
        let named = self.address_of.get(&id);
        named.is_some_and(|(address, _)| self.holder(address) != Some(id))
    }

    /// Whether a node names a BMC at this address.
    pub(crate) fn is_bmc(&self, address: IpAddr) -> bool {
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let begins = |start: String| {
            let next = self.by_address.range(start.clone()..).next();
            next.is_some_and(|(named, _)| named.starts_with(&start))
        };
        let exists = |named: &String| self.by_address.contains_key(named);
        begins(format!("{host}:"))
            || ["http", "https"].iter().any(|scheme| {
                let url = format!("{scheme}://{host}");
                exists(&url) || begins(format!("{url}/")) || begins(format!("{url}:"))
            })
    }

    fn holder(&self, address: &str) -> Option<NodeId> {
        let named = self.by_address.get(address)?;
        named.first().map(|(_, id)| *id)
    }

    fn conflicting_nodes(&self, address: &str) -> Vec<NodeId> {
        let named = self.by_address.get(address).into_iter().flatten();
        named.skip(1).map(|(_, id)| *id).collect()
    }

    /// Updates the index with the present record of a node; returns the addresses where
    /// something changed.
    fn update(&mut self, id: NodeId, node: Option<&Node>) -> Vec<String> {
        let address = node.and_then(bmc_identity).map(|address| {
            let serial = node.map_or(0, |node| node.serial);
            (address, serial)
        });
        let old = self.address_of.get(&id).cloned();
        if old == address {
            return Vec::new();
        }
        if let Some((address, serial)) = &old {
            self.address_of.remove(&id);
            if let Some(named) = self.by_address.get_mut(address) {
                named.remove(&(*serial, id));
                if named.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
        if let Some((address, serial)) = &address {
            self.address_of.insert(id, (address.clone(), *serial));
            let named = self.by_address.entry(address.clone()).or_default();
            named.insert((*serial, id));
        }
        let touched = old.into_iter().chain(address);
        touched.map(|(address, _)| address).collect()
    }
}

/// The BMC that a node names, as text. For Redfish it includes the system, because the systems
/// of one chassis share a BMC.
fn bmc_identity(node: &Node) -> Option<String> {
    let power = power_interface(node);
    let management = management_interface(node);
    let vendor = vendor_interface(node);
    if power == Some(PowerInterface::Ipmitool)
        || management == Some(ManagementInterface::Ipmitool)
        || vendor == Some(VendorInterface::Ipmitool)
    {
        let address = ipmi_address(&node.driver_info).ok()?;
        return Some(address.to_string());
    }
    if power == Some(PowerInterface::Redfish)
        || management == Some(ManagementInterface::Redfish)
        || vendor == Some(VendorInterface::Redfish)
    {
        let target = RedfishTarget::of(&node.driver_info).ok()?;
        return Some(format!(
            "{}{}",
            target.address,
            target.system.unwrap_or_default()
        ));
    }
    None
}

impl Rack {
    /// Why no request is sent to the BMC of this node: an older node names the same one. None
    /// where the BMC is this node's own.
    pub(crate) fn shared_bmc(&self, id: NodeId) -> Option<PowerError> {
        let (address, _) = self.bmc_conflicts.address_of.get(&id)?;
        let holder = self
            .bmc_conflicts
            .holder(address)
            .filter(|holder| *holder != id)?;
        let other = self.records.node(holder);
        let other = other.map_or_else(|| holder.to_string(), |node| node.name_and_uuid());
        Some(PowerError::SharedBmc { other })
    }

    /// Checks the nodes whose records changed, and raises or clears their faults.
    pub(crate) fn update_bmc_conflicts(&mut self, now: Now) {
        let changed = std::mem::take(&mut self.records.bmcs_changed);
        if changed.is_empty() {
            return;
        }
        let mut touched = BTreeSet::new();
        for id in changed {
            let node = self.records.node(id).cloned();
            touched.extend(self.bmc_conflicts.update(id, node.as_deref()));
            // Its label may have changed.
            let named = self.bmc_conflicts.address_of.get(&id);
            touched.extend(named.map(|(address, _)| address.clone()));
        }
        let free = self.bmc_conflicts.faults.keys().copied();
        let free: Vec<NodeId> = free
            .filter(|id| !self.bmc_conflicts.is_conflicting(*id))
            .collect();
        for id in free {
            if let Some(fault) = self.bmc_conflicts.faults.remove(&id) {
                self.fault_gone(now, &fault);
            }
        }
        for address in touched {
            self.update_conflict_faults(now, &address);
        }
    }

    fn update_conflict_faults(&mut self, now: Now, address: &str) {
        let Some(holder) = self.bmc_conflicts.holder(address) else {
            return;
        };
        let label = |rack: &Self, id| {
            let node = rack.records.node(id);
            node.map_or_else(String::new, |node| node.label())
        };
        for id in self.bmc_conflicts.conflicting_nodes(address) {
            self.ipmi_transport.remove(id, &mut *self.entropy);
            self.redfish_transport.remove(id);
            let fault = BoxFault::BmcShared {
                node: label(self, id),
                other: label(self, holder),
                address: address.to_string(),
            };
            let old = self.bmc_conflicts.faults.insert(id, fault.clone());
            if let Some(old) = old.filter(|old| *old != fault) {
                self.fault_gone(now, &old);
            }
            self.fault(now, fault);
        }
    }
}
