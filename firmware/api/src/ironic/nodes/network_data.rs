//! The form of `network_data`: links, networks and services, as in OpenStack's network metadata.
//! The agent and cloud-init read it at the first boot, too late to report a mistake.

use serde_json::Value;
use trivet_model::node::JsonObject;

use crate::table::error::ApiFault;
use crate::table::field::{masked, quoted, quoted_words};

/// Required keys of a link that is neither a bond nor a VLAN.
const LINK: &[&str] = &["id", "type", "ethernet_mac_address"];
const BOND: &[&str] = &[
    "id",
    "type",
    "ethernet_mac_address",
    "bond_mode",
    "bond_links",
];
const VLAN: &[&str] = &["id", "type", "vlan_mac_address", "vlan_link", "vlan_id"];
const NETWORK: &[&str] = &["id", "link", "network_id", "type"];
const SERVICE: &[&str] = &["address", "type"];

const LINK_TYPES: &[&str] = &[
    "bridge",
    "dvs",
    "hw_veb",
    "hyperv",
    "ovs",
    "tap",
    "vhostuser",
    "vif",
    "phy",
    "bond",
    "vlan",
];
const BOND_MODES: &[&str] = &[
    "802.3ad",
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "balance-tlb",
    "balance-alb",
];
const NETWORK_TYPES: &[&str] = &["ipv4", "ipv4_dhcp", "ipv6", "ipv6_dhcp", "ipv6_slaac"];

/// Refuses a document of another form. An empty one is no document.
pub(super) fn check(document: &JsonObject) -> Result<(), ApiFault> {
    if document.is_empty() {
        return Ok(());
    }
    for link in items(document, "links")? {
        let kind = one_of(link, "type", LINK_TYPES)?;
        let (required, addresses) = match kind {
            "bond" => (BOND, "ethernet_mac_address"),
            "vlan" => (VLAN, "vlan_mac_address"),
            _ => (LINK, "ethernet_mac_address"),
        };
        has(link, required)?;
        text(link, "id")?;
        text(link, addresses)?;
        match kind {
            "bond" => drop(one_of(link, "bond_mode", BOND_MODES)?),
            "vlan" if !link.get("vlan_id").is_some_and(Value::is_i64) => {
                return Err(wrong_type(link, "vlan_id", "integer"));
            }
            _ => {}
        }
    }
    for network in items(document, "networks")? {
        if network.contains_key("type") {
            one_of(network, "type", NETWORK_TYPES)?;
        }
        has(network, NETWORK)?;
        for name in ["id", "link", "network_id"] {
            text(network, name)?;
        }
    }
    for service in items(document, "services")? {
        has(service, SERVICE)?;
        one_of(service, "type", &["dns"])?;
        text(service, "address")?;
    }
    Ok(())
}

/// The error for a value that is no document at all.
pub(super) fn not_an_object(value: &Value) -> ApiFault {
    invalid(&format!("{} is not of type 'object'", masked(value)))
}

fn invalid(why: &str) -> ApiFault {
    ApiFault::bad(format!(
        "Invalid network_data: it is not of type 'null' and is not valid under any of the given \
         schemas. Possible root cause: {why}"
    ))
}

/// The objects of a required list.
fn items<'d>(document: &'d JsonObject, name: &str) -> Result<Vec<&'d JsonObject>, ApiFault> {
    has(document, &[name])?;
    let list = document.get(name).and_then(Value::as_array);
    let list = list.ok_or_else(|| wrong_type(document, name, "array"))?;
    let objects: Option<Vec<&JsonObject>> = list.iter().map(Value::as_object).collect();
    objects.ok_or_else(|| invalid(&format!("{name}: an item is not of type 'object'")))
}

fn has(object: &JsonObject, required: &[&str]) -> Result<(), ApiFault> {
    match required.iter().find(|name| !object.contains_key(**name)) {
        Some(name) => Err(invalid(&format!("'{name}' is a required property"))),
        None => Ok(()),
    }
}

fn text<'d>(object: &'d JsonObject, name: &str) -> Result<&'d str, ApiFault> {
    let text = object.get(name).and_then(Value::as_str);
    text.ok_or_else(|| {
        if object.contains_key(name) {
            wrong_type(object, name, "string")
        } else {
            invalid(&format!("'{name}' is a required property"))
        }
    })
}

fn one_of<'d>(object: &'d JsonObject, name: &str, words: &[&str]) -> Result<&'d str, ApiFault> {
    let word = text(object, name)?;
    if words.contains(&word) {
        return Ok(word);
    }
    let shown = quoted(&Value::from(word));
    let words = quoted_words(words);
    Err(invalid(&format!("{name}: {shown} is not one of {words}")))
}

fn wrong_type(object: &JsonObject, name: &str, wanted: &str) -> ApiFault {
    let shown = quoted(object.get(name).unwrap_or(&Value::Null));
    invalid(&format!("{name}: {shown} is not of type '{wanted}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn refuses(document: &Value, words: &str) {
        let fault = check(document.as_object().unwrap()).unwrap_err();
        let text = crate::Response::from(fault).fault().to_string();
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn accepts_links_networks_and_services() {
        let document = json!({
            "links": [
                {"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"},
                {"id": "b", "type": "bond", "ethernet_mac_address": "52:54:00:00:00:01",
                 "bond_mode": "802.3ad", "bond_links": ["a"]},
                {"id": "c", "type": "vlan", "vlan_mac_address": "52:54:00:00:00:01",
                 "vlan_link": "b", "vlan_id": 7},
            ],
            "networks": [{"id": "n", "link": "a", "network_id": "x", "type": "ipv4_dhcp"}],
            "services": [{"type": "dns", "address": "192.0.2.1"}],
        });
        assert!(check(document.as_object().unwrap()).is_ok());
        assert!(check(&JsonObject::new()).is_ok());
    }

    #[test]
    fn refuses_other_forms_with_the_place() {
        refuses(&json!({"odd": 1}), "'links' is a required property");
        refuses(&json!({"links": 5}), "links: 5 is not of type 'array'");
        let with = |link: Value| json!({"links": [link], "networks": [], "services": []});
        refuses(&with(json!(5)), "an item is not of type 'object'");
        refuses(
            &with(json!({"id": 5, "type": "odd"})),
            "'odd' is not one of",
        );
        refuses(&with(json!({"type": "phy"})), "'id' is a required property");
        let network = |network: Value| json!({"links": [], "networks": [network], "services": []});
        refuses(
            &network(json!({"id": "n", "type": "dhcp"})),
            "'dhcp' is not one of ['ipv4', 'ipv4_dhcp', 'ipv6', ",
        );
        refuses(
            &network(json!({"id": "n", "link": "a", "type": "ipv4_dhcp"})),
            "'network_id' is a required property",
        );
        let vlan = json!({"id": "c", "type": "vlan", "vlan_mac_address": "m", "vlan_link": "b",
            "vlan_id": "7"});
        refuses(&with(vlan), "vlan_id: '7' is not of type 'integer'");
    }
}
