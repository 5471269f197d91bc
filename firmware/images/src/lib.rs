//! Images: which there are, and how one comes into the box and leaves it checked.
//!
//! [`Catalogue`] knows the files in the box's own directory. [`Fill`] decides how an
//! image is brought from its sources: whom to ask for which bytes, when a beginning
//! that is here may be gone on with, when it is dropped, and when to give up.
//! [`Follow`] says how far a reader may read while that goes on. [`sums`] reads
//! checksum files, [`pace`] keeps a fill from taking the
//! whole uplink, and [`space`] says who goes when there is no room. Nothing
//! here opens a file or a socket.

mod catalogue;
pub mod checksums;
mod fill;
mod image_spec;
mod progress;
pub mod rate_limit;
pub mod space;

pub use catalogue::{
    CatalogueError, CatalogueImage, IMAGES_MAX, ImageCatalogue, NAME_BYTES_MAX, is_name,
};
pub use fill::{
    ImageBodyAction, ImageFill, ImageFillError, ImageFillStep, ImageSourceHead, ImageSourceRequest,
};
pub use image_spec::{
    IMAGE_BYTES_MAX, ImageFormat, ImageKey, ImageSpec, SOURCES_MAX, digest_of, file_name,
    sources_of,
};
pub use progress::{ImageFillProgress, ImageFillVerdict};
