//! What was found for a path: a file, or an image that may still be on its way.

use std::io;
use std::os::unix::fs::MetadataExt as _;

use trivet_httpboot::{self as httpboot, Thing};
use trivet_images::Wanted;

use crate::cache::{Cache, Reader};
use crate::files::{Content, Opened};

pub(super) enum Found {
    File(Opened),
    Image(Box<Image>),
}

/// An image of the cache.
pub(super) struct Image {
    pub(super) reader: Reader,
    size: u64,
    /// The key of what is read.
    tag: String,
}

impl Found {
    /// Opens an image of the cache, which is found as soon as its size is known. An
    /// error is a sentence.
    pub(super) async fn image(cache: &Cache, wanted: &Wanted) -> Result<Self, String> {
        let mut reader = cache.reader(wanted)?;
        let size = reader.size().await?;
        let key = cache.read_key(wanted);
        let tag = key.unwrap_or_else(|| wanted.key().to_string());
        Ok(Self::Image(Box::new(Image { reader, size, tag })))
    }

    /// Whether later requests for parts of it may use it as well: it is a file, and nothing
    /// of it is still to come or known to be wrong. What is in memory is made for one request.
    pub(super) fn is_whole_file(&self) -> bool {
        match self {
            Self::File(opened) => matches!(opened.content, Content::File(_)),
            Self::Image(image) => image.reader.readable_now() == image.size,
        }
    }

    /// What the head of the answer says of it. An image is known by its digest, and a
    /// file has another tag as soon as anything of it was changed: the kernel does not
    /// let its change time be set.
    pub(super) fn thing(&self, path: &str) -> io::Result<Thing> {
        let opened = match self {
            Self::File(opened) => opened,
            Self::Image(image) => {
                return Ok(Thing {
                    size: image.size,
                    kind: httpboot::kind(path),
                    tag: Some(image.tag.clone()),
                    modified: None,
                });
            }
        };
        Ok(match &opened.content {
            Content::Bytes(bytes) => Thing {
                size: bytes.len() as u64,
                kind: httpboot::TEXT,
                tag: None,
                modified: None,
            },
            Content::File(file) => {
                let facts = file.metadata()?;
                let (inode, size) = (facts.ino(), facts.len());
                let (changed_s, and_ns) = (facts.ctime(), facts.ctime_nsec());
                Thing {
                    size,
                    kind: httpboot::kind(path),
                    tag: Some(format!("{inode:x}-{size:x}-{changed_s:x}.{and_ns:x}")),
                    modified: facts.modified().ok(),
                }
            }
        })
    }
}
