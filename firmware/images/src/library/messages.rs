//! What the library orders from the shell, and what the shell reports.

use trivet_model::{Digest, OciReference, UnixMs};
use trivet_oci::{OciError, OciImage, OciQuery, RegistryCredentials};

use crate::{ImageFillResult, ImageFormat, ImageKey, ImageMetadata, ImageSourceRequest, ImageSpec};

/// The number of one file of the cache and of its readers. An image gets a new one each time that
/// its file begins again, so that a result of the old file is never taken for the new one.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct ImageEntryId(pub u64);

/// Which file an entry has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageFileKind {
    /// The file that is stored, complete or partial; an empty one where there is none.
    Stored {
        /// It is marked as complete.
        whole: bool,
    },
    /// An empty file in place of any other of the image.
    Empty,
    /// An empty file for the disk in a packed image. It is never served under this name.
    Unpacking,
    /// An empty file for a download without a digest. It is never served under this name.
    Download,
}

/// Work on the file of an entry. Each order is followed by one
/// [`ImageWorkReport::File`] with the result that belongs to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageFileOrder {
    /// See [`crate::ImageFillOrder::Verify`].
    Verify {
        /// The announced size, for readers.
        size: Option<u64>,
        /// The file is marked as complete.
        whole: bool,
    },
    /// See [`crate::ImageFillOrder::FetchChunk`].
    FetchChunk {
        /// Its index.
        chunk: u64,
        /// The size of the image.
        size: u64,
        /// The request.
        request: ImageSourceRequest,
    },
    /// See [`crate::ImageFillOrder::FlushRepaired`].
    FlushRepaired {
        /// The size of the image.
        size: u64,
    },
    /// See [`crate::ImageFillOrder::MarkPartial`].
    MarkPartial,
    /// See [`crate::ImageFillOrder::KeepChunks`].
    KeepChunks {
        /// The number of chunks.
        chunks: u64,
    },
    /// See [`crate::ImageFillOrder::StartHashing`]. It fails if the stored list has fewer chunks.
    StartHashing {
        /// The number of chunks.
        chunks: u64,
    },
    /// See [`crate::ImageFillOrder::Request`].
    Request(ImageSourceRequest),
    /// See [`crate::ImageFillOrder::SaveMetadata`].
    SaveMetadata(Box<ImageMetadata>),
    /// Append the body of the response, and report the bytes at most about once per second.
    /// Without `bytes_max` the shell waits after each [`crate::REPORT_BYTES`] for
    /// [`ImageWorkOrder::Continue`].
    Receive {
        /// The first bytes that are here already.
        skip: u64,
        /// The most bytes that may follow them.
        bytes_max: Option<u64>,
    },
    /// All bytes so far become durable, and all complete chunks are listed.
    PauseHashing,
    /// See [`crate::ImageFillOrder::FinishHashing`].
    FinishHashing,
    /// See [`crate::ImageFillOrder::MarkWhole`].
    MarkWhole {
        /// The size of the image.
        size: u64,
    },
    /// See [`crate::ImageFillOrder::ReadMagic`].
    ReadMagic,
    /// Make the download the complete file of this image. Its record is written last: a file
    /// without a record is removed at the next start.
    StoreDownload(Box<ImageMetadata>),
    /// Make the unpacked disk the complete file of an image, and write the record of the image
    /// that it came from. Without metadata the cache has the same disk already, and this one is
    /// removed.
    StoreDisk {
        /// The disk as an image.
        disk: Option<Box<ImageMetadata>>,
        /// The record.
        record: Box<UnpackedDiskRecord>,
    },
    /// All chunks of the disk were written again: write its chunk list, and mark it as complete.
    StoreRepairedDisk {
        /// Its size.
        size: u64,
        /// It is marked as complete already.
        whole: bool,
    },
}

/// Records which disk was unpacked from which image. It outlives the file of the packed image,
/// which is evicted first: its disk can still be read, and the packed image can be fetched again
/// if the disk must be repaired.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnpackedDiskRecord {
    /// The packed image.
    pub spec: ImageSpec,
    /// Bytes of the packed image.
    pub size: u64,
    /// The key of the disk.
    pub raw: ImageKey,
    /// Bytes of the disk.
    pub raw_size: u64,
}

impl UnpackedDiskRecord {
    /// The key of the packed image.
    pub fn key(&self) -> ImageKey {
        self.spec.key()
    }
}

/// The answer to an offer of bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageUploadAnswer {
    /// Write and hash the bytes into this entry, then report [`ImageWorkReport::UploadEnded`];
    /// another answer follows.
    Receive(ImageEntryId),
    /// The end: so many bytes of the image are stored.
    Stored(u64),
    /// The cache has the image already, as the disk of another one; it has so many bytes.
    HasAll(u64),
    /// The upload failed.
    Refused(ImageUploadError),
}

/// Why an upload failed; each variant has a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageUploadError {
    /// The range does not match the state of the image.
    Conflict(String),
    /// The cache has no space.
    NoSpace(String),
    /// The box's own disk failed.
    Disk(String),
    /// All bytes were received, but the digest or the format is wrong.
    Mismatch(String),
    /// The client disconnected.
    Interrupted(String),
}

/// The range of bytes that a client uploads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImageUploadRange {
    /// Offset of the first byte.
    pub from: u64,
    /// Number of bytes in this range.
    pub bytes: u64,
    /// Size of the whole image in bytes.
    pub size: u64,
}

/// An order to the shell. Orders of one image are carried out in their order, except that
/// [`ImageFileOrder`]s take their time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageWorkOrder {
    /// List the stored images; the report is [`ImageWorkReport::Found`].
    Scan,
    /// Begin an entry. A file that cannot be opened makes the first order on it fail.
    Open {
        /// Its number.
        entry: ImageEntryId,
        /// The name of its files.
        key: ImageKey,
        /// Which file.
        file: ImageFileKind,
    },
    /// The response that is open for an entry goes on in another one, which began after it.
    MoveResponse {
        /// The entry before.
        from: ImageEntryId,
        /// The new one.
        into: ImageEntryId,
    },
    /// Work on the file of an entry.
    File {
        /// The entry.
        entry: ImageEntryId,
        /// The work.
        order: ImageFileOrder,
    },
    /// The download may continue after the bytes that were reported.
    Continue(ImageEntryId),
    /// Readers learn the size of the image.
    AnnounceSize {
        /// The entry.
        entry: ImageEntryId,
        /// Bytes.
        size: u64,
    },
    /// All bytes are verified: readers may read all of them.
    AllowReads {
        /// The entry.
        entry: ImageEntryId,
        /// Bytes.
        size: u64,
    },
    /// Readers are disconnected, now and later, with this reason.
    EndReads {
        /// The entry.
        entry: ImageEntryId,
        /// The reason.
        why: String,
        /// A retry gives the same result until the operator changes something.
        is_wrong: bool,
    },
    /// The entry has ended: no reader starts any more, and work on it stops. Present readers of a
    /// verified file read on.
    Close(ImageEntryId),
    /// The entry has ended, and its temporary file is removed.
    Discard(ImageEntryId),
    /// Remove the files of this image.
    DeleteFiles(ImageKey),
    /// Remove the record of the disk in this image.
    DeleteDiskRecord(ImageKey),
    /// Write the record of an image whose file is complete. There is no report: what is not
    /// written is requested again after a restart.
    KeepMetadata(Box<ImageMetadata>),
    /// Measure the disk; the report is [`ImageWorkReport::Space`].
    MeasureSpace {
        /// Returned with the report.
        ticket: u64,
    },
    /// Verify all chunks of a complete image; the report is [`ImageWorkReport::Scrubbed`].
    Scrub {
        /// Returned with the report.
        ticket: u64,
        /// The entry.
        entry: ImageEntryId,
        /// The size of the image.
        size: u64,
        /// With pauses, so that readers hardly notice.
        is_paced: bool,
    },
    /// Unpack a disk; the report is [`ImageWorkReport::Unpacked`]. The shell requests space with
    /// [`ImageWorkReport::UnpackNeedsSpace`] before it writes.
    Unpack {
        /// The packed image, complete and verified.
        from: ImageEntryId,
        /// Its size.
        size: u64,
        /// How it is packed.
        format: ImageFormat,
        /// The file that is written.
        into: ImageEntryId,
        /// Only these chunks are written; the others are right, and the space is reserved.
        only: Option<Vec<u64>>,
    },
    /// The answer to [`ImageWorkReport::UnpackNeedsSpace`].
    UnpackSpace {
        /// The entry that is written.
        into: ImageEntryId,
        /// An instruction for the operator where there is no space.
        result: Result<(), String>,
    },
    /// Find the digest of the file of this name in a checksum file; the report is
    /// [`ImageWorkReport::ChecksumFound`].
    FindChecksum {
        /// The URL of the checksum file.
        url: String,
        /// The file's name.
        name: String,
    },
    /// Find the disk image of a reference to a registry, and remember the credentials for its
    /// layers; the report is [`ImageWorkReport::OciResolved`].
    ResolveOci(Box<OciQuery>),
    /// Layers of this repository are fetched with these credentials. There is no report.
    UsePullSecret {
        /// The repository; tag and digest do not matter.
        reference: OciReference,
        /// The credentials.
        credentials: RegistryCredentials,
    },
    /// The answer to [`ImageWorkReport::UploadOffered`] and [`ImageWorkReport::UploadEnded`].
    Upload {
        /// The ticket of the offer.
        ticket: u64,
        /// The answer.
        answer: ImageUploadAnswer,
    },
}

/// An image that was stored before the start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundImage {
    /// Its record.
    pub metadata: ImageMetadata,
    /// When the record was written.
    pub written_at: UnixMs,
}

/// The content of the cache at the start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FoundImages {
    /// All images.
    pub images: Vec<FoundImage>,
    /// Which disk was unpacked from which image.
    pub disks: Vec<UnpackedDiskRecord>,
    /// The images whose unpacking was interrupted.
    pub interrupted: Vec<ImageKey>,
}

/// The file of an entry, when the disk was measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImageEntryUse {
    /// The entry.
    pub entry: ImageEntryId,
    /// Its length on the disk.
    pub bytes: u64,
    /// Somebody reads it.
    pub is_read: bool,
}

/// The disk of the cache.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ImageDiskUse {
    /// Free bytes; zero if they cannot be read.
    pub free_bytes: u64,
    /// All entries.
    pub entries: Vec<ImageEntryUse>,
}

/// The disk of the box failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageDiskError {
    /// The error of the operating system.
    pub why: String,
    /// The disk is full.
    pub is_full: bool,
}

/// Why a disk was not unpacked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageUnpackError {
    /// The image is refused: the end of a sentence that begins with its name.
    Refused(String),
    /// There was no space for so many bytes: what to do.
    NoSpace {
        /// Bytes.
        bytes: u64,
        /// What to do.
        why: String,
    },
    /// The disk of the box failed.
    Disk(ImageDiskError),
    /// The packed image has changed since its digest was verified.
    Corrupt,
    /// The entry was closed.
    Closed,
}

/// What a checksum file says about a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileChecksum {
    /// The URL of the checksum file.
    pub url: String,
    /// The name of the file in it.
    pub name: String,
    /// The digest, or a sentence that says why there is none.
    pub result: Result<Digest, String>,
}

/// What a registry has for a reference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OciResolution {
    /// What was looked up.
    pub query: OciQuery,
    /// The image, or why there is none.
    pub result: Result<OciImage, OciError>,
}

/// A report of the shell.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageWorkReport {
    /// Of [`ImageWorkOrder::Scan`].
    Found(Box<FoundImages>),
    /// Of [`ImageWorkOrder::File`].
    File {
        /// The entry.
        entry: ImageEntryId,
        /// The result.
        result: Result<ImageFillResult, ImageDiskError>,
    },
    /// Bytes were appended to an entry.
    Received {
        /// The entry.
        entry: ImageEntryId,
        /// How many since the last report.
        bytes: u64,
    },
    /// Of [`ImageWorkOrder::MeasureSpace`].
    Space {
        /// The ticket.
        ticket: u64,
        /// The measurement.
        disk: Box<ImageDiskUse>,
    },
    /// Of [`ImageWorkOrder::Scrub`].
    Scrubbed {
        /// The ticket.
        ticket: u64,
        /// All chunks are right.
        is_right: bool,
    },
    /// An unpacker is about to write; the answer is [`ImageWorkOrder::UnpackSpace`].
    UnpackNeedsSpace {
        /// The entry that it writes.
        into: ImageEntryId,
        /// Bytes from the start of the file.
        bytes: u64,
    },
    /// Of [`ImageWorkOrder::Unpack`]: digest and size of the disk.
    Unpacked {
        /// The entry that was written.
        into: ImageEntryId,
        /// The result.
        result: Result<(Digest, u64), ImageUnpackError>,
    },
    /// A client offers bytes; the answer is [`ImageWorkOrder::Upload`].
    UploadOffered {
        /// Returned with the answer.
        ticket: u64,
        /// The image.
        spec: Box<ImageSpec>,
        /// The bytes.
        range: ImageUploadRange,
    },
    /// The client has sent all bytes that it offered, or has disconnected.
    UploadEnded {
        /// The entry.
        entry: ImageEntryId,
        /// Bytes that were appended since the last report.
        bytes: u64,
        /// The disk of the box failed.
        result: Result<(), ImageDiskError>,
    },
    /// Of [`ImageWorkOrder::FindChecksum`].
    ChecksumFound(Box<FileChecksum>),
    /// Of [`ImageWorkOrder::ResolveOci`].
    OciResolved(Box<OciResolution>),
}
