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
        .map(|(note, why)| record(call, view, note, why, detail))
        .collect();
    reply(&json!({ "history": records }))
}

pub(crate) fn show(call: &Call<'_>, view: &NodeView, ident: &str) -> Result<Outcome, Fault> {
    let found = failures(view).find(|(note, why)| identity(view, note, why) == *ident);
    let (note, why) = found.ok_or_else(|| {
        let ident = ident.escape_debug();
        Fault::not_found(format!("Node history record {ident} could not be found."))
    })?;
    reply(&Value::Object(record(call, view, note, why, true)))
}

fn failures(view: &NodeView) -> impl Iterator<Item = (&Note, &str)> {
    view.timeline.iter().filter_map(|note| match &note.kind {
        NoteKind::Failed { why } => Some((note, why.as_str())),
        _ => None,
    })
}

fn record(call: &Call<'_>, view: &NodeView, note: &Note, why: &str, detail: bool) -> Object {
    let uuid = identity(view, note, why);
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
        shown.insert("user".into(), Value::Null);
    }
    shown
}

fn identity(view: &NodeView, note: &Note, why: &str) -> String {
    // FNV-1a, over what makes the note unique.
    let at = note.at.0.to_be_bytes();
    let node = view.node.id.bytes();
    let bytes = node.iter().chain(&at).chain(why.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    NodeId::random(&mut Seeded::new(hash)).to_string()
}
