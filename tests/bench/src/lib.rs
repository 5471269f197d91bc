//! Benchmarks beside their peers.
