//! Limits how many machines boot from the network at once, and queues the others.
//!
//! Two hundred machines that are switched on together request two hundred ramdisks over one
//! link; if each gets too little bandwidth, none boots in time. So a power order that boots a
//! machine from the network first requests admission from a [`BootQueue`]. Boots that are not
//! admitted wait in order of arrival; none fails by waiting, because a machine's timers start
//! with its power order. A boot holds its slot until its last file is sent completely, until
//! the node reports in another way, or until it timed out without a packet: for a machine that
//! has not sent anything yet, the timeout is derived from how long other machines took to send
//! their first packet, with a margin.
//!
//! The number of slots is fixed or adaptive ([`BootLimitRule::Auto`]), similar to TCP
//! congestion control. It adapts to the transfer of the last file of each boot, which is nearly
//! all of what a boot loads:
//!
//! - The file was incomplete, or took longer than a machine can wait, or the boot was aborted
//!   while it loaded: too many. The limit becomes half of the present boots, once: boots that
//!   started before the limit was reduced do not reduce it again.
//! - The file was complete, at a quarter of the best measured rate or more: the link has
//!   capacity. Until the first overload the limit grows by one for each such file, so it
//!   doubles with each batch; after that by one for each full batch. It grows only while boots
//!   are queued: a limit that is not reached proves nothing.
//! - Anything between: the link is full and every boot succeeds. More boots at once would only
//!   slow each of them, so the limit stays.
//!
//! The total rate of all transfers is not used: a slot is held from power-on, and most of that
//! time goes into firmware self-tests that load nothing, so that rate depends more on the
//! self-tests than on the link. This crate knows only the ids of nodes, and not what a boot is
//! for.

mod limit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_model::view::BootQueueCounts;
use trivet_model::{NodeId, PowerOrder, Tick};

use limit::BootLimit;
pub use limit::{BootLimitRule, LIMIT_MAX, LIMIT_START};

/// How long a machine may take to send its first packet, while no other has sent one: then its
/// slot is freed. Ours: the self-tests of most servers take less.
const FIRST_PACKET_MS: u64 = 180_000;

/// The shortest such timeout, however fast other machines were. Ours.
const FIRST_PACKET_MS_MIN: u64 = 60_000;

/// How many times to the first packet are remembered. Ours.
const FIRST_PACKET_TIMES_MAX: usize = 16;

/// Timeouts, which follow from how long a job waits for its machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BootTimeouts {
    /// A boot without a packet for this long loses its slot.
    pub idle_ms: u64,
    /// A last file that takes longer than this is slow.
    pub slow_file_ms: u64,
}

/// Whether a boot may start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BootAdmission {
    /// It may start now.
    Admitted,
    /// It waits in the queue.
    Queued {
        /// How many boots are ahead.
        ahead: u64,
        /// Its number in the queue; subtract `BootQueueCounts::served` for how many are ahead
        /// later.
        number: u64,
    },
    /// It is already in the queue.
    AlreadyQueued,
}

/// The transfer of a boot file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FetchedBootFile {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes requested.
    pub requested: u64,
    /// Duration in milliseconds.
    pub took_ms: u64,
}

/// A boot that holds a slot.
#[derive(Clone, Copy, Debug)]
struct ActiveBoot {
    since: Tick,
    /// When it loses its slot, unless a packet is received.
    until: Tick,
    /// A packet was received from it.
    seen: bool,
    /// The transfer of its last file has started.
    loading: bool,
}

/// Active and queued boots. At most one entry per node, so the size is bounded by the number of
/// nodes.
#[derive(Debug)]
pub struct BootQueue {
    limit: BootLimit,
    timeouts: BootTimeouts,
    booting: BTreeMap<NodeId, ActiveBoot>,
    ends: BTreeSet<(Tick, NodeId)>,
    waiting: VecDeque<(NodeId, PowerOrder)>,
    /// How many boots have left the head of the queue.
    served: u64,
    /// How long the last machines took to send their first packet, newest last.
    first_packet_ms: VecDeque<u64>,
}

impl BootQueue {
    /// An empty queue.
    pub fn new(rule: BootLimitRule, timeouts: BootTimeouts) -> Self {
        Self {
            limit: BootLimit::new(rule),
            timeouts,
            booting: BTreeMap::new(),
            ends: BTreeSet::new(),
            waiting: VecDeque::new(),
            served: 0,
            first_packet_ms: VecDeque::new(),
        }
    }

    /// The counts for the API and the page.
    pub fn counts(&self) -> BootQueueCounts {
        BootQueueCounts {
            limit: self.limit.now(),
            booting: self.booting.len(),
            waiting: self.waiting.len(),
            served: self.served,
        }
    }

    /// Whether the node boots or is queued.
    pub fn contains(&self, node: NodeId) -> bool {
        self.booting.contains_key(&node) || self.is_queued(node)
    }

    /// Whether the node is queued.
    pub fn is_queued(&self, node: NodeId) -> bool {
        self.position(node).is_some()
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        self.waiting.iter().position(|(other, _)| *other == node)
    }

    /// Requests admission for a power order that boots a machine. A repeated order, after the
    /// BMC rejected the first, takes no second slot.
    pub fn admit(&mut self, now: Tick, node: NodeId, order: PowerOrder) -> BootAdmission {
        if self.booting.contains_key(&node) {
            self.set_deadline(node, now.after_ms(self.first_packet_timeout_ms()));
            return BootAdmission::Admitted;
        }
        if let Some(place) = self.position(node) {
            self.waiting[place].1 = order;
            return BootAdmission::AlreadyQueued;
        }
        if self.waiting.is_empty() && self.booting.len() < self.limit.now() {
            self.begin(now, node);
            return BootAdmission::Admitted;
        }
        let ahead = self.waiting.len() as u64;
        self.waiting.push_back((node, order));
        BootAdmission::Queued {
            ahead,
            number: self.served + ahead,
        }
    }

    /// A boot that was in progress before this queue was created: it takes a slot even above
    /// the limit.
    pub fn resume(&mut self, now: Tick, node: NodeId) {
        self.remove(node);
        self.begin(now, node);
    }

    /// The next boot to start, and its power order.
    pub fn next(&mut self, now: Tick) -> Option<(NodeId, PowerOrder)> {
        if self.booting.len() >= self.limit.now() {
            return None;
        }
        let (node, order) = self.waiting.pop_front()?;
        self.served += 1;
        self.begin(now, node);
        Some((node, order))
    }

    /// The transfer of its last file has started.
    pub fn file_started(&mut self, now: Tick, node: NodeId) {
        self.machine_seen(now, node);
        if let Some(boot) = self.booting.get_mut(&node) {
            boot.loading = true;
        }
    }

    /// The transfer of its last file has ended, complete or not.
    pub fn file_finished(&mut self, now: Tick, node: NodeId, file: FetchedBootFile) {
        let Some(boot) = self.booting.get(&node).copied() else {
            return;
        };
        if file.sent < file.requested {
            // The machine may request it again, and keeps its slot.
            self.file_started(now, node);
            return self.overloaded(now, boot);
        }
        if file.took_ms > self.timeouts.slow_file_ms {
            self.overloaded(now, boot);
        } else {
            let rate = file.sent.saturating_mul(1000) / file.took_ms.max(1);
            self.limit.file_completed(rate, !self.waiting.is_empty());
        }
        self.boot_finished(node);
    }

    /// The booted system runs, or the boot no longer matters: the slot is freed.
    pub fn boot_finished(&mut self, node: NodeId) {
        if let Some(boot) = self.booting.remove(&node) {
            self.ends.remove(&(boot.until, node));
        }
    }

    /// The machine is switched off, to boot again or not at all. If that was while it loaded,
    /// the link was overloaded.
    pub fn boot_failed(&mut self, now: Tick, node: NodeId) -> Option<usize> {
        if let Some(boot) = self.booting.get(&node).copied()
            && boot.loading
        {
            self.overloaded(now, boot);
        }
        self.remove(node)
    }

    /// The boot is cancelled for a reason that does not depend on the link. Returns its
    /// position in the queue, if it was queued.
    pub fn remove(&mut self, node: NodeId) -> Option<usize> {
        self.boot_finished(node);
        let place = self.position(node)?;
        self.waiting.remove(place);
        Some(place)
    }

    /// The boots queued from this position on, with their present numbers.
    pub fn queued_from(&self, place: usize) -> impl Iterator<Item = (NodeId, u64)> {
        let queue = self.waiting.iter().enumerate().skip(place);
        queue.map(|(place, (node, _))| (*node, self.served + place as u64))
    }

    /// When [`BootQueue::tick`] is due.
    pub fn deadline(&self) -> Option<Tick> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Frees the slots of boots without a packet.
    pub fn tick(&mut self, now: Tick) {
        while let Some(&(at, node)) = self.ends.first()
            && at <= now
        {
            self.boot_failed(now, node);
        }
    }

    fn begin(&mut self, now: Tick, node: NodeId) {
        let until = now.after_ms(self.first_packet_timeout_ms());
        let boot = ActiveBoot {
            since: now,
            until,
            seen: false,
            loading: false,
        };
        self.booting.insert(node, boot);
        self.ends.insert((until, node));
    }

    /// Timeout of the first packet: twice as long as the slowest of the last machines.
    fn first_packet_timeout_ms(&self) -> u64 {
        let slowest = self.first_packet_ms.iter().max();
        let usual = slowest.map_or(FIRST_PACKET_MS, |ms| {
            ms.saturating_mul(2).max(FIRST_PACKET_MS_MIN)
        });
        usual.min(self.timeouts.idle_ms)
    }

    /// A packet was received from the machine: it requested an address or a file.
    pub fn machine_seen(&mut self, now: Tick, node: NodeId) {
        let Some(boot) = self.booting.get_mut(&node) else {
            return;
        };
        if !std::mem::replace(&mut boot.seen, true) {
            if self.first_packet_ms.len() >= FIRST_PACKET_TIMES_MAX {
                self.first_packet_ms.pop_front();
            }
            self.first_packet_ms.push_back(now.since_ms(boot.since));
        }
        self.set_deadline(node, now.after_ms(self.timeouts.idle_ms));
    }

    fn set_deadline(&mut self, node: NodeId, until: Tick) {
        if let Some(boot) = self.booting.get_mut(&node) {
            self.ends.remove(&(boot.until, node));
            boot.until = until;
            self.ends.insert((until, node));
        }
    }

    fn overloaded(&mut self, now: Tick, boot: ActiveBoot) {
        self.limit.overloaded(now, boot.since, self.booting.len());
    }
}

#[cfg(test)]
mod tests;
