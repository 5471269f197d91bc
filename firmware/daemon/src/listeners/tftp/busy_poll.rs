//! Whether to look again at once, or to sleep until something comes.
//!
//! To sleep and be woken costs some microseconds, more on a virtual machine, and a transfer
//! of one block at a time pays that for each block. Where the next datagram comes sooner,
//! looking for it costs no more than sleeping would, and saves that time; where it does
//! not, looking is a waste. So it is tried now and then, and kept up while it pays.

/// Longest time that is spent looking. Ours: about what sleeping costs.
pub(super) const BUSY_POLL_US_MAX: u64 = 20;

/// How many times we sleep before we try again whether looking pays.
const SLEEPS_MAX: u8 = 64;

/// How much of past luck counts. A miss takes away more than a hit brings, so that looking
/// must pay nearly always.
const SCORE_MAX: u8 = 16;
const MISS_PENALTY: u8 = 4;

/// How well it went lately.
#[derive(Debug, Default)]
pub(super) struct BusyPollPolicy {
    score: u8,
    sleeps: u8,
}

impl BusyPollPolicy {
    /// Whether to look for a while before sleeping.
    pub(super) fn should_poll(&mut self) -> bool {
        if self.score > 0 || self.sleeps >= SLEEPS_MAX {
            self.sleeps = 0;
            return true;
        }
        self.sleeps += 1;
        false
    }

    /// Something came while we looked, or nothing did.
    pub(super) fn record_poll(&mut self, found: bool) {
        self.score = if found {
            (self.score + 1).min(SCORE_MAX)
        } else {
            self.score.saturating_sub(MISS_PENALTY)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits `count` times, with so many hits in a hundred, scattered, and tells how many in
    /// a hundred were looks.
    fn share(count: u32, hits: u32) -> u32 {
        let mut pace = BusyPollPolicy::default();
        let mut looks = 0;
        for wait in 0..count {
            if pace.should_poll() {
                looks += 1;
                pace.record_poll(wait * 37 % 100 < hits);
            }
        }
        looks * 100 / count
    }

    #[test]
    fn looking_goes_on_while_it_pays() {
        assert!(share(10_000, 100) >= 99);
        assert!(share(10_000, 95) >= 80);
    }

    #[test]
    fn what_does_not_pay_is_only_tried_now_and_then() {
        assert!(share(10_000, 0) <= 2);
        assert!(share(10_000, 20) <= 30);
    }

    #[test]
    fn misses_end_it_soon() {
        let mut pace = BusyPollPolicy::default();
        for _ in 0..100 {
            pace.record_poll(true);
        }
        let mut misses = 0;
        while pace.should_poll() {
            pace.record_poll(false);
            misses += 1;
        }
        assert_eq!(misses, 4);
    }
}
