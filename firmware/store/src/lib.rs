//! Records on flash: nodes, ports, leases and the box's own counter.
//!
//! All records live in memory; the flash holds a checksummed log of changes in
//! fixed segments of a preallocated region. A batch of changes is one commit with
//! one flush and is durable when [`Store::commit`] returns. What is damaged, newer
//! or foreign is refused with a reason and never reset. This room is pure: it
//! knows no files, no clock and no randomness, only a [`trivet_board_hal::Flash`]
//! and the key that secrets are sealed with.
//! The README beside it is the normative description of the bytes.

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

/// The name of a record in the log.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RecordKey {
    /// Kind of record, see [`RecordKind`].
    pub kind: u8,
    /// Which one of its kind.
    pub id: [u8; 16],
}
