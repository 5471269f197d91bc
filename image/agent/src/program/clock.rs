//! The clock of the machine and the random numbers of its kernel. The only file of the program
//! that reads the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, Timespec, clock_settime};
use trivet_model::Entropy;

/// A clock that differs by more from the appliance's is wrong. Ours: certificates are made an
/// hour into the past, so a minute does no harm.
const DIFFERENCE_S_MAX: i64 = 60;

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the program reads the clock here"
)]
pub(crate) fn unix_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().cast_signed())
}

/// Sets the clock if it is wrong.
pub(crate) fn correct(unix_s: i64) {
    let differs_s = unix_s - self::unix_s();
    if differs_s.abs() <= DIFFERENCE_S_MAX {
        return;
    }
    let time = Timespec {
        tv_sec: unix_s,
        tv_nsec: 0,
    };
    match clock_settime(ClockId::Realtime, time) {
        Ok(()) => super::log(&format!("the clock was wrong by {differs_s} s")),
        Err(error) => super::log(&format!("the clock is wrong by {differs_s} s: {error}")),
    }
}

/// The kernel's random numbers.
#[derive(Debug)]
pub(crate) struct KernelEntropy;

impl Entropy for KernelEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        let mut filled = 0;
        while filled < out.len() {
            // Only interrupted by a signal, and then called again.
            filled += getrandom(&mut out[filled..], GetRandomFlags::empty()).unwrap_or(0);
        }
    }
}
