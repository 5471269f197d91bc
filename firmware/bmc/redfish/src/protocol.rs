//! Redfish as a protocol of [`trivet_bmc::Bmcs`].
//!
//! Each node has a session of its own. Nodes may share an address, as the systems of one
//! chassis do: their requests are queued there and sent one at a time, with a pause after each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_bmc::http::{BmcHttpError, BmcHttpOrigin, BmcHttpRequest, BmcHttpResponse};
use trivet_bmc::{
    BmcHttpCall, BmcInterface, BmcMessage, BmcOrderStep, BmcProtocol, BmcProtocolContext,
    BmcProtocolEvent, BmcReach, BmcTarget, BmcTransmit, driver_info_changed,
};
use trivet_model::interface::{ManagementInterface, PowerInterface, VendorInterface};
use trivet_model::node::JsonObject;
use trivet_model::power::HardwareHealth;
use trivet_model::{BmcRequest, Node, NodeId, PowerError, PowerOrder, Tick};

use crate::{RedfishSession, RedfishTarget};

/// Pause after each response of a BMC. Ours: their processors are small.
pub const REQUEST_GAP_MS: u64 = 50;
/// Most requests that are queued for one address: one of each node, and logouts, which are
/// dropped when there are more. Ours.
const QUEUED_REQUESTS_MAX: usize = 4096;

/// One session per node, one request at a time per BMC.
#[derive(Default)]
pub struct RedfishProtocol {
    sessions: BTreeMap<NodeId, RedfishNodeSession>,
    bmcs: BTreeMap<BmcHttpOrigin, RedfishBmcQueue>,
    /// Addresses where the next request may be sent.
    ready: VecDeque<BmcHttpOrigin>,
    /// The node whose request is under way, by its number.
    in_flight: BTreeMap<u64, (BmcHttpOrigin, NodeId)>,
    /// When a session has something to send.
    wakes: BTreeSet<(Tick, NodeId)>,
    /// When the pause of a BMC ends.
    pauses: BTreeSet<(Tick, BmcHttpOrigin)>,
    events: VecDeque<BmcProtocolEvent>,
}

struct RedfishNodeSession {
    /// What the session was made from: a change of `driver_info` makes a new one.
    info: JsonObject,
    target: RedfishTarget,
    session: RedfishSession,
    /// The numbers of the orders and requests that are not answered yet.
    orders: BTreeSet<u64>,
    requests: BTreeSet<u64>,
    /// The state of the hardware that was reported.
    health: Option<HardwareHealth>,
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
    Logout(NodeId, Box<RedfishTarget>, BmcHttpRequest),
}

impl RedfishProtocol {
    fn session(&mut self, node: &Node) -> Result<&mut RedfishNodeSession, PowerError> {
        let id = node.id;
        let line = self.sessions.get(&id);
        if line.is_none_or(|line| line.info != node.driver_info) {
            self.close(id);
            let target = RedfishTarget::of(&node.driver_info)?;
            let line = RedfishNodeSession {
                info: node.driver_info.clone(),
                session: RedfishSession::new(target.clone()),
                target,
                orders: BTreeSet::new(),
                requests: BTreeSet::new(),
                health: None,
                call: None,
                wake: None,
            };
            self.sessions.insert(id, line);
        }
        self.sessions.get_mut(&id).ok_or(PowerError::QueueFull)
    }

    /// Ends a session: its orders fail. The logout is queued.
    fn close(&mut self, id: NodeId) {
        let Some(mut line) = self.sessions.remove(&id) else {
            return;
        };
        if let Some(wake) = line.wake {
            self.wakes.remove(&(wake, id));
        }
        if line.health.is_some() {
            // It was that of another BMC, or of a node that is gone.
            let (node, health) = (id, None);
            self.events
                .push_back(BmcProtocolEvent::HardwareHealth { node, health });
        }
        let orders = line.orders.into_iter();
        self.events
            .extend(orders.map(|number| BmcProtocolEvent::OrderAnswered {
                number,
                answer: Err(driver_info_changed()),
            }));
        let requests = line.requests.into_iter();
        self.events
            .extend(requests.map(|number| BmcProtocolEvent::RequestAnswered {
                number,
                reply: Err(driver_info_changed()),
            }));
        if let Some(request) = line.session.logout_request() {
            let address = line.target.address.clone();
            let queued = QueuedRedfishRequest::Logout(id, Box::new(line.target), request);
            self.enqueue(address, queued);
        }
    }

    fn enqueue(&mut self, address: BmcHttpOrigin, request: QueuedRedfishRequest) {
        let bmc = self.bmcs.entry(address.clone()).or_default();
        let queued = |id: NodeId| {
            let mut requests = bmc.requests.iter();
            requests
                .any(|request| matches!(request, QueuedRedfishRequest::Node(node) if *node == id))
        };
        match request {
            QueuedRedfishRequest::Node(id) if queued(id) => return,
            QueuedRedfishRequest::Logout(..) if bmc.requests.len() >= QUEUED_REQUESTS_MAX => return,
            request => bmc.requests.push_back(request),
        }
        if !bmc.busy {
            self.ready.push_back(address);
        }
    }

    /// Handles the response to a request, or why there is none. A response to a removed session
    /// only lets the next request be sent.
    fn answered(&mut self, now: Tick, call: u64, result: Result<BmcHttpResponse, BmcHttpError>) {
        let Some((address, id)) = self.in_flight.remove(&call) else {
            return;
        };
        self.pauses.insert((now.after_ms(REQUEST_GAP_MS), address));
        if let Some(line) = self.sessions.get_mut(&id)
            && line.call == Some(call)
        {
            line.call = None;
            line.session.handle_response(now, result);
            self.mark_ready(now, id);
        }
    }

    /// A session may have finished an order, or have something to send now or later.
    fn mark_ready(&mut self, now: Tick, id: NodeId) {
        let Some(line) = self.sessions.get_mut(&id) else {
            return;
        };
        if let Some(health) = line.session.changed_health() {
            line.health = health;
            let event = BmcProtocolEvent::HardwareHealth { node: id, health };
            self.events.push_back(event);
        }
        while let Some((number, answer)) = line.session.answer() {
            if line.orders.remove(&number) {
                let event = BmcProtocolEvent::OrderAnswered { number, answer };
                self.events.push_back(event);
            }
        }
        while let Some((number, reply)) = line.session.reply() {
            if line.requests.remove(&number) {
                let reply = reply.map(crate::to_bmc_reply);
                let event = BmcProtocolEvent::RequestAnswered { number, reply };
                self.events.push_back(event);
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
}

impl BmcProtocol for RedfishProtocol {
    fn name(&self) -> &'static str {
        "redfish"
    }

    fn serves(&self, _: &Node, interface: BmcInterface) -> bool {
        matches!(
            interface,
            BmcInterface::Power(PowerInterface::Redfish)
                | BmcInterface::Management(ManagementInterface::Redfish)
                | BmcInterface::Vendor(VendorInterface::Redfish)
        )
    }

    fn reach(&self) -> BmcReach {
        BmcReach::Bmc
    }

    fn resets_bmc_by_management(&self) -> bool {
        true
    }

    /// With the system, because the systems of one chassis share a BMC.
    fn bmc_identity(&self, node: &Node) -> Option<String> {
        let target = RedfishTarget::of(&node.driver_info).ok()?;
        let system = target.system.unwrap_or_default();
        Some(format!("{}{system}", target.address))
    }

    fn order(
        &mut self,
        context: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError> {
        let line = self.session(target.node)?;
        line.session.order(context.now, number, order)?;
        line.orders.insert(number);
        self.mark_ready(context.now, target.node.id);
        Ok(BmcOrderStep::Taken)
    }

    fn request(
        &mut self,
        context: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        request: &BmcRequest,
    ) -> Result<(), PowerError> {
        let operation = crate::to_operation(request)?;
        let line = self.session(target.node)?;
        line.session.operation(context.now, number, operation)?;
        line.requests.insert(number);
        self.mark_ready(context.now, target.node.id);
        Ok(())
    }

    fn receive(
        &mut self,
        context: &mut BmcProtocolContext,
        message: BmcMessage,
    ) -> Option<BmcMessage> {
        match message {
            BmcMessage::HttpAnswered { call, result, .. } if self.in_flight.contains_key(&call) => {
                self.answered(context.now, call, result);
                None
            }
            other => Some(other),
        }
    }

    fn deadline(&self) -> Option<Tick> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        let pause = self.pauses.first().map(|(at, _)| *at);
        wake.into_iter().chain(pause).min()
    }

    fn tick(&mut self, context: &mut BmcProtocolContext) {
        let now = context.now;
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

    fn remove(&mut self, _: &mut BmcProtocolContext, node: NodeId) {
        self.close(node);
    }

    fn next_event(&mut self) -> Option<BmcProtocolEvent> {
        self.events.pop_front()
    }

    fn next_transmit(&mut self, now: Tick, calls: &mut u64) -> Option<BmcTransmit> {
        while let Some(address) = self.ready.front() {
            let bmc = self.bmcs.get_mut(address).filter(|bmc| !bmc.busy);
            let Some(queued) = bmc.and_then(|bmc| bmc.requests.pop_front()) else {
                self.ready.pop_front();
                continue;
            };
            let (node, target, request) = match queued {
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
            return Some(BmcTransmit::Http(Box::new(BmcHttpCall {
                node,
                call: *calls,
                target: target.http_target(),
                request,
            })));
        }
        None
    }
}
