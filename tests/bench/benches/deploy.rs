//! A thousand nodes from enrolment to their instance, through real sockets.
//!
//! Two processes share two cores: the appliance, and a rack of simulated machines with their
//! operator (`trivet demo --against`). Each machine has its BMC (RMCP+), boots three times by
//! DHCP through a relay, TFTP and HTTP, and runs our agent; the image is tiny, so that the
//! figures are those of the box and not of a disk. The comparison is with a goal of ours, and
//! no figure fails the run: a node that is not active does, and so does a disk without the
//! image.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::time::Duration;

use trivet_tests_bench::deploy::{self, DeployBenchScale};
use trivet_tests_bench::figure::Figure;
use trivet_tests_bench::peers::BenchDirectory;
use trivet_tests_bench::server::{self, BenchBuildProfile};

/// The scale of the goals.
const SCALE: DeployBenchScale = DeployBenchScale {
    nodes: 1000,
    image_bytes: 64 << 10,
    timeout: Duration::from_mins(30),
};

/// How many runs, each with a new box and a new rack.
const RUNS: usize = 3;

/// The goals.
const MINUTES: f64 = 5.0;
const MIB: f64 = 256.0;

fn main() -> Result<(), Box<dyn Error>> {
    // A program path as argument measures that program, to compare two builds.
    let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let program = match named {
        Some(path) => path.into(),
        None => server::build(BenchBuildProfile::Release)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut minutes = Figure::new("minutes_enrol_to_active");
    let mut memory = Figure::new("appliance_peak_mib");
    let mut processor = Figure::new("appliance_processor_s");
    for _ in 0..RUNS {
        let scratch = BenchDirectory::new("deploy")?;
        let outcome = runtime.block_on(deploy::deploy_rack(&program, scratch.path(), SCALE))?;
        eprintln!(
            "  {} nodes active in {:.1} s, each disk with the image; appliance: peak {:.1} MiB, \
             {:.1} s of the processor; rack: {:.1} s; load {}",
            SCALE.nodes,
            outcome.took.as_secs_f64(),
            outcome.peak_mib,
            outcome.box_seconds,
            outcome.rack_seconds,
            std::fs::read_to_string("/proc/loadavg")?.trim(),
        );
        minutes.add(outcome.took.as_secs_f64() / 60.0, MINUTES);
        memory.add(outcome.peak_mib, MIB);
        processor.add(outcome.box_seconds, outcome.rack_seconds);
    }
    println!("name ours goal ratio spread");
    println!("{}", minutes.line());
    println!("{}", memory.line());
    println!("name ours rack ratio spread");
    println!("{}", processor.line());
    Ok(())
}
