//! Decides whether to poll busily, or to sleep until a datagram arrives.
//!
//! Sleeping and waking costs some microseconds, more on a virtual machine, and a
//! transfer of one block at a time pays that for each block. If the next datagram
//! arrives sooner, busy polling costs no more than sleeping and saves that time;
//! otherwise it wastes processor time. So it is tried now and then, and continued while
//! it succeeds.

/// Longest time of one busy poll. Ours: about the cost of sleeping.
pub(super) const BUSY_POLL_US_MAX: u64 = 20;

/// How often we sleep before busy polling is tried again.
const SLEEPS_MAX: u8 = 64;

/// Upper bound of the success score. A miss subtracts more than a hit adds, so that
/// busy polling continues only while it succeeds nearly always.
const SCORE_MAX: u8 = 16;
const MISS_PENALTY: u8 = 4;

/// The recent success of busy polling.
#[derive(Debug, Default)]
pub(super) struct BusyPollPolicy {
    score: u8,
    sleeps: u8,
}

impl BusyPollPolicy {
    /// Whether to poll busily before sleeping.
    pub(super) fn should_poll(&mut self) -> bool {
        if self.score > 0 || self.sleeps >= SLEEPS_MAX {
            self.sleeps = 0;
            return true;
        }
        self.sleeps += 1;
        false
    }

    /// Records whether a datagram arrived during a busy poll.
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

    /// Waits `count` times with this percentage of hits, scattered; returns the
    /// percentage of busy polls.
    fn share(count: u32, hits: u32) -> u32 {
        let mut policy = BusyPollPolicy::default();
        let mut looks = 0;
        for wait in 0..count {
            if policy.should_poll() {
                looks += 1;
                policy.record_poll(wait * 37 % 100 < hits);
            }
        }
        looks * 100 / count
    }

    #[test]
    fn busy_polling_continues_while_it_succeeds() {
        assert!(share(10_000, 100) >= 99);
        assert!(share(10_000, 95) >= 80);
    }

    #[test]
    fn busy_polling_without_success_is_tried_rarely() {
        assert!(share(10_000, 0) <= 2);
        assert!(share(10_000, 20) <= 30);
    }

    #[test]
    fn misses_end_busy_polling_soon() {
        let mut policy = BusyPollPolicy::default();
        for _ in 0..100 {
            policy.record_poll(true);
        }
        let mut misses = 0;
        while policy.should_poll() {
            policy.record_poll(false);
            misses += 1;
        }
        assert_eq!(misses, 4);
    }
}
