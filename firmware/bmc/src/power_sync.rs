//! Power sync: power states are read at intervals, so that a change at the machine is seen, and
//! so that a BMC that became unreachable is known before it is needed.

use std::collections::{BTreeMap, BTreeSet};

use trivet_model::{BoxFault, Node, NodeId, PowerError, Tick};

/// How many BMCs are read at once for the power sync. Ours: orders do not count.
const AT_ONCE_MAX: usize = 32;

/// One lost reading is not a fault; this many in a row are.
const FAILURES_MIN: u32 = 2;

/// A BMC that does not answer is read half as often after each failure, up to this many times.
const HALVINGS_MAX: u32 = 4;

/// The same for a node that is in maintenance for this reason, which waits for the reply. Ours:
/// four minutes by default; Ironic takes five.
const HALVINGS_FAILED_MAX: u32 = 2;

/// When each node is read.
#[derive(Default)]
pub(crate) struct PowerSyncSchedule {
    due: BTreeSet<(Tick, NodeId)>,
    at: BTreeMap<NodeId, Tick>,
    /// Nodes whose BMC has not replied yet.
    outstanding: BTreeSet<NodeId>,
    /// How often in a row the reading failed, and the fault that was raised for it.
    failed: BTreeMap<NodeId, (u32, Option<BoxFault>)>,
}

impl PowerSyncSchedule {
    /// While too many readings are under way, the next reply triggers the next reading.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        let first = self.due.first().map(|(at, _)| *at);
        first.filter(|_| self.outstanding.len() < AT_ONCE_MAX)
    }

    /// Reads this node at this time.
    pub(crate) fn set(&mut self, id: NodeId, at: Tick) {
        self.unset(id);
        self.due.insert((at, id));
        self.at.insert(id, at);
    }

    /// Reads this node next, if it is read at all.
    pub(crate) fn sync_next(&mut self, now: Tick, id: NodeId) {
        if self.at.contains_key(&id) {
            self.set(id, now);
        }
    }

    fn unset(&mut self, id: NodeId) {
        if let Some(at) = self.at.remove(&id) {
            self.due.remove(&(at, id));
        }
    }

    /// The node was deleted. Returns its fault.
    pub(crate) fn remove(&mut self, id: NodeId) -> Option<BoxFault> {
        self.unset(id);
        self.outstanding.remove(&id);
        self.failed.remove(&id).and_then(|(_, fault)| fault)
    }

    /// Takes the next node to read, unless too many readings are under way.
    pub(crate) fn take_due(&mut self, now: Tick) -> Option<NodeId> {
        let &(at, id) = self.due.first()?;
        if at > now || self.outstanding.len() >= AT_ONCE_MAX {
            return None;
        }
        self.unset(id);
        Some(id)
    }

    /// Schedules the next reading of a node: later if its BMC did not answer the last ones, or has
    /// a bad score, which doubles the pause this many times.
    pub(crate) fn schedule_next(&mut self, now: Tick, node: &Node, doublings: u32, every_ms: u64) {
        let failures = self.failed.get(&node.id).map_or(0, |(count, _)| *count);
        let halvings = failures.saturating_sub(FAILURES_MIN);
        let most = if node.has_power_failure() {
            HALVINGS_FAILED_MAX
        } else {
            HALVINGS_MAX
        };
        let halvings = halvings.max(doublings).min(most);
        self.set(node.id, now.after_ms(every_ms.max(1) << halvings));
    }

    /// A reading begins; false if one is under way.
    pub(crate) fn begin(&mut self, id: NodeId) -> bool {
        self.outstanding.insert(id)
    }

    /// A reading has succeeded. Returns the fault that has ended.
    pub(crate) fn succeeded(&mut self, id: NodeId) -> Option<BoxFault> {
        self.outstanding.remove(&id);
        self.failed.remove(&id).and_then(|(_, fault)| fault)
    }

    /// A reading has failed. One fault for one cause: a new cause replaces the former one. With
    /// `failures_max` failures in a row the sync gives up, unless that is 0.
    pub(crate) fn failed(
        &mut self,
        node: &Node,
        error: &PowerError,
        failures_max: u32,
    ) -> PowerSyncFailure {
        self.outstanding.remove(&node.id);
        let (count, raised) = self.failed.entry(node.id).or_default();
        *count = count.saturating_add(1);
        let gives_up = failures_max > 0 && *count >= failures_max;
        if *count < FAILURES_MIN && !gives_up {
            return PowerSyncFailure::default();
        }
        let fault = BoxFault::BmcFailed {
            node: node.label(),
            why: error.to_string(),
        };
        let ended = raised.replace(fault.clone()).filter(|old| *old != fault);
        PowerSyncFailure {
            ended,
            raised: Some(fault),
            gives_up,
        }
    }
}

/// What follows from a reading that failed.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct PowerSyncFailure {
    /// The former fault of the node.
    pub(crate) ended: Option<BoxFault>,
    pub(crate) raised: Option<BoxFault>,
    /// The node is put in maintenance.
    pub(crate) gives_up: bool,
}

#[cfg(test)]
mod tests {
    use trivet_model::{SeededRandom, UnixMs};

    use super::*;

    const EVERY_MS: u64 = 60_000;

    fn node(number: u64) -> Node {
        let id = NodeId::random(&mut SeededRandom::new(number));
        Node::new(id, "ipmi", UnixMs(1))
    }

    fn silent() -> PowerError {
        PowerError::NoResponse { waited_ms: 1 }
    }

    fn fault(error: &PowerError) -> BoxFault {
        BoxFault::BmcFailed {
            node: node(1).label(),
            why: error.to_string(),
        }
    }

    /// The pause until the next reading after so many failures.
    fn pause_ms(failures: u32, doublings: u32) -> u64 {
        let (mut sync, node) = (PowerSyncSchedule::default(), node(1));
        for _ in 0..failures {
            sync.failed(&node, &silent(), 0);
        }
        sync.schedule_next(Tick(0), &node, doublings, EVERY_MS);
        sync.deadline().unwrap().since_ms(Tick(0))
    }

    #[test]
    fn a_silent_bmc_and_one_with_a_bad_score_are_read_less_often() {
        assert_eq!(pause_ms(0, 0), EVERY_MS);
        assert_eq!(pause_ms(2, 0), EVERY_MS);
        assert_eq!(pause_ms(3, 0), 2 * EVERY_MS);
        assert_eq!(pause_ms(0, 2), 4 * EVERY_MS);
        assert_eq!(pause_ms(3, 2), 4 * EVERY_MS);
        assert_eq!(pause_ms(99, 2), 16 * EVERY_MS);
    }

    #[test]
    fn not_too_many_are_read_at_once() {
        let mut sync = PowerSyncSchedule::default();
        for number in 0..40 {
            sync.set(node(number).id, Tick(number));
        }
        let mut begun = Vec::new();
        while let Some(id) = sync.take_due(Tick(100)) {
            assert!(sync.begin(id));
            begun.push(id);
        }
        assert_eq!((begun.len(), sync.deadline()), (AT_ONCE_MAX, None));
        assert!(!sync.begin(begun[0]), "one reading at a time");
        // A reply frees a place for the next one.
        sync.succeeded(begun[0]);
        assert_eq!(sync.deadline(), Some(Tick(32)));
        assert_eq!(sync.take_due(Tick(31)), None);
        assert_eq!(sync.take_due(Tick(32)), Some(node(32).id));
    }

    #[test]
    fn a_machine_that_was_seen_is_read_next() {
        let mut sync = PowerSyncSchedule::default();
        sync.sync_next(Tick(5), node(1).id);
        assert_eq!(sync.deadline(), None, "this one is never read");
        sync.set(node(1).id, Tick(EVERY_MS));
        sync.sync_next(Tick(5), node(1).id);
        assert_eq!(sync.take_due(Tick(5)), Some(node(1).id));
        assert_eq!(sync.take_due(Tick(u64::MAX)), None);
    }

    #[test]
    fn one_failure_is_no_fault_and_a_new_cause_replaces_the_former_one() {
        let (mut sync, node) = (PowerSyncSchedule::default(), node(1));
        assert_eq!(
            sync.failed(&node, &silent(), 0),
            PowerSyncFailure::default()
        );
        let second = sync.failed(&node, &silent(), 0);
        assert_eq!(second.raised, Some(fault(&silent())));
        assert_eq!((second.ended, second.gives_up), (None, false));
        let login = PowerError::Login { message: "no" };
        let third = sync.failed(&node, &login, 0);
        assert_eq!(third.ended, Some(fault(&silent())));
        assert_eq!(third.raised, Some(fault(&login)));
        assert_eq!(sync.succeeded(node.id), Some(fault(&login)));
        assert_eq!(sync.succeeded(node.id), None);
    }

    #[test]
    fn after_the_last_failure_the_sync_gives_up() {
        let (mut sync, node) = (PowerSyncSchedule::default(), node(1));
        assert!(sync.failed(&node, &silent(), 1).gives_up);
        assert_eq!(sync.remove(node.id), Some(fault(&silent())));
        assert!(!sync.failed(&node, &silent(), 2).gives_up);
        assert!(sync.failed(&node, &silent(), 2).gives_up);
    }
}
