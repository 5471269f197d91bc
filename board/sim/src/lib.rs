//! A board in memory that can lose power.
//!
//! It knows nothing of what stands on it. Time and chance are arguments: where
//! the power goes is counted in operations, what the cut leaves comes from a seed.

mod flash;

pub use flash::{SECTOR_BYTES, SimFlash, SimFlashCounts};

use trivet_board_hal::BoxKey;

/// The key of every simulated box: a seed must replay to the same bytes.
pub fn box_key() -> BoxKey {
    BoxKey::new(*b"the key of every simulated box!!")
}
