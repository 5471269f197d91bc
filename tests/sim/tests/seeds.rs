//! Runs seeds. `TRIVET_SEEDS` sets how many, `TRIVET_SEED` which one is replayed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use trivet_tests_sim::{Story, tell};

/// How many seeds are run when nobody says otherwise.
const SEEDS: u64 = 1200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_seed_keeps_every_promise() {
    let seeds = number("TRIVET_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let failed: Vec<(u64, Vec<String>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds {
                            return failed;
                        }
                        let broken = tell(seed, false).broken;
                        if !broken.is_empty() {
                            failed.push((seed, broken));
                        }
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    let report: Vec<_> = failed
        .iter()
        .take(10)
        .map(|(seed, broken)| {
            let broken = broken.join("; ");
            format!(
                "\nseed {seed}: {broken}\n  TRIVET_SEED={seed} cargo test -p trivet-tests-sim \
                 --test seeds one_seed -- --nocapture\n"
            )
        })
        .collect();
    let count = failed.len();
    assert_eq!(count, 0, "of {seeds} seeds failed: {}", report.concat());
}

#[test]
fn one_seed() {
    let Some(seed) = number("TRIVET_SEED") else {
        return;
    };
    let story = tell(seed, true);
    println!("{}", story.trace.text().unwrap_or_default());
    let Story {
        machines,
        active,
        starts,
        took_ms,
        ..
    } = story;
    println!("{active} of {machines} active, {starts} starts, {took_ms} ms");
    assert!(story.broken.is_empty(), "{:#?}", story.broken);
}

/// A ramdisk whose agent had died went on renewing its lease, and each renewal counted
/// as a sign of life: the node waited for its agent without end.
#[test]
fn a_lease_renewed_by_a_machine_without_agent_is_no_progress() {
    for seed in [36, 201, 371] {
        assert!(tell(seed, false).broken.is_empty(), "seed {seed}");
    }
}

/// The data of an inspection were lost, but the agent's beats gave it ever more time.
#[test]
fn beats_without_inspection_data_end() {
    for seed in [14, 116, 183] {
        assert!(tell(seed, false).broken.is_empty(), "seed {seed}");
    }
}

/// The clerk's checkers see something: there are allocations that get a node.
#[test]
fn clerks_get_nodes() {
    let given: usize = (0..30).map(|at| tell(3 * at + 1, false).given).sum();
    assert!(given > 3, "{given}");
}

#[test]
fn the_same_seed_tells_the_same_story() {
    for seed in 0..24 {
        let (one, two) = (tell(seed, true), tell(seed, true));
        assert_eq!(one.trace.text(), two.trace.text(), "seed {seed}");
        assert_eq!(one.trace.hash(), two.trace.hash(), "seed {seed}");
    }
}
