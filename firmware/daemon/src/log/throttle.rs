//! Limits log lines that any machine on a network can cause, by sending frames or
//! requests.
//!
//! A rack that boots at once logs everything; a flood uses up the allowance, and from
//! then on the log grows no faster than the allowance is restored. Dropped lines are
//! counted, and the count is logged.

use tracing::info;
use trivet_model::Tick;

/// Lines at once: a rack of a hundred machines, each with several exchanges. Ours.
const LINES_MAX: u64 = 1000;

/// One more line is allowed after this time.
const LINE_MS: u64 = 100;

/// Logs that lines were dropped.
pub(crate) fn log_dropped(count: u64) {
    info!(
        count,
        "{count} lines about requests of machines were dropped here"
    );
}

/// How many lines are allowed now.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    allowance: u64,
    refilled_at: Tick,
    dropped: u64,
}

impl LogThrottle {
    pub(crate) fn new(now: Tick) -> Self {
        Self {
            allowance: LINES_MAX,
            refilled_at: now,
            dropped: 0,
        }
    }

    /// Whether a line may be logged now; one that may not is counted.
    pub(crate) fn allows(&mut self, now: Tick) -> bool {
        self.refill(now);
        if self.allowance == 0 {
            self.dropped += 1;
            return false;
        }
        self.allowance -= 1;
        true
    }

    /// How many lines were dropped, once the allowance permits a line about them.
    pub(crate) fn take_dropped(&mut self, now: Tick) -> Option<u64> {
        self.refill(now);
        if self.dropped == 0 || self.allowance == 0 {
            return None;
        }
        self.allowance -= 1;
        Some(core::mem::take(&mut self.dropped))
    }

    fn refill(&mut self, now: Tick) {
        let more = now.since_ms(self.refilled_at) / LINE_MS;
        if more > 0 {
            self.allowance = self.allowance.saturating_add(more).min(LINES_MAX);
            self.refilled_at = self.refilled_at.after_ms(more.saturating_mul(LINE_MS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed_lines(throttle: &mut LogThrottle, now: u64, lines: u64) -> u64 {
        (0..lines).filter(|_| throttle.allows(Tick(now))).count() as u64
    }

    #[test]
    fn a_rack_that_boots_at_once_logs_everything() {
        let mut throttle = LogThrottle::new(Tick(5));
        assert_eq!(allowed_lines(&mut throttle, 5, LINES_MAX), LINES_MAX);
        assert_eq!(throttle.take_dropped(Tick(5)), None);
    }

    #[test]
    fn a_flood_logs_no_more_than_the_allowance_and_its_count() {
        let mut throttle = LogThrottle::new(Tick(0));
        let mut all = 0;
        for now in 0..10_000 {
            all += allowed_lines(&mut throttle, now, 10);
        }
        assert_eq!(all, LINES_MAX + 9999 / LINE_MS);
        assert_eq!(
            throttle.take_dropped(Tick(9999)),
            None,
            "no allowance for the line"
        );
        assert_eq!(throttle.take_dropped(Tick(10_100)), Some(100_000 - all));
        assert_eq!(throttle.take_dropped(Tick(20_000)), None, "reported once");
    }

    #[test]
    fn dropped_lines_are_reported_in_one_line() {
        let mut throttle = LogThrottle::new(Tick(0));
        allowed_lines(&mut throttle, 0, LINES_MAX + 7);
        let dropped = throttle.take_dropped(Tick(LINE_MS));
        let lines = crate::log::captured(|| log_dropped(dropped.unwrap()));
        let want = "trivet: 7 lines about requests of machines were dropped here";
        assert_eq!(lines, [want]);
    }

    #[test]
    fn the_allowance_is_restored_up_to_its_bound() {
        let mut throttle = LogThrottle::new(Tick(0));
        allowed_lines(&mut throttle, 0, 2 * LINES_MAX);
        assert_eq!(allowed_lines(&mut throttle, 10 * LINE_MS + 50, 100), 10);
        assert_eq!(
            allowed_lines(&mut throttle, 11 * LINE_MS, 100),
            1,
            "halves add up"
        );
        assert_eq!(
            allowed_lines(&mut throttle, u64::MAX, 2 * LINES_MAX),
            LINES_MAX
        );
        assert_eq!(
            allowed_lines(&mut throttle, 0, 1),
            0,
            "a clock that goes back"
        );
    }
}
