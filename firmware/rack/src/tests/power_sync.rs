//! Power sync: power states that are read at intervals.

use super::power::{RackTestChassis, bmc, exchange_datagrams};
use super::*;
use trivet_model::PowerState;

const EVERY_MS: u64 = 60_000;

fn bench() -> (RackBench, NodeId) {
    let mut settings = settings();
    settings.power_sync_interval_ms = Some(EVERY_MS);
    let mut bench = RackBench::with(settings);
    let id = bench.with_node(1);
    bench.force(id, |node| node.provision_state = ProvisionState::Manageable);
    (bench, id)
}

/// The number of datagrams to BMCs in the last batch.
fn sent(bench: &RackBench) -> usize {
    let mut outputs = bench.outputs.iter();
    outputs
        .by_ref()
        .filter(|output| matches!(output, RackOutput::Bmc(_)))
        .count()
}

/// One round of readings. A session that was idle ends and is opened again meanwhile.
fn round(
    bench: &mut RackBench,
    bmc: &mut trivet_bmc_ipmi::bmc::IpmiSimulator,
    case: &mut RackTestChassis,
) {
    bench.advance(EVERY_MS);
    for _ in 0..5 {
        exchange_datagrams(bench, bmc, case);
        bench.advance(1000);
    }
}

/// One round of readings without a reply: until the session gives up.
fn silent_round(bench: &mut RackBench) {
    bench.advance(EVERY_MS);
    for _ in 0..60 {
        bench.advance(1000);
    }
}

#[test]
fn what_was_done_at_the_machine_shows_within_a_round() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    round(&mut bench, &mut bmc, &mut case);
    assert_eq!(bench.node(id).power_state, Some(PowerState::On));
    case = RackTestChassis::new(false);
    round(&mut bench, &mut bmc, &mut case);
    assert_eq!(bench.node(id).power_state, Some(PowerState::Off));
    // A reading without a change is not written to flash.
    let revision = bench.node(id).revision;
    round(&mut bench, &mut bmc, &mut case);
    assert_eq!(bench.node(id).revision, revision);
}

#[test]
fn busy_new_and_manually_managed_nodes_are_not_read() {
    for change in [
        (|node: &mut Node| node.provision_state = ProvisionState::Enroll) as fn(&mut Node),
        |node| node.maintenance = true,
        |node| node.target_power_state = Some(PowerState::On),
        |node| node.driver = "manual-management".into(),
    ] {
        let (mut bench, id) = bench();
        bench.force(id, change);
        bench.advance(EVERY_MS);
        assert_eq!(sent(&bench), 0);
    }
    let mut bench = RackBench::new();
    bench.with_node(1);
    bench.advance(EVERY_MS);
    assert_eq!(sent(&bench), 0, "it is switched off");
}

#[test]
fn a_bmc_that_went_away_is_one_fault_that_goes_when_it_answers() {
    let (mut bench, id) = bench();
    silent_round(&mut bench);
    assert!(
        bench.rack.view().faults.is_empty(),
        "one failure is not a fault"
    );
    silent_round(&mut bench);
    let view = bench.rack.view();
    let faults: Vec<String> = view.faults.keys().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("node node-1: the BMC did not answer"));
    let notes = view.nodes.get(&id).unwrap().timeline.len();
    for _ in 0..8 {
        silent_round(&mut bench);
    }
    let view = bench.rack.view();
    assert_eq!(view.faults.len(), 1);
    let now = view.nodes.get(&id).unwrap().timeline.len();
    assert_eq!(now, notes + 1, "the timeline is not filled with it");
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    for _ in 0..20 {
        round(&mut bench, &mut bmc, &mut case);
    }
    assert!(bench.rack.view().faults.is_empty());
    assert_eq!(bench.node(id).power_state, Some(PowerState::On));
}

#[test]
fn a_node_whose_bmc_is_lost_has_a_power_failure_until_the_bmc_answers() {
    let (mut bench, id) = bench();
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    silent_round(&mut bench);
    silent_round(&mut bench);
    assert!(!bench.node(id).maintenance, "twice is not enough");
    for _ in 0..3 {
        silent_round(&mut bench);
    }
    let node = bench.node(id);
    assert_eq!(node.fault.as_deref(), Some("power failure"));
    assert!(node.maintenance);
    assert_eq!(node.power_state, None);
    let why = node.maintenance_reason.unwrap();
    assert!(why.contains("did not answer"), "{why}");
    assert_eq!(node.last_error, Some(why));
    // It survives a restart of the box and is cleared by the box.
    let mut bench = bench.restarted();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    for _ in 0..5 {
        round(&mut bench, &mut bmc, &mut case);
    }
    let node = bench.node(id);
    assert_eq!((node.maintenance, node.fault), (false, None));
    assert_eq!((node.maintenance_reason, node.last_error), (None, None));
    assert_eq!(node.power_state, Some(PowerState::On));
}

#[test]
fn maintenance_that_an_operator_set_stays_when_the_bmc_answers() {
    let (mut bench, id) = bench();
    for _ in 0..5 {
        silent_round(&mut bench);
    }
    assert!(bench.node(id).has_power_failure());
    bench
        .order(RackOrder::Maintenance {
            node: id,
            on: true,
            reason: Some("a new BMC comes".to_owned()),
        })
        .unwrap();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    for _ in 0..5 {
        round(&mut bench, &mut bmc, &mut case);
    }
    let node = bench.node(id);
    assert!(node.maintenance);
    assert_eq!(node.maintenance_reason.as_deref(), Some("a new BMC comes"));
}

#[test]
fn a_silent_bmc_is_read_less_often() {
    let (mut bench, _) = bench();
    let mut requests = Vec::new();
    for second in 0..7200 {
        bench.advance(1000);
        if sent(&bench) > 0 && bench.rack.bmcs.deadline().is_some() {
            requests.push(second);
        }
    }
    let in_hour = |from: u32| {
        requests
            .iter()
            .filter(|at| (from..from + 3600).contains(*at))
            .count()
    };
    assert!(
        in_hour(0) > in_hour(3600),
        "{} {}",
        in_hour(0),
        in_hour(3600)
    );
}

#[test]
fn a_node_that_is_removed_takes_its_fault_along() {
    let (mut bench, id) = bench();
    silent_round(&mut bench);
    silent_round(&mut bench);
    assert_eq!(bench.rack.view().faults.len(), 1);
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    assert!(bench.rack.view().faults.is_empty());
    bench.advance(EVERY_MS * 20);
    assert_eq!(sent(&bench), 0);
}
