//! What becomes of an image in the cache.

use core::fmt;

use crate::Digest;

/// How it stands with an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageState {
    /// It comes from its source, or is checked.
    Filling,
    /// So many of its chunks have changed on the disk; they are fetched again.
    Rotten(u64),
    /// All of it is here and right.
    Whole,
    /// It made room for another.
    Gone,
    /// It is not to be had: the whole sentence.
    Failed(String),
}

impl fmt::Display for ImageState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Filling => "filling",
            Self::Rotten(_) => "rotten",
            Self::Whole => "whole",
            Self::Gone => "absent",
            Self::Failed(_) => "failed",
        })
    }
}

/// News of an image, from the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageNews {
    /// What it is called in the cache.
    pub key: String,
    /// What people call it.
    pub name: String,
    /// What it must hash to.
    pub digest: Digest,
    /// Its bytes, once that is known.
    pub size: Option<u64>,
    /// Bytes that are here.
    pub have: u64,
    /// How it stands.
    pub state: ImageState,
}
