//! SSH hosts of virtual machines: one order of a node at a time.

use std::collections::{BTreeMap, VecDeque};

use trivet_bmc_ssh::{SshCommandOutput, SshPowerScript, SshPowerStep, SshTarget};
use trivet_model::{Node, NodeId, Now, PowerError, PowerOrder};

use crate::{Rack, RackOutput};

/// The most orders that wait for one host, per node.
const ORDERS_MAX: usize = 8;

/// Orders that are being carried out by hosts.
#[derive(Default)]
pub(crate) struct SshTransport {
    queues: BTreeMap<NodeId, SshOrderQueue>,
}

struct SshOrderQueue {
    target: SshTarget,
    /// The number of the run whose result is awaited.
    run: u64,
    /// The first one is under way.
    exchanges: VecDeque<SshPowerScript>,
}

impl SshTransport {
    pub(crate) fn remove(&mut self, id: NodeId) {
        self.queues.remove(&id);
    }
}

impl Rack {
    /// Sends an order to the host that runs the node.
    pub(crate) fn order_over_ssh(&mut self, now: Now, node: &Node, order: PowerOrder) {
        let id = node.id;
        let target = match SshTarget::of(&node.driver_info) {
            Ok(target) => target,
            Err(error) => return self.bmc_answered(now, id, order, Err(error)),
        };
        let macs = self.records.ports_of(id);
        let macs = macs.iter().map(|port| port.address).collect();
        let talk = SshPowerScript::new(order, macs, target.commands.clone());
        match self.ssh_transport.queues.get_mut(&id) {
            Some(queue) if queue.exchanges.len() >= ORDERS_MAX => {
                self.bmc_answered(now, id, order, Err(PowerError::QueueFull));
            }
            Some(queue) => {
                queue.target = target;
                queue.exchanges.push_back(talk);
            }
            None => {
                let next = talk.begin();
                let queue = SshOrderQueue {
                    target,
                    run: 0,
                    exchanges: VecDeque::from([talk]),
                };
                self.ssh_transport.queues.insert(id, queue);
                self.run_next_ssh_command(now, id, next);
            }
        }
    }

    /// A command on a host has ended.
    pub(crate) fn ssh_answered(
        &mut self,
        now: Now,
        id: NodeId,
        run: u64,
        result: Result<SshCommandOutput, String>,
    ) {
        let queue = self.ssh_transport.queues.get_mut(&id);
        // A result of a run before the box restarted, or of a node that was deleted.
        let Some(queue) = queue.filter(|queue| queue.run == run) else {
            return;
        };
        if let Some(talk) = queue.exchanges.front_mut() {
            let next = talk.handle_output(result);
            self.run_next_ssh_command(now, id, next);
        }
    }

    /// Runs the next command, or ends the order and starts the next one.
    fn run_next_ssh_command(&mut self, now: Now, id: NodeId, first: SshPowerStep) {
        let mut next = Some(first);
        while let Some(step) = next.take() {
            let Some(queue) = self.ssh_transport.queues.get_mut(&id) else {
                return;
            };
            match step {
                SshPowerStep::Run(command) => {
                    self.calls += 1;
                    queue.run = self.calls;
                    let target = queue.target.clone();
                    self.outputs.push(RackOutput::Ssh {
                        node: id,
                        run: self.calls,
                        target: Box::new(target),
                        command,
                    });
                }
                SshPowerStep::Done(answer) => {
                    let Some(talk) = queue.exchanges.pop_front() else {
                        return;
                    };
                    next = queue.exchanges.front().map(SshPowerScript::begin);
                    if next.is_none() {
                        self.ssh_transport.queues.remove(&id);
                    }
                    self.bmc_answered(now, id, talk.order(), answer);
                }
            }
        }
    }
}
