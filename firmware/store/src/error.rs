//! Why a region was not opened, a batch not written, a record not understood.

use trivet_board_hal::{FlashError, KeyError};
use trivet_model::NodeId;

use crate::layout::BATCH_CHANGES_MAX;
use crate::superblock::FORMAT_VERSION;

/// The region was not opened. Nothing was reset.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The flash failed.
    #[error("the store's flash failed")]
    Flash(#[from] FlashError),
    /// There is no room for a store.
    #[error("a region of {bytes} bytes is too small for segments of {segment_bytes} bytes")]
    TooSmall {
        /// Size of the region.
        bytes: u64,
        /// Wanted size of a segment.
        segment_bytes: u32,
    },
    /// The region is shorter than its superblock says.
    #[error("the region has {bytes} bytes but its store needs {expected}: restore the whole file")]
    Shrunk {
        /// Size of the region.
        bytes: u64,
        /// Size the superblock asks for.
        expected: u64,
    },
    /// Something else stands there.
    #[error(
        "the region is neither blank nor a store: check that it is the right file or partition; \
         fill it with zeros to give it up"
    )]
    Foreign,
    /// Both copies of the superblock are unreadable, or they disagree.
    #[error("the store's superblock is damaged: repair the store, or restore it from a backup")]
    SuperblockDamaged,
    /// The region was written by a newer program.
    #[error(
        "the store has format {found}, this program knows up to {FORMAT_VERSION}: \
         run the newer program"
    )]
    NewerFormat {
        /// Version in the superblock.
        found: u32,
    },
    /// Bytes of acknowledged commits are missing or wrong.
    #[error(
        "the store is damaged at commit {commit}: {what}; repair the store, or restore it from a \
         backup"
    )]
    Damaged {
        /// The commit.
        commit: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The board could not give the key, or not keep a new one.
    #[error("the secrets in the store cannot be opened")]
    Key(#[from] KeyError),
    /// The board has no key, but something in the store is sealed.
    #[error(
        "the store holds sealed secrets and its key is missing, most likely because the key file \
         was lost or not copied along: restore the key file from a backup"
    )]
    KeyMissing,
    /// The store was sealed with another key.
    #[error(
        "the store was sealed with another key, most likely because the key file does not belong \
         to this store: restore the key file that was made with it from a backup"
    )]
    WrongKey,
    /// A record is not one this program understands.
    #[error("a record in the store cannot be read")]
    Record(#[from] RecordError),
}

/// A batch was not written.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The flash failed: what of the batch is durable is unknown.
    #[error("the store's flash failed while writing")]
    Flash(#[source] FlashError),
    /// The flash failed in an earlier commit.
    #[error("the store takes no more changes because its flash failed earlier: restart the box")]
    Poisoned,
    /// A record is too large.
    #[error("a {kind} record of {bytes} bytes is over the limit of {limit}")]
    RecordTooLarge {
        /// Which kind.
        kind: &'static str,
        /// Of which node, if it is a node's.
        node: Option<NodeId>,
        /// Its size.
        bytes: usize,
        /// The limit in this region.
        limit: usize,
    },
    /// A batch is too large.
    #[error("a batch of {bytes} bytes is over the limit of {limit}: split it")]
    BatchTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit in this region.
        limit: usize,
    },
    /// A batch has too many changes.
    #[error("a batch of {changes} changes is over the limit of {BATCH_CHANGES_MAX}: split it")]
    TooManyChanges {
        /// How many.
        changes: usize,
    },
    /// The records would not fit.
    #[error("the store is full: records of {bytes} bytes, limit {limit}; delete nodes or ports")]
    Full {
        /// What all records would take.
        bytes: u64,
        /// The limit in this region.
        limit: u64,
    },
    /// A record cannot be put into bytes that could be read back.
    #[error("a record cannot be stored")]
    Record(#[from] RecordError),
}

/// A record is not one this program can read or write.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// No kind of record has this number.
    #[error("records of kind {kind} are unknown: run the newer program")]
    UnknownKind {
        /// The number.
        kind: u8,
    },
    /// The record was written by a newer program.
    #[error(
        "a {kind} record has version {found}, this program knows up to {known}: \
         run the newer program"
    )]
    NewerVersion {
        /// Which kind.
        kind: &'static str,
        /// Version of the record.
        found: u16,
        /// Newest version known here.
        known: u16,
    },
    /// The bytes do not follow the schema.
    #[error("a {kind} record is malformed: {what}")]
    Malformed {
        /// Which kind.
        kind: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// A sealed value does not open.
    #[error(
        "a sealed value in a {kind} record does not open: the record was damaged or moved there \
         from elsewhere, or the key is not the one of this store"
    )]
    Sealed {
        /// Which kind.
        kind: &'static str,
    },
    /// A free-form object is nested so deeply that it could not be read back.
    #[error("field {field} of a {kind} record is nested deeper than {limit}")]
    TooDeep {
        /// Which kind.
        kind: &'static str,
        /// Which field.
        field: &'static str,
        /// The limit.
        limit: usize,
    },
}
