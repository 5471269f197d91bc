//! How to connect to a node's BMC, from its `driver_info`. An unsupported value is refused, because
//! a weaker setting than the requested one would be a surprise later.

use serde_json::Value;
use trivet_bmc::http::{BmcHttpOrigin, BmcHttpTarget, BmcHttpTrust, CERTIFICATE_PIN_BYTES};
use trivet_model::PowerError;
use trivet_model::node::JsonObject;
use trivet_model::secret::SecretText;

use crate::link;

const ADDRESS: &str = "a redfish_address such as https://192.0.2.7 (scheme, host and port only)";

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

/// A BMC, and how to connect to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RedfishTarget {
    /// Its origin.
    pub address: BmcHttpOrigin,
    /// The path of the node's system; `None` if there is only one.
    pub system: Option<String>,
    /// Credentials; `None` if the BMC requires no login.
    pub login: Option<RedfishLogin>,
    /// How to authenticate.
    pub auth: RedfishAuth,
    /// Which certificate is trusted.
    pub trust: BmcHttpTrust,
}

impl RedfishTarget {
    /// Where its requests are sent.
    pub fn http_target(&self) -> BmcHttpTarget {
        BmcHttpTarget {
            address: self.address.clone(),
            trust: self.trust.clone(),
        }
    }

    /// Reads a node's `driver_info`.
    pub fn of(info: &JsonObject) -> Result<Self, PowerError> {
        let missing = |missing| PowerError::NotConfigured { missing };
        let address = text(info, "redfish_address").ok_or(missing("redfish_address"))?;
        let address: BmcHttpOrigin = address.parse().map_err(|()| missing(ADDRESS))?;
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

fn trust(info: &JsonObject) -> Result<BmcHttpTrust, PowerError> {
    let wrong = |missing| PowerError::NotConfigured { missing };
    if let Some(value) = info.get("redfish_pin").filter(|value| !value.is_null()) {
        let pin = value.as_str().and_then(pin);
        let missing = "a redfish_pin of 64 hexadecimal digits (the certificate's SHA-256)";
        return pin.map(BmcHttpTrust::Pin).ok_or(wrong(missing));
    }
    let word = match info.get("redfish_verify_ca") {
        None | Some(Value::Null | Value::Bool(true)) => return Ok(BmcHttpTrust::Site),
        Some(Value::Bool(false)) => return Ok(BmcHttpTrust::Any),
        Some(value) => value.as_str().unwrap_or_default().trim(),
    };
    let missing = "a redfish_verify_ca of true, false, a path or a certificate as PEM text";
    match word.to_ascii_lowercase().as_str() {
        "" => Err(wrong(missing)),
        "true" | "yes" | "on" | "1" => Ok(BmcHttpTrust::Site),
        "false" | "no" | "off" | "0" => Ok(BmcHttpTrust::Any),
        _ if word.contains("-----BEGIN") => Ok(BmcHttpTrust::Authority(word.to_owned())),
        _ if word.starts_with('/') => Ok(BmcHttpTrust::File(word.to_owned())),
        _ => Err(wrong(missing)),
    }
}

/// Parses hexadecimal digits, with or without colons, in the format of `openssl x509 -fingerprint`.
fn pin(text: &str) -> Option<[u8; CERTIFICATE_PIN_BYTES]> {
    let text = text.trim();
    let text = text.strip_prefix("sha256:").unwrap_or(text);
    let digit = |character: &u8| char::from(*character).to_digit(16);
    let digits: Option<Vec<u32>> = text
        .as_bytes()
        .iter()
        .filter(|byte| **byte != b':')
        .map(digit)
        .collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    let bytes: Vec<u8> = pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    (digits.len() == 2 * CERTIFICATE_PIN_BYTES).then_some(())?;
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
        let text = of(info).unwrap_err().to_string();
        assert!(text.contains(key), "{text}");
    }

    #[test]
    fn an_address_alone_is_enough_and_is_https() {
        let target = of(json!({"redfish_address": "192.0.2.7"})).unwrap();
        assert_eq!(target.address.to_string(), "https://192.0.2.7");
        assert_eq!(
            (target.auth, target.trust),
            (RedfishAuth::Auto, BmcHttpTrust::Site)
        );
        assert_eq!((target.system, target.login), (None, None));
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
            (RedfishAuth::Basic, &BmcHttpTrust::Any)
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
        let digits = "AB".repeat(CERTIFICATE_PIN_BYTES);
        let colons = vec!["ab"; CERTIFICATE_PIN_BYTES].join(":");
        for text in [digits.clone(), colons, format!("sha256:{digits}")] {
            let target = of(json!({
                "redfish_address": "a", "redfish_pin": text, "redfish_verify_ca": false,
            }));
            assert_eq!(
                target.unwrap().trust,
                BmcHttpTrust::Pin([0xab; CERTIFICATE_PIN_BYTES])
            );
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
            BmcHttpTrust::File("/etc/ca.pem".into())
        );
        let pem = "-----BEGIN CERTIFICATE-----\nx";
        assert_eq!(of(json!(pem)), BmcHttpTrust::Authority(pem.into()));
        assert_eq!(of(json!("yes")), BmcHttpTrust::Site);
        assert_eq!(of(json!(false)), BmcHttpTrust::Any);
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
