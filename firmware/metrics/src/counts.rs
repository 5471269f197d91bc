//! What is counted since the start of the box.

use std::collections::BTreeMap;

use trivet_model::Measurement;

use crate::LabelValues;
use crate::family::MetricFamily;
use crate::histogram::DurationHistogram;
use crate::jobs::RunningJobs;

/// All counters and histograms.
#[derive(Clone, Debug, Default)]
pub struct MetricCounts {
    pub(crate) counters: BTreeMap<(MetricFamily, LabelValues), u64>,
    pub(crate) histograms: BTreeMap<(MetricFamily, LabelValues), DurationHistogram>,
    pub(crate) jobs: RunningJobs,
}

impl MetricCounts {
    /// Adds to a counter.
    pub fn add(&mut self, family: MetricFamily, labels: LabelValues, more: u64) {
        let counter = self.counters.entry((family, labels)).or_default();
        *counter = counter.saturating_add(more);
    }

    /// Adds one to a counter without labels.
    pub(crate) fn count(&mut self, family: MetricFamily) {
        self.add(family, ["", ""], 1);
    }

    /// Adds one to a counter with one label.
    pub(crate) fn count_as(&mut self, family: MetricFamily, value: &'static str) {
        self.add(family, [value, ""], 1);
    }

    /// Adds a duration to a histogram.
    pub fn observe(&mut self, family: MetricFamily, labels: LabelValues, took_ms: u64) {
        let histogram = self.histograms.entry((family, labels));
        let histogram = histogram.or_insert_with(|| DurationHistogram::new(family));
        histogram.add(family, took_ms);
    }

    /// Counts a fact that leaves the rack.
    pub fn count_measurement(&mut self, measurement: Measurement) {
        match measurement {
            Measurement::DhcpMessage {
                request,
                reply,
                dropped,
            } => {
                self.count_as(MetricFamily::DhcpMessages, request.unwrap_or("none"));
                if let Some(reply) = reply {
                    self.count_as(MetricFamily::DhcpReplies, reply);
                }
                if let Some(reason) = dropped {
                    self.count_as(MetricFamily::DhcpDropped, reason);
                }
            }
            Measurement::BmcRequest {
                protocol,
                failure,
                took_ms,
            } => {
                let result = failure.unwrap_or("ok");
                self.add(MetricFamily::BmcRequests, [protocol, result], 1);
                self.observe(MetricFamily::BmcRequestSeconds, [protocol, ""], took_ms);
            }
        }
    }

    /// Counts a file that was sent, as far as the client took it.
    pub fn count_transfer(
        &mut self,
        protocol: &'static str,
        (sent, requested): (u64, u64),
        took_ms: u64,
    ) {
        let result = if sent >= requested {
            "complete"
        } else {
            "partial"
        };
        self.add(MetricFamily::Transfers, [protocol, result], 1);
        self.add(MetricFamily::TransferBytes, [protocol, ""], sent);
        self.observe(MetricFamily::TransferSeconds, [protocol, ""], took_ms);
    }

    /// The value of a counter.
    pub fn value(&self, family: MetricFamily, labels: LabelValues) -> u64 {
        self.counters.get(&(family, labels)).copied().unwrap_or(0)
    }
}
