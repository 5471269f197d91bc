//! The sessions of several nodes, and the queue of each BMC.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trivet_bmc::{
    BmcHttpCall, BmcInterface, BmcMessage, BmcOrderStep, BmcProtocol, BmcProtocolContext,
    BmcProtocolEvent, BmcReach, BmcTarget, BmcTransmit,
};
use trivet_model::interface::{ManagementInterface, PowerInterface, VendorInterface};
use trivet_model::{BmcRequest, Node, NodeId, PowerError, PowerOrder, SeededRandom, Tick, UnixMs};

use crate::service::{RedfishSimulator, RedfishSimulatorSetup};
use crate::{BmcHttpError, BmcHttpResponse, REQUEST_GAP_MS, RedfishProtocol};

struct RedfishProtocolBench {
    redfish: RedfishProtocol,
    now: Tick,
    entropy: SeededRandom,
    calls: u64,
    services: BTreeMap<String, RedfishSimulator>,
    /// When and to which host each request was sent.
    sent: Vec<(Tick, String)>,
}

fn node(number: u64, host: &str, system: u64) -> Node {
    let id = NodeId::random(&mut SeededRandom::new(number));
    let mut node = Node::new(id, "redfish", UnixMs(1));
    let info = json!({
        "redfish_address": format!("https://{host}"),
        "redfish_system_id": format!("/redfish/v1/Systems/{system}"),
        "redfish_username": "root", "redfish_password": "calvin",
    });
    node.driver_info = info.as_object().unwrap().clone();
    node
}

impl RedfishProtocolBench {
    fn new() -> Self {
        let setup = RedfishSimulatorSetup {
            machines: 2,
            ..RedfishSimulatorSetup::default()
        };
        let hosts = ["192.0.2.1", "192.0.2.2"];
        let services = hosts.map(|host| (host.to_owned(), RedfishSimulator::new(setup.clone())));
        Self {
            redfish: RedfishProtocol::default(),
            now: Tick(1_000),
            entropy: SeededRandom::new(3),
            calls: 10,
            services: services.into_iter().collect(),
            sent: Vec::new(),
        }
    }

    fn with<T>(
        &mut self,
        call: impl FnOnce(&mut RedfishProtocol, &mut BmcProtocolContext) -> T,
    ) -> T {
        let mut context = BmcProtocolContext {
            now: self.now,
            entropy: &mut self.entropy,
        };
        call(&mut self.redfish, &mut context)
    }

    fn order(&mut self, node: &Node, number: u64) -> Result<BmcOrderStep, PowerError> {
        let target = BmcTarget {
            node,
            macs: &[],
            boots_agent: false,
        };
        self.with(|redfish, context| redfish.order(context, &target, number, PowerOrder::Status))
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
        self.with(|redfish, context| redfish.request(context, &target, number, requested))
    }

    /// Takes the requests that may be sent now.
    fn transmit(&mut self) -> Vec<BmcHttpCall> {
        let mut taken = Vec::new();
        while let Some(transmit) = self.redfish.next_transmit(self.now, &mut self.calls) {
            let BmcTransmit::Http(call) = transmit else {
                panic!("{transmit:?}");
            };
            assert_eq!(call.call, self.calls, "each has a number of its own");
            self.sent.push((self.now, call.target.address.host.clone()));
            taken.push(*call);
        }
        taken
    }

    fn end(&mut self, call: &BmcHttpCall, result: Result<BmcHttpResponse, BmcHttpError>) {
        let message = BmcMessage::HttpAnswered {
            node: call.node,
            call: call.call,
            result,
        };
        let rest = self.with(|redfish, context| redfish.receive(context, message));
        assert!(rest.is_none());
    }

    /// Answers all requests after 10 ms until none is left.
    fn run(&mut self) {
        for _ in 0..200 {
            let calls = self.transmit();
            self.now = self.now.after_ms(10);
            for call in &calls {
                let service = self.services.get_mut(&call.target.address.host).unwrap();
                let response = service.handle(self.now, &call.request, &mut self.entropy);
                self.end(call, Ok(response.unwrap()));
            }
            if let Some(due) = self.redfish.deadline().filter(|_| calls.is_empty()) {
                self.now = self.now.max(due);
                self.with(RedfishProtocol::tick);
            } else if calls.is_empty() {
                return;
            }
        }
        panic!("no end");
    }

    /// The numbers of what was answered, and whether it succeeded.
    fn answered(&mut self) -> Vec<(u64, bool)> {
        let mut answered = Vec::new();
        while let Some(event) = self.redfish.next_event() {
            answered.push(match event {
                BmcProtocolEvent::OrderAnswered { number, answer } => (number, answer.is_ok()),
                BmcProtocolEvent::RequestAnswered { number, reply } => (number, reply.is_ok()),
                BmcProtocolEvent::HardwareHealth { .. } => continue,
                BmcProtocolEvent::Note { .. } => panic!("{event:?}"),
            });
        }
        answered
    }
}

#[test]
fn the_nodes_of_one_bmc_take_turns_with_a_pause_after_each() {
    let mut bench = RedfishProtocolBench::new();
    let (one, two) = (node(1, "192.0.2.1", 1), node(2, "192.0.2.1", 2));
    let other = node(3, "192.0.2.2", 1);
    bench.order(&one, 7).unwrap();
    bench.request(&two, 8, &BmcRequest::Indicator).unwrap();
    bench.order(&other, 9).unwrap();
    let first = bench.transmit();
    let hosts = first.iter().map(|call| call.target.address.host.as_str());
    assert_eq!(hosts.collect::<Vec<_>>(), ["192.0.2.1", "192.0.2.2"]);
    for call in &first {
        let service = bench.services.get_mut(&call.target.address.host).unwrap();
        let response = service.handle(bench.now, &call.request, &mut bench.entropy);
        bench.end(call, Ok(response.unwrap()));
    }
    assert!(bench.transmit().is_empty(), "there is a pause");
    bench.run();
    let mut answered = bench.answered();
    answered.sort_unstable();
    assert_eq!(answered, [(7, true), (8, true), (9, true)]);
    let mut last = BTreeMap::new();
    for (at, host) in &bench.sent {
        if let Some(before) = last.insert(host, *at) {
            assert!(at.since_ms(before) >= REQUEST_GAP_MS, "{:?}", bench.sent);
        }
    }
}

#[test]
fn a_change_of_driver_info_fails_what_is_queued_and_logs_out() {
    let mut bench = RedfishProtocolBench::new();
    let mut node = node(1, "192.0.2.1", 1);
    bench.order(&node, 7).unwrap();
    bench.run();
    assert_eq!(bench.answered(), [(7, true)]);
    assert_eq!(bench.services["192.0.2.1"].sessions(), 1);
    bench.order(&node, 8).unwrap();
    bench.request(&node, 9, &BmcRequest::Indicator).unwrap();
    node.driver_info
        .insert("redfish_auth_type".into(), "basic".into());
    bench.order(&node, 10).unwrap();
    assert_eq!(bench.answered(), [(8, false), (9, false)]);
    bench.run();
    assert_eq!(bench.answered(), [(10, true)]);
    assert_eq!(bench.services["192.0.2.1"].sessions(), 0);
}

#[test]
fn a_late_answer_to_a_removed_session_only_lets_the_next_request_go() {
    let mut bench = RedfishProtocolBench::new();
    let (one, two) = (node(1, "192.0.2.1", 1), node(2, "192.0.2.1", 2));
    bench.order(&one, 7).unwrap();
    bench.order(&two, 8).unwrap();
    let calls = bench.transmit();
    bench.with(|redfish, context| redfish.remove(context, one.id));
    assert_eq!(bench.answered(), [(7, false)]);
    assert!(bench.transmit().is_empty(), "the BMC is still at work");
    let lost = BmcHttpError::Lost {
        message: "reset by peer".to_owned(),
    };
    bench.end(&calls[0], Err(lost));
    bench.run();
    assert_eq!(bench.answered(), [(8, true)]);
    assert_eq!(bench.redfish.deadline(), None);
}

#[test]
fn messages_of_others_and_answers_that_come_twice_are_left_alone() {
    let mut bench = RedfishProtocolBench::new();
    let node = node(1, "192.0.2.1", 1);
    for call in 0..20 {
        let message = BmcMessage::HttpAnswered {
            node: node.id,
            call,
            result: Ok(BmcHttpResponse::default()),
        };
        let rest = bench.with(|redfish, context| redfish.receive(context, message));
        assert!(rest.is_some());
    }
    let datagram = BmcMessage::Datagram {
        from: ([192, 0, 2, 1], 443).into(),
        bytes: Vec::new(),
    };
    let rest = bench.with(|redfish, context| redfish.receive(context, datagram));
    assert!(rest.is_some());
}

#[test]
fn a_record_that_cannot_be_used_is_refused_at_once() {
    let mut bench = RedfishProtocolBench::new();
    let mut node = node(1, "192.0.2.1", 1);
    assert!(bench.request(&node, 1, &BmcRequest::Mailbox).is_err());
    node.driver_info
        .insert("redfish_address".into(), Value::Null);
    let refused = bench.order(&node, 2).unwrap_err();
    assert!(refused.to_string().contains("redfish_address"), "{refused}");
    assert_eq!(
        (bench.redfish.bmc_identity(&node), bench.answered()),
        (None, vec![])
    );
    assert!(bench.transmit().is_empty());
}

#[test]
fn the_systems_of_one_chassis_are_not_in_conflict() {
    let bench = RedfishProtocolBench::new();
    let identity = |system| bench.redfish.bmc_identity(&node(1, "192.0.2.1", system));
    let one = identity(1).unwrap();
    assert_eq!(one, "https://192.0.2.1/redfish/v1/Systems/1");
    assert_ne!(Some(one), identity(2));
    let node = node(1, "192.0.2.1", 1);
    for (interface, served) in [
        (BmcInterface::Power(PowerInterface::Redfish), true),
        (BmcInterface::Management(ManagementInterface::Redfish), true),
        (BmcInterface::Vendor(VendorInterface::Redfish), true),
        (BmcInterface::Power(PowerInterface::Ssh), false),
    ] {
        assert_eq!(bench.redfish.serves(&node, interface), served);
    }
    assert_eq!(bench.redfish.reach(), BmcReach::Bmc);
    assert!(bench.redfish.resets_bmc_by_management());
}
