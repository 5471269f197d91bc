//! The exposition format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use trivet_model::JobKind;
use trivet_model::story::Stage;

use crate::LabelValues;
use crate::counts::MetricCounts;
use crate::family::{MetricFamily, MetricKind};
use crate::gauges::MetricSample;
use crate::histogram::{DurationHistogram, bounds_ms};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics as text: what was counted, and the present values. A metric without
/// labels or with a fixed set of them begins with zero; another that has no time series yet is
/// left out.
pub fn exposition(counts: &MetricCounts, samples: &[MetricSample]) -> String {
    let mut out = String::with_capacity(32 * 1024);
    for family in MetricFamily::ALL {
        let start = out.len();
        let (name, help) = (family.name(), family.help());
        let kind = family.kind().word();
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let body = out.len();
        series(&mut out, counts, samples, *family);
        if out.len() == body {
            out.truncate(start);
        }
    }
    out
}

fn series(out: &mut String, counts: &MetricCounts, samples: &[MetricSample], family: MetricFamily) {
    let first = (family, ["", ""]);
    let mut any = false;
    for sample in samples.iter().filter(|sample| sample.family == family) {
        any = true;
        line(
            out,
            family,
            "",
            (&sample.labels, None),
            &sample.value.to_string(),
        );
    }
    if family.kind() == MetricKind::Histogram {
        let all = counts.histograms.range(first..);
        for ((_, labels), histogram) in all.take_while(|((one, _), _)| *one == family) {
            histogram_lines(out, family, labels, histogram);
        }
        return;
    }
    let all = counts.counters.range(first..);
    let all = all.take_while(|((one, _), _)| *one == family);
    // The first event must be an increase: a series that begins with 1 has none.
    let mut values: BTreeMap<LabelValues, u64> = fixed_labels(family).map(|of| (of, 0)).collect();
    values.extend(all.map(|((_, labels), value)| (*labels, *value)));
    for (labels, value) in values {
        any = true;
        line(out, family, "", (&labels, None), &value.to_string());
    }
    if !any && family.labels().is_empty() && family.kind() == MetricKind::Counter {
        line(out, family, "", (&["", ""], None), "0");
    }
}

/// The label values of a counter that are known before anything is counted.
fn fixed_labels(family: MetricFamily) -> impl Iterator<Item = LabelValues> {
    let (first, second): (Vec<&'static str>, &[&'static str]) = match family {
        MetricFamily::Jobs => {
            let kinds = JobKind::ALL.iter().map(|kind| kind.as_str());
            (kinds.collect(), &["done", "failed"])
        }
        MetricFamily::StagesLate => {
            let stages = Stage::ALL.iter().map(|stage| stage.name());
            (stages.collect(), &[""])
        }
        MetricFamily::ImageFills => (vec!["complete", "failed"], &[""]),
        MetricFamily::AgentLogs => (vec!["stored", "missing"], &[""]),
        _ => (Vec::new(), &[]),
    };
    let with = move |one| second.iter().map(move |other| [one, *other]);
    first.into_iter().flat_map(with)
}

fn histogram_lines(
    out: &mut String,
    family: MetricFamily,
    labels: &LabelValues,
    histogram: &DurationHistogram,
) {
    let mut total = 0_u64;
    let mut bounds = bounds_ms(family).iter();
    for bucket in &histogram.buckets {
        total = total.saturating_add(*bucket);
        let bound = bounds.next().map_or("+Inf".to_owned(), |ms| seconds(*ms));
        line(
            out,
            family,
            "_bucket",
            (labels, Some(&bound)),
            &total.to_string(),
        );
    }
    let sum = seconds(histogram.sum_ms);
    line(out, family, "_sum", (labels, None), &sum);
    line(out, family, "_count", (labels, None), &total.to_string());
}

/// One line: name, labels and value.
fn line(
    out: &mut String,
    family: MetricFamily,
    suffix: &str,
    (labels, bound): (&LabelValues, Option<&str>),
    value: &str,
) {
    out.push_str(family.name());
    out.push_str(suffix);
    let named = family.labels().iter().copied().zip(labels.iter().copied());
    let bound = bound.map(|bound| ("le", bound));
    let mut separator = '{';
    for (name, value) in named.chain(bound) {
        // Label values are constants without quotes, backslashes and line ends.
        let _ = write!(out, "{separator}{name}=\"{value}\"");
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

/// Milliseconds as seconds, without superfluous zeros.
fn seconds(ms: u64) -> String {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
