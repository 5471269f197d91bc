//! The settings of a session: credentials and timing.

use core::fmt;

use crate::channel::ipmi15::KEY_BYTES;
use crate::privilege::IpmiPrivilege;
use crate::suite::IpmiCipherSuite;
use crate::wire::rakp::{KG_BYTES_MAX, PASSWORD_BYTES_MAX, USERNAME_BYTES_MAX};

/// Credentials and protocol settings. `suite` is for BMCs that implement another suite wrongly.
#[derive(Clone, Eq, PartialEq)]
pub struct IpmiTarget {
    /// User name, at most 16 bytes.
    pub username: Vec<u8>,
    /// Password, at most 20 bytes.
    pub password: Vec<u8>,
    /// The BMC key (K_g), at most 20 bytes, if it has one.
    pub kg: Option<Vec<u8>>,
    /// The only suite to use; `None` tries 17, then 3.
    pub suite: Option<IpmiCipherSuite>,
    /// Use IPMI 1.5 with MD5 instead, for a BMC that supports nothing newer.
    pub ipmi15: bool,
    /// The privilege level of the session.
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
    /// Whether all that is sent to the BMC is encrypted: sessions of IPMI 1.5 and of cipher suite 0
    /// are not.
    pub fn is_encrypted(&self) -> bool {
        !self.ipmi15 && self.suite != Some(IpmiCipherSuite::Plain)
    }

    /// The invalid setting that prevents every login, if there is one.
    pub(super) fn missing_setting(&self) -> Option<&'static str> {
        if self.username.len() > USERNAME_BYTES_MAX {
            Some("an ipmi_username of at most 16 bytes")
        } else if self.password.len() > PASSWORD_BYTES_MAX {
            Some("an ipmi_password of at most 20 bytes")
        } else if self.ipmi15 && self.password.len() > KEY_BYTES {
            Some("an ipmi_password of at most 16 bytes, the limit of IPMI 1.5")
        } else if self.kg.as_ref().is_some_and(|kg| kg.len() > KG_BYTES_MAX) {
            Some("an ipmi_hex_kg_key of at most 20 bytes")
        } else {
            None
        }
    }
}

/// Timing of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IpmiTiming {
    /// Wait before the first retry, in milliseconds; it doubles with each retry.
    pub first_retry_ms: u64,
    /// The longest wait between retries, in milliseconds.
    pub wait_ms_max: u64,
    /// Most attempts of one request, the first one included.
    pub tries_max: u32,
    /// Longest duration of one order from its first datagram, in milliseconds.
    pub order_ms_max: u64,
    /// Pause between the end of one order and the start of the next, in milliseconds: cheap BMCs
    /// lose faster requests.
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
