//! Receives and sends whole Ethernet frames of one interface.
//!
//! Receive and send are separate traits, so a listen-only interface holds no socket that can
//! send.

use std::io;

/// The longest frame that is received. Longer ones are dropped: no protocol here needs them.
pub const FRAME_BYTES_MAX: usize = 2048;

/// Most frames of one call.
pub const FRAMES_MAX: usize = 64;

/// Receives frames.
pub trait FrameReceiver {
    /// The hardware address of the interface.
    fn mac(&self) -> [u8; 6];

    /// Passes the received frames to `each`, at most [`FRAMES_MAX`], and returns how many. The
    /// flag is true if the checksums of a frame need no verification. Never blocks:
    /// `WouldBlock` means that there are none.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8], bool)) -> io::Result<usize>;
}

/// Sends frames.
pub trait FrameSender {
    /// Sends frames in order and returns how many were sent. Never blocks: frames that do not
    /// fit the send buffer are dropped, as on a congested network.
    fn send(&mut self, frames: &[Vec<u8>]) -> io::Result<usize>;
}
