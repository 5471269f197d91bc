//! The texts of notes of images.

use core::fmt;

use super::{NoteKind, TransferTime};

impl NoteKind {
    /// The text of events of images.
    pub(super) fn fmt_image(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ImageFetching { image } => {
                write!(out, "image {image} is being fetched or verified")
            }
            Self::ImageUnpacking { image } => {
                write!(out, "image {image} downloaded; unpacking")
            }
            Self::ImageComplete { image, bytes } => {
                write!(
                    out,
                    "image {image} is in the cache, {bytes} bytes, its digest is right"
                )
            }
            Self::ImageCorrupt { image, chunks } => write!(
                out,
                "image {image} has changed on this box's disk in {chunks} chunks; they are \
                 fetched again"
            ),
            Self::ImageEvicted { image } => write!(out, "image {image} was evicted to free space"),
            Self::AwaitingImage { image } => {
                write!(out, "waits for image {image} to be ready")
            }
            Self::ImageRejected { image, message } => write!(
                out,
                "the agent could not write image {image}: {message}; the cached image is \
                 verified before the write is retried"
            ),
            Self::ImageAheadStarted { image } => {
                write!(out, "image {image} is being written ahead")
            }
            Self::ImageAheadWritten {
                image,
                bytes,
                took_ms,
            } => {
                let time = TransferTime(*took_ms, *bytes);
                write!(out, "image {image} written ahead, {bytes} bytes in {time}")
            }
            Self::ImageAheadFailed { image, why } => write!(
                out,
                "image {image} could not be written ahead: {why}; the node can be deployed as usual"
            ),
            Self::ImageWasOnDisk { image } => write!(
                out,
                "image {image} was already on the disk and is verified: nothing sent"
            ),
            Self::ImageFailed { why } | Self::BootFileUnverified { why } => out.write_str(why),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_written_ahead_has_size_time_and_rate() {
        let image = || "debian".to_owned();
        let written = NoteKind::ImageAheadWritten {
            image: image(),
            bytes: 104_857_600,
            took_ms: 2000,
        };
        let text = "image debian written ahead, 104857600 bytes in 2.000 s (50.0 MiB/s)";
        assert_eq!(written.to_string(), text);
        let why = "the disk is read-only".to_owned();
        let failed = NoteKind::ImageAheadFailed {
            image: image(),
            why,
        };
        let text = "image debian could not be written ahead: the disk is read-only; the node can \
                    be deployed as usual";
        assert_eq!(failed.to_string(), text);
        let found = NoteKind::ImageWasOnDisk { image: image() };
        assert!(found.to_string().ends_with("nothing sent"));
    }
}
