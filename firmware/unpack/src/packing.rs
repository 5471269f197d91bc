//! The packings of images, and their detection by the first bytes.

use core::fmt;

use crate::{ReadAt, UnpackRefusal};

/// How many first bytes are needed to detect every packing.
pub const MAGIC_BYTES: usize = 6;

/// The packing of an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Packing {
    /// QEMU's disk image, version 2 or 3.
    Qcow2,
    /// A raw image, packed with zstd (RFC 8878).
    Zstd,
    /// A raw image, packed with gzip (RFC 1952).
    Gzip,
    /// A raw image, packed with xz.
    Xz,
}

impl Packing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Qcow2, Self::Zstd, Self::Gzip, Self::Xz];

    /// Detects the packing by the first bytes of an image; `None` if they match no packing. A
    /// raw image starts with a boot sector, which starts with code or zeros: its first bytes
    /// can match gzip or zstd only by a rare coincidence, and never qcow2.
    pub fn of_magic(first: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|packing| packing.begins(first))
    }

    fn begins(self, first: &[u8]) -> bool {
        match self {
            Self::Qcow2 => first.starts_with(b"QFI\xfb"),
            // RFC 8878: a frame, or a skippable frame.
            Self::Zstd => {
                first.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
                    || matches!(first, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
            }
            // RFC 1952: the magic and the only compression method.
            Self::Gzip => first.starts_with(&[0x1f, 0x8b, 8]),
            Self::Xz => first.starts_with(b"\xfd7zXZ\0"),
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Qcow2 => "qcow2",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
        })
    }
}

/// Verifies that an image starts with the magic of its declared packing.
pub(crate) fn check(declared: Packing, source: &impl ReadAt) -> Result<(), UnpackRefusal> {
    let mut first = [0; MAGIC_BYTES];
    let there = source.length().min(MAGIC_BYTES as u64) as usize;
    let first = &mut first[..there];
    source.read(first, 0)?;
    if declared.begins(first) {
        return Ok(());
    }
    Err(UnpackRefusal::WrongFormat {
        declared,
        found: Packing::of_magic(first),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packings_are_detected_by_their_first_bytes() {
        let samples: [(&[u8], Option<Packing>); 8] = [
            (b"QFI\xfb\0\0", Some(Packing::Qcow2)),
            (b"\x28\xb5\x2f\xfd", Some(Packing::Zstd)),
            (b"\x53\x2a\x4d\x18\0\0", Some(Packing::Zstd)),
            (b"\x1f\x8b\x08\0\0\0", Some(Packing::Gzip)),
            (b"\xfd7zXZ\0", Some(Packing::Xz)),
            (b"\xeb\x63\x90\0\0\0", None),
            (b"QFI", None),
            (b"", None),
        ];
        for (first, packing) in samples {
            assert_eq!(Packing::of_magic(first), packing, "{first:?}");
        }
    }

    #[test]
    fn an_image_of_another_packing_than_declared_is_refused() {
        let gzip = b"\x1f\x8b\x08\0".to_vec();
        assert_eq!(check(Packing::Gzip, &gzip), Ok(()));
        let why = check(Packing::Qcow2, &gzip).unwrap_err();
        let declared = Packing::Qcow2;
        let found = Some(Packing::Gzip);
        assert_eq!(why, UnpackRefusal::WrongFormat { declared, found });
        assert!(why.to_string().contains("gzip"), "{why}");
        let why = check(Packing::Xz, &b"no".to_vec()).unwrap_err();
        assert!(why.to_string().contains("is declared as xz"), "{why}");
    }
}
