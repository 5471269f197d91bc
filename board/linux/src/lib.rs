//! The board on Linux.
//!
//! Implements the traits of `board/hal` with system calls and decides nothing.

mod beneath;
mod datagram;
mod files;
mod flash;
mod frames;
mod interface;
mod key;
mod memory;
mod poll;
mod reading;
mod sending;
mod undelivered;

pub use beneath::open_beneath;
pub use datagram::{
    DatagramDestination, ReceivedDatagram, SEGMENTS_BYTES_MAX, SEGMENTS_MAX, SegmentSender,
    enable_destination_info, path_mtu, receive, set_receive_buffer,
};
pub use files::{check_writable, free_bytes, raise_open_files};
pub use flash::{FileFlash, FileFlashCounts, OpenFileError};
pub use frames::{PacketSocketReceiver, PacketSocketSender, RECEIVE_BYTES_MAX};
pub use interface::{EthernetInterface, interface, interfaces};
pub use key::{BoxKeyFile, KeyFileError};
pub use memory::{clock_ticks_per_s, disable_core_dumps, give_memory_back, page_bytes};
pub use poll::{Epoll, Interest, PollWaker};
pub use reading::read_cached;
pub use sending::{in_memory, send_file, send_more, unacknowledged};
pub use undelivered::{UndeliveredDatagram, enable_delivery_errors, receive_delivery_error};
