//! Allocations: which node an allocation gets, and when that node is free again.
//!
//! A node is chosen in the batch that stores the allocation, so there is no race: of two
//! allocations that want the last node, the one whose order comes first has it. The choice
//! follows from the records alone: the node that has the allocation's name, as Ironic prefers
//! it, or else the oldest that matches.
//!
//! An allocation names its node, and the node names its allocation and has it as its instance.
//! What removes the instance (undeploying, a patch, deleting the node) removes the allocation
//! too, see `RecordIndex::put_node`.

use serde_json::{Value, json};
use trivet_model::index::{IndexRange, NodeKey};
use trivet_model::{Node, NodeId, Now, OrderRefusal, ProvisionState, RefusalKind, Resource};

use crate::Rack;
use crate::requests::orders::conflict;

impl Rack {
    /// Chooses the node of a new allocation, or stores in the allocation why there is none. An
    /// order that names a node only records the existing state: that node's instance.
    pub(crate) fn allocate(
        &mut self,
        now: Now,
        allocation: &mut Resource,
    ) -> Result<(), OrderRefusal> {
        let id = allocation.id.to_string();
        let holder = self.records.view.instances.get(&id).copied();
        if let Some(holder) = holder
            && allocation.node != Some(holder)
        {
            return Err(conflict(format!(
                "Instance {id} is already associated with node {holder}."
            )));
        }
        if let Some(id) = allocation.node {
            let node = self.require_node(id)?;
            check_backfill(allocation, &node)?;
            self.assign_node(now, allocation, node);
            return Ok(());
        }
        match self.choose(allocation) {
            Ok(node) => self.assign_node(now, allocation, node),
            Err(why) => {
                let why = failed(allocation, &why);
                allocation.fields.insert("state".into(), json!("error"));
                allocation.fields.insert("last_error".into(), json!(why));
            }
        }
        Ok(())
    }

    fn assign_node(&mut self, now: Now, allocation: &mut Resource, mut node: Node) {
        let id = allocation.id.to_string();
        allocation.node = Some(node.id);
        allocation.fields.insert("state".into(), json!("active"));
        let traits = allocation.fields.get("traits").cloned();
        let traits = traits.unwrap_or_else(|| json!([]));
        node.instance_info.insert("traits".into(), traits);
        node.instance_uuid = Some(id);
        node.attributes.allocation_uuid = Some(allocation.id);
        self.records.put_node(now, node);
    }

    /// The node for an allocation, or why there is none.
    fn choose(&self, allocation: &Resource) -> Result<Node, String> {
        let class = allocation.text("resource_class").unwrap_or_default();
        let candidates = list(allocation.fields.get("candidate_nodes"));
        let owner = allocation.text("owner");
        let (nodes, span) = (&self.records.view.nodes, IndexRange::Value(Some(class)));
        let nodes = nodes.walk(NodeKey::ResourceClass, span, None, false);
        let free = nodes.map(|view| &*view.node).filter(|node| {
            is_free(node)
                && owner.is_none_or(|owner| is_of(node, owner))
                && (candidates.is_empty() || is_among(&candidates, node.id))
        });
        let free: Vec<&Node> = free.collect();
        if free.is_empty() && candidates.is_empty() {
            return Err(format!(
                "no available nodes match the resource class {class}"
            ));
        }
        if free.is_empty() {
            return Err(format!(
                "none of the requested nodes are available and match the resource class {class}"
            ));
        }
        let wanted = list(allocation.fields.get("traits"));
        let fitting = free.into_iter().filter(|node| has_traits(node, &wanted));
        let best = fitting.min_by_key(|node| {
            let namesake = node.name.is_some() && node.name == allocation.name;
            (!namesake, node.serial)
        });
        best.cloned().ok_or_else(|| {
            let wanted = wanted.join(", ");
            format!("no suitable nodes have the requested traits {wanted}")
        })
    }

    /// Frees an allocation's node, unless it is in use.
    pub(crate) fn deallocate(
        &mut self,
        now: Now,
        allocation: &Resource,
    ) -> Result<(), OrderRefusal> {
        let Some(mut node) = allocation.node.and_then(|id| self.require_node(id).ok()) else {
            return Ok(());
        };
        let (id, state) = (allocation.id, node.provision_state);
        let why = if node.maintenance {
            None
        } else if node.target_provision_state.is_some() && !updatable(state) {
            Some(format!(
                "is in state {state} where updates are not allowed (and maintenance mode is off)"
            ))
        } else if state == ProvisionState::Active {
            Some("is active (and maintenance mode is off)".to_owned())
        } else {
            None
        };
        if let Some(why) = why {
            return Err(conflict(format!(
                "Cannot remove allocation {id} for node {}, because the node {why}",
                node.id
            )));
        }
        node.instance_uuid = None;
        // This removes the allocation's record together with the instance.
        self.records.put_node(now, node);
        Ok(())
    }
}

/// A patch may remove an instance and its allocation only from a node that is not in use.
pub(crate) fn check_change(old: &Node, new: &Node) -> Result<(), OrderRefusal> {
    use ProvisionState as S;
    let loses = old.attributes.allocation_uuid.is_some() && new.instance_uuid.is_none();
    let state = old.provision_state;
    let rests = matches!(
        state,
        S::Enroll | S::Inspecting | S::InspectWait | S::Manageable | S::Available
    );
    if !loses || old.maintenance || rests {
        return Ok(());
    }
    Err(conflict(format!(
        "Node {} with an allocation can not have instance_uuid removed unless it is in one of \
         allowed (enroll, inspecting, inspect wait, manageable, available) states or in \
         maintenance mode. Current state is '{state}'.",
        old.id
    )))
}

/// Backfilling records what is already true, and nothing else.
fn check_backfill(allocation: &Resource, node: &Node) -> Result<(), OrderRefusal> {
    let (id, node_id) = (allocation.id.to_string(), node.id);
    if let Some(instance) = &node.instance_uuid
        && (*instance != id || node.attributes.allocation_uuid.is_some())
    {
        return Err(conflict(format!(
            "Node {node_id} is associated with instance {instance}."
        )));
    }
    let mut wrong = Vec::new();
    if node.provision_state != ProvisionState::Active {
        wrong.push(format!(
            "Node must be in the \"active\" state, but the current state is \"{}\"",
            node.provision_state
        ));
    }
    if allocation.text("resource_class") != node.resource_class.as_deref() {
        wrong.push(format!(
            "Resource class {} does not match the requested resource class {}",
            node.resource_class.as_deref().unwrap_or("None"),
            allocation.text("resource_class").unwrap_or_default()
        ));
    }
    let wanted = list(allocation.fields.get("traits"));
    if !has_traits(node, &wanted) {
        let (has, wanted) = (&node.attributes.traits, wanted.join(", "));
        wrong.push(format!(
            "List of traits {} does not match the requested traits {wanted}",
            has.join(", ")
        ));
    }
    let candidates = list(allocation.fields.get("candidate_nodes"));
    if !candidates.is_empty() && !is_among(&candidates, node_id) {
        wrong.push(format!(
            "Candidate nodes must be empty or contain the target node, but got {}",
            candidates.join(", ")
        ));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let why = format!(
        "Cannot backfill an allocation for node {node_id}: {}",
        wrong.join("; ")
    );
    let sentence = failed(allocation, &why);
    Err(OrderRefusal::new(RefusalKind::Invalid, sentence))
}

fn failed(allocation: &Resource, why: &str) -> String {
    format!("Failed to process allocation {}: {why}.", allocation.id)
}

fn is_free(node: &Node) -> bool {
    node.provision_state == ProvisionState::Available
        && !node.maintenance
        && node.instance_uuid.is_none()
        && node.power_state.is_some()
        && !node.attributes.retired
        && !node.attributes.protected
}

/// Whether the project owns the node or leases it.
fn is_of(node: &Node, project: &str) -> bool {
    let is = |name: &Option<String>| name.as_deref() == Some(project);
    is(&node.attributes.owner) || is(&node.attributes.lessee)
}

fn is_among(candidates: &[&str], node: NodeId) -> bool {
    candidates.iter().any(|one| one.parse() == Ok(node))
}

fn has_traits(node: &Node, wanted: &[&str]) -> bool {
    let has = &node.attributes.traits;
    wanted
        .iter()
        .all(|one| has.iter().any(|other| other == one))
}

fn list(value: Option<&Value>) -> Vec<&str> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

/// Transient states in which Ironic allows a node to be updated.
fn updatable(state: ProvisionState) -> bool {
    use ProvisionState as S;
    state.is_failure()
        || matches!(
            state,
            S::Inspecting | S::InspectWait | S::Verifying | S::Error | S::ServiceHold
        )
}
