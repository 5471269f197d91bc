//! How far a reader may read of an image that is still being filled or checked.
//!
//! Everything that has come and was hashed may leave, but for the last chunk: that
//! one stays until the digest of the whole is right. So nobody can ever hold all
//! bytes of a wrong image.

use trivet_chunks::last_chunk;

/// How it ends with an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ending {
    /// It goes on.
    Open,
    /// Every byte is here and the digest is right.
    Right,
    /// It is not to be had, or not as it should be: a sentence says why. Every reader
    /// is cut off.
    Wrong(String),
}

/// What readers see of an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Follow {
    /// Its size, once it is known.
    pub size: Option<u64>,
    /// Bytes from the beginning that are here and hashed.
    pub hashed: u64,
    /// How it ends.
    pub ending: Ending,
}

impl Follow {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self {
            size: None,
            hashed: 0,
            ending: Ending::Open,
        }
    }

    /// Up to which byte anybody may read now.
    pub fn readable(&self) -> u64 {
        match (&self.ending, self.size) {
            (Ending::Right, Some(size)) => size,
            // Without a size nobody knows which chunk is the last one.
            (Ending::Open, Some(size)) => self.hashed.min(last_chunk(size)),
            (Ending::Open | Ending::Right, None) | (Ending::Wrong(_), _) => 0,
        }
    }

    /// Whether a reader at this place has something to do: bytes to read, or an end
    /// to take notice of.
    pub fn concerns(&self, at: u64) -> bool {
        self.ending != Ending::Open || self.readable() > at
    }
}

impl Default for Follow {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_chunks::CHUNK_BYTES;

    fn at(size: Option<u64>, hashed: u64, ending: Ending) -> Follow {
        Follow {
            size,
            hashed,
            ending,
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
            assert_eq!(at(Some(size), hashed, Ending::Open).readable(), want);
        }
        assert_eq!(at(Some(size), size, Ending::Right).readable(), size);
    }

    #[test]
    fn an_image_of_whole_chunks_keeps_one_back_as_well() {
        let open = at(Some(2 * CHUNK_BYTES), 2 * CHUNK_BYTES, Ending::Open);
        assert_eq!(open.readable(), CHUNK_BYTES);
        let small = at(Some(10), 10, Ending::Open);
        assert_eq!(small.readable(), 0);
    }

    #[test]
    fn without_a_size_or_with_a_wrong_end_nothing_leaves() {
        assert_eq!(at(None, 9 << 20, Ending::Open).readable(), 0);
        let wrong = Ending::Wrong("x".into());
        assert_eq!(at(Some(9 << 20), 9 << 20, wrong).readable(), 0);
    }

    #[test]
    fn a_reader_is_woken_by_bytes_beyond_it_and_by_the_end() {
        let open = at(Some(9 << 20), 100, Ending::Open);
        assert!(open.concerns(99) && !open.concerns(100));
        let wrong = at(None, 0, Ending::Wrong("x".into()));
        assert!(wrong.concerns(100));
        assert!(!Follow::default().concerns(0));
    }
}
