//! Wire formats, shared by client and simulated BMC: RMCP and session headers, IPMI messages, and
//! the payloads of the session handshake. Decoders return `None` for bytes that do not parse: a
//! malformed datagram is dropped, and the reason is not needed.

pub(crate) mod message;
pub(crate) mod packet;
pub(crate) mod rakp;

/// Longest datagram that is read, in bytes. Ours: the longest packet of the commands used here is
/// below 200 bytes.
pub const PACKET_BYTES_MAX: usize = 1024;

/// A little-endian number at `at`.
pub(crate) fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

/// Sixteen bytes at `at`.
pub(crate) fn sixteen_at(bytes: &[u8], at: usize) -> Option<[u8; 16]> {
    bytes.get(at..at.checked_add(16)?)?.try_into().ok()
}
