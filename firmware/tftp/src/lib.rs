#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;

mod netascii;
mod packet;
mod receiver;
mod sender;
mod timing;

#[cfg(test)]
mod lossy_wire;

pub use packet::{
    BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, ErrorCode, FILE_NAME_BYTES_MAX,
    OPTIONS_MAX, Packet, PacketError, REQUEST_BYTES_MAX, ReadRequest, TransferMode,
    TransferOptions, is_request, parse, write_error,
};
pub use receiver::{FileSink, Receiver, WriteFailed};
pub use sender::{FileSource, ReadError, Sender, WINDOW_BLOCKS_MAX};
pub use timing::TransferLimits;

/// How far a transfer is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TransferState {
    /// It goes on.
    Running,
    /// Every byte has arrived.
    Done {
        /// Bytes of the file that were moved.
        bytes: u64,
    },
    /// It has ended early.
    Failed {
        /// Bytes of the file that had been acknowledged by then.
        bytes: u64,
        /// Why.
        reason: TransferFailure,
    },
}

/// Why a transfer ended early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TransferFailure {
    /// The peer sent an ERROR. Code 8 with no bytes moved is how UEFI ends its
    /// question for the size of a file.
    Peer {
        /// Its error code.
        code: u16,
    },
    /// No answer to any try.
    TimedOut,
    /// Everything was sent, but the last acknowledgement never came. The client
    /// most likely has the file and is gone.
    LastAckLost,
    /// The source could not be read, or the sink not be written.
    Local,
    /// The file is larger than this side allows.
    TooLarge,
    /// The peer broke the protocol.
    Protocol,
}
