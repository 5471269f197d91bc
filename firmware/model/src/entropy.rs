//! Randomness as an argument.

/// A source of random bytes. The shell passes the operating system's, the simulator passes
/// [`SeededRandom`].
pub trait Entropy {
    /// Fills `out` with random bytes.
    fn fill(&mut self, out: &mut [u8]);

    /// A random number.
    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// A replayable source (SplitMix64). For tests and the simulator only: its output can be
/// predicted, so no secret may come from it in the product.
#[derive(Clone, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// A source that always returns the same bytes for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// True in `permille` of a thousand calls.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

impl Entropy for SeededRandom {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.number().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let (mut one, mut two) = ([0; 13], [0; 13]);
        SeededRandom::new(1).fill(&mut one);
        SeededRandom::new(1).fill(&mut two);
        assert_eq!(one, two);
        SeededRandom::new(2).fill(&mut two);
        assert_ne!(one, two);
    }

    #[test]
    fn a_bound_of_zero_gives_zero() {
        assert_eq!(SeededRandom::new(3).below(0), 0);
    }
}
