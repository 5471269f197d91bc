//! Records on flash: nodes, ports, leases, resources and the counter of the box.
//!
//! All records are in memory. The flash contains a log of changes with checksums, in fixed
//! segments of a preallocated region. A batch of changes is one commit with one flush and is
//! durable when [`Store::commit`] returns. Damaged data, data of a newer version and foreign
//! data are refused with a reason and not changed. This crate is pure: it uses no files, no
//! clock and no randomness, only a [`trivet_board_hal::Flash`] and the key that seals secrets.
//! The README of this crate is the normative description of the bytes.

mod decode;
mod entry;
mod error;
mod export;
pub mod layout;
mod log;
mod outcome;
mod page;
mod page_list;
mod patch;
mod rebuild;
mod recover;
mod salvage;
mod schema;
mod seal;
mod store;
mod superblock;
mod table;

pub use error::{CommitError, OpenError, RecordError};
pub use export::{EXPORT_VERSION, Export, ImportError};
pub use log::{StoreLog, StoreStats};
pub use outcome::{DamagedRecord, RecordDamage, SalvageOutcome};
pub use rebuild::{RebuildError, rebuild};
pub use salvage::{Salvage, StoreDamage};
pub use schema::{JSON_DEPTH_MAX, RecordKind};
pub use store::{Store, StoreChange, StoreRecords};
pub use superblock::FORMAT_VERSION;

/// The key of a record in the log.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RecordKey {
    /// Kind of record, see [`RecordKind`].
    pub kind: u8,
    /// Identifies the record among those of its kind, see the README.
    pub id: [u8; 16],
}
