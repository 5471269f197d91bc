//! Power changes: requests, polls, repetitions and the restart of a BMC.

use super::*;

/// Answers every order at once for so long: a request is accepted, and the state stays as it is.
/// Returns the requests other than polls, and when they were sent.
fn run(bench: &mut BmcBench, state: PowerState, ms: u64) -> Vec<(u64, PowerOrder)> {
    let until = bench.now.after_ms(ms);
    let mut requests = Vec::new();
    loop {
        for (number, order) in bench.given() {
            if order == PowerOrder::Status {
                bench.answer_power(number, state);
            } else {
                requests.push((bench.now.since_ms(Tick(0)) / 1000, order));
                bench.answer(number, Ok(PowerAnswer::Accepted));
            }
        }
        bench.events();
        match bench.bmcs.deadline() {
            // An answer may be followed by a request at once.
            _ if !bench.wire().orders.is_empty() => {}
            Some(next) if next <= until => {
                let ms = next.since_ms(bench.now);
                bench.advance(ms);
            }
            _ => return requests,
        }
    }
}

#[test]
fn a_request_without_effect_is_repeated_once_then_the_bmc_is_restarted() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_operator(id, PowerOrder::On);
    let requests = run(&mut bench, PowerState::Off, 400_000);
    let orders: Vec<_> = requests.iter().map(|(_, order)| *order).collect();
    let reset = PowerOrder::BmcReset { warm: false };
    let on = PowerOrder::On;
    assert_eq!(orders, [on, on, reset, on]);
    assert!((60..=65).contains(&requests[1].0), "{requests:?}");
    assert!(requests[2].0 >= 180, "{requests:?}");
    assert_eq!(bench.bmcs.deadline(), None, "it has ended");
}

#[test]
fn without_permission_the_bmc_is_not_restarted() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.limits.bmc_reset = false;
    bench.for_operator(id, PowerOrder::On);
    let requests = run(&mut bench, PowerState::Off, 400_000);
    assert_eq!(requests.len(), 2, "{requests:?}");
}

#[test]
fn a_change_ends_when_the_state_is_reached() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.start_job(id);
    bench.for_job(id, PowerOrder::Off);
    let (number, _) = bench.given_one();
    bench.answer(number, Ok(PowerAnswer::Accepted));
    let (notes, events) = bench.notes_and_events();
    assert_eq!(
        notes,
        ["power off ordered", "power off accepted by the BMC"]
    );
    assert_eq!(completed(&events), []);
    bench.advance(100);
    bench.answer_power(bench.given_one().0, PowerState::On);
    bench.events();
    assert_eq!(bench.bmcs.deadline(), Some(Tick(300)), "pauses grow");
    bench.advance(200);
    bench.answer_power(bench.given_one().0, PowerState::Off);
    let done = completed(&bench.events());
    assert_eq!(done, [(BmcOrderOwner::Job, PowerOrder::Off, true)]);
}

#[test]
fn a_job_does_not_start_an_order_a_second_time() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.start_job(id);
    bench.for_job(id, PowerOrder::Off);
    bench.for_job(id, PowerOrder::Off);
    bench.given_one();
    // Another order replaces it.
    bench.for_job(id, PowerOrder::On);
    assert_eq!(bench.given_one().1, PowerOrder::On);
    bench.bmcs.drop_change(id);
    bench.for_job(id, PowerOrder::On);
    assert_eq!(bench.given_one().1, PowerOrder::On);
}

#[test]
fn after_a_restart_of_the_box_a_job_reads_the_state_first() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.start_job(id);
    bench.bmcs.resume_job(id);
    bench.for_job(id, PowerOrder::On);
    let (number, order) = bench.given_one();
    assert_eq!(order, PowerOrder::Status);
    bench.answer_power(number, PowerState::Off);
    bench.events();
    assert_eq!(bench.given_one().1, PowerOrder::On);
    // Only the first order.
    bench.for_job(id, PowerOrder::Off);
    assert_eq!(bench.given_one().1, PowerOrder::Off);
}

#[test]
fn a_machine_that_is_seen_is_on_whatever_its_bmc_reports() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.bmcs.machine_seen(id);
    bench.for_operator(id, PowerOrder::On);
    bench.given_one();
    bench.bmcs.machine_seen(id);
    let done = completed(&bench.events());
    assert_eq!(done, [(BmcOrderOwner::Operator, PowerOrder::On, true)]);
    bench.for_operator(id, PowerOrder::Off);
    bench.bmcs.machine_seen(id);
    assert_eq!(completed(&bench.events()), []);
}

#[test]
fn requests_to_a_silent_bmc_are_repeated_after_growing_pauses() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.start_job(id);
    bench.for_job(id, PowerOrder::On);
    let mut requests = Vec::new();
    let mut notes = Vec::new();
    let mut done = Vec::new();
    for _ in 0..30 {
        let Some((number, _)) = bench.given().first().copied() else {
            break;
        };
        requests.push(bench.now.since_ms(Tick(0)) / 1000);
        bench.answer(number, Err(silent()));
        let (more, events) = bench.notes_and_events();
        notes.extend(more);
        done.extend(completed(&events));
        let next = bench.bmcs.deadline();
        bench.advance(next.map_or(0, |next| next.since_ms(bench.now)));
    }
    assert_eq!(requests[..6], [0, 5, 15, 35, 65, 95]);
    assert_eq!(done, [(BmcOrderOwner::Job, PowerOrder::On, false)]);
    assert!(
        requests.last().is_some_and(|last| *last >= 240),
        "{requests:?}"
    );
    let repeated = notes.iter().filter(|note| note.contains("is repeated"));
    assert_eq!(repeated.count(), 1, "{notes:?}");
    let last = notes.last().unwrap();
    assert!(last.contains("the last error"), "{last}");
}

#[test]
fn an_order_that_may_be_under_way_is_only_polled() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    let rules = PowerChangeRules {
        start: PowerChangeStart::OnlyPoll,
        repeats: false,
        ..PowerChangeRules::of_operator(&bench.limits, &bench.nodes.0[&id])
    };
    bench.with(|bmcs, context| bmcs.order_for_operator(context, id, PowerOrder::Off, rules));
    let requests = run(&mut bench, PowerState::On, 100_000);
    assert_eq!(requests, [], "no request is sent");
    assert_eq!(bench.bmcs.deadline(), None, "it has ended");
}

#[test]
fn a_state_that_is_reached_already_needs_no_request() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    let rules = PowerChangeRules {
        start: PowerChangeStart::Read,
        ..PowerChangeRules::of_operator(&bench.limits, &bench.nodes.0[&id])
    };
    bench.with(|bmcs, context| bmcs.order_for_operator(context, id, PowerOrder::On, rules));
    bench.answer_power(bench.given_one().0, PowerState::On);
    let (notes, events) = bench.notes_and_events();
    assert_eq!(notes, [""; 0], "nothing was ordered");
    let done = completed(&events);
    assert_eq!(done, [(BmcOrderOwner::Operator, PowerOrder::On, true)]);
}

#[test]
fn an_operator_waits_less_long_for_a_silent_bmc_than_a_job() {
    let waits_s = |for_job: bool| {
        let mut bench = BmcBench::new();
        let id = bench.with_node(1);
        if for_job {
            bench.start_job(id);
            bench.for_job(id, PowerOrder::Off);
        } else {
            bench.for_operator(id, PowerOrder::Off);
        }
        while let Some((number, _)) = bench.given().first().copied() {
            bench.answer(number, Err(silent()));
            bench.events();
            if let Some(next) = bench.bmcs.deadline() {
                bench.advance(next.since_ms(bench.now));
            }
        }
        bench.now.since_ms(Tick(0)) / 1000
    };
    let (operator, job) = (waits_s(false), waits_s(true));
    assert!((30..60).contains(&operator), "{operator} s");
    assert!((240..300).contains(&job), "{job} s");
}

#[test]
fn an_error_in_a_new_record_shows_soon() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.start_job(id);
    let wait_ms = |bench: &BmcBench| {
        let node = &bench.nodes.0[&id];
        PowerChangeRules::of_job(&bench.limits, node).bmc_wait_ms
    };
    assert_eq!(wait_ms(&bench), 240_000);
    bench.node(id).job.as_mut().unwrap().kind = JobKind::Verify;
    assert_eq!(wait_ms(&bench), 60_000);
}

#[test]
fn the_bmc_of_a_machine_that_must_stay_on_is_not_restarted() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    let resets = |bench: &BmcBench| {
        let node = &bench.nodes.0[&id];
        [
            PowerChangeRules::of_job(&bench.limits, node).resets_bmc,
            PowerChangeRules::of_operator(&bench.limits, node).resets_bmc,
        ]
    };
    assert_eq!(resets(&bench), [true; 2]);
    bench.node(id).attributes.disable_power_off = true;
    assert_eq!(resets(&bench), [false; 2]);
}

#[test]
fn a_bmc_that_refuses_its_restart_ends_the_order() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_operator(id, PowerOrder::On);
    let mut notes = Vec::new();
    let mut done = Vec::new();
    for _ in 0..300 {
        for (number, order) in bench.given() {
            match order {
                PowerOrder::Status => bench.answer_power(number, PowerState::Off),
                PowerOrder::BmcReset { .. } => {
                    bench.answer(number, Err(PowerError::Refused { code: 0xd4 }));
                }
                _ => bench.answer(number, Ok(PowerAnswer::Accepted)),
            }
        }
        let (more, events) = bench.notes_and_events();
        notes.extend(more);
        done.extend(completed(&events));
        if bench.wire().orders.is_empty() {
            let Some(next) = bench.bmcs.deadline() else {
                break;
            };
            bench.advance(next.since_ms(bench.now));
        }
    }
    assert_eq!(done, [(BmcOrderOwner::Operator, PowerOrder::On, false)]);
    let last = notes.last().unwrap();
    assert!(last.contains("accepted 2 requests"), "{notes:#?}");
    assert!(!last.contains("after a restart of the BMC"), "{last}");
}

#[test]
fn a_power_cycle_that_was_not_seen_to_switch_off_takes_a_few_seconds() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_operator(id, PowerOrder::Cycle);
    let requests = run(&mut bench, PowerState::On, 4_000);
    assert_eq!(requests, [(0, PowerOrder::Cycle)]);
    assert!(bench.bmcs.deadline().is_some(), "it may not have begun");
    run(&mut bench, PowerState::On, 6_000);
    assert_eq!(bench.bmcs.deadline(), None);
}

#[test]
fn a_job_fails_at_once_when_a_machine_refuses_a_reset() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.start_job(id);
    bench.for_job(id, PowerOrder::Reset);
    let (number, _) = bench.given_one();
    bench.answer(number, Err(PowerError::Refused { code: 0xd5 }));
    let (notes, events) = bench.notes_and_events();
    assert_eq!(
        completed(&events),
        [(BmcOrderOwner::Job, PowerOrder::Reset, false)]
    );
    assert!(notes.last().unwrap().contains("0xd5"), "{notes:?}");
    assert!(events.contains(&BmcOutcome::SwitchOnSent {
        node: id,
        order: PowerOrder::Reset
    }));
}

#[test]
fn a_silent_bmc_is_noted_at_its_first_failure_and_when_it_answers_again() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.start_job(id);
    bench.for_job(id, PowerOrder::Off);
    bench.events();
    let mut notes = Vec::new();
    for answer in [Err(silent()), Err(silent()), Ok(PowerState::On)] {
        let (number, _) = bench.given_one();
        bench.answer(number, answer.map(PowerAnswer::Power));
        notes.extend(bench.notes_and_events().0);
        let next = bench.bmcs.deadline().expect("the order goes on");
        let ms = next.since_ms(bench.now);
        bench.advance(ms);
    }
    let repeated = format!("{}; the request is repeated", silent());
    assert_eq!(notes, [repeated.as_str(), "the BMC answers again"]);
}
