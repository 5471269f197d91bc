//! File systems of a written disk, mounted while they are needed, and the devices of its
//! partitions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use trivet_image_inventory::SystemRoot;

/// Where file systems are mounted.
const PLACE: &str = "/run";

/// A file system that is mounted until this is dropped.
#[derive(Debug)]
pub(super) struct MountedFileSystem {
    place: PathBuf,
    is_mounted: bool,
    /// The directory was made for it.
    has_own_place: bool,
}

impl MountedFileSystem {
    /// Mounts a device with the first of these kinds of file systems that it has.
    pub(super) fn mount(device: &Path, kinds: &[&str], flags: MountFlags) -> io::Result<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("trivet-agent-{}-{serial}", std::process::id());
        let place = Path::new(PLACE).join(name);
        fs::create_dir_all(&place)?;
        match Self::mount_at(device, &place, kinds, flags) {
            Ok(mut mounted) => {
                mounted.has_own_place = true;
                Ok(mounted)
            }
            Err(error) => {
                let _ = fs::remove_dir(&place);
                Err(error)
            }
        }
    }

    /// Mounts it on a directory that exists.
    pub(super) fn mount_at(
        device: &Path,
        place: &Path,
        kinds: &[&str],
        flags: MountFlags,
    ) -> io::Result<Self> {
        let mut reasons = Vec::new();
        for kind in kinds {
            match mount(device, place, *kind, flags, None) {
                Ok(()) => return Ok(Self::at(place)),
                Err(error) => reasons.push(format!("{kind}: {error}")),
            }
        }
        let device = device.display();
        let words = format!("{device} cannot be mounted: {}", reasons.join(", "));
        Err(io::Error::other(words))
    }

    /// Shows a directory also in another place.
    pub(super) fn bind(directory: &Path, place: &Path) -> io::Result<Self> {
        mount_bind(directory, place)?;
        Ok(Self::at(place))
    }

    fn at(place: &Path) -> Self {
        Self {
            place: place.to_owned(),
            is_mounted: true,
            has_own_place: false,
        }
    }

    /// Where its files are.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Unmounts it, which writes all of it to the disk.
    pub(super) fn unmount(mut self) -> io::Result<()> {
        unmount(&self.place, UnmountFlags::empty())?;
        self.is_mounted = false;
        Ok(())
    }
}

impl Drop for MountedFileSystem {
    fn drop(&mut self) {
        if self.is_mounted && unmount(&self.place, UnmountFlags::empty()).is_err() {
            // What still uses it must not keep the disk busy for ever.
            let _ = unmount(&self.place, UnmountFlags::DETACH);
        }
        if self.has_own_place {
            let _ = fs::remove_dir(&self.place);
        }
    }
}

/// The device of a partition, as the kernel shows it. `root` is `/`.
pub(super) fn partition_device(root: &SystemRoot, disk: &Path, number: u32) -> Option<PathBuf> {
    let disk = disk.strip_prefix("/dev").ok()?.to_str()?;
    // The kernel replaces slashes in names of devices.
    let disk = format!("sys/class/block/{}", disk.replace('/', "!"));
    let names = root.names(&disk).into_iter();
    let has_number =
        |name: &String| root.number(&format!("{disk}/{name}/partition")) == Some(u64::from(number));
    let name = names.filter(has_number).min()?;
    Some(Path::new("/dev").join(name.replace('!', "/")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A directory that is removed with the test.
    pub(in crate::shell) struct ScratchDirectory(pub(in crate::shell) PathBuf);

    impl ScratchDirectory {
        pub(in crate::shell) fn new() -> Self {
            static SERIAL: AtomicU32 = AtomicU32::new(0);
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            let name = format!("trivet-directory-{}-{serial}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for ScratchDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_partition_has_the_device_with_its_number() {
        let directory = ScratchDirectory::new();
        for (disk, name, number) in [
            ("sda", "sda1", "1\n"),
            ("sda", "sda12", "12\n"),
            ("nvme0n1", "nvme0n1p2", "2\n"),
            ("cciss!c0d0", "cciss!c0d0p1", "1\n"),
        ] {
            let place = directory.0.join("sys/class/block").join(disk).join(name);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("partition"), number).unwrap();
        }
        fs::create_dir_all(directory.0.join("sys/class/block/sda/queue")).unwrap();
        let root = SystemRoot::new(&directory.0);
        let device = |disk: &str, number| partition_device(&root, Path::new(disk), number);
        assert_eq!(device("/dev/sda", 1), Some("/dev/sda1".into()));
        assert_eq!(device("/dev/sda", 12), Some("/dev/sda12".into()));
        assert_eq!(device("/dev/nvme0n1", 2), Some("/dev/nvme0n1p2".into()));
        assert_eq!(
            device("/dev/cciss/c0d0", 1),
            Some("/dev/cciss/c0d0p1".into())
        );
        assert_eq!(device("/dev/sda", 2), None);
        assert_eq!(device("/tmp/sda", 1), None);
    }

    #[test]
    fn what_cannot_be_mounted_is_named_with_each_reason() {
        let device = Path::new("/nonexistent-device");
        let flags = MountFlags::RDONLY;
        let error = MountedFileSystem::mount(device, &["vfat", "ext4"], flags).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("/nonexistent-device cannot be mounted"),
            "{error}"
        );
        assert!(
            error.contains("vfat: ") && error.contains("ext4: "),
            "{error}"
        );
    }
}
