//! SSH as a protocol of [`trivet_bmc::Bmcs`]: one order of a node at a time.

use std::collections::{BTreeMap, VecDeque};

use trivet_bmc::ssh_host::{SshCommandOutput, SshHost};
use trivet_bmc::{
    BmcInterface, BmcMessage, BmcOrderStep, BmcProtocol, BmcProtocolContext, BmcProtocolEvent,
    BmcReach, BmcSshRun, BmcTarget, BmcTransmit, driver_info_changed,
};
use trivet_model::interface::PowerInterface;
use trivet_model::{BmcRequest, Node, NodeId, PowerError, PowerOrder, Tick};

use crate::{SshPowerScript, SshPowerStep, SshTarget};

/// The most orders that wait for one host, per node.
const ORDERS_MAX: usize = 8;

/// Orders that are being carried out by hosts.
#[derive(Default)]
pub struct SshProtocol {
    queues: BTreeMap<NodeId, SshOrderQueue>,
    /// Nodes with a command to send.
    ready: VecDeque<NodeId>,
    events: VecDeque<BmcProtocolEvent>,
}

struct SshOrderQueue {
    host: SshHost,
    /// The command to send next.
    command: Option<String>,
    /// The number of the run whose result is awaited.
    run: Option<u64>,
    /// Orders by number; the first one is under way.
    scripts: VecDeque<(u64, SshPowerScript)>,
}

impl SshProtocol {
    fn command_ended(&mut self, id: NodeId, result: Result<SshCommandOutput, String>) {
        let queue = self.queues.get_mut(&id);
        let script = queue.and_then(|queue| {
            queue.run = None;
            queue.scripts.front_mut()
        });
        if let Some((_, script)) = script {
            let next = script.handle_output(result);
            self.continue_queue(id, next);
        }
    }

    /// Takes the next command of the present order, or ends the order and starts the next one.
    fn continue_queue(&mut self, id: NodeId, first: SshPowerStep) {
        let mut next = Some(first);
        while let Some(step) = next.take() {
            let Some(queue) = self.queues.get_mut(&id) else {
                return;
            };
            match step {
                SshPowerStep::Run(command) => {
                    queue.command = Some(command);
                    self.ready.push_back(id);
                }
                SshPowerStep::Done(answer) => {
                    let Some((number, _)) = queue.scripts.pop_front() else {
                        return;
                    };
                    next = queue.scripts.front().map(|(_, script)| script.begin());
                    if next.is_none() {
                        self.queues.remove(&id);
                    }
                    let event = BmcProtocolEvent::OrderAnswered { number, answer };
                    self.events.push_back(event);
                }
            }
        }
    }
}

impl BmcProtocol for SshProtocol {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn serves(&self, _: &Node, interface: BmcInterface) -> bool {
        interface == BmcInterface::Power(PowerInterface::Ssh)
    }

    fn reach(&self) -> BmcReach {
        BmcReach::Host
    }

    fn order(
        &mut self,
        _: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError> {
        let id = target.node.id;
        let SshTarget { host, commands } = SshTarget::of(&target.node.driver_info)?;
        let script = SshPowerScript::new(order, target.macs.to_vec(), commands);
        match self.queues.get_mut(&id) {
            Some(queue) if queue.scripts.len() >= ORDERS_MAX => return Err(PowerError::QueueFull),
            Some(queue) => {
                queue.host = host;
                queue.scripts.push_back((number, script));
            }
            None => {
                let first = script.begin();
                let queue = SshOrderQueue {
                    host,
                    command: None,
                    run: None,
                    scripts: VecDeque::from([(number, script)]),
                };
                self.queues.insert(id, queue);
                self.continue_queue(id, first);
            }
        }
        Ok(BmcOrderStep::Taken)
    }

    fn request(
        &mut self,
        _: &mut BmcProtocolContext,
        _: &BmcTarget,
        _: u64,
        _: &BmcRequest,
    ) -> Result<(), PowerError> {
        Err(PowerError::Unsupported {
            message: "this node has no BMC; choose a driver with a BMC",
        })
    }

    fn receive(&mut self, _: &mut BmcProtocolContext, message: BmcMessage) -> Option<BmcMessage> {
        match message {
            BmcMessage::SshAnswered { node, run, result } => {
                let awaited = self.queues.get(&node).and_then(|queue| queue.run);
                // Others are of a run before the box restarted, or of a node that was deleted.
                if awaited == Some(run) {
                    self.command_ended(node, result);
                }
                None
            }
            other => Some(other),
        }
    }

    fn remove(&mut self, _: &mut BmcProtocolContext, node: NodeId) {
        let queue = self.queues.remove(&node);
        let scripts = queue.into_iter().flat_map(|queue| queue.scripts);
        self.events
            .extend(scripts.map(|(number, _)| BmcProtocolEvent::OrderAnswered {
                number,
                answer: Err(driver_info_changed()),
            }));
    }

    fn next_event(&mut self) -> Option<BmcProtocolEvent> {
        self.events.pop_front()
    }

    fn next_transmit(&mut self, _: Tick, calls: &mut u64) -> Option<BmcTransmit> {
        while let Some(node) = self.ready.pop_front() {
            let Some(queue) = self.queues.get_mut(&node) else {
                continue;
            };
            if let Some(command) = queue.command.take() {
                *calls += 1;
                queue.run = Some(*calls);
                return Some(BmcTransmit::Ssh(Box::new(BmcSshRun {
                    node,
                    run: *calls,
                    host: queue.host.clone(),
                    command,
                })));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trivet_model::{MacAddr, PowerAnswer, PowerState, SeededRandom, UnixMs};

    use super::*;

    const MACS: [MacAddr; 1] = [MacAddr([0x52, 0x54, 0, 0xaa, 0xbb, 1])];

    /// The output of virsh for a machine that runs.
    const LISTED: &str = "domain 6a5e2c1a-90a7-4d17-9e5f-aa0f6f3a1b2c\nrunning\n\n -  bridge  br0  \
                          virtio  52:54:00:aa:bb:01\n";

    fn node() -> Node {
        let id = NodeId::random(&mut SeededRandom::new(1));
        let mut node = Node::new(id, "ssh", UnixMs(1));
        let info = json!({
            "ssh_address": "192.0.2.7", "ssh_username": "virt", "ssh_key_filename": "/k",
        });
        node.driver_info = info.as_object().unwrap().clone();
        node
    }

    fn with<T>(call: impl FnOnce(&mut BmcProtocolContext) -> T) -> T {
        let entropy = &mut SeededRandom::new(1);
        let now = Tick(0);
        call(&mut BmcProtocolContext { now, entropy })
    }

    fn order(ssh: &mut SshProtocol, node: &Node, number: u64) -> Result<(), PowerError> {
        let target = BmcTarget {
            node,
            macs: &MACS,
            boots_agent: false,
        };
        with(|context| ssh.order(context, &target, number, PowerOrder::Status)).map(|_| ())
    }

    /// The number of the next run.
    fn run(ssh: &mut SshProtocol, calls: &mut u64) -> Option<u64> {
        match ssh.next_transmit(Tick(0), calls)? {
            BmcTransmit::Ssh(ssh) => Some(ssh.run),
            other => panic!("{other:?}"),
        }
    }

    fn end_run(ssh: &mut SshProtocol, run: u64) -> Option<BmcMessage> {
        let output = SshCommandOutput {
            status: 0,
            stdout: LISTED.into(),
            stderr: Vec::new(),
        };
        let message = BmcMessage::SshAnswered {
            node: node().id,
            run,
            result: Ok(output),
        };
        with(|context| ssh.receive(context, message))
    }

    /// The numbers of the orders that were answered, and whether they succeeded.
    fn answered(ssh: &mut SshProtocol) -> Vec<(u64, bool)> {
        let mut answered = Vec::new();
        while let Some(event) = ssh.next_event() {
            match event {
                BmcProtocolEvent::OrderAnswered { number, answer } => {
                    answered.push((number, answer == Ok(PowerAnswer::Power(PowerState::On))));
                }
                other => panic!("{other:?}"),
            }
        }
        answered
    }

    #[test]
    fn orders_of_a_node_are_carried_out_one_after_the_other() {
        let (mut ssh, node, mut calls) = (SshProtocol::default(), node(), 40);
        order(&mut ssh, &node, 1).unwrap();
        order(&mut ssh, &node, 2).unwrap();
        assert_eq!(run(&mut ssh, &mut calls), Some(41));
        assert_eq!(run(&mut ssh, &mut calls), None, "one at a time");
        // A result of a run before the box restarted.
        assert!(end_run(&mut ssh, 40).is_none());
        assert_eq!(answered(&mut ssh), []);
        end_run(&mut ssh, 41);
        assert_eq!(answered(&mut ssh), [(1, true)]);
        let second = run(&mut ssh, &mut calls).unwrap();
        assert_eq!(second, 42);
        end_run(&mut ssh, 41);
        end_run(&mut ssh, second);
        end_run(&mut ssh, second);
        assert_eq!(answered(&mut ssh), [(2, true)]);
        assert!(ssh.queues.is_empty());
    }

    #[test]
    fn the_queue_of_a_node_has_a_bound() {
        let (mut ssh, node) = (SshProtocol::default(), node());
        for number in 0..ORDERS_MAX as u64 {
            order(&mut ssh, &node, number).unwrap();
        }
        assert_eq!(order(&mut ssh, &node, 99), Err(PowerError::QueueFull));
        with(|context| ssh.remove(context, node.id));
        let failed: Vec<_> = (0..ORDERS_MAX as u64)
            .map(|number| (number, false))
            .collect();
        assert_eq!(answered(&mut ssh), failed);
        assert_eq!(run(&mut ssh, &mut 0), None);
    }

    #[test]
    fn what_a_host_cannot_do_is_refused() {
        let (mut ssh, mut node) = (SshProtocol::default(), node());
        node.driver_info.remove("ssh_address");
        let refused = order(&mut ssh, &node, 1).unwrap_err();
        assert!(refused.to_string().contains("ssh_address"), "{refused}");
        let target = BmcTarget {
            node: &node,
            macs: &MACS,
            boots_agent: false,
        };
        let sensors = with(|context| ssh.request(context, &target, 2, &BmcRequest::Sensors));
        assert!(matches!(sensors, Err(PowerError::Unsupported { .. })));
        assert!(ssh.next_event().is_none());
        let datagram = BmcMessage::Datagram {
            from: ([192, 0, 2, 7], 623).into(),
            bytes: Vec::new(),
        };
        assert!(with(|context| ssh.receive(context, datagram)).is_some());
        assert_eq!(
            (ssh.reach(), ssh.bmc_identity(&node)),
            (BmcReach::Host, None)
        );
        assert!(ssh.serves(&node, BmcInterface::Power(PowerInterface::Ssh)));
        assert!(!ssh.serves(&node, BmcInterface::Power(PowerInterface::Fake)));
    }
}
