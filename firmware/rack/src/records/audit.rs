//! The last requests of callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trivet_model::story::{AUDIT_ENTRIES_MAX, AuditEntry, shortened};
use trivet_model::{ApiCaller, Node, NodeId, Note, NoteKind, Now, UnixMs};
use trivet_store::StoreChange;

use crate::RefusedRequest;

/// A refused request that repeats one of this many entries is not stored again...
const AUDIT_COMPARED_MAX: usize = 32;

/// ...within this time, in ms.
const AUDIT_REPEAT_MS: u64 = 600_000;

/// Most requests of one caller within [`AUDIT_REFUSED_MS`] that were refused before they became
/// orders: a program that sends wrong requests must not displace what others changed.
const AUDIT_REFUSED_MAX: usize = 30;
const AUDIT_REFUSED_MS: u64 = 3_600_000;

/// Longest text of an entry, in bytes.
const AUDIT_TEXT_BYTES_MAX: usize = 200;

/// The last requests of callers, by their numbers.
#[derive(Default)]
pub(super) struct AuditRing {
    entries: BTreeMap<u64, Arc<AuditEntry>>,
    changed: BTreeSet<u64>,
    /// Entries that are written with the next commit: refusals alone must not wear the flash.
    waiting: BTreeSet<u64>,
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
            waiting: BTreeSet::new(),
        }
    }

    /// The requests.
    pub(super) fn entries(&self) -> &BTreeMap<u64, Arc<AuditEntry>> {
        &self.entries
    }

    /// The changes of this batch.
    pub(super) fn take_changes(&mut self, changes: &mut Vec<StoreChange>) {
        if !changes.is_empty() || !self.changed.is_empty() {
            self.write();
        }
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
        let refused = refused.as_deref();
        let entry = self.entry((note.at, note.node), caller, order, node, refused);
        if entry.refused.is_some() && self.repeats(&entry) {
            return;
        }
        self.changed.insert(entry.number);
        self.insert(entry);
    }

    /// Adds a request that was refused before it became an order. It is written with the next
    /// commit, so one that is followed by a power cut can be lost.
    pub(super) fn add_refused(&mut self, now: Now, node: Option<&Node>, refused: &RefusedRequest) {
        let (subject, order) = ((now.wall, refused.node), RefusedRequest::ORDER);
        let entry = self.entry(subject, &refused.caller, order, node, Some(&refused.why));
        if self.repeats(&entry) || self.has_many_of(&entry) {
            return;
        }
        self.waiting.insert(entry.number);
        self.insert(entry);
    }

    /// The entries that wait are written with the changes of this batch.
    pub(super) fn write(&mut self) {
        self.changed.append(&mut self.waiting);
    }

    fn entry(
        &self,
        (at, id): (UnixMs, Option<NodeId>),
        caller: &ApiCaller,
        order: &str,
        node: Option<&Node>,
        refused: Option<&str>,
    ) -> AuditEntry {
        let short = |text: &str| shortened(text, AUDIT_TEXT_BYTES_MAX);
        let last = self.entries.last_key_value();
        AuditEntry {
            number: last.map_or(0, |(number, _)| *number) + 1,
            at,
            caller: short(&caller.identity.to_string()),
            user: caller.identity.name().map(short),
            from: caller.from.to_string(),
            request_line: short(&caller.request_line),
            request: short(&caller.request),
            order: order.to_owned(),
            node: id,
            node_name: node.map(|node| short(&node.label())),
            refused: refused.map(short),
        }
    }

    fn insert(&mut self, entry: AuditEntry) {
        self.entries.insert(entry.number, Arc::new(entry));
        if self.entries.len() > AUDIT_ENTRIES_MAX {
            self.entries.pop_first();
        }
    }

    /// Whether the ring has as many requests of this caller as it may have that never became
    /// orders.
    fn has_many_of(&self, entry: &AuditEntry) -> bool {
        let of_caller = self.entries.values().rev().filter(|other| {
            other.order == entry.order
                && other.caller == entry.caller
                && entry.at.0.saturating_sub(other.at.0) < AUDIT_REFUSED_MS
        });
        of_caller.take(AUDIT_REFUSED_MAX).count() == AUDIT_REFUSED_MAX
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
