//! Flash in memory that separates the present bytes from the durable ones.
//!
//! Writes change the present bytes and are recorded until the next flush. After a power cut,
//! each recorded write is complete, missing, or torn: a prefix of it, some of its sectors, or
//! random bytes where it was interrupted.

use trivet_board_hal::{Flash, FlashError};

/// The size that a device writes atomically, if it does at all.
pub const SECTOR_BYTES: usize = 512;

/// Statistics of the operations.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SimFlashCounts {
    /// Calls of `read`.
    pub reads: u64,
    /// Calls of `write`.
    pub writes: u64,
    /// Calls of `flush`.
    pub flushes: u64,
    /// Bytes passed to `write`.
    pub written_bytes: u64,
}

/// Flash in memory. A clone is an independent copy in the same state.
#[derive(Clone, Debug)]
pub struct SimFlash {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
    counts: SimFlashCounts,
    until_cut: Option<u64>,
    off: bool,
}

impl SimFlash {
    /// A region of zeros.
    pub fn new(size: usize) -> Self {
        Self::with_bytes(vec![0; size])
    }

    /// A region with these bytes, all durable.
    pub fn with_bytes(bytes: Vec<u8>) -> Self {
        Self {
            live: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
            counts: SimFlashCounts::default(),
            until_cut: None,
            off: false,
        }
    }

    /// Cuts the power in the operation after `operations` more writes and flushes: a write is
    /// then partly done, a flush not started.
    pub fn cut_after(&mut self, operations: u64) {
        self.until_cut = Some(operations);
    }

    /// Cuts the power now.
    pub fn cut(&mut self) {
        self.off = true;
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// Operations since it was created or powered on.
    pub fn counts(&self) -> SimFlashCounts {
        self.counts
    }

    /// The present bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.live
    }

    /// The flash after the power is back: durable bytes, and the seed decides about each write
    /// since the last flush. Seed 0 loses them all, seed 1 keeps them all, every other seed
    /// decides for each write.
    #[must_use]
    pub fn power_on(self, seed: u64) -> Self {
        let Self {
            mut durable,
            pending,
            ..
        } = self;
        let mut chance = FlashRandom(seed);
        for (at, bytes) in &pending {
            let place = &mut durable[*at..*at + bytes.len()];
            match seed {
                0 => {}
                1 => place.copy_from_slice(bytes),
                _ => tear(place, bytes, &mut chance),
            }
        }
        Self::with_bytes(durable)
    }

    fn range(&self, at: u64, length: usize) -> Result<std::ops::Range<usize>, FlashError> {
        let end = at.checked_add(length as u64);
        if end.is_none_or(|end| end > self.live.len() as u64) {
            return Err(FlashError::OutOfRange {
                at,
                length: length as u64,
                size: self.live.len() as u64,
            });
        }
        Ok(at as usize..at as usize + length)
    }

    /// Counts an operation; true if the power is cut in it.
    fn cuts_power(&mut self) -> bool {
        match &mut self.until_cut {
            Some(0) => self.off = true,
            Some(left) => *left -= 1,
            None => {}
        }
        self.off
    }
}

/// What an interrupted write of `bytes` leaves in `place`.
fn tear(place: &mut [u8], bytes: &[u8], chance: &mut FlashRandom) {
    let cut = chance.below(bytes.len() as u64 + 1) as usize;
    match chance.below(6) {
        0 => {}
        1 => place.copy_from_slice(bytes),
        2 => place[..cut].copy_from_slice(&bytes[..cut]),
        3 => {
            // A device may also write from the end.
            place[cut..].copy_from_slice(&bytes[cut..]);
        }
        4 => some_sectors(place, bytes, chance),
        _ => {
            some_sectors(place, bytes, chance);
            let end = (cut + SECTOR_BYTES).min(bytes.len());
            place[cut..end].fill_with(|| chance.below(256) as u8);
        }
    }
}

fn some_sectors(place: &mut [u8], bytes: &[u8], chance: &mut FlashRandom) {
    let sectors = place
        .chunks_mut(SECTOR_BYTES)
        .zip(bytes.chunks(SECTOR_BYTES));
    for (old, new) in sectors {
        if chance.below(4) != 0 {
            old.copy_from_slice(new);
        }
    }
}

/// SplitMix64: the same seed always tears in the same way.
struct FlashRandom(u64);

impl FlashRandom {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound.max(1)
    }
}

impl Flash for SimFlash {
    fn size(&self) -> u64 {
        self.live.len() as u64
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), FlashError> {
        if self.off {
            return Err(FlashError::PowerCut);
        }
        let range = self.range(at, out.len())?;
        self.counts.reads += 1;
        out.copy_from_slice(&self.live[range]);
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FlashError> {
        if self.off {
            return Err(FlashError::PowerCut);
        }
        let range = self.range(at, bytes.len())?;
        self.pending.push((range.start, bytes.to_vec()));
        if self.cuts_power() {
            return Err(FlashError::PowerCut);
        }
        self.counts.writes += 1;
        self.counts.written_bytes += bytes.len() as u64;
        self.live[range].copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), FlashError> {
        if self.off || self.cuts_power() {
            return Err(FlashError::PowerCut);
        }
        self.counts.flushes += 1;
        for (at, bytes) in self.pending.drain(..) {
            self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flash() -> SimFlash {
        SimFlash::new(4 * SECTOR_BYTES)
    }

    #[test]
    fn reads_what_was_written_before_and_after_a_flush() {
        let mut flash = flash();
        let mut out = [0; 3];
        flash.write(510, b"abc").unwrap();
        flash.read(510, &mut out).unwrap();
        assert_eq!(&out, b"abc");
        flash.flush().unwrap();
        flash.read(510, &mut out).unwrap();
        assert_eq!(&out, b"abc");
    }

    #[test]
    fn a_flushed_write_survives_every_cut() {
        for seed in 0..100 {
            let mut flash = flash();
            flash.write(0, &[7; 2048]).unwrap();
            flash.flush().unwrap();
            flash.cut();
            assert_eq!(flash.power_on(seed).bytes(), [7; 2048]);
        }
    }

    #[test]
    fn an_unflushed_write_may_be_there_missing_or_torn() {
        let (mut whole, mut missing, mut torn, mut garbage) = (0, 0, 0, 0);
        for seed in 0..200 {
            let mut flash = flash();
            flash.write(0, &[7; 2048]).unwrap();
            flash.cut();
            let after = flash.power_on(seed);
            if after.bytes() == [7; 2048] {
                whole += 1;
            } else if after.bytes() == [0; 2048] {
                missing += 1;
            } else if after.bytes().iter().all(|byte| [0, 7].contains(byte)) {
                torn += 1;
            } else {
                garbage += 1;
            }
        }
        assert!(whole > 10 && missing > 10 && torn > 10 && garbage > 10);
    }

    #[test]
    fn seed_zero_loses_and_seed_one_keeps() {
        let mut flash = flash();
        flash.write(5, b"abc").unwrap();
        flash.cut();
        assert_eq!(flash.clone().power_on(0).bytes(), [0; 2048]);
        assert_eq!(&flash.power_on(1).bytes()[5..8], b"abc");
    }

    #[test]
    fn after_the_cut_every_call_fails() {
        let mut flash = flash();
        flash.cut_after(2);
        flash.write(0, b"a").unwrap();
        flash.flush().unwrap();
        assert!(!flash.is_off());
        assert!(matches!(flash.write(1, b"b"), Err(FlashError::PowerCut)));
        assert!(flash.is_off());
        assert!(matches!(flash.read(0, &mut [0]), Err(FlashError::PowerCut)));
        assert!(matches!(flash.write(0, b"a"), Err(FlashError::PowerCut)));
        assert!(matches!(flash.flush(), Err(FlashError::PowerCut)));
    }

    #[test]
    fn a_cut_in_a_flush_leaves_its_writes_undecided() {
        let mut flash = flash();
        flash.cut_after(1);
        flash.write(0, b"a").unwrap();
        assert!(flash.flush().is_err());
        assert_eq!(flash.clone().power_on(0).bytes()[0], 0);
        assert_eq!(flash.power_on(1).bytes()[0], b'a');
    }

    #[test]
    fn counts_its_operations() {
        let mut flash = flash();
        flash.write(0, b"abc").unwrap();
        flash.write(9, b"de").unwrap();
        flash.flush().unwrap();
        flash.read(0, &mut [0]).unwrap();
        let want = SimFlashCounts {
            reads: 1,
            writes: 2,
            flushes: 1,
            written_bytes: 5,
        };
        assert_eq!(flash.counts(), want);
    }

    #[test]
    fn refuses_what_is_outside_the_region() {
        let mut flash = flash();
        for (at, length) in [(2048, 1), (2047, 2), (u64::MAX, 1)] {
            let bytes = vec![0; length];
            assert!(matches!(
                flash.write(at, &bytes),
                Err(FlashError::OutOfRange { .. })
            ));
            let mut out = vec![0; length];
            assert!(matches!(
                flash.read(at, &mut out),
                Err(FlashError::OutOfRange { .. })
            ));
        }
        assert!(flash.write(2048, &[]).is_ok());
    }
}
