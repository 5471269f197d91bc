//! Lines to BMCs that speak IPMI.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use trivet_bmc_ipmi::{Pace, Session};
use trivet_model::node::Object;
use trivet_model::{
    Entropy, Errand, Findings, Node, NodeId, PowerAnswer, PowerError, PowerOrder, Tick,
};

use crate::target::{bmc_address, target};

/// One session per BMC that has been spoken to.
pub(crate) struct Lines {
    pace: Pace,
    open: BTreeMap<NodeId, Line>,
    by_address: BTreeMap<SocketAddr, NodeId>,
    deadlines: BTreeSet<(Tick, NodeId)>,
    /// Lines that may have something to send or an answer to give.
    stirred: VecDeque<NodeId>,
    /// Orders and errands whose line went away under them.
    lost_orders: VecDeque<(NodeId, (PowerOrder, Tick))>,
    lost: VecDeque<(NodeId, u64)>,
    /// Last words to BMCs.
    parting: VecDeque<(SocketAddr, Vec<u8>)>,
    numbers: u64,
}

/// Whose answer, to what and when that was asked, and the answer.
type Answered = (NodeId, (PowerOrder, Tick), Result<PowerAnswer, PowerError>);

struct Line {
    address: SocketAddr,
    /// What the session was made from: a change of `driver_info` makes a new one.
    info: Object,
    session: Session,
    /// What was asked under each number, and when.
    orders: BTreeMap<u64, (PowerOrder, Tick)>,
    errands: BTreeSet<u64>,
    deadline: Option<Tick>,
}

impl Lines {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            open: BTreeMap::new(),
            by_address: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            stirred: VecDeque::new(),
            lost_orders: VecDeque::new(),
            lost: VecDeque::new(),
            parting: VecDeque::new(),
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
        let line = self.line(node, entropy)?;
        line.session.order(now, number, order, entropy)?;
        line.orders.insert(number, (order, now));
        self.stir(node.id);
        Ok(())
    }

    /// Takes an errand; its findings come out of [`Lines::findings`] under its number.
    pub(crate) fn errand(
        &mut self,
        now: Tick,
        node: &Node,
        number: u64,
        errand: &Errand,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        let errand = trivet_bmc_ipmi::asked(errand)?;
        let line = self.line(node, entropy)?;
        line.session.errand(now, number, errand, entropy)?;
        line.errands.insert(number);
        self.stir(node.id);
        Ok(())
    }

    fn line(&mut self, node: &Node, entropy: &mut dyn Entropy) -> Result<&mut Line, PowerError> {
        let line = self.open.get(&node.id);
        if line.is_none_or(|line| line.info != node.driver_info) {
            self.open(node, entropy)?;
        }
        self.open.get_mut(&node.id).ok_or(PowerError::Busy)
    }

    fn open(&mut self, node: &Node, entropy: &mut dyn Entropy) -> Result<(), PowerError> {
        self.forget(node.id, entropy);
        let address = bmc_address(&node.driver_info)?;
        // Two nodes with one BMC address would hear each other's answers. A session without
        // work is one of a node whose driver_info was changed since: it gives way.
        if let Some(&other) = self.by_address.get(&address) {
            let is_idle = |line: &Line| line.orders.is_empty() && line.errands.is_empty();
            if !self.open.get(&other).is_none_or(is_idle) {
                let other = other.to_string();
                return Err(PowerError::SharedBmc { other });
            }
            self.forget(other, entropy);
        }
        let target = target(&node.driver_info)?;
        let line = Line {
            address,
            info: node.driver_info.clone(),
            session: Session::new(target, self.pace),
            orders: BTreeMap::new(),
            errands: BTreeSet::new(),
            deadline: None,
        };
        self.by_address.insert(address, node.id);
        self.open.insert(node.id, line);
        Ok(())
    }

    /// Who waits is told, and so is the BMC.
    pub(crate) fn forget(&mut self, id: NodeId, entropy: &mut dyn Entropy) {
        let Some(mut line) = self.open.remove(&id) else {
            return;
        };
        let words = line.session.hang_up(entropy).into_iter();
        self.parting
            .extend(words.map(|bytes| (line.address, bytes)));
        self.by_address.remove(&line.address);
        let orders = line.orders.into_values();
        self.lost_orders.extend(orders.map(|order| (id, order)));
        self.lost
            .extend(line.errands.iter().map(|number| (id, *number)));
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
        if let Some(line) = self.open.get_mut(&id) {
            line.session.datagram(now, bytes, entropy);
            self.stir(id);
        }
    }

    pub(crate) fn tick(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            if let Some(line) = self.open.get_mut(&id) {
                line.deadline = None;
                line.session.tick(now, entropy);
                self.stir(id);
            }
        }
    }

    fn stir(&mut self, id: NodeId) {
        self.refresh_deadline(id);
        if !self.stirred.contains(&id) {
            self.stirred.push_back(id);
        }
    }

    /// The next answer of any BMC: whose, to what and when that was asked.
    pub(crate) fn answer(&mut self) -> Option<Answered> {
        if let Some((id, order)) = self.lost_orders.pop_front() {
            return Some((id, order, Err(changed())));
        }
        for &id in &self.stirred {
            let Some(line) = self.open.get_mut(&id) else {
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

    /// The next errand that any BMC is done with.
    pub(crate) fn findings(&mut self) -> Option<(NodeId, u64, Result<Findings, PowerError>)> {
        if let Some((id, number)) = self.lost.pop_front() {
            return Some((id, number, Err(changed())));
        }
        for &id in &self.stirred {
            let Some(line) = self.open.get_mut(&id) else {
                continue;
            };
            if let Some((number, result)) = line.session.report() {
                line.errands.remove(&number);
                return Some((id, number, result.map(trivet_bmc_ipmi::found)));
            }
        }
        None
    }

    /// The next datagram to any BMC.
    pub(crate) fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        if let Some(word) = self.parting.pop_front() {
            return Some(word);
        }
        while let Some(&id) = self.stirred.front() {
            if let Some(line) = self.open.get_mut(&id)
                && let Some(bytes) = line.session.transmit()
            {
                return Some((line.address, bytes));
            }
            self.stirred.pop_front();
            self.refresh_deadline(id);
        }
        None
    }

    fn refresh_deadline(&mut self, id: NodeId) {
        let Some(line) = self.open.get_mut(&id) else {
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

/// What is said of an order or errand whose line went away under it.
pub(crate) fn changed() -> PowerError {
    PowerError::Host {
        said: "driver_info changed while its BMC was asked; ask again".to_owned(),
        lasting: false,
    }
}
