//! Reading and writing in chunks. A BMC does not announce its longest chunk, so the length begins
//! with a usual value and is halved when the BMC refuses it.

use crate::command::completion;

/// The present length of chunks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct IpmiChunkSize {
    bytes: usize,
    bytes_min: usize,
}

impl IpmiChunkSize {
    /// Chunks of this many bytes; never less than `least`.
    pub(super) fn new(bytes: usize, least: usize) -> Self {
        Self {
            bytes,
            bytes_min: least,
        }
    }

    /// The length of the next chunk of what is left.
    pub(super) fn next_len(self, left: usize) -> usize {
        self.bytes.min(left)
    }

    /// Halves the chunks, if the refusal can be about their length and they can be shorter. BMCs
    /// use one of four codes for it, or an unspecific one.
    pub(super) fn shrink(&mut self, code: u8) -> bool {
        let balks = matches!(
            code,
            completion::BAD_LENGTH
                | completion::TOO_LONG
                | completion::OUT_OF_RANGE
                | completion::TOO_MUCH
                | completion::UNSPECIFIED
        );
        let half = (self.bytes / 2).max(self.bytes_min);
        let shorter = balks && half < self.bytes;
        if shorter {
            self.bytes = half;
        }
        shorter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_down_to_the_minimum_when_the_bmc_refuses_the_length() {
        let mut piece = IpmiChunkSize::new(32, 2);
        assert!(!piece.shrink(completion::NO_PRIVILEGE));
        assert_eq!((piece.next_len(100), piece.next_len(3)), (32, 3));
        let halvings = (0..10).filter(|_| piece.shrink(0xca)).count();
        assert_eq!((halvings, piece.next_len(100)), (4, 2));
        let mut odd = IpmiChunkSize::new(5, 4);
        assert!(odd.shrink(0xc7) && !odd.shrink(0xc8));
    }
}
