//! Images: the catalogue, and how an image is fetched and verified.
//!
//! [`ImageCatalogue`] lists the files in the box's own directory. [`ImageFill`] decides how an
//! image is fetched from its sources: which bytes to request from which source, when a partial
//! download can be continued, when it is dropped, and when to give up. [`ImageFillJob`] orders the
//! work on one image: verify, repair, fetch, verify the digest. [`ImageFillProgress`]
//! gives how far a reader may read meanwhile. [`checksums`] parses checksum files,
//! [`rate_limit`] keeps a fill from using the whole uplink, and [`space`] selects the images to
//! evict. Nothing here opens a file or a socket.

mod catalogue;
pub mod checksums;
mod fill;
mod fill_job;
mod image_spec;
mod library;
mod progress;
pub mod rate_limit;
pub mod simulated;
pub mod space;

pub use catalogue::{
    CatalogueError, CatalogueImage, IMAGES_MAX, ImageCatalogue, NAME_BYTES_MAX, is_name,
};
pub use fill::{
    ImageBodyAction, ImageFill, ImageFillError, ImageFillStep, ImageSourceHead, ImageSourceRequest,
};
pub use fill_job::{
    ChunkFetchResult, ImageBodyEnd, ImageFillJob, ImageFillOrder, ImageFillReport, ImageFillResult,
    ImageMetadata, REPORT_BYTES, StoredImageCheck, check_declared_format,
};
pub use image_spec::{
    IMAGE_BYTES_MAX, ImageFormat, ImageKey, ImageSpec, SOURCES_MAX, digest_of, file_name,
    sources_of,
};
pub use library::{
    FetchedFile, FileChecksum, FoundImage, FoundImages, ImageDiskError, ImageDiskUse, ImageEntryId,
    ImageEntryUse, ImageFileKind, ImageFileOrder, ImageLibrary, ImageLibraryOptions, ImageNews,
    ImageReadGrant, ImageUnpackError, ImageUploadAnswer, ImageUploadError, ImageUploadRange,
    ImageUrlAnswer, ImageWorkOrder, ImageWorkReport, LIBRARY_IMAGES_MAX, OciResolution,
    RETRY_DELAY_MS, UnpackedDiskRecord,
};
pub use progress::{ImageFillProgress, ImageFillVerdict};
