//! The chunk list of an image.

use trivet_model::Digest;

use crate::incremental::{DigestAlgorithm, DigestState, IncrementalDigest};
use crate::{CHUNK_BYTES, CHUNKS_MAX, chunk_count};

/// Longest list that is accepted.
pub const LIST_BYTES_MAX: u64 = CHUNKS_MAX * 64;

/// The states at the ends of an image's chunks, as far as they are known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChunkList {
    algorithm: DigestAlgorithm,
    states: Vec<DigestState>,
}

/// Why a list is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChunkListError {
    /// Its length is not a multiple of the state size.
    #[error("the list is cut short")]
    Truncated,
    /// It has more than [`CHUNKS_MAX`] states.
    #[error("the list has more than {CHUNKS_MAX} chunks")]
    TooLong,
}

impl ChunkList {
    /// An empty list, for an image with this digest.
    pub fn new(want: &Digest) -> Self {
        Self {
            algorithm: DigestAlgorithm::of(want),
            states: Vec::new(),
        }
    }

    /// Decodes bytes that [`Self::bytes`] made.
    pub fn read(want: &Digest, bytes: &[u8]) -> Result<Self, ChunkListError> {
        let algorithm = DigestAlgorithm::of(want);
        let parts = bytes.chunks_exact(algorithm.state_bytes());
        if !parts.remainder().is_empty() {
            return Err(ChunkListError::Truncated);
        }
        if parts.len() as u64 > CHUNKS_MAX {
            return Err(ChunkListError::TooLong);
        }
        let states: Option<Vec<DigestState>> = parts
            .map(|part| DigestState::read(algorithm, part))
            .collect();
        let states = states.ok_or(ChunkListError::Truncated)?;
        Ok(Self { algorithm, states })
    }

    /// All states, first to last.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.states.len() * self.algorithm.state_bytes());
        self.states.iter().for_each(|state| state.write(&mut out));
        out
    }

    /// How many states are known, which is the number of hashed chunks.
    pub fn known_chunks(&self) -> u64 {
        self.states.len() as u64
    }

    /// Adds the state after the next chunk.
    pub fn push(&mut self, state: DigestState) {
        self.states.push(state);
    }

    /// Drops all states after the first `known`.
    pub fn truncate(&mut self, known: u64) {
        self.states
            .truncate(usize::try_from(known).unwrap_or(usize::MAX));
    }

    /// The digest in progress before this chunk; `None` if the list is too short.
    pub fn digest_before(&self, chunk: u64) -> Option<IncrementalDigest> {
        let bytes = chunk.checked_mul(CHUNK_BYTES)?;
        let state = match chunk.checked_sub(1) {
            None => DigestState::initial(self.algorithm),
            Some(last) => *self.states.get(usize::try_from(last).ok()?)?,
        };
        Some(IncrementalDigest::resume(state, bytes))
    }

    /// Whether these are the bytes of this chunk of an image of this size. The last chunk is
    /// valid if the result is the digest.
    pub fn is_chunk_valid(&self, chunk: u64, bytes: &[u8], size: u64, want: &Digest) -> bool {
        let last = chunk + 1 == chunk_count(size);
        let length = if last {
            size - chunk * CHUNK_BYTES
        } else {
            CHUNK_BYTES
        };
        let Some(mut running) = self.digest_before(chunk) else {
            return false;
        };
        if bytes.len() as u64 != length {
            return false;
        }
        running.update(bytes);
        if last {
            return running.finish() == *want;
        }
        let after = usize::try_from(chunk)
            .ok()
            .and_then(|at| self.states.get(at));
        after.is_some() && running.state().as_ref() == after
    }

    /// Whether every chunk but the last has its state.
    pub fn is_complete(&self, size: u64) -> bool {
        self.known_chunks() + 1 == chunk_count(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last_chunk_start;

    const CHUNK: usize = CHUNK_BYTES as usize;

    /// An image of three chunks, the last of them short.
    fn sample() -> Vec<u8> {
        (0..2 * CHUNK + 1000)
            .map(|at| (at * 131 % 249) as u8)
            .collect()
    }

    fn listed(image: &[u8], algorithm: DigestAlgorithm) -> (ChunkList, Digest) {
        let mut running = IncrementalDigest::new(algorithm);
        let mut states = Vec::new();
        for chunk in image.chunks(CHUNK) {
            running.update(chunk);
            if running.bytes() < image.len() as u64 {
                states.push(running.state().unwrap());
            }
        }
        (ChunkList { algorithm, states }, running.finish())
    }

    #[test]
    fn each_chunk_is_verified_by_the_states_around_it() {
        let image = sample();
        let size = image.len() as u64;
        for algorithm in [DigestAlgorithm::Sha256, DigestAlgorithm::Sha512] {
            let (list, want) = listed(&image, algorithm);
            assert!(list.is_complete(size));
            for (at, chunk) in image.chunks(CHUNK).enumerate() {
                assert!(list.is_chunk_valid(at as u64, chunk, size, &want), "{at}");
                let mut corrupt = chunk.to_vec();
                *corrupt.last_mut().unwrap() ^= 1;
                assert!(
                    !list.is_chunk_valid(at as u64, &corrupt, size, &want),
                    "{at}"
                );
                let short = &chunk[1..];
                assert!(!list.is_chunk_valid(at as u64, short, size, &want), "{at}");
            }
            assert!(!list.is_chunk_valid(3, &[], size, &want));
        }
    }

    #[test]
    fn a_wrong_list_does_not_make_a_wrong_chunk_right() {
        let image = sample();
        let size = image.len() as u64;
        let (mut list, want) = listed(&image, DigestAlgorithm::Sha256);
        let (other, _) = listed(&vec![7; image.len()], DigestAlgorithm::Sha256);
        list.states[0] = other.states[0];
        // The forged chunk is accepted, but the next chunks no longer result in the digest.
        assert!(list.is_chunk_valid(0, &vec![7; CHUNK], size, &want));
        assert!(!list.is_chunk_valid(1, &image[CHUNK..2 * CHUNK], size, &want));
    }

    #[test]
    fn a_list_decodes_and_rejects_other_bytes() {
        let (list, want) = listed(&sample(), DigestAlgorithm::Sha512);
        let bytes = list.bytes();
        assert_eq!(ChunkList::read(&want, &bytes), Ok(list));
        assert_eq!(
            ChunkList::read(&want, &bytes[1..]),
            Err(ChunkListError::Truncated)
        );
        assert_eq!(ChunkList::read(&want, &[]), Ok(ChunkList::new(&want)));
    }

    #[test]
    fn a_truncated_list_verifies_less() {
        let image = sample();
        let (mut list, want) = listed(&image, DigestAlgorithm::Sha256);
        list.truncate(1);
        assert_eq!(list.known_chunks(), 1);
        assert!(!list.is_complete(image.len() as u64));
        assert!(list.digest_before(1).is_some() && list.digest_before(2).is_none());
        let last = &image[2 * CHUNK..];
        assert!(!list.is_chunk_valid(2, last, image.len() as u64, &want));
    }

    #[test]
    fn small_images_have_one_chunk() {
        assert_eq!((chunk_count(0), last_chunk_start(0)), (1, 0));
        assert_eq!((chunk_count(1), last_chunk_start(1)), (1, 0));
        assert_eq!(
            (chunk_count(CHUNK_BYTES), last_chunk_start(CHUNK_BYTES)),
            (1, 0)
        );
        let more = CHUNK_BYTES + 1;
        assert_eq!(
            (chunk_count(more), last_chunk_start(more)),
            (2, CHUNK_BYTES)
        );
        let (list, want) = listed(b"", DigestAlgorithm::Sha256);
        assert!(list.is_chunk_valid(0, b"", 0, &want));
    }
}
