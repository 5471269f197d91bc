//! The chunk list of an image.

use trivet_model::Digest;

use crate::running::{Algorithm, Running, State};
use crate::{CHUNK_BYTES, CHUNKS_MAX, chunks};

/// Longest list that is read.
pub const LIST_BYTES_MAX: u64 = CHUNKS_MAX * 64;

/// The states at the ends of an image's chunks, as far as they are known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct List {
    algorithm: Algorithm,
    states: Vec<State>,
}

/// A list cannot be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadList {
    /// It is not a whole number of states.
    #[error("the list is cut short")]
    Cut,
    /// It has too many.
    #[error("the list has more than {CHUNKS_MAX} chunks")]
    Long,
}

impl List {
    /// An empty list, for an image with this digest.
    pub fn new(want: &Digest) -> Self {
        Self {
            algorithm: Algorithm::of(want),
            states: Vec::new(),
        }
    }

    /// From bytes that [`Self::bytes`] made.
    pub fn read(want: &Digest, bytes: &[u8]) -> Result<Self, BadList> {
        let algorithm = Algorithm::of(want);
        let parts = bytes.chunks_exact(algorithm.state_bytes());
        if !parts.remainder().is_empty() {
            return Err(BadList::Cut);
        }
        if parts.len() as u64 > CHUNKS_MAX {
            return Err(BadList::Long);
        }
        let states: Option<Vec<State>> = parts.map(|part| State::read(algorithm, part)).collect();
        let states = states.ok_or(BadList::Cut)?;
        Ok(Self { algorithm, states })
    }

    /// All states, first to last.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.states.len() * self.algorithm.state_bytes());
        self.states.iter().for_each(|state| state.write(&mut out));
        out
    }

    /// How many states are known: chunks whose end was reached.
    pub fn known(&self) -> u64 {
        self.states.len() as u64
    }

    /// Adds the state after the next chunk.
    pub fn push(&mut self, state: State) {
        self.states.push(state);
    }

    /// Forgets all states after the first so many.
    pub fn keep(&mut self, known: u64) {
        self.states
            .truncate(usize::try_from(known).unwrap_or(usize::MAX));
    }

    /// The digest under way before this chunk; none where the list does not reach.
    pub fn before(&self, chunk: u64) -> Option<Running> {
        let bytes = chunk.checked_mul(CHUNK_BYTES)?;
        let state = match chunk.checked_sub(1) {
            None => State::begin(self.algorithm),
            Some(last) => *self.states.get(usize::try_from(last).ok()?)?,
        };
        Some(Running::resume(state, bytes))
    }

    /// Whether these are the bytes of this chunk of an image of this size. The last
    /// chunk is right if it leads to the digest.
    pub fn is_right(&self, chunk: u64, bytes: &[u8], size: u64, want: &Digest) -> bool {
        let last = chunk + 1 == chunks(size);
        let length = if last {
            size - chunk * CHUNK_BYTES
        } else {
            CHUNK_BYTES
        };
        let Some(mut running) = self.before(chunk) else {
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
    pub fn is_whole(&self, size: u64) -> bool {
        self.known() + 1 == chunks(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last_chunk;

    const CHUNK: usize = CHUNK_BYTES as usize;

    /// An image of three chunks, the last of them short.
    fn sample() -> Vec<u8> {
        (0..2 * CHUNK + 1000)
            .map(|at| (at * 131 % 249) as u8)
            .collect()
    }

    fn listed(image: &[u8], algorithm: Algorithm) -> (List, Digest) {
        let mut running = Running::new(algorithm);
        let mut states = Vec::new();
        for chunk in image.chunks(CHUNK) {
            running.update(chunk);
            if running.bytes() < image.len() as u64 {
                states.push(running.state().unwrap());
            }
        }
        (List { algorithm, states }, running.finish())
    }

    #[test]
    fn each_chunk_is_known_from_its_neighbours() {
        let image = sample();
        let size = image.len() as u64;
        for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
            let (list, want) = listed(&image, algorithm);
            assert!(list.is_whole(size));
            for (at, chunk) in image.chunks(CHUNK).enumerate() {
                assert!(list.is_right(at as u64, chunk, size, &want), "{at}");
                let mut rotten = chunk.to_vec();
                *rotten.last_mut().unwrap() ^= 1;
                assert!(!list.is_right(at as u64, &rotten, size, &want), "{at}");
                let short = &chunk[1..];
                assert!(!list.is_right(at as u64, short, size, &want), "{at}");
            }
            assert!(!list.is_right(3, &[], size, &want));
        }
    }

    #[test]
    fn a_wrong_list_does_not_make_a_wrong_chunk_right() {
        let image = sample();
        let size = image.len() as u64;
        let (mut list, want) = listed(&image, Algorithm::Sha256);
        let (other, _) = listed(&vec![7; image.len()], Algorithm::Sha256);
        list.states[0] = other.states[0];
        // The forged chunk is taken, but what follows no longer leads to the digest.
        assert!(list.is_right(0, &vec![7; CHUNK], size, &want));
        assert!(!list.is_right(1, &image[CHUNK..2 * CHUNK], size, &want));
    }

    #[test]
    fn a_list_reads_back_and_refuses_other_bytes() {
        let (list, want) = listed(&sample(), Algorithm::Sha512);
        let bytes = list.bytes();
        assert_eq!(List::read(&want, &bytes), Ok(list));
        assert_eq!(List::read(&want, &bytes[1..]), Err(BadList::Cut));
        assert_eq!(List::read(&want, &[]), Ok(List::new(&want)));
    }

    #[test]
    fn a_list_that_is_cut_knows_less() {
        let image = sample();
        let (mut list, want) = listed(&image, Algorithm::Sha256);
        list.keep(1);
        assert_eq!(list.known(), 1);
        assert!(!list.is_whole(image.len() as u64));
        assert!(list.before(1).is_some() && list.before(2).is_none());
        let last = &image[2 * CHUNK..];
        assert!(!list.is_right(2, last, image.len() as u64, &want));
    }

    #[test]
    fn small_images_have_one_chunk() {
        assert_eq!((chunks(0), last_chunk(0)), (1, 0));
        assert_eq!((chunks(1), last_chunk(1)), (1, 0));
        assert_eq!((chunks(CHUNK_BYTES), last_chunk(CHUNK_BYTES)), (1, 0));
        let more = CHUNK_BYTES + 1;
        assert_eq!((chunks(more), last_chunk(more)), (2, CHUNK_BYTES));
        let (list, want) = listed(b"", Algorithm::Sha256);
        assert!(list.is_right(0, b"", 0, &want));
    }
}
