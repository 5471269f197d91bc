//! How many machines boot from the network at once, and who is next.
//!
//! Two hundred machines that are switched on together ask one link for two hundred
//! ramdisks, and where each gets too little of it, none arrives in time. So an order
//! that boots a machine from the network first asks a [`Gate`]. Those it cannot let
//! through wait in the order they came; none fails by waiting, because a machine's
//! timers begin with its power order. A boot holds its place until its last file has
//! left whole, until it is heard of in another way, or until nothing was heard of it
//! for so long that it cannot matter any more: for one that was never heard that is the
//! time that other machines took to be heard, with room to spare.
//!
//! How many places there are is a fixed number or is found ([`AtOnce::Auto`]), as TCP
//! finds how much a path carries, from how the last file of each boot, which is nearly
//! all of what a boot loads, came through:
//!
//! - It came short, or took longer than a machine can wait, or its machine was given up
//!   while it loaded: too many. The limit becomes half of those that boot, once: boots
//!   that began before the limit fell say nothing about the new one.
//! - It came whole, at no less than a quarter of the best rate seen: there is room.
//!   Until the link was first too full the limit grows by one for each such file, so
//!   that it doubles with each wave; after that by one for each full wave. It grows only
//!   while somebody waits: a limit that is not reached proves nothing.
//! - Anything between: the link is full and everybody arrives. More at once would only
//!   make each slower, so the limit stays.
//!
//! Why not the rate of all transfers together: a place is held from power-on, and most
//! of that time goes into firmware that loads nothing. What all load together then tells
//! more about self-tests than about the link. Knows no node but by name, and nothing of
//! what a boot is for.

mod limit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_model::view::BootQueueCounts;
use trivet_model::{NodeId, PowerOrder, Tick};

use limit::BootLimit;
pub use limit::{BootLimitRule, LIMIT_MAX, LIMIT_START};

/// How long a machine may be unheard before any was heard: then its place is free. Ours: the
/// self-tests of most servers take less.
const FIRST_PACKET_MS: u64 = 180_000;

/// The shortest such time, however quick the others were. Ours.
const FIRST_PACKET_MS_MIN: u64 = 60_000;

/// How many times to the first sound are remembered. Ours.
const FIRST_PACKET_TIMES_MAX: usize = 16;

/// How long is long. All of it follows from how long a job waits for its machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BootTimeouts {
    /// A boot of which nothing was heard for so long is not counted any more.
    pub idle_ms: u64,
    /// A last file that takes longer than this is slow.
    pub slow_file_ms: u64,
}

/// May it boot?
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BootAdmission {
    /// Now.
    Admitted,
    /// It waits from now on, behind so many others.
    Queued {
        /// How many are ahead.
        ahead: u64,
        /// Its number; how many are ahead later is this less [`Boots::served`].
        number: u64,
    },
    /// It waits already.
    AlreadyQueued,
}

/// How a file of a boot went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FetchedBootFile {
    /// Bytes that left.
    pub sent: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// How long that took.
    pub took_ms: u64,
}

/// A boot that holds a place.
#[derive(Clone, Copy, Debug)]
struct ActiveBoot {
    since: Tick,
    /// When it is not counted any more, unless something is heard of it.
    until: Tick,
    /// Something was heard of it.
    seen: bool,
    /// It has begun to load its last file.
    loading: bool,
}

/// Who boots and who waits. At most one entry for a node, so as many as there are nodes.
#[derive(Debug)]
pub struct BootQueue {
    limit: BootLimit,
    timeouts: BootTimeouts,
    booting: BTreeMap<NodeId, ActiveBoot>,
    ends: BTreeSet<(Tick, NodeId)>,
    waiting: VecDeque<(NodeId, PowerOrder)>,
    /// How many have left the head of the queue.
    served: u64,
    /// How long the last machines took to be heard, newest last.
    first_packet_ms: VecDeque<u64>,
}

impl BootQueue {
    /// A gate with nobody at it.
    pub fn new(rule: BootLimitRule, patience: BootTimeouts) -> Self {
        Self {
            limit: BootLimit::new(rule),
            timeouts: patience,
            booting: BTreeMap::new(),
            ends: BTreeSet::new(),
            waiting: VecDeque::new(),
            served: 0,
            first_packet_ms: VecDeque::new(),
        }
    }

    /// For readers.
    pub fn counts(&self) -> BootQueueCounts {
        BootQueueCounts {
            limit: self.limit.now(),
            booting: self.booting.len(),
            waiting: self.waiting.len(),
            served: self.served,
        }
    }

    /// Whether it boots or waits.
    pub fn contains(&self, node: NodeId) -> bool {
        self.booting.contains_key(&node) || self.is_queued(node)
    }

    /// Whether it waits.
    pub fn is_queued(&self, node: NodeId) -> bool {
        self.position(node).is_some()
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        self.waiting.iter().position(|(other, _)| *other == node)
    }

    /// A machine is to boot by this order. An order given again, because the BMC did
    /// not take the first, needs no second place.
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

    /// A boot that was under way before this gate was there: it is counted, whatever
    /// the limit says.
    pub fn resume(&mut self, now: Tick, node: NodeId) {
        self.remove(node);
        self.begin(now, node);
    }

    /// Who may boot now, and by which order.
    pub fn next(&mut self, now: Tick) -> Option<(NodeId, PowerOrder)> {
        if self.booting.len() >= self.limit.now() {
            return None;
        }
        let (node, order) = self.waiting.pop_front()?;
        self.served += 1;
        self.begin(now, node);
        Some((node, order))
    }

    /// Something of its last file has left for it.
    pub fn file_started(&mut self, now: Tick, node: NodeId) {
        self.machine_seen(now, node);
        if let Some(boot) = self.booting.get_mut(&node) {
            boot.loading = true;
        }
    }

    /// The last file of its boot has ended, whole or short.
    pub fn file_finished(&mut self, now: Tick, node: NodeId, file: FetchedBootFile) {
        let Some(boot) = self.booting.get(&node).copied() else {
            return;
        };
        if file.sent < file.requested {
            // It may ask again, and keeps its place.
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

    /// What it boots runs, or is no matter of ours: its place is free.
    pub fn boot_finished(&mut self, node: NodeId) {
        if let Some(boot) = self.booting.remove(&node) {
            self.ends.remove(&(boot.until, node));
        }
    }

    /// It is switched off, to boot again or not at all. If that was while it loaded, it
    /// had too little of the link.
    pub fn boot_failed(&mut self, now: Tick, node: NodeId) -> Option<usize> {
        if let Some(boot) = self.booting.get(&node).copied()
            && boot.loading
        {
            self.overloaded(now, boot);
        }
        self.remove(node)
    }

    /// It does not boot any more, for a reason that says nothing about the link. The
    /// place in the queue that it leaves, if it waited.
    pub fn remove(&mut self, node: NodeId) -> Option<usize> {
        self.boot_finished(node);
        let place = self.position(node)?;
        self.waiting.remove(place);
        Some(place)
    }

    /// Who waits from this place on, with the number each has now.
    pub fn queued_from(&self, place: usize) -> impl Iterator<Item = (NodeId, u64)> {
        let queue = self.waiting.iter().enumerate().skip(place);
        queue.map(|(place, (node, _))| (*node, self.served + place as u64))
    }

    /// When [`Gate::tick`] is due.
    pub fn deadline(&self) -> Option<Tick> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Boots of which nothing was heard are not counted any more.
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

    /// How long a machine may take to be heard: twice as long as the slowest of the last.
    fn first_packet_timeout_ms(&self) -> u64 {
        let slowest = self.first_packet_ms.iter().max();
        let usual = slowest.map_or(FIRST_PACKET_MS, |ms| {
            ms.saturating_mul(2).max(FIRST_PACKET_MS_MIN)
        });
        usual.min(self.timeouts.idle_ms)
    }

    /// Something was heard of it: it asked for an address or a file.
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
