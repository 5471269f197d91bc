//! Disks, as `lsblk` of util-linux 2.38 and udev show them.

use trivet_agent_wire::inventory::IpaDisk;

use crate::SystemRoot;
use crate::by_path::by_path;
use crate::vpd::{UdevNames, ata_names, parse_ata_identity, scsi_names};

/// Most disks that are listed. Ours.
const DISKS_MAX: usize = 4096;

/// Bytes of the sectors that sysfs counts, whatever the disk has.
const SECTOR_BYTES: u64 = 512;

/// Names of block devices that are no disks: `lsblk` calls them loop, rom, ram or mapped
/// devices, or the agent leaves them out by name.
const EXCLUDED: [&str; 8] = ["loop", "ram", "zram", "sr", "fd", "dm-", "nbd", "mtdblock"];

/// A disk, and all serial numbers and world wide names that root device hints may name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskIdentity {
    /// The disk of the inventory.
    pub disk: IpaDisk,
    /// Its serial numbers: the short one, and the long one of udev.
    pub serials: Vec<String>,
    /// Its world wide names, with and without the vendor's extension.
    pub wwns: Vec<String>,
}

/// All disks, by name.
pub fn list_disks(root: &SystemRoot) -> Vec<DiskIdentity> {
    let names = root.names("sys/block").into_iter();
    let mut disks: Vec<DiskIdentity> = names
        .filter(|name| !is_excluded(name))
        .filter_map(|name| read(root, &name))
        .take(DISKS_MAX)
        .collect();
    // `sdb` comes before `sdaa`.
    disks.sort_by_key(|one| {
        let name = one.disk.name.clone().unwrap_or_default();
        (name.len(), name)
    });
    disks
}

fn is_excluded(name: &str) -> bool {
    EXCLUDED.iter().any(|prefix| {
        let rest = name.strip_prefix(prefix).unwrap_or_default();
        rest.starts_with(|character: char| character.is_ascii_digit())
    })
}

fn read(root: &SystemRoot, name: &str) -> Option<DiskIdentity> {
    let home = format!("sys/block/{name}");
    let size = root
        .number(&format!("{home}/size"))?
        .checked_mul(SECTOR_BYTES)?;
    if size == 0 || root.number(&format!("{home}/device/type")).unwrap_or(0) != 0 && is_scsi(name) {
        return None;
    }
    let attribute = |path: &str| root.text(&format!("{home}/{path}"));
    let identity = match name {
        _ if is_scsi(name) => scsi(root, &home),
        _ if name.starts_with("nvme") => nvme(root, &home),
        _ => DiskNames {
            model: attribute("device/model"),
            long_serial: None,
            names: UdevNames {
                serial: attribute("serial").or_else(|| attribute("device/serial")),
                ..UdevNames::default()
            },
        },
    };
    let queue = |path: &str| root.number(&format!("{home}/queue/{path}"));
    let names = identity.names;
    let disk = IpaDisk {
        name: Some(format!("/dev/{name}")),
        model: identity.model,
        size: Some(size),
        rotational: Some(queue("rotational").unwrap_or(0) != 0),
        // `lsblk` prefers the name with its extension.
        wwn: names
            .wwn_with_extension
            .clone()
            .or_else(|| names.wwn.clone()),
        serial: names.serial.clone(),
        vendor: attribute("device/vendor"),
        wwn_with_extension: names.wwn_with_extension,
        wwn_vendor_extension: names.wwn_vendor_extension,
        hctl: root
            .names(&format!("{home}/device/scsi_device"))
            .into_iter()
            .next(),
        by_path: by_path(root, name),
        logical_sectors: queue("logical_block_size").or(Some(SECTOR_BYTES)),
        physical_sectors: queue("physical_block_size").or(Some(SECTOR_BYTES)),
        tran: transport(root, name).map(str::to_owned),
    };
    let listed = |all: [Option<String>; 2]| {
        let mut all: Vec<String> = all.into_iter().flatten().collect();
        all.dedup();
        all
    };
    Some(DiskIdentity {
        serials: listed([names.serial, identity.long_serial]),
        wwns: listed([disk.wwn.clone(), names.wwn]),
        disk,
    })
}

fn is_scsi(name: &str) -> bool {
    name.starts_with("sd")
}

/// What identifies a disk.
struct DiskNames {
    model: Option<String>,
    /// `ID_SERIAL` of udev: model and serial number.
    long_serial: Option<String>,
    names: UdevNames,
}

fn scsi(root: &SystemRoot, home: &str) -> DiskNames {
    let page = |name: &str| {
        root.bytes(&format!("{home}/device/{name}"))
            .unwrap_or_default()
    };
    let model = root.text(&format!("{home}/device/model"));
    let names = scsi_names(&page("vpd_pg83"), &page("vpd_pg80"));
    let is_ata = root.text(&format!("{home}/device/vendor")).as_deref() == Some("ATA");
    if is_ata && let Some(identity) = parse_ata_identity(&page("vpd_pg89")) {
        let names = ata_names(&identity);
        let long = identity.model.as_ref().zip(names.serial.as_ref());
        return DiskNames {
            long_serial: long.map(|(model, serial)| long_serial(model, serial)),
            model: identity.model.or(model),
            names,
        };
    }
    DiskNames {
        long_serial: None,
        model,
        names,
    }
}

fn nvme(root: &SystemRoot, home: &str) -> DiskNames {
    let model = root.text(&format!("{home}/device/model"));
    let serial = root.text(&format!("{home}/device/serial"));
    let long = model.as_ref().zip(serial.as_ref());
    DiskNames {
        long_serial: long.map(|(model, serial)| long_serial(model, serial)),
        names: UdevNames {
            serial: serial.clone(),
            wwn: root.text(&format!("{home}/wwid")),
            ..UdevNames::default()
        },
        model,
    }
}

/// Model and serial number as udev joins them.
fn long_serial(model: &str, serial: &str) -> String {
    format!("{}_{serial}", model.replace(' ', "_"))
}

/// The transport, in the words and the order of `lsblk`. That of util-linux 2.38 has none for
/// virtio.
fn transport(root: &SystemRoot, name: &str) -> Option<&'static str> {
    if name.starts_with("nvme") {
        return Some("nvme");
    }
    if !is_scsi(name) {
        return None;
    }
    let path = root.resolved(&format!("sys/block/{name}"))?;
    let host = path.split('/').find(|part| {
        let number = part.strip_prefix("host").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })?;
    let has = |class: &str| root.exists(&format!("sys/class/{class}_host/{host}"));
    if has("spi") {
        return Some("spi");
    }
    if has("fc") {
        let symbolic = root.text(&format!("sys/class/fc_host/{host}/symbolic_name"))?;
        return Some(if symbolic.contains(" over ") {
            "fcoe"
        } else {
            "fc"
        });
    }
    if has("sas") || path.contains("/end_device-") {
        return Some("sas");
    }
    if has("iscsi") {
        return Some("iscsi");
    }
    if path.contains("/usb") {
        return Some("usb");
    }
    let driver = root.text(&format!("sys/class/scsi_host/{host}/proc_name"))?;
    match driver.as_str() {
        "ahci" | "sata" => Some("sata"),
        other if other.contains("ata") => Some("ata"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SystemTree;
    use crate::vpd::tests::{page_80, page_83, page_89};

    fn disk(tree: &SystemTree, name: &str, path: &str, size: &str) {
        tree.file(&format!("{path}/size"), size);
        tree.file(&format!("{path}/queue/rotational"), "0\n");
        tree.file(&format!("{path}/queue/logical_block_size"), "512\n");
        tree.file(&format!("{path}/queue/physical_block_size"), "4096\n");
        tree.link(&format!("sys/block/{name}"), &format!("../../{path}"));
    }

    fn only(tree: &SystemTree) -> DiskIdentity {
        let mut disks = list_disks(&tree.root());
        assert_eq!(disks.len(), 1);
        disks.remove(0)
    }

    #[test]
    fn a_virtio_disk_has_a_vendor_and_perhaps_a_serial() {
        let tree = SystemTree::new();
        let path = "sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda";
        disk(&tree, "vda", path, "12582912\n");
        tree.file(&format!("{path}/serial"), "root-disk");
        tree.file(
            "sys/devices/pci0000:00/0000:00:04.0/virtio1/vendor",
            "0x1af4\n",
        );
        tree.link(&format!("{path}/device"), "../../../virtio1");
        let found = only(&tree);
        assert_eq!(found.disk.name.as_deref(), Some("/dev/vda"));
        assert_eq!(found.disk.size, Some(6 << 30));
        assert_eq!(found.disk.vendor.as_deref(), Some("0x1af4"));
        assert_eq!(found.disk.serial.as_deref(), Some("root-disk"));
        assert_eq!(found.disk.model, None);
        assert_eq!((found.disk.tran, found.disk.wwn), (None, None));
        assert_eq!(found.disk.rotational, Some(false));
        assert_eq!(found.disk.physical_sectors, Some(4096));
        assert_eq!(found.serials, ["root-disk"]);
    }

    fn scsi_disk(tree: &SystemTree, vendor: &str, model: &str) -> String {
        let device = "sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0";
        let path = format!("{device}/block/sda");
        disk(tree, "sda", &path, "2097152\n");
        tree.link(&format!("{path}/device"), "../../../0:0:0:0");
        tree.file(&format!("{device}/vendor"), vendor);
        tree.file(&format!("{device}/model"), model);
        tree.file(&format!("{device}/type"), "0\n");
        tree.directory(&format!("{device}/scsi_device/0:0:0:0"));
        device.to_owned()
    }

    #[test]
    fn an_ata_disk_is_named_by_its_identify_data() {
        let tree = SystemTree::new();
        let device = scsi_disk(&tree, "ATA     \n", "QEMU HARDDISK   \n");
        tree.file("sys/class/scsi_host/host0/proc_name", "ahci\n");
        let page = page_89(
            "QEMU HARDDISK version two",
            "QM00001",
            Some(0x5000_0000_0000_0001),
        );
        tree.bytes(&format!("{device}/vpd_pg89"), &page);
        tree.bytes(&format!("{device}/vpd_pg80"), &page_80("other"));
        let found = only(&tree);
        assert_eq!(
            found.disk.model.as_deref(),
            Some("QEMU HARDDISK version two")
        );
        assert_eq!(found.disk.serial.as_deref(), Some("QM00001"));
        assert_eq!(found.disk.wwn.as_deref(), Some("0x5000000000000001"));
        assert_eq!(found.disk.wwn_with_extension, found.disk.wwn);
        assert_eq!(found.disk.vendor.as_deref(), Some("ATA"));
        assert_eq!(found.disk.hctl.as_deref(), Some("0:0:0:0"));
        assert_eq!(found.disk.tran.as_deref(), Some("sata"));
        assert_eq!(
            found.serials,
            ["QM00001", "QEMU_HARDDISK_version_two_QM00001"]
        );
    }

    #[test]
    fn a_scsi_disk_is_named_by_its_vital_product_data() {
        let tree = SystemTree::new();
        let device = scsi_disk(&tree, "DELL\n", "PERC H740P\n");
        tree.directory("sys/class/sas_host/host0");
        let naa = [0x6d, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3];
        tree.bytes(&format!("{device}/vpd_pg83"), &page_83(&[(1, 3, &naa)]));
        tree.bytes(&format!("{device}/vpd_pg80"), &page_80("00ff"));
        let found = only(&tree);
        assert_eq!(found.disk.model.as_deref(), Some("PERC H740P"));
        assert_eq!(found.disk.serial.as_deref(), Some("00ff"));
        assert_eq!(found.disk.wwn, found.disk.wwn_with_extension);
        assert_eq!(
            found.disk.wwn_vendor_extension.as_deref(),
            Some("0x0200000000000003")
        );
        assert_eq!(found.wwns[1], "0x6d00000000000001");
        assert_eq!(found.disk.tran.as_deref(), Some("sas"));
    }

    #[test]
    fn an_nvme_disk_is_named_by_its_controller() {
        let tree = SystemTree::new();
        let controller = "sys/devices/pci0000:00/0000:00:05.0/nvme/nvme0";
        let path = format!("{controller}/nvme0n1");
        disk(&tree, "nvme0n1", &path, "8388608\n");
        tree.link(&format!("{path}/device"), "../../nvme0");
        tree.file(
            &format!("{controller}/model"),
            "QEMU NVMe Ctrl                 \n",
        );
        tree.file(&format!("{controller}/serial"), "nvme-1              \n");
        tree.file(&format!("{path}/wwid"), "nvme.1b36-6e766d652d31\n");
        let found = only(&tree);
        assert_eq!(found.disk.model.as_deref(), Some("QEMU NVMe Ctrl"));
        assert_eq!(found.disk.serial.as_deref(), Some("nvme-1"));
        assert_eq!(found.disk.wwn.as_deref(), Some("nvme.1b36-6e766d652d31"));
        assert_eq!(found.disk.wwn_with_extension, None);
        assert_eq!(found.disk.tran.as_deref(), Some("nvme"));
        assert_eq!(found.disk.vendor, None);
    }

    #[test]
    fn devices_that_are_no_disks_are_left_out() {
        let tree = SystemTree::new();
        for name in ["loop0", "ram1", "zram0", "sr0", "fd0", "dm-0", "nbd3"] {
            disk(
                &tree,
                name,
                &format!("sys/devices/virtual/block/{name}"),
                "8\n",
            );
        }
        disk(&tree, "vdb", "sys/devices/x/vdb", "0\n");
        disk(&tree, "sdc", "sys/devices/x/sdc", "8\n");
        tree.file("sys/devices/x/sdc/device/type", "5\n");
        assert!(list_disks(&tree.root()).is_empty());
        disk(&tree, "md0", "sys/devices/virtual/block/md0", "8\n");
        assert_eq!(only(&tree).disk.name.as_deref(), Some("/dev/md0"));
    }

    #[test]
    fn short_names_come_first() {
        let tree = SystemTree::new();
        for name in ["sdaa", "sdb", "sda"] {
            disk(&tree, name, &format!("sys/devices/x/{name}"), "8\n");
        }
        let names: Vec<_> = list_disks(&tree.root())
            .into_iter()
            .filter_map(|one| one.disk.name)
            .collect();
        assert_eq!(names, ["/dev/sda", "/dev/sdb", "/dev/sdaa"]);
    }
}
