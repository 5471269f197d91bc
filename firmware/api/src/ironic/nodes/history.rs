//! `/v1/nodes/<ident>/history`: the last failures of the node, as they are stored.
//!
//! Failures have no UUID; a record's UUID is computed from the node, the time and the text, so it
//! is stable as long as the failure is kept.

use serde_json::{Value, json};
use trivet_model::story::NodeFailure;
use trivet_model::view::NodeView;
use trivet_model::{NodeId, ProvisionState, SeededRandom};

use crate::ApiOutcome;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::{self, Column, Field, FieldWrite, ValueShape, field};
use crate::table::list::{self, ListKind, ListRecord, RecordWalk};
use crate::table::route::{ApiArg, arg};

use FieldWrite::Never;
use ValueShape::{Links, Number, Text};

/// Longest text in a short entry, in characters, as in Ironic.
const EVENT_CHARS_MAX: usize = 255;

pub(crate) const QUERY_ARGS: &[ApiArg] = &[
    arg("detail", 78, ValueShape::Flag),
    arg("limit", 78, ValueShape::Number),
    arg("marker", 78, ValueShape::Text),
    arg("sort_key", 78, ValueShape::Text),
    arg("sort_dir", 78, ValueShape::Word(&["asc", "desc"])),
];

/// One failure.
struct NodeHistoryEvent {
    node: NodeId,
    uuid: String,
    /// Index among the failures.
    place: u64,
    at: String,
    why: String,
    /// The user of the last request before it.
    user: Option<String>,
    /// The state of the node after it.
    state: Option<ProvisionState>,
    short: bool,
}

impl ListRecord for NodeHistoryEvent {
    fn uuid(&self) -> String {
        self.uuid.clone()
    }

    fn serial(&self) -> u64 {
        self.place
    }
}

const FIELDS: &[Field<NodeHistoryEvent>] = &[
    field("conductor", 78, Text, Never, |_, call, _| {
        json!(call.facts.hostname)
    }),
    field("created_at", 78, Text, Never, |event, _, _| json!(event.at)),
    field("duration_seconds", 115, Number, Never, unknown),
    field("event", 78, Text, Never, |event, _, _| {
        if event.short && event.why.chars().count() > EVENT_CHARS_MAX {
            let start: String = event.why.chars().take(EVENT_CHARS_MAX - 4).collect();
            return json!(format!("{start}..."));
        }
        json!(event.why)
    }),
    field("event_type", 78, Text, Never, |_, _, _| {
        json!("provisioning")
    }),
    field("links", 78, Links, Never, |event, call, _| {
        call.links(&format!("nodes/{}/history/{}", event.node, event.uuid))
    }),
    field("project", 113, Text, Never, unknown),
    field("severity", 78, Text, Never, |_, _, _| json!("ERROR")),
    field("state", 115, Text, Never, |event, _, _| json!(event.state)),
    field("target_provision_state", 115, Text, Never, unknown),
    field("user", 78, Text, Never, |event, _, _| json!(event.user)),
    field("uuid", 78, Text, Never, |event, _, _| json!(event.uuid)),
];

const EVENTS: ListKind<NodeHistoryEvent> = ListKind {
    name: "history",
    table: FIELDS,
    short: &["uuid", "created_at", "severity", "event", "links"],
    detail_of_all_versions: false,
};

fn unknown(_: &NodeHistoryEvent, _: &ApiCall<'_>, _: &'static str) -> Value {
    Value::Null
}

pub(crate) fn columns() -> Vec<Column> {
    field::columns(FIELDS)
}

pub(crate) fn list(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let short = !call.query.flag("detail")?.unwrap_or(false);
    let events = events(view, short);
    let find = |marker: &str| events.iter().find(|event| event.uuid == marker);
    list::page(
        call,
        &EVENTS,
        |_| vec![RecordWalk::new(events.iter(), false)],
        |_| true,
        find,
        false,
    )
}

pub(crate) fn show(
    call: &ApiCall<'_>,
    view: &NodeView,
    ident: &str,
) -> Result<ApiOutcome, ApiFault> {
    let events = events(view, false);
    let found = events.iter().find(|event| event.uuid == ident);
    let found = found.ok_or_else(|| {
        let ident = ident.escape_debug();
        ApiFault::not_found(format!("Node history record {ident} could not be found."))
    })?;
    let fields = field::available_fields(FIELDS, call);
    reply(&Value::Object(field::render(&fields, found, call)))
}

fn events(view: &NodeView, short: bool) -> Vec<NodeHistoryEvent> {
    let stories = view.story.finished.as_ref();
    let failures = stories.map_or(&[][..], |stories| stories.failures.as_slice());
    let event = |(place, failure): (u64, &NodeFailure)| NodeHistoryEvent {
        node: view.node.id,
        uuid: identity(view, failure),
        place,
        at: failure.at.to_string(),
        why: failure.why.clone(),
        user: failure.user.clone(),
        state: failure.state,
        short,
    };
    (0..).zip(failures).map(event).collect()
}

fn identity(view: &NodeView, failure: &NodeFailure) -> String {
    // FNV-1a, over the values that make the failure unique.
    let at = failure.at.0.to_be_bytes();
    let node = view.node.id.bytes();
    let bytes = node.iter().chain(&at).chain(failure.why.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    NodeId::random(&mut SeededRandom::new(hash)).to_string()
}
