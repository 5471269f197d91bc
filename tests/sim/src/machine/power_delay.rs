//! Machines that take their time to switch on or off.
//!
//! Real ones need from a second to two minutes. A request that comes again meanwhile changes
//! nothing; another one takes its place.

use trivet_model::{PowerOrder, SeededRandom, Tick};

/// How long the slower half of all machines takes.
const SLOW_MS: core::ops::Range<u64> = 5_000..120_000;

/// How long a machine takes to follow its BMC, and what it is following.
#[derive(Debug)]
pub(super) struct MachinePowerDelay {
    delay_ms: u64,
    pending: Option<(Tick, PowerOrder)>,
    /// Requests for the change under way.
    requests: u32,
}

impl MachinePowerDelay {
    /// By seed: half of the machines switch at once, the others after a time of their own.
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

    /// Takes a request. True where the machine does at once what it is told.
    pub(super) fn accept(&mut self, now: Tick, order: PowerOrder) -> bool {
        // A reset needs no power supply to come or go.
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

    /// How often the change under way was requested.
    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.pending.map(|(at, _)| at)
    }

    /// What the machine does now.
    pub(super) fn take_due(&mut self, now: Tick) -> Option<PowerOrder> {
        let (_, order) = self.pending.take_if(|(at, _)| *at <= now)?;
        Some(order)
    }
}
