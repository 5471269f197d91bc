//! The contents of a ramdisk. The key of a recipe is a digest of all of it: a ramdisk that was
//! built from the same recipe need not be built again.

use sha2::{Digest as _, Sha256};

/// The Ironic Python Agent that is driven and tested.
pub(crate) const IPA_VERSION: &str = "13.0.0";

/// The Debian release whose Python runs it: the agent needs 3.11 or later.
pub(crate) const RELEASE: &str = "bookworm";

/// The packages that the agent and the ramdisk's own `/init` use.
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
pub(crate) const MODULES: [&str; 47] = [
    "ahci",
    "ata_piix",
    "bnx2",
    "bnx2x",
    "bnxt_en",
    "bonding",
    "button",
    "crc32c_generic",
    "crc32c_intel",
    "dm_mod",
    "e1000",
    "e1000e",
    "efivarfs",
    "evdev",
    "ext4",
    "hpsa",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ipmi_devintf",
    "ipmi_si",
    "isofs",
    "ixgbe",
    "loop",
    "megaraid_sas",
    "mlx4_en",
    "mlx5_core",
    "mpt3sas",
    "nls_ascii",
    "nls_cp437",
    "nls_utf8",
    "nvme",
    "r8169",
    "raid0",
    "raid1",
    "raid10",
    "raid456",
    "sd_mod",
    "sr_mod",
    "tg3",
    "vfat",
    "virtio_blk",
    "virtio_net",
    "virtio_pci",
    "virtio_scsi",
    "xfs",
];

/// A file of ours and its path in the ramdisk.
pub(crate) struct RamdiskFile {
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
    pub(crate) executable: bool,
}

const POWER: &str = include_str!("../files/power");

/// All files.
pub(crate) const RAMDISK_FILES: [RamdiskFile; 6] = [
    RamdiskFile {
        path: "init",
        text: include_str!("../files/init"),
        executable: true,
    },
    RamdiskFile {
        path: "etc/trivet-lease",
        text: include_str!("../files/lease"),
        executable: true,
    },
    RamdiskFile {
        path: "etc/trivet-rescue",
        text: include_str!("../files/rescue"),
        executable: true,
    },
    RamdiskFile {
        path: "usr/local/sbin/reboot",
        text: POWER,
        executable: true,
    },
    RamdiskFile {
        path: "usr/local/sbin/poweroff",
        text: POWER,
        executable: true,
    },
    RamdiskFile {
        path: "etc/ironic-python-agent/trivet.conf",
        text: "[DEFAULT]\n",
        executable: false,
    },
];

/// The key of a build with this kernel.
pub(crate) fn key(kernel_package: &str) -> String {
    let mut hash = Sha256::new();
    // Increased when the build process changes.
    let lines = ["recipe 2", IPA_VERSION, RELEASE, kernel_package];
    let own = RAMDISK_FILES.iter().flat_map(|own| [own.path, own.text]);
    for part in lines.into_iter().chain(PACKAGES).chain(MODULES).chain(own) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let characters = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
    characters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_changes_with_the_kernel_and_with_nothing_else() {
        assert_eq!(key("linux-image-1"), key("linux-image-1"));
        assert_ne!(key("linux-image-1"), key("linux-image-2"));
        assert_eq!(key("x").len(), 16);
    }

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
