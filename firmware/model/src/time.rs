//! Time as an argument, in two kinds that are never mixed.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Monotonic milliseconds since the shell started. Timers use it; it never steps and has no
/// meaning after a restart, so it is never stored.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Tick(pub u64);

impl Tick {
    /// The moment `ms` milliseconds later.
    #[must_use]
    pub fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to here; zero if `earlier` is later.
    pub fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Milliseconds since 1970 by the box's wall clock, which may step at any time: for display
/// only, never for decisions.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

impl fmt::Display for UnixMs {
    /// The form Ironic uses: `2026-11-16T02:36:50.746000+00:00`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms_of_day) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil_from_days(days);
        let (second, ms) = (ms_of_day / 1000, ms_of_day % 1000);
        write!(
            out,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}000+00:00",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

/// Days since 1970-01-01 to the Gregorian date. The calendar repeats every 400
/// years (146,097 days); years are counted from March so that the leap day is last.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The present time, in both kinds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Now {
    /// For timers.
    pub tick: Tick,
    /// For people.
    pub wall: UnixMs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_wall_time_as_ironic_does() {
        for (ms, want) in [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (951_782_400_000, "2000-02-29T00:00:00.000000+00:00"),
            (1_794_796_610_746, "2026-11-16T02:36:50.746000+00:00"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999000+00:00"),
        ] {
            assert_eq!(UnixMs(ms).to_string(), want);
        }
    }

    #[test]
    fn ticks_do_not_wrap() {
        assert_eq!(Tick(5).since_ms(Tick(9)), 0);
        assert_eq!(Tick(u64::MAX).after_ms(1), Tick(u64::MAX));
    }
}
