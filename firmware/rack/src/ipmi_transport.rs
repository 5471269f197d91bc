//! Sessions with BMCs that use IPMI.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use trivet_bmc_ipmi::{IpmiSession, IpmiTiming, ipmi_address, ipmi_target};
use trivet_model::node::JsonObject;
use trivet_model::{
    BmcReply, BmcRequest, Entropy, Node, NodeId, PowerAnswer, PowerError, PowerOrder, Tick,
};

/// One session for each BMC that was used.
pub(crate) struct IpmiTransport {
    pace: IpmiTiming,
    sessions: BTreeMap<NodeId, IpmiNodeSession>,
    by_address: BTreeMap<SocketAddr, NodeId>,
    deadlines: BTreeSet<(Tick, NodeId)>,
    /// Sessions that may have something to send or a reply to deliver.
    ready: VecDeque<NodeId>,
    /// Orders and BMC requests whose session was removed while they ran.
    lost_orders: VecDeque<(NodeId, (PowerOrder, Tick))>,
    lost_bmc_requests: VecDeque<(NodeId, u64)>,
    /// Logout messages to BMCs.
    logout_datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    numbers: u64,
}

/// The node, the order and when it was sent, and the reply.
type IpmiOrderReply = (NodeId, (PowerOrder, Tick), Result<PowerAnswer, PowerError>);

struct IpmiNodeSession {
    address: SocketAddr,
    /// What the session was made from: a change of `driver_info` makes a new one.
    info: JsonObject,
    session: IpmiSession,
    /// The order under each number, and when it was sent.
    orders: BTreeMap<u64, (PowerOrder, Tick)>,
    bmc_requests: BTreeSet<u64>,
    deadline: Option<Tick>,
}

impl IpmiTransport {
    pub(crate) fn new(pace: IpmiTiming) -> Self {
        Self {
            pace,
            sessions: BTreeMap::new(),
            by_address: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            lost_orders: VecDeque::new(),
            lost_bmc_requests: VecDeque::new(),
            logout_datagrams: VecDeque::new(),
            numbers: 0,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(crate) fn order(
        &mut self,
        now: Tick,
        node: &Node,
        order: PowerOrder,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        self.numbers += 1;
        let number = self.numbers;
        let line = self.session(node, entropy)?;
        line.session.order(now, number, order, entropy)?;
        line.orders.insert(number, (order, now));
        self.mark_ready(node.id);
        Ok(())
    }

    /// Queues a BMC request; [`Self::bmc_reply`] returns its reply under the same number.
    pub(crate) fn send_bmc_request(
        &mut self,
        now: Tick,
        node: &Node,
        number: u64,
        bmc_request: &BmcRequest,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        let bmc_request = trivet_bmc_ipmi::to_operation(bmc_request)?;
        let line = self.session(node, entropy)?;
        line.session.operation(now, number, bmc_request, entropy)?;
        line.bmc_requests.insert(number);
        self.mark_ready(node.id);
        Ok(())
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
        self.remove(node.id, entropy);
        let address = ipmi_address(&node.driver_info)?;
        // Two nodes with one BMC address would receive each other's replies. A session without
        // work belongs to a node whose driver_info was changed since: it is replaced.
        if let Some(&other) = self.by_address.get(&address) {
            let is_idle =
                |line: &IpmiNodeSession| line.orders.is_empty() && line.bmc_requests.is_empty();
            if !self.sessions.get(&other).is_none_or(is_idle) {
                let other = other.to_string();
                return Err(PowerError::SharedBmc { other });
            }
            self.remove(other, entropy);
        }
        let target = ipmi_target(&node.driver_info)?;
        let line = IpmiNodeSession {
            address,
            info: node.driver_info.clone(),
            session: IpmiSession::new(target, self.pace),
            orders: BTreeMap::new(),
            bmc_requests: BTreeSet::new(),
            deadline: None,
        };
        self.by_address.insert(address, node.id);
        self.sessions.insert(node.id, line);
        Ok(())
    }

    /// Removes a session: its orders fail, and the BMC receives a logout.
    pub(crate) fn remove(&mut self, id: NodeId, entropy: &mut dyn Entropy) {
        let Some(mut line) = self.sessions.remove(&id) else {
            return;
        };
        let words = line.session.abort(entropy).into_iter();
        self.logout_datagrams
            .extend(words.map(|bytes| (line.address, bytes)));
        self.by_address.remove(&line.address);
        let orders = line.orders.into_values();
        self.lost_orders.extend(orders.map(|order| (id, order)));
        self.lost_bmc_requests
            .extend(line.bmc_requests.iter().map(|number| (id, *number)));
        if let Some(deadline) = line.deadline {
            self.deadlines.remove(&(deadline, id));
        }
    }

    pub(crate) fn datagram(
        &mut self,
        now: Tick,
        from: SocketAddr,
        bytes: &[u8],
        entropy: &mut dyn Entropy,
    ) {
        let Some(&id) = self.by_address.get(&from) else {
            return;
        };
        if let Some(line) = self.sessions.get_mut(&id) {
            line.session.datagram(now, bytes, entropy);
            self.mark_ready(id);
        }
    }

    pub(crate) fn tick(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            if let Some(line) = self.sessions.get_mut(&id) {
                line.deadline = None;
                line.session.tick(now, entropy);
                self.mark_ready(id);
            }
        }
    }

    fn mark_ready(&mut self, id: NodeId) {
        self.refresh_deadline(id);
        if !self.ready.contains(&id) {
            self.ready.push_back(id);
        }
    }

    /// The next reply of any BMC: the node, the order and when it was sent.
    pub(crate) fn answer(&mut self) -> Option<IpmiOrderReply> {
        if let Some((id, order)) = self.lost_orders.pop_front() {
            return Some((id, order, Err(driver_info_changed())));
        }
        for &id in &self.ready {
            let Some(line) = self.sessions.get_mut(&id) else {
                continue;
            };
            while let Some((number, answer)) = line.session.answer() {
                if let Some(order) = line.orders.remove(&number) {
                    return Some((id, order, answer));
                }
            }
        }
        None
    }

    /// The next finished BMC request of any BMC.
    pub(crate) fn bmc_reply(&mut self) -> Option<(NodeId, u64, Result<BmcReply, PowerError>)> {
        if let Some((id, number)) = self.lost_bmc_requests.pop_front() {
            return Some((id, number, Err(driver_info_changed())));
        }
        for &id in &self.ready {
            let Some(line) = self.sessions.get_mut(&id) else {
                continue;
            };
            if let Some((number, result)) = line.session.reply() {
                line.bmc_requests.remove(&number);
                return Some((id, number, result.map(trivet_bmc_ipmi::to_bmc_reply)));
            }
        }
        None
    }

    /// The next datagram to any BMC.
    pub(crate) fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        if let Some(word) = self.logout_datagrams.pop_front() {
            return Some(word);
        }
        while let Some(&id) = self.ready.front() {
            if let Some(line) = self.sessions.get_mut(&id)
                && let Some(bytes) = line.session.transmit()
            {
                return Some((line.address, bytes));
            }
            self.ready.pop_front();
            self.refresh_deadline(id);
        }
        None
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

/// The error of an order or BMC request whose session was removed while it ran.
pub(crate) fn driver_info_changed() -> PowerError {
    PowerError::Host {
        said: "driver_info changed during a request to the BMC; retry".to_owned(),
        lasting: false,
    }
}
