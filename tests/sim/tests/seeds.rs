//! Runs seeds. `TRIVET_SEEDS` sets how many, `TRIVET_SEED` which one is replayed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use trivet_tests_sim::{
    AGENT_JOB_POINTS, AgentMix, JOB_POINTS, SeedReport, run_seed, run_seed_with,
};

/// How many seeds are run by default.
const SEEDS: u64 = 1200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The failures, and the counts of observations.
type SeedTotals = (Vec<(u64, Vec<String>)>, BTreeMap<String, u64>);

fn run_seeds(next: &AtomicU64, seeds: u64) -> SeedTotals {
    let (mut failed, mut met) = (Vec::new(), BTreeMap::new());
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds {
            return (failed, met);
        }
        let story = run_seed(seed, false);
        if !story.violations.is_empty() {
            failed.push((seed, story.violations));
        }
        for (what, times) in story.observed {
            *met.entry(what).or_default() += times;
        }
    }
}

#[test]
fn every_seed_holds_every_invariant() {
    let seeds = number("TRIVET_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let reported: Vec<SeedTotals> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| run_seeds(&next, seeds)))
            .collect();
        let workers = workers.into_iter();
        workers.map(|worker| worker.join().unwrap()).collect()
    });
    let (mut failed, mut met) = (Vec::new(), BTreeMap::<String, u64>::new());
    for (some, of) in reported {
        failed.extend(some);
        for (what, times) in of {
            *met.entry(what).or_default() += times;
        }
    }
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
    if seeds >= SEEDS {
        all_were_observed(&met);
    }
}

/// Each fault was observed, and at which points: so that no fault disappears from the seeds
/// without notice.
#[track_caller]
fn all_were_observed(met: &BTreeMap<String, u64>) {
    const STARTS: &[&str] = &[
        "StartStep erase_devices_metadata",
        "StartStep write_image",
        "GetSteps",
        "Bootloader",
        "Sync",
    ];
    const STEPS: &[&str] = &[
        "AwaitStep erase_devices_metadata",
        "AwaitStep write_image",
        "AwaitBootloader",
    ];
    // Rescues are rare in seeds; `fault_points` has each fault there too.
    let agent = &AGENT_JOB_POINTS[..AGENT_JOB_POINTS.len() - 1];
    let all = &JOB_POINTS[..JOB_POINTS.len() - 1];
    let required: [(&str, &[&str]); 16] = [
        ("busy", STARTS),
        ("answer lost", STARTS),
        ("died mid-command", STEPS),
        ("masked token", STEPS),
        ("masked token", &["AwaitAgent looked up"]),
        ("version mismatch", &STEPS[..2]),
        ("token leaked", &STEPS[..2]),
        ("certificate changed", STEPS),
        ("address changed", STEPS),
        ("beat lost", STEPS),
        ("beat lost", &["AwaitAgent looked up"]),
        ("agent hung", agent),
        ("agent died", agent),
        ("box cut", all),
        ("box cut", &["CheckPower"]),
        ("hint requested", &["AwaitStep write_image"]),
    ];
    let images = [
        "image_ahead_started",
        "image_ahead_written",
        "image_ahead_failed",
        "image_was_on_disk",
        "image source cut",
        "image source slow",
        "image source gone",
        "image source changed",
        "image byte wrong",
        "image disk full",
        "image bit rot",
    ];
    let missing: Vec<_> = required
        .iter()
        .flat_map(|(what, places)| places.iter().map(move |place| format!("{what} @ {place}")))
        .chain(images.map(str::to_owned))
        .chain(["enrolled @ AwaitAgent".to_owned()])
        .filter(|key| !met.contains_key(key))
        .collect();
    assert!(missing.is_empty(), "never met: {missing:#?}\nmet: {met:#?}");
}

#[test]
fn one_seed() {
    let Some(seed) = number("TRIVET_SEED") else {
        return;
    };
    let story = run_seed(seed, true);
    println!("{}", story.trace.text().unwrap_or_default());
    let SeedReport {
        machines,
        active,
        starts,
        took_ms,
        ..
    } = story;
    println!("{:#?}", story.observed);
    println!("{active} of {machines} active, {starts} starts, {took_ms} ms");
    assert!(story.violations.is_empty(), "{:#?}", story.violations);
}

/// A ramdisk whose agent had died kept renewing its lease, and each renewal counted as
/// progress: the node waited for its agent without end.
#[test]
fn a_lease_renewed_by_a_machine_without_agent_is_not_progress() {
    for seed in [36, 201, 371] {
        assert!(
            run_seed_with(seed, AgentMix::Own, false)
                .violations
                .is_empty(),
            "seed {seed}"
        );
    }
}

/// The data of an inspection was lost, but the agent's heartbeats extended the timeout again
/// and again.
#[test]
fn heartbeats_without_inspection_data_time_out() {
    for seed in [14, 116, 183] {
        assert!(
            run_seed_with(seed, AgentMix::Own, false)
                .violations
                .is_empty(),
            "seed {seed}"
        );
    }
}

/// The allocation checkers have something to check: there are allocations that get a node.
#[test]
fn allocations_get_nodes() {
    let given: usize = (0..30)
        .map(|at| run_seed(3 * at + 1, false).allocated)
        .sum();
    assert!(given > 3, "{given}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..24 {
        let (one, two) = (run_seed(seed, true), run_seed(seed, true));
        assert_eq!(one.trace.text(), two.trace.text(), "seed {seed}");
        assert_eq!(one.trace.hash(), two.trace.hash(), "seed {seed}");
    }
}
