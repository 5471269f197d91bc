//! Images compared with nginx: cold for 48 readers at once, and hot.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::process::ExitCode;

use trivet_tests_bench::images::{self, ImageBenchScale, ImageFigureTarget};
use trivet_tests_bench::process;
use trivet_tests_bench::server::{self, BenchBuildProfile};

/// The scale of the published figures.
const SCALE: ImageBenchScale = ImageBenchScale {
    cold_bytes: 512 << 20,
    source_bytes_per_s: 30 << 20,
    readers: 48,
    hot_bytes: 1 << 30,
    clients: &[1, 8, 48],
    hot_reads: 8,
    parts: 40_000,
    runs: 3,
};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // A program path as argument measures that program, to compare two builds.
    let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let program = match named {
        Some(path) => path.into(),
        None => server::build(BenchBuildProfile::Release)?,
    };
    process::leave_server_core();
    let directory = std::env::temp_dir().join(format!("trivet-bench-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    println!("name ours peer ratio spread");
    let mut code = ExitCode::SUCCESS;
    let mut report = |target: ImageFigureTarget| {
        println!("{}", target.figure.line());
        if !target.is_met() {
            eprintln!("  limit not met: {:?}", target.limit);
            code = ExitCode::FAILURE;
        }
    };
    let measured = images::measure(&program, &directory, SCALE, &mut report);
    let outcome = runtime.block_on(measured);
    std::fs::remove_dir_all(&directory)?;
    outcome?;
    Ok(code)
}
