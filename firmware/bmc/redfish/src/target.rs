//! How to connect to a node's BMC, from its `driver_info`. An unsupported value is refused, because
//! a weaker setting than the requested one would be a surprise later.

use core::fmt;
use core::str::FromStr;

use serde_json::Value;
use trivet_model::PowerError;
use trivet_model::node::JsonObject;
use trivet_model::secret::SecretText;

use crate::link;

/// Bytes of a certificate's SHA-256.
pub const PIN_BYTES: usize = 32;

/// Longest host name in bytes (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

const ADDRESS: &str = "a redfish_address such as https://192.0.2.7 (scheme, host and port only)";

/// The origin of a Redfish service.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RedfishOrigin {
    /// Whether to use TLS.
    pub secure: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl RedfishOrigin {
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
    pub(crate) fn authorities(&self) -> [String; 2] {
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

impl fmt::Display for RedfishOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(out, "{scheme}://{}", self.authority())
    }
}

/// A URL, or a host, which is connected to with TLS.
impl FromStr for RedfishOrigin {
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
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(letter) {
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

/// How to authenticate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RedfishAuth {
    /// With a session, or else with the password in each request.
    Auto,
    /// With a session only.
    Session,
    /// With the password in each request.
    Basic,
}

/// Credentials for the login.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RedfishLogin {
    /// User name.
    pub username: String,
    /// The password.
    pub password: SecretText,
}

/// Which certificate is trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedfishTrust {
    /// One signed by the site's authorities, which the box's settings name.
    Site,
    /// One that an authority in this PEM text signed.
    Authority(String),
    /// One that an authority in this file signed.
    File(String),
    /// Only the one with this SHA-256.
    Pin([u8; PIN_BYTES]),
    /// Any: the operator disabled certificate verification.
    Any,
}

/// A BMC, and how to connect to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RedfishTarget {
    /// Its origin.
    pub address: RedfishOrigin,
    /// The path of the node's system; `None` if there is only one.
    pub system: Option<String>,
    /// Credentials; `None` if the BMC requires no login.
    pub login: Option<RedfishLogin>,
    /// How to authenticate.
    pub auth: RedfishAuth,
    /// Which certificate is trusted.
    pub trust: RedfishTrust,
}

impl RedfishTarget {
    /// Reads a node's `driver_info`.
    pub fn of(info: &JsonObject) -> Result<Self, PowerError> {
        let missing = |missing| PowerError::NotConfigured { missing };
        let address = text(info, "redfish_address").ok_or(missing("redfish_address"))?;
        let address: RedfishOrigin = address.parse().map_err(|()| missing(ADDRESS))?;
        let system = match info.get("redfish_system_id") {
            None | Some(Value::Null) => None,
            Some(value) => Some(
                value
                    .as_str()
                    .and_then(|text| link::path(text, &address))
                    .ok_or(missing("a redfish_system_id such as /redfish/v1/Systems/1"))?,
            ),
        };
        for (key, wants) in [
            ("redfish_username", "a redfish_username that is a text"),
            (
                "redfish_password",
                "a redfish_password that is a text (in quotes)",
            ),
        ] {
            let value = info.get(key).filter(|value| !value.is_null());
            if value.is_some_and(|value| !value.is_string()) {
                return Err(missing(wants));
            }
        }
        let password = SecretText::new(text(info, "redfish_password").unwrap_or_default());
        let login = text(info, "redfish_username").map(|username| RedfishLogin {
            username: username.to_owned(),
            password,
        });
        Ok(Self {
            address,
            system,
            login,
            auth: auth(info)?,
            trust: trust(info)?,
        })
    }
}

/// The text of a key; null and the empty text count as absent.
fn text<'a>(info: &'a JsonObject, key: &str) -> Option<&'a str> {
    info.get(key)?.as_str().filter(|text| !text.is_empty())
}

fn auth(info: &JsonObject) -> Result<RedfishAuth, PowerError> {
    let word = match info.get("redfish_auth_type") {
        None | Some(Value::Null) => return Ok(RedfishAuth::Auto),
        Some(value) => value.as_str().unwrap_or_default(),
    };
    match word.to_ascii_lowercase().as_str() {
        "auto" => Ok(RedfishAuth::Auto),
        "session" => Ok(RedfishAuth::Session),
        "basic" => Ok(RedfishAuth::Basic),
        _ => Err(PowerError::NotConfigured {
            missing: "a redfish_auth_type of auto, session or basic",
        }),
    }
}

fn trust(info: &JsonObject) -> Result<RedfishTrust, PowerError> {
    let wrong = |missing| PowerError::NotConfigured { missing };
    if let Some(value) = info.get("redfish_pin").filter(|value| !value.is_null()) {
        let pin = value.as_str().and_then(pin);
        let missing = "a redfish_pin of 64 hexadecimal digits (the certificate's SHA-256)";
        return pin.map(RedfishTrust::Pin).ok_or(wrong(missing));
    }
    let word = match info.get("redfish_verify_ca") {
        None | Some(Value::Null | Value::Bool(true)) => return Ok(RedfishTrust::Site),
        Some(Value::Bool(false)) => return Ok(RedfishTrust::Any),
        Some(value) => value.as_str().unwrap_or_default().trim(),
    };
    let missing = "a redfish_verify_ca of true, false, a path or a certificate as PEM text";
    match word.to_ascii_lowercase().as_str() {
        "" => Err(wrong(missing)),
        "true" | "yes" | "on" | "1" => Ok(RedfishTrust::Site),
        "false" | "no" | "off" | "0" => Ok(RedfishTrust::Any),
        _ if word.contains("-----BEGIN") => Ok(RedfishTrust::Authority(word.to_owned())),
        _ if word.starts_with('/') => Ok(RedfishTrust::File(word.to_owned())),
        _ => Err(wrong(missing)),
    }
}

/// Parses hexadecimal digits, with or without colons, in the format of `openssl x509 -fingerprint`.
fn pin(text: &str) -> Option<[u8; PIN_BYTES]> {
    let text = text.trim();
    let text = text.strip_prefix("sha256:").unwrap_or(text);
    let digit = |letter: &u8| char::from(*letter).to_digit(16);
    let digits: Option<Vec<u32>> = text
        .as_bytes()
        .iter()
        .filter(|byte| **byte != b':')
        .map(digit)
        .collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    let bytes: Vec<u8> = pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    (digits.len() == 2 * PIN_BYTES).then_some(())?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(info: Value) -> Result<RedfishTarget, PowerError> {
        RedfishTarget::of(info.as_object().unwrap())
    }

    #[track_caller]
    fn refused(key: &str, value: Value) {
        let mut info = json!({"redfish_address": "192.0.2.7"});
        info[key] = value;
        let said = of(info).unwrap_err().to_string();
        assert!(said.contains(key), "{said}");
    }

    #[test]
    fn an_address_alone_is_enough_and_is_https() {
        let target = of(json!({"redfish_address": "192.0.2.7"})).unwrap();
        assert_eq!(target.address.to_string(), "https://192.0.2.7");
        assert_eq!(
            (target.auth, target.trust),
            (RedfishAuth::Auto, RedfishTrust::Site)
        );
        assert_eq!((target.system, target.login), (None, None));
    }

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
            assert_eq!(text.parse::<RedfishOrigin>().unwrap().to_string(), want);
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
            assert!(text.parse::<RedfishOrigin>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_whole_record_is_honoured() {
        let target = of(json!({
            "redfish_address": "http://192.0.2.7", "redfish_system_id": "/redfish/v1/Systems/2",
            "redfish_username": "root", "redfish_password": "hunter2",
            "redfish_auth_type": "Basic", "redfish_verify_ca": "False",
        }))
        .unwrap();
        assert_eq!(target.system.as_deref(), Some("/redfish/v1/Systems/2"));
        assert_eq!(
            (target.auth, &target.trust),
            (RedfishAuth::Basic, &RedfishTrust::Any)
        );
        let login = target.login.clone().unwrap();
        assert_eq!(
            (login.username.as_str(), login.password.reveal()),
            ("root", "hunter2")
        );
        assert!(!format!("{target:?}").contains("hunter2"));
    }

    #[test]
    fn a_pin_counts_before_every_authority() {
        let digits = "AB".repeat(PIN_BYTES);
        let colons = vec!["ab"; PIN_BYTES].join(":");
        for text in [digits.clone(), colons, format!("sha256:{digits}")] {
            let target = of(json!({
                "redfish_address": "a", "redfish_pin": text, "redfish_verify_ca": false,
            }));
            assert_eq!(target.unwrap().trust, RedfishTrust::Pin([0xab; PIN_BYTES]));
        }
    }

    #[test]
    fn an_authority_is_a_file_or_a_text() {
        let of = |value: Value| {
            of(json!({"redfish_address": "a", "redfish_verify_ca": value}))
                .unwrap()
                .trust
        };
        assert_eq!(
            of(json!("/etc/ca.pem")),
            RedfishTrust::File("/etc/ca.pem".into())
        );
        let pem = "-----BEGIN CERTIFICATE-----\nx";
        assert_eq!(of(json!(pem)), RedfishTrust::Authority(pem.into()));
        assert_eq!(of(json!("yes")), RedfishTrust::Site);
        assert_eq!(of(json!(false)), RedfishTrust::Any);
    }

    #[test]
    fn what_cannot_be_honoured_is_named() {
        refused("redfish_address", json!("ftp://x"));
        refused("redfish_address", json!(7));
        refused("redfish_system_id", json!("Systems/1"));
        refused(
            "redfish_system_id",
            json!("https://elsewhere.example/redfish/v1/Systems/1"),
        );
        refused("redfish_auth_type", json!("digest"));
        refused("redfish_auth_type", json!(1));
        refused("redfish_verify_ca", json!("ca.pem"));
        refused("redfish_verify_ca", json!(""));
        refused("redfish_verify_ca", json!(7));
        refused("redfish_pin", json!("abc"));
        refused("redfish_pin", json!("g".repeat(64)));
        refused("redfish_pin", json!("a".repeat(63)));
    }
}
