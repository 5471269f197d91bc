//! Inventory to properties.
//!
//! Pure. Reads the document that an agent posts after inspecting its machine and returns what
//! to store: Ironic's scheduling properties, the hardware addresses, and the inventory as
//! clients of the API read it. Nothing is decided about the node or its ports; the log bundle
//! in the document may contain live tokens and is always dropped.

mod lldp;
mod plugin_data;

pub use plugin_data::plugin_data;

use std::net::IpAddr;

use serde_json::{Value, json};
use trivet_agent_wire::inventory::{InspectionDocument, IpaDisk, IpaInventory};
use trivet_model::MacAddr;
use trivet_model::node::JsonObject;

/// Longest stored document as JSON. Ours: it is part of the node's record on flash.
pub const INVENTORY_STORED_BYTES_MAX: usize = 48 * 1024;

/// More interfaces than any machine has. Ours.
pub const INTERFACES_MAX: usize = 256;

const GIB: u64 = 1024 * 1024 * 1024;
const MIB: u64 = 1024 * 1024;

/// The result of an inspection.
#[derive(Clone, Debug, PartialEq)]
pub struct InspectionResult {
    /// `cpu_arch`, `cpus`, `memory_mb`, `local_gb` and `capabilities`, as far as known.
    pub properties: JsonObject,
    /// Hardware addresses in the order the agent listed them, each once.
    pub macs: Vec<MacAddr>,
    /// The interface that the machine booted from.
    pub pxe_mac: Option<MacAddr>,
    /// The BMC's address as the machine reads it, unless it has none.
    pub bmc_address: Option<String>,
    /// All addresses of the BMC, of both families. Addresses that no BMC has are left out.
    pub bmc_addresses: Vec<IpAddr>,
    /// The machine's host name.
    pub hostname: Option<String>,
    /// The document to store: `{"inventory": .., "plugin_data": ..}`, as the API serves it.
    pub stored: Value,
    /// Parts that were left out to stay within [`INVENTORY_STORED_BYTES_MAX`].
    pub left_out: Vec<String>,
    /// The collectors of the agent that failed, in its own text.
    pub complaint: Option<String>,
}

/// Why a document cannot be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InspectError {
    /// The document has no inventory.
    #[error("the inspection data has no inventory; only an agent may post it")]
    NoInventory,
    /// No interface has a hardware address.
    #[error("the inventory lists no interface with a MAC address; check the ramdisk's drivers")]
    NoInterfaces,
    /// More than [`INTERFACES_MAX`] interfaces.
    #[error("the inventory lists more than {INTERFACES_MAX} interfaces")]
    TooManyInterfaces,
    /// The inventory alone is longer than [`INVENTORY_STORED_BYTES_MAX`].
    #[error("the inventory is longer than {INVENTORY_STORED_BYTES_MAX} bytes and cannot be stored")]
    TooLong,
}

/// Parses the document that an agent posted.
pub fn read(document: &Value) -> Result<InspectionResult, InspectError> {
    let raw = document.get("inventory").filter(|value| value.is_object());
    let raw = raw.ok_or(InspectError::NoInventory)?;
    let typed: InspectionDocument =
        serde_json::from_value(document.clone()).map_err(|_| InspectError::NoInventory)?;
    let inventory = typed.inventory.as_ref().ok_or(InspectError::NoInventory)?;
    let macs = macs(inventory)?;
    let (stored, left_out) = stored_document(document, raw)?;
    let boot_interface = typed.boot_interface.as_deref();
    let pxe = boot_interface.or(inventory.boot.pxe_interface.as_deref());
    Ok(InspectionResult {
        properties: properties(inventory, typed.root_disk.as_ref()),
        macs,
        pxe_mac: pxe.and_then(boot_mac).filter(|&mac| is_station(mac)),
        bmc_address: inventory.bmc_address.clone().filter(|address| {
            // The address of an IPMI device without a configured LAN channel.
            address != "0.0.0.0" && !address.is_empty()
        }),
        bmc_addresses: bmc_addresses(inventory),
        hostname: inventory.hostname.clone(),
        stored,
        left_out,
        complaint: typed.error.filter(|text| !text.trim().is_empty()),
    })
}

/// Merges capabilities (`a:1,b:2`) into older ones: new values replace old ones, the rest
/// stays.
pub fn merged_capabilities(older: &str, newer: &str) -> String {
    let mut merged: Vec<(&str, &str)> = Vec::new();
    for pair in older.split(',').chain(newer.split(',')) {
        let Some((key, value)) = pair.trim().split_once(':') else {
            continue;
        };
        match merged.iter_mut().find(|(known, _)| *known == key) {
            Some(known) => known.1 = value,
            None => merged.push((key, value)),
        }
    }
    let pairs: Vec<String> = merged
        .iter()
        .map(|(key, value)| format!("{key}:{value}"))
        .collect();
    pairs.join(",")
}

/// Whether an address is neither zero nor a group address (IEEE 802, first bit).
fn is_station(mac: MacAddr) -> bool {
    mac.0 != [0; 6] && mac.0[0] & 1 == 0
}

fn macs(inventory: &IpaInventory) -> Result<Vec<MacAddr>, InspectError> {
    if inventory.interfaces.len() > INTERFACES_MAX {
        return Err(InspectError::TooManyInterfaces);
    }
    let mut macs = Vec::new();
    for interface in &inventory.interfaces {
        if let Some(mac) = interface.mac_address.filter(|&mac| is_station(mac))
            && !macs.contains(&mac)
        {
            macs.push(mac);
        }
    }
    if macs.is_empty() {
        return Err(InspectError::NoInterfaces);
    }
    Ok(macs)
}

fn properties(inventory: &IpaInventory, root_disk: Option<&IpaDisk>) -> JsonObject {
    let mut found = JsonObject::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            found.insert(key.to_owned(), value);
        }
    };
    let architecture = inventory.cpu.architecture.as_deref();
    put(
        "cpu_arch",
        architecture
            .filter(|text| !text.is_empty())
            .map(Value::from),
    );
    put(
        "cpus",
        inventory
            .cpu
            .count
            .filter(|&count| count > 0)
            .map(Value::from),
    );
    // The installed memory, else the memory that the kernel reports.
    let memory = &inventory.memory;
    let memory_mb = memory.physical_mb.or(memory.total.map(|bytes| bytes / MIB));
    put("memory_mb", memory_mb.filter(|&mb| mb > 0).map(Value::from));
    let largest = || inventory.disks.iter().filter_map(|disk| disk.size).max();
    let disk_bytes = root_disk.and_then(|disk| disk.size).or_else(largest);
    // Ironic reserves one GiB for partition tables and the config drive.
    let local_gb = disk_bytes.map(|bytes| (bytes / GIB).saturating_sub(1));
    put("local_gb", local_gb.filter(|&gb| gb > 0).map(Value::from));
    let mode = inventory.boot.current_boot_mode.as_deref();
    let mode = mode.filter(|mode| ["uefi", "bios"].contains(mode));
    put(
        "capabilities",
        mode.map(|mode| Value::from(format!("boot_mode:{mode}"))),
    );
    found
}

/// The BMC's addresses as the machine reads them. An IPMI device without a configured channel has
/// `0.0.0.0` and `::/0`; an address may have the length of its prefix.
fn bmc_addresses(inventory: &IpaInventory) -> Vec<IpAddr> {
    let texts = [&inventory.bmc_address, &inventory.bmc_v6address];
    let texts = texts.into_iter().flatten();
    let address = |text: &String| {
        let bare = text.split('/').next()?;
        let address: IpAddr = bare.trim().parse().ok()?;
        let address = address.to_canonical();
        let unusable = address.is_unspecified() || address.is_multicast();
        (!unusable).then_some(address)
    };
    texts.filter_map(address).collect()
}

/// The boot loader's `BOOTIF`: hardware type and address with hyphens, or the address alone.
fn boot_mac(text: &str) -> Option<MacAddr> {
    let bare = if text.len() == 20 {
        text.get(3..)?
    } else {
        text
    };
    bare.parse().ok()
}

/// The inventory and, as far as they fit, the data of the other collectors. The longest part is
/// dropped first.
fn stored_document(
    document: &Value,
    inventory: &Value,
) -> Result<(Value, Vec<String>), InspectError> {
    let mut plugin_data = document.as_object().cloned().unwrap_or_default();
    plugin_data.remove("inventory");
    plugin_data.remove("logs");
    let bytes = |value: &Value| value.to_string().len();
    let mut left_out = Vec::new();
    loop {
        let stored = json!({"inventory": inventory, "plugin_data": plugin_data});
        if bytes(&stored) <= INVENTORY_STORED_BYTES_MAX {
            return Ok((stored, left_out));
        }
        let longest = plugin_data.iter().max_by_key(|(_, value)| bytes(value));
        let Some(key) = longest.map(|(key, _)| key.clone()) else {
            let (inventory, less) = shortened(inventory.clone(), bytes)?;
            left_out.extend(less);
            let stored = json!({"inventory": inventory, "plugin_data": {}});
            return Ok((stored, left_out));
        };
        plugin_data.remove(&key);
        left_out.push(key);
    }
}

/// Shortens an inventory that is too long, such as one with many disks: drops empty fields,
/// the processor's flags, and finally the last disks.
fn shortened(
    mut inventory: Value,
    bytes: impl Fn(&Value) -> usize,
) -> Result<(Value, Vec<String>), InspectError> {
    const AROUND_BYTES: usize = 64;
    let fits = |inventory: &Value| bytes(inventory) + AROUND_BYTES <= INVENTORY_STORED_BYTES_MAX;
    let mut left_out = Vec::new();
    for list in ["disks", "interfaces"] {
        let entries = inventory.get_mut(list).and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            if let Value::Object(entry) = entry {
                entry.retain(|_, value| !value.is_null());
            }
        }
    }
    if let Some(Value::Object(cpu)) = inventory.get_mut("cpu")
        && cpu.remove("flags").is_some()
    {
        left_out.push("cpu.flags".to_owned());
    }
    while !fits(&inventory) {
        let disks = inventory.get_mut("disks").and_then(Value::as_array_mut);
        let Some(disks) = disks.filter(|disks| !disks.is_empty()) else {
            return Err(InspectError::TooLong);
        };
        disks.truncate(disks.len() * 7 / 8);
        left_out.retain(|part| !part.starts_with("disks"));
        left_out.push(format!("disks after the first {}", disks.len()));
    }
    Ok((inventory, left_out))
}

/// The hardware addresses in a document that may be invalid otherwise, to find its node.
pub fn addresses(document: &Value) -> Vec<MacAddr> {
    let interfaces = document["inventory"]["interfaces"].as_array();
    let interfaces = interfaces.into_iter().flatten().take(INTERFACES_MAX);
    let macs = interfaces.filter_map(|one| one["mac_address"].as_str()?.parse().ok());
    macs.filter(|mac| is_station(*mac)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        json!({
            "inventory": {
                "interfaces": [
                    {"name": "eth0", "mac_address": "52:54:00:AA:bb:01", "has_carrier": true},
                    {"name": "eth1", "mac_address": "52:54:00:aa:bb:02"},
                    {"name": "bond0", "mac_address": "52:54:00:aa:bb:01"},
                ],
                "cpu": {"model_name": "AMD EPYC", "frequency": "", "count": 2,
                        "architecture": "x86_64", "flags": ["fpu"], "socket_count": 1},
                "disks": [{"name": "/dev/vda", "size": 274_877_906_944_u64},
                          {"name": "/dev/vdb", "size": 10_737_418_240_u64}],
                "memory": {"total": 25_274_793_984_u64, "physical_mb": 24576},
                "bmc_address": null, "bmc_v6address": null,
                "boot": {"current_boot_mode": "uefi", "pxe_interface": "01-52-54-00-aa-bb-02"},
                "hostname": "ipa-test",
            },
            "root_disk": {"name": "/dev/vdb", "size": 10_737_418_240_u64},
            "boot_interface": null,
            "configuration": {"collectors": ["default", "logs"]},
            "lldp_raw": {"eth0": [[1, "04525400cc0001"], [0, ""]]},
            "logs": "H4sIAP9q", "error": null,
        })
    }

    fn changed(change: impl FnOnce(&mut Value)) -> Result<InspectionResult, InspectError> {
        let mut document = document();
        change(&mut document);
        read(&document)
    }

    #[test]
    fn finds_ironics_properties() {
        let found = read(&document()).unwrap();
        assert_eq!(
            Value::Object(found.properties),
            json!({"cpu_arch": "x86_64", "cpus": 2, "memory_mb": 24576, "local_gb": 9,
                   "capabilities": "boot_mode:uefi"})
        );
        assert_eq!(found.hostname.as_deref(), Some("ipa-test"));
        assert_eq!(found.complaint, None);
    }

    #[test]
    fn lists_each_address_once_and_the_one_it_booted_from() {
        let found = read(&document()).unwrap();
        let macs: Vec<String> = found.macs.iter().map(MacAddr::to_string).collect();
        assert_eq!(macs, ["52:54:00:aa:bb:01", "52:54:00:aa:bb:02"]);
        assert_eq!(found.pxe_mac, Some(found.macs[1]));
        let found = changed(|document| document["boot_interface"] = json!("52:54:00:aa:bb:01"));
        assert_eq!(found.unwrap().pxe_mac.unwrap().0[5], 1);
    }

    #[test]
    fn invalid_boot_interfaces_are_ignored() {
        for text in ["", "01", "01-52-54-00-aa", "\u{e9}1-52-54-00-aa-bb-0"] {
            assert_eq!(boot_mac(text), None, "{text}");
        }
    }

    #[test]
    fn without_a_root_disk_the_largest_counts() {
        let found = changed(|document| document["root_disk"] = Value::Null).unwrap();
        assert_eq!(found.properties["local_gb"], 255);
    }

    #[test]
    fn without_slots_the_kernels_memory_counts() {
        let found =
            changed(|document| document["inventory"]["memory"]["physical_mb"] = Value::Null);
        assert_eq!(found.unwrap().properties["memory_mb"], 24103);
    }

    #[test]
    fn what_is_unknown_is_left_out() {
        let found = changed(|document| {
            document["inventory"] =
                json!({"interfaces": [{"mac_address": "52:54:00:aa:bb:01"}], "cpu": {"count": 0}});
            document["root_disk"] = Value::Null;
        })
        .unwrap();
        assert!(found.properties.is_empty(), "{:?}", found.properties);
    }

    #[test]
    fn refuses_documents_without_interfaces() {
        for interfaces in [
            json!([]),
            json!(null),
            json!([{"name": "eth0"}]),
            json!([{"mac_address": "00:00:00:00:00:00"}, {"mac_address": "ff:ff:ff:ff:ff:ff"}]),
        ] {
            let found = changed(|document| document["inventory"]["interfaces"] = interfaces);
            assert_eq!(found, Err(InspectError::NoInterfaces));
        }
    }

    #[test]
    fn refuses_a_document_without_an_inventory() {
        for odd in [json!(null), json!([]), json!({}), json!({"inventory": []})] {
            assert_eq!(read(&odd), Err(InspectError::NoInventory), "{odd}");
        }
    }

    #[test]
    fn takes_as_many_interfaces_as_allowed_and_not_one_more() {
        let many = |count: usize| {
            changed(|document| {
                let one = json!({"mac_address": "52:54:00:aa:bb:01"});
                document["inventory"]["interfaces"] = json!(vec![one; count]);
            })
        };
        assert!(many(INTERFACES_MAX).is_ok());
        assert_eq!(
            many(INTERFACES_MAX + 1),
            Err(InspectError::TooManyInterfaces)
        );
    }

    #[test]
    fn never_keeps_the_logs() {
        let found = read(&document()).unwrap();
        assert!(!found.stored.to_string().contains("H4sIAP9q"));
        assert_eq!(found.stored["inventory"], document()["inventory"]);
        assert!(found.stored["plugin_data"]["lldp_raw"].is_object());
        assert!(found.left_out.is_empty());
    }

    #[test]
    fn leaves_out_the_longest_parts_until_the_rest_fits() {
        let found = changed(|document| {
            document["pci_devices"] = json!("x".repeat(INVENTORY_STORED_BYTES_MAX));
            document["data"] = json!("x".repeat(INVENTORY_STORED_BYTES_MAX + 1));
        })
        .unwrap();
        assert_eq!(found.left_out, ["data", "pci_devices"]);
        assert!(found.stored.to_string().len() <= INVENTORY_STORED_BYTES_MAX);
        assert!(found.stored["plugin_data"]["lldp_raw"].is_object());
    }

    #[test]
    fn refuses_an_inventory_that_is_too_long_by_itself() {
        let found = changed(|document| {
            document["inventory"]["hostname"] = json!("x".repeat(INVENTORY_STORED_BYTES_MAX));
        });
        assert_eq!(found, Err(InspectError::TooLong));
    }

    #[test]
    fn hands_on_the_collectors_complaint_and_a_real_bmc_address() {
        let found = changed(|document| {
            document["error"] = json!("collector lldp failed");
            document["inventory"]["bmc_address"] = json!("0.0.0.0");
        });
        let found = found.unwrap();
        assert_eq!(found.complaint.as_deref(), Some("collector lldp failed"));
        assert_eq!(found.bmc_address, None);
        let found =
            changed(|document| document["inventory"]["bmc_address"] = json!("198.51.100.5"));
        assert_eq!(found.unwrap().bmc_address.as_deref(), Some("198.51.100.5"));
        let addresses = |four: &str, six: &str| {
            let found = changed(|document| {
                document["inventory"]["bmc_address"] = json!(four);
                document["inventory"]["bmc_v6address"] = json!(six);
            });
            let found = found.unwrap().bmc_addresses;
            found.iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        let both = addresses("198.51.100.5", "2001:db8::5/64");
        assert_eq!(both, ["198.51.100.5", "2001:db8::5"]);
        assert!(addresses("0.0.0.0", "::/0").is_empty());
        assert!(addresses("224.0.0.1", "bmc").is_empty());
    }

    #[test]
    fn new_capabilities_win_over_older_ones() {
        assert_eq!(merged_capabilities("", "boot_mode:uefi"), "boot_mode:uefi");
        assert_eq!(
            merged_capabilities("boot_mode:bios, cpu_vt:true,broken", "boot_mode:uefi"),
            "boot_mode:uefi,cpu_vt:true"
        );
    }

    #[test]
    fn an_inventory_with_many_disks_is_stored_up_to_its_limit() {
        let with_disks = |disks: usize| {
            changed(|document| {
                let disk = json!({"name": "/dev/sdaa", "model": "x".repeat(100), "wwn": null,
                                  "serial": "y".repeat(100), "vendor": null, "hctl": null});
                document["inventory"]["disks"] = json!(vec![disk; disks]);
            })
            .unwrap()
        };
        let few = with_disks(10);
        assert!(few.left_out.is_empty());
        assert!(few.stored["inventory"]["disks"][0]["wwn"].is_null());
        let many = with_disks(190);
        assert_eq!(
            many.stored["inventory"]["disks"].as_array().unwrap().len(),
            190
        );
        assert!(many.left_out.contains(&"cpu.flags".to_owned()));
        let more = with_disks(2000);
        assert!(more.stored.to_string().len() <= INVENTORY_STORED_BYTES_MAX);
        let stored = more.stored["inventory"]["disks"].as_array().unwrap().len();
        assert!(stored > 100, "{stored}");
        assert!(
            more.left_out
                .contains(&format!("disks after the first {stored}"))
        );
        assert_eq!(more.macs.len(), 2);
    }

    #[test]
    fn a_document_that_is_refused_still_has_its_addresses() {
        let many = vec![json!({"mac_address": "52:54:00:aa:bb:01"}); INTERFACES_MAX + 1];
        let document = json!({"inventory": {"interfaces": many}});
        assert_eq!(read(&document), Err(InspectError::TooManyInterfaces));
        assert_eq!(addresses(&document)[0].to_string(), "52:54:00:aa:bb:01");
        assert!(addresses(&json!(null)).is_empty());
    }
}
