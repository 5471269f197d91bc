//! Identities of nodes, ports and resources, and hardware addresses.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::Entropy;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A random (version 4) identity.
            pub fn random(entropy: &mut dyn Entropy) -> Self {
                let mut bytes = [0; 16];
                entropy.fill(&mut bytes);
                Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
            }

            /// The 16 bytes of the identity, as in the store's keys.
            pub fn bytes(self) -> [u8; 16] {
                self.0.into_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(out)
            }
        }

        impl FromStr for $name {
            type Err = BadIdentity;

            /// Accepts the hyphenated form and the 32-digit form, as Ironic does.
            fn from_str(text: &str) -> Result<Self, BadIdentity> {
                if text.len() != 36 && text.len() != 32 {
                    return Err(BadIdentity);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| BadIdentity)
            }
        }
    };
}

identity! {
    /// A node's UUID.
    NodeId
}
identity! {
    /// A port's UUID.
    PortId
}
identity! {
    /// A resource's UUID.
    ResourceId
}

/// The text is not a UUID.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a UUID")]
pub struct BadIdentity;

/// An Ethernet address. Shown in lower case with colons.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MacAddr(pub [u8; 6]);

/// The text is not six pairs of hexadecimal digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a MAC address")]
pub struct BadMac;

impl fmt::Display for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, octet)| {
            write!(out, "{}{octet:02x}", if at == 0 { "" } else { ":" })
        })
    }
}

impl FromStr for MacAddr {
    type Err = BadMac;

    /// Accepts colons or hyphens between the pairs, in either case.
    fn from_str(text: &str) -> Result<Self, BadMac> {
        let mut octets = [0; 6];
        let mut pairs = text.split([':', '-']);
        for octet in &mut octets {
            let pair = pairs.next().ok_or(BadMac)?;
            if pair.len() != 2 || !pair.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(BadMac);
            }
            *octet = u8::from_str_radix(pair, 16).map_err(|_| BadMac)?;
        }
        if pairs.next().is_some() {
            Err(BadMac)
        } else {
            Ok(Self(octets))
        }
    }
}

impl Serialize for MacAddr {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        if out.is_human_readable() {
            out.collect_str(self)
        } else {
            self.0.serialize(out)
        }
    }
}

impl<'de> Deserialize<'de> for MacAddr {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        if input.is_human_readable() {
            let text = String::deserialize(input)?;
            text.parse().map_err(serde::de::Error::custom)
        } else {
            <[u8; 6]>::deserialize(input).map(Self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededRandom;

    #[test]
    fn a_mac_reads_back_what_it_shows() {
        let mac: MacAddr = "52:54:00:AA-bb:01".parse().unwrap();
        assert_eq!(mac.to_string(), "52:54:00:aa:bb:01");
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }

    #[test]
    fn refuses_texts_that_are_not_a_mac() {
        for text in [
            "",
            "52:54:00:aa:bb",
            "52:54:00:aa:bb:01:02",
            "5:54:00:aa:bb:01",
            "+2:54:00:aa:bb:01",
        ] {
            assert_eq!(text.parse::<MacAddr>(), Err(BadMac), "{text}");
        }
    }

    #[test]
    fn a_random_identity_is_version_four_and_reads_back() {
        let id = NodeId::random(&mut SeededRandom::new(7));
        assert_eq!(id.0.get_version_num(), 4);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("{urn}".parse::<NodeId>(), Err(BadIdentity));
    }
}
