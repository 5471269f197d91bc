//! The sessions of several nodes.

use std::net::SocketAddr;

use serde_json::json;
use trivet_bmc::{
    BmcInterface, BmcMessage, BmcOrderStep, BmcProtocol, BmcProtocolContext, BmcProtocolEvent,
    BmcReach, BmcTarget, BmcTransmit,
};
use trivet_model::interface::{ManagementInterface, PowerInterface, VendorInterface};
use trivet_model::{BmcRequest, Node, NodeId, PowerError, PowerOrder, SeededRandom, Tick, UnixMs};

use super::rig::{IpmiTestMachine, setup};
use crate::bmc::IpmiSimulator;
use crate::{IpmiProtocol, IpmiTiming};

struct IpmiProtocolBench {
    ipmi: IpmiProtocol,
    now: Tick,
    entropy: SeededRandom,
    bmc: IpmiSimulator,
    machine: IpmiTestMachine,
}

fn node(number: u64, address: &str) -> Node {
    let id = NodeId::random(&mut SeededRandom::new(number));
    let mut node = Node::new(id, "ipmi", UnixMs(1));
    let info = json!({
        "ipmi_address": address, "ipmi_username": "admin", "ipmi_password": "password",
    });
    node.driver_info = info.as_object().unwrap().clone();
    node
}

impl IpmiProtocolBench {
    fn new() -> Self {
        Self {
            ipmi: IpmiProtocol::new(IpmiTiming::default()),
            now: Tick(1_000),
            entropy: SeededRandom::new(3),
            bmc: IpmiSimulator::new(setup()),
            machine: IpmiTestMachine::default(),
        }
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut IpmiProtocol, &mut BmcProtocolContext) -> T) -> T {
        let mut context = BmcProtocolContext {
            now: self.now,
            entropy: &mut self.entropy,
        };
        call(&mut self.ipmi, &mut context)
    }

    fn order(&mut self, node: &Node, number: u64) -> Result<BmcOrderStep, PowerError> {
        let target = BmcTarget {
            node,
            macs: &[],
            boots_agent: false,
        };
        self.with(|ipmi, context| ipmi.order(context, &target, number, PowerOrder::Status))
    }

    fn request(
        &mut self,
        node: &Node,
        number: u64,
        requested: &BmcRequest,
    ) -> Result<(), PowerError> {
        let target = BmcTarget {
            node,
            macs: &[],
            boots_agent: false,
        };
        self.with(|ipmi, context| ipmi.request(context, &target, number, requested))
    }

    /// Delivers datagrams in both directions and lets time pass until nothing happens. Returns
    /// where datagrams were sent.
    fn run(&mut self) -> Vec<SocketAddr> {
        let mut sent = Vec::new();
        for _ in 0..500 {
            while let Some(transmit) = self.ipmi.next_transmit(self.now, &mut 0) {
                let BmcTransmit::Datagram { to, bytes } = transmit else {
                    panic!("{transmit:?}");
                };
                sent.push(to);
                let machine = &mut self.machine;
                let answer = self.bmc.datagram(1, &bytes, machine, &mut self.entropy);
                if let Some(bytes) = answer {
                    let message = BmcMessage::Datagram { from: to, bytes };
                    let rest = self.with(|ipmi, context| ipmi.receive(context, message));
                    assert!(rest.is_none());
                }
            }
            let due = self.ipmi.deadline().filter(|due| *due <= Tick(20_000));
            let Some(due) = due else { break };
            self.now = self.now.max(due);
            self.with(IpmiProtocol::tick);
        }
        sent
    }

    /// The numbers of what was answered, and whether it succeeded.
    fn answered(&mut self) -> Vec<(u64, bool)> {
        let mut answered = Vec::new();
        while let Some(event) = self.ipmi.next_event() {
            answered.push(match event {
                BmcProtocolEvent::OrderAnswered { number, answer } => (number, answer.is_ok()),
                BmcProtocolEvent::RequestAnswered { number, reply } => (number, reply.is_ok()),
                BmcProtocolEvent::Note { .. } | BmcProtocolEvent::HardwareHealth { .. } => {
                    panic!("{event:?}");
                }
            });
        }
        answered
    }
}

#[test]
fn orders_and_requests_return_under_their_numbers() {
    let mut bench = IpmiProtocolBench::new();
    let node = node(1, "192.0.2.1");
    bench.order(&node, 7).unwrap();
    bench.request(&node, 8, &BmcRequest::Identity).unwrap();
    let sent = bench.run();
    assert!(sent.iter().all(|to| *to == ([192, 0, 2, 1], 623).into()));
    assert_eq!(bench.answered(), [(7, true), (8, true)]);
    assert!(bench.request(&node, 9, &BmcRequest::Media).is_err());
    assert_eq!(bench.answered(), []);
}

#[test]
fn a_change_of_driver_info_ends_the_session_and_its_orders() {
    let mut bench = IpmiProtocolBench::new();
    let mut node = node(1, "192.0.2.1");
    bench.order(&node, 7).unwrap();
    bench.request(&node, 8, &BmcRequest::Sensors).unwrap();
    node.driver_info
        .insert("ipmi_username".into(), "other".into());
    bench.order(&node, 9).unwrap();
    assert_eq!(bench.answered(), [(7, false), (8, false)]);
    let id = node.id;
    bench.with(|ipmi, context| ipmi.remove(context, id));
    assert_eq!(bench.answered(), [(9, false)]);
    assert_eq!(bench.ipmi.deadline(), None);
}

#[test]
fn a_session_that_is_removed_logs_out() {
    let mut bench = IpmiProtocolBench::new();
    let node = node(1, "192.0.2.1");
    bench.order(&node, 7).unwrap();
    bench.run();
    assert_eq!(bench.answered(), [(7, true)]);
    bench.with(|ipmi, context| ipmi.remove(context, node.id));
    let logout = bench.ipmi.next_transmit(bench.now, &mut 0);
    assert!(matches!(logout, Some(BmcTransmit::Datagram { .. })));
}

#[test]
fn two_nodes_do_not_use_one_address_at_once() {
    let mut bench = IpmiProtocolBench::new();
    let (one, two) = (node(1, "192.0.2.1"), node(2, "192.0.2.1"));
    bench.order(&one, 7).unwrap();
    let refused = bench.order(&two, 8).unwrap_err();
    assert!(matches!(refused, PowerError::SharedBmc { .. }), "{refused}");
    bench.run();
    assert_eq!(bench.answered(), [(7, true)]);
    // A session without work is replaced.
    bench.order(&two, 9).unwrap();
    assert_eq!(bench.answered(), []);
}

#[test]
fn datagrams_from_elsewhere_are_left_to_others() {
    let mut bench = IpmiProtocolBench::new();
    let node = node(1, "192.0.2.1");
    bench.order(&node, 7).unwrap();
    let message = BmcMessage::Datagram {
        from: ([192, 0, 2, 9], 623).into(),
        bytes: vec![6, 0],
    };
    let rest = bench.with(|ipmi, context| ipmi.receive(context, message));
    assert!(rest.is_some());
}

#[test]
fn the_interfaces_of_ipmitool_are_served() {
    let (bench, node) = (IpmiProtocolBench::new(), node(1, "192.0.2.1"));
    for (interface, served) in [
        (BmcInterface::Power(PowerInterface::Ipmitool), true),
        (
            BmcInterface::Management(ManagementInterface::Ipmitool),
            true,
        ),
        (BmcInterface::Vendor(VendorInterface::Ipmitool), true),
        (BmcInterface::Power(PowerInterface::Redfish), false),
        (BmcInterface::Vendor(VendorInterface::NoVendor), false),
    ] {
        assert_eq!(bench.ipmi.serves(&node, interface), served, "{interface:?}");
    }
    let identity = bench.ipmi.bmc_identity(&node);
    assert_eq!(identity.as_deref(), Some("192.0.2.1:623"));
    assert_eq!(bench.ipmi.reach(), BmcReach::Bmc);
    assert!(!bench.ipmi.resets_bmc_by_management());
}
