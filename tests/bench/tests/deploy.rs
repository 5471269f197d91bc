//! Tests that the benchmark of a rack works: few nodes, an unoptimised program, and no
//! assertion on time.

use std::time::Duration;

use trivet_tests_bench::deploy::{self, DeployBenchResult, DeployBenchScale};
use trivet_tests_bench::peers::BenchDirectory;
use trivet_tests_bench::server::{self, BenchBuildProfile};

fn rack(name: &str, timeout: Duration) -> std::io::Result<DeployBenchResult> {
    let program = server::build(BenchBuildProfile::Dev)?;
    let scratch = BenchDirectory::new(name)?;
    let scale = DeployBenchScale {
        nodes: 3,
        image_bytes: 4096,
        timeout,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(deploy::deploy_rack(&program, scratch.path(), scale))
}

#[test]
fn every_node_becomes_active() {
    let outcome = rack("active", Duration::from_mins(10)).unwrap();
    assert!(outcome.peak_mib > 1.0, "{outcome:?}");
}

#[test]
fn a_rack_that_does_not_finish_is_an_error() {
    let error = rack("endless", Duration::ZERO).unwrap_err().to_string();
    assert!(error.starts_with("the rack did not finish"), "{error}");
}
