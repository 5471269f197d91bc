//! Present numbers, from the snapshot: one pass over the nodes.

use std::collections::BTreeMap;

use trivet_model::image::ImageState;
use trivet_model::{BoxFault, PowerState, ProvisionState, RackView};

use crate::LabelValues;
use crate::family::MetricFamily;

/// A present value. A counter that something else keeps is one too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricSample {
    /// The metric.
    pub family: MetricFamily,
    /// The values of its labels.
    pub labels: LabelValues,
    /// The value.
    pub value: f64,
}

impl MetricSample {
    /// A value without labels.
    pub fn new(family: MetricFamily, value: f64) -> Self {
        Self {
            family,
            labels: ["", ""],
            value,
        }
    }

    /// A number without labels.
    pub fn of_count(family: MetricFamily, count: impl TryInto<u64>) -> Self {
        Self::new(family, float(count.try_into().unwrap_or(u64::MAX)))
    }
}

/// Numbers above 2^53 lose their last digits, as all numbers of Prometheus do.
#[expect(clippy::cast_precision_loss, reason = "see above")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// What is counted in the pass over all nodes.
#[derive(Default)]
struct NodeTotals {
    states: Vec<u64>,
    power: [u64; 3],
    maintenance: u64,
    jobs: u64,
    agents: u64,
}

/// The gauges that the snapshot has.
pub fn gauges_of_view(view: &RackView) -> Vec<MetricSample> {
    use MetricFamily as F;
    let mut samples = Vec::new();
    nodes(view, &mut samples);
    images(view, &mut samples);
    faults(view, &mut samples);
    let queue = view.boot_queue;
    samples.extend([
        MetricSample::of_count(F::BootsRunning, queue.booting),
        MetricSample::of_count(F::BootsWaiting, queue.waiting),
        MetricSample::of_count(F::BootsLimit, queue.limit),
        MetricSample::of_count(F::BootsAdmitted, queue.served),
        MetricSample::of_count(F::Ports, view.ports.len()),
        MetricSample::of_count(F::UnknownMachines, view.unknown_machines.len()),
    ]);
    samples
}

fn labelled(family: MetricFamily, label: &'static str, count: u64) -> MetricSample {
    MetricSample {
        family,
        labels: [label, ""],
        value: float(count),
    }
}

fn nodes(view: &RackView, samples: &mut Vec<MetricSample>) {
    use MetricFamily as F;
    let mut counts = NodeTotals {
        states: vec![0; ProvisionState::ALL.len()],
        ..NodeTotals::default()
    };
    for one in view.nodes.values() {
        let node = &one.node;
        let at = node.provision_state as usize;
        if let Some(count) = counts.states.get_mut(at) {
            *count += 1;
        }
        let power = match node.power_state {
            Some(PowerState::On) => 0,
            Some(PowerState::Off) => 1,
            None => 2,
        };
        counts.power[power] += 1;
        counts.maintenance += u64::from(node.maintenance);
        counts.jobs += u64::from(node.job.is_some());
        counts.agents += u64::from(node.agent.is_some());
    }
    let states = ProvisionState::ALL.iter().zip(&counts.states);
    samples.extend(states.map(|(state, count)| labelled(F::Nodes, state.as_str(), *count)));
    let power = ["power on", "power off", "unknown"].into_iter();
    let power = power.zip(counts.power);
    samples.extend(power.map(|(state, count)| labelled(F::NodesPower, state, count)));
    samples.extend([
        MetricSample::of_count(F::NodesMaintenance, counts.maintenance),
        MetricSample::of_count(F::NodesWithJob, counts.jobs),
        MetricSample::of_count(F::Agents, counts.agents),
    ]);
}

/// The states of images, by their names in labels.
const IMAGE_STATES: [&str; 7] = [
    "fetching",
    "unpacking",
    "corrupt",
    "complete",
    "evicted",
    "failed",
    "wrong",
];

fn images(view: &RackView, samples: &mut Vec<MetricSample>) {
    let mut counts = [0; IMAGE_STATES.len()];
    // Entries of one digest in several formats share their bytes.
    let mut bytes_of: BTreeMap<&str, u64> = BTreeMap::new();
    for image in view.images.values() {
        let at = match image.state {
            ImageState::Fetching => 0,
            ImageState::Unpacking => 1,
            ImageState::Corrupt(_) => 2,
            ImageState::Complete => 3,
            ImageState::Evicted => 4,
            ImageState::Failed(_) => 5,
            ImageState::Wrong(_) => 6,
        };
        counts[at] += 1;
        let bytes = bytes_of.entry(&image.key).or_default();
        *bytes = image.present_bytes.max(*bytes);
    }
    let bytes = bytes_of.into_values().fold(0, u64::saturating_add);
    let states = IMAGE_STATES.into_iter().zip(counts);
    samples.extend(states.map(|(state, count)| labelled(MetricFamily::Images, state, count)));
    samples.push(MetricSample::of_count(MetricFamily::ImageCacheBytes, bytes));
}

/// At most [`trivet_model::fault::FAULTS_MAX`].
fn faults(view: &RackView, samples: &mut Vec<MetricSample>) {
    let mut names: Vec<&'static str> = view.faults.keys().map(BoxFault::name).collect();
    names.sort_unstable();
    let groups = names.chunk_by(|one, other| one == other);
    samples.extend(groups.map(|same| labelled(MetricFamily::Faults, same[0], same.len() as u64)));
}
