//! Digests that can be verified chunk by chunk.
//!
//! SHA-256 and SHA-512 (FIPS 180-4) process a block at a time and have an intermediate state
//! after each. A chunk list holds the states at the ends of the chunks, so it costs nothing
//! beyond the digest of the whole: a chunk is valid if hashing it turns the state before it
//! into the state after it, and the last chunk if the result is the digest itself. An
//! interrupted digest can continue from any state in the list. A list with a wrong state never
//! results in the digest, so it needs no signature of its own.

mod incremental;
mod list;

pub use incremental::{DigestAlgorithm, DigestState, IncrementalDigest};
pub use list::{ChunkList, ChunkListError, LIST_BYTES_MAX};

/// Bytes of a chunk; the last one of an image may be shorter. Ours: a multiple of both
/// algorithms' blocks, and small enough to fetch again cheaply.
pub const CHUNK_BYTES: u64 = 1024 * 1024;

/// The most chunks of an image: 16 TiB.
pub const CHUNKS_MAX: u64 = 1 << 24;

/// How many chunks an image of this size has. An empty image has one empty chunk: its digest is
/// verified like any other.
pub const fn chunk_count(size: u64) -> u64 {
    if size == 0 {
        1
    } else {
        size.div_ceil(CHUNK_BYTES)
    }
}

/// Where the last chunk of an image of this size begins.
pub const fn last_chunk_start(size: u64) -> u64 {
    (chunk_count(size) - 1) * CHUNK_BYTES
}
