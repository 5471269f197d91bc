//! How well BMCs answer, and who speaks to one that two nodes name.

use trivet_model::order::PowerWanted;
use trivet_model::view::BmcHealth;
use trivet_model::{PowerError, PowerOrder, PowerState};

use super::*;

fn told(bench: &Bench, id: NodeId) -> Option<BmcHealth> {
    bench.rack.view().nodes.get(&id).unwrap().live.bmc
}

fn silent() -> PowerError {
    PowerError::Silent { waited_ms: 1 }
}

/// So many answers after `took_ms`, or failures.
fn hears(bench: &mut Bench, id: NodeId, count: usize, took_ms: u64, error: Option<&PowerError>) {
    for _ in 0..count {
        let asked = bench.now.tick;
        bench.now.tick = asked.after_ms(took_ms);
        bench.rack.bmc_heard(bench.now, id, Some(asked), error);
    }
}

#[test]
fn a_bmc_is_measured_by_its_last_answers() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    assert_eq!(told(&bench, id), None, "it was never asked");
    hears(&mut bench, id, 3, 40, None);
    hears(&mut bench, id, 1, 40, Some(&silent()));
    let want = BmcHealth {
        asked: 4,
        answered: 3,
        median_ms: Some(40),
        last_error: Some("unreachable"),
        score: 75,
    };
    assert_eq!(told(&bench, id), Some(want));
    hears(&mut bench, id, 16, 40, None);
    let health = told(&bench, id).unwrap();
    assert_eq!(
        (health.asked, health.score),
        (16, 100),
        "the old ones are gone"
    );
    assert_eq!(health.last_error, Some("unreachable"), "but not the error");
}

#[test]
fn being_slow_costs_points_and_a_refusal_is_an_answer() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    hears(&mut bench, id, 4, 6_000, None);
    assert_eq!(told(&bench, id).unwrap().score, 80);
    let refused = PowerError::Refused { code: 0xd5 };
    hears(&mut bench, id, 16, 30, Some(&refused));
    let health = told(&bench, id).unwrap();
    assert_eq!((health.score, health.last_error), (100, Some("refused")));
}

#[test]
fn what_never_reached_the_bmc_says_nothing_of_it() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    for error in [
        PowerError::Busy,
        PowerError::NotConfigured { missing: "x" },
        PowerError::SharedBmc { other: "x".into() },
        PowerError::Unsupported { said: "x" },
    ] {
        hears(&mut bench, id, 1, 1, Some(&error));
    }
    assert_eq!(told(&bench, id), None);
    let nobody = NodeId::random(&mut Seeded::new(9));
    hears(&mut bench, nobody, 1, 1, None);
    assert_eq!(bench.rack.health.doublings(nobody), 0);
}

#[test]
fn an_errand_counts_without_its_time() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    bench.rack.bmc_heard(bench.now, id, None, None);
    let health = told(&bench, id).unwrap();
    assert_eq!((health.answered, health.median_ms), (1, None));
}

#[test]
fn a_bad_score_makes_readings_rarer() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    hears(&mut bench, id, 7, 1, Some(&silent()));
    assert_eq!(bench.rack.health.doublings(id), 0, "too few to judge");
    hears(&mut bench, id, 1, 1, Some(&silent()));
    assert_eq!(bench.rack.health.doublings(id), 2);
    hears(&mut bench, id, 12, 1, None);
    // Four of sixteen failed.
    assert_eq!(bench.rack.health.doublings(id), 0);
    hears(&mut bench, id, 9, 1, None);
    hears(&mut bench, id, 5, 1, Some(&silent()));
    assert_eq!(bench.rack.health.doublings(id), 1);
    bench.order(Order::DeleteNode(id)).unwrap();
    assert_eq!(bench.rack.health.doublings(id), 0);
}

#[test]
fn a_median_that_trembles_is_no_news() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    hears(&mut bench, id, 16, 40, None);
    hears(&mut bench, id, 16, 45, None);
    assert_eq!(told(&bench, id).unwrap().median_ms, Some(40));
    hears(&mut bench, id, 16, 90, None);
    assert!(told(&bench, id).unwrap().median_ms > Some(60));
}

fn wants_on(node: NodeId) -> Order {
    Order::Power {
        node,
        want: PowerWanted::State(PowerState::On),
        timeout_s: None,
    }
}

fn faults(bench: &Bench) -> Vec<String> {
    let view = bench.rack.view();
    view.faults.keys().map(ToString::to_string).collect()
}

#[test]
fn of_two_nodes_with_one_bmc_the_older_has_it_also_after_a_restart() {
    let mut bench = Bench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let info = bench.node(one).driver_info;
    bench.force(two, |node| node.driver_info.clone_from(&info));
    let shared = faults(&bench);
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert!(shared[0].starts_with("node node-2: its BMC"), "{shared:?}");
    assert!(shared[0].contains("is node node-1's"), "{shared:?}");
    let mut bench = bench.restarted();
    assert_eq!(faults(&bench), shared);
    // The younger asks first and is refused all the same.
    bench.order(wants_on(two)).unwrap();
    let said = bench.node(two).last_error.unwrap();
    assert!(said.contains("another node has the same"), "{said}");
    bench.order(wants_on(one)).unwrap();
    let spoken = bench.outputs.iter();
    assert!(
        spoken
            .clone()
            .any(|output| matches!(output, Output::Bmc { .. }))
    );
}

#[test]
fn the_fault_goes_when_a_record_is_corrected_or_deleted() {
    let mut bench = Bench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let (first, second) = (bench.node(one).driver_info, bench.node(two).driver_info);
    bench.force(two, |node| node.driver_info.clone_from(&first));
    assert_eq!(faults(&bench).len(), 1);
    bench.force(two, |node| node.name = Some("renamed".into()));
    assert!(faults(&bench)[0].starts_with("node renamed:"));
    bench.force(two, |node| node.driver_info.clone_from(&second));
    assert_eq!(faults(&bench), [""; 0]);
    bench.force(two, |node| node.driver_info.clone_from(&first));
    bench.order(Order::DeleteNode(one)).unwrap();
    assert_eq!(faults(&bench), [""; 0]);
    bench.order(wants_on(two)).unwrap();
    assert_eq!(bench.node(two).last_error, None);
}

#[test]
fn who_moves_to_an_older_ones_bmc_lets_go_of_the_line() {
    let mut bench = Bench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let second = bench.node(two).driver_info;
    bench.rack.give_power(bench.now, two, PowerOrder::Status);
    // Now the older one says that this BMC is its own.
    bench.force(one, |node| node.driver_info.clone_from(&second));
    assert!(faults(&bench)[0].starts_with("node node-2:"));
    bench.order(wants_on(one)).unwrap();
    assert_eq!(bench.node(one).last_error, None);
    // One that is switched otherwise is no rival.
    bench.force(two, |node| node.driver = "manual-management".into());
    assert_eq!(faults(&bench), [""; 0]);
}
