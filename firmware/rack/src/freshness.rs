//! Power states are read now and then, so that what somebody did at the machine shows,
//! and so that a BMC that has gone away is known before it is needed.

use std::collections::{BTreeMap, BTreeSet};

use trivet_model::node::POWER_FAILURE;
use trivet_model::{
    Fault, Node, NodeId, NoteKind, Now, PowerAnswer, PowerError, PowerOrder, ProvisionState, Tick,
};
use trivet_node::Event;

use crate::Rack;
use crate::switching::has_bmc;

/// How many BMCs are asked at once for freshness' sake. Ours: orders do not count.
const AT_ONCE_MAX: usize = 32;

/// One reading that is lost is no fault; so many in a row are.
const FAILURES_MIN: u32 = 2;

/// A BMC that does not answer is asked half as often each time, so many times.
const HALVINGS_MAX: u32 = 4;

/// The same for a node that is in maintenance for it, which waits for the answer. Ours: four
/// minutes by default; Ironic takes five.
const HALVINGS_FAILED_MAX: u32 = 2;

/// Who is read when.
#[derive(Default)]
pub(crate) struct Fresh {
    due: BTreeSet<(Tick, NodeId)>,
    at: BTreeMap<NodeId, Tick>,
    /// Who has been asked and has not answered.
    asked: BTreeSet<NodeId>,
    /// How often in a row it failed, and what was raised for it.
    failed: BTreeMap<NodeId, (u32, Option<Fault>)>,
}

impl Fresh {
    /// While too many are asked, an answer makes us look again.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        let first = self.due.first().map(|(at, _)| *at);
        first.filter(|_| self.asked.len() < AT_ONCE_MAX)
    }

    fn set(&mut self, id: NodeId, at: Tick) {
        self.unset(id);
        self.due.insert((at, id));
        self.at.insert(id, at);
    }

    /// Whoever is read at all is read next.
    pub(crate) fn hurry(&mut self, now: Tick, id: NodeId) {
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
    /// A node is new, or the box is: its turn comes at any time within a round, so that
    /// a rack is not read in one moment.
    pub(crate) fn keep_fresh(&mut self, now: Now, id: NodeId) {
        if let Some(every_ms) = self.settings.power_fresh_ms {
            let within = self.entropy.number() % every_ms.max(1);
            self.fresh.set(id, now.tick.after_ms(within));
        }
    }

    /// The node is gone.
    pub(crate) fn forget_fresh(&mut self, now: Now, id: NodeId) {
        self.fresh.unset(id);
        self.fresh.asked.remove(&id);
        if let Some((_, Some(fault))) = self.fresh.failed.remove(&id) {
            self.fault_gone(now, &fault);
        }
    }

    pub(crate) fn freshen(&mut self, now: Now) {
        let Some(every_ms) = self.settings.power_fresh_ms else {
            return;
        };
        while let Some(&(at, id)) = self.fresh.due.first()
            && at <= now.tick
            && self.fresh.asked.len() < AT_ONCE_MAX
        {
            self.fresh.unset(id);
            let Some(node) = self.book.node(id).cloned() else {
                continue;
            };
            let failures = self.fresh.failed.get(&id).map_or(0, |(count, _)| *count);
            let halvings = failures.saturating_sub(FAILURES_MIN);
            let most = if node.has_power_failure() {
                HALVINGS_FAILED_MAX
            } else {
                HALVINGS_MAX
            };
            let halvings = halvings.max(self.health.doublings(id)).min(most);
            self.fresh
                .set(id, now.tick.after_ms(every_ms.max(1) << halvings));
            let fit = is_idle(&node) && !self.rivals.loses(id);
            if fit && !self.fresh.asked.contains(&id) {
                self.fresh.asked.insert(id);
                self.give_power(now, id, PowerOrder::Status);
            }
        }
    }

    /// Takes the answer to a reading that was for freshness' sake; false if it was not.
    pub(crate) fn freshened(
        &mut self,
        now: Now,
        node: &Node,
        answer: &Result<PowerAnswer, PowerError>,
    ) -> bool {
        let id = node.id;
        if !self.fresh.asked.remove(&id) {
            return false;
        }
        match answer {
            Ok(answer) => {
                if let Some((_, Some(fault))) = self.fresh.failed.remove(&id) {
                    self.fault_gone(now, &fault);
                }
                // A job that began meanwhile asks for itself.
                if is_idle(node) {
                    self.recover(now, node);
                    let event = Event::Power(PowerOrder::Status, Ok(*answer));
                    self.events.push_back((id, event));
                }
            }
            Err(error) => self.failed_reading(now, node, error),
        }
        true
    }

    /// One fault for one cause: another cause takes its place.
    fn failed_reading(&mut self, now: Now, node: &Node, error: &PowerError) {
        let (count, raised) = self.fresh.failed.entry(node.id).or_default();
        *count = count.saturating_add(1);
        let most = self.settings.limits.power_sync_retries_max;
        // A job that began meanwhile reports for itself.
        let gives_up = most > 0 && *count >= most && !node.maintenance && is_idle(node);
        if *count < FAILURES_MIN && !gives_up {
            return;
        }
        let fault = Fault::BmcFails {
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

    /// The node is in maintenance until its BMC answers, as with Ironic.
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
        self.book.put_node(now, failed);
        self.note(now, Some(node.id), NoteKind::Warning { why });
    }

    /// The BMC answers again: what the box set for its silence is cleared, and nothing else.
    fn recover(&mut self, now: Now, node: &Node) {
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
        self.book.put_node(now, well);
    }
}

/// Nobody else is at the node's BMC, and it is one that can be asked.
fn is_idle(node: &Node) -> bool {
    node.job.is_none()
        && node.target_power_state.is_none()
        && (!node.maintenance || node.has_power_failure())
        && node.provision_state != ProvisionState::Enroll
        && has_bmc(node)
}
