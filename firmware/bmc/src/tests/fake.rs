//! Nodes without a BMC.

use super::*;

fn run(driver: &str, state: ProvisionState, order: PowerOrder) -> (Vec<String>, Vec<BmcOutcome>) {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    driver.clone_into(&mut bench.node(id).driver);
    bench.node(id).provision_state = state;
    bench.for_operator(id, order);
    bench.notes_and_events()
}

#[test]
fn fake_hardware_obeys_at_once_without_a_note() {
    for order in [PowerOrder::On, PowerOrder::Off, PowerOrder::Reset] {
        let (notes, events) = run("fake-hardware", ProvisionState::Manageable, order);
        assert_eq!(notes, [""; 0]);
        assert_eq!(completed(&events), [(BmcOrderOwner::Operator, order, true)]);
    }
    // Without a reading before, the machine counts as off.
    let status = PowerOrder::Status;
    let (_, events) = run("fake-hardware", ProvisionState::Manageable, status);
    let [BmcOutcome::OrderCompleted { result, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(*result, Ok(PowerAnswer::Power(PowerState::Off)));
}

#[test]
fn a_person_gets_instructions() {
    use ProvisionState::{Inspecting, Manageable};
    for (state, order, want) in [
        (Inspecting, PowerOrder::On, "boot from the network"),
        (Manageable, PowerOrder::On, "on now"),
        (Manageable, PowerOrder::Off, "off now"),
        (Manageable, PowerOrder::SoftOff, "down now"),
        (Manageable, PowerOrder::Reset, "off and on again now"),
    ] {
        let (notes, events) = run("manual-management", state, order);
        assert!(
            matches!(&notes[..], [note] if note.contains(want)),
            "{notes:?}"
        );
        assert!(notes[0].contains("node-1"), "{notes:?}");
        assert_eq!(completed(&events), [(BmcOrderOwner::Operator, order, true)]);
    }
    let (notes, _) = run("manual-management", Manageable, PowerOrder::Status);
    assert_eq!(notes, [""; 0]);
}

#[test]
fn where_there_is_no_bmc_its_requests_are_refused() {
    for (driver, want) in [
        ("fake-hardware", "fake hardware without a BMC"),
        ("manual-management", "no management by a BMC"),
        ("strange", "hardware type"),
    ] {
        let mut bench = BmcBench::new();
        let id = bench.with_node(1);
        driver.clone_into(&mut bench.node(id).driver);
        let request = BmcRequest::Sensors;
        bench.with(|bmcs, context| bmcs.vendor_request(context, id, 7, request));
        let (notes, _) = bench.notes_and_events();
        assert!(notes[0].contains(want), "{driver}: {notes:?}");
    }
}

#[test]
fn only_what_answers_can_be_read() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    for (driver, reach) in [
        ("ipmi", Some(BmcReach::Bmc)),
        ("ssh", Some(BmcReach::Host)),
        ("manual-management", Some(BmcReach::Record)),
        ("fake-hardware", Some(BmcReach::Record)),
        ("strange", None),
    ] {
        driver.clone_into(&mut bench.node(id).driver);
        let node = bench.nodes.0[&id].clone();
        assert_eq!(bench.bmcs.power_reach(&node), reach, "{driver}");
    }
    assert!(BmcReach::Host.answers() && !BmcReach::OneWay.answers());
}

#[test]
fn the_power_state_of_a_machine_with_one_way_control_is_not_read() {
    let mut bench = BmcBench::with_sync();
    let id = bench.with_node(1);
    bench.node(id).driver = "manual-management".into();
    bench.node(id).attributes.interfaces.power = Some(PowerInterface::WakeOnLan);
    bench.advance(60_000);
    assert!(bench.one_way.lock().unwrap().orders.is_empty());
    bench.for_operator(id, PowerOrder::On);
    let (notes, _) = bench.notes_and_events();
    assert_eq!(notes, ["power on ordered"]);
}
