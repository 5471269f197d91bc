//! The files and the system calls that the inventory is made from.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use trivet_board_linux::{
    InterfaceAddress, IpmiDevice, interface, interface_addresses, permanent_address, receive_lldp,
    supported_link_modes,
};

/// Longest file that is read. Ours; `/proc/cpuinfo` of 1024 processors has 2 MiB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Most names of one directory. Ours.
const NAMES_MAX: usize = 65_536;

/// How long the BMC may take for a reply. Ours; `ipmitool` waits as long.
const BMC_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads files below a directory, which is `/` on a machine and a made-up tree in tests.
#[derive(Clone, Debug)]
pub struct SystemRoot {
    root: PathBuf,
}

impl SystemRoot {
    /// The files below this directory.
    pub fn new(root: &Path) -> Self {
        // Symbolic links are resolved below, so the root is too.
        let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        Self { root }
    }

    /// A path below the root. `path` has no leading slash.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The bytes of a file.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let file = File::open(self.path(path)).ok()?;
        let mut bytes = Vec::new();
        // Some files of sysfs give an error after their contents.
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
        Some(bytes)
    }

    /// The whole text of a file.
    pub fn whole_text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    /// The text of a file without white space at its ends; `None` if nothing remains.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = self.whole_text(path)?;
        let text =
            text.trim_matches(|character: char| character.is_whitespace() || character == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A number in decimal digits.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a directory, sorted.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .take(NAMES_MAX)
            .collect();
        names.sort_unstable();
        names
    }

    /// Whether a file or directory exists.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The last part of what a symbolic link points to.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// A path below the root after all symbolic links, without a leading slash.
    pub fn resolved(&self, path: &str) -> Option<String> {
        let path = fs::canonicalize(self.path(path)).ok()?;
        let below = path.strip_prefix(&self.root).ok()?;
        Some(below.to_str()?.to_owned())
    }
}

/// What the inventory needs and is not in files.
pub trait SystemCalls {
    /// The hardware address that a network card was made with.
    fn permanent_address(&self, interface: &str) -> Option<Vec<u8>>;

    /// The bits `SUPPORTED_*` of `linux/ethtool.h`.
    fn link_modes(&self, interface: &str) -> Option<u32>;

    /// The addresses of all interfaces, in the kernel's order.
    fn addresses(&self) -> Vec<InterfaceAddress>;

    /// One LLDP frame of each interface, `None` where none came within the timeout.
    fn lldp_frames(&self, interfaces: &[String], timeout: Duration) -> Vec<Option<Vec<u8>>>;

    /// Whether this machine has a BMC.
    fn has_bmc(&self) -> bool;

    /// A request to the BMC of this machine: its completion code and the data after it.
    fn bmc_request(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<Vec<u8>>;
}

/// The system calls of this machine.
#[derive(Debug, Default)]
pub struct LinuxCalls {
    bmc: Option<IpmiDevice>,
}

/// The names under which the driver may make its device.
const BMC_DEVICES: [&str; 3] = ["/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"];

impl SystemCalls for LinuxCalls {
    fn permanent_address(&self, interface: &str) -> Option<Vec<u8>> {
        permanent_address(interface).ok()?
    }

    fn link_modes(&self, interface: &str) -> Option<u32> {
        supported_link_modes(interface).ok()
    }

    fn addresses(&self) -> Vec<InterfaceAddress> {
        interface_addresses().unwrap_or_default()
    }

    fn lldp_frames(&self, interfaces: &[String], timeout: Duration) -> Vec<Option<Vec<u8>>> {
        let found: Vec<_> = interfaces
            .iter()
            .map(|name| interface(name).ok().flatten())
            .collect();
        let open: Vec<_> = found.iter().flatten().cloned().collect();
        let mut frames = receive_lldp(&open, timeout).unwrap_or_default().into_iter();
        found
            .iter()
            .map(|found| found.as_ref().and_then(|_| frames.next().flatten()))
            .collect()
    }

    fn has_bmc(&self) -> bool {
        BMC_DEVICES.iter().any(|path| Path::new(path).exists())
    }

    fn bmc_request(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<Vec<u8>> {
        if self.bmc.is_none() {
            let path = BMC_DEVICES.iter().find(|path| Path::new(path).exists());
            let path = path.ok_or(io::ErrorKind::NotFound)?;
            self.bmc = Some(IpmiDevice::open(Path::new(path))?);
        }
        let bmc = self.bmc.as_mut().ok_or(io::ErrorKind::NotFound)?;
        bmc.request(function, command, data, BMC_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::SystemTree;

    #[test]
    fn files_are_read_without_white_space_and_missing_ones_are_none() {
        let tree = SystemTree::new();
        tree.file("sys/a/model", "QEMU HARDDISK   \n");
        tree.file("sys/a/empty", "\n");
        tree.file("sys/a/size", "2048\n");
        let root = tree.root();
        assert_eq!(root.text("sys/a/model").unwrap(), "QEMU HARDDISK");
        assert_eq!(root.text("sys/a/empty"), None);
        assert_eq!(root.text("sys/a/none"), None);
        assert_eq!(root.number("sys/a/size"), Some(2048));
        assert_eq!(root.number("sys/a/model"), None);
        assert_eq!(root.names("sys/a"), ["empty", "model", "size"]);
        assert!(root.names("sys/b").is_empty());
    }

    #[test]
    fn links_are_resolved_below_the_root() {
        let tree = SystemTree::new();
        tree.file(
            "sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda/size",
            "8\n",
        );
        tree.link(
            "sys/block/vda",
            "../devices/pci0000:00/0000:00:04.0/virtio1/block/vda",
        );
        let root = tree.root();
        assert_eq!(
            root.resolved("sys/block/vda").unwrap(),
            "sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda"
        );
        assert_eq!(root.link_name("sys/block/vda").unwrap(), "vda");
        assert_eq!(root.number("sys/block/vda/size"), Some(8));
        assert_eq!(root.resolved("sys/block/vdb"), None);
    }
}
