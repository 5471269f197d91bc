//! The disk of a machine.

/// The content of the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SimMachineDisk {
    /// Nothing bootable.
    Empty,
    /// A write has started and not finished.
    Incomplete,
    /// All of an image with this digest but its first chunk: it does not boot.
    WrittenAhead([u8; 32]),
    /// An image with this digest.
    Image([u8; 32]),
}
