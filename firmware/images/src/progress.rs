//! How far a reader may read of an image that is still being filled or checked.
//!
//! Everything that has come and was hashed may leave, but for the last chunk: that
//! one stays until the digest of the whole is right. So nobody can ever hold all
//! bytes of a wrong image.

use trivet_chunks::last_chunk_start;

/// How it ends with an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageFillVerdict {
    /// It goes on.
    Pending,
    /// Every byte is here and the digest is right.
    Verified,
    /// It is not to be had, or not as it should be: a sentence says why. Every reader
    /// is cut off.
    Failed(String),
}

/// What readers see of an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageFillProgress {
    /// Its size, once it is known.
    pub size: Option<u64>,
    /// Bytes from the beginning that are here and hashed.
    pub hashed: u64,
    /// How it ends.
    pub verdict: ImageFillVerdict,
}

impl ImageFillProgress {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self {
            size: None,
            hashed: 0,
            verdict: ImageFillVerdict::Pending,
        }
    }

    /// Up to which byte anybody may read now.
    pub fn readable(&self) -> u64 {
        match (&self.verdict, self.size) {
            (ImageFillVerdict::Verified, Some(size)) => size,
            // Without a size nobody knows which chunk is the last one.
            (ImageFillVerdict::Pending, Some(size)) => self.hashed.min(last_chunk_start(size)),
            (ImageFillVerdict::Pending | ImageFillVerdict::Verified, None)
            | (ImageFillVerdict::Failed(_), _) => 0,
        }
    }

    /// Whether a reader at this place has something to do: bytes to read, or an end
    /// to take notice of.
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
    fn the_last_chunk_stays_until_the_digest_is_right() {
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
    fn an_image_of_whole_chunks_keeps_one_back_as_well() {
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
    fn without_a_size_or_with_a_wrong_end_nothing_leaves() {
        assert_eq!(at(None, 9 << 20, ImageFillVerdict::Pending).readable(), 0);
        let wrong = ImageFillVerdict::Failed("x".into());
        assert_eq!(at(Some(9 << 20), 9 << 20, wrong).readable(), 0);
    }

    #[test]
    fn a_reader_is_woken_by_bytes_beyond_it_and_by_the_end() {
        let open = at(Some(9 << 20), 100, ImageFillVerdict::Pending);
        assert!(open.is_ready_at(99) && !open.is_ready_at(100));
        let wrong = at(None, 0, ImageFillVerdict::Failed("x".into()));
        assert!(wrong.is_ready_at(100));
        assert!(!ImageFillProgress::default().is_ready_at(0));
    }
}
