//! How well BMCs answer, and which of two nodes may use a BMC that both name.

use trivet_model::order::PowerWanted;
use trivet_model::view::BmcHealth;
use trivet_model::{PowerError, PowerOrder, PowerState};

use super::*;

fn bmc_health(bench: &RackBench, id: NodeId) -> Option<BmcHealth> {
    bench.rack.view().nodes.get(&id).unwrap().live.bmc
}

fn silent() -> PowerError {
    PowerError::NoResponse { waited_ms: 1 }
}

/// Records this many replies after `took_ms`, or failures.
fn record_replies(
    bench: &mut RackBench,
    id: NodeId,
    count: usize,
    took_ms: u64,
    error: Option<&PowerError>,
) {
    for _ in 0..count {
        let asked = bench.now.tick;
        bench.now.tick = asked.after_ms(took_ms);
        bench
            .rack
            .record_bmc_reply(bench.now, id, Some(asked), error);
    }
}

#[test]
fn a_bmc_is_measured_by_its_last_answers() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    assert_eq!(bmc_health(&bench, id), None, "it was never asked");
    record_replies(&mut bench, id, 3, 40, None);
    record_replies(&mut bench, id, 1, 40, Some(&silent()));
    let want = BmcHealth {
        requests: 4,
        replies: 3,
        median_ms: Some(40),
        last_error: Some("unreachable"),
        score: 75,
    };
    assert_eq!(bmc_health(&bench, id), Some(want));
    record_replies(&mut bench, id, 16, 40, None);
    let health = bmc_health(&bench, id).unwrap();
    assert_eq!(
        (health.requests, health.score),
        (16, 100),
        "the old ones are gone"
    );
    assert_eq!(health.last_error, Some("unreachable"), "but not the error");
}

#[test]
fn being_slow_costs_points_and_a_refusal_is_an_answer() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    record_replies(&mut bench, id, 4, 6_000, None);
    assert_eq!(bmc_health(&bench, id).unwrap().score, 80);
    let refused = PowerError::Refused { code: 0xd5 };
    record_replies(&mut bench, id, 16, 30, Some(&refused));
    let health = bmc_health(&bench, id).unwrap();
    assert_eq!((health.score, health.last_error), (100, Some("refused")));
}

#[test]
fn a_request_that_was_not_sent_does_not_count() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    for error in [
        PowerError::QueueFull,
        PowerError::NotConfigured { missing: "x" },
        PowerError::SharedBmc { other: "x".into() },
        PowerError::Unsupported { said: "x" },
    ] {
        record_replies(&mut bench, id, 1, 1, Some(&error));
    }
    assert_eq!(bmc_health(&bench, id), None);
    let nobody = NodeId::random(&mut SeededRandom::new(9));
    record_replies(&mut bench, nobody, 1, 1, None);
    assert_eq!(bench.rack.health.doublings(nobody), 0);
}

#[test]
fn a_bmc_request_counts_without_its_time() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.rack.record_bmc_reply(bench.now, id, None, None);
    let health = bmc_health(&bench, id).unwrap();
    assert_eq!((health.replies, health.median_ms), (1, None));
}

#[test]
fn a_bad_score_makes_readings_rarer() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    record_replies(&mut bench, id, 7, 1, Some(&silent()));
    assert_eq!(bench.rack.health.doublings(id), 0, "too few to judge");
    record_replies(&mut bench, id, 1, 1, Some(&silent()));
    assert_eq!(bench.rack.health.doublings(id), 2);
    record_replies(&mut bench, id, 12, 1, None);
    // Four of sixteen failed.
    assert_eq!(bench.rack.health.doublings(id), 0);
    record_replies(&mut bench, id, 9, 1, None);
    record_replies(&mut bench, id, 5, 1, Some(&silent()));
    assert_eq!(bench.rack.health.doublings(id), 1);
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    assert_eq!(bench.rack.health.doublings(id), 0);
}

#[test]
fn a_small_change_of_the_median_is_not_shown() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    record_replies(&mut bench, id, 16, 40, None);
    record_replies(&mut bench, id, 16, 45, None);
    assert_eq!(bmc_health(&bench, id).unwrap().median_ms, Some(40));
    record_replies(&mut bench, id, 16, 90, None);
    assert!(bmc_health(&bench, id).unwrap().median_ms > Some(60));
}

fn wants_on(node: NodeId) -> RackOrder {
    RackOrder::Power {
        node,
        want: PowerWanted::State(PowerState::On),
        timeout_s: None,
    }
}

fn faults(bench: &RackBench) -> Vec<String> {
    let view = bench.rack.view();
    view.faults.keys().map(ToString::to_string).collect()
}

#[test]
fn of_two_nodes_with_one_bmc_the_older_has_it_also_after_a_restart() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let info = bench.node(one).driver_info;
    bench.force(two, |node| node.driver_info.clone_from(&info));
    let shared = faults(&bench);
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert!(shared[0].starts_with("node node-2: its BMC"), "{shared:?}");
    assert!(shared[0].contains("is node node-1's"), "{shared:?}");
    let mut bench = bench.restarted();
    assert_eq!(faults(&bench), shared);
    // The younger node sends the first request and is still refused.
    bench.order(wants_on(two)).unwrap();
    let said = bench.node(two).last_error.unwrap();
    assert!(said.contains("another node has the same"), "{said}");
    bench.order(wants_on(one)).unwrap();
    let spoken = bench.outputs.iter();
    assert!(
        spoken
            .clone()
            .any(|output| matches!(output, RackOutput::Bmc { .. }))
    );
}

#[test]
fn the_fault_goes_when_a_record_is_corrected_or_deleted() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let (first, second) = (bench.node(one).driver_info, bench.node(two).driver_info);
    bench.force(two, |node| node.driver_info.clone_from(&first));
    assert_eq!(faults(&bench).len(), 1);
    bench.force(two, |node| node.name = Some("renamed".into()));
    assert!(faults(&bench)[0].starts_with("node renamed:"));
    bench.force(two, |node| node.driver_info.clone_from(&second));
    assert_eq!(faults(&bench), [""; 0]);
    bench.force(two, |node| node.driver_info.clone_from(&first));
    bench.order(RackOrder::DeleteNode(one)).unwrap();
    assert_eq!(faults(&bench), [""; 0]);
    bench.order(wants_on(two)).unwrap();
    assert_eq!(bench.node(two).last_error, None);
}

#[test]
fn a_node_that_moves_to_the_bmc_of_an_older_one_closes_its_session() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let second = bench.node(two).driver_info;
    bench
        .rack
        .send_power_order(bench.now, two, PowerOrder::Status);
    // Now the older node's record names this BMC.
    bench.force(one, |node| node.driver_info.clone_from(&second));
    assert!(faults(&bench)[0].starts_with("node node-2:"));
    bench.order(wants_on(one)).unwrap();
    assert_eq!(bench.node(one).last_error, None);
    // A node with another kind of power control is not in conflict.
    bench.force(two, |node| node.driver = "manual-management".into());
    assert_eq!(faults(&bench), [""; 0]);
}
