//! Whether to look again at once, or to sleep until something comes.
//!
//! To sleep and be woken costs some microseconds, more on a virtual machine, and a transfer
//! of one block at a time pays that for each block. Where the next datagram comes sooner,
//! looking for it costs no more than sleeping would, and saves that time; where it does
//! not, looking is a waste. So it is tried now and then, and kept up while it pays.

/// Longest time that is spent looking. Ours: about what sleeping costs.
pub(super) const LOOK_US_MAX: u64 = 20;

/// How many times we sleep before we try again whether looking pays.
const SLEEPS_MAX: u8 = 64;

/// How much of past luck counts. A miss takes away more than a hit brings, so that looking
/// must pay nearly always.
const LUCK_MAX: u8 = 16;
const LUCK_OF_MISS: u8 = 4;

/// How well it went lately.
#[derive(Debug, Default)]
pub(super) struct Pace {
    luck: u8,
    sleeps: u8,
}

impl Pace {
    /// Whether to look for a while before sleeping.
    pub(super) fn looks(&mut self) -> bool {
        if self.luck > 0 || self.sleeps >= SLEEPS_MAX {
            self.sleeps = 0;
            return true;
        }
        self.sleeps += 1;
        false
    }

    /// Something came while we looked, or nothing did.
    pub(super) fn looked(&mut self, found: bool) {
        self.luck = if found {
            (self.luck + 1).min(LUCK_MAX)
        } else {
            self.luck.saturating_sub(LUCK_OF_MISS)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits `count` times, with so many hits in a hundred, scattered, and tells how many in
    /// a hundred were looks.
    fn share(count: u32, hits: u32) -> u32 {
        let mut pace = Pace::default();
        let mut looks = 0;
        for wait in 0..count {
            if pace.looks() {
                looks += 1;
                pace.looked(wait * 37 % 100 < hits);
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
    fn bad_luck_ends_it_soon() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            pace.looked(true);
        }
        let mut misses = 0;
        while pace.looks() {
            pace.looked(false);
            misses += 1;
        }
        assert_eq!(misses, 4);
    }
}
