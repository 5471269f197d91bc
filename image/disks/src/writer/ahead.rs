//! Images written ahead: all of an image but its first chunk is on the disk before a deployment
//! needs it. The disk does not boot until [`finish_written`] has verified each chunk that is on
//! it and has written the first one.

use trivet_board_linux::AlignedBuffer;
use trivet_chunks::{CHUNK_BYTES, chunk_count, last_chunk_start};

use super::{CHUNK, ExpectedImage, ImageWriteError, ImageWriteReport, ImageWriter, ReadBackCheck};
use crate::target::{flush, read, write};
use crate::{TargetDisk, TargetDiskError};

/// An image on a disk that lacks its first chunk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageWrittenAhead {
    /// The image; it has a chunk list.
    pub expected: ExpectedImage,
    /// Its size.
    pub size: u64,
    /// Its first chunk.
    pub head: Vec<u8>,
}

impl ImageWriter<'_> {
    /// Verifies the image and reads some of it back, but does not write its first chunk. Needs a
    /// chunk list.
    pub fn finish_ahead(mut self) -> Result<ImageWrittenAhead, ImageWriteError> {
        let (Some(_), Some(size)) = (&self.expected.chunks, self.expected.size) else {
            return Err(ImageWriteError::BadList);
        };
        let bytes = self.take_rest()?;
        flush(self.disk)?;
        let head = match std::mem::take(&mut self.head) {
            // Zeros are not kept.
            head if head.is_empty() => vec![0; bytes.min(CHUNK_BYTES) as usize],
            head => head,
        };
        self.read_back(ReadBackCheck::Samples, bytes, 1)?;
        Ok(ImageWrittenAhead {
            expected: self.expected,
            size,
            head,
        })
    }
}

/// Verifies every chunk of an image that was written ahead, on the disk itself, and writes the
/// first chunk. Before that nothing on the disk is changed.
pub fn finish_written(
    disk: &mut dyn TargetDisk,
    image: &ImageWrittenAhead,
) -> Result<ImageWriteReport, ImageWriteError> {
    if disk.is_read_only() {
        return Err(TargetDiskError::ReadOnly.into());
    }
    let ImageWrittenAhead {
        expected,
        size,
        head,
    } = image;
    let list = expected.chunks.as_ref().ok_or(ImageWriteError::BadList)?;
    super::check_size(disk, *size)?;
    if !list.is_chunk_valid(0, head, *size, &expected.digest) {
        return Err(ImageWriteError::CorruptedChunk { chunk: 0, at: 0 });
    }
    let sector_bytes = disk.sector_bytes() as usize;
    let mut buffer = AlignedBuffer::new(CHUNK);
    let count = chunk_count(*size);
    for chunk in 1..count {
        let at = chunk * CHUNK_BYTES;
        let length = if at == last_chunk_start(*size) {
            size - at
        } else {
            CHUNK_BYTES
        } as usize;
        let whole = length.next_multiple_of(sector_bytes).min(CHUNK);
        read(disk, &mut buffer.as_mut_slice()[..whole], at)?;
        let bytes = &buffer.as_slice()[..length];
        if !list.is_chunk_valid(chunk, bytes, *size, &expected.digest) {
            return Err(ImageWriteError::ReadBack { at });
        }
    }
    let whole = head.len().next_multiple_of(sector_bytes).min(CHUNK);
    let first = &mut buffer.as_mut_slice()[..whole];
    first.fill(0);
    first[..head.len()].copy_from_slice(head);
    write(disk, &buffer.as_slice()[..whole], 0)?;
    flush(disk)?;
    Ok(ImageWriteReport {
        bytes: *size,
        digest: expected.digest,
        zero_bytes: 0,
        read_back_chunks: count - 1,
    })
}
