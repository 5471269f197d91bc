//! How far a reader may read an image that is still being fetched or verified.
//!
//! All bytes that were received and hashed may be sent to readers, except the last chunk, which
//! is held back until the digest of the whole image is right. So no node ever receives the last
//! chunk of an image whose digest is wrong.

use trivet_chunks::last_chunk_start;

/// The result of a fill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageFillVerdict {
    /// Still in progress.
    Pending,
    /// Every byte is here and the digest is right.
    Verified,
    /// The image is not available or wrong; the text gives the reason. Every reader is
    /// disconnected.
    Failed(String),
}

/// The progress of a fill, as readers see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageFillProgress {
    /// Its size, once it is known.
    pub size: Option<u64>,
    /// Bytes from the start that are here and hashed.
    pub hashed: u64,
    /// The result.
    pub verdict: ImageFillVerdict,
}

impl ImageFillProgress {
    /// The progress before the first byte.
    pub fn new() -> Self {
        Self {
            size: None,
            hashed: 0,
            verdict: ImageFillVerdict::Pending,
        }
    }

    /// Readers may read up to this byte now.
    pub fn readable(&self) -> u64 {
        match (&self.verdict, self.size) {
            (ImageFillVerdict::Verified, Some(size)) => size,
            // Without a size, the last chunk is not known.
            (ImageFillVerdict::Pending, Some(size)) => self.hashed.min(last_chunk_start(size)),
            (ImageFillVerdict::Pending | ImageFillVerdict::Verified, None)
            | (ImageFillVerdict::Failed(_), _) => 0,
        }
    }

    /// Whether a reader at this position can continue: there are bytes to read, or the fill has
    /// ended.
    pub fn is_ready_at(&self, at: u64) -> bool {
        self.verdict != ImageFillVerdict::Pending || self.readable() > at
    }
}

impl Default for ImageFillProgress {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_chunks::CHUNK_BYTES;

    fn at(size: Option<u64>, hashed: u64, ending: ImageFillVerdict) -> ImageFillProgress {
        ImageFillProgress {
            size,
            hashed,
            verdict: ending,
        }
    }

    #[test]
    fn the_last_chunk_is_held_back_until_the_digest_is_right() {
        let size = 2 * CHUNK_BYTES + 10;
        for (hashed, want) in [
            (0, 0),
            (5, 5),
            (2 * CHUNK_BYTES, 2 * CHUNK_BYTES),
            (2 * CHUNK_BYTES + 1, 2 * CHUNK_BYTES),
            (size, 2 * CHUNK_BYTES),
        ] {
            assert_eq!(
                at(Some(size), hashed, ImageFillVerdict::Pending).readable(),
                want
            );
        }
        assert_eq!(
            at(Some(size), size, ImageFillVerdict::Verified).readable(),
            size
        );
    }

    #[test]
    fn an_image_of_whole_chunks_holds_one_back_too() {
        let open = at(
            Some(2 * CHUNK_BYTES),
            2 * CHUNK_BYTES,
            ImageFillVerdict::Pending,
        );
        assert_eq!(open.readable(), CHUNK_BYTES);
        let small = at(Some(10), 10, ImageFillVerdict::Pending);
        assert_eq!(small.readable(), 0);
    }

    #[test]
    fn without_a_size_or_with_a_wrong_digest_nothing_is_sent() {
        assert_eq!(at(None, 9 << 20, ImageFillVerdict::Pending).readable(), 0);
        let wrong = ImageFillVerdict::Failed("x".into());
        assert_eq!(at(Some(9 << 20), 9 << 20, wrong).readable(), 0);
    }

    #[test]
    fn a_reader_continues_on_new_bytes_and_on_the_end() {
        let open = at(Some(9 << 20), 100, ImageFillVerdict::Pending);
        assert!(open.is_ready_at(99) && !open.is_ready_at(100));
        let wrong = at(None, 0, ImageFillVerdict::Failed("x".into()));
        assert!(wrong.is_ready_at(100));
        assert!(!ImageFillProgress::default().is_ready_at(0));
    }
}
