//! What the engine and the listeners count, the newest events, and the health of the box.
//!
//! The engine thread writes here once for each batch and each note; readers copy what they need
//! and hold no lock while they format it.

mod process;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::watch;
use trivet_events::EventRing;
use trivet_metrics::{MetricCounts, MetricFamily, MetricSample, gauges_of_view};
use trivet_model::image::{ImageState, ImageStatus};
use trivet_model::{Entropy as _, RackView, Tick};
use trivet_rack::{FileGrant, RackInput, RackOutput};
use trivet_store::StoreStats;

use crate::clock::DaemonEntropy;
use crate::listeners::http::ConnectionLimit;

/// The HTTP status codes that are counted by number.
const STATUSES: [(u16, &str); 21] = [
    (200, "200"),
    (201, "201"),
    (202, "202"),
    (204, "204"),
    (300, "300"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (406, "406"),
    (408, "408"),
    (409, "409"),
    (411, "411"),
    (413, "413"),
    (415, "415"),
    (429, "429"),
    (500, "500"),
    (501, "501"),
    (502, "502"),
    (503, "503"),
];

/// The HTTP methods that are counted by name.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Counters, events and health.
pub(crate) struct Telemetry {
    counts: Mutex<MetricCounts>,
    events: Mutex<EventRing>,
    newest: watch::Sender<u64>,
    /// Inputs in the engine's queue.
    queue: AtomicUsize,
    /// Clients of server-sent events.
    pub(crate) event_clients: AtomicUsize,
    /// Events that wait for webhooks.
    pub(crate) webhook_events: AtomicUsize,
    store: Mutex<StoreReport>,
    connections: OnceLock<(ConnectionLimit, usize)>,
}

/// What is known of the store.
#[derive(Clone, Debug, Default)]
struct StoreReport {
    stats: StoreStats,
    /// Why it refused the last batch of changes, until it accepts one.
    refusal: Option<&'static str>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Telemetry {
    pub(crate) fn new() -> Arc<Self> {
        let epoch = DaemonEntropy::new().number();
        Arc::new(Self {
            counts: Mutex::default(),
            events: Mutex::new(EventRing::new(epoch)),
            newest: watch::channel(0).0,
            queue: AtomicUsize::new(0),
            event_clients: AtomicUsize::new(0),
            webhook_events: AtomicUsize::new(0),
            store: Mutex::default(),
            connections: OnceLock::new(),
        })
    }

    /// The counters.
    pub(crate) fn counts(&self) -> MutexGuard<'_, MetricCounts> {
        lock(&self.counts)
    }

    /// Adds one to a counter without labels.
    pub(crate) fn count(&self, family: MetricFamily) {
        self.counts().add(family, ["", ""], 1);
    }

    /// The newest events.
    pub(crate) fn events(&self) -> MutexGuard<'_, EventRing> {
        lock(&self.events)
    }

    /// Notifies when there are newer events.
    pub(crate) fn watch_events(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The limit of the connections that are counted.
    pub(crate) fn set_connections(&self, limit: ConnectionLimit, connections_max: usize) {
        let _ = self.connections.set((limit, connections_max));
    }

    /// An input is put into the engine's queue.
    pub(crate) fn enqueue(&self) {
        self.queue.fetch_add(1, Ordering::Relaxed);
    }

    /// It found the queue full, or the engine stopping.
    pub(crate) fn enqueue_failed(&self) {
        self.queue.fetch_sub(1, Ordering::Relaxed);
        self.count(MetricFamily::EngineQueueFull);
    }

    /// The engine took a batch from its queue.
    pub(crate) fn batch_taken(&self, inputs: usize) {
        if inputs > 0 {
            self.queue.fetch_sub(inputs, Ordering::Relaxed);
            let mut counts = self.counts();
            counts.add(MetricFamily::EngineBatches, ["", ""], 1);
            counts.add(MetricFamily::EngineInputs, ["", ""], inputs as u64);
        }
    }

    /// Counts an input that is the only report of what happened.
    pub(crate) fn input(&self, input: &RackInput) {
        use MetricFamily as F;
        match input {
            RackInput::FileSent {
                protocol,
                sent,
                requested,
                took_ms,
                ended: true,
                ..
            } => {
                let bytes = (*sent, *requested);
                self.counts()
                    .count_transfer(protocol.name(), bytes, *took_ms);
            }
            RackInput::FileRefused {
                protocol, answer, ..
            } => {
                let labels = [protocol.name(), *answer];
                self.counts().add(F::TransfersRefused, labels, 1);
            }
            RackInput::AgentAnswered { result, .. } => {
                let result = match result {
                    Ok((..400, _)) => "ok",
                    Ok(_) => "error",
                    Err(_) => "unreachable",
                };
                self.counts().add(F::AgentCalls, [result, ""], 1);
            }
            _ => {}
        }
    }

    /// Counts an output, and makes an event of a note.
    pub(crate) fn output(&self, now: Tick, output: &RackOutput, view: &RackView) {
        match output {
            RackOutput::Note { note, label } => {
                self.counts().count_note(now, note);
                let mut events = self.events();
                events.push(note, label.as_deref());
                let newest = events.newest();
                drop(events);
                self.newest.send_replace(newest);
            }
            RackOutput::Measured(measurement) => self.counts().count_measurement(*measurement),
            RackOutput::File { grant, .. } => {
                let result = match grant {
                    Some(FileGrant::Image(grant)) => {
                        let image = view.images.get(&ImageStatus::view_key(
                            &grant.spec.key().to_string(),
                            grant.spec.format,
                        ));
                        let is_here = image.is_some_and(|one| one.state == ImageState::Complete);
                        if is_here { "hit" } else { "miss" }
                    }
                    Some(FileGrant::Unavailable(_) | FileGrant::Forbidden(_)) => "refused",
                    _ => return,
                };
                self.counts().add(MetricFamily::ImageReads, [result, ""], 1);
            }
            _ => {}
        }
    }

    /// The store accepted a batch; `took_ms` if it wrote something.
    pub(crate) fn committed(&self, stats: StoreStats, took_ms: u64) {
        let mut store = lock(&self.store);
        let commits = stats.commits.saturating_sub(store.stats.commits);
        store.stats = stats;
        if commits == 0 {
            return;
        }
        store.refusal = None;
        drop(store);
        self.counts()
            .observe(MetricFamily::StoreCommitSeconds, ["", ""], took_ms);
    }

    /// The store refused a batch. `lasting` says why it would refuse others too.
    pub(crate) fn store_refused(&self, lasting: Option<&'static str>) {
        self.count(MetricFamily::StoreRefusals);
        if lasting.is_some() {
            lock(&self.store).refusal = lasting;
        }
    }

    /// Why the store cannot write, if so.
    pub(crate) fn store_refusal(&self) -> Option<&'static str> {
        lock(&self.store).refusal
    }

    /// Counts a request to the API.
    pub(crate) fn api_request(&self, method: &str, status: u16, took_ms: u64) {
        let method = METHODS.iter().find(|one| **one == method);
        let method = method.copied().unwrap_or("other");
        let status = STATUSES.iter().find(|(number, _)| *number == status);
        let status = status.map_or("other", |(_, text)| *text);
        let mut counts = self.counts();
        counts.add(MetricFamily::ApiRequests, [method, status], 1);
        counts.observe(MetricFamily::ApiRequestSeconds, [method, ""], took_ms);
    }

    /// All metrics as text.
    pub(crate) fn exposition(&self, view: &RackView) -> String {
        use MetricFamily as F;
        let mut samples = gauges_of_view(view);
        let store = lock(&self.store).stats;
        let number = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        samples.extend([
            MetricSample::of_count(F::StoreCommits, store.commits),
            MetricSample::of_count(F::StoreWrittenBytes, store.written_bytes),
            MetricSample::of_count(F::StoreFlushes, store.flushes),
            MetricSample::of_count(F::StoreRecords, store.records),
            MetricSample::of_count(F::StoreLiveBytes, store.live_bytes),
            MetricSample::of_count(F::StoreLiveBytesMax, store.live_bytes_max),
            MetricSample::of_count(F::EngineQueue, number(&self.queue)),
            MetricSample::of_count(F::EventClients, number(&self.event_clients)),
            MetricSample::of_count(F::WebhookQueue, number(&self.webhook_events)),
            MetricSample::of_count(F::EventsPublished, *self.newest.borrow()),
            MetricSample {
                labels: [env!("CARGO_PKG_VERSION"), ""],
                ..MetricSample::new(F::BuildInfo, 1.0)
            },
        ]);
        if let Some((limit, most)) = self.connections.get() {
            let open = most.saturating_sub(limit.available());
            samples.push(MetricSample::of_count(F::Connections, open));
            samples.push(MetricSample::of_count(F::ConnectionsMax, *most));
        }
        samples.extend(process::samples());
        let counts = self.counts().clone();
        trivet_metrics::exposition(&counts, &samples)
    }
}
