//! The limit itself.

use trivet_model::Tick;

/// What an automatic limit begins with. Ours: eight ramdisks of 400 MB at once pass a
/// gigabit link in half a minute, which no agent's patience is too short for.
pub const LIMIT_START: usize = 8;

/// The highest limit. Ours: beyond that it is none.
pub const LIMIT_MAX: usize = 1024;

/// A file that came at this fraction of the best rate shows that there is room.
const SHARE: u64 = 4;

/// How many machines may boot at once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BootLimitRule {
    /// As many as the link is seen to carry.
    #[default]
    Auto,
    /// So many; none counts as one, or nobody would ever boot.
    Fixed(usize),
}

#[derive(Debug)]
pub(crate) struct BootLimit {
    now: usize,
    fixed: bool,
    /// The link was never too full.
    probing: bool,
    /// Files that came well since the limit last changed.
    good_files: usize,
    /// The best rate seen, in bytes a second.
    best: u64,
    reduced_at: Option<Tick>,
}

impl BootLimit {
    pub(crate) fn new(rule: BootLimitRule) -> Self {
        let (now, fixed) = match rule {
            BootLimitRule::Auto => (LIMIT_START, false),
            BootLimitRule::Fixed(many) => (many.clamp(1, LIMIT_MAX), true),
        };
        Self {
            now,
            fixed,
            probing: true,
            good_files: 0,
            best: 0,
            reduced_at: None,
        }
    }

    pub(crate) fn now(&self) -> usize {
        self.now
    }

    /// A file came whole and in good time, while somebody waited or nobody did.
    pub(crate) fn file_completed(&mut self, rate: u64, waited: bool) {
        self.best = self.best.max(rate);
        if self.fixed || !waited || rate.saturating_mul(SHARE) < self.best {
            return;
        }
        self.good_files += 1;
        if self.probing || self.good_files >= self.now {
            self.now = (self.now + 1).min(LIMIT_MAX);
            self.good_files = 0;
        }
    }

    /// A boot that began at `since` had too little of the link, with so many others.
    pub(crate) fn overloaded(&mut self, now: Tick, since: Tick, booting: usize) {
        if self.fixed || self.reduced_at.is_some_and(|fell_at| since < fell_at) {
            return;
        }
        self.now = (booting.min(self.now) / 2).max(1);
        self.probing = false;
        self.good_files = 0;
        self.reduced_at = Some(now);
    }
}
