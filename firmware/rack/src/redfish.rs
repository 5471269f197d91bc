//! Lines to BMCs that speak Redfish.
//!
//! Each node has a session of its own. Nodes may share an address, as the systems of one
//! chassis do: whoever has something to ask takes its turn there, one request at a time
//! with a pause after each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_bmc_redfish::{Address, Answer, Request, Session, Target, Trouble};
use trivet_model::node::Object;
use trivet_model::{Errand, Findings, Node, NodeId, PowerAnswer, PowerError, PowerOrder, Tick};

use crate::power::changed;

/// Rest of a BMC after each answer. Ours: their processors are small.
pub(crate) const GAP_MS: u64 = 50;
/// Most requests that wait for their turn at one address: those of nodes, each once, and
/// ends of sessions, which are left out when there are more. Ours.
const TURNS_MAX: usize = 4096;

/// A request that may leave now.
pub(crate) struct Leaving {
    pub(crate) node: NodeId,
    pub(crate) call: u64,
    pub(crate) target: Box<Target>,
    pub(crate) request: Request,
}

/// Whose answer, to what and when that was asked, and the answer.
type Answered = (NodeId, (PowerOrder, Tick), Result<PowerAnswer, PowerError>);
type Found = (NodeId, u64, Result<Findings, PowerError>);

/// One session per node, one turn at a time per BMC.
#[derive(Default)]
pub(crate) struct Services {
    open: BTreeMap<NodeId, Line>,
    bmcs: BTreeMap<Address, Bmc>,
    /// Addresses where somebody may take a turn.
    ready: VecDeque<Address>,
    /// Whose request is on its way, by its number.
    flying: BTreeMap<u64, (Address, NodeId)>,
    /// When a session has something to ask.
    wakes: BTreeSet<(Tick, NodeId)>,
    /// When a BMC has rested.
    rests: BTreeSet<(Tick, Address)>,
    answers: VecDeque<Answered>,
    findings: VecDeque<Found>,
    numbers: u64,
}

struct Line {
    /// What the session was made from: a change of `driver_info` makes a new one.
    info: Object,
    target: Target,
    session: Session,
    /// What was asked under each number, and when.
    orders: BTreeMap<u64, (PowerOrder, Tick)>,
    /// Errands under our numbers, with those of who asked.
    errands: BTreeMap<u64, u64>,
    call: Option<u64>,
    wake: Option<Tick>,
}

/// What goes on at one address.
#[derive(Default)]
struct Bmc {
    /// A request is on its way, or the BMC rests after one.
    busy: bool,
    turns: VecDeque<Turn>,
}

enum Turn {
    Node(NodeId),
    /// The end of a session that is forgotten here.
    Farewell(NodeId, Box<Target>, Request),
}

impl Services {
    pub(crate) fn deadline(&self) -> Option<Tick> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        let rest = self.rests.first().map(|(at, _)| *at);
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
        let line = self.line(node)?;
        line.session.order(now, number, order)?;
        line.orders.insert(number, (order, now));
        self.stir(now, node.id);
        Ok(())
    }

    /// Takes an errand; its findings come out of [`Services::findings`] under `asked`.
    pub(crate) fn errand(
        &mut self,
        now: Tick,
        node: &Node,
        asked: u64,
        errand: &Errand,
    ) -> Result<(), PowerError> {
        let errand = trivet_bmc_redfish::asked(errand)?;
        self.numbers += 1;
        let number = self.numbers;
        let line = self.line(node)?;
        line.session.errand(now, number, errand)?;
        line.errands.insert(number, asked);
        self.stir(now, node.id);
        Ok(())
    }

    fn line(&mut self, node: &Node) -> Result<&mut Line, PowerError> {
        let id = node.id;
        let line = self.open.get(&id);
        if line.is_none_or(|line| line.info != node.driver_info) {
            self.forget(id);
            let target = Target::of(&node.driver_info)?;
            let line = Line {
                info: node.driver_info.clone(),
                session: Session::new(target.clone()),
                target,
                orders: BTreeMap::new(),
                errands: BTreeMap::new(),
                call: None,
                wake: None,
            };
            self.open.insert(id, line);
        }
        self.open.get_mut(&id).ok_or(PowerError::Busy)
    }

    /// Who waits is told. The session's end on the BMC waits for its turn.
    pub(crate) fn forget(&mut self, id: NodeId) {
        let Some(mut line) = self.open.remove(&id) else {
            return;
        };
        if let Some(wake) = line.wake {
            self.wakes.remove(&(wake, id));
        }
        let orders = line.orders.into_values();
        let orders = orders.map(|order| (id, order, Err(changed())));
        self.answers.extend(orders);
        let errands = line.errands.into_values();
        self.findings
            .extend(errands.map(|asked| (id, asked, Err(changed()))));
        if let Some(request) = line.session.farewell() {
            let address = line.target.address.clone();
            let turn = Turn::Farewell(id, Box::new(line.target), request);
            self.take_turn(address, turn);
        }
    }

    fn take_turn(&mut self, address: Address, turn: Turn) {
        let bmc = self.bmcs.entry(address.clone()).or_default();
        let queued = |id: NodeId| {
            let mut turns = bmc.turns.iter();
            turns.any(|turn| matches!(turn, Turn::Node(node) if *node == id))
        };
        match turn {
            Turn::Node(id) if queued(id) => return,
            Turn::Farewell(..) if bmc.turns.len() >= TURNS_MAX => return,
            turn => bmc.turns.push_back(turn),
        }
        if !bmc.busy {
            self.ready.push_back(address);
        }
    }

    /// Takes the answer to a request, or why there is none. One to a session that is
    /// forgotten only lets the next take its turn.
    pub(crate) fn answered(&mut self, now: Tick, call: u64, result: Result<Answer, Trouble>) {
        let Some((address, id)) = self.flying.remove(&call) else {
            return;
        };
        self.rests.insert((now.after_ms(GAP_MS), address));
        if let Some(line) = self.open.get_mut(&id)
            && line.call == Some(call)
        {
            line.call = None;
            line.session.answered(now, result);
            self.stir(now, id);
        }
    }

    pub(crate) fn tick(&mut self, now: Tick) {
        while let Some(&(at, id)) = self.wakes.first()
            && at <= now
        {
            self.wakes.pop_first();
            if let Some(line) = self.open.get_mut(&id) {
                line.wake = None;
            }
            self.stir(now, id);
        }
        while self.rests.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, address)) = self.rests.pop_first() else {
                return;
            };
            match self.bmcs.get_mut(&address) {
                Some(bmc) if bmc.turns.is_empty() => {
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

    /// A session may have ended something, or have something to ask now or later.
    fn stir(&mut self, now: Tick, id: NodeId) {
        let Some(line) = self.open.get_mut(&id) else {
            return;
        };
        while let Some((number, answer)) = line.session.answer() {
            if let Some(order) = line.orders.remove(&number) {
                self.answers.push_back((id, order, answer));
            }
        }
        while let Some((number, report)) = line.session.report() {
            if let Some(asked) = line.errands.remove(&number) {
                let found = report.map(trivet_bmc_redfish::found);
                self.findings.push_back((id, asked, found));
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
                self.take_turn(address, Turn::Node(id));
            }
            None => {}
        }
    }

    /// The next answer of any BMC.
    pub(crate) fn answer(&mut self) -> Option<Answered> {
        self.answers.pop_front()
    }

    /// The next errand that any BMC is done with.
    pub(crate) fn findings(&mut self) -> Option<Found> {
        self.findings.pop_front()
    }

    /// The next request to any BMC that is free. Its number is the next of `calls`.
    pub(crate) fn transmit(&mut self, now: Tick, calls: &mut u64) -> Option<Leaving> {
        while let Some(address) = self.ready.front() {
            let bmc = self.bmcs.get_mut(address).filter(|bmc| !bmc.busy);
            let Some(turn) = bmc.and_then(|bmc| bmc.turns.pop_front()) else {
                self.ready.pop_front();
                continue;
            };
            let (node, target, request) = match turn {
                Turn::Farewell(id, target, request) => (id, target, request),
                Turn::Node(id) => {
                    let Some(line) = self.open.get_mut(&id) else {
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
            self.flying.insert(*calls, (address, node));
            return Some(Leaving {
                node,
                call: *calls,
                target,
                request,
            });
        }
        None
    }
}
