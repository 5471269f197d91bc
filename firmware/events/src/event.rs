//! One event, as JSON.

use std::sync::Arc;

use serde_json::{Map, Value};
use trivet_model::{EventTopic, Note, NoteKind};

/// The longest message of an event; the rest is cut. Ours.
pub const MESSAGE_CHARS_MAX: usize = 2048;

/// An event that clients and webhooks receive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BoxEvent {
    /// Its place in the order of events, from 1.
    pub sequence: u64,
    /// Its subject.
    pub topic: EventTopic,
    /// UUID of its node, if it concerns one.
    pub node: Option<String>,
    /// Name of its node, or the UUID where it has none.
    pub label: Option<String>,
    /// Its identity, see [`crate::EventRing`].
    pub id: String,
    /// All of it as one line of JSON.
    pub json: Arc<str>,
}

impl BoxEvent {
    /// The event of a note.
    pub(crate) fn new(sequence: u64, id: String, note: &Note, label: Option<&str>) -> Self {
        let topic = note.kind.topic();
        let node = note.node.map(|node| node.to_string());
        let mut all = Map::new();
        let mut set = |name: &str, value: Value| {
            all.insert(name.to_owned(), value);
        };
        set("id", id.as_str().into());
        set("at", note.at.to_string().into());
        set("topic", topic.as_str().into());
        set("kind", note.kind.name().into());
        set("node", node.as_deref().into());
        set("node_name", label.into());
        let message: String = note.kind.to_string();
        let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
        set("message", message.into());
        add_facts(&note.kind, &mut set);
        Self {
            sequence,
            topic,
            node,
            label: label.map(str::to_owned),
            id,
            json: Value::Object(all).to_string().into(),
        }
    }

    /// Whether it concerns this node, by UUID or name.
    pub fn is_of_node(&self, ident: &str) -> bool {
        self.node.as_deref() == Some(ident) || self.label.as_deref() == Some(ident)
    }

    /// The text of a server-sent event (WHATWG HTML, section 9.2).
    pub fn frame(&self) -> String {
        let (id, topic, json) = (&self.id, self.topic, &self.json);
        format!("id: {id}\nevent: {topic}\ndata: {json}\n\n")
    }
}

/// The typed facts that programs act on. All others are in the message.
fn add_facts(kind: &NoteKind, set: &mut impl FnMut(&str, Value)) {
    match kind {
        NoteKind::StateChanged { from, to } => {
            set("from", from.as_str().into());
            set("to", to.as_str().into());
        }
        NoteKind::PowerIs(state) | NoteKind::PowerAssumed(state) => {
            set("power_state", state.as_str().into());
        }
        NoteKind::PowerOrdered { order } | NoteKind::PowerAccepted { order } => {
            set("order", (*order).into());
        }
        NoteKind::FaultRaised(fault) | NoteKind::FaultCleared(fault) => {
            set("fault", fault.name().into());
        }
        NoteKind::ImageFetching { image }
        | NoteKind::ImageUnpacking { image }
        | NoteKind::ImageComplete { image, .. }
        | NoteKind::ImageCorrupt { image, .. }
        | NoteKind::ImageEvicted { image }
        | NoteKind::AwaitingImage { image }
        | NoteKind::ImageAheadStarted { image }
        | NoteKind::ImageAheadWritten { image, .. }
        | NoteKind::ImageAheadFailed { image, .. }
        | NoteKind::ImageWasOnDisk { image }
        | NoteKind::ImageRejected { image, .. } => set("image", image.as_str().into()),
        NoteKind::StepStarted { step } | NoteKind::StepDone { step } => {
            set("step", step.as_str().into());
        }
        NoteKind::OrderReceived { order, refused, .. } => {
            set("order", (*order).into());
            set("is_refused", refused.is_some().into());
        }
        _ => {}
    }
}
