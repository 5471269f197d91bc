//! Nodes that name the same BMC: each would receive the replies to the other, so only one of
//! them sends requests to it. That is the node that was enrolled first, before a restart and
//! after it; the others have a fault until one of the records is corrected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use trivet_model::{BoxFault, NodeId};

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

    /// The node that uses this BMC.
    pub(crate) fn holder(&self, address: &str) -> Option<NodeId> {
        let named = self.by_address.get(address)?;
        named.first().map(|(_, id)| *id)
    }

    /// The node that uses this BMC, if it is younger than a record of this age.
    pub(crate) fn younger_holder(&self, address: &str, serial: u64) -> Option<NodeId> {
        let (age, holder) = self.by_address.get(address)?.first()?;
        (*age > serial).then_some(*holder)
    }

    /// The nodes that name this BMC and may not use it.
    pub(crate) fn conflicting_nodes(&self, address: &str) -> Vec<NodeId> {
        let named = self.by_address.get(address).into_iter().flatten();
        named.skip(1).map(|(_, id)| *id).collect()
    }

    /// The BMC that this node names.
    pub(crate) fn bmc_of(&self, id: NodeId) -> Option<&str> {
        self.address_of.get(&id).map(|(bmc, _)| bmc.as_str())
    }

    /// The older node that names the same BMC, if there is one.
    pub(crate) fn older(&self, id: NodeId) -> Option<NodeId> {
        let holder = self.holder(self.bmc_of(id)?)?;
        (holder != id).then_some(holder)
    }

    /// Stores which BMC the present record of a node names, and the age of the record; returns
    /// the BMCs where something changed.
    pub(crate) fn update(&mut self, id: NodeId, address: Option<(String, u64)>) -> Vec<String> {
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

    /// Takes the faults of the nodes that may use their BMC again.
    pub(crate) fn take_ended_faults(&mut self) -> Vec<BoxFault> {
        let ended = self.faults.keys().copied();
        let ended: Vec<NodeId> = ended.filter(|id| !self.is_conflicting(*id)).collect();
        let faults = ended.into_iter();
        faults.filter_map(|id| self.faults.remove(&id)).collect()
    }

    /// Stores the fault of a node that may not use its BMC; returns the former fault, if it was
    /// another one.
    pub(crate) fn set_fault(&mut self, id: NodeId, fault: BoxFault) -> Option<BoxFault> {
        let old = self.faults.insert(id, fault.clone());
        old.filter(|old| *old != fault)
    }
}

#[cfg(test)]
mod tests {
    use trivet_model::SeededRandom;

    use super::*;

    fn id(number: u64) -> NodeId {
        NodeId::random(&mut SeededRandom::new(number))
    }

    fn named(bmc: &str, serial: u64) -> (String, u64) {
        (bmc.to_owned(), serial)
    }

    #[test]
    fn the_oldest_node_uses_the_bmc() {
        let mut conflicts = BmcAddressConflicts::default();
        let bmc = "192.0.2.1:623";
        assert_eq!(conflicts.update(id(1), Some(named(bmc, 7))), [bmc]);
        assert_eq!(conflicts.update(id(2), Some(named(bmc, 3))), [bmc]);
        assert!(conflicts.is_conflicting(id(1)) && !conflicts.is_conflicting(id(2)));
        assert_eq!(conflicts.older(id(1)), Some(id(2)));
        assert_eq!(conflicts.older(id(2)), None);
        assert_eq!(conflicts.younger_holder(bmc, 2), Some(id(2)));
        assert_eq!(conflicts.younger_holder(bmc, 4), None);
        assert_eq!(conflicts.holder(bmc), Some(id(2)));
        assert_eq!(conflicts.conflicting_nodes(bmc), [id(1)]);
        assert!(conflicts.update(id(1), Some(named(bmc, 7))).is_empty());
        // The older one is corrected.
        let changed = conflicts.update(id(2), Some(named("192.0.2.2:623", 3)));
        assert_eq!(changed, [bmc, "192.0.2.2:623"]);
        assert!(!conflicts.is_conflicting(id(1)));
        assert_eq!(conflicts.update(id(1), None), [bmc]);
        assert_eq!(
            (conflicts.bmc_of(id(1)), conflicts.holder(bmc)),
            (None, None)
        );
    }

    #[test]
    fn a_fault_ends_with_its_conflict() {
        let mut conflicts = BmcAddressConflicts::default();
        conflicts.update(id(1), Some(named("a", 1)));
        conflicts.update(id(2), Some(named("a", 2)));
        let fault = |other: &str| BoxFault::BmcShared {
            node: "two".to_owned(),
            other: other.to_owned(),
            address: "a".to_owned(),
        };
        assert_eq!(conflicts.set_fault(id(2), fault("one")), None);
        assert_eq!(conflicts.set_fault(id(2), fault("one")), None);
        assert_eq!(conflicts.set_fault(id(2), fault("1")), Some(fault("one")));
        assert!(conflicts.take_ended_faults().is_empty());
        conflicts.update(id(1), None);
        assert_eq!(conflicts.take_ended_faults(), [fault("1")]);
    }

    #[test]
    fn an_address_is_one_of_a_bmc_in_every_notation() {
        let mut conflicts = BmcAddressConflicts::default();
        for (number, bmc) in [
            "192.0.2.1:623",
            "https://192.0.2.2",
            "http://192.0.2.3:8000",
            "https://192.0.2.4/redfish/v1/Systems/1",
            "[2001:db8::5]:623",
            "https://[2001:db8::6]",
        ]
        .into_iter()
        .enumerate()
        {
            let number = number as u64;
            conflicts.update(id(number), Some(named(bmc, number)));
        }
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"] {
            assert!(conflicts.is_bmc(address.parse().unwrap()), "{address}");
        }
        for address in ["2001:db8::5", "2001:db8::6"] {
            assert!(conflicts.is_bmc(address.parse().unwrap()), "{address}");
        }
        for address in ["192.0.2.5", "192.0.2.11", "2001:db8::7"] {
            assert!(!conflicts.is_bmc(address.parse().unwrap()), "{address}");
        }
    }
}
