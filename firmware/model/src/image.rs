//! What becomes of an image in the cache.

use core::fmt;

use crate::Digest;

/// The largest image. Ours: a chunk list has no more chunks.
pub const IMAGE_BYTES_MAX: u64 = 1 << 44;

/// What the bytes of an image are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ImageFormat {
    /// A disk, byte for byte.
    #[default]
    Raw,
    /// A disk compressed with zstd.
    Zstd,
    /// A disk compressed with gzip.
    Gzip,
    /// A disk compressed with xz.
    Xz,
    /// A disk as QEMU keeps it.
    Qcow2,
    /// A disc that boots as it is.
    Iso,
    /// A Linux kernel.
    Kernel,
    /// The initial ramdisk of a kernel.
    Ramdisk,
}

impl ImageFormat {
    /// All of them.
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

    /// What people and records call it.
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

    /// What the end of a file's name, or of a URL's path, promises; raw where it
    /// promises nothing.
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
        // A kernel takes its ramdisk out of the packing itself.
        let boots = ["initrd", "initramfs", "ramdisk"];
        if found.is_packed() && boots.iter().any(|word| name.contains(word)) {
            return Self::Ramdisk;
        }
        found
    }

    /// Nodes get another file than this one: the disk that is in it.
    pub fn is_packed(self) -> bool {
        matches!(self, Self::Zstd | Self::Gzip | Self::Xz | Self::Qcow2)
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The disk that was in a packed image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnpackedImage {
    /// What it hashes to.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

/// How it stands with an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageState {
    /// It comes from its source, or is checked.
    Fetching,
    /// It is here, and the disk in it is being taken out.
    Unpacking,
    /// So many of its chunks have changed on the disk; they are fetched again.
    Corrupt(u64),
    /// All of it is here and right.
    Complete,
    /// It made room for another.
    Evicted,
    /// It is not to be had now: the whole sentence.
    Failed(String),
    /// What the source has is not this image, or not of this format: the whole sentence. A
    /// retry without a change by the operator gives the same result.
    Wrong(String),
}

impl ImageState {
    /// Why the image cannot be used, if it cannot.
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
            Self::Fetching => "filling",
            Self::Unpacking => "unpacking",
            Self::Corrupt(_) => "rotten",
            Self::Complete => "whole",
            Self::Evicted => "absent",
            Self::Failed(_) | Self::Wrong(_) => "failed",
        })
    }
}

/// News of an image, from the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageStatus {
    /// What it is called in the cache.
    pub key: String,
    /// What people call it.
    pub name: String,
    /// What it must hash to.
    pub digest: Digest,
    /// What its bytes are expected to be.
    pub format: ImageFormat,
    /// Its bytes, once that is known.
    pub size: Option<u64>,
    /// Bytes that are here.
    pub present_bytes: u64,
    /// How it stands.
    pub state: ImageState,
    /// Of a packed image: the disk in it, once that is in the cache.
    pub raw: Option<UnpackedImage>,
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
    fn the_end_of_a_name_promises_a_format() {
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
