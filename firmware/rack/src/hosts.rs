//! Hosts of virtual machines: one order of a node at a time, over SSH.

use std::collections::{BTreeMap, VecDeque};

use trivet_bmc_ssh::{Next, Ran, Talk, Target};
use trivet_model::{Node, NodeId, Now, PowerError, PowerOrder};

use crate::{Output, Rack};

/// The most orders that wait for one host's answer, per node.
const ORDERS_MAX: usize = 8;

/// Orders on their way to hosts.
#[derive(Default)]
pub(crate) struct Hosts {
    open: BTreeMap<NodeId, Queue>,
}

struct Queue {
    target: Target,
    /// The number of the run whose answer is awaited.
    run: u64,
    /// The first one is under way.
    talks: VecDeque<Talk>,
}

impl Hosts {
    pub(crate) fn forget(&mut self, id: NodeId) {
        self.open.remove(&id);
    }
}

impl Rack {
    /// Gives an order to the host that runs the node.
    pub(crate) fn order_host(&mut self, now: Now, node: &Node, order: PowerOrder) {
        let id = node.id;
        let target = match Target::of(&node.driver_info) {
            Ok(target) => target,
            Err(error) => return self.bmc_answered(now, id, order, Err(error)),
        };
        let macs = self.book.ports_of(id);
        let macs = macs.iter().map(|port| port.address).collect();
        let talk = Talk::new(order, macs, target.given.clone());
        match self.hosts.open.get_mut(&id) {
            Some(queue) if queue.talks.len() >= ORDERS_MAX => {
                self.bmc_answered(now, id, order, Err(PowerError::Busy));
            }
            Some(queue) => {
                queue.target = target;
                queue.talks.push_back(talk);
            }
            None => {
                let next = talk.begin();
                let queue = Queue {
                    target,
                    run: 0,
                    talks: VecDeque::from([talk]),
                };
                self.hosts.open.insert(id, queue);
                self.host_next(now, id, next);
            }
        }
    }

    /// A command line has ended.
    pub(crate) fn ssh_answered(
        &mut self,
        now: Now,
        id: NodeId,
        run: u64,
        result: Result<Ran, String>,
    ) {
        let queue = self.hosts.open.get_mut(&id);
        // An answer to a run of an earlier life of the box, or of a node that is gone.
        let Some(queue) = queue.filter(|queue| queue.run == run) else {
            return;
        };
        if let Some(talk) = queue.talks.front_mut() {
            let next = talk.ran(result);
            self.host_next(now, id, next);
        }
    }

    /// Runs the next line, or ends the order and begins the one that waits.
    fn host_next(&mut self, now: Now, id: NodeId, first: Next) {
        let mut next = Some(first);
        while let Some(step) = next.take() {
            let Some(queue) = self.hosts.open.get_mut(&id) else {
                return;
            };
            match step {
                Next::Run(command) => {
                    self.calls += 1;
                    queue.run = self.calls;
                    let target = queue.target.clone();
                    self.outputs.push(Output::Ssh {
                        node: id,
                        run: self.calls,
                        target: Box::new(target),
                        command,
                    });
                }
                Next::Done(answer) => {
                    let Some(talk) = queue.talks.pop_front() else {
                        return;
                    };
                    next = queue.talks.front().map(Talk::begin);
                    if next.is_none() {
                        self.hosts.open.remove(&id);
                    }
                    self.bmc_answered(now, id, talk.order(), answer);
                }
            }
        }
    }
}
