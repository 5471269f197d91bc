//! Counters, histograms and gauges of the box, as text in Prometheus' exposition format 0.0.4.
//!
//! Counters come from typed notes, measurements and reports of the shell; gauges are read from
//! the snapshot at each scrape, in one pass over the nodes. The value of each label is a constant
//! of the code, so the number of time series is bounded whatever machines and clients send: no
//! address, name or path is ever a label.

mod counts;
mod family;
mod gauges;
mod histogram;
mod jobs;
mod notes;
mod process;
#[cfg(test)]
mod tests;
mod text;

pub use counts::MetricCounts;
pub use family::{MetricFamily, MetricKind};
pub use gauges::{MetricSample, gauges_of_view};
pub use process::{ProcessFiles, process_samples};
pub use text::{CONTENT_TYPE, exposition};

/// The values of the labels of a time series, in the order of [`MetricFamily::labels`]; those
/// that the family does not have are empty.
pub type LabelValues = [&'static str; 2];
