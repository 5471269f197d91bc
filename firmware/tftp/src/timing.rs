//! When to send again: bounds, and the measured time of a round trip.
//!
//! The estimate is that of RFC 6298, without samples from anything that was
//! sent twice, and a wait once doubled stays so until there is a sample again
//! (Karn's rule). A client that requested a timeout (RFC 2349) never waits
//! longer than that for a repetition; it waits less where the round trip allows
//! it, because clients request whole seconds by default (curl for six) and
//! would pay that for every lost packet.

/// What one side agrees to. All of it is ours to choose; the defaults suit one
/// Ethernet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransferLimits {
    /// Largest block we agree to. 1468 fills an Ethernet frame; a caller that knows
    /// the path's MTU gives what fits it, or more, if fragments are welcome.
    pub block_bytes_max: u16,
    /// Largest window we agree to, in blocks.
    pub window_blocks_max: u16,
    /// How often the same thing is sent at least before we give up.
    pub tries_max: u32,
    /// How long a peer may be silent at least before we give up. A switch whose
    /// port comes up again, or a guest that was stopped, is silent for seconds.
    pub silence_us_max: u64,
    /// Shortest wait before sending again.
    pub retry_us_min: u64,
    /// Longest wait before sending again.
    pub retry_us_max: u64,
    /// First wait, before anything was measured.
    pub retry_us_first: u64,
    /// Largest file a receiver takes.
    pub file_bytes_max: u64,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            block_bytes_max: 1468,
            window_blocks_max: 64,
            tries_max: 6,
            silence_us_max: 20_000_000,
            retry_us_min: 10_000,
            retry_us_max: 8_000_000,
            retry_us_first: 250_000,
            file_bytes_max: 1 << 32,
        }
    }
}

/// The retransmission clock of one transfer. Times are in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct RetransmitTimer {
    limits: TransferLimits,
    requested_us: Option<u64>,
    smoothed_us: Option<u64>,
    variation_us: u64,
    /// How often the present thing was sent.
    tries: u32,
    /// How often the wait was doubled since the last sample.
    doublings: u32,
    armed_at: u64,
    last_packet_at: u64,
}

impl RetransmitTimer {
    pub(crate) fn new(limits: TransferLimits, requested_s: Option<u8>, now_us: u64) -> Self {
        let mut timing = Self {
            limits,
            requested_us: None,
            smoothed_us: None,
            variation_us: 0,
            tries: 1,
            doublings: 0,
            armed_at: now_us,
            last_packet_at: now_us,
        };
        timing.set_requested(requested_s);
        timing
    }

    /// The peer requested or accepted this timeout.
    pub(crate) fn set_requested(&mut self, requested_s: Option<u8>) {
        self.requested_us = requested_s.map(|seconds| u64::from(seconds) * 1_000_000);
    }

    /// Something new was received: `measured` unless it may answer a repetition.
    pub(crate) fn progress(&mut self, now_us: u64, measured: bool) {
        if measured {
            self.sample(now_us.saturating_sub(self.armed_at));
            self.doublings = 0;
        } else {
            self.relax(now_us.saturating_sub(self.last_packet_at));
        }
        self.tries = 1;
        self.armed_at = now_us;
        self.last_packet_at = now_us;
    }

    /// Whatever the answer was to, the round trip is no longer than the time since
    /// the first try: a wait that is well beyond that has been doubled too often.
    fn relax(&mut self, since_first_us: u64) {
        let enough = since_first_us.saturating_mul(3) / 2;
        while self.doublings > 0 && self.doubled_us(self.doublings - 1) >= enough {
            self.doublings -= 1;
        }
    }

    /// Something new was received by a side that measures nothing.
    pub(crate) fn restart(&mut self, now_us: u64) {
        self.progress(now_us, false);
        self.doublings = 0;
    }

    /// The wait is over. False when no further try is left.
    pub(crate) fn retry(&mut self, now_us: u64) -> bool {
        self.armed_at = now_us;
        self.tries = self.tries.saturating_add(1);
        self.doublings = self.doublings.saturating_add(1);
        let silent_us = now_us.saturating_sub(self.last_packet_at);
        // A client that requested a long timeout may be silent as long.
        let timeout_us = self.requested_us.unwrap_or(0).saturating_mul(2);
        self.tries <= self.limits.tries_max
            || silent_us < self.limits.silence_us_max.max(timeout_us)
    }

    /// Whether it was sent so recently that no reply can be expected yet.
    pub(crate) fn is_soon(&self, now_us: u64) -> bool {
        now_us < self.armed_at.saturating_add(self.limits.retry_us_first)
    }

    /// When to send again.
    pub(crate) fn deadline(&self) -> u64 {
        self.armed_at.saturating_add(self.wait_us())
    }

    fn wait_us(&self) -> u64 {
        let most = self.requested_us.unwrap_or(self.limits.retry_us_max);
        self.doubled_us(self.doublings)
            .min(most.max(self.limits.retry_us_min))
    }

    fn doubled_us(&self, doublings: u32) -> u64 {
        let base = match self.smoothed_us {
            Some(smoothed) => smoothed.saturating_add(self.variation_us.saturating_mul(4)),
            None => self.limits.retry_us_first,
        };
        // Thirty-two doublings pass any bound and cannot overflow the shift.
        base.max(self.limits.retry_us_min)
            .saturating_mul(1 << doublings.min(32))
    }

    fn sample(&mut self, round_us: u64) {
        match self.smoothed_us {
            None => {
                self.smoothed_us = Some(round_us);
                self.variation_us = round_us / 2;
            }
            Some(smoothed) => {
                let error = smoothed.abs_diff(round_us);
                self.variation_us = self.variation_us - self.variation_us / 4 + error / 4;
                self.smoothed_us = Some(smoothed - smoothed / 8 + round_us / 8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing() -> RetransmitTimer {
        RetransmitTimer::new(TransferLimits::default(), None, 0)
    }

    #[test]
    fn the_first_wait_is_the_default_and_then_doubles_up_to_the_bound() {
        let mut timing = timing();
        let mut now = 0;
        for wait_ms in [250, 500, 1000, 2000, 4000, 8000, 8000, 8000] {
            assert_eq!(timing.deadline(), now + wait_ms * 1000);
            now = timing.deadline();
            timing.retry(now);
        }
    }

    #[test]
    fn gives_up_after_the_last_try_and_a_long_silence() {
        let mut timing = timing();
        let mut tries = 0;
        while timing.retry(timing.deadline()) {
            tries += 1;
        }
        assert_eq!(tries, 6);
        assert!(timing.armed_at >= TransferLimits::default().silence_us_max);

        // Where the round trip is short, many tries fit into that silence.
        timing.progress(timing.armed_at, true);
        let began = timing.armed_at;
        timing.smoothed_us = Some(100);
        timing.variation_us = 0;
        while timing.retry(timing.deadline()) {
            tries += 1;
        }
        assert!(timing.armed_at - began >= TransferLimits::default().silence_us_max);
        assert!(tries < 20, "{tries} tries");
    }

    #[test]
    fn a_measured_round_trip_shortens_the_wait_down_to_the_bound() {
        let mut timing = timing();
        timing.progress(20_000, true);
        assert_eq!(timing.deadline(), 20_000 + 20_000 + 4 * 10_000);
        for step in 0..50 {
            timing.progress(20_000 + step, true);
        }
        assert_eq!(timing.deadline(), 20_049 + 10_000);
    }

    #[test]
    fn a_repetition_is_not_measured() {
        let mut timing = timing();
        timing.retry(500);
        timing.progress(501, timing.tries == 1);
        assert_eq!(timing.smoothed_us, None);
    }

    /// A guest that is emulated may become a hundred times slower at once. Each
    /// answer then comes after a repetition and says nothing about the round trip.
    #[test]
    fn a_wait_once_doubled_stays_until_there_is_a_sample() {
        let mut timing = timing();
        let mut now = 0;
        for _ in 0..30 {
            now += 100;
            timing.progress(now, true);
        }
        let (round, mut repeated) = (100_000, 0);
        for _ in 0..20 {
            let sent_at = now;
            while timing.deadline() < sent_at + round {
                assert!(timing.retry(timing.deadline()));
                repeated += 1;
            }
            now = sent_at + round;
            timing.progress(now, timing.tries == 1);
        }
        assert!(repeated <= 5, "{repeated} repetitions for 20 slow answers");
    }

    /// On a wire that loses much, answers to repetitions must not add up to waits
    /// of seconds.
    #[test]
    fn an_answer_that_comes_soon_ends_the_doubling() {
        let mut timing = timing();
        timing.progress(200, true);
        let mut now = 200;
        for _ in 0..6 {
            now = timing.deadline();
            timing.retry(now);
            timing.retry(timing.deadline());
            now = timing.deadline();
            timing.progress(now, false);
            timing.progress(now + 200, false);
            now += 200;
        }
        assert_eq!(timing.deadline(), now + 10_000);
    }

    #[test]
    fn the_clients_own_timeout_is_the_longest_wait() {
        let mut timing = RetransmitTimer::new(TransferLimits::default(), Some(1), 0);
        let mut now = 0;
        for wait_ms in [250, 500, 1000, 1000, 1000] {
            assert_eq!(timing.deadline(), now + wait_ms * 1000);
            now = timing.deadline();
            timing.retry(now);
        }
        let mut timer = RetransmitTimer::new(TransferLimits::default(), Some(255), 0);
        for _ in 0..10 {
            timer.retry(0);
        }
        assert_eq!(timer.deadline(), 255_000_000, "longer than our own longest");
    }

    #[test]
    fn what_was_just_sent_is_not_missed_until_the_first_wait_is_over() {
        let mut timing = timing();
        assert!(timing.is_soon(249_999));
        assert!(!timing.is_soon(250_000));
        timing.retry(250_000);
        assert!(timing.is_soon(499_999), "it was sent again");
        assert!(!timing.is_soon(500_000), "although the next wait is longer");
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        let mut timing = RetransmitTimer::new(TransferLimits::default(), None, u64::MAX);
        for _ in 0..100 {
            timing.retry(u64::MAX);
        }
        assert_eq!(timing.deadline(), u64::MAX);
    }
}
