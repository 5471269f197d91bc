//! The hardware of a board, as traits. Depends on no other crate of this workspace.

mod frames;
mod key;

pub use frames::{FRAME_BYTES_MAX, FRAMES_MAX, FrameReceiver, FrameSender};
pub use key::{BOX_KEY_BYTES, BoxKey, KeyError, KeyVault};

/// Persistent storage: a fixed, preallocated region.
///
/// A write is durable only after the next `flush` that returned. After a power cut, the bytes
/// of later writes are any mixture of old and new.
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

/// An error of the flash.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// The operating system reported an error.
    #[error("flash {operation} at byte {at} failed")]
    Io {
        /// `read`, `write` or `flush`.
        operation: &'static str,
        /// Offset in bytes.
        at: u64,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The range is not within the region.
    #[error("{length} bytes at {at} are outside the flash region of {size} bytes")]
    OutOfRange {
        /// Offset in bytes.
        at: u64,
        /// Length in bytes.
        length: u64,
        /// Size of the region.
        size: u64,
    },
    /// The power is off (simulated boards only).
    #[error("the power is off")]
    PowerCut,
}
