//! Size of the program that the image of the appliance gets: a static release build without the
//! demo. There is no peer: the goal is ours, and is not reached yet.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::process::{Command, ExitCode};

use trivet_tests_bench::figure::Figure;
use trivet_tests_bench::server;

/// The goal, in megabytes.
const GOAL_MEGABYTES: f64 = 8.0;

/// What was reached, and must not grow.
const MEGABYTES_MAX: f64 = 8.6;

/// In the path of every dynamic loader of Linux.
const LOADER: &[u8] = b"/ld-";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let program = server::build_appliance()?;
    let bytes = std::fs::read(&program)?;
    // A path of a dynamic loader stands at the start of a program that needs one.
    let head = &bytes[..bytes.len().min(4096)];
    if head.windows(LOADER.len()).any(|part| part == LOADER) {
        return Err("the program is not static".into());
    }
    let version = Command::new(&program).arg("--version").output()?;
    if !version.status.success() {
        return Err("the program does not start".into());
    }
    let help = Command::new(&program).arg("--help").output()?;
    if String::from_utf8_lossy(&help.stdout).contains("demo") {
        return Err("the program has the demo".into());
    }
    #[expect(clippy::cast_precision_loss, reason = "a size of some megabytes")]
    let megabytes = bytes.len() as f64 / 1e6;
    let mut figure = Figure::new("static_program_megabytes");
    figure.add(megabytes, GOAL_MEGABYTES);
    println!("name ours goal ratio spread");
    println!("{}", figure.line());
    Ok(if megabytes <= MEGABYTES_MAX {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
