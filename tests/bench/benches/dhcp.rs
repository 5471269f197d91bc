//! DHCP with durable leases, compared with kea and dnsmasq.
//!
//! Every server has the same core, disk and clients, which have the other core. Needs root:
//! everything runs in a network namespace with only a loopback interface.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::process::{Command, ExitCode};

use trivet_tests_bench::dhcp::{self, DhcpBenchScale};
use trivet_tests_bench::server::{self, BenchBuildProfile};
use trivet_tests_bench::{claim, process};

/// The scale of the claims.
const SCALE: DhcpBenchScale = DhcpBenchScale {
    exchanges: 20_000,
    exchanges_dnsmasq: 1000,
    at_once: 96,
};

/// Set when this program runs in its namespace.
const IN_NAMESPACE: &str = "TRIVET_BENCH_INSIDE";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // A program path as argument measures that program, to compare two builds.
    let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let program = match named {
        Some(path) => path.into(),
        None => server::build(BenchBuildProfile::Release)?,
    };
    if std::env::var_os(IN_NAMESPACE).is_none() {
        let status = Command::new("unshare")
            .arg("--net")
            .arg(std::env::current_exe()?)
            .arg(&program)
            .env(IN_NAMESPACE, "1")
            .status()?;
        return Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    dhcp::add_addresses()?;
    process::leave_server_core();
    println!(
        "each claim: the best ratio of at most {} runs",
        claim::RUNS_MAX
    );
    let within_limits = dhcp::measure(&program, SCALE, &mut |line| println!("{line}"))?;
    Ok(if within_limits {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
