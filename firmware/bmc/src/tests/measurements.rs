//! What is counted of requests to BMCs.

use trivet_model::Measurement;

use super::*;

fn taken(bench: &mut BmcBench) -> Vec<Measurement> {
    bench.events();
    bench.bmcs.take_measurements()
}

fn request(failure: Option<&'static str>, took_ms: u64) -> Measurement {
    Measurement::BmcRequest {
        protocol: "scripted",
        failure,
        took_ms,
    }
}

#[test]
fn an_order_is_counted_once_with_its_time_and_result() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_operator(id, PowerOrder::Status);
    let (number, _) = bench.given_one();
    assert_eq!(taken(&mut bench), [], "it has not ended");
    bench.advance(250);
    bench.answer_power(number, PowerState::On);
    assert_eq!(taken(&mut bench), [request(None, 250)]);
    assert_eq!(taken(&mut bench), []);
}

#[test]
fn a_failure_is_counted_by_its_kind() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_job(id, PowerOrder::ReadBoot);
    let (number, _) = bench.given_one();
    bench.answer(number, Err(silent()));
    assert_eq!(taken(&mut bench), [request(Some("unreachable"), 0)]);
}

#[test]
fn an_answer_that_nobody_waits_for_is_not_counted() {
    let mut bench = BmcBench::new();
    bench.with_node(1);
    bench.answer_power(77, PowerState::On);
    assert_eq!(taken(&mut bench), []);
}

#[test]
fn what_changes_only_a_record_is_not_counted() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.node(id).driver = "fake-hardware".to_owned();
    bench.for_operator(id, PowerOrder::On);
    assert_eq!(taken(&mut bench), []);
}

#[test]
fn each_protocol_has_a_name_of_its_own() {
    assert_eq!(FakeProtocol::default().name(), "fake");
    assert_eq!(ManualProtocol::default().name(), "manual");
}
