//! Benchmarks beside their peers.
//!
//! Each benchmark measures ours and a peer in the same run and prints one line per
//! figure: name, ours, peer, ratio, spread. What they share is here.

pub mod disk;
pub mod figure;
