//! How much one box holds. All bounds are ours: a rack has some dozens of
//! machines, and a box in front of many racks some thousands.

/// The most nodes.
pub const NODES_MAX: usize = 16_384;

/// The most ports.
pub const PORTS_MAX: usize = 65_536;

/// The most resources of all kinds together.
pub const RESOURCES_MAX: usize = 65_536;
