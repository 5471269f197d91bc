//! An incremental digest whose state can be saved and restored.

use sha2::block_api::{compress256, compress512};
use trivet_model::Digest;

/// Initial value of SHA-256 (FIPS 180-4, section 5.3.3).
const SHA256_INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Initial value of SHA-512 (FIPS 180-4, section 5.3.5).
const SHA512_INITIAL: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// The larger of the two block sizes.
const BLOCK_BYTES_MAX: usize = 128;

/// The hash algorithm.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DigestAlgorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl DigestAlgorithm {
    /// The algorithm of this digest.
    pub const fn of(digest: &Digest) -> Self {
        match digest {
            Digest::Sha256(_) => Self::Sha256,
            Digest::Sha512(_) => Self::Sha512,
        }
    }

    /// Bytes of a state.
    pub const fn state_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    const fn block_bytes(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// The state of a digest after whole blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DigestState {
    /// State of SHA-256.
    Sha256([u32; 8]),
    /// State of SHA-512.
    Sha512([u64; 8]),
}

impl DigestState {
    /// The initial state.
    pub const fn initial(algorithm: DigestAlgorithm) -> Self {
        match algorithm {
            DigestAlgorithm::Sha256 => Self::Sha256(SHA256_INITIAL),
            DigestAlgorithm::Sha512 => Self::Sha512(SHA512_INITIAL),
        }
    }

    const fn algorithm(&self) -> DigestAlgorithm {
        match self {
            Self::Sha256(_) => DigestAlgorithm::Sha256,
            Self::Sha512(_) => DigestAlgorithm::Sha512,
        }
    }

    /// Processes whole blocks and returns the remaining bytes.
    fn blocks<'bytes>(&mut self, bytes: &'bytes [u8]) -> &'bytes [u8] {
        match self {
            Self::Sha256(state) => {
                let (blocks, rest) = bytes.as_chunks::<64>();
                compress256(state, blocks);
                rest
            }
            Self::Sha512(state) => {
                let (blocks, rest) = bytes.as_chunks::<128>();
                compress512(state, blocks);
                rest
            }
        }
    }

    /// Encodes it for a list: its words, big-endian, as in a digest.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sha256(words) => words.iter().for_each(|word| out.extend(word.to_be_bytes())),
            Self::Sha512(words) => words.iter().for_each(|word| out.extend(word.to_be_bytes())),
        }
    }

    /// Decodes the bytes that [`Self::write`] made.
    pub fn read(algorithm: DigestAlgorithm, bytes: &[u8]) -> Option<Self> {
        match algorithm {
            DigestAlgorithm::Sha256 => {
                let (words, rest) = bytes.as_chunks::<4>();
                let words: [[u8; 4]; 8] = words.try_into().ok()?;
                rest.is_empty()
                    .then(|| Self::Sha256(words.map(u32::from_be_bytes)))
            }
            DigestAlgorithm::Sha512 => {
                let (words, rest) = bytes.as_chunks::<8>();
                let words: [[u8; 8]; 8] = words.try_into().ok()?;
                rest.is_empty()
                    .then(|| Self::Sha512(words.map(u64::from_be_bytes)))
            }
        }
    }

    fn digest(&self) -> Digest {
        let mut bytes = Vec::with_capacity(self.algorithm().state_bytes());
        self.write(&mut bytes);
        match self {
            Self::Sha256(_) => Digest::Sha256(bytes.try_into().expect("eight words of four")),
            Self::Sha512(_) => Digest::Sha512(bytes.try_into().expect("eight words of eight")),
        }
    }
}

/// A digest in progress.
#[derive(Clone, Debug)]
pub struct IncrementalDigest {
    state: DigestState,
    /// Bytes received that do not fill a block yet.
    tail: Vec<u8>,
    bytes: u64,
}

impl IncrementalDigest {
    /// A digest of no bytes yet.
    pub fn new(algorithm: DigestAlgorithm) -> Self {
        Self::resume(DigestState::initial(algorithm), 0)
    }

    /// Continues after `bytes` bytes, which must be whole blocks, from a known state.
    pub fn resume(state: DigestState, bytes: u64) -> Self {
        Self {
            state,
            tail: Vec::with_capacity(BLOCK_BYTES_MAX),
            bytes,
        }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds more bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if !self.tail.is_empty() {
            let block = self.state.algorithm().block_bytes();
            let (front, rest) = bytes.split_at(bytes.len().min(block - self.tail.len()));
            self.tail.extend_from_slice(front);
            bytes = rest;
            if self.tail.len() < block {
                return;
            }
            self.state.blocks(&self.tail);
            self.tail.clear();
        }
        let rest = self.state.blocks(bytes);
        self.tail.extend_from_slice(rest);
    }

    /// The state, if the bytes so far are whole blocks.
    pub fn state(&self) -> Option<DigestState> {
        self.tail.is_empty().then_some(self.state)
    }

    /// The digest of all bytes (FIPS 180-4, section 5.1: a one bit, zeros, and the length in
    /// bits at the end of a block).
    pub fn finish(mut self) -> Digest {
        let block = self.state.algorithm().block_bytes();
        let length_bytes = block / 8;
        let mut end = std::mem::take(&mut self.tail);
        end.push(0x80);
        let whole = (end.len() + length_bytes).next_multiple_of(block);
        end.resize(whole - length_bytes, 0);
        let bits = u128::from(self.bytes) * 8;
        let bits = bits.to_be_bytes();
        end.extend_from_slice(&bits[bits.len() - length_bytes..]);
        self.state.blocks(&end);
        self.state.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest as _;

    fn sample(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 % 251) as u8).collect()
    }

    fn want(algorithm: DigestAlgorithm, bytes: &[u8]) -> Digest {
        match algorithm {
            DigestAlgorithm::Sha256 => Digest::Sha256(sha2::Sha256::digest(bytes).into()),
            DigestAlgorithm::Sha512 => Digest::Sha512(sha2::Sha512::digest(bytes).into()),
        }
    }

    const BOTH: [DigestAlgorithm; 2] = [DigestAlgorithm::Sha256, DigestAlgorithm::Sha512];

    #[test]
    fn every_length_around_a_block_hashes_as_it_should() {
        for algorithm in BOTH {
            for length in 0..300 {
                let bytes = sample(length);
                let mut running = IncrementalDigest::new(algorithm);
                running.update(&bytes);
                assert_eq!(running.bytes(), length as u64);
                assert_eq!(running.finish(), want(algorithm, &bytes), "{length}");
            }
        }
    }

    #[test]
    fn pieces_of_any_size_make_the_same_digest() {
        let bytes = sample(1000);
        for algorithm in BOTH {
            for piece in [1, 3, 63, 64, 65, 127, 128, 129, 999] {
                let mut running = IncrementalDigest::new(algorithm);
                bytes.chunks(piece).for_each(|part| running.update(part));
                assert_eq!(running.finish(), want(algorithm, &bytes), "{piece}");
            }
        }
    }

    #[test]
    fn a_saved_state_continues_where_it_was() {
        let bytes = sample(128 * 7 + 5);
        for algorithm in BOTH {
            let mut first = IncrementalDigest::new(algorithm);
            first.update(&bytes[..256]);
            let mut written = Vec::new();
            first.state().unwrap().write(&mut written);
            assert_eq!(written.len(), algorithm.state_bytes());
            let state = DigestState::read(algorithm, &written).unwrap();
            let mut second = IncrementalDigest::resume(state, 256);
            second.update(&bytes[256..]);
            assert_eq!(second.finish(), want(algorithm, &bytes));
        }
    }

    #[test]
    fn there_is_no_state_within_a_block_and_none_of_another_length() {
        let mut running = IncrementalDigest::new(DigestAlgorithm::Sha256);
        running.update(&[0; 63]);
        assert_eq!(running.state(), None);
        running.update(&[0]);
        assert!(running.state().is_some());
        assert_eq!(DigestState::read(DigestAlgorithm::Sha256, &[0; 31]), None);
        assert_eq!(DigestState::read(DigestAlgorithm::Sha256, &[0; 33]), None);
        assert_eq!(DigestState::read(DigestAlgorithm::Sha512, &[0; 32]), None);
    }
}
