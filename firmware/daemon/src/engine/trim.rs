//! When freed memory is given back to the system.
//!
//! The allocator keeps what was freed as long as something in use lies behind it, so a burst
//! of requests would leave the process large for good. To give it back takes milliseconds:
//! that is done while little comes, and only after a burst.

use trivet_model::Tick;

/// After so many inputs there may be something to give back.
const INPUTS_MIN: usize = 1000;

/// The least time between two times.
const GAP_MS: u64 = 10_000;

/// A batch of so many inputs is a rest: a single tick, or less.
const IDLE_INPUTS_MAX: usize = 1;

/// Counts what came since memory was given back last.
#[derive(Debug)]
pub(super) struct MemoryTrim {
    inputs: usize,
    last: Option<Tick>,
}

impl MemoryTrim {
    /// A start leaves as much behind as a burst.
    pub(super) fn new() -> Self {
        Self {
            inputs: INPUTS_MIN,
            last: None,
        }
    }

    /// Counts a batch of so many inputs; true if memory is to be given back after it.
    pub(super) fn due(&mut self, now: Tick, inputs: usize) -> bool {
        self.inputs = self.inputs.saturating_add(inputs);
        let rest = inputs <= IDLE_INPUTS_MAX;
        let waited = self.last.is_none_or(|last| now.since_ms(last) >= GAP_MS);
        let due = rest && waited && self.inputs >= INPUTS_MIN;
        if due {
            self.inputs = 0;
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_the_start_and_once_after_each_burst() {
        let mut trim = MemoryTrim::new();
        assert!(trim.due(Tick(1), 0));
        assert!(!trim.due(Tick(60_000), 1));
        for at in 0..10 {
            assert!(!trim.due(Tick(60_000 + at), 256), "others wait");
        }
        assert!(trim.due(Tick(61_000), 1));
        assert!(!trim.due(Tick(120_000), 0), "nothing came since");
    }

    #[test]
    fn bursts_one_after_the_other_give_memory_back_once_in_a_while() {
        let mut trim = MemoryTrim::new();
        assert!(trim.due(Tick(0), 0));
        let mut times = 0;
        for second in 1..=60 {
            trim.due(Tick(second * 1000), 2000);
            times += usize::from(trim.due(Tick(second * 1000 + 500), 1));
        }
        assert_eq!(times, 6);
    }
}
