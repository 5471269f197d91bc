//! Limits the rate of fills, so that a slow uplink has capacity for other traffic.

/// A token bucket for all fills together, with a burst of one second.
#[derive(Clone, Debug)]
pub struct ImageRateLimiter {
    bytes_per_s: u64,
    /// Available credit, in thousandths of a byte.
    credit: u64,
    at_ms: u64,
}

impl ImageRateLimiter {
    /// A limit in bytes per second, starting at `now_ms`.
    pub fn new(bytes_per_s: u64, now_ms: u64) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            credit: 0,
            at_ms: now_ms,
        }
    }

    /// Takes `bytes` from the credit; returns how long to wait, in milliseconds, before the
    /// next read.
    pub fn consume(&mut self, bytes: u64, now_ms: u64) -> u64 {
        let most = self.bytes_per_s.saturating_mul(1000);
        let elapsed = now_ms.saturating_sub(self.at_ms);
        let earned = elapsed.saturating_mul(self.bytes_per_s);
        self.at_ms = self.at_ms.max(now_ms);
        self.credit = self.credit.saturating_add(earned).min(most);
        let cost = bytes.saturating_mul(1000);
        if cost <= self.credit {
            self.credit -= cost;
            return 0;
        }
        let wait_ms = (cost - self.credit).div_ceil(self.bytes_per_s);
        // The debt is paid by waiting, so the clock of the bucket runs ahead.
        self.credit = 0;
        self.at_ms += wait_ms;
        self.at_ms - now_ms
    }
}

/// A time window of the day, in minutes since midnight, end exclusive. A window that ends
/// before it starts passes midnight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImageFillWindow {
    /// When it starts.
    pub from_minute: u16,
    /// When it ends.
    pub to_minute: u16,
}

/// Milliseconds of a minute and minutes of a day.
const MINUTE_MS: u64 = 60_000;
const DAY_MINUTES: u64 = 24 * 60;

impl ImageFillWindow {
    /// Milliseconds until it starts, from the milliseconds since midnight; 0 within the window.
    pub fn opens_in_ms(&self, wall_ms: u64) -> u64 {
        let minute = wall_ms / MINUTE_MS % DAY_MINUTES;
        let (from, to) = (u64::from(self.from_minute), u64::from(self.to_minute));
        let open = if from <= to {
            (from..to).contains(&minute)
        } else {
            minute >= from || minute < to
        };
        if open || from == to {
            return 0;
        }
        let minutes = (from + DAY_MINUTES - minute) % DAY_MINUTES;
        minutes * MINUTE_MS - wall_ms % MINUTE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cost_time() {
        let mut limiter = ImageRateLimiter::new(1000, 0);
        assert_eq!(limiter.consume(500, 0), 500);
        assert_eq!(limiter.consume(500, 500), 500, "half a second is available");
        assert_eq!(limiter.consume(500, 2000), 0, "a burst of one second");
        assert_eq!(limiter.consume(500, 2000), 0);
        assert_eq!(limiter.consume(1, 2000), 1);
    }

    #[test]
    fn the_burst_is_one_second() {
        let mut limiter = ImageRateLimiter::new(1000, 0);
        assert_eq!(limiter.consume(1000, 3_600_000), 0);
        assert_eq!(limiter.consume(1000, 3_600_000), 1000);
    }

    #[test]
    fn many_fills_share_one_limit() {
        let mut limiter = ImageRateLimiter::new(1000, 0);
        let waits: Vec<u64> = (0..3).map(|_| limiter.consume(1000, 0)).collect();
        assert_eq!(waits, [1000, 2000, 3000]);
    }

    #[test]
    fn a_window_reports_when_it_starts() {
        let hour = 60 * MINUTE_MS;
        let night = ImageFillWindow {
            from_minute: 22 * 60,
            to_minute: 6 * 60,
        };
        assert_eq!(night.opens_in_ms(23 * hour), 0);
        assert_eq!(night.opens_in_ms(5 * hour), 0);
        assert_eq!(night.opens_in_ms(6 * hour), 16 * hour);
        assert_eq!(night.opens_in_ms(22 * hour - 1), 1);
        let noon = ImageFillWindow {
            from_minute: 12 * 60,
            to_minute: 13 * 60,
        };
        assert_eq!(noon.opens_in_ms(12 * hour), 0);
        assert_eq!(noon.opens_in_ms(13 * hour), 23 * hour);
        let always = ImageFillWindow {
            from_minute: 0,
            to_minute: 0,
        };
        assert_eq!(always.opens_in_ms(hour), 0);
    }
}
