//! The origin of a BMC's HTTP service, and which certificate is trusted there.

use core::fmt;
use core::str::FromStr;

/// Bytes of a certificate's SHA-256.
pub const CERTIFICATE_PIN_BYTES: usize = 32;

/// Longest host name in bytes (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// The origin of an HTTP service.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct BmcHttpOrigin {
    /// Whether to use TLS.
    pub secure: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl BmcHttpOrigin {
    /// Host and port, in the form of a `Host` header.
    pub fn authority(&self) -> String {
        let [whole, short] = self.authorities();
        if self.port == self.usual_port() {
            short
        } else {
            whole
        }
    }

    fn usual_port(&self) -> u16 {
        if self.secure { 443 } else { 80 }
    }

    /// The forms of host and port that a URL of this origin can have.
    pub fn authorities(&self) -> [String; 2] {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        let whole = format!("{host}:{}", self.port);
        if self.port == self.usual_port() {
            [whole, host]
        } else {
            [whole.clone(), whole]
        }
    }
}

impl fmt::Display for BmcHttpOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(out, "{scheme}://{}", self.authority())
    }
}

/// A URL, or a host, which is connected to with TLS.
impl FromStr for BmcHttpOrigin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (secure, rest) = match text.split_once("://") {
            None => (true, text),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some(_) => return Err(()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(())?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| ())?;
                (
                    host,
                    port.strip_prefix(':')
                        .or(port.is_empty().then_some(""))
                        .ok_or(())?,
                )
            }
            // A bare IPv6 address has no port.
            None if rest.parse::<std::net::Ipv6Addr>().is_ok() => (rest, ""),
            None => rest.split_once(':').unwrap_or((rest, "")),
        };
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(is_allowed) {
            return Err(());
        }
        let port = match port {
            "" if secure => 443,
            "" => 80,
            text => text.parse().ok().filter(|port| *port != 0).ok_or(())?,
        };
        let host = host.to_ascii_lowercase();
        Ok(Self { secure, host, port })
    }
}

/// Which certificate is trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BmcHttpTrust {
    /// One signed by the site's authorities, which the box's settings name.
    Site,
    /// One that an authority in this PEM text signed.
    Authority(String),
    /// One that an authority in this file signed.
    File(String),
    /// Only the one with this SHA-256.
    Pin([u8; CERTIFICATE_PIN_BYTES]),
    /// Any: the operator disabled certificate verification.
    Any,
}

/// Where a request is sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BmcHttpTarget {
    /// The origin.
    pub address: BmcHttpOrigin,
    /// Which certificate is trusted.
    pub trust: BmcHttpTrust,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_or_hosts() {
        for (text, want) in [
            ("https://bmc.example", "https://bmc.example"),
            ("HTTP://BMC.example:8000/", "http://bmc.example:8000"),
            ("http://[2001:db8::7]:80", "http://[2001:db8::7]"),
            ("2001:db8::7", "https://[2001:db8::7]"),
            ("[2001:db8::7]", "https://[2001:db8::7]"),
            ("192.0.2.7:8443", "https://192.0.2.7:8443"),
        ] {
            assert_eq!(text.parse::<BmcHttpOrigin>().unwrap().to_string(), want);
        }
        for text in [
            "",
            "https://",
            "ftp://192.0.2.7",
            "https://a/redfish/v1",
            "https://user@a",
            "https://a:0",
            "https://a:x",
            "https://a:65536",
            "[::1]x",
            "[x]",
            "a b",
            "a?b",
            "a#b",
            &"a".repeat(254),
        ] {
            assert!(text.parse::<BmcHttpOrigin>().is_err(), "{text}");
        }
    }
}
