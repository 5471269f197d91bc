//! Unpacks disk images to raw ones: qcow2, and raw images compressed with zstd, gzip or xz.
//!
//! Nothing here opens a file: a packed image is read through [`ReadAt`], and the raw one is
//! returned in pieces, in order: bytes, or a run of zeros that need not be stored. The input is
//! untrusted: no table, window or name is read beyond a bound, nothing is read outside the
//! image (no backing file, no external data file), no part of a qcow2 is read twice, and a
//! stream that is truncated, has wrong checksums or trailing bytes is rejected.
//!
//! gzip and xz are decoded in Rust; zstd by its reference library, which is four times as fast
//! as the decoder in Rust.

mod packing;
mod piece;
mod qcow2;
mod refusal;
mod source;
mod stream;

#[cfg(test)]
mod tests;

pub use packing::{MAGIC_BYTES, Packing};
use piece::BufferedPiece;
pub use piece::RawImagePiece;
pub use refusal::UnpackRefusal;
pub use source::ReadAt;

/// The largest raw image. Ours: as many chunks as a chunk list may have.
pub const RAW_BYTES_MAX: u64 = 16 << 40;

/// The largest window of a stream: 128 MiB, as the zstd tool allows; `xz -9` needs 64 MiB.
pub const WINDOW_BYTES_MAX: u64 = 128 << 20;

/// The longest piece of bytes; such a piece that is all zeros is returned as zeros.
pub const PIECE_BYTES: usize = 64 * 1024;

/// An image that is being unpacked.
pub struct Unpacker<S> {
    inner: UnpackDecoder<S>,
    buffer: Box<[u8]>,
    /// Bytes returned so far.
    bytes: u64,
    /// It has ended, with success or an error: nothing more is returned.
    ended: bool,
}

enum UnpackDecoder<S> {
    Qcow2(Box<qcow2::Qcow2Reader<S>>),
    Stream(stream::PackedStream),
}

impl<S: ReadAt + Send + 'static> Unpacker<S> {
    /// Reads the head of an image of this packing.
    pub fn open(packing: Packing, source: S) -> Result<Self, UnpackRefusal> {
        packing::check(packing, &source)?;
        let inner = match packing {
            Packing::Qcow2 => UnpackDecoder::Qcow2(Box::new(qcow2::Qcow2Reader::open(source)?)),
            _ => UnpackDecoder::Stream(stream::PackedStream::open(packing, source)?),
        };
        Ok(Self {
            inner,
            buffer: vec![0; PIECE_BYTES].into(),
            bytes: 0,
            ended: false,
        })
    }

    /// The size of the raw image, if the packed one declares it and it can be enforced.
    pub fn size(&self) -> Option<u64> {
        match &self.inner {
            UnpackDecoder::Qcow2(qcow2) => Some(qcow2.size()),
            UnpackDecoder::Stream(_) => None,
        }
    }

    /// The next piece; `None` at the end. After an error there are no more pieces.
    #[expect(
        clippy::should_implement_trait,
        reason = "a piece borrows from the unpacker"
    )]
    pub fn next(&mut self) -> Result<Option<RawImagePiece<'_>>, UnpackRefusal> {
        if self.ended {
            return Ok(None);
        }
        let outcome = match &mut self.inner {
            UnpackDecoder::Qcow2(qcow2) => qcow2.next(&mut self.buffer),
            UnpackDecoder::Stream(stream) => stream.next(&mut self.buffer),
        };
        let part = match outcome {
            Ok(Some(part)) => part,
            other => {
                self.ended = true;
                return other.map(|_| None);
            }
        };
        self.bytes = self.bytes.saturating_add(part.bytes());
        if self.bytes > RAW_BYTES_MAX {
            self.ended = true;
            return Err(UnpackRefusal::TooLarge { bytes: self.bytes });
        }
        Ok(Some(match part {
            BufferedPiece::Data(bytes) => RawImagePiece::Data(&self.buffer[..bytes]),
            BufferedPiece::Zeros(bytes) => RawImagePiece::Zeros(bytes),
        }))
    }
}
