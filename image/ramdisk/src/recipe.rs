//! What ramdisks consist of.

/// The Ironic Python Agent that is driven and tested.
pub(crate) const IPA_VERSION: &str = "13.0.0";

/// The Debian release whose Python runs it: the agent needs 3.11 or later.
pub(crate) const RELEASE: &str = "bookworm";

/// The packages that the stock agent and the `/init` of its ramdisk use.
pub(crate) const PACKAGES: [&str; 30] = [
    "bsdextrautils",
    "busybox-static",
    "ca-certificates",
    "dmidecode",
    "dosfstools",
    "dropbear-bin",
    "e2fsprogs",
    "efibootmgr",
    "fdisk",
    "file",
    "gdisk",
    "genisoimage",
    "hdparm",
    "ipmitool",
    "iproute2",
    "kmod",
    "lshw",
    "mdadm",
    "nvme-cli",
    "parted",
    "pciutils",
    "procps",
    "psmisc",
    "python3",
    "qemu-utils",
    "smartmontools",
    "sudo",
    "udev",
    "xfsprogs",
    "zstd",
];

/// Drivers for common machines; their dependencies are added, except those that a module
/// requests by name at run time: file systems need a checksum and a code page.
pub(crate) const MODULES: [&str; 71] = [
    "aacraid",
    "ahci",
    "ata_piix",
    "atlantic",
    "be2net",
    "bnx2",
    "bnx2x",
    "bnxt_en",
    "bonding",
    "button",
    "cdc_ether",
    "crc32c_generic",
    "crc32c_intel",
    "cxgb4",
    "dm_mod",
    "e1000",
    "e1000e",
    "efivarfs",
    "ehci_pci",
    "ena",
    "enic",
    "evdev",
    "ext4",
    "hid_generic",
    "hpsa",
    "i40e",
    "iavf",
    "ice",
    "igb",
    "igc",
    "ipmi_devintf",
    "ipmi_si",
    "ipmi_ssif",
    "isofs",
    "ixgbe",
    "ixgbevf",
    "loop",
    "megaraid_sas",
    "mlx4_en",
    "mlx5_core",
    "mpi3mr",
    "mpt3sas",
    "nls_ascii",
    "nls_cp437",
    "nls_utf8",
    "nvme",
    "qede",
    "r8169",
    "raid0",
    "raid1",
    "raid10",
    "raid456",
    "rndis_host",
    "sd_mod",
    "sfc",
    "smartpqi",
    "sr_mod",
    "tg3",
    "uas",
    "uhci_hcd",
    "usb_storage",
    "usbhid",
    "vfat",
    "virtio_blk",
    "virtio_net",
    "virtio_pci",
    "virtio_rng",
    "virtio_scsi",
    "vmw_pvscsi",
    "vmxnet3",
    "xhci_pci",
];

/// Modules that only the ramdisk of the stock agent has: it mounts deployed file systems.
pub(crate) const STOCK_MODULES: [&str; 1] = ["xfs"];

/// A file of ours and its path in the ramdisk of the stock agent.
pub(crate) struct RamdiskFile {
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
    pub(crate) mode: u32,
}

const POWER: &str = include_str!("../files/power");

/// All files of ours in the ramdisk of the stock agent.
pub(crate) const RAMDISK_FILES: [RamdiskFile; 6] = [
    RamdiskFile {
        path: "init",
        text: include_str!("../files/init"),
        mode: 0o755,
    },
    RamdiskFile {
        path: "etc/trivet-lease",
        text: include_str!("../files/lease"),
        mode: 0o755,
    },
    RamdiskFile {
        path: "etc/trivet-rescue",
        text: include_str!("../files/rescue"),
        mode: 0o755,
    },
    RamdiskFile {
        path: "usr/local/sbin/reboot",
        text: POWER,
        mode: 0o755,
    },
    RamdiskFile {
        path: "usr/local/sbin/poweroff",
        text: POWER,
        mode: 0o755,
    },
    RamdiskFile {
        path: "etc/ironic-python-agent/trivet.conf",
        text: "[DEFAULT]\n",
        mode: 0o644,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_without_duplicates() {
        assert!(PACKAGES.is_sorted_by(|one, next| one < next));
        assert!(MODULES.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn programs_that_agents_call_are_included() {
        let paths: Vec<_> = RAMDISK_FILES.iter().map(|own| own.path).collect();
        for name in ["usr/local/sbin/reboot", "usr/local/sbin/poweroff", "init"] {
            assert!(paths.contains(&name));
        }
    }
}
