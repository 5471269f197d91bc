//! The last requests of callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trivet_model::story::{AUDIT_ENTRIES_MAX, AuditEntry, shortened};
use trivet_model::{Node, NodeId, Note, NoteKind};
use trivet_store::StoreChange;

/// A refused request that repeats one of this many entries is not stored again...
const AUDIT_COMPARED_MAX: usize = 32;

/// ...within this time, in ms.
const AUDIT_REPEAT_MS: u64 = 600_000;

/// Longest text of an entry, in bytes.
const AUDIT_TEXT_BYTES_MAX: usize = 200;

/// The last requests of callers, by their numbers.
#[derive(Default)]
pub(super) struct AuditRing {
    entries: BTreeMap<u64, Arc<AuditEntry>>,
    changed: BTreeSet<u64>,
}

impl AuditRing {
    /// The requests on flash.
    pub(super) fn restore(stored: BTreeMap<u64, AuditEntry>) -> Self {
        let entries = stored.into_iter();
        Self {
            entries: entries
                .map(|(number, entry)| (number, Arc::new(entry)))
                .collect(),
            changed: BTreeSet::new(),
        }
    }

    /// The requests.
    pub(super) fn entries(&self) -> &BTreeMap<u64, Arc<AuditEntry>> {
        &self.entries
    }

    /// The changes of this batch.
    pub(super) fn take_changes(&mut self, changes: &mut Vec<StoreChange>) {
        for number in std::mem::take(&mut self.changed) {
            let entry = self.entries.get(&number);
            changes.extend(entry.map(|entry| StoreChange::PutAudit(Arc::clone(entry))));
        }
    }

    /// The user of the last request about a node that was not refused.
    pub(super) fn user_of(&self, node: NodeId) -> Option<String> {
        let mut entries = self.entries.values().rev();
        let order = entries.find(|entry| entry.node == Some(node) && entry.refused.is_none());
        order?.user.clone()
    }

    /// Adds a request, if the note is about one.
    pub(super) fn add(&mut self, node: Option<&Node>, note: &Note) {
        let NoteKind::OrderReceived {
            caller,
            order,
            refused,
        } = &note.kind
        else {
            return;
        };
        let short = |text: &str| shortened(text, AUDIT_TEXT_BYTES_MAX);
        let last = self.entries.last_key_value();
        let entry = AuditEntry {
            number: last.map_or(0, |(number, _)| *number) + 1,
            at: note.at,
            caller: short(&caller.identity.to_string()),
            user: caller.identity.name().map(short),
            from: caller.from.to_string(),
            request_line: short(&caller.request_line),
            request: short(&caller.request),
            order: (*order).to_owned(),
            node: note.node,
            node_name: node.map(|node| short(&node.label())),
            refused: refused.as_deref().map(short),
        };
        if entry.refused.is_some() && self.repeats(&entry) {
            return;
        }
        self.changed.insert(entry.number);
        self.entries.insert(entry.number, Arc::new(entry));
        if self.entries.len() > AUDIT_ENTRIES_MAX {
            self.entries.pop_first();
        }
    }

    /// Whether one of the last entries is the same, so that a program that repeats a wrong
    /// request writes nothing.
    fn repeats(&self, entry: &AuditEntry) -> bool {
        let latest = self.entries.values().rev().take(AUDIT_COMPARED_MAX);
        let mut recent =
            latest.filter(|other| entry.at.0.saturating_sub(other.at.0) < AUDIT_REPEAT_MS);
        recent.any(|other| {
            (&other.caller, &other.from, &other.request_line)
                == (&entry.caller, &entry.from, &entry.request_line)
                && (other.node, &other.refused) == (entry.node, &entry.refused)
        })
    }
}
