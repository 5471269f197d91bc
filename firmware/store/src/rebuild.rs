//! Writes a new store from records, for repair and import.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use trivet_board_hal::Flash;
use trivet_model::{Lease, MacAddr};

use crate::error::{CommitError, OpenError};
use crate::layout::BATCH_CHANGES_MAX;
use crate::log::StoreLog;
use crate::table::cost;
use crate::{RecordKey, schema};

/// The new store was not written.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The new region cannot be opened or formatted.
    #[error("the new store cannot be made")]
    Open(#[from] OpenError),
    /// The records cannot be written to it.
    #[error("the records cannot be written to the new store")]
    Commit(#[from] CommitError),
    /// It already contains records.
    #[error("the new store is not empty")]
    NotEmpty,
    /// The bytes that were read back differ from those that were written.
    #[error("the new store does not read back as it was written: its disk is failing")]
    Differs,
}

/// Writes and deletes a lease of an unused MAC address. Damage to the last commit cannot be
/// distinguished from a torn write and drops the commit, so it must not contain records.
fn close<F: Flash>(log: &mut StoreLog<F>) -> Result<(), CommitError> {
    let lease = Lease {
        mac: MacAddr([0; 6]),
        address: Ipv4Addr::UNSPECIFIED,
    };
    let key = schema::lease_key(lease.mac);
    if log.value(&key).is_some() {
        return Ok(());
    }
    let value = schema::encode_lease(&lease)?;
    log.commit([(key, Some(value))].into())?;
    log.commit([(key, None)].into())
}

/// Formats a blank region, writes these records and reads them back. Everything is
/// durable when this returns.
pub fn rebuild<F: Flash>(
    flash: F,
    segment_bytes: u32,
    records: &BTreeMap<RecordKey, Vec<u8>>,
) -> Result<F, RebuildError> {
    let mut log = StoreLog::open(flash, segment_bytes)?;
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
    close(&mut log)?;
    let log = StoreLog::open(log.into_flash(), segment_bytes)?;
    let read = log.iter();
    if !read.eq(records.iter().map(|(key, value)| (key, value.as_slice()))) {
        return Err(RebuildError::Differs);
    }
    Ok(log.into_flash())
}

#[cfg(test)]
mod tests {
    use trivet_board_sim::SimFlash;

    use super::*;
    use crate::layout::PAGE_BYTES;

    const SEGMENT_BYTES: u32 = 32 * 1024;
    const REGION: usize = 2 * PAGE_BYTES + 64 * SEGMENT_BYTES as usize;

    fn records(count: u8) -> BTreeMap<RecordKey, Vec<u8>> {
        let record = |number| {
            let id = [number; 16];
            (RecordKey { kind: 1, id }, vec![number; 3000])
        };
        (0..count).map(record).collect()
    }

    #[test]
    fn more_records_than_one_batch_takes_are_written_in_several() {
        let records = records(100);
        let flash = rebuild(SimFlash::new(REGION), SEGMENT_BYTES, &records).unwrap();
        let log = StoreLog::open(flash, SEGMENT_BYTES).unwrap();
        assert_eq!(log.stats().records, 100);
        let error = rebuild(log.into_flash(), SEGMENT_BYTES, &records).unwrap_err();
        assert!(matches!(error, RebuildError::NotEmpty));
    }

    #[test]
    fn a_damaged_last_commit_of_a_new_store_costs_no_record() {
        let records = records(3);
        let flash = rebuild(SimFlash::new(REGION), SEGMENT_BYTES, &records).unwrap();
        let mut bytes = flash.bytes().to_vec();
        let mut pages = bytes.chunks(PAGE_BYTES);
        let last = pages.rposition(|page| page.iter().any(|&byte| byte != 0));
        bytes[last.unwrap() * PAGE_BYTES + 100] ^= 1;
        let log = StoreLog::open(SimFlash::with_bytes(bytes), SEGMENT_BYTES).unwrap();
        for (key, value) in &records {
            assert_eq!(log.value(key), Some(value.as_slice()));
        }
    }

    #[test]
    fn a_region_that_is_too_small_is_refused() {
        let small = SimFlash::new(2 * PAGE_BYTES + 8 * 16384);
        let error = rebuild(small, 16384, &records(100)).unwrap_err();
        assert!(matches!(
            error,
            RebuildError::Commit(CommitError::Full { .. })
        ));
    }
}
