//! What a board is made of, as traits. Knows nobody.

mod frames;
mod key;

pub use frames::{FRAME_BYTES_MAX, FRAMES_MAX, FrameReceiver, FrameSender};
pub use key::{BOX_KEY_BYTES, BoxKey, KeyError, KeyVault};

/// Bytes that stay when power goes: a fixed, preallocated region.
///
/// A write is durable only after the next `flush` that returned. What a power
/// cut leaves of writes since then is any mixture of old and new bytes.
pub trait Flash {
    /// Size of the region in bytes; it never changes.
    fn size(&self) -> u64;

    /// Fills `out` from `at`.
    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), FlashError>;

    /// Writes `bytes` to `at`.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FlashError>;

    /// Makes all writes so far durable.
    fn flush(&mut self) -> Result<(), FlashError>;
}

impl<F: Flash + ?Sized> Flash for Box<F> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), FlashError> {
        (**self).read(at, out)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FlashError> {
        (**self).write(at, bytes)
    }

    fn flush(&mut self) -> Result<(), FlashError> {
        (**self).flush()
    }
}

/// The flash failed.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// The operating system said no.
    #[error("flash {operation} at byte {at} failed")]
    Io {
        /// `read`, `write` or `flush`.
        operation: &'static str,
        /// Where.
        at: u64,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The range is not within the region.
    #[error("{length} bytes at {at} are outside the flash region of {size} bytes")]
    OutOfRange {
        /// Where.
        at: u64,
        /// How many.
        length: u64,
        /// Size of the region.
        size: u64,
    },
    /// The power is off (simulated boards only).
    #[error("the power is off")]
    PowerCut,
}
