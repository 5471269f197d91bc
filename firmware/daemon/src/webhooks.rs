//! Sends events to the URLs of `[[webhook]]`. When and how often is decided by
//! `trivet_events::WebhookQueue`; here is one request at a time for each webhook.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Uri};
use tokio::task::JoinSet;
use trivet_config::WebhookSettings;
use trivet_events::{WebhookNews, WebhookQueue, WebhookStep, signature};
use trivet_metrics::MetricFamily;
use trivet_model::secret::SecretText;
use trivet_model::{BoxFault, EventTopic};
use trivet_net_http::{HttpClient, HttpServer, HttpTimeouts};
use trivet_net_tls::{bundled_client_config, system_authorities};
use trivet_rack::RackInput;

use crate::appliance::retry_offer;
use crate::clock::DaemonClock;
use crate::engine::Engine;

/// How long a receiver may take for one event.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    total: Duration::from_secs(30),
};

/// The longest response that is read. It is not used.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The longest secret. Ours.
const SECRET_BYTES_MAX: usize = 4096;

/// How many events are taken from the ring at once.
const EVENTS_AT_ONCE_MAX: usize = 256;

/// A webhook that can be used: its files were read.
#[derive(Clone)]
pub(crate) struct Webhook {
    server: HttpServer,
    authority: String,
    path: String,
    /// Scheme and host: the path of a URL is often a secret.
    shown: String,
    topics: Vec<EventTopic>,
    secret: Option<SecretText>,
}

impl Webhook {
    /// Reads the files that the settings name.
    pub(crate) fn open(settings: &WebhookSettings) -> anyhow::Result<Self> {
        let uri: Uri = settings.url.parse().context("webhook.url is not a URL")?;
        let host = uri.host().context("webhook.url has no host")?;
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let server = if is_secure {
            HttpServer::secure(host, port, Arc::new(tls(settings.ca.as_deref())?))
        } else {
            HttpServer::plain(host, port)
        };
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let secret = settings.secret_file.as_deref().map(secret);
        Ok(Self {
            server,
            shown: format!("{}://{authority}", uri.scheme_str().unwrap_or("http")),
            authority: authority.to_owned(),
            path: path.to_owned(),
            topics: settings.topics.clone(),
            secret: secret.transpose()?,
        })
    }

    /// Sends one event. The error is the end of a sentence about the receiver.
    async fn send(self, id: String, body: String) -> Result<(), String> {
        let mut request = Request::builder()
            .method("POST")
            .uri(&self.path)
            .header("host", &self.authority)
            .header("content-type", "application/json")
            .header("user-agent", concat!("trivet/", env!("CARGO_PKG_VERSION")))
            .header("x-trivet-delivery", id);
        if let Some(secret) = &self.secret {
            let signature = signature(secret.reveal().as_bytes(), body.as_bytes());
            request = request.header("x-trivet-signature-256", signature);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| format!("is not a valid URL: {error}"))?;
        let client = HttpClient::new(TIMEOUTS);
        let response = client
            .exchange(&self.server, request, ANSWER_BYTES_MAX)
            .await;
        let status = response.map_err(|error| error.to_string())?.status();
        if status.is_success() {
            return Ok(());
        }
        Err(format!("answers {}", status.as_u16()))
    }
}

/// Trusts the system's authorities and those of the file, if one is named.
fn tls(ca: Option<&Path>) -> anyhow::Result<rustls::ClientConfig> {
    let mut bundles: Vec<String> = system_authorities(None).into_iter().collect();
    if let Some(path) = ca {
        let text = fs::read_to_string(path)
            .with_context(|| format!("webhook.ca: {} cannot be read", path.display()))?;
        bundles.push(text);
    }
    anyhow::ensure!(
        !bundles.is_empty(),
        "webhook.url: this system has no certificate authorities (Debian: ca-certificates); name \
         a file of them in webhook.ca"
    );
    bundled_client_config(&bundles).context("webhook.ca: it contains no CA certificate")
}

/// The secret in a file, without the line end that editors add.
fn secret(path: &Path) -> anyhow::Result<SecretText> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .with_context(|| format!("webhook.secret_file: {shown} cannot be read"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    anyhow::ensure!(
        !text.is_empty() && text.len() <= SECRET_BYTES_MAX,
        "webhook.secret_file: {shown} must have 1 to {SECRET_BYTES_MAX} bytes; create a secret \
         with: openssl rand -hex 32"
    );
    Ok(SecretText::new(text.to_owned()))
}

type Delivery = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// The events of one webhook, from the ring to the receiver.
struct WebhookRunner {
    webhook: Webhook,
    engine: Engine,
    clock: DaemonClock,
    queue: WebhookQueue,
    /// The sequence number of the last event that was taken from the ring.
    position: u64,
    /// How many events of this webhook the gauge has.
    counted: usize,
    /// The fault that was raised.
    fault: Option<BoxFault>,
}

/// Starts all webhooks. `name` is the name of this box.
pub(crate) fn start(
    tasks: &mut JoinSet<()>,
    webhooks: Vec<Webhook>,
    engine: &Engine,
    clock: DaemonClock,
    name: &str,
) {
    for webhook in webhooks {
        tasks.spawn(run(webhook, engine.clone(), clock, name.to_owned()));
    }
}

/// Sends events until the box stops. `name` is the name of this box.
async fn run(webhook: Webhook, engine: Engine, clock: DaemonClock, name: String) {
    let mut news = engine.telemetry().watch_events();
    let mut runner = WebhookRunner {
        webhook,
        clock,
        queue: WebhookQueue::default(),
        position: 0,
        counted: 0,
        fault: None,
        engine,
    };
    let mut sending: Option<Delivery> = None;
    loop {
        news.borrow_and_update();
        runner.take_events();
        let mut wait_ms = None;
        if sending.is_none() {
            let now = clock.now().tick;
            match runner.queue.next_step(now, &name) {
                WebhookStep::Send { id, body } => {
                    sending = Some(Box::pin(runner.webhook.clone().send(id, body)));
                }
                WebhookStep::Wait(until) => wait_ms = until.map(|until| until.since_ms(now)),
            }
        }
        let pause = async {
            match wait_ms {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
        };
        let ended = async {
            match &mut sending {
                Some(delivery) => delivery.await,
                None => std::future::pending().await,
            }
        };
        let result = tokio::select! {
            changed = news.changed() => match changed {
                Ok(()) => None,
                Err(_) => return,
            },
            result = ended => Some(result),
            () = pause => None,
        };
        if let Some(result) = result {
            sending = None;
            for (fault, exists) in runner.ended(result) {
                retry_offer(&runner.engine, RackInput::Fault { fault, exists }).await;
            }
        }
    }
}

impl WebhookRunner {
    /// Moves the events that this webhook receives from the ring to its queue.
    fn take_events(&mut self) {
        let telemetry = self.engine.telemetry();
        loop {
            let read = telemetry.events().read(self.position, EVENTS_AT_ONCE_MAX);
            let mut dropped = 0;
            match read {
                Err(overtaken) => {
                    self.position += overtaken.lost;
                    self.queue.lose(overtaken.lost);
                    dropped = overtaken.lost;
                }
                Ok(events) if events.is_empty() => break,
                Ok(events) => {
                    for event in events {
                        self.position = event.sequence;
                        if self.webhook.topics.contains(&event.topic) && !self.queue.push(event) {
                            dropped += 1;
                        }
                    }
                }
            }
            if dropped > 0 {
                let mut counts = telemetry.counts();
                counts.add(MetricFamily::WebhookDropped, ["", ""], dropped);
            }
        }
        self.show_length();
    }

    fn show_length(&mut self) {
        let gauge = &self.engine.telemetry().webhook_events;
        gauge.fetch_add(self.queue.len(), Ordering::Relaxed);
        gauge.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = self.queue.len();
    }

    /// A request has ended. Returns the faults that begin (true) or end with it: another reason is
    /// another fault.
    fn ended(&mut self, result: Result<(), String>) -> Vec<(BoxFault, bool)> {
        let word = if result.is_ok() { "ok" } else { "failed" };
        let telemetry = self.engine.telemetry();
        let mut counts = telemetry.counts();
        counts.add(MetricFamily::WebhookDeliveries, [word, ""], 1);
        let now = self.clock.now().tick;
        let WebhookNews {
            is_failing,
            is_dropped,
        } = self.queue.ended(now, result.is_ok());
        if is_dropped {
            counts.add(MetricFamily::WebhookDropped, ["", ""], 1);
        }
        drop(counts);
        self.show_length();
        let begins = is_failing == Some(true) || self.fault.is_some();
        let fault = result.err().filter(|_| begins).map(|why| {
            let url = self.webhook.shown.clone();
            BoxFault::WebhookFailed { url, why }
        });
        if is_failing.is_none() && (fault.is_none() || fault == self.fault) {
            return Vec::new();
        }
        let ended = std::mem::replace(&mut self.fault, fault.clone());
        let ended = ended.map(|fault| (fault, false));
        ended
            .into_iter()
            .chain(fault.map(|fault| (fault, true)))
            .collect()
    }
}

#[cfg(test)]
mod tests;
