//! Power sync: power states are read at intervals, so that a change at the machine is seen, and
//! so that a BMC that became unreachable is known before it is needed.

use std::collections::{BTreeMap, BTreeSet};

use trivet_model::node::POWER_FAILURE;
use trivet_model::{
    BoxFault, Node, NodeId, NoteKind, Now, PowerAnswer, PowerError, PowerOrder, ProvisionState,
    Tick,
};
use trivet_node::NodeEvent;

use crate::Rack;
use crate::power_control::has_bmc;

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

    fn set(&mut self, id: NodeId, at: Tick) {
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
}

impl Rack {
    /// A node is new, or the box has started: the first reading is at a random time within one
    /// interval, so that a rack is not read all at once.
    pub(crate) fn schedule_power_sync(&mut self, now: Now, id: NodeId) {
        if let Some(every_ms) = self.settings.power_sync_interval_ms {
            let within = self.entropy.number() % every_ms.max(1);
            self.power_sync.set(id, now.tick.after_ms(within));
        }
    }

    /// The node was deleted.
    pub(crate) fn remove_power_sync(&mut self, now: Now, id: NodeId) {
        self.power_sync.unset(id);
        self.power_sync.outstanding.remove(&id);
        if let Some((_, Some(fault))) = self.power_sync.failed.remove(&id) {
            self.fault_gone(now, &fault);
        }
    }

    pub(crate) fn sync_power_states(&mut self, now: Now) {
        let Some(every_ms) = self.settings.power_sync_interval_ms else {
            return;
        };
        while let Some(&(at, id)) = self.power_sync.due.first()
            && at <= now.tick
            && self.power_sync.outstanding.len() < AT_ONCE_MAX
        {
            self.power_sync.unset(id);
            let Some(node) = self.records.node(id).cloned() else {
                continue;
            };
            let failures = self
                .power_sync
                .failed
                .get(&id)
                .map_or(0, |(count, _)| *count);
            let halvings = failures.saturating_sub(FAILURES_MIN);
            let most = if node.has_power_failure() {
                HALVINGS_FAILED_MAX
            } else {
                HALVINGS_MAX
            };
            let halvings = halvings.max(self.health.doublings(id)).min(most);
            self.power_sync
                .set(id, now.tick.after_ms(every_ms.max(1) << halvings));
            let fit = is_idle(&node) && !self.bmc_conflicts.is_conflicting(id);
            if fit && !self.power_sync.outstanding.contains(&id) {
                self.power_sync.outstanding.insert(id);
                self.send_power_order(now, id, PowerOrder::Status);
            }
        }
    }

    /// Handles the reply to a reading of the power sync; false if it belongs to another
    /// request.
    pub(crate) fn power_sync_answered(
        &mut self,
        now: Now,
        node: &Node,
        answer: &Result<PowerAnswer, PowerError>,
    ) -> bool {
        let id = node.id;
        if !self.power_sync.outstanding.remove(&id) {
            return false;
        }
        match answer {
            Ok(answer) => {
                if let Some((_, Some(fault))) = self.power_sync.failed.remove(&id) {
                    self.fault_gone(now, &fault);
                }
                // A job that started meanwhile reads the state itself.
                if is_idle(node) {
                    self.clear_power_failure(now, node);
                    let event = NodeEvent::Power(PowerOrder::Status, Ok(*answer));
                    self.events.push_back((id, event));
                }
            }
            Err(error) => self.power_sync_failed(now, node, error),
        }
        true
    }

    /// One fault for one cause: a new cause replaces the former one.
    fn power_sync_failed(&mut self, now: Now, node: &Node, error: &PowerError) {
        let (count, raised) = self.power_sync.failed.entry(node.id).or_default();
        *count = count.saturating_add(1);
        let most = self.settings.limits.power_sync_retries_max;
        // A job that started meanwhile reports its own errors.
        let gives_up = most > 0 && *count >= most && !node.maintenance && is_idle(node);
        if *count < FAILURES_MIN && !gives_up {
            return;
        }
        let fault = BoxFault::BmcFailed {
            node: node.label(),
            why: error.to_string(),
        };
        let old = raised.replace(fault.clone());
        if let Some(old) = old.filter(|old| *old != fault) {
            self.fault_gone(now, &old);
        }
        self.fault(now, fault);
        if gives_up {
            self.power_failure(now, node, error);
        }
    }

    /// Puts the node in maintenance until its BMC answers, as in Ironic.
    fn power_failure(&mut self, now: Now, node: &Node, error: &PowerError) {
        let why = format!(
            "{POWER_FAILURE}: the power state could not be read {} times in a row: {error}",
            self.settings.limits.power_sync_retries_max
        );
        let failed = Node {
            power_state: None,
            maintenance: true,
            maintenance_reason: Some(why.clone()),
            fault: Some(POWER_FAILURE.to_owned()),
            // The reason of a failed job stays.
            last_error: node.last_error.clone().or_else(|| Some(why.clone())),
            ..node.clone()
        };
        self.records.put_node(now, failed);
        self.note(now, Some(node.id), NoteKind::Warning { why });
    }

    /// The BMC answers again: clears what the power sync set, and nothing else.
    fn clear_power_failure(&mut self, now: Now, node: &Node) {
        if !node.has_power_failure() {
            return;
        }
        let mut well = node.clone();
        well.maintenance = false;
        well.fault = None;
        let why = well.maintenance_reason.take();
        if well.last_error == why {
            well.last_error = None;
        }
        self.records.put_node(now, well);
    }
}

/// Whether no job or order uses the node's BMC, and it has one to read.
fn is_idle(node: &Node) -> bool {
    node.job.is_none()
        && node.target_power_state.is_none()
        && (!node.maintenance || node.has_power_failure())
        && node.provision_state != ProvisionState::Enroll
        && has_bmc(node)
}
