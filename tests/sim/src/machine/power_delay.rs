//! Machines with a delay when they switch on or off.
//!
//! Real ones need from a second to two minutes. A repeated request meanwhile changes nothing;
//! another one replaces it.

use trivet_model::{PowerOrder, SeededRandom, Tick};

/// Delay of the slower half of the machines.
const SLOW_MS: core::ops::Range<u64> = 5_000..120_000;

/// How long a machine takes to follow its BMC, and the pending change.
#[derive(Debug)]
pub(super) struct MachinePowerDelay {
    delay_ms: u64,
    pending: Option<(Tick, PowerOrder)>,
    /// Requests for the pending change.
    requests: u32,
}

impl MachinePowerDelay {
    /// By seed: half of the machines switch at once, the others after a delay of their own.
    pub(super) fn for_seed(seed: u64) -> Self {
        let mut chance = SeededRandom::new(seed ^ 0x510);
        let takes_ms = if chance.chance(500) {
            SLOW_MS.start + chance.below(SLOW_MS.end - SLOW_MS.start)
        } else {
            0
        };
        Self {
            delay_ms: takes_ms,
            ..Self::none()
        }
    }

    /// Switches at once.
    pub(super) fn none() -> Self {
        Self {
            delay_ms: 0,
            pending: None,
            requests: 0,
        }
    }

    /// Accepts a request. True if the machine executes it at once.
    pub(super) fn accept(&mut self, now: Tick, order: PowerOrder) -> bool {
        // A reset does not switch the power supply.
        if order == PowerOrder::Reset {
            (self.pending, self.requests) = (None, 1);
            return true;
        }
        match self.pending {
            Some((_, other)) if other == order => self.requests += 1,
            _ => {
                self.requests = 1;
                let at = now.after_ms(self.delay_ms);
                self.pending = (self.delay_ms > 0).then_some((at, order));
            }
        }
        self.pending.is_none()
    }

    /// How many times the pending change was requested.
    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.pending.map(|(at, _)| at)
    }

    /// The change that is due now.
    pub(super) fn take_due(&mut self, now: Tick) -> Option<PowerOrder> {
        let (_, order) = self.pending.take_if(|(at, _)| *at <= now)?;
        Some(order)
    }
}
