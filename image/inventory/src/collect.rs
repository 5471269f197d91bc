//! The collectors of an inspection.

use std::time::Duration;

use serde_json::{Value, json};
use trivet_agent_wire::inventory::{InspectionDocument, IpaBoot, IpaDisk, IpaInventory};

use crate::logs::system_files;
use crate::{
    LogFile, SmbiosTable, SystemCalls, SystemRoot, disks, dmi_document, interfaces, lldp_document,
    log_archive, numa, pci, read_bmc_lan, usb,
};
use crate::{cpu, memory};

/// Smallest disk that an image is written to if there are no root device hints; the stock
/// agent's.
const ROOT_DISK_BYTES_MIN: u64 = 4 << 30;

/// The kernel parameter with the interface that the machine booted from.
const BOOT_INTERFACE: &str = "BOOTIF";

/// The collectors.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum InventoryCollector {
    /// The inventory itself.
    Default,
    /// An archive of logs.
    Logs,
    /// What neighbours send.
    Lldp,
    /// PCI devices.
    PciDevices,
    /// USB devices.
    UsbDevices,
    /// Memory, processors and cards of each NUMA node.
    NumaTopology,
    /// Structures of SMBIOS.
    DmiDecode,
}

impl InventoryCollector {
    /// All of them, in the order in which they run: logs come last.
    pub const ALL: [Self; 7] = [
        Self::Default,
        Self::Lldp,
        Self::PciDevices,
        Self::UsbDevices,
        Self::NumaTopology,
        Self::DmiDecode,
        Self::Logs,
    ];

    /// Its name in `ipa-inspection-collectors`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Logs => "logs",
            Self::Lldp => "lldp",
            Self::PciDevices => "pci-devices",
            Self::UsbDevices => "usb-devices",
            Self::NumaTopology => "numa-topology",
            Self::DmiDecode => "dmi-decode",
        }
    }

    /// The collector of this name. `dmi` is also accepted.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = if name == "dmi" { "dmi-decode" } else { name };
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What a collection is made with, beside the machine.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// The collectors to run.
    pub collectors: Vec<InventoryCollector>,
    /// Hardware managers with their versions, for `configuration`.
    pub managers: Value,
    /// `BOOTIF`, if it is not on the kernel's command line.
    pub boot_interface: Option<String>,
    /// Leaves out the BMC (`agent_skip_bmc_detect`).
    pub skips_bmc: bool,
    /// How long to wait for LLDP frames.
    pub lldp_timeout: Duration,
    /// Logs of the agent, added to the archive.
    pub logs: Vec<LogFile>,
    /// The time of the archive, in seconds since 1970.
    pub unix_s: u64,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        Self {
            collectors: vec![InventoryCollector::Default, InventoryCollector::Logs],
            managers: json!([]),
            boot_interface: None,
            skips_bmc: false,
            // `ipa-lldp-timeout`.
            lldp_timeout: Duration::from_secs(30),
            logs: Vec::new(),
            unix_s: 0,
        }
    }
}

/// The inventory: the result of `poll.get_hardware_info`.
pub fn collect_inventory(
    root: &SystemRoot,
    calls: &mut dyn SystemCalls,
    options: &CollectorOptions,
) -> IpaInventory {
    let smbios = SmbiosTable::read(root);
    let bmc = if options.skips_bmc {
        None
    } else {
        Some(read_bmc_lan(calls))
    };
    let bmc = bmc.unwrap_or_default();
    let disks = disks::list_disks(root);
    let is_uefi = root.exists("sys/firmware/efi");
    let boot_interface = options
        .boot_interface
        .clone()
        .or_else(|| boot_parameter(root));
    IpaInventory {
        interfaces: interfaces::read(root, calls),
        cpu: cpu::read(root),
        disks: disks.into_iter().map(|one| one.disk).collect(),
        memory: memory::read(root, &smbios),
        bmc_address: bmc.ipv4,
        bmc_v6address: bmc.ipv6,
        bmc_mac: bmc.mac,
        system_vendor: smbios.system_vendor(),
        boot: IpaBoot {
            current_boot_mode: Some(if is_uefi { "uefi" } else { "bios" }.to_owned()),
            pxe_interface: boot_interface,
        },
        hostname: root.text("proc/sys/kernel/hostname"),
    }
}

/// The body of an inspection.
pub fn collect_document(
    root: &SystemRoot,
    calls: &mut dyn SystemCalls,
    options: &CollectorOptions,
) -> InspectionDocument {
    let mut document = InspectionDocument::default();
    let mut failures = Vec::new();
    let wanted = InventoryCollector::ALL
        .into_iter()
        .filter(|one| options.collectors.contains(one));
    for collector in wanted {
        let mut put = |key: &str, value: Value| document.collected.insert(key.to_owned(), value);
        match collector {
            InventoryCollector::Default => {
                let inventory = collect_inventory(root, calls, options);
                document.root_disk = smallest_disk(&inventory.disks).cloned();
                document
                    .boot_interface
                    .clone_from(&inventory.boot.pxe_interface);
                document.inventory = Some(inventory);
                let names: Vec<_> = options.collectors.iter().map(|one| one.name()).collect();
                document.configuration = json!({"collectors": names, "managers": options.managers});
            }
            InventoryCollector::Lldp => {
                let names = interfaces::names(root);
                let frames = calls.lldp_frames(&names, options.lldp_timeout);
                let pairs: Vec<_> = names.into_iter().zip(frames).collect();
                put("lldp_raw", lldp_document(&pairs));
            }
            InventoryCollector::PciDevices => {
                put("pci_devices", pci::document(root));
            }
            InventoryCollector::UsbDevices => {
                put("usb_devices", usb::document(root));
            }
            InventoryCollector::NumaTopology => match numa::document(root) {
                Ok(value) => {
                    put("numa_topology", value);
                }
                Err(failure) => failures.push(failure),
            },
            InventoryCollector::DmiDecode => {
                put("dmi", dmi_document(&SmbiosTable::read(root)));
            }
            InventoryCollector::Logs => {
                let mut files = options.logs.clone();
                files.extend(system_files(root));
                document.logs = log_archive(&files, options.unix_s).ok();
            }
        }
    }
    if !failures.is_empty() {
        document.error = Some(failures.join("\n"));
    }
    document
}

/// The disk that the stock agent would write to without hints.
fn smallest_disk(disks: &[IpaDisk]) -> Option<&IpaDisk> {
    let large = disks
        .iter()
        .filter(|disk| disk.size >= Some(ROOT_DISK_BYTES_MIN));
    large.min_by_key(|disk| (disk.size, &disk.name))
}

fn boot_parameter(root: &SystemRoot) -> Option<String> {
    let line = root.text("proc/cmdline")?;
    let mut parameters = line
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    let (_, value) = parameters.find(|(name, _)| *name == BOOT_INTERFACE)?;
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smbios::tests::system;
    use crate::testing::{FakeCalls, SystemTree};

    fn machine() -> SystemTree {
        let tree = SystemTree::new();
        tree.file(
            "proc/cmdline",
            "console=ttyS0 BOOTIF=01-52-54-00-aa-bb-01 quiet\n",
        );
        tree.file("proc/sys/kernel/hostname", "ipa-test\n");
        tree.file("proc/meminfo", "MemTotal: 1048576 kB\n");
        tree.bytes(
            "sys/firmware/dmi/tables/DMI",
            &system(0, &["QEMU", "PC", "S1"]),
        );
        for (name, sectors) in [("vda", "4194304"), ("vdb", "16777216"), ("vdc", "16777216")] {
            tree.file(&format!("sys/block/{name}/size"), sectors);
        }
        tree.file("sys/class/net/eth0.1/address", "52:54:00:aa:bb:01\n");
        tree
    }

    #[test]
    fn an_inventory_has_every_part() {
        let tree = machine();
        let inventory = collect_inventory(
            &tree.root(),
            &mut FakeCalls::default(),
            &CollectorOptions::default(),
        );
        assert_eq!(inventory.hostname.as_deref(), Some("ipa-test"));
        assert_eq!(inventory.system_vendor.product_name, "PC");
        assert_eq!(inventory.disks.len(), 3);
        assert_eq!(inventory.interfaces.len(), 1);
        assert_eq!(inventory.memory.total, Some(1 << 30));
        assert_eq!(inventory.boot.current_boot_mode.as_deref(), Some("bios"));
        assert_eq!(
            inventory.boot.pxe_interface.as_deref(),
            Some("01-52-54-00-aa-bb-01")
        );
        assert_eq!((inventory.bmc_address, inventory.bmc_mac), (None, None));
        tree.directory("sys/firmware/efi");
        let options = CollectorOptions {
            boot_interface: Some("01-02".to_owned()),
            ..CollectorOptions::default()
        };
        let inventory = collect_inventory(&tree.root(), &mut FakeCalls::default(), &options);
        assert_eq!(inventory.boot.current_boot_mode.as_deref(), Some("uefi"));
        assert_eq!(inventory.boot.pxe_interface.as_deref(), Some("01-02"));
    }

    #[test]
    fn a_bmc_is_not_asked_if_the_box_says_so() {
        let tree = machine();
        let mut calls = FakeCalls::default();
        calls.bmc.insert(vec![6, 1], vec![0]);
        let mut options = CollectorOptions::default();
        let inventory = collect_inventory(&tree.root(), &mut calls, &options);
        assert_eq!(inventory.bmc_address.as_deref(), Some("0.0.0.0"));
        options.skips_bmc = true;
        calls.requests = 0;
        let inventory = collect_inventory(&tree.root(), &mut calls, &options);
        assert_eq!((inventory.bmc_address, calls.requests), (None, 0));
    }

    #[test]
    fn the_document_has_what_its_collectors_found() {
        let tree = machine();
        let mut options = CollectorOptions {
            collectors: InventoryCollector::ALL.to_vec(),
            managers: json!([{"name": "generic_hardware_manager", "version": "1.2"}]),
            ..CollectorOptions::default()
        };
        let mut calls = FakeCalls::default();
        let lldp = crate::lldp::tests::frame(&[(3, &[0, 120]), (0, &[])]);
        calls.lldp.insert("eth0.1".to_owned(), lldp);
        let document = collect_document(&tree.root(), &mut calls, &options);
        let root_disk = document.root_disk.unwrap();
        assert_eq!(
            root_disk.name.as_deref(),
            Some("/dev/vdb"),
            "the smallest above 4 GiB"
        );
        assert_eq!(
            document.boot_interface.as_deref(),
            Some("01-52-54-00-aa-bb-01")
        );
        assert_eq!(document.configuration["collectors"][6], "logs");
        assert_eq!(document.configuration["managers"][0]["version"], "1.2");
        let keys: Vec<_> = document.collected.keys().map(String::as_str).collect();
        assert_eq!(keys, ["dmi", "lldp_raw", "pci_devices", "usb_devices"]);
        assert_eq!(
            document.collected["lldp_raw"],
            json!({"eth0.1": [[3, "0078"], [0, ""]]})
        );
        assert!(document.error.unwrap().contains("NUMA"));
        assert!(document.logs.is_some());
        options.collectors = vec![InventoryCollector::PciDevices];
        let document = collect_document(&tree.root(), &mut calls, &options);
        assert_eq!(
            (document.inventory, document.logs, document.error),
            (None, None, None)
        );
    }

    #[test]
    fn collectors_have_the_names_of_the_stock_agent() {
        for collector in InventoryCollector::ALL {
            assert_eq!(
                InventoryCollector::of_name(collector.name()),
                Some(collector)
            );
        }
        assert_eq!(
            InventoryCollector::of_name("dmi"),
            Some(InventoryCollector::DmiDecode)
        );
        assert_eq!(InventoryCollector::of_name("extra-hardware"), None);
    }

    #[test]
    fn a_machine_with_small_disks_has_no_root_disk() {
        let small = IpaDisk {
            size: Some(ROOT_DISK_BYTES_MIN - 1),
            ..IpaDisk::default()
        };
        assert_eq!(smallest_disk(&[small, IpaDisk::default()]), None);
    }
}
