//! TFTP compared with tftpd-hpa, dnsmasq and atftpd.
//!
//! Every server has the same core, the same file and the same client, which has the other core.
//! Needs root: dnsmasq has no setting for its port.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::process::ExitCode;

use trivet_tests_bench::server::{self, BenchBuildProfile};
use trivet_tests_bench::tftp::{self, TftpBenchScale};
use trivet_tests_bench::{claim, process};

/// The scale of the claims.
const SCALE: TftpBenchScale = TftpBenchScale {
    file_bytes: 4 << 20,
    rounds: 8,
    alone: 2,
    at_once: 48,
    windowed: 32,
};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // A program path as argument measures that program, to compare two builds.
    let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let program = match named {
        Some(path) => path.into(),
        None => server::build(BenchBuildProfile::Release)?,
    };
    process::leave_server_core();
    println!(
        "each claim: the best ratio of at most {} runs",
        claim::RUNS_MAX
    );
    let within_limits = tftp::measure(&program, SCALE, &mut |line| println!("{line}"))?;
    Ok(if within_limits {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
