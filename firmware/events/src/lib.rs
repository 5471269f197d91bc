//! Notes as events for other programs: server-sent events and webhooks.
//!
//! [`EventRing`] keeps the newest events. A client has a position in it and no queue of its own:
//! one that is slower than the ring loses its position and is disconnected. The identity of an
//! event has the epoch of the ring, so that a client of before a restart is told to read the
//! present state again. [`WebhookQueue`] decides which event is sent to a webhook when, how often
//! it is repeated, and when the webhook counts as failing. Time is an argument; nothing here opens
//! a socket.

mod event;
mod ring;
#[cfg(test)]
mod tests;
mod webhook;

pub use event::{BoxEvent, MESSAGE_CHARS_MAX};
pub use ring::{EVENTS_BYTES_MAX, EVENTS_MAX, EventOvertaken, EventRing, StreamReset, StreamStart};
pub use webhook::{
    WEBHOOK_TRIES_MAX, WEBHOOK_WAITING_MAX, WebhookNews, WebhookQueue, WebhookStep, signature,
};
