//! A board in memory that can lose power.
//!
//! Time and randomness are arguments: the moment of a power cut is counted in operations, and a
//! seed decides what it leaves.

mod flash;

pub use flash::{SECTOR_BYTES, SimFlash, SimFlashCounts};

use trivet_board_hal::BoxKey;

/// The key of every simulated box: a seed must replay to the same bytes.
pub fn box_key() -> BoxKey {
    BoxKey::new(*b"the key of every simulated box!!")
}
