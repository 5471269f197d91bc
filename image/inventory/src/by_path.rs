//! The name of a disk below `/dev/disk/by-path`, computed from sysfs as udev's `path_id` does:
//! from the disk to the root of the device tree, each bus adds its part in front.

use crate::SystemRoot;

/// The deepest path that is followed. Ours; bridges and hubs add one level each.
const LEVELS_MAX: usize = 64;

/// The path of a disk; `None` for disks without a bus that udev names.
pub(crate) fn by_path(root: &SystemRoot, disk: &str) -> Option<String> {
    let device = root.resolved(&format!("sys/block/{disk}"))?;
    if device.contains("/virtual/") {
        return None;
    }
    let mut parts = Vec::new();
    // Whether a part says which disk of its adapter it is, as udev requires.
    let mut is_named = false;
    let mut below = String::new();
    let mut at = device.as_str();
    for _ in 0..LEVELS_MAX {
        let bus = root
            .link_name(&format!("{at}/subsystem"))
            .unwrap_or_default();
        let name = at.rsplit('/').next().unwrap_or_default();
        // Consecutive devices of these buses are one part: the lowest.
        let repeated = bus == below;
        match bus.as_str() {
            "scsi" if !repeated => {
                let (part, host) = scsi_part(root, at, name)?;
                parts.push(part);
                is_named = true;
                below = bus;
                at = host;
                continue;
            }
            "nvme" if !repeated => {
                let namespace = root.number(&format!("{device}/nsid"))?;
                parts.push(format!("nvme-{namespace}"));
                is_named = true;
            }
            "usb" if !repeated => {
                parts.push(format!("usb-0:{}", name.split_once('-')?.1));
                is_named = true;
            }
            "virtio" if !repeated => is_named = true,
            "pci" if !repeated => {
                parts.push(format!("pci-{name}"));
            }
            "platform" if !repeated => {
                parts.push(format!("platform-{name}"));
            }
            _ => {}
        }
        if !bus.is_empty() && bus != "block" {
            below = bus;
        }
        let Some((parent, _)) = at.rsplit_once('/') else {
            break;
        };
        at = parent;
    }
    parts.reverse();
    let is_reachable = parts
        .first()
        .is_some_and(|first| first.starts_with("pci-") || first.starts_with("platform-"));
    (is_named && is_reachable).then(|| format!("/dev/disk/by-path/{}", parts.join("-")))
}

/// The part of a SCSI device `host:channel:target:lun`, and the path of the device that its host
/// adapter belongs to.
fn scsi_part<'path>(root: &SystemRoot, at: &'path str, name: &str) -> Option<(String, &'path str)> {
    let address: Vec<u64> = name
        .split(':')
        .filter_map(|part| part.parse().ok())
        .collect();
    let &[host, channel, target, lun] = address.as_slice() else {
        return None;
    };
    let adapter_name = format!("/host{host}/");
    let adapter = &at[..at.find(&adapter_name)?];
    if let Some(end_device) = component(at, "end_device-") {
        return Some((sas_part(root, at, end_device, lun)?, adapter));
    }
    if let Some(port) = component(adapter, "ata") {
        let number = root.number(&format!("{adapter}/ata_port/{port}/port_no"))?;
        return Some((format!("ata-{number}.{target}"), adapter));
    }
    // Numbers of adapters depend on the order of discovery: the first one of a device is zero.
    let first = root
        .names(adapter)
        .iter()
        .filter_map(|name| name.strip_prefix("host")?.parse::<u64>().ok())
        .min()?;
    let host = host.checked_sub(first)?;
    Some((format!("scsi-{host}:{channel}:{target}:{lun}"), adapter))
}

/// The part of a SAS disk: by the phy it is at, or by its address if it has several.
fn sas_part(root: &SystemRoot, at: &str, end_device: &str, lun: u64) -> Option<String> {
    let home = at
        .find(end_device)
        .map(|start| &at[..start + end_device.len()])?;
    let device = format!("{home}/sas_device/{end_device}");
    let address = root.text(&format!("{device}/sas_address"))?;
    let port = home.rsplit_once('/')?.0;
    let phys = root
        .names(port)
        .iter()
        .filter(|name| name.starts_with("phy-"))
        .count();
    if phys != 1 {
        return Some(format!("sas-{address}-lun-{lun}"));
    }
    let phy = root.number(&format!("{device}/phy_identifier"))?;
    let Some(expander) = component(at, "expander-") else {
        return Some(format!("sas-phy{phy}-lun-{lun}"));
    };
    let start = at.find(expander)?;
    let home = &at[..start + expander.len()];
    let expander = root.text(&format!("{home}/sas_device/{expander}/sas_address"))?;
    Some(format!("sas-exp{expander}-phy{phy}-lun-{lun}"))
}

/// The first part of a path that begins with a prefix and goes on with a digit.
fn component<'path>(path: &'path str, prefix: &str) -> Option<&'path str> {
    path.split('/').find(|part| {
        let rest = part.strip_prefix(prefix).unwrap_or_default();
        rest.starts_with(|character: char| character.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SystemTree;

    const PCI: &str = "sys/devices/pci0000:00/0000:00:1f.2";

    /// A tree with one disk and the subsystems of the devices above it.
    fn tree(disk: &str, path: &str, subsystems: &[(&str, &str)]) -> SystemTree {
        let tree = SystemTree::new();
        tree.directory(path);
        tree.link(&format!("sys/block/{disk}"), &format!("../../{path}"));
        tree.link(&format!("{path}/subsystem"), "/class/block");
        for (device, subsystem) in subsystems {
            tree.link(&format!("{device}/subsystem"), &format!("/bus/{subsystem}"));
        }
        tree
    }

    fn path_of(tree: &SystemTree, disk: &str) -> Option<String> {
        let path = by_path(&tree.root(), disk)?;
        Some(path.strip_prefix("/dev/disk/by-path/").unwrap().to_owned())
    }

    #[test]
    fn a_virtio_disk_is_named_by_its_pci_device() {
        let virtio = format!("{PCI}/virtio1");
        let disk = format!("{virtio}/block/vda");
        let tree = tree("vda", &disk, &[(&virtio, "virtio"), (PCI, "pci")]);
        assert_eq!(path_of(&tree, "vda").unwrap(), "pci-0000:00:1f.2");
    }

    #[test]
    fn only_the_lowest_pci_device_counts() {
        let low = format!("{PCI}/0000:03:00.0");
        let nvme = format!("{low}/nvme/nvme0");
        let disk = format!("{nvme}/nvme0n1");
        let tree = tree(
            "nvme0n1",
            &disk,
            &[(&nvme, "nvme"), (&low, "pci"), (PCI, "pci")],
        );
        tree.file(&format!("{disk}/nsid"), "1\n");
        assert_eq!(
            path_of(&tree, "nvme0n1").unwrap(),
            "pci-0000:03:00.0-nvme-1"
        );
    }

    #[test]
    fn an_ata_disk_is_named_by_its_port() {
        let device = format!("{PCI}/ata3/host2/target2:0:0/2:0:0:0");
        let disk = format!("{device}/block/sda");
        let tree = tree("sda", &disk, &[(&device, "scsi"), (PCI, "pci")]);
        tree.file(&format!("{PCI}/ata3/ata_port/ata3/port_no"), "3\n");
        assert_eq!(path_of(&tree, "sda").unwrap(), "pci-0000:00:1f.2-ata-3.0");
    }

    #[test]
    fn the_first_host_of_an_adapter_is_zero() {
        let virtio = format!("{PCI}/virtio2");
        let device = format!("{virtio}/host6/target6:0:1/6:0:1:2");
        let disk = format!("{device}/block/sdb");
        let buses = [(device.as_str(), "scsi"), (&virtio, "virtio"), (PCI, "pci")];
        let tree = tree("sdb", &disk, &buses);
        tree.directory(&format!("{virtio}/host5"));
        assert_eq!(
            path_of(&tree, "sdb").unwrap(),
            "pci-0000:00:1f.2-scsi-1:0:1:2"
        );
    }

    #[test]
    fn a_usb_disk_is_named_by_its_port_and_interface() {
        let port = format!("{PCI}/usb1/1-1");
        let interface = format!("{port}/1-1:1.0");
        let device = format!("{interface}/host7/target7:0:0/7:0:0:0");
        let disk = format!("{device}/block/sdc");
        let buses = [
            (device.as_str(), "scsi"),
            (&interface, "usb"),
            (&port, "usb"),
            (PCI, "pci"),
        ];
        let tree = tree("sdc", &disk, &buses);
        assert_eq!(
            path_of(&tree, "sdc").unwrap(),
            "pci-0000:00:1f.2-usb-0:1:1.0-scsi-0:0:0:0"
        );
    }

    #[test]
    fn sas_disks_are_named_by_phy_address_or_expander() {
        let host = format!("{PCI}/host0");
        let port = format!("{host}/port-0:1");
        let end = format!("{port}/end_device-0:1");
        let device = format!("{end}/target0:0:1/0:0:1:0");
        let disk = format!("{device}/block/sdd");
        let tree = tree("sdd", &disk, &[(&device, "scsi"), (PCI, "pci")]);
        let facts = format!("{end}/sas_device/end_device-0:1");
        tree.file(&format!("{facts}/sas_address"), "0x5000c50012345678\n");
        tree.file(&format!("{facts}/phy_identifier"), "4\n");
        tree.directory(&format!("{port}/phy-0:1"));
        assert_eq!(
            path_of(&tree, "sdd").unwrap(),
            "pci-0000:00:1f.2-sas-phy4-lun-0"
        );
        tree.directory(&format!("{port}/phy-0:2"));
        assert_eq!(
            path_of(&tree, "sdd").unwrap(),
            "pci-0000:00:1f.2-sas-0x5000c50012345678-lun-0"
        );
    }

    #[test]
    fn virtual_disks_and_unknown_buses_have_no_path() {
        let disk = "sys/devices/virtual/block/loop0";
        assert_eq!(path_of(&tree("loop0", disk, &[]), "loop0"), None);
        let disk = format!("{PCI}/odd/block/xda");
        assert_eq!(path_of(&tree("xda", &disk, &[(PCI, "pci")]), "xda"), None);
        assert_eq!(path_of(&SystemTree::new(), "none"), None);
    }
}
