//! Agents: what is under way with them and not on flash.

mod by_bmc;
pub(crate) mod callers;
mod calls;
mod enrolment;
mod inspection;
mod logs;
mod lookup;
mod vendor;

use std::collections::BTreeMap;

use trivet_bmc::{DeferredReplies, DeferredReply, node_deleted};
use trivet_certs_enrol::FailedProofs;
use trivet_model::{AgentOrder, NodeId, PowerOrder, Tick};

pub use callers::AgentAddresses;
pub use enrolment::CertificateRequirement;
pub(crate) use enrolment::NEEDS_CERTIFICATE;

use crate::RackOutput;

/// For this long after a refused agent of a node, further refusals for the same reason are not
/// noted. Ours.
const REFUSED_QUIET_MS: u64 = 60_000;

/// Most reasons of refusals noted for one node within that time: this many for callers at the
/// node's own address, and this many for all others. Ours.
const REFUSED_REASONS_MAX: usize = 32;

/// For this long after a reset request a lookup is accepted only if the machine was seen to
/// restart. Ours: the slowest machines restart two minutes after their BMC accepted the
/// request.
const RESTART_MS_MAX: u64 = 180_000;

/// What each node's agent waits for or is waited for.
pub(crate) struct AgentsPart {
    by_node: BTreeMap<NodeId, AgentTransientState>,
    /// The number of the last call to any agent.
    calls: u64,
    /// Wrong proofs of callers that want to enrol.
    pub(crate) failed_proofs: FailedProofs,
    /// Replies to callers that wait for an agent; the source is the number of the call.
    replies: DeferredReplies<u64>,
}

#[derive(Default)]
struct AgentTransientState {
    /// The call to the agent that is under way, and its number.
    call: Option<(u64, AgentOrder)>,
    /// The agent sent a heartbeat while that call was under way.
    heartbeat_during_call: bool,
    /// Since the box started, a token was issued for the present boot.
    token_issued: bool,
    /// When a reset was requested, until the machine is seen to restart.
    reset_at: Option<Tick>,
    /// Why agents were refused, whether they called from the node's own address, and until
    /// when that is not noted again. At most [`REFUSED_REASONS_MAX`] of each.
    refused: BTreeMap<(&'static str, bool), Tick>,
    logs: LogCollection,
}

/// Whether an agent's logs are being collected.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum LogCollection {
    /// No collection.
    #[default]
    None,
    /// A collection is under way.
    UnderWay,
    /// A collection is under way, and the machine is switched off after it.
    ThenPowerOff,
}

impl AgentsPart {
    /// The numbers of calls follow `calls`.
    pub(crate) fn new(calls: u64) -> Self {
        Self {
            by_node: BTreeMap::new(),
            calls,
            failed_proofs: FailedProofs::default(),
            replies: DeferredReplies::default(),
        }
    }

    /// When the wait of a caller ends.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.replies.deadline()
    }

    /// How many callers wait for an agent.
    pub(crate) fn replies_awaited(&self) -> usize {
        self.replies.len()
    }

    fn state(&mut self, id: NodeId) -> &mut AgentTransientState {
        self.by_node.entry(id).or_default()
    }

    /// A request to switch on or to restart is sent to the node's BMC. The agent of the
    /// previous boot runs until the machine restarts and must not be mistaken for the new one.
    pub(crate) fn restart_requested(&mut self, now: Tick, id: NodeId, order: PowerOrder) {
        let reset = order == PowerOrder::Reset;
        self.state(id).reset_at = reset.then_some(now);
    }

    /// The machine requests an address or a boot file.
    pub(crate) fn restart_seen(&mut self, id: NodeId) {
        if let Some(state) = self.by_node.get_mut(&id) {
            state.reset_at = None;
        }
    }

    /// The node was deleted: a caller that waits for its agent gets an error, and its logs are
    /// deleted.
    pub(crate) fn remove_node(&mut self, id: NodeId, outputs: &mut Vec<RackOutput>) {
        let Self {
            by_node,
            calls: _,
            // They are of addresses.
            failed_proofs: _,
            replies,
        } = self;
        by_node.remove(&id);
        if let Some(DeferredReply { ticket, .. }) = replies.remove(id) {
            let result = Err(node_deleted(id));
            outputs.push(RackOutput::Reply { ticket, result });
        }
        outputs.push(RackOutput::DropLogs(id));
    }

    /// Whether the machine was not seen to restart since a reset was requested.
    fn awaits_restart(&self, now: Tick, id: NodeId) -> bool {
        let reset_at = self.by_node.get(&id).and_then(|state| state.reset_at);
        reset_at.is_some_and(|at| now.since_ms(at) < RESTART_MS_MAX)
    }

    fn has_issued_token(&self, id: NodeId) -> bool {
        self.by_node
            .get(&id)
            .is_some_and(|state| state.token_issued)
    }

    /// A token is issued. The agent of the earlier boot will not answer its pending call.
    fn token_issued(&mut self, id: NodeId) {
        let state = self.state(id);
        state.token_issued = true;
        state.call = None;
    }

    fn heartbeat_received(&mut self, id: NodeId) {
        if let Some(state) = self.by_node.get_mut(&id) {
            state.heartbeat_during_call = state.call.is_some();
        }
    }

    /// Whether a refusal is noted now: by its reason, and whether the caller has the node's own
    /// address.
    fn is_refusal_due(&mut self, now: Tick, id: NodeId, refusal: (&'static str, bool)) -> bool {
        let refused = &mut self.state(id).refused;
        refused.retain(|_, until| now < *until);
        let same = refused.keys().filter(|(_, own)| *own == refusal.1);
        if same.count() >= REFUSED_REASONS_MAX || refused.contains_key(&refusal) {
            return false;
        }
        refused.insert(refusal, now.after_ms(REFUSED_QUIET_MS));
        true
    }

    fn is_called(&self, id: NodeId) -> bool {
        self.by_node
            .get(&id)
            .is_some_and(|state| state.call.is_some())
    }

    /// A call that is under way is not sent a second time: the agent may have received it, and
    /// its reply or time-out is still to come.
    fn may_call(&self, id: NodeId, order: &AgentOrder) -> bool {
        let call = self.by_node.get(&id).and_then(|state| state.call.as_ref());
        let Some((_, under_way)) = call else {
            return true;
        };
        let same = std::mem::discriminant(under_way) == std::mem::discriminant(order);
        !same && !order.is_reading()
    }

    /// Stores the call that is sent now; returns its number.
    fn begin_call(&mut self, id: NodeId, order: AgentOrder) -> u64 {
        let call = self.next_call();
        let state = self.state(id);
        state.call = Some((call, order));
        state.heartbeat_during_call = false;
        call
    }

    fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Takes the order of the call with this number, and whether the agent sent a heartbeat
    /// meanwhile. None if that call is not under way.
    fn end_call(&mut self, id: NodeId, call: u64) -> Option<(AgentOrder, bool)> {
        let state = self.by_node.get_mut(&id)?;
        let (_, order) = state.call.take_if(|(number, _)| *number == call)?;
        Some((order, std::mem::take(&mut state.heartbeat_during_call)))
    }

    /// The node's logs are being collected; false if they were already.
    pub(crate) fn begin_logs(&mut self, id: NodeId) -> bool {
        let before = std::mem::replace(&mut self.state(id).logs, LogCollection::UnderWay);
        before == LogCollection::None
    }

    /// If the node's logs are being collected, the machine is switched off after that.
    pub(crate) fn power_off_after_logs(&mut self, id: NodeId) -> bool {
        let logs = &mut self.state(id).logs;
        let collects = *logs != LogCollection::None;
        if collects {
            *logs = LogCollection::ThenPowerOff;
        }
        collects
    }

    /// The logs were collected, or could not be. Returns whether the machine is switched off
    /// now.
    fn end_logs(&mut self, id: NodeId) -> bool {
        let logs = self.by_node.get_mut(&id);
        let logs = logs.map(|state| std::mem::take(&mut state.logs));
        logs == Some(LogCollection::ThenPowerOff)
    }
}

#[cfg(test)]
mod tests {
    use trivet_model::SeededRandom;

    use super::*;

    fn id() -> NodeId {
        NodeId::random(&mut SeededRandom::new(1))
    }

    #[test]
    fn a_call_is_not_sent_twice_and_only_its_own_answer_ends_it() {
        let mut agents = AgentsPart::new(40);
        assert!(agents.may_call(id(), &AgentOrder::ListCommands));
        let first = agents.begin_call(id(), AgentOrder::Sync);
        assert_eq!(first, 41);
        assert!(!agents.may_call(id(), &AgentOrder::Sync));
        assert!(!agents.may_call(id(), &AgentOrder::ListCommands));
        assert_eq!(agents.end_call(id(), 7), None);
        agents.heartbeat_received(id());
        assert_eq!(agents.end_call(id(), first), Some((AgentOrder::Sync, true)));
        assert_eq!(agents.end_call(id(), first), None);
        // The agent of the next boot does not answer calls to the one before.
        let second = agents.begin_call(id(), AgentOrder::Sync);
        agents.token_issued(id());
        assert_eq!(agents.end_call(id(), second), None);
        assert!(agents.has_issued_token(id()));
    }

    #[test]
    fn logs_are_collected_once_and_the_machine_is_switched_off_after_that() {
        let mut agents = AgentsPart::new(0);
        assert!(!agents.power_off_after_logs(id()), "nothing to wait for");
        assert!(agents.begin_logs(id()));
        assert!(!agents.begin_logs(id()));
        assert!(agents.power_off_after_logs(id()));
        assert!(agents.end_logs(id()));
        assert!(!agents.end_logs(id()));
        assert!(agents.begin_logs(id()));
        assert!(!agents.end_logs(id()));
    }

    #[test]
    fn a_reset_is_awaited_until_it_is_seen_or_too_long_ago() {
        let mut agents = AgentsPart::new(0);
        agents.restart_requested(Tick(0), id(), PowerOrder::Reset);
        assert!(agents.awaits_restart(Tick(RESTART_MS_MAX - 1), id()));
        assert!(!agents.awaits_restart(Tick(RESTART_MS_MAX), id()));
        agents.restart_seen(id());
        assert!(!agents.awaits_restart(Tick(1), id()));
        agents.restart_requested(Tick(0), id(), PowerOrder::On);
        assert!(!agents.awaits_restart(Tick(1), id()));
    }

    #[test]
    fn refusals_are_noted_at_intervals_and_unknown_machines_hide_none_of_the_node() {
        const REASONS: [&str; 3] = ["one", "two", "three"];
        let mut agents = AgentsPart::new(0);
        for why in REASONS {
            assert!(agents.is_refusal_due(Tick(0), id(), (why, false)));
            assert!(!agents.is_refusal_due(Tick(9), id(), (why, false)));
            assert!(agents.is_refusal_due(Tick(9), id(), (why, true)));
        }
        let later = Tick(REFUSED_QUIET_MS);
        assert!(agents.is_refusal_due(later, id(), ("one", false)));
    }

    #[test]
    fn a_deleted_node_leaves_nothing() {
        let mut agents = AgentsPart::new(0);
        agents.begin_call(id(), AgentOrder::ListCommands);
        agents.replies.insert(
            id(),
            DeferredReply {
                ticket: 7,
                due: Tick(1),
                label: String::new(),
                source: 1,
            },
        );
        let mut outputs = Vec::new();
        agents.remove_node(id(), &mut outputs);
        assert!(matches!(
            &outputs[..],
            [
                RackOutput::Reply {
                    ticket: 7,
                    result: Err(_)
                },
                RackOutput::DropLogs(_)
            ]
        ));
        assert!(agents.by_node.is_empty() && agents.deadline().is_none());
    }
}
