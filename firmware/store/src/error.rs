//! Errors of opening a region, of writing a batch, and of decoding a record.

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
    /// The region is too small for a store.
    #[error(
        "a region of {bytes} bytes is too small for segments of {segment_bytes} bytes: if the \
         store was larger before, its file was cut short: restore it from a backup; for a new \
         store, remove the file and set box.store_mib"
    )]
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
        /// Size in the superblock.
        expected: u64,
    },
    /// The region contains other data.
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
    /// The board could not read the key, or could not store a new one.
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
    /// This program cannot decode a record.
    #[error("a record in the store cannot be read")]
    Record(#[from] RecordError),
}

/// A batch was not written.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The flash failed: it is unknown whether the batch is durable.
    #[error("the store's flash failed while writing")]
    Flash(#[source] FlashError),
    /// The flash failed in an earlier commit.
    #[error("the store takes no more changes because its flash failed earlier: restart the box")]
    Poisoned,
    /// A record is too large.
    #[error("a {kind} record of {bytes} bytes is over the limit of {limit}")]
    RecordTooLarge {
        /// Name of the kind of record.
        kind: &'static str,
        /// The node, if the record is a node.
        node: Option<NodeId>,
        /// Size in bytes.
        bytes: usize,
        /// The limit in this region, in bytes.
        limit: usize,
    },
    /// A batch is too large.
    #[error("a batch of {bytes} bytes is over the limit of {limit}: split it")]
    BatchTooLarge {
        /// Size in bytes.
        bytes: usize,
        /// The limit in this region, in bytes.
        limit: usize,
    },
    /// A batch has too many changes.
    #[error("a batch of {changes} changes is over the limit of {BATCH_CHANGES_MAX}: split it")]
    TooManyChanges {
        /// Number of changes.
        changes: usize,
    },
    /// The records do not fit into the region.
    #[error("the store is full: records of {bytes} bytes, limit {limit}; delete nodes or ports")]
    Full {
        /// Bytes of all records.
        bytes: u64,
        /// The limit in this region, in bytes.
        limit: u64,
    },
    /// A record has no encoding that can be read again.
    #[error("a record cannot be stored")]
    Record(#[from] RecordError),
}

/// This program cannot read or write a record.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// No kind of record has this number.
    #[error("records of kind {kind} are unknown: run the newer program")]
    UnknownKind {
        /// Number of the kind.
        kind: u8,
    },
    /// The record was written by a newer program.
    #[error(
        "a {kind} record has version {found}, this program knows up to {known}: \
         run the newer program"
    )]
    NewerVersion {
        /// Name of the kind of record.
        kind: &'static str,
        /// Version of the record.
        found: u16,
        /// Newest version that this program knows.
        known: u16,
    },
    /// The bytes do not follow the schema.
    #[error("a {kind} record is malformed: {what}")]
    Malformed {
        /// Name of the kind of record.
        kind: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// A sealed value cannot be opened.
    #[error(
        "a sealed value in a {kind} record does not open: the record was damaged or moved there \
         from elsewhere, or the key is not the one of this store"
    )]
    Sealed {
        /// Name of the kind of record.
        kind: &'static str,
    },
    /// A free-form object has too many levels to be read again.
    #[error("field {field} of a {kind} record is nested deeper than {limit}")]
    TooDeep {
        /// Name of the kind of record.
        kind: &'static str,
        /// Name of the field.
        field: &'static str,
        /// Greatest number of levels.
        limit: usize,
    },
}
