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
mod fill;
mod follow;
pub mod pace;
pub mod space;
pub mod sums;
mod wanted;

pub use catalogue::{Catalogue, IMAGES_MAX, Image, ListError, NAME_BYTES_MAX, is_name};
pub use fill::{Ask, Failure, Fill, Head, Next, Taken};
pub use follow::{Ending, Follow};
pub use wanted::{
    Format, IMAGE_BYTES_MAX, Key, SOURCES_MAX, Wanted, digest_of, file_name, sources_of,
};
