//! The board on Linux.
//!
//! It carries bytes between the traits of `board/hal` and the operating system
//! and decides nothing.

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

pub use beneath::open_beneath;
pub use datagram::{
    Came, SEGMENTS_BYTES_MAX, SEGMENTS_MAX, Segments, SentTo, bound_unread, path_mtu, receive,
    tell_destinations,
};
pub use files::{check_writable, free_bytes, raise_open_files};
pub use flash::{Counts, FileFlash, OpenFileError};
pub use frames::{Ear, RECEIVE_BYTES_MAX, Voice};
pub use interface::{Interface, interface, interfaces};
pub use key::{KeyFile, KeyFileError};
pub use memory::{give_memory_back, keep_private};
pub use poll::{Interest, Poll, Waker};
pub use reading::read_cached;
pub use sending::{in_memory, send_file, send_more, unacknowledged};
