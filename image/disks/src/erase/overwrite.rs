//! Discard and overwrite, and the samples by which an erasure is checked.

use trivet_board_linux::AlignedBuffer;

use super::DiskEraseError;
use crate::TargetDisk;
use crate::target::{disk_error, flush, read, write, write_zeroes};
use crate::writer::are_zeros;

/// Bytes of a sample.
const SAMPLE_BYTES: u64 = 64 << 10;

/// Parts of the disk that are read. Ours; the stock agent reads ten.
const SAMPLES_MAX: u64 = 32;

/// Bytes that are written at once.
const STEP_BYTES: u64 = 1 << 20;

/// Bytes that are zeroed or discarded at once. Ours: a request stays below the time after which
/// the kernel gives up.
const RANGE_BYTES: u64 = 256 << 20;

/// Written before a discard, so that zeros afterwards prove something.
const MARKER: u8 = 0xa5;

/// A part of the disk: where, and what it has.
pub(super) struct DiskSample {
    at: u64,
    bytes: Vec<u8>,
}

/// Where samples are: the first, the last, and others between them.
fn places(disk: &dyn TargetDisk) -> Vec<u64> {
    let sector = disk.sector_bytes();
    let length = SAMPLE_BYTES.min(disk.bytes());
    let last = (disk.bytes() - length) / sector * sector;
    let count = (disk.bytes() / SAMPLE_BYTES).clamp(1, SAMPLES_MAX - 1);
    let place = |at| last / count * at / sector * sector;
    let mut places: Vec<u64> = (0..count).map(place).chain([last]).collect();
    places.dedup();
    places
}

/// Parts of the disk as they are now.
pub(super) fn samples(disk: &mut dyn TargetDisk) -> Result<Vec<DiskSample>, DiskEraseError> {
    let length = SAMPLE_BYTES.min(disk.bytes()) as usize;
    let mut samples = Vec::new();
    for at in places(disk) {
        let mut bytes = vec![0; length];
        read(disk, &mut bytes, at)?;
        samples.push(DiskSample { at, bytes });
    }
    Ok(samples)
}

/// Checks that no part has its data from before. Parts that had none prove nothing, and are not
/// counted.
pub(super) fn check_changed(
    disk: &mut dyn TargetDisk,
    before: &[DiskSample],
) -> Result<usize, DiskEraseError> {
    let mut checked = 0;
    for sample in before.iter().filter(|sample| !are_zeros(&sample.bytes)) {
        let mut now = vec![0; sample.bytes.len()];
        // A drive whose key was deleted may refuse to return the old blocks.
        if disk.read_at(&mut now, sample.at).is_ok() && now == sample.bytes {
            return Err(DiskEraseError::NotErased { at: sample.at });
        }
        checked += 1;
    }
    Ok(checked)
}

/// Discards the disk, and checks that it reads as zeros where there were data.
pub(super) fn discard_and_check(disk: &mut dyn TargetDisk) -> Result<usize, DiskEraseError> {
    let places = places(disk);
    let length = SAMPLE_BYTES.min(disk.bytes()) as usize;
    let mut buffer = AlignedBuffer::new(length);
    buffer.as_mut_slice().fill(MARKER);
    for &at in &places {
        write(disk, buffer.as_slice(), at)?;
    }
    flush(disk)?;
    let mut at = 0;
    while at < disk.bytes() {
        let bytes = RANGE_BYTES.min(disk.bytes() - at);
        let outcome = disk.discard(at, bytes);
        outcome.map_err(|error| DiskEraseError::Failed {
            method: "discard",
            reason: disk_error(disk, "discard", at, &error).to_string(),
        })?;
        at += bytes;
    }
    flush(disk)?;
    for &at in &places {
        read(disk, buffer.as_mut_slice(), at)?;
        if !are_zeros(buffer.as_slice()) {
            return Err(DiskEraseError::NotErased { at });
        }
    }
    Ok(places.len())
}

/// Overwrites the disk with random bytes, and then with zeros if wanted.
pub(super) fn overwrite(
    disk: &mut dyn TargetDisk,
    passes: u32,
    zeroize: bool,
    seed: u64,
    report: &mut dyn FnMut(u64, u64),
) -> Result<usize, DiskEraseError> {
    let before = samples(disk)?;
    let disk_bytes = disk.bytes();
    let total = disk_bytes * u64::from(passes + u32::from(zeroize));
    let mut done = 0;
    let mut buffer = AlignedBuffer::new(STEP_BYTES.min(disk_bytes) as usize);
    let mut random = ByteGenerator(seed | 1);
    for _ in 0..passes {
        let mut at = 0;
        while at < disk_bytes {
            let bytes = STEP_BYTES.min(disk_bytes - at);
            random.fill(&mut buffer.as_mut_slice()[..bytes as usize]);
            write(disk, &buffer.as_slice()[..bytes as usize], at)?;
            at += bytes;
            report(done + at, total);
        }
        flush(disk)?;
        done += disk_bytes;
    }
    if zeroize {
        let mut at = 0;
        while at < disk_bytes {
            let bytes = RANGE_BYTES.min(disk_bytes - at);
            write_zeroes(disk, at, bytes)?;
            at += bytes;
            report(done + at, total);
        }
        flush(disk)?;
        for at in places(disk) {
            let length = SAMPLE_BYTES.min(disk_bytes) as usize;
            let mut now = vec![0; length];
            read(disk, &mut now, at)?;
            if !are_zeros(&now) {
                return Err(DiskEraseError::NotErased { at });
            }
        }
    }
    check_changed(disk, &before)
}

/// Bytes without a pattern (xorshift64, Marsaglia 2003). They hide what was there before; they
/// are no secret.
struct ByteGenerator(u64);

impl ByteGenerator {
    fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            part.copy_from_slice(&self.0.to_le_bytes()[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryDisk;

    #[test]
    fn samples_cover_the_disk_from_end_to_end() {
        for bytes in [512, 4096, 65_536, 100_352, 1 << 20, 9 << 20] {
            let disk = MemoryDisk::filled(bytes, 0);
            let places = places(&disk);
            assert_eq!(places[0], 0);
            assert!(places.len() as u64 <= SAMPLES_MAX, "{bytes}");
            assert!(places.is_sorted());
            let last = *places.last().unwrap();
            let end = last + SAMPLE_BYTES.min(bytes as u64);
            assert!(
                end <= bytes as u64 && end + 512 > bytes as u64,
                "{bytes}: {last}"
            );
        }
    }

    #[test]
    fn random_bytes_have_no_runs() {
        let mut bytes = vec![0; 4096];
        ByteGenerator(1).fill(&mut bytes);
        let zeros: usize = bytes.iter().map(|&byte| usize::from(byte == 0)).sum();
        assert!(zeros < 64, "{zeros}");
        let mut odd = [0; 13];
        ByteGenerator(7).fill(&mut odd);
        assert_ne!(odd[8..], [0; 5]);
    }
}
