//! The disks that the running system is on. An agent in its ramdisk has none; one that runs as a
//! service must not erase them.

use trivet_image_inventory::SystemRoot;

/// Most layers between a file system and a disk: partition, array, mapped device. Ours.
const LAYERS_MAX: usize = 16;

/// The names of the block devices below the root file system, such as `sda`.
pub(super) fn system_disks(root: &SystemRoot) -> Vec<String> {
    let mounts = root.whole_text("proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for line in mounts.lines() {
        if let Some(path) = root_device(root, line) {
            add_layers(root, &path, 0, &mut found);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The directory of the device in sysfs if a line of `mountinfo` (proc(5)) is that of the root.
fn root_device(root: &SystemRoot, line: &str) -> Option<String> {
    let (mount, rest) = line.split_once(" - ")?;
    let fields: Vec<&str> = mount.split(' ').collect();
    if *fields.get(4)? != "/" {
        return None;
    }
    let by_number = root.resolved(&format!("sys/dev/block/{}", fields.get(2)?));
    // A file system of several devices, such as Btrfs, has a number that is no device's.
    by_number.or_else(|| {
        let source = rest.split(' ').nth(1)?.strip_prefix("/dev/")?;
        let device = root.resolved(&format!("dev/{source}"))?;
        let name = device.rsplit('/').next()?;
        root.resolved(&format!("sys/class/block/{name}"))
    })
}

fn add_layers(root: &SystemRoot, path: &str, layer: usize, found: &mut Vec<String>) {
    let Some((parent, name)) = path.rsplit_once('/').filter(|_| layer < LAYERS_MAX) else {
        return;
    };
    if root.exists(&format!("{path}/partition")) {
        return add_layers(root, parent, layer + 1, found);
    }
    found.push(name.to_owned());
    for below in root.names(&format!("{path}/slaves")) {
        if let Some(below) = root.resolved(&format!("{path}/slaves/{below}")) {
            add_layers(root, &below, layer + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory in the place of `/`.
    struct ScratchSystem(PathBuf);

    impl ScratchSystem {
        fn new(mountinfo: &str) -> Self {
            static SERIAL: AtomicU32 = AtomicU32::new(0);
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            let name = format!("trivet-system-{}-{serial}", std::process::id());
            let system = Self(std::env::temp_dir().join(name));
            for directory in [
                "proc/self",
                "dev/mapper",
                "sys/dev/block",
                "sys/class/block",
            ] {
                fs::create_dir_all(system.0.join(directory)).unwrap();
            }
            fs::write(system.0.join("proc/self/mountinfo"), mountinfo).unwrap();
            system
        }

        /// A device with this directory below `sys/devices`.
        fn device(&self, number: &str, path: &str, is_partition: bool) {
            let home = self.0.join("sys/devices").join(path);
            fs::create_dir_all(home.join("slaves")).unwrap();
            if is_partition {
                fs::write(home.join("partition"), "1\n").unwrap();
            }
            let name = home.file_name().unwrap().to_owned();
            symlink(&home, self.0.join("sys/dev/block").join(number)).unwrap();
            symlink(&home, self.0.join("sys/class/block").join(&name)).unwrap();
            fs::write(self.0.join("dev").join(name), "").unwrap();
        }

        fn below(&self, path: &str, below: &str) {
            let devices = self.0.join("sys/devices");
            let name = below.rsplit('/').next().unwrap();
            symlink(
                devices.join(below),
                devices.join(path).join("slaves").join(name),
            )
            .unwrap();
        }

        fn disks(&self) -> Vec<String> {
            system_disks(&SystemRoot::new(&self.0))
        }
    }

    impl Drop for ScratchSystem {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_disk_of_the_root_partition_is_found() {
        let system = ScratchSystem::new(
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
             23 22 8:17 / /data rw - ext4 /dev/sdb1 rw\n",
        );
        for disk in ["sda", "sdb"] {
            let number = if disk == "sda" { 0 } else { 16 };
            system.device(&format!("8:{number}"), &format!("ata/{disk}"), false);
            let (number, path) = (number + 1, format!("ata/{disk}/{disk}1"));
            system.device(&format!("8:{number}"), &path, true);
        }
        assert_eq!(system.disks(), ["sda"]);
    }

    #[test]
    fn all_disks_below_mapped_devices_and_arrays_are_found() {
        let mounts = "22 1 0:33 /@ / rw - btrfs /dev/mapper/root rw\n";
        let system = ScratchSystem::new(mounts);
        symlink("../dm-0", system.0.join("dev/mapper/root")).unwrap();
        for (number, path, is_partition) in [
            ("253:0", "virtual/dm-0", false),
            ("9:0", "virtual/md0", false),
            ("259:0", "nvme0n1", false),
            ("259:1", "nvme0n1/nvme0n1p2", true),
            ("259:2", "nvme1n1", false),
        ] {
            system.device(number, &format!("pci/{path}"), is_partition);
        }
        system.below("pci/virtual/dm-0", "pci/virtual/md0");
        system.below("pci/virtual/md0", "pci/nvme0n1/nvme0n1p2");
        system.below("pci/virtual/md0", "pci/nvme1n1");
        assert_eq!(system.disks(), ["dm-0", "md0", "nvme0n1", "nvme1n1"]);
    }

    #[test]
    fn a_ramdisk_has_none_and_a_loop_ends() {
        let system = ScratchSystem::new("1 1 0:2 / / rw - rootfs none rw\nnonsense\n");
        assert!(system.disks().is_empty());
        let system = ScratchSystem::new("1 1 9:0 / / rw - ext4 /dev/md0 rw\n");
        system.device("9:0", "md0", false);
        system.below("md0", "md0");
        assert_eq!(system.disks(), ["md0"]);
    }
}
