//! How much the box writes to its flash: for a deployment with its story, and on a day on which
//! nothing happens.
//!
//! The rack is that of `tests/sim`, in virtual time and with the power sync: bytes are counted and
//! nothing is timed.
//! The day has a limit that fails the run; the other figures are compared with goals of ours.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]
#![expect(clippy::cast_precision_loss, reason = "counts of one run")]

use trivet_tests_bench::figure::Figure;
use trivet_tests_sim::run_day;

/// A rack.
const NODES: usize = 48;

/// Most bytes of a day in steady state.
const DAY_BYTES_MAX: u64 = 10 << 20;

/// Goals: bytes of the records of a node with its stories, and bytes written until it is active.
const NODE_BYTES: f64 = 16_384.0;
const DEPLOYMENT_BYTES: f64 = 524_288.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let used = run_day(NODES)?;
    eprintln!(
        "  {NODES} nodes: {} jobs and {} requests are kept in {} bytes of records; {} bytes were \
         written until all were active, then {} bytes in {} commits in a day",
        used.jobs,
        used.audit_entries,
        used.live_bytes,
        used.deploying_bytes,
        used.day_bytes,
        used.day_commits,
    );
    let each = |bytes: u64| bytes as f64 / NODES as f64;
    let mut node = Figure::new("record_bytes_per_node");
    node.add(each(used.live_bytes), NODE_BYTES);
    let mut written = Figure::new("written_bytes_per_deployed_node");
    written.add(each(used.deploying_bytes), DEPLOYMENT_BYTES);
    let mut day = Figure::new("written_bytes_of_a_day");
    day.add(used.day_bytes as f64, DAY_BYTES_MAX as f64);
    println!("name ours goal ratio spread");
    for figure in [node, written, day] {
        println!("{}", figure.line());
    }
    if used.day_bytes >= DAY_BYTES_MAX {
        let bytes = used.day_bytes;
        return Err(format!("a day wrote {bytes} bytes, at most {DAY_BYTES_MAX}").into());
    }
    Ok(())
}
