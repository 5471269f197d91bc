//! Deliveries to one webhook: one request at a time, repeated with growing pauses.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use trivet_model::Tick;

use crate::event::BoxEvent;

/// The most events that wait for one webhook; then the oldest one is dropped. Ours.
pub const WEBHOOK_WAITING_MAX: usize = 1024;

/// How often one event is sent before it is dropped. Ours: about a quarter of an hour.
pub const WEBHOOK_TRIES_MAX: u32 = 12;

/// The first pause after a failure, and the longest one.
const RETRY_MS: u64 = 1000;
const RETRY_MS_MAX: u64 = 300_000;

/// After this many failures in a row the webhook counts as failing. Ours: a receiver that
/// restarts is no fault.
const FAILURES_MIN: u32 = 3;

/// The events of one webhook.
#[derive(Clone, Debug, Default)]
pub struct WebhookQueue {
    waiting: VecDeque<Arc<BoxEvent>>,
    /// The first event is being sent.
    is_sending: bool,
    /// How often the first event was sent.
    tries: u32,
    /// When the next request may be sent.
    next_at: Tick,
    /// Events that were dropped since the last success.
    missed: u64,
    /// Failures since the last success.
    failures: u32,
}

/// What the shell does next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WebhookStep {
    /// Send this body. The end is reported with [`WebhookQueue::ended`].
    Send {
        /// The identity of the event: the same in each repetition.
        id: String,
        /// The body, JSON.
        body: String,
    },
    /// Wait until this time, or for an event if there is none.
    Wait(Option<Tick>),
}

/// What follows from the end of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WebhookNews {
    /// The webhook begins to fail (true) or works again (false).
    pub is_failing: Option<bool>,
    /// The event was dropped after its last try.
    pub is_dropped: bool,
}

impl WebhookQueue {
    /// How many events wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues an event. False if another one was dropped for it.
    pub fn push(&mut self, event: Arc<BoxEvent>) -> bool {
        let is_full = self.waiting.len() >= WEBHOOK_WAITING_MAX;
        if is_full {
            // The first one may be on its way.
            let oldest = usize::from(self.is_sending);
            self.waiting.remove(oldest);
            if !self.is_sending {
                self.tries = 0;
            }
            self.missed = self.missed.saturating_add(1);
        }
        self.waiting.push_back(event);
        !is_full
    }

    /// Events were lost before they could be queued.
    pub fn lose(&mut self, count: u64) {
        self.missed = self.missed.saturating_add(count);
    }

    /// What to do now. `box_name` is the name of this box, for receivers of several.
    pub fn next_step(&mut self, now: Tick, box_name: &str) -> WebhookStep {
        if self.is_sending {
            return WebhookStep::Wait(None);
        }
        let Some(event) = self.waiting.front() else {
            return WebhookStep::Wait(None);
        };
        if now < self.next_at {
            return WebhookStep::Wait(Some(self.next_at));
        }
        self.is_sending = true;
        self.tries += 1;
        let inner: Value = serde_json::from_str(&event.json).unwrap_or_default();
        let body = json!({"box": box_name, "missed": self.missed, "event": inner});
        WebhookStep::Send {
            id: event.id.clone(),
            body: body.to_string(),
        }
    }

    /// A request has ended.
    pub fn ended(&mut self, now: Tick, is_accepted: bool) -> WebhookNews {
        self.is_sending = false;
        let was_failing = self.failures >= FAILURES_MIN;
        if is_accepted {
            self.waiting.pop_front();
            (self.tries, self.missed, self.failures) = (0, 0, 0);
            self.next_at = now;
            return WebhookNews {
                is_failing: was_failing.then_some(false),
                is_dropped: false,
            };
        }
        self.failures = self.failures.saturating_add(1);
        let doublings = (self.failures - 1).min(16);
        let pause = (RETRY_MS << doublings).min(RETRY_MS_MAX);
        self.next_at = now.after_ms(pause);
        let is_dropped = self.tries >= WEBHOOK_TRIES_MAX;
        if is_dropped {
            self.waiting.pop_front();
            self.tries = 0;
            self.missed = self.missed.saturating_add(1);
        }
        let is_failing = !was_failing && self.failures >= FAILURES_MIN;
        WebhookNews {
            is_failing: is_failing.then_some(true),
            is_dropped,
        }
    }
}

/// The signature of a body: `sha256=` and the HMAC-SHA256 (RFC 2104) in hexadecimal digits.
pub fn signature(secret: &[u8], body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(body);
    let mut text = "sha256=".to_owned();
    for byte in mac.finalize().into_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
