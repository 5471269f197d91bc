//! The address and login of a node's BMC, from its `driver_info`. A value that is not supported
//! is refused: silently using less than was configured would cause errors later.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use trivet_model::PowerError;
use trivet_model::node::JsonObject;

use crate::{IpmiCipherSuite, IpmiPrivilege, IpmiTarget};

/// The port of IPMI over LAN (IPMI 2.0, section 13.1.2).
const IPMI_PORT: u16 = 623;

/// Hexadecimal digits of a BMC's key: twenty bytes (section 13.31).
const KG_DIGITS: usize = 40;

/// Where a node's BMC listens. Names are not resolved: the box may have no uplink, and a change
/// in the DNS must not redirect power orders.
pub fn ipmi_address(info: &JsonObject) -> Result<SocketAddr, PowerError> {
    let missing = |missing| PowerError::NotConfigured { missing };
    let address: IpAddr = info
        .get("ipmi_address")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or(missing("ipmi_address (an IP address)"))?;
    let port = match info.get("ipmi_port") {
        None | Some(Value::Null) => IPMI_PORT,
        Some(Value::Number(number)) => number
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
            .ok_or(missing("a valid ipmi_port"))?,
        Some(Value::String(text)) => text.parse().map_err(|_| missing("a valid ipmi_port"))?,
        Some(_) => return Err(missing("a valid ipmi_port")),
    };
    Ok(SocketAddr::new(address, port))
}

/// User name, password, privilege level and cipher suite for the login.
pub fn ipmi_target(info: &JsonObject) -> Result<IpmiTarget, PowerError> {
    let text = |key: &str, missing| match info.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.clone().into_bytes()),
        Some(_) => Err(PowerError::NotConfigured { missing }),
    };
    Ok(IpmiTarget {
        username: text("ipmi_username", "an ipmi_username that is a string")?,
        password: text(
            "ipmi_password",
            "an ipmi_password that is a string (in quotes)",
        )?,
        kg: kg_key(info)?,
        suite: suite(info)?,
        ipmi15: is_ipmi_1_5(info)?,
        privilege: privilege(info)?,
    })
}

fn privilege(info: &JsonObject) -> Result<IpmiPrivilege, PowerError> {
    let word = match info.get("ipmi_priv_level") {
        None | Some(Value::Null) => return Ok(IpmiPrivilege::Administrator),
        Some(value) => value.as_str().unwrap_or_default(),
    };
    let missing = "an ipmi_priv_level of ADMINISTRATOR, OPERATOR or USER";
    match word.to_ascii_uppercase().as_str() {
        "ADMINISTRATOR" => Ok(IpmiPrivilege::Administrator),
        "OPERATOR" => Ok(IpmiPrivilege::Operator),
        "USER" => Ok(IpmiPrivilege::User),
        _ => Err(PowerError::NotConfigured { missing }),
    }
}

fn suite(info: &JsonObject) -> Result<Option<IpmiCipherSuite>, PowerError> {
    let number = match info.get("ipmi_cipher_suite") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_u64().and_then(|number| u8::try_from(number).ok()),
    };
    let missing = match number.and_then(IpmiCipherSuite::from_number) {
        Some(IpmiCipherSuite::Plain) if !allows_cipher_suite_0(info) => {
            "ipmi_allow_cipher_suite_0 = true: without it ipmi_cipher_suite 0 is not used, because \
             any host on the network could then switch the machine"
        }
        Some(suite) => return Ok(Some(suite)),
        None => "an ipmi_cipher_suite of 17 or 3 (this box supports no other except 0)",
    };
    Err(PowerError::NotConfigured { missing })
}

/// Whether the operator allows cipher suite 0 although it authenticates nothing.
fn allows_cipher_suite_0(info: &JsonObject) -> bool {
    match info.get("ipmi_allow_cipher_suite_0") {
        Some(Value::Bool(yes)) => *yes,
        Some(Value::String(word)) => word.trim().eq_ignore_ascii_case("true"),
        _ => false,
    }
}

/// Whether IPMI 1.5 is used; the default is 2.0.
fn is_ipmi_1_5(info: &JsonObject) -> Result<bool, PowerError> {
    let missing = "an ipmi_protocol_version of 2.0 or 1.5";
    match info.get("ipmi_protocol_version") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::String(word)) if word.trim() == "2.0" => Ok(false),
        Some(Value::String(word)) if word.trim() == "1.5" => Ok(true),
        Some(Value::Number(number)) if number.to_string() == "2.0" => Ok(false),
        Some(Value::Number(number)) if number.to_string() == "1.5" => Ok(true),
        Some(_) => Err(PowerError::NotConfigured { missing }),
    }
}

fn kg_key(info: &JsonObject) -> Result<Option<Vec<u8>>, PowerError> {
    let text = match info.get("ipmi_hex_kg_key") {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_str().unwrap_or_default(),
    };
    let missing = "an ipmi_hex_kg_key of 40 hexadecimal digits";
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks_exact(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| match pair {
            &[high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
            _ => None,
        })
        .collect();
    let bytes = bytes.filter(|_| text.len() == KG_DIGITS);
    bytes.map(Some).ok_or(PowerError::NotConfigured { missing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(key: &str, value: Value) -> Result<IpmiTarget, PowerError> {
        ipmi_target(&JsonObject::from_iter([(key.to_owned(), value)]))
    }

    #[test]
    fn the_default_is_administrator_with_any_suite() {
        let target = read("ipmi_username", json!("admin")).unwrap();
        assert_eq!(target.username, b"admin");
        assert_eq!(target.privilege, IpmiPrivilege::Administrator);
        assert_eq!((target.suite, target.kg), (None, None));
    }

    #[test]
    fn levels_suites_and_keys_are_honoured() {
        let level = read("ipmi_priv_level", json!("operator"))
            .unwrap()
            .privilege;
        assert_eq!(level, IpmiPrivilege::Operator);
        for value in [json!(3), json!("3")] {
            let suite = read("ipmi_cipher_suite", value).unwrap().suite;
            assert_eq!(suite, Some(IpmiCipherSuite::Sha1));
        }
        let kg = read("ipmi_hex_kg_key", json!("00fF".repeat(10)))
            .unwrap()
            .kg;
        assert_eq!(kg, Some([0, 0xff].repeat(10)));
    }

    #[test]
    fn cipher_suite_0_must_be_allowed_explicitly() {
        let with = |insists: Value| {
            ipmi_target(&JsonObject::from_iter([
                ("ipmi_cipher_suite".to_owned(), json!(0)),
                ("ipmi_allow_cipher_suite_0".to_owned(), insists),
            ]))
        };
        for insists in [json!(true), json!("True")] {
            assert_eq!(with(insists).unwrap().suite, Some(IpmiCipherSuite::Plain));
        }
        for insists in [json!(false), json!("no"), json!(1), json!(null)] {
            let text = with(insists).unwrap_err().to_string();
            assert!(text.contains("ipmi_allow_cipher_suite_0"), "{text}");
        }
    }

    #[test]
    fn ipmi_1_5_is_used_where_it_is_configured() {
        for (value, old) in [
            (json!("1.5"), true),
            (json!(1.5), true),
            (json!("2.0"), false),
            (json!(2.0), false),
            (json!(null), false),
        ] {
            let target = read("ipmi_protocol_version", value).unwrap();
            assert_eq!(target.ipmi15, old);
        }
    }

    #[test]
    fn unsupported_values_are_named() {
        for (key, value) in [
            ("ipmi_password", json!(1234)),
            ("ipmi_username", json!(true)),
            ("ipmi_priv_level", json!("CALLBACK")),
            ("ipmi_priv_level", json!(4)),
            ("ipmi_cipher_suite", json!(0)),
            ("ipmi_cipher_suite", json!(1)),
            ("ipmi_protocol_version", json!("1.6")),
            ("ipmi_protocol_version", json!(true)),
            ("ipmi_cipher_suite", json!("x")),
            ("ipmi_cipher_suite", json!(300)),
            ("ipmi_hex_kg_key", json!("00")),
            ("ipmi_hex_kg_key", json!("0g".repeat(20))),
            ("ipmi_hex_kg_key", json!("\u{e9}".repeat(20))),
            ("ipmi_hex_kg_key", json!([])),
        ] {
            let text = read(key, value).unwrap_err().to_string();
            assert!(text.contains(key), "{text}");
        }
    }
}
