//! The limit of concurrent boots.

use trivet_model::Tick;

/// The initial value of an adaptive limit. Ours: eight ramdisks of 400 MB at once pass a
/// gigabit link in half a minute, which is shorter than the timeout of any agent.
pub const LIMIT_START: usize = 8;

/// The highest limit. Ours: a higher one has no effect.
pub const LIMIT_MAX: usize = 1024;

/// A file sent at this fraction of the best rate shows that the link has capacity.
const SHARE: u64 = 4;

/// The configured rule for how many machines may boot at once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BootLimitRule {
    /// Adapts to the measured throughput of the link.
    #[default]
    Auto,
    /// A fixed number; zero counts as one, otherwise no machine would ever boot.
    Fixed(usize),
}

#[derive(Debug)]
pub(crate) struct BootLimit {
    now: usize,
    fixed: bool,
    /// The link was never overloaded.
    probing: bool,
    /// Files sent well since the limit last changed.
    good_files: usize,
    /// The best measured rate, in bytes per second.
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

    /// A file was sent completely and in time; `waited` is true if boots were queued.
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

    /// A boot that started at `since` got too little bandwidth while `booting` boots were
    /// active.
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
