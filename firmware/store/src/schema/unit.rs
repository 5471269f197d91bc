//! The record of the box itself: the table of its fields, and the readers of versions 1 to 3.

use serde::Deserialize;

use super::codec::{Number, SealedText};
use super::tagged::tagged_fields;
use super::unit_key;
use crate::error::RecordError;
use crate::seal::{RecordSeal, SealedBytes, Sealer};

/// The version of the record with tagged fields. Further fields do not raise it. As version 3
/// it states that credentials in URLs are sealed in all records.
pub(super) const VERSION: u16 = 4;

/// The text that is sealed to detect later whether a key belongs to this store.
const CHECK: &str = "trivet";

/// The record in memory.
#[derive(Debug)]
pub(super) struct BoxRecord {
    /// The last place given in the order of creation.
    pub(super) serial: u64,
    check: String,
}

impl BoxRecord {
    pub(super) fn new(serial: u64) -> Self {
        let check = CHECK.to_owned();
        Self { serial, check }
    }
}

tagged_fields! {
    /// Fields of the box.
    BoxFields: BoxRecord {
        1 "serial" serial: Number<u64> = 0;
        2 "check" check: SealedText;
    }
}

/// Version 1, frozen.
#[derive(Debug, Deserialize)]
pub(super) struct BoxV1 {
    /// The last place given in the order of creation.
    pub(super) serial: u64,
}

/// Versions 2 and 3, frozen. Their fields are the same: version 3 states that credentials in
/// URLs are sealed in all records, which was not so in the first stores of version 2.
#[derive(Debug, Deserialize)]
pub(super) struct BoxV2 {
    /// The last place given in the order of creation.
    serial: u64,
    check: SealedBytes,
}

impl BoxV2 {
    /// The serial, if the store was sealed with this key.
    pub(super) fn checked(self, sealer: Option<&Sealer>) -> Result<u64, RecordError> {
        RecordSeal::of(sealer, unit_key()).open_text("check", &self.check)?;
        Ok(self.serial)
    }
}
