//! The periodic reading of power states.

use super::*;

#[test]
fn an_idle_node_is_read_and_its_state_reported() {
    let mut bench = BmcBench::with_sync();
    let id = bench.with_node(1);
    let first = bench.bmcs.deadline().unwrap();
    assert!(first < Tick(60_000), "at a random time within one interval");
    bench.advance(60_000);
    let (number, order) = bench.given_one();
    assert_eq!(order, PowerOrder::Status);
    bench.answer_power(number, PowerState::On);
    let read = BmcOutcome::PowerRead {
        node: id,
        answer: PowerAnswer::Power(PowerState::On),
    };
    assert!(bench.events().contains(&read));
    bench.advance(60_000);
    assert_eq!(bench.given_one().1, PowerOrder::Status);
}

#[test]
fn a_node_that_is_not_idle_is_not_read() {
    let changes: [fn(&mut Node); 5] = [
        |node| node.maintenance = true,
        |node| node.provision_state = ProvisionState::Enroll,
        |node| node.target_power_state = Some(PowerState::On),
        |node| node.driver = "fake-hardware".into(),
        |node| node.driver = "strange".into(),
    ];
    for change in changes {
        let mut bench = BmcBench::with_sync();
        let id = bench.with_node(1);
        change(bench.node(id));
        bench.advance(60_000);
        assert_eq!(bench.given(), []);
    }
}

#[test]
fn what_a_job_will_read_itself_is_not_reported() {
    let mut bench = BmcBench::with_sync();
    let id = bench.with_node(1);
    bench.advance(60_000);
    let (number, _) = bench.given_one();
    bench.start_job(id);
    bench.answer_power(number, PowerState::On);
    let reported = |event: &BmcOutcome| matches!(event, BmcOutcome::PowerRead { .. });
    assert!(!bench.events().iter().any(reported));
    bench.advance(60_000);
    assert_eq!(bench.given(), []);
}

#[test]
fn failures_raise_a_fault_and_at_last_put_the_node_in_maintenance() {
    let mut bench = BmcBench::with_sync();
    let id = bench.with_node(1);
    let mut seen = Vec::new();
    for _ in 0..3 {
        bench.advance(60_000);
        bench.answer(bench.given_one().0, Err(silent()));
        let (_, events) = bench.notes_and_events();
        let faults = events.into_iter().filter_map(|event| match event {
            BmcOutcome::FaultRaised(fault) => Some(fault.to_string()),
            BmcOutcome::PowerUnreadable { node, .. } if node == id => Some("gives up".to_owned()),
            _ => None,
        });
        seen.push(faults.collect::<Vec<_>>());
    }
    assert_eq!(seen[0], [""; 0], "one lost reading is not a fault");
    assert!(seen[1][0].contains("node-1"), "{seen:?}");
    assert_eq!(seen[2].last().map(String::as_str), Some("gives up"));
    // A node that is in maintenance for another reason is left alone.
    bench.bmcs.sync_next(bench.now, id);
    bench.advance(0);
    bench.node(id).maintenance = true;
    bench.answer(bench.given_one().0, Err(silent()));
    let gives_up = |event: &BmcOutcome| matches!(event, BmcOutcome::PowerUnreadable { .. });
    assert!(!bench.events().iter().any(gives_up));
    bench.node(id).maintenance = false;
    bench.bmcs.sync_next(bench.now, id);
    bench.advance(0);
    bench.answer_power(bench.given_one().0, PowerState::On);
    let cleared = |event: &BmcOutcome| matches!(event, BmcOutcome::FaultCleared(_));
    assert!(bench.events().iter().any(cleared));
}

#[test]
fn a_node_that_is_deleted_takes_its_fault_along() {
    let mut bench = BmcBench::with_sync();
    let id = bench.with_node(1);
    for _ in 0..2 {
        bench.advance(60_000);
        bench.answer(bench.given_one().0, Err(silent()));
        bench.events();
    }
    bench.nodes.0.remove(&id);
    bench.with(|bmcs, context| bmcs.remove(context, id));
    let events = bench.events();
    assert!(
        matches!(&events[..], [BmcOutcome::FaultCleared(_)]),
        "{events:?}"
    );
    assert_eq!(bench.bmcs.deadline(), None);
}

#[test]
fn a_bmc_that_answers_badly_is_read_less_often() {
    /// How many readings are sent in two hours, if this many of four fail.
    fn readings(failures: u64) -> usize {
        let mut bench = BmcBench::with_sync();
        bench.limits.power_sync_retries_max = 0;
        bench.with_node(1);
        let mut count = 0;
        for _ in 0..240 {
            bench.advance(30_000);
            for (number, _) in bench.given() {
                count += 1;
                if number % 4 < failures {
                    bench.answer(number, Err(silent()));
                } else {
                    bench.answer_power(number, PowerState::On);
                }
            }
            bench.events();
        }
        count
    }
    let [never, some, often, always] = [0, 2, 3, 4].map(readings);
    assert!((115..=121).contains(&never), "{never}");
    assert!(
        never > some && some > often && often > always,
        "{some} {often} {always}"
    );
    assert!(always > 5, "{always}");
}

#[test]
fn a_node_whose_power_failure_ended_is_reported_although_it_is_in_maintenance() {
    let mut bench = BmcBench::with_sync();
    let id = bench.with_node(1);
    let node = bench.node(id);
    node.maintenance = true;
    node.fault = Some(trivet_model::node::POWER_FAILURE.to_owned());
    bench.advance(60_000);
    bench.answer_power(bench.given_one().0, PowerState::Off);
    let read = BmcOutcome::PowerRead {
        node: id,
        answer: PowerAnswer::Power(PowerState::Off),
    };
    assert!(bench.events().contains(&read));
}

#[test]
fn a_reading_that_is_not_answered_is_not_repeated() {
    let mut bench = BmcBench::with_sync();
    bench.with_node(1);
    bench.advance(60_000);
    bench.given_one();
    for _ in 0..10 {
        bench.advance(60_000);
        assert_eq!(bench.given(), [], "one reading of a node at a time");
    }
}
