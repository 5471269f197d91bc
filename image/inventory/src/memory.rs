//! Memory: what the kernel has, and what is installed.

use trivet_agent_wire::inventory::IpaMemory;

use crate::{SmbiosTable, SystemRoot};

/// `MemTotal` of a `meminfo` file, in KiB; also of the lines of a NUMA node.
pub(crate) fn total_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.contains("MemTotal"))?;
    let (_, value) = line.split_once(':')?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The memory of a machine. Without memory devices in SMBIOS, the installed memory is that of
/// the kernel, as in `lshw`, which the stock agent runs.
pub(crate) fn read(root: &SystemRoot, smbios: &SmbiosTable) -> IpaMemory {
    let total = root
        .whole_text("proc/meminfo")
        .and_then(|text| total_kib(&text))
        .map(|kib| kib.saturating_mul(1024));
    let installed = smbios.memory_mib();
    let kernel_mib = total.map(|bytes| bytes >> 20);
    IpaMemory {
        total,
        physical_mb: (installed > 0).then_some(installed).or(kernel_mib),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smbios::tests::{structure, table};
    use crate::testing::SystemTree;

    #[test]
    fn the_total_is_in_bytes_and_the_installed_memory_in_mib() {
        let tree = SystemTree::new();
        tree.file(
            "proc/meminfo",
            "MemTotal:        2028284 kB\nMemFree: 1 kB\n",
        );
        let mut device = [0; 0x15];
        device[0x0c - 4..0x0e - 4].copy_from_slice(&2048_u16.to_le_bytes());
        let smbios = table(&[structure(17, &device, &[])]);
        let memory = read(&tree.root(), &smbios);
        assert_eq!(memory.total, Some(2_028_284 * 1024));
        assert_eq!(memory.physical_mb, Some(2048));
    }

    #[test]
    fn without_smbios_the_kernel_is_asked() {
        let tree = SystemTree::new();
        assert_eq!(read(&tree.root(), &table(&[])), IpaMemory::default());
        tree.file("proc/meminfo", "MemTotal:        2028284 kB\n");
        let memory = read(&tree.root(), &table(&[]));
        assert_eq!(memory.physical_mb, Some(1980));
    }

    #[test]
    fn lines_of_a_numa_node_are_read_too() {
        assert_eq!(
            total_kib("Node 0 MemTotal:  10969668 kB\n"),
            Some(10_969_668)
        );
        assert_eq!(total_kib("MemTotal: x kB"), None);
        assert_eq!(total_kib(""), None);
    }
}
