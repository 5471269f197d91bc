//! Whole Ethernet frames of one interface, in and out.
//!
//! Two traits, because an ear needs no mouth: a box that only listens holds nothing it
//! could speak with.

use std::io;

/// The longest frame that is heard. Longer ones are dropped: nothing that goes through
/// here needs them.
pub const FRAME_BYTES_MAX: usize = 2048;

/// The most frames of one call.
pub const FRAMES_MAX: usize = 64;

/// Hears frames.
pub trait FrameReceiver {
    /// The interface's own hardware address.
    fn mac(&self) -> [u8; 6];

    /// Hands over what has come, at most [`FRAMES_MAX`] frames, and says how many were
    /// taken. With each comes whether its checksums are vouched for. Never waits:
    /// `WouldBlock` says that nothing has come.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8], bool)) -> io::Result<usize>;
}

/// Says frames.
pub trait FrameSender {
    /// Sends frames in order and says how many left. Never waits: what finds no room is
    /// dropped, as on a full wire.
    fn send(&mut self, frames: &[Vec<u8>]) -> io::Result<usize>;
}
