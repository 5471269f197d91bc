//! The results of an agent's inspection.
//!
//! Every field may be missing: virtual machines lack half of them, and the agent sends null or
//! an empty string for unknown values. Types are those that clients of the API decode (whole
//! numbers for sizes and counts, strings for frequencies).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trivet_model::MacAddr;
use trivet_model::node::JsonObject;

use crate::lenient;

/// The body of an inspection: the inventory and the data of other collectors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InspectionDocument {
    /// The machine.
    #[serde(default, deserialize_with = "lenient::option")]
    pub inventory: Option<IpaInventory>,
    /// The disk the agent would write to.
    #[serde(default, deserialize_with = "lenient::option")]
    pub root_disk: Option<IpaDisk>,
    /// `BOOTIF`, such as `01-52-54-00-aa-bb-01`.
    #[serde(default, deserialize_with = "lenient::option")]
    pub boot_interface: Option<String>,
    /// The collectors and hardware managers that ran.
    #[serde(default)]
    pub configuration: Value,
    /// A base64 bundle that may contain live tokens: never stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub logs: Option<String>,
    /// Which collectors failed.
    #[serde(default, deserialize_with = "lenient::text")]
    pub error: Option<String>,
    /// The data of further collectors: `lldp_raw`, `pci_devices` ...
    #[serde(flatten)]
    pub collected: JsonObject,
}

/// The machine as the agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpaInventory {
    /// Network interfaces.
    #[serde(default, deserialize_with = "lenient::list")]
    pub interfaces: Vec<IpaInterface>,
    /// Processors.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub cpu: IpaCpu,
    /// Disks.
    #[serde(default, deserialize_with = "lenient::list")]
    pub disks: Vec<IpaDisk>,
    /// Memory.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub memory: IpaMemory,
    /// The BMC's address; `0.0.0.0` when it has none.
    #[serde(default, deserialize_with = "lenient::option")]
    pub bmc_address: Option<String>,
    /// The BMC's IPv6 address; `::/0` when it has none.
    #[serde(default, deserialize_with = "lenient::option")]
    pub bmc_v6address: Option<String>,
    /// The BMC's hardware address; left out when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub bmc_mac: Option<String>,
    /// Vendor, product and serial number.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub system_vendor: IpaSystemVendor,
    /// Boot mode and boot interface.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub boot: IpaBoot,
    /// The host name from DHCP.
    #[serde(default, deserialize_with = "lenient::option")]
    pub hostname: Option<String>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpaInterface {
    /// The kernel's name.
    #[serde(default, deserialize_with = "lenient::option")]
    pub name: Option<String>,
    /// Hardware address.
    #[serde(default, deserialize_with = "lenient::option")]
    pub mac_address: Option<MacAddr>,
    /// IPv4 address.
    #[serde(default, deserialize_with = "lenient::option")]
    pub ipv4_address: Option<String>,
    /// IPv6 address, perhaps with a zone.
    #[serde(default, deserialize_with = "lenient::option")]
    pub ipv6_address: Option<String>,
    /// The link is up.
    #[serde(default, deserialize_with = "lenient::option")]
    pub has_carrier: Option<bool>,
    /// LLDP data where older agents have them.
    #[serde(default)]
    pub lldp: Value,
    /// PCI vendor, in hexadecimal.
    #[serde(default, deserialize_with = "lenient::option")]
    pub vendor: Option<String>,
    /// PCI product, in hexadecimal.
    #[serde(default, deserialize_with = "lenient::option")]
    pub product: Option<String>,
    /// The client identifier, for InfiniBand.
    #[serde(default, deserialize_with = "lenient::option")]
    pub client_id: Option<String>,
    /// The name that the firmware gives it.
    #[serde(default, deserialize_with = "lenient::option")]
    pub biosdevname: Option<String>,
    /// Speed in Mbit/s.
    #[serde(default, deserialize_with = "lenient::number")]
    pub speed_mbps: Option<u64>,
    /// Its PCI address.
    #[serde(default, deserialize_with = "lenient::option")]
    pub pci_address: Option<String>,
    /// The kernel's driver.
    #[serde(default, deserialize_with = "lenient::option")]
    pub driver: Option<String>,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpaCpu {
    /// Model name.
    #[serde(default, deserialize_with = "lenient::option")]
    pub model_name: Option<String>,
    /// MHz as text, perhaps empty.
    #[serde(default, deserialize_with = "lenient::text")]
    pub frequency: Option<String>,
    /// Logical processors.
    #[serde(default, deserialize_with = "lenient::number")]
    pub count: Option<u64>,
    /// Such as `x86_64`.
    #[serde(default, deserialize_with = "lenient::option")]
    pub architecture: Option<String>,
    /// Flags of the processor.
    #[serde(default, deserialize_with = "lenient::list")]
    pub flags: Vec<String>,
    /// Sockets; zero when unknown.
    #[serde(default, deserialize_with = "lenient::number")]
    pub socket_count: Option<u64>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpaDisk {
    /// Such as `/dev/sda`.
    #[serde(default, deserialize_with = "lenient::option")]
    pub name: Option<String>,
    /// Model.
    #[serde(default, deserialize_with = "lenient::option")]
    pub model: Option<String>,
    /// Bytes.
    #[serde(default, deserialize_with = "lenient::number")]
    pub size: Option<u64>,
    /// Whether it is a rotating disk.
    #[serde(default, deserialize_with = "lenient::option")]
    pub rotational: Option<bool>,
    /// World wide name.
    #[serde(default, deserialize_with = "lenient::option")]
    pub wwn: Option<String>,
    /// Serial number.
    #[serde(default, deserialize_with = "lenient::option")]
    pub serial: Option<String>,
    /// Vendor.
    #[serde(default, deserialize_with = "lenient::option")]
    pub vendor: Option<String>,
    /// World wide name with the vendor's extension.
    #[serde(default, deserialize_with = "lenient::option")]
    pub wwn_with_extension: Option<String>,
    /// The extension alone.
    #[serde(default, deserialize_with = "lenient::option")]
    pub wwn_vendor_extension: Option<String>,
    /// Host, channel, target, lun.
    #[serde(default, deserialize_with = "lenient::option")]
    pub hctl: Option<String>,
    /// Stable device name by path.
    #[serde(default, deserialize_with = "lenient::option")]
    pub by_path: Option<String>,
    /// Bytes of a logical sector.
    #[serde(default, deserialize_with = "lenient::number")]
    pub logical_sectors: Option<u64>,
    /// Bytes of a physical sector.
    #[serde(default, deserialize_with = "lenient::number")]
    pub physical_sectors: Option<u64>,
    /// Transport, such as `sas`.
    #[serde(default, deserialize_with = "lenient::option")]
    pub tran: Option<String>,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpaMemory {
    /// Bytes available to the kernel.
    #[serde(default, deserialize_with = "lenient::number")]
    pub total: Option<u64>,
    /// MiB of the installed modules.
    #[serde(default, deserialize_with = "lenient::number")]
    pub physical_mb: Option<u64>,
}

/// Vendor, product, serial number and firmware of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpaSystemVendor {
    /// Product.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub product_name: String,
    /// Serial number.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub serial_number: String,
    /// Vendor.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub manufacturer: String,
    /// Its firmware.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub firmware: IpaFirmware,
}

/// The machine's firmware.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpaFirmware {
    /// Vendor.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub vendor: String,
    /// Version.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub version: String,
    /// Build date.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub build_date: String,
}

/// How the machine booted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpaBoot {
    /// `uefi` or `bios`.
    #[serde(default, deserialize_with = "lenient::option")]
    pub current_boot_mode: Option<String>,
    /// `BOOTIF` as the boot loader passed it.
    #[serde(default, deserialize_with = "lenient::option")]
    pub pxe_interface: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TRANSCRIPT: &str = r#"{"inventory":{
      "interfaces":[{"name":"eth0.5","mac_address":"52:54:00:aa:bb:01",
         "ipv4_address":"192.0.2.10","ipv6_address":"fe80::5054:ff:feaa:bb01%eth0.5",
         "has_carrier":true,"lldp":null,"vendor":null,"product":null,"client_id":null,
         "biosdevname":null,"speed_mbps":null,"pci_address":null,"driver":null}],
      "cpu":{"model_name":"AMD EPYC","frequency":"","count":2,"architecture":"x86_64",
         "flags":["fpu","vme","de"],"socket_count":1},
      "disks":[{"name":"/dev/vda","model":null,"size":274877906944,"rotational":true,"wwn":null,
         "serial":null,"vendor":"0x1af4","wwn_with_extension":null,"wwn_vendor_extension":null,
         "hctl":null,"by_path":null,"logical_sectors":512,"physical_sectors":4096,"tran":null}],
      "memory":{"total":25274793984,"physical_mb":24576},
      "bmc_address":null,"bmc_v6address":null,
      "system_vendor":{"product_name":"","serial_number":"","manufacturer":"",
         "firmware":{"vendor":"","version":"","build_date":""}},
      "boot":{"current_boot_mode":"bios","pxe_interface":null},"hostname":"ipa-test"},
     "root_disk":{"name":"/dev/vda","size":274877906944},
     "boot_interface":null,
     "configuration":{"collectors":["default","logs"],
        "managers":[{"name":"generic_hardware_manager","version":"1.2"}]},
     "lldp_raw":{"eth0.5":[[1,"04525400cc0001"],[0,""]]},
     "usb_devices":[],"logs":"H4sIAP9q","error":null}"#;

    #[test]
    fn reads_the_document_of_the_transcript() {
        let document: InspectionDocument = serde_json::from_str(TRANSCRIPT).unwrap();
        let inventory = document.inventory.unwrap();
        let mac: MacAddr = "52:54:00:aa:bb:01".parse().unwrap();
        assert_eq!(inventory.interfaces[0].mac_address, Some(mac));
        assert_eq!(inventory.cpu.count, Some(2));
        assert_eq!(inventory.disks[0].size, Some(274_877_906_944));
        assert_eq!(inventory.memory.physical_mb, Some(24576));
        assert_eq!(inventory.hostname.as_deref(), Some("ipa-test"));
        assert_eq!(
            document.root_disk.unwrap().name.as_deref(),
            Some("/dev/vda")
        );
        let collected: Vec<&String> = document.collected.keys().collect();
        assert_eq!(collected, ["lldp_raw", "usb_devices"]);
    }

    #[test]
    fn writes_the_inventory_of_the_transcript_again() {
        let given: Value = serde_json::from_str(TRANSCRIPT).unwrap();
        let read: InspectionDocument = serde_json::from_value(given.clone()).unwrap();
        let written = serde_json::to_value(read.inventory.unwrap()).unwrap();
        assert_eq!(written, given["inventory"]);
    }

    #[test]
    fn nothing_in_an_inventory_is_fatal() {
        let odd = json!({"inventory": {
            "interfaces": [{"mac_address": "nonsense", "speed_mbps": "10000"}, 7],
            "cpu": [], "disks": {"a": 1}, "memory": null, "bmc_address": 5,
            "system_vendor": "x", "boot": 1, "hostname": {}, "future": true}});
        let read: InspectionDocument = serde_json::from_value(odd).unwrap();
        let inventory = read.inventory.unwrap();
        assert_eq!(inventory.interfaces.len(), 1);
        assert_eq!(inventory.interfaces[0].mac_address, None);
        assert_eq!(inventory.interfaces[0].speed_mbps, Some(10000));
        assert!(inventory.disks.is_empty());
        assert_eq!(inventory.cpu, IpaCpu::default());
    }

    #[test]
    fn an_unknown_bmc_mac_is_left_out() {
        let value = serde_json::to_value(IpaInventory::default()).unwrap();
        assert!(value.get("bmc_mac").is_none());
        assert!(value.get("bmc_address").is_some_and(Value::is_null));
    }
}
