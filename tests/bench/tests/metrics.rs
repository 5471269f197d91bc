//! Tests that the benchmark of the metrics works: few nodes and an unoptimised program.

use trivet_tests_bench::metrics;
use trivet_tests_bench::server::{self, BenchBuildProfile};

#[test]
fn scrapes_are_measured() {
    let program = server::build(BenchBuildProfile::Dev).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let figures = runtime
        .block_on(metrics::scrapes(&program, 5, 1, 10))
        .unwrap();
    for figure in figures {
        assert!(figure.ours() > 0.0, "{}", figure.line());
    }
}
