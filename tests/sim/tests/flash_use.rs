//! How much the box writes: for a deployment with its story, and in steady state.

use trivet_tests_sim::run_day;

/// A part of a rack of 48.
const NODES: usize = 6;

/// A day of this part in steady state, with the power sync: a rack of 48 may write 10 MiB.
const DAY_BYTES_MAX: u64 = (10 << 20) / 8;

/// The records of a node with the stories of its first four jobs.
const NODE_BYTES_MAX: u64 = 16 * 1024;

/// Written until a node was verified, inspected, cleaned and deployed.
const DEPLOYED_NODE_BYTES_MAX: u64 = 512 * 1024;

#[test]
fn a_day_of_a_rack_without_work_writes_little() {
    let used = run_day(NODES).unwrap_or_else(|error| panic!("{error}"));
    eprintln!("{used:?}");
    // Verify, inspect, clean and deploy.
    assert_eq!(used.jobs, 4 * NODES, "{used:?}");
    assert!(used.audit_entries > 0, "{used:?}");
    // The power sync reads each machine once in a minute.
    assert!(used.day_bmc_datagrams > NODES as u64 * 1000, "{used:?}");
    assert!(used.day_bytes < DAY_BYTES_MAX, "{used:?}");
    assert!(used.live_bytes < NODES as u64 * NODE_BYTES_MAX, "{used:?}");
    let each = used.deploying_bytes / NODES as u64;
    assert!(each < DEPLOYED_NODE_BYTES_MAX, "{used:?}");
}
