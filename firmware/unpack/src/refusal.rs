//! Why an image is not unpacked, and what to do about it.

use crate::{Packing, RAW_BYTES_MAX, WINDOW_BYTES_MAX};

/// An image is not unpacked. Each is a sentence that goes on from the image's name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnpackRefusal {
    /// The packed image cannot be read here.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Its first bytes are those of something else.
    #[error("is said to be {said}, but {}; say which format it has", found_words(*.found))]
    WrongFormat {
        /// What it should be.
        said: Packing,
        /// What it is, if that is known.
        found: Option<Packing>,
    },
    /// It ends too soon.
    #[error("is cut short: the {packing} ends within {what}; pack and publish it again")]
    CutShort {
        /// What it is.
        packing: Packing,
        /// Where it ends.
        what: &'static str,
    },
    /// Something in it is wrong.
    #[error("is no whole {packing}: {why}; pack and publish it again")]
    Damaged {
        /// What it is.
        packing: Packing,
        /// What is wrong.
        why: String,
    },
    /// Unpacked, it would be larger than any image may be.
    #[error("has {bytes} bytes or more when unpacked; the most is {RAW_BYTES_MAX}")]
    TooLarge {
        /// How large it would be, as far as that is known.
        bytes: u64,
    },
    /// A stream refers to bytes that lie too far back.
    #[error(
        "needs more than {} MiB of memory to unpack; pack it with a smaller window \
         (zstd --long=27, xz -9 at most)", WINDOW_BYTES_MAX >> 20
    )]
    Window,
    /// A qcow2 of another version.
    #[error(
        "is a qcow2 of version {0}, which nobody here reads; make it anew with: \
         qemu-img convert -O qcow2 OLD NEW"
    )]
    Version(u32),
    /// A qcow2 that is only the changes to another image.
    #[error(
        "has a backing file ({0}), and nothing outside an image is read; flatten it with: \
         qemu-img convert -O qcow2 OLD NEW"
    )]
    BackingFile(String),
    /// A qcow2 whose bytes are in another file.
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
    /// A qcow2 that cannot be read without knowing what these bits mean.
    #[error(
        "needs features of qcow2 that are not known here (incompatible bits {0:#x}); make it \
         anew with: qemu-img convert -O qcow2 -o compat=1.1 OLD NEW"
    )]
    Features(u64),
    /// A qcow2 that was marked as corrupt by who wrote it.
    #[error("is marked as corrupt; repair it with: qemu-img check -r all FILE")]
    Corrupt,
    /// A table or cluster of a qcow2 is not within the file.
    #[error(
        "is cut short or damaged: {what} at byte {at} lies outside the file of {length} bytes; \
         look with: qemu-img check FILE"
    )]
    Outside {
        /// Which part.
        what: &'static str,
        /// Where it should begin.
        at: u64,
        /// Bytes of the file.
        length: u64,
    },
    /// Parts of a qcow2 that should be apart are the same.
    #[error(
        "is damaged: its tables name more bytes than the file has, so some of them twice; \
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
