//! Power orders that do not come true, and machines that are heard whatever BMCs say.

use super::boot::lease;
use super::power::{Case, bmc, talk, told, wants};
use super::*;
use trivet_model::{PowerOrder, PowerState};

/// A box that reads power states, with one node at rest that is off.
fn bench() -> (Bench, NodeId) {
    let mut bench = Bench::with(Settings {
        power_fresh_ms: Some(60_000),
        ..settings()
    });
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Manageable;
        node.power_state = Some(PowerState::Off);
    });
    (bench, id)
}

fn broken(on: bool) -> Case {
    Case {
        works: false,
        ..Case::new(on)
    }
}

#[test]
fn an_order_that_does_nothing_is_given_again_stronger_and_after_a_bmc_restart() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(false));
    bench.order(wants(id, PowerState::On)).unwrap();
    for _ in 0..100 {
        talk(&mut bench, &mut bmc, &mut case);
        bench.later(1000);
    }
    let tried = [PowerOrder::On, PowerOrder::On];
    assert_eq!(case.orders[..2], tried);
    assert!(case.orders.len() <= 4, "{:?}", case.orders);
    let told = told(&bench, id);
    let restarts = told.iter().filter(|note| note.contains("bmc_reset cold"));
    assert_eq!(restarts.count(), 1, "{told:#?}");
    let node = bench.node(id);
    assert_eq!(node.target_power_state, None);
    assert!(
        node.last_error
            .unwrap()
            .contains("after the BMC was restarted")
    );
}

#[test]
fn what_the_restart_of_a_bmc_mends_ends_well() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(true));
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    bench.order(wants(id, PowerState::Off)).unwrap();
    for _ in 0..100 {
        talk(&mut bench, &mut bmc, &mut case);
        bench.later(1000);
        if told(&bench, id)
            .iter()
            .any(|note| note.contains("bmc_reset"))
            && !case.works
        {
            // As it comes back, it has done what it was told.
            (case.works, case.on) = (true, false);
        }
    }
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::Off));
    assert_eq!((node.target_power_state, node.last_error), (None, None));
    // To be off is never sought by switching on.
    assert!(case.orders.iter().all(|order| *order == PowerOrder::Off));
}

#[test]
fn a_soft_order_climbs_no_ladder() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(true));
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    bench
        .order(Order::Power {
            node: id,
            want: trivet_model::order::PowerWanted::SoftOff,
            timeout_s: Some(60),
        })
        .unwrap();
    for _ in 0..100 {
        talk(&mut bench, &mut bmc, &mut case);
        bench.later(1000);
    }
    assert_eq!(case.orders, [PowerOrder::SoftOff]);
    assert!(
        bench
            .node(id)
            .last_error
            .unwrap()
            .contains("did not go down")
    );
}

#[test]
fn a_machine_heard_on_the_wire_is_on_whatever_its_bmc_says() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(false));
    bench.order(wants(id, PowerState::On)).unwrap();
    talk(&mut bench, &mut bmc, &mut case);
    bench.later(1000);
    talk(&mut bench, &mut bmc, &mut case);
    assert_eq!(bench.node(id).target_power_state, Some(PowerState::On));
    lease(&mut bench, MacAddr([0x52, 0x54, 0, 0, 0, 1]));
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!((node.target_power_state, node.last_error), (None, None));
}

#[test]
fn a_machine_that_is_off_and_speaks_has_its_bmc_asked_at_once() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), Case::new(true));
    bench.later(1);
    lease(&mut bench, MacAddr([0x52, 0x54, 0, 0, 0, 1]));
    bench.later(1);
    for _ in 0..3 {
        talk(&mut bench, &mut bmc, &mut case);
        bench.later(100);
    }
    assert_eq!(bench.node(id).power_state, Some(PowerState::On));
}

#[test]
fn an_order_whose_line_went_away_is_not_lost() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), Case::new(false));
    // A reading is on its way, unanswered, when the record changes and an order comes.
    bench.later(60_000);
    bench.force(id, |node| {
        node.driver_info
            .insert("ipmi_priv_level".to_owned(), "OPERATOR".into());
    });
    bench.order(wants(id, PowerState::On)).unwrap();
    for _ in 0..5 {
        talk(&mut bench, &mut bmc, &mut case);
        bench.later(1000);
    }
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!(node.target_power_state, None);
    // And it is read again as ever.
    case.on = false;
    for _ in 0..70 {
        bench.later(1000);
        talk(&mut bench, &mut bmc, &mut case);
    }
    assert_eq!(bench.node(id).power_state, Some(PowerState::Off));
}

#[test]
fn a_bmc_is_told_when_its_node_goes() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), Case::new(true));
    bench.later(60_000);
    talk(&mut bench, &mut bmc, &mut case);
    assert_eq!(bmc.sessions(), 1);
    bench.order(Order::DeleteNode(id)).unwrap();
    talk(&mut bench, &mut bmc, &mut case);
    assert_eq!(bmc.sessions(), 0);
}

#[test]
fn after_a_restart_nobody_claims_what_is_not_known() {
    let (mut bench, id) = bench();
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    bench.order(wants(id, PowerState::Off)).unwrap();
    let mut bench = bench.restarted();
    let (mut bmc, mut case) = (bmc(), Case::new(true));
    for _ in 0..100 {
        talk(&mut bench, &mut bmc, &mut case);
        bench.later(1000);
    }
    let node = bench.node(id);
    assert_eq!(node.target_power_state, None);
    let said = node.last_error.unwrap();
    assert!(said.contains("the box restarted"), "{said}");
}
