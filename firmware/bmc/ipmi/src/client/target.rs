//! What a session is told at its start: whom to log in as, how patient to be.

use core::fmt;

use crate::channel::ipmi15::KEY_BYTES;
use crate::privilege::IpmiPrivilege;
use crate::suite::IpmiCipherSuite;
use crate::wire::rakp::{KG_BYTES_MAX, PASSWORD_BYTES_MAX, USERNAME_BYTES_MAX};

/// Whom to log in as. A forced suite is for BMCs that get one wrong.
#[derive(Clone, Eq, PartialEq)]
pub struct IpmiTarget {
    /// User name, at most 16 bytes.
    pub username: Vec<u8>,
    /// Password, at most 20 bytes.
    pub password: Vec<u8>,
    /// The BMC's own key (K_g), at most 20 bytes, where it has one.
    pub kg: Option<Vec<u8>>,
    /// The one suite to use; none tries 17, then 3.
    pub suite: Option<IpmiCipherSuite>,
    /// Speak IPMI 1.5 with MD5 instead, to a BMC that knows nothing better.
    pub ipmi15: bool,
    /// The level to work at.
    pub privilege: IpmiPrivilege,
}

impl fmt::Debug for IpmiTarget {
    /// Without the secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Target")
            .field("username", &self.username.escape_ascii().to_string())
            .field("suite", &self.suite)
            .field("old", &self.ipmi15)
            .field("privilege", &self.privilege)
            .finish_non_exhaustive()
    }
}

impl IpmiTarget {
    /// What keeps this target from ever working, if anything does.
    pub(super) fn missing_setting(&self) -> Option<&'static str> {
        if self.username.len() > USERNAME_BYTES_MAX {
            Some("an ipmi_username of at most 16 bytes")
        } else if self.password.len() > PASSWORD_BYTES_MAX {
            Some("an ipmi_password of at most 20 bytes")
        } else if self.ipmi15 && self.password.len() > KEY_BYTES {
            Some("an ipmi_password of at most 16 bytes, as IPMI 1.5 wants it")
        } else if self.kg.as_ref().is_some_and(|kg| kg.len() > KG_BYTES_MAX) {
            Some("an ipmi_hex_kg_key of at most 20 bytes")
        } else {
            None
        }
    }
}

/// How patient a session is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IpmiTiming {
    /// Wait before the first repetition; it doubles with each.
    pub first_retry_ms: u64,
    /// Where the doubling ends.
    pub wait_ms_max: u64,
    /// How often one request is sent in all.
    pub tries_max: u32,
    /// How long one order may take in all, from its first datagram.
    pub order_ms_max: u64,
    /// Rest between the end of one order and the beginning of the next: cheap BMCs
    /// lose what comes faster.
    pub order_gap_ms: u64,
}

impl Default for IpmiTiming {
    fn default() -> Self {
        Self {
            first_retry_ms: 250,
            wait_ms_max: 2_000,
            tries_max: 5,
            order_ms_max: 20_000,
            order_gap_ms: 50,
        }
    }
}
