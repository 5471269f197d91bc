//! With fast track the agent stays after inspection and after cleaning: the deployment, and
//! the cleaning before it, switch the machine on once less each.

use trivet_tests_sim::run_without_faults;

/// The power-ons of the machine, with their boot devices.
fn starts(fast_track: bool) -> Vec<String> {
    let story = run_without_faults(fast_track);
    assert!(story.violations.is_empty(), "{:?}", story.violations);
    assert_eq!(story.active, 1);
    let text = story.trace.text().unwrap_or_default();
    let booted = text
        .lines()
        .filter_map(|line| line.split(" on, boots ").nth(1));
    booted.map(str::to_owned).collect()
}

#[test]
fn a_deployment_on_the_fast_track_switches_power_once_less() {
    let usual = starts(false);
    assert_eq!(
        usual,
        ["pxe", "pxe", "pxe", "disk"],
        "inspect, clean, deploy"
    );
    let fast = starts(true);
    assert_eq!(fast, ["pxe", "disk"], "one agent does all three");
}
