//! IPMI as a protocol of [`trivet_bmc::Bmcs`]: one session for each BMC that was used.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use trivet_bmc::{
    BmcInterface, BmcMessage, BmcOrderStep, BmcProtocol, BmcProtocolContext, BmcProtocolEvent,
    BmcReach, BmcTarget, BmcTransmit, driver_info_changed,
};
use trivet_model::interface::{ManagementInterface, PowerInterface, VendorInterface};
use trivet_model::node::JsonObject;
use trivet_model::{BmcRequest, Entropy, Node, NodeId, PowerError, PowerOrder, Tick};

use crate::{IpmiSession, IpmiTiming, ipmi_address, ipmi_target};

/// All sessions.
pub struct IpmiProtocol {
    pace: IpmiTiming,
    sessions: BTreeMap<NodeId, IpmiNodeSession>,
    by_address: BTreeMap<SocketAddr, NodeId>,
    deadlines: BTreeSet<(Tick, NodeId)>,
    /// Sessions that may have something to send.
    ready: VecDeque<NodeId>,
    events: VecDeque<BmcProtocolEvent>,
    /// Logout messages to BMCs.
    logout_datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
}

struct IpmiNodeSession {
    address: SocketAddr,
    /// What the session was made from: a change of `driver_info` makes a new one.
    info: JsonObject,
    session: IpmiSession,
    /// The numbers of the orders and requests that are not answered yet.
    orders: BTreeSet<u64>,
    requests: BTreeSet<u64>,
    deadline: Option<Tick>,
}

impl IpmiNodeSession {
    fn is_idle(&self) -> bool {
        self.orders.is_empty() && self.requests.is_empty()
    }
}

impl IpmiProtocol {
    /// No session yet; requests are repeated at this pace.
    pub fn new(timing: IpmiTiming) -> Self {
        Self {
            pace: timing,
            sessions: BTreeMap::new(),
            by_address: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            logout_datagrams: VecDeque::new(),
        }
    }

    fn session(
        &mut self,
        node: &Node,
        entropy: &mut dyn Entropy,
    ) -> Result<&mut IpmiNodeSession, PowerError> {
        let line = self.sessions.get(&node.id);
        if line.is_none_or(|line| line.info != node.driver_info) {
            self.open(node, entropy)?;
        }
        self.sessions.get_mut(&node.id).ok_or(PowerError::QueueFull)
    }

    fn open(&mut self, node: &Node, entropy: &mut dyn Entropy) -> Result<(), PowerError> {
        self.close(node.id, entropy);
        let address = ipmi_address(&node.driver_info)?;
        // Two nodes with one BMC address would receive each other's replies. A session without
        // work belongs to a node whose driver_info was changed since: it is replaced.
        if let Some(&other) = self.by_address.get(&address) {
            if !self
                .sessions
                .get(&other)
                .is_none_or(IpmiNodeSession::is_idle)
            {
                let other = other.to_string();
                return Err(PowerError::SharedBmc { other });
            }
            self.close(other, entropy);
        }
        let target = ipmi_target(&node.driver_info)?;
        let line = IpmiNodeSession {
            address,
            info: node.driver_info.clone(),
            session: IpmiSession::new(target, self.pace),
            orders: BTreeSet::new(),
            requests: BTreeSet::new(),
            deadline: None,
        };
        self.by_address.insert(address, node.id);
        self.sessions.insert(node.id, line);
        Ok(())
    }

    /// Ends a session: its orders fail, and the BMC receives a logout.
    fn close(&mut self, id: NodeId, entropy: &mut dyn Entropy) {
        let Some(mut line) = self.sessions.remove(&id) else {
            return;
        };
        let words = line.session.abort(entropy).into_iter();
        self.logout_datagrams
            .extend(words.map(|bytes| (line.address, bytes)));
        self.by_address.remove(&line.address);
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
        if let Some(deadline) = line.deadline {
            self.deadlines.remove(&(deadline, id));
        }
    }

    /// A session may have finished an order, or have something to send.
    fn mark_ready(&mut self, id: NodeId) {
        self.take_answers(id);
        self.refresh_deadline(id);
        if !self.ready.contains(&id) {
            self.ready.push_back(id);
        }
    }

    fn take_answers(&mut self, id: NodeId) {
        let Some(line) = self.sessions.get_mut(&id) else {
            return;
        };
        while let Some((number, answer)) = line.session.answer() {
            line.orders.remove(&number);
            let event = BmcProtocolEvent::OrderAnswered { number, answer };
            self.events.push_back(event);
        }
        while let Some((number, reply)) = line.session.reply() {
            line.requests.remove(&number);
            let reply = reply.map(crate::to_bmc_reply);
            let event = BmcProtocolEvent::RequestAnswered { number, reply };
            self.events.push_back(event);
        }
    }

    fn refresh_deadline(&mut self, id: NodeId) {
        let Some(line) = self.sessions.get_mut(&id) else {
            return;
        };
        let deadline = line.session.deadline();
        if line.deadline != deadline {
            if let Some(old) = std::mem::replace(&mut line.deadline, deadline) {
                self.deadlines.remove(&(old, id));
            }
            self.deadlines.extend(deadline.map(|at| (at, id)));
        }
    }
}

impl BmcProtocol for IpmiProtocol {
    fn name(&self) -> &'static str {
        "ipmi"
    }

    fn serves(&self, _: &Node, interface: BmcInterface) -> bool {
        matches!(
            interface,
            BmcInterface::Power(PowerInterface::Ipmitool)
                | BmcInterface::Management(ManagementInterface::Ipmitool)
                | BmcInterface::Vendor(VendorInterface::Ipmitool)
        )
    }

    fn reach(&self) -> BmcReach {
        BmcReach::Bmc
    }

    fn bmc_identity(&self, node: &Node) -> Option<String> {
        let address = ipmi_address(&node.driver_info).ok()?;
        Some(address.to_string())
    }

    fn order(
        &mut self,
        context: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError> {
        let line = self.session(target.node, context.entropy)?;
        line.session
            .order(context.now, number, order, context.entropy)?;
        line.orders.insert(number);
        self.mark_ready(target.node.id);
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
        let line = self.session(target.node, context.entropy)?;
        line.session
            .operation(context.now, number, operation, context.entropy)?;
        line.requests.insert(number);
        self.mark_ready(target.node.id);
        Ok(())
    }

    fn receive(
        &mut self,
        context: &mut BmcProtocolContext,
        message: BmcMessage,
    ) -> Option<BmcMessage> {
        let (BmcMessage::Datagram { from: peer, .. } | BmcMessage::Undelivered { to: peer, .. }) =
            &message
        else {
            return Some(message);
        };
        let Some(&id) = self.by_address.get(peer) else {
            return Some(message);
        };
        if let Some(line) = self.sessions.get_mut(&id) {
            match &message {
                BmcMessage::Datagram { bytes, .. } => {
                    line.session.datagram(context.now, bytes, context.entropy);
                }
                BmcMessage::Undelivered { reason, .. } => line.session.undelivered(*reason),
                _ => {}
            }
            self.mark_ready(id);
        }
        None
    }

    fn deadline(&self) -> Option<Tick> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn tick(&mut self, context: &mut BmcProtocolContext) {
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= context.now
        {
            self.deadlines.pop_first();
            if let Some(line) = self.sessions.get_mut(&id) {
                line.deadline = None;
                line.session.tick(context.now, context.entropy);
                self.mark_ready(id);
            }
        }
    }

    fn remove(&mut self, context: &mut BmcProtocolContext, node: NodeId) {
        self.close(node, context.entropy);
    }

    fn next_event(&mut self) -> Option<BmcProtocolEvent> {
        self.events.pop_front()
    }

    fn next_transmit(&mut self, _: Tick, _: &mut u64) -> Option<BmcTransmit> {
        if let Some((to, bytes)) = self.logout_datagrams.pop_front() {
            return Some(BmcTransmit::Datagram { to, bytes });
        }
        while let Some(&id) = self.ready.front() {
            if let Some(line) = self.sessions.get_mut(&id)
                && let Some(bytes) = line.session.transmit()
            {
                let to = line.address;
                return Some(BmcTransmit::Datagram { to, bytes });
            }
            self.ready.pop_front();
            self.refresh_deadline(id);
        }
        None
    }
}
