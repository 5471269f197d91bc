//! An image that is written ahead: the deployment sends none of its bytes.

use trivet_tests_sim::{SeedReport, run_with_image_ahead};

fn lines(report: &SeedReport) -> Vec<&str> {
    report.trace.text().unwrap_or_default().lines().collect()
}

/// Requests of the agent for an image.
fn image_requests(lines: &[&str]) -> usize {
    let requests = |line: &&&str| line.contains("box< GET /nodes/");
    lines.iter().filter(requests).count()
}

#[test]
fn a_node_with_its_image_written_ahead_becomes_active_without_a_byte_of_it() {
    let report = run_with_image_ahead(60_000);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert_eq!(report.active, 1);
    let lines = lines(&report);
    let note = |words: &str| {
        let found = lines
            .iter()
            .position(|line| line.contains("note ") && line.contains(words));
        found.unwrap_or_else(|| panic!("no note {words}"))
    };
    let begun = note("image popular is being written ahead");
    let written = note("image popular written ahead,");
    let deploys = note("available -> deploying");
    let found = note("was already on the disk and is verified: nothing sent");
    let active = note("deploying -> active");
    assert!(begun < written && written < deploys && deploys < found && found < active);
    assert_eq!(image_requests(&lines[begun..written]), 1);
    assert_eq!(image_requests(&lines[deploys..]), 0);
}

/// The deployment comes while the image is being written ahead: that write stops.
#[test]
fn a_deployment_in_the_middle_of_the_write_goes_first() {
    let (mut stopped, mut used) = (0, 0);
    for available_ms in (500..40_000).step_by(500) {
        let report = run_with_image_ahead(available_ms);
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        assert_eq!(report.active, 1, "{available_ms} ms");
        let count = |name: &str| report.observed.get(name).copied().unwrap_or_default();
        let begun = count("image_ahead_started");
        stopped += u64::from(begun > count("image_ahead_written"));
        used += count("image_was_on_disk");
    }
    assert!(stopped > 0 && used > 0, "{stopped} stopped, {used} used");
}
