//! Durations, counted by their size.

use crate::family::MetricFamily;

/// Upper bounds of the buckets for what takes milliseconds: BMCs, requests, commits. In ms; ours.
const SHORT_MS: &[u64] = &[
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000,
];

/// The same for what takes minutes: transfers and jobs.
const LONG_MS: &[u64] = &[
    10, 100, 1000, 5000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000,
    3_600_000, 7_200_000,
];

/// The upper bounds of the buckets of a family, in ms.
pub(crate) const fn bounds_ms(family: MetricFamily) -> &'static [u64] {
    match family {
        MetricFamily::JobSeconds | MetricFamily::TransferSeconds => LONG_MS,
        _ => SHORT_MS,
    }
}

/// One histogram.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DurationHistogram {
    /// How many durations are in each bucket and in none before it; the last one is above all
    /// bounds.
    pub(crate) buckets: Vec<u64>,
    pub(crate) sum_ms: u64,
}

impl DurationHistogram {
    pub(crate) fn new(family: MetricFamily) -> Self {
        Self {
            buckets: vec![0; bounds_ms(family).len() + 1],
            sum_ms: 0,
        }
    }

    pub(crate) fn add(&mut self, family: MetricFamily, took_ms: u64) {
        let bounds = bounds_ms(family);
        let at = bounds.partition_point(|bound| *bound < took_ms);
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket = bucket.saturating_add(1);
        }
        self.sum_ms = self.sum_ms.saturating_add(took_ms);
    }
}
