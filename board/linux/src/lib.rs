//! The board on Linux.
//!
//! It carries bytes between the traits of `board/hal` and the operating system
//! and decides nothing.

mod flash;
mod key;
mod memory;
mod sending;

pub use flash::{Counts, FileFlash, OpenFileError};
pub use key::{KeyFile, KeyFileError};
pub use memory::keep_private;
pub use sending::{in_memory, send_file, send_more, unacknowledged};
