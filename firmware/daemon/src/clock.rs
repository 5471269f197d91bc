//! The clocks and the random number source of the box. The only file that reads them.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use trivet_model::{Entropy, Now, Tick, UnixMs};

/// The box's clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DaemonClock {
    started: Instant,
}

impl DaemonClock {
    #[expect(clippy::disallowed_methods, reason = "the shell reads clocks here")]
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the shell reads clocks here")]
    pub(crate) fn now(&self) -> Now {
        let tick = Instant::now().duration_since(self.started).as_millis() as u64;
        Now {
            tick: Tick(tick),
            wall: wall_time(),
        }
    }
}

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "the shell reads clocks here")]
pub(crate) fn wall_time() -> UnixMs {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixMs(wall.as_millis() as u64)
}

impl DaemonClock {
    /// Microseconds of the monotonic clock, for round-trip times.
    #[expect(clippy::disallowed_methods, reason = "the shell reads clocks here")]
    pub(crate) fn us(&self) -> u64 {
        Instant::now().duration_since(self.started).as_micros() as u64
    }
}

/// The operating system's random numbers.
#[derive(Debug)]
pub(crate) struct DaemonEntropy(SystemRandom);

impl DaemonEntropy {
    pub(crate) fn new() -> Self {
        Self(SystemRandom::new())
    }
}

impl Entropy for DaemonEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        self.0
            .fill(out)
            .expect("the operating system gives random bytes once it has booted");
    }
}
