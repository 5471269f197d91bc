//! Digests of images.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A digest that an image is verified against.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Digest {
    /// SHA-256.
    Sha256([u8; 32]),
    /// SHA-512.
    Sha512([u8; 64]),
}

/// The text is neither 64 nor 128 hexadecimal digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a digest is 64 (SHA-256) or 128 (SHA-512) hexadecimal digits")]
pub struct BadDigest;

impl Digest {
    /// Ironic's name of the algorithm (`image_os_hash_algo`).
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "sha256",
            Self::Sha512(_) => "sha512",
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        text.parse()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: &[u8] = match self {
            Self::Sha256(bytes) => bytes,
            Self::Sha512(bytes) => bytes,
        };
        bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        match text.len() {
            64 => unhex(text).map(Self::Sha256),
            128 => unhex(text).map(Self::Sha512),
            _ => Err(BadDigest),
        }
    }
}

fn unhex<const N: usize>(text: &str) -> Result<[u8; N], BadDigest> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(BadDigest);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_shows() {
        for text in ["0f".repeat(32), "A0".repeat(64)] {
            let digest: Digest = text.parse().unwrap();
            assert_eq!(digest.to_string(), text.to_lowercase());
        }
    }

    #[test]
    fn refuses_other_lengths_and_characters() {
        for text in [
            String::new(),
            "0f".repeat(16),
            "0g".repeat(32),
            "\u{e9}".repeat(32),
        ] {
            assert_eq!(text.parse::<Digest>(), Err(BadDigest), "{text}");
        }
    }
}
