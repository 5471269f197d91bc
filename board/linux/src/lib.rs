//! The board on Linux.
