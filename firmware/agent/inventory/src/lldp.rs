//! LLDP data units (IEEE 802.1AB) as an agent reports them, converted to the keys of Ironic's
//! inspection hook `parse-lldp`.
//!
//! Each entry is a type and the value in hexadecimal digits. They come from the network, so an
//! entry that is too short, or not what its type says, is skipped.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};
use trivet_model::node::JsonObject;

/// Most entries of one interface that are read. Ours: a frame has no room for more than a few
/// dozen.
const TLVS_MAX: usize = 128;

/// Most VLANs and addresses that are listed for one interface. Ours.
const LISTED_MAX: usize = 64;

/// Longest text, in characters (IEEE 802.1AB: 255 bytes).
const TEXT_CHARS_MAX: usize = 255;

/// Types of entries (IEEE 802.1AB, table 8-1).
mod kind {
    pub(super) const CHASSIS_ID: u64 = 1;
    pub(super) const PORT_ID: u64 = 2;
    pub(super) const PORT_DESCRIPTION: u64 = 4;
    pub(super) const SYSTEM_NAME: u64 = 5;
    pub(super) const SYSTEM_DESCRIPTION: u64 = 6;
    pub(super) const CAPABILITIES: u64 = 7;
    pub(super) const MANAGEMENT_ADDRESS: u64 = 8;
    pub(super) const ORGANIZATION: u64 = 127;
}

/// Organizations that define entries: IEEE 802.1 and IEEE 802.3.
const IEEE_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const IEEE_802_3: [u8; 3] = [0x00, 0x12, 0x0f];

/// Names of the bits of system capabilities, from bit zero (IEEE 802.1AB, table 8-4).
const CAPABILITIES: [&str; 11] = [
    "Other",
    "Repeater",
    "Bridge",
    "WLAN",
    "Router",
    "Telephone",
    "DOCSIS cable device",
    "Station only",
    "C-Vlan",
    "S-Vlan",
    "TPMR",
];

/// What the entries of one interface say.
pub(crate) fn parsed(entries: &Value) -> JsonObject {
    let mut found = JsonObject::new();
    let entries = entries.as_array().into_iter().flatten().take(TLVS_MAX);
    for entry in entries {
        let number = entry.get(0).and_then(Value::as_u64);
        let value = entry.get(1).and_then(Value::as_str).and_then(bytes);
        if let (Some(number), Some(value)) = (number, value) {
            add(&mut found, number, &value);
        }
    }
    found
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let pair = |pair: &[u8]| {
        let [high, low] = pair else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
    };
    pairs.map(pair).collect()
}

fn add(found: &mut JsonObject, number: u64, value: &[u8]) {
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            found.insert(key.to_owned(), value);
        }
    };
    match number {
        // The subtypes of the two differ: 4 and 5 of a chassis are 3 and 4 of a port.
        kind::CHASSIS_ID => put("switch_chassis_id", identifier(value, 4, 5)),
        kind::PORT_ID => put("switch_port_id", identifier(value, 3, 4)),
        kind::PORT_DESCRIPTION => put("switch_port_description", text(value)),
        kind::SYSTEM_NAME => put("switch_system_name", text(value)),
        kind::SYSTEM_DESCRIPTION => put("switch_system_description", text(value)),
        kind::CAPABILITIES => {
            let names = |at: usize| number_at(value, at).map(capabilities);
            put("switch_capabilities_support", names(0));
            put("switch_capabilities_enabled", names(2));
        }
        kind::MANAGEMENT_ADDRESS => {
            if let Some(address) = management_address(value) {
                append(found, "switch_mgmt_addresses", address.into());
            }
        }
        kind::ORGANIZATION => add_of_organization(found, value),
        _ => {}
    }
}

fn add_of_organization(found: &mut JsonObject, value: &[u8]) {
    let Some((organization, [subtype, rest @ ..])) = value.split_first_chunk::<3>() else {
        return;
    };
    match (*organization, subtype) {
        (IEEE_802_1, 1) => {
            if let Some(id) = number_at(rest, 0) {
                found.insert("switch_port_untagged_vlan_id".to_owned(), id.into());
            }
        }
        (IEEE_802_1, 3) => {
            let name = rest.get(2).and_then(|length| {
                let name = rest.get(3..3 + usize::from(*length))?;
                text(name)
            });
            if let (Some(id), Some(name)) = (number_at(rest, 0), name) {
                append(found, "switch_port_vlans", json!({"id": id, "name": name}));
            }
        }
        (IEEE_802_1, 7) | (IEEE_802_3, 3) => {
            let Some((state, [one, two, three, four, ..])) = rest.split_first() else {
                return;
            };
            let id = u32::from_be_bytes([*one, *two, *three, *four]);
            for (key, value) in [
                ("support", json!(state & 1 != 0)),
                ("enabled", json!(state & 2 != 0)),
                ("id", json!(id)),
            ] {
                found.insert(format!("switch_port_link_aggregation_{key}"), value);
            }
        }
        (IEEE_802_3, 4) => {
            if let Some(bytes) = number_at(rest, 0) {
                found.insert("switch_port_mtu".to_owned(), bytes.into());
            }
        }
        _ => {}
    }
}

fn append(found: &mut JsonObject, key: &str, value: Value) {
    let list = found.entry(key).or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut().filter(|list| list.len() < LISTED_MAX) {
        list.push(value);
    }
}

/// A chassis or a port: by its hardware address, its network address, or a name.
fn identifier(value: &[u8], by_mac: u8, by_address: u8) -> Option<Value> {
    let (subtype, rest) = value.split_first()?;
    if *subtype == by_mac {
        let mac = <[u8; 6]>::try_from(rest).ok()?;
        return Some(trivet_model::MacAddr(mac).to_string().into());
    }
    if *subtype == by_address {
        return address(rest).map(Value::from);
    }
    text(rest)
}

/// An address after its family (IANA address family numbers).
fn address(value: &[u8]) -> Option<String> {
    match value.split_first()? {
        (1, rest) => Some(Ipv4Addr::from(<[u8; 4]>::try_from(rest).ok()?).to_string()),
        (2, rest) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(rest).ok()?).to_string()),
        _ => None,
    }
}

fn management_address(value: &[u8]) -> Option<String> {
    let (length, rest) = value.split_first()?;
    address(rest.get(..usize::from(*length))?)
}

fn number_at(value: &[u8], at: usize) -> Option<u16> {
    let pair = value.get(at..at + 2)?;
    Some(u16::from_be_bytes(pair.try_into().ok()?))
}

fn capabilities(bits: u16) -> Value {
    let set = |bit: usize| (bits >> bit) & 1 != 0;
    let names = CAPABILITIES.iter().enumerate();
    let names = names.filter(|(bit, _)| set(*bit)).map(|(_, name)| *name);
    names.collect()
}

/// Text without control characters, which would reach a terminal.
fn text(value: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(value);
    let plain = text.chars().filter(|character| !character.is_control());
    let text: String = plain.take(TEXT_CHARS_MAX).collect();
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entries: Value, want: Value) {
        assert_eq!(Value::Object(parsed(&entries)), want);
    }

    fn hex(bytes: &[u8]) -> String {
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let is_allowed = |digit: u8| char::from_digit(u32::from(digit), 16);
        digits.filter_map(is_allowed).collect()
    }

    #[test]
    fn a_switch_and_its_port_are_named() {
        check(
            json!([
                [1, "04525400CC0001"],
                [2, format!("05{}", hex(b"Ethernet1/7"))],
                [3, "0078"],
                [4, hex(b"to rack 4")],
                [5, hex(b"leaf-1\n")],
                [6, hex(b"Switch OS 1.0")],
                [7, "00140010"],
                [8, "0501c00002090200000001 00".replace(' ', "")],
                [0, ""],
            ]),
            json!({
                "switch_chassis_id": "52:54:00:cc:00:01",
                "switch_port_id": "Ethernet1/7",
                "switch_port_description": "to rack 4",
                "switch_system_name": "leaf-1",
                "switch_system_description": "Switch OS 1.0",
                "switch_capabilities_support": ["Bridge", "Router"],
                "switch_capabilities_enabled": ["Router"],
                "switch_mgmt_addresses": ["192.0.2.9"],
            }),
        );
    }

    #[test]
    fn identifiers_may_be_addresses_or_names() {
        check(
            json!([[1, "0501c0000201"], [2, "03525400cc0002"]]),
            json!({"switch_chassis_id": "192.0.2.1", "switch_port_id": "52:54:00:cc:00:02"}),
        );
        check(
            json!([
                [1, format!("07{}", hex(b"chassis 1"))],
                [2, "0402".to_owned() + &"0".repeat(31) + "1"]
            ]),
            json!({"switch_chassis_id": "chassis 1", "switch_port_id": "::1"}),
        );
    }

    #[test]
    fn vlans_mtu_and_aggregation_come_from_entries_of_organizations() {
        check(
            json!([
                [127, "0080c2010064"],
                [127, format!("0080c203006403{}", hex(b"one"))],
                [127, format!("0080c203006503{}", hex(b"two"))],
                [127, "00120f042400"],
                [127, "00120f030300000007"],
                [127, "0012bb0100000000"],
            ]),
            json!({
                "switch_port_untagged_vlan_id": 100,
                "switch_port_vlans": [{"id": 100, "name": "one"}, {"id": 101, "name": "two"}],
                "switch_port_mtu": 9216,
                "switch_port_link_aggregation_support": true,
                "switch_port_link_aggregation_enabled": true,
                "switch_port_link_aggregation_id": 7,
            }),
        );
    }

    #[test]
    fn invalid_entries_are_skipped() {
        check(
            json!([
                null,
                5,
                [],
                [1],
                [1, 4],
                [1, "0"],
                [1, "zz"],
                [1, "04"],
                [1, "0452"],
                [2, ""],
                [1, "0501"],
                [5, "0a"],
                [7, "00"],
                [8, "ff01"],
                [127, "0080"],
                [127, "0080c203006409"],
                [127, "0080c207"],
                [-1, "00"],
                [1, "\u{e9}\u{e9}"],
            ]),
            json!({}),
        );
        for odd in [json!(null), json!("x"), json!({"1": "04"})] {
            check(odd, json!({}));
        }
    }

    #[test]
    fn lists_are_bounded() {
        let vlan = json!([127, format!("0080c203006403{}", hex(b"one"))]);
        let found = parsed(&json!(vec![vlan; TLVS_MAX + 5]));
        assert_eq!(
            found["switch_port_vlans"].as_array().unwrap().len(),
            LISTED_MAX
        );
        let name = json!([[5, hex("x".repeat(400).as_bytes())]]);
        let name = parsed(&name)["switch_system_name"].clone();
        assert_eq!(name.as_str().unwrap().len(), TEXT_CHARS_MAX);
    }

    #[test]
    fn aggregation_may_be_announced_by_either_organization() {
        for organization in ["0080c207", "00120f03"] {
            let entry = |state: &str| json!([[127, format!("{organization}{state}00000102")]]);
            let of = |state: &str| parsed(&entry(state));
            let key = |name: &str| format!("switch_port_link_aggregation_{name}");
            let found = of("01");
            assert_eq!(found[&key("support")], true);
            assert_eq!(found[&key("enabled")], false);
            assert_eq!(found[&key("id")], 258);
            assert_eq!(of("02")[&key("enabled")], true);
        }
    }
}
