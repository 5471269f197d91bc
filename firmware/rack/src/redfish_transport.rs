//! Sessions with BMCs that use Redfish.
//!
//! Each node has a session of its own. Nodes may share an address, as the systems of one
//! chassis do: their requests are queued there and sent one at a time, with a pause after each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_bmc_redfish::{
    RedfishOrigin, RedfishRequest, RedfishResponse, RedfishSession, RedfishTarget,
    RedfishTransportError,
};
use trivet_model::node::JsonObject;
use trivet_model::{BmcReply, BmcRequest, Node, NodeId, PowerAnswer, PowerError, PowerOrder, Tick};

use crate::ipmi_transport::driver_info_changed;

/// Pause after each response of a BMC. Ours: their processors are small.
pub(crate) const GAP_MS: u64 = 50;
/// Most requests that are queued for one address: one of each node, and logouts, which are
/// dropped when there are more. Ours.
const QUEUED_REQUESTS_MAX: usize = 4096;

/// A request that may be sent now.
pub(crate) struct OutgoingRedfishRequest {
    pub(crate) node: NodeId,
    pub(crate) call: u64,
    pub(crate) target: Box<RedfishTarget>,
    pub(crate) request: RedfishRequest,
}

/// The node, the order and when it was sent, and the reply.
type RedfishOrderReply = (NodeId, (PowerOrder, Tick), Result<PowerAnswer, PowerError>);
type RedfishBmcReply = (NodeId, u64, Result<BmcReply, PowerError>);

/// One session per node, one request at a time per BMC.
#[derive(Default)]
pub(crate) struct RedfishTransport {
    sessions: BTreeMap<NodeId, RedfishNodeSession>,
    bmcs: BTreeMap<RedfishOrigin, RedfishBmcQueue>,
    /// Addresses where the next request may be sent.
    ready: VecDeque<RedfishOrigin>,
    /// The node whose request is under way, by its number.
    in_flight: BTreeMap<u64, (RedfishOrigin, NodeId)>,
    /// When a session has something to send.
    wakes: BTreeSet<(Tick, NodeId)>,
    /// When the pause of a BMC ends.
    pauses: BTreeSet<(Tick, RedfishOrigin)>,
    answers: VecDeque<RedfishOrderReply>,
    bmc_replies: VecDeque<RedfishBmcReply>,
    numbers: u64,
}

struct RedfishNodeSession {
    /// What the session was made from: a change of `driver_info` makes a new one.
    info: JsonObject,
    target: RedfishTarget,
    session: RedfishSession,
    /// The order under each number, and when it was sent.
    orders: BTreeMap<u64, (PowerOrder, Tick)>,
    /// BMC requests under the session's numbers, with the numbers of the callers.
    bmc_requests: BTreeMap<u64, u64>,
    call: Option<u64>,
    wake: Option<Tick>,
}

/// The queue of one address.
#[derive(Default)]
struct RedfishBmcQueue {
    /// A request is under way, or the pause after one is.
    busy: bool,
    requests: VecDeque<QueuedRedfishRequest>,
}

enum QueuedRedfishRequest {
    Node(NodeId),
    /// The logout of a session that was removed.
    Logout(NodeId, Box<RedfishTarget>, RedfishRequest),
}

impl RedfishTransport {
    pub(crate) fn deadline(&self) -> Option<Tick> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        let rest = self.pauses.first().map(|(at, _)| *at);
        wake.into_iter().chain(rest).min()
    }

    pub(crate) fn order(
        &mut self,
        now: Tick,
        node: &Node,
        order: PowerOrder,
    ) -> Result<(), PowerError> {
        self.numbers += 1;
        let number = self.numbers;
        let line = self.session(node)?;
        line.session.order(now, number, order)?;
        line.orders.insert(number, (order, now));
        self.mark_ready(now, node.id);
        Ok(())
    }

    /// Queues a BMC request; [`Self::bmc_reply`] returns its reply under `asked`.
    pub(crate) fn send_bmc_request(
        &mut self,
        now: Tick,
        node: &Node,
        asked: u64,
        bmc_request: &BmcRequest,
    ) -> Result<(), PowerError> {
        let bmc_request = trivet_bmc_redfish::to_operation(bmc_request)?;
        self.numbers += 1;
        let number = self.numbers;
        let line = self.session(node)?;
        line.session.operation(now, number, bmc_request)?;
        line.bmc_requests.insert(number, asked);
        self.mark_ready(now, node.id);
        Ok(())
    }

    fn session(&mut self, node: &Node) -> Result<&mut RedfishNodeSession, PowerError> {
        let id = node.id;
        let line = self.sessions.get(&id);
        if line.is_none_or(|line| line.info != node.driver_info) {
            self.remove(id);
            let target = RedfishTarget::of(&node.driver_info)?;
            let line = RedfishNodeSession {
                info: node.driver_info.clone(),
                session: RedfishSession::new(target.clone()),
                target,
                orders: BTreeMap::new(),
                bmc_requests: BTreeMap::new(),
                call: None,
                wake: None,
            };
            self.sessions.insert(id, line);
        }
        self.sessions.get_mut(&id).ok_or(PowerError::QueueFull)
    }

    /// Removes a session: its orders fail. The logout is queued.
    pub(crate) fn remove(&mut self, id: NodeId) {
        let Some(mut line) = self.sessions.remove(&id) else {
            return;
        };
        if let Some(wake) = line.wake {
            self.wakes.remove(&(wake, id));
        }
        let orders = line.orders.into_values();
        let orders = orders.map(|order| (id, order, Err(driver_info_changed())));
        self.answers.extend(orders);
        let bmc_requests = line.bmc_requests.into_values();
        self.bmc_replies
            .extend(bmc_requests.map(|asked| (id, asked, Err(driver_info_changed()))));
        if let Some(request) = line.session.logout_request() {
            let address = line.target.address.clone();
            let turn = QueuedRedfishRequest::Logout(id, Box::new(line.target), request);
            self.enqueue(address, turn);
        }
    }

    fn enqueue(&mut self, address: RedfishOrigin, turn: QueuedRedfishRequest) {
        let bmc = self.bmcs.entry(address.clone()).or_default();
        let queued = |id: NodeId| {
            let mut turns = bmc.requests.iter();
            turns.any(|turn| matches!(turn, QueuedRedfishRequest::Node(node) if *node == id))
        };
        match turn {
            QueuedRedfishRequest::Node(id) if queued(id) => return,
            QueuedRedfishRequest::Logout(..) if bmc.requests.len() >= QUEUED_REQUESTS_MAX => return,
            turn => bmc.requests.push_back(turn),
        }
        if !bmc.busy {
            self.ready.push_back(address);
        }
    }

    /// Handles the response to a request, or why there is none. A response to a removed session
    /// only lets the next request be sent.
    pub(crate) fn answered(
        &mut self,
        now: Tick,
        call: u64,
        result: Result<RedfishResponse, RedfishTransportError>,
    ) {
        let Some((address, id)) = self.in_flight.remove(&call) else {
            return;
        };
        self.pauses.insert((now.after_ms(GAP_MS), address));
        if let Some(line) = self.sessions.get_mut(&id)
            && line.call == Some(call)
        {
            line.call = None;
            line.session.handle_response(now, result);
            self.mark_ready(now, id);
        }
    }

    pub(crate) fn tick(&mut self, now: Tick) {
        while let Some(&(at, id)) = self.wakes.first()
            && at <= now
        {
            self.wakes.pop_first();
            if let Some(line) = self.sessions.get_mut(&id) {
                line.wake = None;
            }
            self.mark_ready(now, id);
        }
        while self.pauses.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, address)) = self.pauses.pop_first() else {
                return;
            };
            match self.bmcs.get_mut(&address) {
                Some(bmc) if bmc.requests.is_empty() => {
                    self.bmcs.remove(&address);
                }
                Some(bmc) => {
                    bmc.busy = false;
                    self.ready.push_back(address);
                }
                None => {}
            }
        }
    }

    /// A session may have finished an order, or have something to send now or later.
    fn mark_ready(&mut self, now: Tick, id: NodeId) {
        let Some(line) = self.sessions.get_mut(&id) else {
            return;
        };
        while let Some((number, answer)) = line.session.answer() {
            if let Some(order) = line.orders.remove(&number) {
                self.answers.push_back((id, order, answer));
            }
        }
        while let Some((number, report)) = line.session.reply() {
            if let Some(asked) = line.bmc_requests.remove(&number) {
                let found = report.map(trivet_bmc_redfish::to_bmc_reply);
                self.bmc_replies.push_back((id, asked, found));
            }
        }
        if let Some(old) = line.wake.take() {
            self.wakes.remove(&(old, id));
        }
        match line.session.deadline() {
            Some(due) if due > now => {
                line.wake = Some(due);
                self.wakes.insert((due, id));
            }
            Some(_) => {
                let address = line.target.address.clone();
                self.enqueue(address, QueuedRedfishRequest::Node(id));
            }
            None => {}
        }
    }

    /// The next reply of any BMC.
    pub(crate) fn answer(&mut self) -> Option<RedfishOrderReply> {
        self.answers.pop_front()
    }

    /// The next finished BMC request of any BMC.
    pub(crate) fn bmc_reply(&mut self) -> Option<RedfishBmcReply> {
        self.bmc_replies.pop_front()
    }

    /// The next request to any BMC that is free. Its number is the next of `calls`.
    pub(crate) fn transmit(
        &mut self,
        now: Tick,
        calls: &mut u64,
    ) -> Option<OutgoingRedfishRequest> {
        while let Some(address) = self.ready.front() {
            let bmc = self.bmcs.get_mut(address).filter(|bmc| !bmc.busy);
            let Some(turn) = bmc.and_then(|bmc| bmc.requests.pop_front()) else {
                self.ready.pop_front();
                continue;
            };
            let (node, target, request) = match turn {
                QueuedRedfishRequest::Logout(id, target, request) => (id, target, request),
                QueuedRedfishRequest::Node(id) => {
                    let Some(line) = self.sessions.get_mut(&id) else {
                        continue;
                    };
                    let Some(request) = line.session.transmit(now) else {
                        continue;
                    };
                    line.call = Some(*calls + 1);
                    (id, Box::new(line.target.clone()), request)
                }
            };
            *calls += 1;
            let address = target.address.clone();
            if let Some(bmc) = self.bmcs.get_mut(&address) {
                bmc.busy = true;
            }
            self.in_flight.insert(*calls, (address, node));
            return Some(OutgoingRedfishRequest {
                node,
                call: *calls,
                target,
                request,
            });
        }
        None
    }
}
