//! Tests that the benchmark of power works: few BMCs, an unoptimised program, and no assertion
//! on time. The peer need not be installed here and is left out.

use trivet_tests_bench::bmcs::BenchBmcs;
use trivet_tests_bench::peers::BenchDirectory;
use trivet_tests_bench::power::{self, PowerBenchScale};
use trivet_tests_bench::server::{self, BenchBuildProfile};

#[test]
fn every_bmc_is_queried_once_a_round() {
    let bmcs = BenchBmcs::in_this_process(5).unwrap();
    power::ours(bmcs.ports(), 3).unwrap();
    assert_eq!(bmcs.query_counts().unwrap(), [3; 5]);
}

#[test]
fn a_missing_bmc_is_an_error() {
    let bmcs = BenchBmcs::in_this_process(1).unwrap();
    // A bound port without a reply.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let ports = [bmcs.ports()[0], silent.local_addr().unwrap().port()];
    power::ours(&ports, 1).unwrap_err();
}

#[test]
fn the_program_syncs_the_power_of_all_bmcs() {
    let program = server::build(BenchBuildProfile::Dev).unwrap();
    let scratch = BenchDirectory::new("fresh").unwrap();
    let bmcs = BenchBmcs::in_this_process(5).unwrap();
    let scale = PowerBenchScale {
        rounds: 1,
        sync_interval_s: 1,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut lines = Vec::new();
    let mut say = |line: &str| lines.push(line.to_owned());
    let fresh = power::power_sync(&program, &bmcs, scratch.path(), scale, &mut say);
    runtime.block_on(fresh).unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(bmcs.query_counts().unwrap().iter().all(|&looks| looks >= 2));
}
