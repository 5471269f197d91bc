//! What a job orders from the shell, and what the shell reports.

use trivet_model::Digest;
use trivet_model::image::ImageState;

use crate::{ImageFillError, ImageSourceHead, ImageSourceRequest, ImageSpec};

/// What the cache stores about an image across restarts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageMetadata {
    /// The image.
    pub spec: ImageSpec,
    /// Its size, once a source or an upload has announced it.
    pub size: Option<u64>,
    /// The validator of the file at the first source.
    pub validator: Option<String>,
    /// The stored file is marked as complete. It is verified nevertheless.
    pub whole: bool,
    /// For a disk from a packed image: the key of that image.
    pub unpacked_from: Option<String>,
}

impl ImageMetadata {
    /// The metadata of an image without any bytes yet.
    pub fn new(spec: &ImageSpec) -> Self {
        Self {
            spec: spec.clone(),
            size: None,
            validator: None,
            whole: false,
            unpacked_from: None,
        }
    }
}

/// The result of verifying a stored image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StoredImageCheck {
    /// Every byte is correct.
    Valid,
    /// The chunk list matches the digest, and these chunks do not match the list, ascending.
    Corrupt {
        /// The indices of the bad chunks; at least one.
        bad: Vec<u64>,
    },
    /// Only this many chunks from the beginning match the chunk list.
    Partial {
        /// The number of chunks.
        chunks: u64,
    },
}

/// An order to the shell.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageFillOrder {
    /// Hash the stored file, and let readers follow; the result is
    /// [`ImageFillResult::Checked`].
    Verify {
        /// The announced size, for readers.
        size: Option<u64>,
        /// The file is marked as complete.
        whole: bool,
    },
    /// Fetch one chunk, and write it if it matches the chunk list; the result is
    /// [`ImageFillResult::Chunk`].
    FetchChunk {
        /// Its index.
        chunk: u64,
        /// The size of the image.
        size: u64,
        /// The request.
        request: ImageSourceRequest,
    },
    /// All chunks of the file are right now: flush it. The result is
    /// [`ImageFillResult::Done`], as for all orders below without another one.
    FlushRepaired {
        /// The size of the image.
        size: u64,
    },
    /// The file is not complete: mark it as partial.
    MarkPartial,
    /// Write the chunk list of this many chunks; readers may read as far. No bytes follow.
    KeepChunks {
        /// The number of chunks.
        chunks: u64,
    },
    /// Write the chunk list of this many chunks, and hash what is appended after them.
    StartHashing {
        /// The number of chunks.
        chunks: u64,
    },
    /// Disconnect all readers with this reason, begin a new empty file, and hash what is
    /// appended.
    Restart {
        /// The reason.
        why: String,
    },
    /// Wait.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// Wait until an image that no client reads may be fetched.
    AwaitWindow,
    /// Send a request to a source; the result is [`ImageFillResult::Responded`].
    Request(ImageSourceRequest),
    /// Make space for an image of this size; the result is [`ImageFillResult::Done`] or
    /// [`ImageFillResult::NoSpace`].
    Reserve {
        /// Bytes.
        bytes: u64,
    },
    /// Store size and validator for use after a restart.
    SaveMetadata(Box<ImageMetadata>),
    /// Append the body of the response; the result is [`ImageFillResult::BodyEnded`].
    Receive {
        /// The first bytes that are here already.
        skip: u64,
        /// The most bytes that may follow them.
        bytes_max: Option<u64>,
    },
    /// Flush file and chunk list; the result is [`ImageFillResult::Hashed`].
    FinishHashing,
    /// The digest is right: mark the file as complete.
    MarkWhole {
        /// The size of the image.
        size: u64,
    },
    /// Look at the first bytes; the result is [`ImageFillResult::Magic`].
    ReadMagic,
    /// The job has ended.
    End(Result<(), ImageFillError>),
}

/// How the body of a response ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageBodyEnd {
    /// At its end.
    Complete,
    /// The connection ended, or the source stopped sending: a short reason.
    Interrupted(String),
    /// More bytes followed than announced.
    TooLong,
    /// The image was removed meanwhile.
    Removed,
}

/// The result of fetching one chunk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ChunkFetchResult {
    /// It is right and written.
    Written,
    /// The source does not serve ranges, or has other bytes.
    NotServed,
    /// The request failed: a short reason.
    Unreachable(String),
}

/// The result of an order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageFillResult {
    /// The order was carried out.
    Done,
    /// The disk of the box failed: a sentence.
    DiskFailed(String),
    /// There is no space: a sentence that says what to do.
    NoSpace(String),
    /// Of [`ImageFillOrder::Verify`].
    Checked(StoredImageCheck),
    /// Of [`ImageFillOrder::FetchChunk`].
    Chunk(ChunkFetchResult),
    /// Of [`ImageFillOrder::Request`]: the head of the response, or a short reason.
    Responded(Result<ImageSourceHead, String>),
    /// Of [`ImageFillOrder::Receive`].
    BodyEnded {
        /// Bytes that were appended since the last report.
        bytes: u64,
        /// How it ended.
        end: ImageBodyEnd,
    },
    /// Of [`ImageFillOrder::FinishHashing`].
    Hashed(Digest),
    /// Of [`ImageFillOrder::ReadMagic`].
    Magic {
        /// The first bytes are those of qcow2.
        is_qcow2: bool,
    },
}

/// A report of a job for the status of its image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageFillReport {
    /// The size of the image, if it is known.
    pub size: Option<u64>,
    /// Bytes that are here.
    pub have: u64,
    /// The state.
    pub state: ImageState,
}
