//! Writes a disk image as its bytes arrive.
//!
//! Bytes are collected to chunks of 1 MiB. With a chunk list, each chunk is verified before it
//! is written; otherwise the digest of the whole image is verified at the end. Both ends of the
//! disk are cleared first, and the first chunk is written last, after all was verified, so
//! neither a wrong image nor a power cut leaves a disk that boots. Runs of zero chunks are not
//! written: the device zeroes them. The memory that is used does not depend on the image.
//!
//! After a network cut, [`ImageWriter::resume_at`] says from which byte the image is needed.

mod ahead;
mod check;

use trivet_board_linux::AlignedBuffer;
use trivet_chunks::{
    CHUNK_BYTES, ChunkList, DigestAlgorithm, IncrementalDigest, chunk_count, last_chunk_start,
};
use trivet_model::Digest;

use crate::target::{clear_ends, flush, read, write, write_zeroes};
use crate::{TargetDisk, TargetDiskError};
pub use ahead::{ImageWrittenAhead, finish_written};
use check::SampleTable;

const CHUNK: usize = CHUNK_BYTES as usize;

/// The longest run of zeros that the device gets at once. Ours: it keeps a request below the
/// time after which the kernel gives up.
const ZERO_RUN_BYTES_MAX: u64 = 64 << 20;

/// The image that is to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ExpectedImage {
    /// Its digest.
    pub digest: Digest,
    /// Its size, if it is known.
    pub size: Option<u64>,
    /// Its chunk list; needs the size.
    pub chunks: Option<ChunkList>,
}

/// How much is read back at the end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReadBackCheck {
    /// Nothing.
    Nothing,
    /// Some chunks, spread over the image.
    #[default]
    Samples,
    /// All chunks.
    Everything,
}

/// How far a write is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ImageWriteProgress {
    /// Bytes of the image that were handled.
    pub bytes: u64,
    /// Of them, bytes that the device zeroed.
    pub zero_bytes: u64,
    /// Chunks that were wrong.
    pub corrupted_chunks: u64,
}

/// An image that was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageWriteReport {
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    pub digest: Digest,
    /// Bytes that the device zeroed.
    pub zero_bytes: u64,
    /// Chunks that were read back.
    pub read_back_chunks: u64,
}

/// Why an image was not written.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ImageWriteError {
    /// A chunk does not match the chunk list. The writer stays usable: the image is needed again
    /// from this chunk on.
    #[error("chunk {chunk} of the image, at byte {at}, is corrupted")]
    CorruptedChunk {
        /// Its number.
        chunk: u64,
        /// Where it begins.
        at: u64,
    },
    /// The bytes ended early.
    #[error("the image was cut off at byte {at}{}", of_size(*size))]
    Cut {
        /// How many bytes came.
        at: u64,
        /// How many were expected.
        size: Option<u64>,
    },
    /// More bytes came than the image has.
    #[error("the image is longer than {size} bytes")]
    TooLong {
        /// Its size.
        size: u64,
    },
    /// All bytes came, and their digest is another.
    #[error("the image has the digest {got}, not {want}")]
    Checksum {
        /// The digest that was expected.
        want: Box<Digest>,
        /// The digest of the bytes.
        got: Box<Digest>,
    },
    /// The disk does not have what was written.
    #[error("the disk returned other bytes than were written at byte {at}")]
    ReadBack {
        /// Where.
        at: u64,
    },
    /// The chunk list is not complete, or the image has no size.
    #[error("the chunk list of the image is not complete")]
    BadList,
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] TargetDiskError),
}

/// An image that is being written. If it is dropped before the end, the disk does not boot.
pub struct ImageWriter<'disk> {
    disk: &'disk mut dyn TargetDisk,
    expected: ExpectedImage,
    /// The chunk that is being collected.
    buffer: AlignedBuffer,
    filled: usize,
    /// The number of that chunk.
    chunk: u64,
    /// The first chunk, which is written last.
    head: Vec<u8>,
    /// Zeros that the device has not got yet: start and length.
    zeros: (u64, u64),
    /// Without a chunk list: the digest so far.
    running: IncrementalDigest,
    samples: SampleTable,
    progress: ImageWriteProgress,
}

impl<'disk> ImageWriter<'disk> {
    /// Checks the disk and clears its ends.
    pub fn begin(
        disk: &'disk mut dyn TargetDisk,
        expected: ExpectedImage,
    ) -> Result<Self, ImageWriteError> {
        if disk.is_read_only() {
            return Err(TargetDiskError::ReadOnly.into());
        }
        check_size(disk, expected.size.unwrap_or(0))?;
        if let Some(list) = &expected.chunks {
            let size = expected.size.ok_or(ImageWriteError::BadList)?;
            if !list.is_complete(size) {
                return Err(ImageWriteError::BadList);
            }
        }
        clear_ends(disk, CHUNK_BYTES)?;
        Ok(Self {
            running: IncrementalDigest::new(DigestAlgorithm::of(&expected.digest)),
            disk,
            expected,
            buffer: AlignedBuffer::new(CHUNK),
            filled: 0,
            chunk: 0,
            head: Vec::new(),
            zeros: (0, 0),
            samples: SampleTable::default(),
            progress: ImageWriteProgress::default(),
        })
    }

    /// How far the write is.
    pub fn progress(&self) -> ImageWriteProgress {
        self.progress
    }

    /// Drops the part of a chunk that has arrived, and says from which byte the image is needed.
    pub fn resume_at(&mut self) -> u64 {
        self.filled = 0;
        self.chunk * CHUNK_BYTES
    }

    /// Space for the next bytes; [`Self::advance`] says how many were put there.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut_slice()[self.filled..]
    }

    /// Takes bytes from the space.
    pub fn advance(&mut self, bytes: usize) -> Result<(), ImageWriteError> {
        self.filled = (self.filled + bytes).min(CHUNK);
        let arrived = self.chunk * CHUNK_BYTES + self.filled as u64;
        if let Some(size) = self.expected.size
            && arrived > size
        {
            return Err(ImageWriteError::TooLong { size });
        }
        if self.filled == CHUNK {
            self.take_chunk()?;
        }
        Ok(())
    }

    /// Takes the next bytes of the image. After an error, bytes of this piece may be missing:
    /// the caller continues at [`Self::resume_at`] or gives up.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), ImageWriteError> {
        while !bytes.is_empty() {
            let space = self.space();
            let (part, rest) = bytes.split_at(bytes.len().min(space.len()));
            space[..part.len()].copy_from_slice(part);
            bytes = rest;
            self.advance(part.len())?;
        }
        Ok(())
    }

    /// Takes all bytes of a reader.
    pub fn write_from(&mut self, reader: &mut dyn std::io::Read) -> Result<(), ImageWriteError> {
        loop {
            match reader.read(self.space()) {
                Ok(0) => return Ok(()),
                Ok(bytes) => self.advance(bytes)?,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => {
                    let at = self.chunk * CHUNK_BYTES + self.filled as u64;
                    let size = self.expected.size;
                    return Err(ImageWriteError::Cut { at, size });
                }
            }
        }
    }

    /// Verifies the image, writes its first chunk and reads back what was written.
    pub fn finish(mut self, check: ReadBackCheck) -> Result<ImageWriteReport, ImageWriteError> {
        let bytes = self.take_rest()?;
        // The order matters: nothing boots before the image is complete.
        flush(self.disk)?;
        let head = std::mem::take(&mut self.head);
        self.write_padded(&head, 0)?;
        flush(self.disk)?;
        let read_back_chunks = self.read_back(check, bytes, 0)?;
        Ok(ImageWriteReport {
            bytes,
            digest: self.expected.digest,
            zero_bytes: self.progress.zero_bytes,
            read_back_chunks,
        })
    }

    /// Takes the last chunk and verifies that all of the image has arrived; returns its size.
    fn take_rest(&mut self) -> Result<u64, ImageWriteError> {
        let arrived = self.chunk * CHUNK_BYTES + self.filled as u64;
        if let Some(size) = self.expected.size.filter(|&size| size != arrived) {
            let size = Some(size);
            return Err(ImageWriteError::Cut { at: arrived, size });
        }
        if self.filled > 0 || arrived == 0 {
            self.take_chunk()?;
        }
        self.flush_zeros()?;
        if self.expected.chunks.is_none() {
            let want = self.expected.digest;
            let got = self.running.clone().finish();
            if got != want {
                let (want, got) = (Box::new(want), Box::new(got));
                return Err(ImageWriteError::Checksum { want, got });
            }
        }
        Ok(arrived)
    }

    /// Verifies and writes the chunk in the buffer.
    fn take_chunk(&mut self) -> Result<(), ImageWriteError> {
        let length = self.filled;
        let at = self.chunk * CHUNK_BYTES;
        check_size(self.disk, at + length as u64)?;
        let bytes = &self.buffer.as_slice()[..length];
        match (&self.expected.chunks, self.expected.size) {
            (Some(list), Some(size)) => {
                if !list.is_chunk_valid(self.chunk, bytes, size, &self.expected.digest) {
                    self.progress.corrupted_chunks += 1;
                    self.filled = 0;
                    let chunk = self.chunk;
                    return Err(ImageWriteError::CorruptedChunk { chunk, at });
                }
            }
            _ => {
                let before = self.running.clone();
                self.running.update(bytes);
                self.samples
                    .record(self.chunk, before, &self.running, length);
            }
        }
        if are_zeros(bytes) {
            self.progress.zero_bytes += length as u64;
            self.add_zeros(at, length as u64)?;
        } else if self.chunk == 0 {
            self.head = bytes.to_vec();
        } else {
            self.flush_zeros()?;
            self.write_buffer(length, at)?;
        }
        self.chunk += 1;
        self.filled = 0;
        self.progress.bytes = at + length as u64;
        Ok(())
    }

    fn add_zeros(&mut self, at: u64, length: u64) -> Result<(), ImageWriteError> {
        let (start, run) = self.zeros;
        if run > 0 && start + run == at && run < ZERO_RUN_BYTES_MAX {
            self.zeros.1 += length;
            return Ok(());
        }
        self.flush_zeros()?;
        self.zeros = (at, length);
        Ok(())
    }

    fn flush_zeros(&mut self) -> Result<(), ImageWriteError> {
        let (start, run) = std::mem::take(&mut self.zeros);
        if run > 0 {
            let run = run.next_multiple_of(self.disk.sector_bytes());
            let run = run.min(self.disk.bytes() - start);
            write_zeroes(self.disk, start, run)?;
        }
        Ok(())
    }

    /// Writes the buffer; the last sector is filled up with zeros.
    fn write_buffer(&mut self, length: usize, at: u64) -> Result<(), ImageWriteError> {
        let whole = length
            .next_multiple_of(self.disk.sector_bytes() as usize)
            .min(CHUNK);
        self.buffer.as_mut_slice()[length..whole].fill(0);
        write(self.disk, &self.buffer.as_slice()[..whole], at)?;
        Ok(())
    }

    fn write_padded(&mut self, bytes: &[u8], at: u64) -> Result<(), ImageWriteError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        self.write_buffer(bytes.len(), at)
    }

    /// Reads back what was written, from this chunk on.
    fn read_back(
        &mut self,
        check: ReadBackCheck,
        size: u64,
        first: u64,
    ) -> Result<u64, ImageWriteError> {
        let count = chunk_count(size);
        let mut numbers: Vec<u64> = match check {
            ReadBackCheck::Nothing => return Ok(0),
            ReadBackCheck::Everything => (0..count).collect(),
            ReadBackCheck::Samples if self.expected.chunks.is_none() => self.samples.numbers(),
            ReadBackCheck::Samples => check::spread(count),
        };
        numbers.retain(|&chunk| chunk >= first);
        let mut running = IncrementalDigest::new(DigestAlgorithm::of(&self.expected.digest));
        for &chunk in &numbers {
            let at = chunk * CHUNK_BYTES;
            let length = if at == last_chunk_start(size) {
                size - at
            } else {
                CHUNK_BYTES
            };
            let length = length as usize;
            let whole = length
                .next_multiple_of(self.disk.sector_bytes() as usize)
                .min(CHUNK);
            read(self.disk, &mut self.buffer.as_mut_slice()[..whole], at)?;
            let bytes = &self.buffer.as_slice()[..length];
            let is_same = match (&self.expected.chunks, check) {
                (Some(list), _) => list.is_chunk_valid(chunk, bytes, size, &self.expected.digest),
                (None, ReadBackCheck::Everything) => {
                    running.update(bytes);
                    true
                }
                (None, _) => self.samples.is_same(chunk, bytes),
            };
            if !is_same {
                return Err(ImageWriteError::ReadBack { at });
            }
        }
        let whole = self.expected.chunks.is_none() && check == ReadBackCheck::Everything;
        if whole && running.finish() != self.expected.digest {
            return Err(ImageWriteError::ReadBack { at: 0 });
        }
        Ok(numbers.len() as u64)
    }
}

fn of_size(size: Option<u64>) -> String {
    size.map_or_else(String::new, |size| format!(" of {size}"))
}

fn check_size(disk: &dyn TargetDisk, needed_bytes: u64) -> Result<(), TargetDiskError> {
    let disk_bytes = disk.bytes();
    if needed_bytes > disk_bytes {
        return Err(TargetDiskError::TooSmall {
            needed_bytes,
            disk_bytes,
        });
    }
    Ok(())
}

/// Compares in blocks: most chunks differ from zeros in their first bytes.
pub(crate) fn are_zeros(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes
        .chunks(ZEROS.len())
        .all(|part| part == &ZEROS[..part.len()])
}

#[cfg(test)]
mod tests;
