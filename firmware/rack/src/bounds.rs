//! How much one box holds. All bounds are ours: a rack has some dozens of
//! machines, and a box in front of several racks some hundreds.

/// The most nodes.
pub const NODES_MAX: usize = 4096;

/// The most ports.
pub const PORTS_MAX: usize = 16_384;
