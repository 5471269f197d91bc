//! All BMCs: which protocol carries an order, its origin, and where the answer goes.

mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use trivet_drivers::{management_interface, power_interface, vendor_interface};
use trivet_model::interface::VendorInterface;
use trivet_model::{
    BmcReply, BmcRequest, BoxFault, Node, NodeId, NoteKind, PowerAnswer, PowerError, PowerOrder,
    ProvisionState, Tick,
};

use crate::conflicts::BmcAddressConflicts;
use crate::context::BmcContext;
use crate::deferred_replies::DeferredReplies;
use crate::health::BmcHealthTracker;
use crate::measurements::BmcMeasurements;
use crate::message::{BmcMessage, BmcTransmit};
use crate::outcome::{BmcOutcome, BmcRequestOrigin, power_failed};
use crate::power_changes::PowerChanges;
use crate::power_sync::PowerSyncSchedule;
use crate::protocol::{
    BmcInterface, BmcOrderStep, BmcProtocol, BmcProtocolEvent, BmcReach, BmcTarget,
};

const UNKNOWN_HARDWARE: PowerError = PowerError::Unsupported {
    message: "this box does not know the node's hardware type; choose another driver",
};

const VENDOR_OFF: PowerError = PowerError::Unsupported {
    message: "the node's vendor interface is off; choose one that has this method",
};

const NOT_SERVED: PowerError = PowerError::Unsupported {
    message: "this box has no protocol for the node's interfaces; choose another driver",
};

/// The BMCs of all nodes. One thread owns it; it never blocks.
///
/// What it decides is returned by [`Bmcs::next_outcome`], what it sends by [`Bmcs::next_transmit`].
pub struct Bmcs {
    /// The first one that serves an interface carries its orders.
    protocols: Vec<Box<dyn BmcProtocol>>,
    /// Requests that are not answered yet, by number. Bounded by the queues of the protocols.
    exchanges: BTreeMap<u64, BmcExchange>,
    /// Requests that no protocol accepted, and why.
    rejected: VecDeque<(u64, PowerError)>,
    numbers: u64,
    calls: u64,
    pub(crate) changes: PowerChanges,
    sync: PowerSyncSchedule,
    pub(crate) health: BmcHealthTracker,
    conflicts: BmcAddressConflicts,
    /// Replies that callers wait for; with the request, unless it is a power order.
    pub(crate) replies: DeferredReplies<Option<BmcRequest>>,
    pub(crate) outcomes: VecDeque<BmcOutcome>,
    /// How requests ended, until they are taken.
    pub(crate) measurements: BmcMeasurements,
}

/// A request that is not answered yet.
pub(crate) struct BmcExchange {
    pub(crate) node: NodeId,
    origin: BmcRequestOrigin,
    /// None for a BMC request other than power.
    pub(crate) order: Option<PowerOrder>,
    pub(crate) requested_at: Tick,
    pub(crate) reach: BmcReach,
    /// The name of its protocol; none where no protocol serves it.
    pub(crate) protocol: Option<&'static str>,
}

impl Bmcs {
    /// No node yet. The numbers of calls follow `calls`, which is random, so that a late answer to
    /// a call before a restart does not match a new call.
    pub fn new(protocols: Vec<Box<dyn BmcProtocol>>, calls: u64) -> Self {
        Self {
            protocols,
            exchanges: BTreeMap::new(),
            rejected: VecDeque::new(),
            numbers: 0,
            calls,
            changes: PowerChanges::default(),
            sync: PowerSyncSchedule::default(),
            health: BmcHealthTracker::default(),
            conflicts: BmcAddressConflicts::default(),
            replies: DeferredReplies::default(),
            outcomes: VecDeque::new(),
            measurements: BmcMeasurements::default(),
        }
    }

    /// When [`Bmcs::tick`] is due next.
    pub fn deadline(&self) -> Option<Tick> {
        let Self {
            protocols,
            changes,
            sync,
            replies,
            ..
        } = self;
        let protocols = protocols.iter().filter_map(|one| one.deadline());
        protocols
            .chain(changes.deadline())
            .chain(sync.deadline())
            .chain(replies.deadline())
            .min()
    }

    /// Time has passed.
    pub fn tick(&mut self, context: &mut BmcContext) {
        self.continue_changes(context);
        for protocol in &mut self.protocols {
            protocol.tick(&mut context.of_protocol());
        }
        self.expire_replies(context);
        self.sync_power_states(context);
    }

    /// Handles a message from a BMC or a host. One that belongs to nothing is ignored.
    pub fn receive(&mut self, context: &mut BmcContext, message: BmcMessage) {
        let mut rest = Some(message);
        for protocol in &mut self.protocols {
            let Some(message) = rest.take() else { return };
            rest = protocol.receive(&mut context.of_protocol(), message);
        }
    }

    /// The next message to send.
    pub fn next_transmit(&mut self, now: Tick) -> Option<BmcTransmit> {
        let calls = &mut self.calls;
        let mut protocols = self.protocols.iter_mut();
        protocols.find_map(|protocol| protocol.next_transmit(now, calls))
    }

    /// The next result of what was done and received.
    pub fn next_outcome(&mut self, context: &mut BmcContext) -> Option<BmcOutcome> {
        loop {
            if let Some(outcome) = self.outcomes.pop_front() {
                return Some(outcome);
            }
            if let Some((number, error)) = self.rejected.pop_front() {
                self.rejected(context, number, error);
                continue;
            }
            let mut protocols = self.protocols.iter_mut();
            match protocols.find_map(|protocol| protocol.next_event())? {
                BmcProtocolEvent::OrderAnswered { number, answer } => {
                    self.order_answered(context, number, answer);
                }
                BmcProtocolEvent::RequestAnswered { number, reply } => {
                    self.request_answered(context, number, reply);
                }
                BmcProtocolEvent::Note { node, kind } => self.note(node, kind),
                BmcProtocolEvent::HardwareHealth { node, health } => self.read_health(node, health),
            }
        }
    }

    /// A node is new, or the box has started: the first reading of its power state is at a random
    /// time within one interval, so that a rack is not read all at once.
    pub fn add(&mut self, context: &mut BmcContext, id: NodeId) {
        if let Some(every_ms) = context.limits.power_sync_interval_ms {
            let within = context.entropy.number() % every_ms.max(1);
            self.sync.set(id, context.now.after_ms(within));
        }
    }

    /// The node was deleted. Its requests are not answered any more; a caller that waits for a
    /// reply gets an error.
    pub fn remove(&mut self, context: &mut BmcContext, id: NodeId) {
        let Self {
            protocols,
            exchanges,
            rejected: _,
            numbers: _,
            calls: _,
            changes,
            sync,
            health,
            // Follows from the records, see `records_changed`.
            conflicts: _,
            replies: _,
            outcomes,
            // They name no node.
            measurements: _,
        } = self;
        if let Some(fault) = sync.remove(id) {
            outcomes.push_back(BmcOutcome::FaultCleared(fault));
        }
        changes.remove(id);
        health.remove(id);
        for protocol in protocols {
            protocol.remove(&mut context.of_protocol(), id);
        }
        exchanges.retain(|_, exchange| exchange.node != id);
        self.cancel_reply(id);
    }

    /// Where the power orders of this node go; none if it has no power interface.
    pub fn power_reach(&self, node: &Node) -> Option<BmcReach> {
        let at = self.route(node, PowerOrder::Status).ok()?;
        Some(self.protocols[at].reach())
    }

    /// Reads the power state of this node next, if it is read at all.
    pub fn sync_next(&mut self, now: Tick, id: NodeId) {
        self.sync.sync_next(now, id);
    }

    /// Whether a node names a BMC at this address.
    pub fn is_bmc(&self, address: IpAddr) -> bool {
        self.conflicts.is_bmc(address)
    }

    pub(crate) fn note(&mut self, node: NodeId, kind: NoteKind) {
        self.outcomes.push_back(BmcOutcome::Note { node, kind });
    }

    /// The protocol that serves this interface of the node.
    fn serving(&self, node: &Node, interface: Option<BmcInterface>) -> Result<usize, PowerError> {
        let interface = interface.ok_or(UNKNOWN_HARDWARE)?;
        if interface == BmcInterface::Vendor(VendorInterface::NoVendor) {
            return Err(VENDOR_OFF);
        }
        let mut protocols = self.protocols.iter();
        let at = protocols.position(|protocol| protocol.serves(node, interface));
        at.ok_or(NOT_SERVED)
    }

    /// The protocol that carries an order, by the node's interfaces: boot devices and interrupts
    /// belong to management, commands to the BMC itself to vendor, the rest to power.
    fn route(&self, node: &Node, order: PowerOrder) -> Result<usize, PowerError> {
        let management = management_interface(node).map(BmcInterface::Management);
        let vendor = vendor_interface(node).map(BmcInterface::Vendor);
        let power = power_interface(node).map(BmcInterface::Power);
        match order {
            PowerOrder::ReadBoot | PowerOrder::SetBoot { .. } | PowerOrder::Nmi => {
                self.serving(node, management)
            }
            PowerOrder::BmcReset { .. } => {
                let manager = self.serving(node, management).ok();
                let manager = manager.filter(|at| self.protocols[*at].resets_bmc_by_management());
                manager.map_or_else(|| self.serving(node, vendor), Ok)
            }
            PowerOrder::Raw { .. } => self.serving(node, vendor),
            _ => self.serving(node, power),
        }
    }

    /// Why no request is sent to the BMC of this node: an older node names the same one. None
    /// where the BMC is this node's own.
    fn shared_bmc(&self, context: &BmcContext, id: NodeId) -> Option<PowerError> {
        let holder = self.conflicts.older(id)?;
        let other = context.nodes.node(holder);
        let other = other.map_or_else(|| holder.to_string(), Node::name_and_uuid);
        Some(PowerError::SharedBmc { other })
    }

    /// Sends an order. Returns its number; none if the node does not exist.
    pub(crate) fn send(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        order: PowerOrder,
        origin: BmcRequestOrigin,
    ) -> Option<u64> {
        let node = context.nodes.node(id)?;
        if matches!(
            order,
            PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset
        ) {
            let node = id;
            self.outcomes
                .push_back(BmcOutcome::SwitchOnSent { node, order });
        }
        let route = self.route(node, order);
        let reach = route
            .as_ref()
            .map_or(BmcReach::Record, |at| self.protocols[*at].reach());
        if reach != BmcReach::Record
            && let Some(order) = order.switches()
        {
            self.note(id, NoteKind::PowerOrdered { order });
        }
        let protocol = route.as_ref().ok().map(|at| self.protocols[*at].name());
        let carrier = (reach, protocol);
        let number = self.start_exchange(context.now, id, origin, Some(order), carrier);
        let given = route.and_then(|at| self.give_order(context, node, at, (number, order)));
        if let Err(error) = given {
            self.rejected.push_back((number, error));
        }
        Some(number)
    }

    fn start_exchange(
        &mut self,
        requested_at: Tick,
        node: NodeId,
        origin: BmcRequestOrigin,
        order: Option<PowerOrder>,
        (reach, protocol): (BmcReach, Option<&'static str>),
    ) -> u64 {
        self.numbers += 1;
        let exchange = BmcExchange {
            node,
            origin,
            order,
            requested_at,
            reach,
            protocol,
        };
        self.exchanges.insert(self.numbers, exchange);
        self.numbers
    }

    /// Gives an order to a protocol, and to another one if the first one forwards it.
    fn give_order(
        &mut self,
        context: &mut BmcContext,
        node: &Node,
        mut at: usize,
        (number, order): (u64, PowerOrder),
    ) -> Result<(), PowerError> {
        let macs = context.nodes.macs(node.id);
        let target = BmcTarget {
            node,
            macs: &macs,
            boots_agent: context.nodes.boots_agent(node),
        };
        // A protocol never forwards to itself, so each has at most one turn.
        for _ in 0..self.protocols.len() {
            if self.protocols[at].bmc_identity(node).is_some()
                && let Some(error) = self.shared_bmc(context, node.id)
            {
                return Err(error);
            }
            let context = &mut context.of_protocol();
            match self.protocols[at].order(context, &target, number, order)? {
                BmcOrderStep::Taken => return Ok(()),
                BmcOrderStep::Forward(power) => {
                    at = self.serving(node, Some(BmcInterface::Power(power)))?;
                }
            }
        }
        Err(NOT_SERVED)
    }

    /// No protocol accepted this request.
    fn rejected(&mut self, context: &mut BmcContext, number: u64, error: PowerError) {
        let Some(exchange) = self.exchanges.remove(&number) else {
            return;
        };
        match exchange.order {
            Some(order) => self.route_answer(context, number, &exchange, order, Err(error)),
            None => self.route_reply(&exchange, Err(error)),
        }
    }

    fn order_answered(
        &mut self,
        context: &mut BmcContext,
        number: u64,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        let Some(exchange) = self.exchanges.remove(&number) else {
            return;
        };
        self.record_end(context.now, &exchange, answer.as_ref().err());
        if let Some(order) = exchange.order {
            self.route_answer(context, number, &exchange, order, answer);
        }
    }

    fn request_answered(
        &mut self,
        context: &mut BmcContext,
        number: u64,
        reply: Result<BmcReply, PowerError>,
    ) {
        let Some(exchange) = self.exchanges.remove(&number) else {
            return;
        };
        self.record_end(context.now, &exchange, reply.as_ref().err());
        self.route_reply(&exchange, reply);
    }

    /// The answer to an order goes to its origin.
    fn route_answer(
        &mut self,
        context: &mut BmcContext,
        number: u64,
        exchange: &BmcExchange,
        order: PowerOrder,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        let node = exchange.node;
        if order.at_most_once() {
            self.note_single_order(node, order, &answer);
        }
        if let (true, Ok(_), Some(order)) = (exchange.reach.answers(), &answer, order.switches()) {
            self.note(node, NoteKind::PowerAccepted { order });
        }
        match exchange.origin {
            BmcRequestOrigin::PowerSync => self.sync_answered(context, node, answer),
            BmcRequestOrigin::PowerChange => self.change_answered(context, node, number, answer),
            BmcRequestOrigin::Vendor { ticket } => {
                self.vendor_order_answered(node, ticket, answer);
            }
            // These are requests, not orders.
            BmcRequestOrigin::Medium { .. } | BmcRequestOrigin::Mailbox(_) => {}
            BmcRequestOrigin::Order(owner) => {
                if let (Err(error), false) = (&answer, order.at_most_once()) {
                    self.note(node, power_failed(error));
                }
                self.outcomes.push_back(BmcOutcome::OrderCompleted {
                    node,
                    owner,
                    order,
                    result: answer,
                });
            }
        }
    }

    /// Reads the power states that are due.
    fn sync_power_states(&mut self, context: &mut BmcContext) {
        let Some(every_ms) = context.limits.power_sync_interval_ms else {
            return;
        };
        while let Some(id) = self.sync.take_due(context.now) {
            let Some(node) = context.nodes.node(id) else {
                continue;
            };
            let doublings = self.health.doublings(id);
            self.sync
                .schedule_next(context.now, node, doublings, every_ms);
            let fit = self.is_idle(node) && !self.conflicts.is_conflicting(id);
            if fit && self.sync.begin(id) {
                let origin = BmcRequestOrigin::PowerSync;
                self.send(context, id, PowerOrder::Status, origin);
            }
        }
    }

    /// Whether no job or order uses the node's BMC, and it has one to read.
    fn is_idle(&self, node: &Node) -> bool {
        node.job.is_none()
            && node.target_power_state.is_none()
            && (!node.maintenance || node.has_power_failure())
            && node.provision_state != ProvisionState::Enroll
            && self.power_reach(node).is_some_and(BmcReach::answers)
    }

    fn sync_answered(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        let Some(node) = context.nodes.node(id) else {
            return;
        };
        // A job that started meanwhile reads the state itself and reports its own errors.
        let idle = self.is_idle(node);
        match answer {
            Ok(answer) => {
                let fault = self.sync.succeeded(id).map(BmcOutcome::FaultCleared);
                self.outcomes.extend(fault);
                if idle {
                    let node = id;
                    self.outcomes
                        .push_back(BmcOutcome::PowerRead { node, answer });
                }
            }
            Err(error) => {
                let most = context.limits.power_sync_retries_max;
                let most = if idle && !node.maintenance { most } else { 0 };
                let failure = self.sync.failed(node, &error, most);
                let ended = failure.ended.map(BmcOutcome::FaultCleared);
                let raised = failure.raised.map(BmcOutcome::FaultRaised);
                self.outcomes.extend(ended.into_iter().chain(raised));
                if failure.gives_up {
                    let node = id;
                    self.outcomes
                        .push_back(BmcOutcome::PowerUnreadable { node, error });
                }
            }
        }
    }

    /// The records of these nodes changed: which BMC they name, or their labels. Raises and clears
    /// the faults of nodes that name the same BMC.
    pub fn records_changed(
        &mut self,
        context: &mut BmcContext,
        changed: impl IntoIterator<Item = NodeId>,
    ) {
        let mut touched = std::collections::BTreeSet::new();
        for id in changed {
            let node = context.nodes.node(id);
            let named = node.and_then(|node| Some((self.identity_of(node)?, node.serial)));
            touched.extend(self.conflicts.update(id, named));
            // Its label may have changed.
            touched.extend(self.conflicts.bmc_of(id).map(str::to_owned));
        }
        let ended = self.conflicts.take_ended_faults().into_iter();
        self.outcomes.extend(ended.map(BmcOutcome::FaultCleared));
        for bmc in touched {
            self.update_conflict_faults(context, &bmc);
        }
    }

    /// The node that would lose its BMC if the record `new` replaced `old`: it uses the BMC that
    /// only `new` names, and is younger.
    pub fn displaced_node(&self, old: &Node, new: &Node) -> Option<NodeId> {
        let bmc = self.identity_of(new)?;
        let is_new = self.identity_of(old).as_ref() != Some(&bmc);
        let younger = self.conflicts.younger_holder(&bmc, old.serial);
        younger.filter(|_| is_new)
    }

    /// What identifies the BMC that a node names, by the first protocol that serves one of its
    /// interfaces and has BMCs.
    fn identity_of(&self, node: &Node) -> Option<String> {
        let interfaces = [
            power_interface(node).map(BmcInterface::Power),
            management_interface(node).map(BmcInterface::Management),
            vendor_interface(node).map(BmcInterface::Vendor),
        ];
        let mut protocols = self.protocols.iter();
        protocols.find_map(|protocol| {
            let mut served = interfaces.iter().flatten();
            served
                .any(|interface| protocol.serves(node, *interface))
                .then(|| protocol.bmc_identity(node))?
        })
    }

    fn update_conflict_faults(&mut self, context: &mut BmcContext, bmc: &str) {
        let Some(holder) = self.conflicts.holder(bmc) else {
            return;
        };
        let nodes = context.nodes;
        let label = |id| nodes.node(id).map_or_else(String::new, Node::label);
        for id in self.conflicts.conflicting_nodes(bmc) {
            for protocol in &mut self.protocols {
                protocol.remove(&mut context.of_protocol(), id);
            }
            let fault = BoxFault::BmcShared {
                node: label(id),
                other: label(holder),
                address: bmc.to_owned(),
            };
            let old = self.conflicts.set_fault(id, fault.clone());
            self.outcomes.extend(old.map(BmcOutcome::FaultCleared));
            self.outcomes.push_back(BmcOutcome::FaultRaised(fault));
        }
    }
}
