//! A new store from records: what repair and import write.

use std::collections::BTreeMap;

use trivet_board_hal::Flash;

use crate::Key;
use crate::error::{CommitError, OpenError};
use crate::layout::BATCH_CHANGES_MAX;
use crate::log::Log;
use crate::table::cost;

/// The new store was not written.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The new region cannot be opened or formatted.
    #[error("the new store cannot be made")]
    Open(#[from] OpenError),
    /// The records cannot be written to it.
    #[error("the records cannot be written to the new store")]
    Commit(#[from] CommitError),
    /// There is something in it already.
    #[error("the new store is not empty")]
    NotEmpty,
    /// It reads other than it was written.
    #[error("the new store does not read back as it was written: its disk is failing")]
    Differs,
}

/// Formats a blank region, writes these records and reads them back. Everything is
/// durable when this returns.
pub fn rebuild<F: Flash>(
    flash: F,
    segment_bytes: u32,
    records: &BTreeMap<Key, Vec<u8>>,
) -> Result<F, RebuildError> {
    let mut log = Log::open(flash, segment_bytes)?;
    if log.iter().next().is_some() {
        return Err(RebuildError::NotEmpty);
    }
    let limit = log.layout().batch_bytes_max() as u64;
    let mut batch = BTreeMap::new();
    let mut bytes = 0;
    for (key, value) in records {
        let more = cost(value);
        if bytes + more > limit || batch.len() == BATCH_CHANGES_MAX {
            log.commit(std::mem::take(&mut batch))?;
            bytes = 0;
        }
        bytes += more;
        batch.insert(*key, Some(value.clone()));
    }
    log.commit(batch)?;
    let log = Log::open(log.into_flash(), segment_bytes)?;
    let read = log.iter();
    if !read.eq(records.iter().map(|(key, value)| (key, value.as_slice()))) {
        return Err(RebuildError::Differs);
    }
    Ok(log.into_flash())
}
