//! Tests that the benchmark of the API works: few nodes, an unoptimised program, and no
//! assertion on time.

use std::time::Duration;

use trivet_tests_bench::api::{self, ApiBenchScale};
use trivet_tests_bench::server::{self, BenchBuildProfile};

const SCALE: ApiBenchScale = ApiBenchScale {
    nodes: 4,
    few: 1,
    many: 20,
    bulk: 6,
    alone: 3,
    requests: 400,
    runs: 1,
    minute: Duration::from_secs(1),
    connections: 3,
};

#[test]
fn every_figure_of_the_api_is_measured() {
    let program = server::build(BenchBuildProfile::Dev).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut targets = Vec::new();
    let mut report = |target| targets.push(target);
    let measured = api::measure(&program, SCALE, &mut report);
    runtime.block_on(measured).unwrap();
    let names: Vec<_> = targets.iter().map(|target| target.figure.line()).collect();
    assert!(names.len() >= 9, "{names:?}");
    for target in &targets {
        // A short run may take less than one tick of CPU time.
        assert!(!target.figure.ours().is_sign_negative(), "{names:?}");
    }
}
