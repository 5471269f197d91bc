//! Which disk was in which packed image.
//!
//! A link outlives the image, which goes first when room is needed: its disk can still
//! be read, and the image be fetched again if the disk has to be made anew.

use std::io;
use std::path::Path;

use serde_json::json;
use trivet_images::{Key, Wanted};

use super::entry::{read_text, wanted, write_text};

/// The disk that was in an image.
#[derive(Clone)]
pub(super) struct Link {
    /// The packed image.
    pub(super) wanted: Wanted,
    /// Bytes of the packed image.
    pub(super) size: u64,
    /// The disk.
    pub(super) raw: Key,
    /// Bytes of the disk.
    pub(super) raw_size: u64,
}

impl Link {
    /// The key of the packed image.
    pub(super) fn key(&self) -> String {
        self.wanted.key().to_string()
    }

    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        let text = json!({
            "name": self.wanted.name,
            "sources": self.wanted.sources,
            "format": self.wanted.format.name(),
            "size": self.size,
            "raw": self.raw.to_string(),
            "raw_size": self.raw_size,
        });
        write_text(root, &format!("{}.disk", self.key()), &text)
    }

    pub(super) fn read(root: &Path, key: &str) -> Option<Self> {
        let value = read_text(&root.join(format!("{key}.disk")))?;
        let wanted = wanted(key, &value)?;
        Some(Self {
            size: value["size"].as_u64()?,
            raw: Key::parse(value["raw"].as_str()?)?,
            raw_size: value["raw_size"].as_u64()?,
            wanted,
        })
    }

    pub(super) fn remove(root: &Path, key: &str) {
        // What cannot be removed now leads nowhere at the next start.
        let _ = std::fs::remove_file(root.join(format!("{key}.disk")));
    }
}
