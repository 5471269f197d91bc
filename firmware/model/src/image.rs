//! The state of an image in the cache.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::state::UnknownWord;

/// The largest image, in bytes. Ours: a chunk list has no more chunks.
pub const IMAGE_BYTES_MAX: u64 = 1 << 44;

/// The format of an image.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// A disk image without any encoding.
    #[default]
    Raw,
    /// A disk compressed with zstd.
    Zstd,
    /// A disk compressed with gzip.
    Gzip,
    /// A disk compressed with xz.
    Xz,
    /// A disk image in QEMU's format.
    Qcow2,
    /// An ISO 9660 image that boots unchanged.
    Iso,
    /// A Linux kernel.
    Kernel,
    /// The initial ramdisk of a kernel.
    Ramdisk,
}

impl ImageFormat {
    /// All formats.
    pub const ALL: [Self; 8] = [
        Self::Raw,
        Self::Zstd,
        Self::Gzip,
        Self::Xz,
        Self::Qcow2,
        Self::Iso,
        Self::Kernel,
        Self::Ramdisk,
    ];

    /// The name in messages and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Qcow2 => "qcow2",
            Self::Iso => "iso",
            Self::Kernel => "kernel",
            Self::Ramdisk => "ramdisk",
        }
    }

    /// From [`Self::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format by the suffix of a file name or of a URL's path; raw where the suffix is
    /// unknown.
    pub fn of_file_name(name: &str) -> Self {
        let path = name.split(['?', '#']).next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let name = name.to_ascii_lowercase();
        let ends: [(&str, Self); 7] = [
            (".qcow2", Self::Qcow2),
            (".zst", Self::Zstd),
            (".zstd", Self::Zstd),
            (".gz", Self::Gzip),
            (".xz", Self::Xz),
            (".iso", Self::Iso),
            (".qcow", Self::Qcow2),
        ];
        let found = ends.into_iter().find(|(end, _)| name.ends_with(end));
        let found = found.map_or(Self::Raw, |(_, format)| format);
        // A kernel unpacks its ramdisk itself.
        let boots = ["initrd", "initramfs", "ramdisk"];
        if found.is_packed() && boots.iter().any(|word| name.contains(word)) {
            return Self::Ramdisk;
        }
        found
    }

    /// Whether nodes receive another file than this one: the disk image unpacked from it.
    pub fn is_packed(self) -> bool {
        matches!(self, Self::Zstd | Self::Gzip | Self::Xz | Self::Qcow2)
    }
}

impl FromStr for ImageFormat {
    type Err = UnknownWord;

    fn from_str(name: &str) -> Result<Self, UnknownWord> {
        Self::parse(name).ok_or(UnknownWord)
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The disk image that was unpacked from a packed image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnpackedImage {
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
}

/// The state of an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageState {
    /// It is being fetched from its source, or verified.
    Fetching,
    /// It is in the cache, and its disk image is being unpacked.
    Unpacking,
    /// This many of its chunks have changed on the disk; they are fetched again.
    Corrupt(u64),
    /// All of it is in the cache and verified.
    Complete,
    /// It was evicted to free space for another.
    Evicted,
    /// It is not available now: the whole error message.
    Failed(String),
    /// The source has another image, or one of another format: the whole error message. A retry
    /// without a change by the operator gives the same result.
    Wrong(String),
}

impl ImageState {
    /// Why the image cannot be used, if so.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) | Self::Wrong(why) => Some(why),
            _ => None,
        }
    }
}

impl fmt::Display for ImageState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Fetching => "fetching",
            Self::Unpacking => "unpacking",
            Self::Corrupt(_) => "corrupt",
            Self::Complete => "complete",
            Self::Evicted => "not_cached",
            Self::Failed(_) | Self::Wrong(_) => "failed",
        })
    }
}

/// The status of an image, from the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageStatus {
    /// Its key in the cache.
    pub key: String,
    /// Its name in messages.
    pub name: String,
    /// The expected digest.
    pub digest: Digest,
    /// The expected format.
    pub format: ImageFormat,
    /// Its size in bytes, once that is known.
    pub size: Option<u64>,
    /// Bytes that are in the cache.
    pub present_bytes: u64,
    /// Its state.
    pub state: ImageState,
    /// For a packed image: its disk image, once that is in the cache.
    pub raw: Option<UnpackedImage>,
}

impl ImageStatus {
    /// The key among all statuses: two entries of the catalogue can have the same bytes in
    /// different formats, and only one of them can be right.
    pub fn view_key(key: &str, format: ImageFormat) -> String {
        format!("{key}.{format}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_known_by_its_name() {
        for format in ImageFormat::ALL {
            assert_eq!(ImageFormat::parse(format.name()), Some(format));
        }
        assert_eq!(ImageFormat::parse("vmdk"), None);
    }

    #[test]
    fn the_suffix_of_a_name_selects_a_format() {
        let of = ImageFormat::of_file_name;
        assert_eq!(of("debian.QCOW2"), ImageFormat::Qcow2);
        assert_eq!(of("disk.raw.zst"), ImageFormat::Zstd);
        assert_eq!(of("disk.img.gz"), ImageFormat::Gzip);
        assert_eq!(of("disk.raw.xz"), ImageFormat::Xz);
        assert_eq!(of("live.iso"), ImageFormat::Iso);
        assert_eq!(of("initrd.gz"), ImageFormat::Ramdisk);
        assert_eq!(of("http://h/ramdisks/disk.gz?x=.xz"), ImageFormat::Gzip);
        assert_eq!(of("disk.raw"), ImageFormat::Raw);
        assert_eq!(of(""), ImageFormat::Raw);
    }
}
