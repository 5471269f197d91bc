//! Records which disk was unpacked from which packed image.
//!
//! The record outlives the packed image, which is evicted first: its disk can still be
//! read, and the packed image can be fetched again if the disk must be rebuilt.

use std::io;
use std::path::Path;

use serde_json::json;
use trivet_images::{ImageKey, ImageSpec};

use super::entry::{read_record, spec_of_record, write_record};

/// The disk that was unpacked from an image.
#[derive(Clone)]
pub(super) struct DerivedImage {
    /// The packed image.
    pub(super) spec: ImageSpec,
    /// Bytes of the packed image.
    pub(super) size: u64,
    /// The key of the disk.
    pub(super) raw: ImageKey,
    /// Bytes of the disk.
    pub(super) raw_size: u64,
}

impl DerivedImage {
    /// The key of the packed image.
    pub(super) fn key(&self) -> String {
        self.spec.key().to_string()
    }

    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        let text = json!({
            "name": self.spec.name,
            "sources": self.spec.sources,
            "format": self.spec.format.name(),
            "size": self.size,
            "raw": self.raw.to_string(),
            "raw_size": self.raw_size,
        });
        write_record(root, &format!("{}.disk", self.key()), &text)
    }

    pub(super) fn read(root: &Path, key: &str) -> Option<Self> {
        let value = read_record(&root.join(format!("{key}.disk")))?;
        let wanted = spec_of_record(key, &value)?;
        Some(Self {
            size: value["size"].as_u64()?,
            raw: ImageKey::parse(value["raw"].as_str()?)?,
            raw_size: value["raw_size"].as_u64()?,
            spec: wanted,
        })
    }

    pub(super) fn remove(root: &Path, key: &str) {
        // A file that cannot be removed now is ignored at the next start, as its images
        // are gone.
        let _ = std::fs::remove_file(root.join(format!("{key}.disk")));
    }
}
