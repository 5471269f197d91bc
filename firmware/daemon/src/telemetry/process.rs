//! Reads what the kernel says of this process.

use std::fs;

use trivet_metrics::{MetricSample, ProcessFiles, process_samples};

/// The values of this process; those that cannot be read are left out.
pub(super) fn samples() -> Vec<MetricSample> {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let fds = fs::read_dir("/proc/self/fd").ok();
    process_samples(&ProcessFiles {
        stat: text("/proc/self/stat"),
        limits: text("/proc/self/limits"),
        system: text("/proc/stat"),
        // The directory itself is open while it is read.
        open_fds: fds.map(|fds| fds.count().saturating_sub(1) as u64),
        ticks_per_s: trivet_board_linux::clock_ticks_per_s(),
        page_bytes: trivet_board_linux::page_bytes(),
    })
}
