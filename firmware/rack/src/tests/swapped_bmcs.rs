//! Two nodes, each with the BMC address of the other in its record.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::boot::lease;
use super::image_deployment::plain;
use super::power::{RackTestChassis, bmc};
use super::*;
use trivet_bmc_ipmi::bmc::IpmiSimulator;
use trivet_model::{AgentEvent, AgentOrder, JobPhase, PowerOrder};
use trivet_node::NodeEvent;

use crate::AgentHttpMethod;

/// Two machines and their BMCs. The first BMC has the address in the record of the first node and
/// switches the machine of the second node, and the other way round.
struct SwappedBmcs {
    bmcs: [IpmiSimulator; 2],
    cases: [RackTestChassis; 2],
    nodes: [NodeId; 2],
    entropy: SeededRandom,
}

impl SwappedBmcs {
    /// Whether the machine of this node runs: the BMC of the other one reports it.
    fn runs(&self, node: NodeId) -> bool {
        self.cases[usize::from(node == self.nodes[0])].on
    }

    /// Delivers datagrams and calls to agents until neither side sends more. An agent lists its
    /// commands while its machine runs and refuses everything else.
    fn deliver_outputs(&mut self, bench: &mut RackBench) {
        let mut outputs: VecDeque<_> = std::mem::take(&mut bench.outputs).into();
        while let Some(output) = outputs.pop_front() {
            match output {
                RackOutput::Bmc(BmcTransmit::Datagram { to, bytes }) => {
                    let at = usize::from(to.ip() == IpAddr::from([192, 0, 2, 2]));
                    let case = &mut self.cases[at];
                    let answer = self.bmcs[at].datagram(0, &bytes, case, &mut self.entropy);
                    let Some(bytes) = answer else { continue };
                    bench.handle(RackInput::Bmc(BmcMessage::Datagram { from: to, bytes }));
                }
                RackOutput::CallAgent {
                    node,
                    call,
                    request,
                    ..
                } => {
                    let result = if self.runs(node) && request.method == AgentHttpMethod::Get {
                        Ok((200, br#"{"commands": []}"#.to_vec()))
                    } else {
                        Err("connection refused".to_owned())
                    };
                    bench.handle(RackInput::AgentAnswered { node, call, result });
                }
                _ => continue,
            }
            outputs.extend(std::mem::take(&mut bench.outputs));
        }
    }

    /// Advances one second at a time.
    fn run_seconds(&mut self, bench: &mut RackBench, seconds: u64) {
        for _ in 0..seconds {
            self.deliver_outputs(bench);
            bench.advance(1000);
        }
        self.deliver_outputs(bench);
    }
}

/// A node that can be deployed.
fn available(bench: &mut RackBench, number: u8) -> NodeId {
    let id = bench.with_node(number);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.power_state = Some(trivet_model::PowerState::Off);
        let Value::Object(info) = plain() else {
            unreachable!()
        };
        node.instance_info.extend(info);
    });
    id
}

/// Both nodes are deployed at the same time. The request for the second one starts the machine of
/// the first one, whose image is written. Its last power-off switches the other machine off.
#[test]
fn two_nodes_with_swapped_bmcs_both_fail_with_an_error_that_names_both() {
    let mut bench = RackBench::with(Settings {
        boots_at_once: BootLimitRule::Fixed(2),
        ..settings()
    });
    let nodes = [available(&mut bench, 1), available(&mut bench, 2)];
    let [first, second] = nodes;
    let mut rack = SwappedBmcs {
        bmcs: [bmc(), bmc()],
        cases: [RackTestChassis::new(false), RackTestChassis::new(false)],
        nodes,
        entropy: SeededRandom::new(4),
    };
    bench.verb(first, Verb::Active).unwrap();
    rack.run_seconds(&mut bench, 10);
    assert!(rack.runs(second) && !rack.runs(first));
    lease(&mut bench, MacAddr([0x52, 0x54, 0, 0, 0, 2]));
    rack.run_seconds(&mut bench, 5);
    bench.verb(second, Verb::Active).unwrap();
    rack.run_seconds(&mut bench, 10);
    assert!(rack.runs(first));
    let token = bench.lookup().unwrap().agent_token;
    let node = first;
    let heartbeat = heartbeat_with(&token);
    bench
        .order(RackOrder::Heartbeat { node, heartbeat })
        .unwrap();
    rack.deliver_outputs(&mut bench);

    // All its steps are done.
    bench.force(first, |node| {
        node.job.as_mut().unwrap().phase = JobPhase::Sync;
    });
    let synced = NodeEvent::Agent(AgentOrder::Sync, Ok(AgentEvent::Finished));
    bench.rack.events.push_back((first, synced));
    bench.handle(RackInput::Tick);
    rack.run_seconds(&mut bench, 30);
    assert!(!rack.runs(second) && rack.runs(first));
    for id in nodes {
        let node = bench.node(id);
        assert_eq!(node.provision_state, ProvisionState::DeployFail);
        let why = node.last_error.unwrap();
        for part in ["node-1", "node-2", "swapped"] {
            assert!(why.contains(part), "{why}");
        }
    }
    // Neither BMC gets more requests: each would switch the machine of the other node.
    let offs = |case: &RackTestChassis| {
        let offs = case.orders.iter().filter(|it| **it == PowerOrder::Off);
        offs.count()
    };
    let before: Vec<_> = rack.cases.iter().map(offs).collect();
    rack.run_seconds(&mut bench, 60);
    let after: Vec<_> = rack.cases.iter().map(offs).collect();
    assert_eq!(before, after);
    assert!(rack.runs(first));
}
