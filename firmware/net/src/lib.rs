//! What the crates of the workspace share about URLs: percent-encoding (`percent.rs`).
//!
//! The rules are those of RFC 3986. The crate decides nothing about what is requested.

pub mod percent;
