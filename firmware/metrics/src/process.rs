//! This process, from the texts of `/proc/self` (proc(5)).

use crate::family::MetricFamily as F;
use crate::gauges::{MetricSample, float};

/// What was read of this process. A text that could not be read is empty, and its values are
/// left out.
#[derive(Clone, Debug, Default)]
pub struct ProcessFiles {
    /// `/proc/self/stat`.
    pub stat: String,
    /// `/proc/self/limits`.
    pub limits: String,
    /// `/proc/stat`, for the time of boot.
    pub system: String,
    /// The number of entries of `/proc/self/fd`.
    pub open_fds: Option<u64>,
    /// Clock ticks in one second.
    pub ticks_per_s: u64,
    /// The size of a page of memory.
    pub page_bytes: u64,
}

/// The fields of `stat` behind the name of the program, which may contain spaces and brackets.
/// The first is field 3, the state.
fn fields(stat: &str) -> Vec<&str> {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().collect()
}

/// The values of this process.
pub fn process_samples(files: &ProcessFiles) -> Vec<MetricSample> {
    let fields = fields(&files.stat);
    // The numbers of fields are those of the manual page.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = float(files.ticks_per_s.max(1));
    let mut samples = Vec::new();
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        let seconds = float(user.saturating_add(system)) / ticks;
        samples.push(MetricSample::new(F::ProcessCpu, seconds));
    }
    if let (Some(start), Some(boot)) = (field(22), boot_time_s(&files.system)) {
        let at = float(boot) + float(start) / ticks;
        samples.push(MetricSample::new(F::ProcessStart, at));
    }
    let memory = field(23).map(|bytes| MetricSample::of_count(F::ProcessVirtual, bytes));
    samples.extend(memory);
    if let Some(pages) = field(24) {
        let bytes = pages.saturating_mul(files.page_bytes);
        samples.push(MetricSample::of_count(F::ProcessResident, bytes));
    }
    let open = files.open_fds;
    samples.extend(open.map(|open| MetricSample::of_count(F::ProcessFds, open)));
    let most = fds_max(&files.limits);
    samples.extend(most.map(|most| MetricSample::of_count(F::ProcessFdsMax, most)));
    samples
}

fn boot_time_s(system: &str) -> Option<u64> {
    let mut lines = system.lines();
    let line = lines.find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// The soft limit.
fn fds_max(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
