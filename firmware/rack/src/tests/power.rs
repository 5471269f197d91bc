//! An operator's power orders and the sessions with BMCs.

use trivet_bmc_ipmi::BootFlags;
use trivet_bmc_ipmi::bmc::{
    IpmiChassis, IpmiPrivilege, IpmiSimulator, IpmiSimulatorSetup, IpmiSimulatorUser,
};
use trivet_model::order::PowerWanted;
use trivet_model::{PowerOrder, PowerState};

use super::*;

pub(super) struct RackTestChassis {
    pub(super) on: bool,
    pub(super) works: bool,
    pub(super) orders: Vec<PowerOrder>,
}

impl RackTestChassis {
    pub(super) fn new(on: bool) -> Self {
        Self {
            on,
            works: true,
            orders: Vec::new(),
        }
    }
}

impl IpmiChassis for RackTestChassis {
    fn power(&self) -> PowerState {
        if self.on {
            PowerState::On
        } else {
            PowerState::Off
        }
    }

    fn control(&mut self, order: PowerOrder) {
        self.orders.push(order);
        if self.works {
            self.on = order != PowerOrder::Off;
        }
    }

    fn boot(&self) -> BootFlags {
        BootFlags::default()
    }

    fn set_boot(&mut self, _: BootFlags) {}
}

pub(super) fn bmc() -> IpmiSimulator {
    IpmiSimulator::new(IpmiSimulatorSetup {
        users: vec![IpmiSimulatorUser {
            name: b"a".to_vec(),
            password: b"b".to_vec(),
            limit: IpmiPrivilege::Administrator,
        }],
        guid: [3; 16],
        kg: None,
        suites: vec![trivet_bmc_ipmi::IpmiCipherSuite::Sha256],
    })
}

/// Delivers datagrams in both directions until neither side sends more.
pub(super) fn exchange_datagrams(
    bench: &mut RackBench,
    bmc: &mut IpmiSimulator,
    case: &mut RackTestChassis,
) {
    let mut entropy = SeededRandom::new(4);
    loop {
        let sent: Vec<_> = std::mem::take(&mut bench.outputs)
            .into_iter()
            .filter_map(|output| match output {
                RackOutput::Bmc(BmcTransmit::Datagram { to, bytes }) => Some((to, bytes)),
                _ => None,
            })
            .collect();
        let Some((from, bytes)) = sent.into_iter().next() else {
            return;
        };
        if let Some(bytes) = bmc.datagram(0, &bytes, case, &mut entropy) {
            bench.handle(RackInput::Bmc(BmcMessage::Datagram { from, bytes }));
        }
    }
}

/// The same until an order is answered; returns the reply and keeps the outputs that came with
/// it.
pub(super) fn exchange_until_reply(
    bench: &mut RackBench,
    bmc: &mut IpmiSimulator,
    case: &mut RackTestChassis,
) -> (u64, Result<OrderOutcome, OrderRefusal>) {
    let mut entropy = SeededRandom::new(4);
    let mut sent = std::collections::VecDeque::new();
    for _ in 0..200 {
        for output in &bench.outputs {
            if let RackOutput::Bmc(BmcTransmit::Datagram { to, bytes }) = output {
                sent.push_back((*to, bytes.clone()));
            }
        }
        bench.outputs.clear();
        let (from, bytes) = sent.pop_front().expect("the BMC is being spoken to");
        if let Some(bytes) = bmc.datagram(0, &bytes, case, &mut entropy) {
            bench.handle(RackInput::Bmc(BmcMessage::Datagram { from, bytes }));
        }
        for output in &bench.outputs {
            if let RackOutput::Reply { ticket, result } = output {
                return (*ticket, result.clone());
            }
        }
    }
    panic!("no answer");
}

pub(super) fn power_order(node: NodeId, state: PowerState) -> RackOrder {
    RackOrder::Power {
        node,
        want: PowerWanted::State(state),
        timeout_s: None,
    }
}

#[test]
fn an_order_is_polled_until_the_state_is_reached() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(false));
    bench.order(power_order(id, PowerState::On)).unwrap();
    assert_eq!(bench.node(id).target_power_state, Some(PowerState::On));
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    assert!(case.on);
    bench.advance(1000);
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!((node.target_power_state, node.last_error), (None, None));
    assert_eq!(notes_of(&bench, id).last().unwrap(), "BMC reports power on");
}

/// The node's timeline.
pub(super) fn notes_of(bench: &RackBench, id: NodeId) -> Vec<String> {
    let view = bench.rack.view();
    let notes = view.nodes[&id].timeline.iter();
    notes.map(|note| note.kind.to_string()).collect()
}

#[test]
fn a_bmc_that_accepts_and_does_nothing_is_found_out() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let (mut bmc, mut case) = (
        bmc(),
        RackTestChassis {
            works: false,
            ..RackTestChassis::new(true)
        },
    );
    bench.order(power_order(id, PowerState::Off)).unwrap();
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    for _ in 0..300 {
        bench.advance(1000);
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
    }
    let node = bench.node(id);
    assert_eq!(node.target_power_state, None);
    let message = "still reports the machine as before";
    assert!(node.last_error.unwrap().contains(message));
    assert!(notes_of(&bench, id).last().unwrap().contains(message));
}

#[test]
fn a_bmc_that_is_silent_is_named_as_such() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.order(power_order(id, PowerState::On)).unwrap();
    for _ in 0..60 {
        bench.advance(1000);
    }
    let node = bench.node(id);
    assert_eq!(node.target_power_state, None);
    assert!(node.last_error.unwrap().contains("did not answer"));
}

#[test]
fn an_order_under_way_is_polled_again_after_a_restart() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.order(power_order(id, PowerState::On)).unwrap();
    let mut bench = bench.restarted();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    assert_eq!(bench.node(id).target_power_state, None);
}

#[test]
fn two_nodes_may_not_share_a_bmc() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let info = bench.node(one).driver_info;
    bench.force(two, |node| node.driver_info = info);
    bench.order(power_order(one, PowerState::On)).unwrap();
    bench.order(power_order(two, PowerState::On)).unwrap();
    let message = bench.node(two).last_error.unwrap();
    assert!(message.contains("another node has the same"), "{message}");
    let other = format!("node-1 ({one})");
    assert!(
        message.contains(&other),
        "the other node is named: {message}"
    );
}

/// The repair for swapped BMCs: the session of the node that had the address is still open.
#[test]
fn a_bmc_address_that_another_node_had_before_is_used_at_once() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    bench.order(power_order(one, PowerState::On)).unwrap();
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    assert_eq!(bench.node(one).last_error, None);
    let info = bench.node(one).driver_info;
    bench.force(one, |node| {
        let elsewhere = json!("192.0.2.77");
        node.driver_info.insert("ipmi_address".into(), elsewhere);
    });
    bench.force(two, |node| node.driver_info = info);
    bench.order(power_order(two, PowerState::On)).unwrap();
    assert_eq!(bench.node(two).last_error, None);
}

#[test]
fn unfit_driver_info_is_named() {
    for (key, value) in [
        ("ipmi_address", json!("bmc.example")),
        ("ipmi_address", json!(null)),
        ("ipmi_port", json!(70_000)),
        ("ipmi_port", json!("x")),
        ("ipmi_port", json!([])),
    ] {
        let mut bench = RackBench::new();
        let id = bench.with_node(1);
        bench.force(id, |node| drop(node.driver_info.insert(key.into(), value)));
        bench.order(power_order(id, PowerState::On)).unwrap();
        let message = bench.node(id).last_error.unwrap();
        assert!(message.contains(key), "{message}");
    }
}

#[test]
fn a_busy_node_takes_no_power_orders() {
    let (mut bench, node) = RackBench::inspecting();
    bench.refused(power_order(node, PowerState::Off), RefusalKind::Conflict);
    bench.verb(node, Verb::Abort).unwrap();
    bench.order(power_order(node, PowerState::Off)).unwrap();
}

#[test]
fn a_soft_reboot_waits_until_the_system_is_down_and_then_switches_on() {
    let mut bench = RackBench::new();
    let node = bench.with_node(1);
    bench.force(node, |node| node.power_state = Some(PowerState::On));
    let (mut bmc, mut case) = (
        bmc(),
        RackTestChassis {
            works: false,
            ..RackTestChassis::new(true)
        },
    );
    let want = PowerWanted::SoftReboot;
    let timeout_s = None;
    let order = RackOrder::Power {
        node,
        want,
        timeout_s,
    };
    bench.order(order).unwrap();
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    for _ in 0..90 {
        bench.advance(1000);
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
    }
    let target = Some(PowerState::On);
    assert_eq!(bench.node(node).target_power_state, target, "it still runs");
    (case.on, case.works) = (false, true);
    for _ in 0..6 {
        bench.advance(1000);
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
    }
    assert!(case.on);
    let node = bench.node(node);
    assert_eq!((node.target_power_state, node.last_error), (None, None));
}

#[test]
fn a_reboot_ends_after_the_machine_was_off_and_is_on_again() {
    let mut bench = RackBench::new();
    let node = bench.with_node(1);
    bench.force(node, |node| node.power_state = Some(PowerState::On));
    let slow = RackTestChassis::new(true);
    let (mut bmc, mut case) = (
        bmc(),
        RackTestChassis {
            works: false,
            ..slow
        },
    );
    let order = RackOrder::Power {
        node,
        want: PowerWanted::Reboot,
        timeout_s: None,
    };
    bench.order(order).unwrap();
    for _ in 0..30 {
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
        bench.advance(1000);
    }
    let target = Some(PowerState::On);
    assert_eq!(bench.node(node).target_power_state, target, "it still runs");
    (case.on, case.works) = (false, true);
    for _ in 0..10 {
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
        bench.advance(1000);
    }
    assert!(case.on);
    let node = bench.node(node);
    assert_eq!((node.target_power_state, node.last_error), (None, None));
}

#[test]
fn a_soft_order_ends_with_the_time_it_was_given() {
    let mut bench = RackBench::new();
    let node = bench.with_node(1);
    let (mut bmc, mut case) = (
        bmc(),
        RackTestChassis {
            works: false,
            ..RackTestChassis::new(true)
        },
    );
    let order = RackOrder::Power {
        node,
        want: PowerWanted::SoftOff,
        timeout_s: Some(5),
    };
    bench.order(order).unwrap();
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    for _ in 0..8 {
        bench.advance(1000);
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
    }
    let node = bench.node(node);
    assert_eq!(node.target_power_state, None);
    assert!(node.last_error.unwrap().contains("hard"));
}
