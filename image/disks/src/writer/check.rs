//! What is read back of an image without a chunk list: some chunks with the digest before and
//! after each.

use trivet_chunks::{CHUNK_BYTES, DigestState, IncrementalDigest};

/// Most chunks that are read back as samples. Ours.
const SAMPLES_MAX: u64 = 32;

/// Chunks spread over an image, with the first and the last.
pub(super) fn spread(count: u64) -> Vec<u64> {
    let last = count.saturating_sub(1);
    let step = count.div_ceil(SAMPLES_MAX).max(1) as usize;
    let mut numbers: Vec<u64> = (0..count).step_by(step).collect();
    if numbers.last() != Some(&last) {
        numbers.push(last);
    }
    numbers
}

/// Each n-th whole chunk. The step doubles when the table is full, so its size does not depend
/// on the image.
#[derive(Default)]
pub(super) struct SampleTable {
    step: u64,
    samples: Vec<(u64, IncrementalDigest, DigestState)>,
}

impl SampleTable {
    /// Notes the digest before and after a chunk.
    pub(super) fn record(
        &mut self,
        chunk: u64,
        before: IncrementalDigest,
        after: &IncrementalDigest,
        length: usize,
    ) {
        self.step = self.step.max(1);
        // Only whole chunks have a state after them.
        let Some(state) = after.state().filter(|_| length as u64 == CHUNK_BYTES) else {
            return;
        };
        if !chunk.is_multiple_of(self.step) {
            return;
        }
        self.samples.push((chunk, before, state));
        if self.samples.len() as u64 > SAMPLES_MAX {
            self.step *= 2;
            let step = self.step;
            self.samples
                .retain(|(chunk, _, _)| chunk.is_multiple_of(step));
        }
    }

    /// The chunks in the table.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.samples.iter().map(|(chunk, _, _)| *chunk).collect()
    }

    /// Whether these are the bytes of a chunk in the table.
    pub(super) fn is_same(&self, chunk: u64, bytes: &[u8]) -> bool {
        let sample = self.samples.iter().find(|(number, _, _)| *number == chunk);
        sample.is_some_and(|(_, before, after)| {
            let mut running = before.clone();
            running.update(bytes);
            running.state().as_ref() == Some(after)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_chunks::DigestAlgorithm;

    #[test]
    fn samples_are_spread_and_bounded() {
        assert_eq!(spread(1), [0]);
        assert_eq!(spread(3), [0, 1, 2]);
        let many = spread(100_000);
        assert!(many.len() as u64 <= SAMPLES_MAX + 1);
        assert_eq!((many[0], *many.last().unwrap()), (0, 99_999));
    }

    #[test]
    fn the_table_stays_small_and_knows_its_chunks() {
        let chunk = vec![5; CHUNK_BYTES as usize];
        let mut running = IncrementalDigest::new(DigestAlgorithm::Sha256);
        let mut table = SampleTable::default();
        for number in 0..100 {
            let before = running.clone();
            running.update(&chunk);
            table.record(number, before, &running, chunk.len());
        }
        let numbers = table.numbers();
        assert!(
            numbers.len() as u64 <= SAMPLES_MAX && numbers.len() > 8,
            "{numbers:?}"
        );
        assert!(table.is_same(numbers[3], &chunk));
        let mut other = chunk.clone();
        other[9] ^= 1;
        assert!(!table.is_same(numbers[3], &other));
        assert!(!table.is_same(1, &chunk), "not in the table");
        table.record(128, running.clone(), &running, 10);
        assert_eq!(table.numbers(), numbers, "a short chunk has no state");
    }
}
