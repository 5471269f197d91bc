//! The part of a stored inspection that Ironic calls `plugin_data`: what the agent's collectors
//! sent, and what Ironic's inspection hooks add to it.
//!
//! The additions are computed when they are read, because everything that they are made from is
//! stored: a node's record would grow by a third with them.

use serde_json::{Map, Value, json};
use trivet_model::MacAddr;

use crate::{INTERFACES_MAX, boot_mac, is_station, lldp};

/// Longest name of an interface, in bytes. Ours: Linux has 15.
const NAME_BYTES_MAX: usize = 64;

/// `plugin_data` of a stored document, with the results of the hooks `validate-interfaces`
/// (`all_interfaces`, `valid_interfaces`, `macs`) and `parse-lldp` (`parsed_lldp`).
///
/// As Ironic with `add_ports` `all`, the valid interfaces are those with a MAC address that a
/// port can have.
pub fn plugin_data(inventory: &Value, collected: &Map<String, Value>) -> Map<String, Value> {
    let mut data = collected.clone();
    let pxe_mac = pxe_mac(inventory, collected);
    let (mut all, mut valid, mut lldp) = (Map::new(), Map::new(), Map::new());
    let mut macs = Vec::new();
    let interfaces = inventory["interfaces"].as_array();
    for interface in interfaces.into_iter().flatten().take(INTERFACES_MAX) {
        let Some(name) = interface["name"].as_str().filter(|name| is_name(name)) else {
            continue;
        };
        if let Some(found) = parsed_lldp(collected, name, interface) {
            lldp.insert(name.to_owned(), found);
        }
        let mac = interface["mac_address"].as_str();
        let Some(mac) = mac.and_then(|mac| mac.parse::<MacAddr>().ok()) else {
            continue;
        };
        let Some(mut shown) = interface.as_object().cloned() else {
            continue;
        };
        shown.remove("lldp");
        // Its zone means nothing on another machine.
        if let Some(Value::String(address)) = shown.get_mut("ipv6_address")
            && let Some(zone) = address.find('%')
        {
            address.truncate(zone);
        }
        shown.insert("mac_address".to_owned(), mac.to_string().into());
        shown.insert("pxe_enabled".to_owned(), (Some(mac) == pxe_mac).into());
        if is_station(mac) {
            macs.push(mac);
            valid.insert(name.to_owned(), shown.clone().into());
        }
        all.insert(name.to_owned(), shown.into());
    }
    macs.sort_unstable();
    macs.dedup();
    let macs: Vec<String> = macs.iter().map(MacAddr::to_string).collect();
    for (key, value) in [
        ("all_interfaces", all.into()),
        ("valid_interfaces", valid.into()),
        ("macs", json!(macs)),
        ("parsed_lldp", lldp.into()),
    ] {
        // What a collector of this name sent is kept.
        data.entry(key).or_insert(value);
    }
    data
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name != "lo"
}

/// The address of the interface that the machine booted from.
fn pxe_mac(inventory: &Value, collected: &Map<String, Value>) -> Option<MacAddr> {
    let sent = collected.get("boot_interface").and_then(Value::as_str);
    let found = || inventory["boot"]["pxe_interface"].as_str();
    sent.or_else(found).and_then(boot_mac)
}

/// The switch port of an interface. Stock agents send the entries of all interfaces in one
/// object, older ones those of each interface in its inventory.
fn parsed_lldp(collected: &Map<String, Value>, name: &str, interface: &Value) -> Option<Value> {
    let raw = collected.get("lldp_raw").and_then(|raw| raw.get(name));
    let found = lldp::parsed(raw.unwrap_or(&interface["lldp"]));
    (!found.is_empty()).then(|| found.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory() -> Value {
        json!({
            "interfaces": [
                {"name": "eth0", "mac_address": "52:54:00:AA:bb:01", "has_carrier": true,
                 "ipv4_address": "192.0.2.5", "lldp": null},
                {"name": "eth1", "mac_address": "52:54:00:aa:bb:02", "lldp": [[5, "6c656166"]]},
                {"name": "bond0", "mac_address": "52:54:00:aa:bb:01"},
                {"name": "lo", "mac_address": "00:00:00:00:00:00"},
                {"name": "dummy0", "mac_address": "00:00:00:00:00:00"},
                {"name": "ib0", "mac_address": null},
                {"mac_address": "52:54:00:aa:bb:03"},
                5,
            ],
            "boot": {"current_boot_mode": "bios", "pxe_interface": "01-52-54-00-aa-bb-02"},
        })
    }

    fn found(collected: Value) -> Value {
        let collected = collected.as_object().unwrap();
        plugin_data(&inventory(), collected).into()
    }

    #[test]
    fn each_interface_says_whether_the_machine_booted_from_it() {
        let data = found(json!({"error": null}));
        assert_eq!(
            data["all_interfaces"]["eth0"],
            json!({"name": "eth0", "mac_address": "52:54:00:aa:bb:01", "has_carrier": true,
                   "ipv4_address": "192.0.2.5", "pxe_enabled": false})
        );
        assert_eq!(data["all_interfaces"]["eth1"]["pxe_enabled"], true);
        let names =
            |key: &str| -> Vec<String> { data[key].as_object().unwrap().keys().cloned().collect() };
        assert_eq!(names("all_interfaces"), ["bond0", "dummy0", "eth0", "eth1"]);
        assert_eq!(names("valid_interfaces"), ["bond0", "eth0", "eth1"]);
        assert_eq!(
            data["macs"],
            json!(["52:54:00:aa:bb:01", "52:54:00:aa:bb:02"])
        );
        assert!(data["error"].is_null(), "what was collected is still there");
    }

    #[test]
    fn the_collected_boot_interface_comes_first() {
        let data = found(json!({"boot_interface": "01-52-54-00-aa-bb-01"}));
        assert_eq!(data["all_interfaces"]["eth0"]["pxe_enabled"], true);
        assert_eq!(data["all_interfaces"]["eth1"]["pxe_enabled"], false);
    }

    #[test]
    fn lldp_comes_from_the_collector_or_from_the_inventory() {
        let data = found(json!({"lldp_raw": {"eth0": [[5, "7370696e65"]], "eth9": [[5, "78"]]}}));
        assert_eq!(
            data["parsed_lldp"],
            json!({"eth0": {"switch_system_name": "spine"},
                   "eth1": {"switch_system_name": "leaf"}})
        );
    }

    #[test]
    fn an_inventory_without_interfaces_has_empty_results() {
        let none = Map::new();
        for odd in [json!({}), json!(null), json!({"interfaces": 5})] {
            let data = plugin_data(&odd, &none);
            assert_eq!(data["all_interfaces"], json!({}));
            assert_eq!(data["macs"], json!([]));
        }
    }

    #[test]
    fn what_a_collector_sent_under_such_a_name_is_kept() {
        assert_eq!(found(json!({"macs": ["x"]}))["macs"], json!(["x"]));
    }

    #[test]
    fn names_that_are_no_names_are_skipped() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let named = |name: &str| json!({"name": name, "mac_address": "52:54:00:aa:bb:01"});
        let inventory =
            json!({"interfaces": [named(""), named("lo"), named(&long), named("eth0")]});
        let data = plugin_data(&inventory, &Map::new());
        let names: Vec<&String> = data["all_interfaces"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["eth0"]);
    }

    #[test]
    fn no_more_interfaces_are_read_than_an_inventory_may_have() {
        let one = |number: usize| {
            let mac = format!("52:54:00:00:{:02x}:{:02x}", number / 256, number % 256);
            json!({"name": format!("eth{number}"), "mac_address": mac})
        };
        let many: Vec<Value> = (0..INTERFACES_MAX + 3).map(one).collect();
        let data = plugin_data(&json!({"interfaces": many}), &Map::new());
        assert_eq!(data["macs"].as_array().unwrap().len(), INTERFACES_MAX);
    }

    #[test]
    fn an_ipv6_address_has_no_zone() {
        let inventory = json!({"interfaces": [
            {"name": "eth0", "mac_address": "52:54:00:aa:bb:01", "ipv6_address": "fe80::1%eth0"},
            {"name": "eth1", "mac_address": "52:54:00:aa:bb:02", "ipv6_address": "2001:db8::1"},
            {"name": "eth2", "mac_address": "52:54:00:aa:bb:03", "ipv6_address": null},
        ]});
        let data = plugin_data(&inventory, &Map::new());
        let address = |name: &str| data["valid_interfaces"][name]["ipv6_address"].clone();
        assert_eq!(address("eth0"), "fe80::1");
        assert_eq!(address("eth1"), "2001:db8::1");
        assert!(address("eth2").is_null());
    }
}
