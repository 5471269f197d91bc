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
fn a_silent_bmc_is_asked_again_after_growing_pauses() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.start_job(id);
    bench.for_job(id, PowerOrder::On);
    let mut asked = Vec::new();
    let mut notes = Vec::new();
    let mut done = Vec::new();
    for _ in 0..30 {
        let Some((number, _)) = bench.given().first().copied() else {
            break;
        };
        asked.push(bench.now.since_ms(Tick(0)) / 1000);
        bench.answer(number, Err(silent()));
        let (more, events) = bench.notes_and_events();
        notes.extend(more);
        done.extend(completed(&events));
        let next = bench.bmcs.deadline();
        bench.advance(next.map_or(0, |next| next.since_ms(bench.now)));
    }
    assert_eq!(asked[..6], [0, 5, 15, 35, 65, 95]);
    assert_eq!(done, [(BmcOrderOwner::Job, PowerOrder::On, false)]);
    assert!(asked.last().is_some_and(|last| *last >= 240), "{asked:?}");
    let repeated = notes.iter().filter(|note| note.contains("is repeated"));
    assert_eq!(repeated.count(), 1, "{notes:?}");
    let last = notes.last().unwrap();
    assert!(last.contains("the last error"), "{last}");
}
