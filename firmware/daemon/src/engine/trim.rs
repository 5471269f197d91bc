//! Decides when freed memory is returned to the system.
//!
//! The allocator keeps freed memory as long as memory in use lies behind it, so a burst
//! of requests would leave the process large permanently. Returning it takes
//! milliseconds, so it is done while few inputs arrive, and only after a burst.

use trivet_model::Tick;

/// Number of inputs after which there may be memory to return. The value is ours.
const INPUTS_MIN: usize = 1000;

/// The shortest time between two trims.
const GAP_MS: u64 = 10_000;

/// A batch with at most this many inputs counts as idle: a single tick, or less.
const IDLE_INPUTS_MAX: usize = 1;

/// Counts the inputs since the last trim.
#[derive(Debug)]
pub(super) struct MemoryTrim {
    inputs: usize,
    last: Option<Tick>,
}

impl MemoryTrim {
    /// A start frees as much memory as a burst does.
    pub(super) fn new() -> Self {
        Self {
            inputs: INPUTS_MIN,
            last: None,
        }
    }

    /// Counts a batch of this many inputs; true if memory is to be returned after it.
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
