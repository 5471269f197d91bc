//! The power changes of all nodes that are under way, at most one for a node.

use std::collections::{BTreeMap, BTreeSet};

use trivet_model::{NodeId, NoteKind, PowerAnswer, PowerError, PowerOrder, PowerState, Tick};

use crate::Bmcs;
use crate::context::BmcContext;
use crate::outcome::{BmcOrderOwner, BmcOutcome, BmcRequestOrigin, power_failed};
use crate::power_change::{PowerChange, PowerChangeAction, PowerChangeRules, PowerChangeStart};

/// The changes, and when they continue.
#[derive(Default)]
pub(crate) struct PowerChanges {
    by_node: BTreeMap<NodeId, PowerChange>,
    /// When changes continue, earliest first.
    wakes: BTreeSet<(Tick, NodeId)>,
    /// Nodes whose job has sent no request to its BMC since the box started: a request sent
    /// before may have been carried out.
    resumed: BTreeSet<NodeId>,
}

impl PowerChanges {
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// The node's change is no longer needed.
    pub(crate) fn drop_change(&mut self, id: NodeId) -> Option<PowerChange> {
        let mut change = self.by_node.remove(&id)?;
        if let Some((at, _)) = change.take_wake() {
            self.wakes.remove(&(at, id));
        }
        Some(change)
    }

    /// The node was deleted.
    pub(crate) fn remove(&mut self, id: NodeId) {
        self.drop_change(id);
        self.resumed.remove(&id);
    }

    /// Takes the next request that is due.
    fn take_due(&mut self, now: Tick) -> Option<(NodeId, PowerOrder)> {
        while let Some(&(at, id)) = self.wakes.first()
            && at <= now
        {
            self.wakes.pop_first();
            let change = self.by_node.get_mut(&id);
            if let Some((_, order)) = change.and_then(PowerChange::take_wake) {
                return Some((id, order));
            }
        }
        None
    }
}

impl Bmcs {
    /// The box has restarted during a job of this node.
    pub fn resume_job(&mut self, id: NodeId) {
        self.changes.resumed.insert(id);
    }

    /// Carries out an order for the node's job, with polls and repetitions where it changes power.
    /// An order that is under way is not started a second time.
    pub fn order_for_job(&mut self, context: &mut BmcContext, id: NodeId, order: PowerOrder) {
        if order.at_most_once() {
            self.send(
                context,
                id,
                order,
                BmcRequestOrigin::Order(BmcOrderOwner::Job),
            );
            return;
        }
        let Some(node) = context.nodes.node(id) else {
            return;
        };
        let mut rules = PowerChangeRules::of_job(&context.limits, node);
        let present = self.changes.by_node.get(&id);
        if present.is_some_and(|change| change.order().0 == order) {
            return;
        }
        let resumes = self.changes.resumed.remove(&id);
        if resumes && matches!(order, PowerOrder::On | PowerOrder::Off) {
            rules.start = PowerChangeStart::Read;
        }
        self.begin_change(context, id, (order, BmcOrderOwner::Job), rules);
    }

    /// Carries out an operator's order; one that changes power by these rules.
    pub fn order_for_operator(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        order: PowerOrder,
        rules: PowerChangeRules,
    ) {
        let owner = BmcOrderOwner::Operator;
        if order.at_most_once() || order.switches().is_none() {
            self.send(context, id, order, BmcRequestOrigin::Order(owner));
        } else {
            self.begin_change(context, id, (order, owner), rules);
        }
    }

    /// Starts a change in place of any other.
    fn begin_change(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        (order, owner): (PowerOrder, BmcOrderOwner),
        rules: PowerChangeRules,
    ) {
        self.changes.drop_change(id);
        let change = PowerChange::new(context.now, order, owner, rules);
        let request = change.first_request();
        self.changes.by_node.insert(id, change);
        self.send_for_change(context, id, request);
    }

    /// The node's power change is no longer needed.
    pub fn drop_change(&mut self, id: NodeId) {
        self.changes.drop_change(id);
    }

    fn send_for_change(&mut self, context: &mut BmcContext, id: NodeId, order: PowerOrder) {
        if !self.changes.by_node.contains_key(&id) {
            return;
        }
        let number = self.send(context, id, order, BmcRequestOrigin::PowerChange);
        if let (Some(change), Some(number)) = (self.changes.by_node.get_mut(&id), number) {
            change.record_request(context.now, number, order);
        }
    }

    /// Sends the requests of changes that are due.
    pub(crate) fn continue_changes(&mut self, context: &mut BmcContext) {
        while let Some((id, order)) = self.changes.take_due(context.now) {
            self.send_for_change(context, id, order);
        }
    }

    /// Handles the answer to a request of a change. The answer to a change that was dropped has
    /// no effect.
    pub(crate) fn change_answered(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        number: u64,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        let failure = answer.as_ref().err().map(power_failed);
        let change = self.changes.by_node.get_mut(&id);
        let next = change
            .and_then(|change| change.handle_answer(context.now, number, answer, &context.limits));
        let Some((action, evidence)) = next else {
            if let Some(note) = failure {
                self.note(id, note);
            }
            return;
        };
        if let Some(evidence) = evidence {
            self.note(id, NoteKind::Evidence(evidence));
        }
        match action {
            PowerChangeAction::Request(order) => self.send_for_change(context, id, order),
            PowerChangeAction::After(pause_ms, order) => {
                if let Some(change) = self.changes.by_node.get_mut(&id) {
                    let at = change.schedule(context.now, pause_ms, order, &context.limits);
                    self.changes.wakes.insert((at, id));
                }
            }
            PowerChangeAction::End(result) => self.end_change(id, result),
        }
    }

    fn end_change(&mut self, node: NodeId, result: Result<PowerAnswer, PowerError>) {
        let Some(change) = self.changes.drop_change(node) else {
            return;
        };
        if let Err(error) = &result {
            self.note(node, power_failed(error));
        }
        let (order, owner) = change.order();
        self.outcomes.push_back(BmcOutcome::OrderCompleted {
            node,
            owner,
            order,
            result,
        });
    }

    /// The machine of a node was seen on the network or through its agent, so it is on.
    pub fn machine_seen(&mut self, id: NodeId) {
        let change = self.changes.by_node.get(&id);
        if change.is_some_and(PowerChange::ends_when_machine_seen) {
            self.end_change(id, Ok(PowerAnswer::Power(PowerState::On)));
        }
    }
}
