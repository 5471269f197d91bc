//! Checks references between records: no record refers to a missing one, and no node is in two
//! allocations.

use std::collections::BTreeMap;

use trivet_model::{Node, Port, Resource, ResourceKind};

/// The first violation among these records, if there is one.
pub(crate) fn first_violation<'r>(
    nodes: impl Iterator<Item = &'r Node>,
    ports: impl Iterator<Item = &'r Port>,
    resources: impl Iterator<Item = &'r Resource>,
) -> Option<String> {
    let mut there = BTreeMap::new();
    let nodes: BTreeMap<_, &Node> = nodes.map(|node| (node.id, node)).collect();
    let mut holders = BTreeMap::new();
    for resource in resources {
        there.insert((resource.kind, resource.id), resource);
        let Some(id) = resource.node else { continue };
        let (kind, own) = (resource.kind, resource.id);
        let Some(node) = nodes.get(&id) else {
            return Some(format!("{kind} {own} names node {id}, which is gone"));
        };
        if kind != ResourceKind::Allocation {
            continue;
        }
        if let Some(other) = holders.insert(id, own) {
            return Some(format!("{other} and {own} both have node {id}"));
        }
        let instance = node.instance_uuid.as_deref();
        if node.attributes.allocation_uuid != Some(own) || instance != Some(&own.to_string()) {
            return Some(format!(
                "allocation {own} has node {id}, which has {instance:?}"
            ));
        }
    }
    for node in nodes.values() {
        let id = node.id;
        if let Some(own) = node.attributes.allocation_uuid {
            let allocation = there.get(&(ResourceKind::Allocation, own));
            if allocation.and_then(|allocation| allocation.node) != Some(id) {
                return Some(format!("node {id} names allocation {own}, which does not"));
            }
        }
        if let Some(own) = node.attributes.chassis_uuid
            && !there.contains_key(&(ResourceKind::Chassis, own))
        {
            return Some(format!("node {id} names chassis {own}, which is gone"));
        }
    }
    for port in ports {
        if let Some(own) = port.attributes.portgroup_uuid
            && !there.contains_key(&(ResourceKind::PortGroup, own))
        {
            return Some(format!("port {} names a portgroup that is gone", port.id));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::attributes::NodeAttributes;
    use trivet_model::{NodeId, ResourceId, SeededRandom, UnixMs};

    fn node(number: u64) -> Node {
        let id = NodeId::random(&mut SeededRandom::new(number));
        Node::new(id, "ipmi", UnixMs(0))
    }

    fn allocation(number: u64, node: &mut Node) -> Resource {
        let id = ResourceId::random(&mut SeededRandom::new(100 + number));
        let mut allocation = Resource::new(id, ResourceKind::Allocation, UnixMs(0));
        allocation.node = Some(node.id);
        node.instance_uuid = Some(id.to_string());
        node.attributes.allocation_uuid = Some(id);
        allocation
    }

    fn violation(nodes: &[&Node], resources: &[&Resource]) -> Option<String> {
        first_violation(
            nodes.iter().copied(),
            std::iter::empty(),
            resources.iter().copied(),
        )
    }

    #[test]
    fn detects_missing_records_and_nodes_with_two_allocations() {
        let mut one = node(1);
        let first = allocation(1, &mut one);
        assert_eq!(violation(&[&one], &[&first]), None);
        assert!(violation(&[], &[&first]).is_some());
        assert!(violation(&[&one], &[]).is_some());
        let second = allocation(2, &mut one);
        assert!(violation(&[&one], &[&first, &second]).is_some());
        assert!(violation(&[&one], &[&first]).is_some());
        one.attributes = NodeAttributes::default();
        assert!(violation(&[&one], &[&second]).is_some());
        one.attributes.chassis_uuid = Some(second.id);
        assert!(violation(&[&one], &[]).is_some());
    }
}
