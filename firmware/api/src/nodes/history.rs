//! `/v1/nodes/<ident>/history`: failures, from the node's timeline.
//!
//! Notes have no identity of their own; a record's UUID is computed from the
//! node, the moment and the sentence, so it stays the same while the note does.

use serde_json::{Value, json};
use trivet_model::node::Object;
use trivet_model::view::NodeView;
use trivet_model::{NodeId, Note, NoteKind, Seeded};

use crate::Outcome;
use crate::call::{Call, reply};
use crate::error::Fault;

pub(crate) fn list(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let detail = call.query.flag("detail")?.unwrap_or(false);
    let records: Vec<Object> = failures(view)
        .map(|failure| record(call, view, &failure, detail))
        .collect();
    reply(&json!({ "history": records }))
}

pub(crate) fn show(call: &Call<'_>, view: &NodeView, ident: &str) -> Result<Outcome, Fault> {
    let found = failures(view).find(|failure| identity(view, failure) == *ident);
    let failure = found.ok_or_else(|| {
        let ident = ident.escape_debug();
        Fault::not_found(format!("Node history record {ident} could not be found."))
    })?;
    reply(&Value::Object(record(call, view, &failure, true)))
}

/// A failure, and who asked last before it.
struct Failure<'a> {
    note: &'a Note,
    why: &'a str,
    user: Option<&'a str>,
}

fn failures(view: &NodeView) -> impl Iterator<Item = Failure<'_>> {
    let mut user = None;
    view.timeline
        .iter()
        .filter_map(move |note| match &note.kind {
            NoteKind::Failed { why } => Some(Failure { note, why, user }),
            NoteKind::Asked {
                caller,
                refused: None,
                ..
            } => {
                user = caller.who.name();
                None
            }
            _ => None,
        })
}

fn record(call: &Call<'_>, view: &NodeView, failure: &Failure<'_>, detail: bool) -> Object {
    let Failure { note, why, user } = failure;
    let uuid = identity(view, failure);
    let links = call.links(&format!("nodes/{}/history/{uuid}", view.node.id));
    let mut shown = Object::new();
    shown.insert("uuid".into(), json!(uuid));
    shown.insert("created_at".into(), json!(note.at.to_string()));
    shown.insert("severity".into(), json!("ERROR"));
    shown.insert("event".into(), json!(why));
    shown.insert("links".into(), links);
    if detail {
        shown.insert("event_type".into(), json!("provisioning"));
        shown.insert("conductor".into(), json!(call.facts.hostname));
        shown.insert("user".into(), json!(user));
    }
    shown
}

fn identity(view: &NodeView, failure: &Failure<'_>) -> String {
    let Failure { note, why, .. } = failure;
    // FNV-1a, over what makes the note unique.
    let at = note.at.0.to_be_bytes();
    let node = view.node.id.bytes();
    let bytes = node.iter().chain(&at).chain(why.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    NodeId::random(&mut Seeded::new(hash)).to_string()
}
