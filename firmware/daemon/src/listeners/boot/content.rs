//! The content for a path: a file, or an image that may still be being fetched.

use std::io;
use std::os::unix::fs::MetadataExt as _;

use trivet_bootfiles::{self as httpboot, BootFileMetadata};
use trivet_rack::ImageGrant;

use super::BootImageError;
use crate::cache::{ImageCache, ImageReader};
use crate::files::{OpenedFile, OpenedFileContent};

pub(super) enum BootContent {
    File(OpenedFile),
    Image(Box<CachedBootImage>),
}

/// An image of the cache.
pub(super) struct CachedBootImage {
    pub(super) reader: ImageReader,
    size: u64,
    /// The key of the file that is read.
    tag: String,
}

impl BootContent {
    /// Opens an image of the cache; waits until its size is known.
    pub(super) async fn image(
        cache: &ImageCache,
        grant: &ImageGrant,
    ) -> Result<Self, BootImageError> {
        let reader = cache.reader(grant.read.entry);
        let mut reader = reader.map_err(BootImageError::temporary)?;
        let size = match reader.size().await {
            Ok(size) => size,
            Err(why) if reader.is_wrong() => return Err(BootImageError::permanent(why)),
            Err(why) => return Err(BootImageError::temporary(why)),
        };
        let tag = reader.key().unwrap_or(grant.read.key).to_string();
        Ok(Self::Image(Box::new(CachedBootImage { reader, size, tag })))
    }

    /// Whether later range requests may use it as well: it is a complete, verified
    /// file. Content in memory is made for one request.
    pub(super) fn is_whole_file(&self) -> bool {
        match self {
            Self::File(opened) => matches!(opened.content, OpenedFileContent::File(_)),
            Self::Image(image) => image.reader.readable_now() == image.size,
        }
    }

    /// The metadata for the head of the response. The tag of an image is its digest.
    /// The tag of a file changes with every modification: the kernel does not allow
    /// setting its change time.
    pub(super) fn thing(&self, path: &str) -> io::Result<BootFileMetadata> {
        let opened = match self {
            Self::File(opened) => opened,
            Self::Image(image) => {
                return Ok(BootFileMetadata {
                    size: image.size,
                    media_type: httpboot::media_type(path),
                    etag: Some(image.tag.clone()),
                    modified: None,
                });
            }
        };
        Ok(match &opened.content {
            OpenedFileContent::Bytes(bytes) => BootFileMetadata {
                size: bytes.len() as u64,
                media_type: httpboot::TEXT,
                etag: None,
                modified: None,
            },
            // Its bytes depend on the record of a node as well.
            OpenedFileContent::Patched(file, _) => BootFileMetadata {
                size: file.metadata()?.len(),
                media_type: httpboot::media_type(path),
                etag: None,
                modified: None,
            },
            OpenedFileContent::File(file) => {
                let facts = file.metadata()?;
                let (inode, size) = (facts.ino(), facts.len());
                let (changed_s, and_ns) = (facts.ctime(), facts.ctime_nsec());
                BootFileMetadata {
                    size,
                    media_type: httpboot::media_type(path),
                    etag: Some(format!("{inode:x}-{size:x}-{changed_s:x}.{and_ns:x}")),
                    modified: facts.modified().ok(),
                }
            }
        })
    }
}
