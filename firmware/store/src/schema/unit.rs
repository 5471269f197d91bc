//! The box's own record.

use serde::{Deserialize, Serialize};

use super::unit_key;
use crate::error::RecordError;
use crate::seal::{RecordSeal, SealedBytes, Sealer};

pub(super) const VERSION: u16 = 3;

/// What is sealed to tell later whether a key is the one of this store.
const CHECK: &str = "trivet";

/// Version 1, frozen.
#[derive(Debug, Deserialize)]
pub(super) struct BoxV1 {
    /// The last place given in the order of creation.
    pub(super) serial: u64,
}

/// Versions 2 and 3, frozen. Their fields are the same: version 3 says that credentials in
/// URLs are sealed in all records, which was not so when version 2 began.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BoxV2 {
    /// The last place given in the order of creation.
    serial: u64,
    check: SealedBytes,
}

impl BoxV2 {
    pub(super) fn new(sealer: &Sealer, serial: u64) -> Result<Self, RecordError> {
        let check = sealer.of(unit_key()).text("check", CHECK)?;
        Ok(Self { serial, check })
    }

    /// The serial, if the store was sealed with this key.
    pub(super) fn checked(self, sealer: Option<&Sealer>) -> Result<u64, RecordError> {
        RecordSeal::of(sealer, unit_key()).open_text("check", &self.check)?;
        Ok(self.serial)
    }
}
