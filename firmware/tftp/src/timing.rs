//! When to send again: bounds, and the measured time of a round trip.
//!
//! The estimate is that of RFC 6298, without samples from anything that was
//! sent twice (Karn's rule). A client that asked for a timeout (RFC 2349) gets
//! exactly that one instead.

/// What one side agrees to. All of it is ours to choose; the defaults suit one
/// Ethernet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest block we agree to. 1468 fills an Ethernet frame.
    pub block_bytes_max: u16,
    /// Largest window we agree to, in blocks.
    pub window_blocks_max: u16,
    /// How often the same thing is sent before we give up.
    pub tries_max: u32,
    /// Shortest wait before sending again.
    pub retry_ms_min: u64,
    /// Longest wait before sending again.
    pub retry_ms_max: u64,
    /// First wait, before anything was measured.
    pub retry_ms_first: u64,
    /// Largest file a receiver takes.
    pub file_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            block_bytes_max: 1468,
            window_blocks_max: 16,
            tries_max: 6,
            retry_ms_min: 100,
            retry_ms_max: 8000,
            retry_ms_first: 1000,
            file_bytes_max: 1 << 32,
        }
    }
}

/// The retransmission clock of one transfer.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    limits: Limits,
    asked_ms: Option<u64>,
    smoothed_ms: Option<u64>,
    variation_ms: u64,
    tries: u32,
    armed_at: u64,
}

impl Timing {
    pub(crate) fn new(limits: Limits, asked_s: Option<u8>, now_ms: u64) -> Self {
        Self {
            limits,
            asked_ms: asked_s.map(|seconds| u64::from(seconds) * 1000),
            smoothed_ms: None,
            variation_ms: 0,
            tries: 1,
            armed_at: now_ms,
        }
    }

    /// The peer asked for, or agreed to, this timeout.
    pub(crate) fn set_asked(&mut self, asked_s: Option<u8>) {
        self.asked_ms = asked_s.map(|seconds| u64::from(seconds) * 1000);
    }

    /// Something new was heard: `measured` unless it may answer a repetition.
    pub(crate) fn progress(&mut self, now_ms: u64, measured: bool) {
        if measured {
            self.sample(now_ms.saturating_sub(self.armed_at));
        }
        self.tries = 1;
        self.armed_at = now_ms;
    }

    /// The wait is over. False when no further try is left.
    pub(crate) fn again(&mut self, now_ms: u64) -> bool {
        self.armed_at = now_ms;
        self.tries += 1;
        self.tries <= self.limits.tries_max
    }

    /// Was everything outstanding sent only once?
    pub(crate) fn is_first_try(&self) -> bool {
        self.tries == 1
    }

    /// When to send again.
    pub(crate) fn deadline(&self) -> u64 {
        self.armed_at.saturating_add(self.wait_ms())
    }

    fn wait_ms(&self) -> u64 {
        if let Some(asked) = self.asked_ms {
            return asked;
        }
        let base = match self.smoothed_ms {
            Some(smoothed) => smoothed.saturating_add(self.variation_ms.saturating_mul(4)),
            None => self.limits.retry_ms_first,
        };
        // Thirty-two doublings pass any bound and cannot overflow the shift.
        let doublings = (self.tries - 1).min(32);
        base.max(self.limits.retry_ms_min)
            .saturating_mul(1 << doublings)
            .min(self.limits.retry_ms_max.max(self.limits.retry_ms_min))
    }

    fn sample(&mut self, round_ms: u64) {
        match self.smoothed_ms {
            None => {
                self.smoothed_ms = Some(round_ms);
                self.variation_ms = round_ms / 2;
            }
            Some(smoothed) => {
                let error = smoothed.abs_diff(round_ms);
                self.variation_ms = self.variation_ms - self.variation_ms / 4 + error / 4;
                self.smoothed_ms = Some(smoothed - smoothed / 8 + round_ms / 8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing() -> Timing {
        Timing::new(Limits::default(), None, 0)
    }

    #[test]
    fn the_first_wait_is_the_default_and_then_doubles_up_to_the_bound() {
        let mut timing = timing();
        let mut now = 0;
        for wait in [1000, 2000, 4000, 8000, 8000, 8000] {
            assert_eq!(timing.deadline(), now + wait);
            now = timing.deadline();
            timing.again(now);
        }
    }

    #[test]
    fn gives_up_after_the_last_try() {
        let mut timing = timing();
        let tries = (0..10).take_while(|_| timing.again(0)).count();
        assert_eq!(tries, 5, "six tries are five repetitions");
    }

    #[test]
    fn a_measured_round_trip_shortens_the_wait_down_to_the_bound() {
        let mut timing = timing();
        timing.progress(200, true);
        assert_eq!(timing.deadline(), 200 + 200 + 4 * 100);
        for step in 0..50 {
            timing.progress(200 + step, true);
        }
        assert_eq!(timing.deadline(), 249 + 100);
    }

    #[test]
    fn a_repetition_is_not_measured() {
        let mut timing = timing();
        timing.again(500);
        timing.progress(501, timing.is_first_try());
        assert_eq!(timing.deadline(), 501 + 1000);
    }

    #[test]
    fn the_clients_own_timeout_is_kept_to_the_letter() {
        let mut timing = Timing::new(Limits::default(), Some(3), 10);
        timing.progress(20, true);
        assert_eq!(timing.deadline(), 3020);
        timing.again(3020);
        assert_eq!(timing.deadline(), 6020);
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        let mut timing = Timing::new(Limits::default(), None, u64::MAX);
        for _ in 0..100 {
            timing.again(u64::MAX);
        }
        assert_eq!(timing.deadline(), u64::MAX);
    }
}
