//! The content of a BMC's boot mailbox: the token of one boot and the authority to trust.
//!
//! The layout is in `certs/enrol/README.md`. It fills the five blocks of 16 bytes that the
//! specification requires of each mailbox (IPMI 2.0, table 28-14, parameter 7).

use core::fmt;
use core::ops::Range;

use ring::digest;

use crate::token::{EnrolmentToken, TOKEN_BYTES};

/// Bytes of the whole content.
pub const MAILBOX_BYTES: usize = 80;

/// Trivet has no enterprise number of its own; this one is reserved for documentation
/// (RFC 5612).
pub const ENTERPRISE_NUMBER: u32 = 32_473;

/// The version of the layout.
pub const LAYOUT_VERSION: u8 = 1;

/// What follows the version. Others may use the same enterprise number.
const MAGIC: [u8; 4] = *b"TRVT";

/// Where each field is.
pub(crate) mod field {
    use super::Range;

    pub(crate) const ENTERPRISE: Range<usize> = 0..3;
    pub(crate) const VERSION: Range<usize> = 3..4;
    pub(crate) const MAGIC: Range<usize> = 4..8;
    pub(crate) const TOKEN: Range<usize> = 8..32;
    pub(crate) const TIME: Range<usize> = 32..40;
    pub(crate) const CA_KEY: Range<usize> = 40..72;
    pub(crate) const CHECKSUM: Range<usize> = 72..80;
}

/// What the box hands over to a machine before it boots.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MailboxContent {
    /// The token of this boot.
    pub token: EnrolmentToken,
    /// The time of the box, in seconds since 1970: certificates are verified by it, because the
    /// clock of a machine may be years off.
    pub unix_s: u64,
    /// SHA-256 of the public key (SubjectPublicKeyInfo, DER) of the box's CA.
    pub ca_key: [u8; 32],
}

/// Why the content of a mailbox was not understood.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MailboxError {
    /// The mailbox is empty: nothing was written, or it was read before.
    Empty,
    /// It has fewer bytes than the layout.
    TooShort {
        /// How many there are.
        bytes: usize,
    },
    /// It was written by something other than Trivet.
    Foreign,
    /// It has another version of the layout.
    Version {
        /// The version.
        version: u8,
    },
    /// The checksum does not fit: only a part was written.
    Checksum,
}

impl fmt::Display for MailboxError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(out, "the boot mailbox is empty"),
            Self::TooShort { bytes } => write!(
                out,
                "the boot mailbox has {bytes} bytes, and {MAILBOX_BYTES} are needed"
            ),
            Self::Foreign => write!(out, "the boot mailbox has data of other software"),
            Self::Version { version } => write!(
                out,
                "the boot mailbox has version {version} of the layout, and {LAYOUT_VERSION} is \
                 known: use an agent of the same release as the box"
            ),
            Self::Checksum => write!(out, "the boot mailbox was written in part only"),
        }
    }
}

impl core::error::Error for MailboxError {}

impl MailboxContent {
    /// The bytes for the mailbox.
    pub fn encode(&self) -> [u8; MAILBOX_BYTES] {
        let mut bytes = [0; MAILBOX_BYTES];
        let [low, middle, high, _] = ENTERPRISE_NUMBER.to_le_bytes();
        bytes[field::ENTERPRISE].copy_from_slice(&[low, middle, high]);
        bytes[field::VERSION].copy_from_slice(&[LAYOUT_VERSION]);
        bytes[field::MAGIC].copy_from_slice(&MAGIC);
        bytes[field::TOKEN].copy_from_slice(self.token.reveal());
        bytes[field::TIME].copy_from_slice(&self.unix_s.to_le_bytes());
        bytes[field::CA_KEY].copy_from_slice(&self.ca_key);
        let checksum = checksum(&bytes);
        bytes[field::CHECKSUM].copy_from_slice(&checksum);
        bytes
    }

    /// Reads the content of a mailbox. Bytes after the layout are ignored: a mailbox may be
    /// longer.
    pub fn decode(bytes: &[u8]) -> Result<Self, MailboxError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(MailboxError::Empty);
        }
        let bytes: &[u8; MAILBOX_BYTES] = bytes
            .first_chunk()
            .ok_or(MailboxError::TooShort { bytes: bytes.len() })?;
        let [low, middle, high, _] = ENTERPRISE_NUMBER.to_le_bytes();
        if bytes[field::ENTERPRISE] != [low, middle, high] || bytes[field::MAGIC] != MAGIC {
            return Err(MailboxError::Foreign);
        }
        let version = bytes[field::VERSION.start];
        if version != LAYOUT_VERSION {
            return Err(MailboxError::Version { version });
        }
        if bytes[field::CHECKSUM] != checksum(bytes) {
            return Err(MailboxError::Checksum);
        }
        let (mut token, mut time, mut ca_key) = ([0; TOKEN_BYTES], [0; 8], [0; 32]);
        token.copy_from_slice(&bytes[field::TOKEN]);
        time.copy_from_slice(&bytes[field::TIME]);
        ca_key.copy_from_slice(&bytes[field::CA_KEY]);
        Ok(Self {
            token: EnrolmentToken::from(token),
            unix_s: u64::from_le_bytes(time),
            ca_key,
        })
    }
}

/// The first bytes of the SHA-256 of all fields before the checksum.
fn checksum(bytes: &[u8; MAILBOX_BYTES]) -> [u8; 8] {
    let digest = digest::digest(&digest::SHA256, &bytes[..field::CHECKSUM.start]);
    let mut first = [0; 8];
    first.copy_from_slice(&digest.as_ref()[..8]);
    first
}

#[cfg(test)]
mod tests {
    use trivet_model::SeededRandom;

    use super::*;

    fn content() -> MailboxContent {
        MailboxContent {
            token: EnrolmentToken::mint(&mut SeededRandom::new(7)),
            unix_s: 1_802_000_000,
            ca_key: [0xca; 32],
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let bytes = content().encode();
        assert_eq!(MailboxContent::decode(&bytes), Ok(content()));
        // A mailbox may have more blocks.
        let longer = [&bytes[..], &[9; 48]].concat();
        assert_eq!(MailboxContent::decode(&longer), Ok(content()));
    }

    #[test]
    fn a_mailbox_of_zeros_or_of_nothing_is_empty() {
        for zeros in [0, 16, 80, 256] {
            let decoded = MailboxContent::decode(&vec![0; zeros]);
            assert_eq!(decoded, Err(MailboxError::Empty), "{zeros}");
        }
    }

    #[test]
    fn each_changed_bit_is_noticed() {
        let bytes = content().encode();
        for bit in 0..MAILBOX_BYTES * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(MailboxContent::decode(&changed).is_err(), "bit {bit}");
        }
    }

    /// The BMC writes block by block, and the power may fail between two.
    #[test]
    fn a_content_with_a_missing_block_is_not_used() {
        let bytes = content().encode();
        for block in 0..5 {
            let mut part = bytes;
            part[block * 16..(block + 1) * 16].fill(0);
            assert!(MailboxContent::decode(&part).is_err(), "block {block}");
        }
        for length in 1..MAILBOX_BYTES {
            let error = MailboxContent::decode(&bytes[..length]);
            assert_eq!(error, Err(MailboxError::TooShort { bytes: length }));
        }
    }

    #[test]
    fn each_error_has_its_own_reason() {
        let mut other = content().encode();
        other[0] = 1;
        assert_eq!(MailboxContent::decode(&other), Err(MailboxError::Foreign));
        let mut newer = content().encode();
        newer[3] = 2;
        let error = MailboxContent::decode(&newer).unwrap_err();
        assert_eq!(error, MailboxError::Version { version: 2 });
        assert!(error.to_string().contains("same release"), "{error}");
        let mut wrong = content().encode();
        wrong[20] ^= 1;
        assert_eq!(MailboxContent::decode(&wrong), Err(MailboxError::Checksum));
        for (error, part) in [
            (MailboxError::Empty, "empty"),
            (MailboxError::Foreign, "other software"),
            (MailboxError::Checksum, "in part"),
            (MailboxError::TooShort { bytes: 16 }, "16 bytes"),
        ] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn the_readme_has_the_layout_of_the_code() {
        let readme = include_str!("../README.md");
        let rows = [
            (field::ENTERPRISE, "enterprise number 32473, low byte first"),
            (field::VERSION, "version 1"),
            (field::MAGIC, "`TRVT`"),
            (field::TOKEN, "token"),
            (
                field::TIME,
                "time of Trivet in seconds since 1970, low byte first",
            ),
            (field::CA_KEY, "SHA-256 of the public key of the CA"),
            (
                field::CHECKSUM,
                "first 8 bytes of the SHA-256 of bytes 0 to 71",
            ),
        ];
        let mut lines = readme
            .lines()
            .skip_while(|line| !line.starts_with("| bytes"));
        let mut next = 0;
        lines.next();
        lines.next();
        for (range, meaning) in rows {
            let last = range.end - 1;
            let bytes = if range.start == last {
                last.to_string()
            } else {
                format!("{} to {last}", range.start)
            };
            assert_eq!(lines.next(), Some(&*format!("| {bytes} | {meaning} |")));
            assert_eq!(range.start, next, "no gap before {meaning}");
            next = range.end;
        }
        assert_eq!((lines.next(), next), (Some(""), MAILBOX_BYTES));
    }
}
