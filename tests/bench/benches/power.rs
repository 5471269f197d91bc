//! Power state of many BMCs, compared with processes of `ipmitool`.
//!
//! The BMCs are simulated, on one core; the client has the other: our client in one thread,
//! then as many processes of `ipmitool` as there are BMCs, all at once. Each query logs in
//! again, with suite 17. Then the real program runs the power sync of a thousand BMCs, on the
//! core of the BMCs.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::io;
use std::process::ExitCode;

use trivet_tests_bench::bmcs::{BenchBmcs, BoundBmcs};
use trivet_tests_bench::peers::BenchDirectory;
use trivet_tests_bench::power::{self, PowerBenchScale};
use trivet_tests_bench::server::{self, BenchBuildProfile};
use trivet_tests_bench::{claim, process};

/// The scale of the claims.
const BMCS_AT_ONCE: usize = 48;
const BMCS_POWER_SYNC: usize = 1000;
const SCALE: PowerBenchScale = PowerBenchScale {
    rounds: 20,
    sync_interval_s: 60,
};

/// Set when this program must simulate so many BMCs.
const BMCS: &str = "TRIVET_BENCH_BMCS";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if let Ok(count) = std::env::var(BMCS) {
        BoundBmcs::new(count.parse()?)?.serve(&mut io::stdout())?;
        return Ok(ExitCode::SUCCESS);
    }
    // A program path as argument measures that program, to compare two builds.
    let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let program = match named {
        Some(path) => path.into(),
        None => server::build(BenchBuildProfile::Release)?,
    };
    process::leave_server_core();
    let (here, scratch) = (std::env::current_exe()?, BenchDirectory::new("power")?);
    println!(
        "each claim: the best ratio of at most {} runs",
        claim::RUNS_MAX
    );
    let mut say = |line: &str| println!("{line}");
    let few = BenchBmcs::start(&here, BMCS, BMCS_AT_ONCE, scratch.path())?;
    let mut within_limits = power::at_once(&few, SCALE, &mut say)?;
    drop(few);
    let many = BenchBmcs::start(&here, BMCS, BMCS_POWER_SYNC, scratch.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let fresh = power::power_sync(&program, &many, scratch.path(), SCALE, &mut say);
    within_limits &= runtime.block_on(fresh)?;
    Ok(if within_limits {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
