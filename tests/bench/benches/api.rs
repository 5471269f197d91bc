//! Cost of API requests, compared with Ironic.
//!
//! The server is the real program on one core, with its store on a real file system; the
//! clients have the other core. Rates are per second of the server's CPU time. Ironic's are of
//! Ironic 39 on sqlite, measured on a machine of this kind, the best of its runs. For creates
//! we compare with ourselves: the cost with ten nodes and with ten thousand.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use trivet_tests_bench::api::{self, ApiBenchScale, ApiFigureTarget};
use trivet_tests_bench::process;
use trivet_tests_bench::server::{self, BenchBuildProfile};

/// The scale of the published figures.
const SCALE: ApiBenchScale = ApiBenchScale {
    nodes: 500,
    few: 10,
    many: 10_000,
    bulk: 1000,
    alone: 500,
    requests: 30_000,
    runs: 3,
    minute: Duration::from_mins(1),
    connections: 32,
};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // A program path as argument measures that program, to compare two builds.
    let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let program = match named {
        Some(path) => path.into(),
        None => server::build(BenchBuildProfile::Release)?,
    };
    process::leave_server_core();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    println!("name ours peer ratio spread");
    let mut code = ExitCode::SUCCESS;
    let mut report = |target: ApiFigureTarget| {
        println!("{}", target.figure.line());
        if !target.is_met() {
            eprintln!("  limit not met: {:?}", target.limit);
            code = ExitCode::FAILURE;
        }
    };
    runtime.block_on(api::measure(&program, SCALE, &mut report))?;
    Ok(code)
}
