//! Why an image is not unpacked, and what to do about it.

use crate::{Packing, RAW_BYTES_MAX, WINDOW_BYTES_MAX};

/// Why an image is not unpacked. Each text is a sentence without its subject, the image name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnpackRefusal {
    /// The packed image cannot be read here.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Its first bytes are those of another format.
    #[error("is declared as {declared}, but {}; correct its format", found_words(*.found))]
    WrongFormat {
        /// The declared packing.
        declared: Packing,
        /// The detected packing, if there is one.
        found: Option<Packing>,
    },
    /// It is truncated.
    #[error("is cut short: the {packing} ends within {what}; pack and publish it again")]
    CutShort {
        /// The packing.
        packing: Packing,
        /// The part in which it ends.
        what: &'static str,
    },
    /// Something in it is wrong.
    #[error("is not a valid {packing}: {why}; pack and publish it again")]
    Damaged {
        /// The packing.
        packing: Packing,
        /// What is wrong.
        why: String,
    },
    /// The raw image would exceed [`RAW_BYTES_MAX`].
    #[error("has {bytes} bytes or more when unpacked; the most is {RAW_BYTES_MAX}")]
    TooLarge {
        /// The size of the raw image, as far as it is known.
        bytes: u64,
    },
    /// A stream needs a larger window than [`WINDOW_BYTES_MAX`].
    #[error(
        "needs more than {} MiB of memory to unpack; pack it with a smaller window \
         (zstd --long=27, xz -9 at most)", WINDOW_BYTES_MAX >> 20
    )]
    Window,
    /// A qcow2 of another version.
    #[error(
        "is a qcow2 of version {0}, which is not supported; convert it with: \
         qemu-img convert -O qcow2 OLD NEW"
    )]
    Version(u32),
    /// A qcow2 with a backing file.
    #[error(
        "has a backing file ({0}), and nothing outside an image is read; flatten it with: \
         qemu-img convert -O qcow2 OLD NEW"
    )]
    BackingFile(String),
    /// A qcow2 with an external data file.
    #[error(
        "has its bytes in an external data file ({0}), and nothing outside an image is read; \
         put it into one file with: qemu-img convert -O qcow2 OLD NEW"
    )]
    DataFile(String),
    /// A qcow2 that is encrypted.
    #[error(
        "is encrypted ({0}), and there is no key here; decrypt it with: \
         qemu-img convert --image-opts ... -O qcow2 NEW"
    )]
    Encrypted(&'static str),
    /// A qcow2 with unknown incompatible features.
    #[error(
        "needs unknown features of qcow2 (incompatible bits {0:#x}); convert it \
         with: qemu-img convert -O qcow2 -o compat=1.1 OLD NEW"
    )]
    Features(u64),
    /// A qcow2 that its writer marked as corrupt.
    #[error("is marked as corrupt; repair it with: qemu-img check -r all FILE")]
    Corrupt,
    /// A table or cluster of a qcow2 is not within the file.
    #[error(
        "is cut short or damaged: {what} at byte {at} is outside the file of {length} bytes; \
         check it with: qemu-img check FILE"
    )]
    Outside {
        /// The name of the part.
        what: &'static str,
        /// Its offset.
        at: u64,
        /// Bytes of the file.
        length: u64,
    },
    /// Parts of a qcow2 overlap.
    #[error(
        "is damaged: its tables refer to more bytes than the file has, so to some of them twice; \
         look with: qemu-img check FILE"
    )]
    Overlap,
}

impl UnpackRefusal {
    pub(crate) fn damaged(packing: Packing, why: impl Into<String>) -> Self {
        let why = why.into();
        Self::Damaged { packing, why }
    }
}

fn found_words(found: Option<Packing>) -> String {
    match found {
        Some(packing) => format!("its first bytes are those of {packing}"),
        None => "its first bytes are not".to_owned(),
    }
}
