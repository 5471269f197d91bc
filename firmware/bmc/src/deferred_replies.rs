//! Deferred replies to callers: at most one for each node, each with a time limit.
//!
//! Nothing of this is on flash. A restart of the box closes the callers' connections, and the
//! command is not sent again: it may have been carried out.

use std::collections::BTreeMap;

use trivet_model::bmc_request::BMC_REQUEST_MS_MAX;
use trivet_model::{NodeId, OrderRefusal, RefusalKind, Tick};

/// The most deferred replies at once.
pub const DEFERRED_REPLIES_MAX: usize = 256;

/// How long a reply may be deferred, in ms. Longer than the time-out of a BMC or an agent,
/// because the orders before this one take time too.
pub const DEFERRED_REPLY_MS_MAX: u64 = 90_000;

/// How long the reply to a BMC request may take, in ms: the orders before it take time too.
pub const BMC_REPLY_MS_MAX: u64 = BMC_REQUEST_MS_MAX + 60_000;

/// A deferred reply.
#[derive(Clone, Debug)]
pub struct DeferredReply<S> {
    /// The ticket of the reply.
    pub ticket: u64,
    /// When the wait ends.
    pub due: Tick,
    /// The command, without data that may be secret.
    pub label: String,
    /// What the reply comes from.
    pub source: S,
}

/// The deferred replies that come from one kind of source.
#[derive(Debug)]
pub struct DeferredReplies<S> {
    by_node: BTreeMap<NodeId, DeferredReply<S>>,
}

impl<S> Default for DeferredReplies<S> {
    fn default() -> Self {
        let by_node = BTreeMap::new();
        Self { by_node }
    }
}

impl<S> DeferredReplies<S> {
    /// How many there are. The caller of [`Self::insert`] respects [`DEFERRED_REPLIES_MAX`].
    pub fn len(&self) -> usize {
        self.by_node.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// The deferred reply of a node.
    pub fn get(&self, id: NodeId) -> Option<&DeferredReply<S>> {
        self.by_node.get(&id)
    }

    /// Stores a deferred reply.
    pub fn insert(&mut self, id: NodeId, reply: DeferredReply<S>) {
        self.by_node.insert(id, reply);
    }

    /// Removes the deferred reply of a node.
    pub fn remove(&mut self, id: NodeId) -> Option<DeferredReply<S>> {
        self.by_node.remove(&id)
    }

    /// When the next wait ends.
    pub fn deadline(&self) -> Option<Tick> {
        self.by_node.values().map(|reply| reply.due).min()
    }

    /// Removes the deferred replies whose wait has ended.
    pub fn take_expired(&mut self, now: Tick) -> Vec<(NodeId, DeferredReply<S>)> {
        let expired = self.by_node.iter().filter(|(_, reply)| reply.due <= now);
        let expired: Vec<_> = expired.map(|(id, _)| *id).collect();
        let taken = expired.into_iter();
        taken
            .filter_map(|id| Some((id, self.by_node.remove(&id)?)))
            .collect()
    }
}

/// The error for a caller whose wait has ended.
pub fn no_reply_in_time(id: NodeId, label: &str) -> OrderRefusal {
    let sentence = format!(
        "Node {id}: no answer to {label} in time; whether it was carried out is not known."
    );
    OrderRefusal::new(RefusalKind::Failed, sentence)
}

/// The error for a caller whose node was deleted.
pub fn node_deleted(id: NodeId) -> OrderRefusal {
    let sentence = format!("Node {id} was deleted meanwhile.");
    OrderRefusal::new(RefusalKind::NotFound, sentence)
}

#[cfg(test)]
mod tests {
    use trivet_model::SeededRandom;

    use super::*;

    fn reply(ticket: u64, due: u64) -> DeferredReply<()> {
        DeferredReply {
            ticket,
            due: Tick(due),
            label: "read sensors".to_owned(),
            source: (),
        }
    }

    #[test]
    fn the_earliest_wait_ends_first_and_once() {
        let [one, two] = [1, 2].map(|seed| NodeId::random(&mut SeededRandom::new(seed)));
        let mut replies = DeferredReplies::default();
        assert_eq!((replies.is_empty(), replies.deadline()), (true, None));
        replies.insert(one, reply(7, 500));
        replies.insert(two, reply(8, 300));
        assert_eq!((replies.len(), replies.deadline()), (2, Some(Tick(300))));
        assert!(replies.take_expired(Tick(299)).is_empty());
        let expired = replies.take_expired(Tick(300));
        let expired: Vec<_> = expired.iter().map(|(id, it)| (*id, it.ticket)).collect();
        assert_eq!(expired, [(two, 8)]);
        assert!(replies.take_expired(Tick(300)).is_empty());
        assert_eq!(replies.get(one).map(|reply| reply.ticket), Some(7));
        assert!(replies.remove(one).is_some() && replies.remove(one).is_none());
    }

    #[test]
    fn errors_name_the_node_and_the_command() {
        let id = NodeId::random(&mut SeededRandom::new(1));
        let late = no_reply_in_time(id, "read sensors");
        assert_eq!(late.kind, RefusalKind::Failed);
        assert!(late.sentence.contains("no answer to read sensors in time"));
        assert!(late.sentence.contains(&id.to_string()));
        assert_eq!(node_deleted(id).kind, RefusalKind::NotFound);
    }
}
