//! The box's own record.

use serde::{Deserialize, Serialize};

pub(super) const VERSION: u16 = 1;

/// Version 1, frozen.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BoxV1 {
    /// The last place given in the order of creation.
    pub(super) serial: u64,
}
