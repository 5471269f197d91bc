//! Time of a scrape of `/metrics` with ten thousand nodes.
//!
//! The server is the real program on one core; the client has the other core. The figures are
//! compared with the limit that we have set ourselves.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::process::ExitCode;

use trivet_tests_bench::metrics::{self, SCRAPE_MS_MAX};
use trivet_tests_bench::process;
use trivet_tests_bench::server::{self, BenchBuildProfile};

const NODES: usize = 10_000;
const RUNS: usize = 5;
const SCRAPES: usize = 100;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let program = server::build(BenchBuildProfile::Release)?;
    process::leave_server_core();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    println!("name ours limit ratio spread");
    let figures = runtime.block_on(metrics::scrapes(&program, NODES, RUNS, SCRAPES))?;
    let mut code = ExitCode::SUCCESS;
    for figure in figures {
        println!("{}", figure.line());
        if figure.ours() > SCRAPE_MS_MAX {
            eprintln!("  limit not met: {SCRAPE_MS_MAX} ms");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
