//! Nodes beyond their records: when each is due next, allocations and deploy templates.

pub(crate) mod allocations;
pub(crate) mod templates;

use std::collections::{BTreeMap, BTreeSet};

use trivet_model::{NodeId, Tick};

/// The timers of jobs, at most one for a node.
#[derive(Default)]
pub(crate) struct NodesPart {
    /// Earliest first.
    wakes: BTreeSet<(Tick, NodeId)>,
    wake_of: BTreeMap<NodeId, Tick>,
}

impl NodesPart {
    /// When the next timer expires.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Sets the timer of a node, in place of any other.
    pub(crate) fn wake_at(&mut self, id: NodeId, at: Tick) {
        self.cancel_wake(id);
        self.wakes.insert((at, id));
        self.wake_of.insert(id, at);
    }

    pub(crate) fn cancel_wake(&mut self, id: NodeId) {
        if let Some(at) = self.wake_of.remove(&id) {
            self.wakes.remove(&(at, id));
        }
    }

    /// Takes a timer that has expired.
    pub(crate) fn take_expired(&mut self, now: Tick) -> Option<NodeId> {
        let &(at, id) = self.wakes.first()?;
        if at > now {
            return None;
        }
        self.cancel_wake(id);
        Some(id)
    }

    /// The node was deleted.
    pub(crate) fn remove_node(&mut self, id: NodeId) {
        let Self { wakes, wake_of } = self;
        if let Some(at) = wake_of.remove(&id) {
            wakes.remove(&(at, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use trivet_model::SeededRandom;

    use super::*;

    #[test]
    fn a_node_has_one_timer() {
        let [one, two] = [1, 2].map(|seed| NodeId::random(&mut SeededRandom::new(seed)));
        let mut nodes = NodesPart::default();
        nodes.wake_at(one, Tick(9));
        nodes.wake_at(two, Tick(7));
        nodes.wake_at(one, Tick(5));
        assert_eq!(nodes.deadline(), Some(Tick(5)));
        assert_eq!(nodes.take_expired(Tick(4)), None);
        assert_eq!(nodes.take_expired(Tick(8)), Some(one));
        assert_eq!(nodes.take_expired(Tick(8)), Some(two));
        assert_eq!(nodes.take_expired(Tick(99)), None);
        nodes.wake_at(one, Tick(5));
        nodes.cancel_wake(one);
        nodes.wake_at(two, Tick(5));
        nodes.remove_node(two);
        assert_eq!(nodes.deadline(), None);
    }
}
