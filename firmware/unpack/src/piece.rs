//! The output of unpacking.

/// A part of the raw image, in order without gaps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RawImagePiece<'buffer> {
    /// These bytes, at most [`crate::PIECE_BYTES`].
    Data(&'buffer [u8]),
    /// A run of zeros, in bytes.
    Zeros(u64),
}

impl RawImagePiece<'_> {
    /// Its length in bytes of the raw image.
    pub const fn bytes(&self) -> u64 {
        match *self {
            Self::Data(bytes) => bytes.len() as u64,
            Self::Zeros(bytes) => bytes,
        }
    }
}

/// The same, for readers that fill a buffer: the bytes are at the start of the buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BufferedPiece {
    Data(usize),
    Zeros(u64),
}

impl BufferedPiece {
    pub(crate) const fn bytes(&self) -> u64 {
        match *self {
            Self::Data(bytes) => bytes as u64,
            Self::Zeros(bytes) => bytes,
        }
    }

    /// The bytes at the start of the buffer; all zeros are returned as zeros.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        if are_zeros(bytes) {
            Self::Zeros(bytes.len() as u64)
        } else {
            Self::Data(bytes.len())
        }
    }
}

/// Compares in blocks, without a branch for each byte: most blocks of a disk differ from zeros
/// in their first bytes.
fn are_zeros(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let none = |block: &[u8]| block.iter().fold(0, |all, byte| all | byte) == 0;
    blocks.iter().all(|block| none(block)) && none(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zeros_are_zeros() {
        for length in [0, 1, 63, 64, 65, 1000] {
            let mut bytes = vec![0; length];
            assert_eq!(
                BufferedPiece::of(&bytes),
                BufferedPiece::Zeros(length as u64)
            );
            for at in [0, length / 2, length.saturating_sub(1)] {
                let Some(byte) = bytes.get_mut(at) else {
                    continue;
                };
                *byte = 1;
                assert_eq!(BufferedPiece::of(&bytes), BufferedPiece::Data(length));
                bytes[at] = 0;
            }
        }
    }
}
