//! What firmware starts from a disk: its EFI system partition, and the loaders there.
//!
//! As the stock agent does, a list of the vendor (`BOOTX64.CSV`, made for shim's `fallback.efi`)
//! decides which loader is started and how its boot entry is called. Without one the default
//! loader of the UEFI specification is used, or that of a vendor.

use crate::gpt::GptGuid;
use crate::{DiskTable, EfiPartition, EfiPartitionIdentity};

/// Longest list of loaders that is read. Ours.
pub const EFI_LIST_BYTES_MAX: usize = 16 << 10;

/// Longest path of a loader, and longest description. Ours; a device path has 16 bits for its
/// length.
pub const EFI_TEXT_CHARACTERS_MAX: usize = 255;

/// Most boot entries for one system. Ours.
pub const EFI_LOADERS_MAX: usize = 8;

/// The type of an EFI system partition in an MBR (UEFI 2.10, section 5.2.2).
const MBR_EFI_SYSTEM: u8 = 0xef;

/// Names of lists, in the order of preference. The last is that of older systems.
const LISTS: [&str; 2] = if cfg!(target_arch = "aarch64") {
    ["bootaa64.csv", "boot.csv"]
} else {
    ["bootx64.csv", "boot.csv"]
};

/// Names of loaders, in the order of preference. The first is the default loader.
const LOADERS: [&str; 4] = if cfg!(target_arch = "aarch64") {
    [
        "bootaa64.efi",
        "shimaa64.efi",
        "grubaa64.efi",
        "winload.efi",
    ]
} else {
    ["bootx64.efi", "shimx64.efi", "grubx64.efi", "winload.efi"]
};

/// A loader and the description of its boot entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EfiLoader {
    /// Its path from the root of the partition, with backslashes.
    pub path: String,
    /// What the firmware shows.
    pub description: String,
}

/// The EFI system partition of a disk. `None` if it has none.
pub fn efi_system_partition(table: &DiskTable) -> Option<EfiPartition> {
    match table {
        DiskTable::Gpt(gpt) => {
            let mut partitions = gpt.partitions.iter();
            let found = partitions.find(|one| one.kind == GptGuid::EFI_SYSTEM)?;
            Some(EfiPartition {
                number: found.number,
                first_sector: found.first_sector,
                sectors: (found.last_sector - found.first_sector).saturating_add(1),
                identity: EfiPartitionIdentity::Gpt(found.guid),
            })
        }
        DiskTable::Mbr(mbr) => {
            let mut partitions = mbr.partitions.iter();
            let found = partitions.find(|one| one.kind == MBR_EFI_SYSTEM)?;
            Some(EfiPartition {
                number: found.number,
                first_sector: found.first_sector,
                sectors: found.sectors,
                identity: EfiPartitionIdentity::Mbr(mbr.identifier),
            })
        }
        DiskTable::Missing => None,
    }
}

/// The loaders among the files of an EFI system partition, the first one first in the boot order.
/// `files` are paths with slashes; `read` returns the bytes of a file.
pub fn choose_efi_loaders(
    files: &[String],
    read: &mut dyn FnMut(&str) -> Option<Vec<u8>>,
) -> Vec<EfiLoader> {
    let mut files: Vec<&String> = files
        .iter()
        .filter(|path| path.chars().count() <= EFI_TEXT_CHARACTERS_MAX)
        .collect();
    files.sort();
    let named = |name: &str| -> Vec<&str> {
        let has_name = |path: &&&String| file_name(path).eq_ignore_ascii_case(name);
        let found = files.iter().filter(has_name);
        found.map(|path| path.as_str()).collect()
    };
    for list in LISTS.into_iter().flat_map(named) {
        let entry = read(list).and_then(|bytes| parse_efi_list(&bytes));
        let Some((file, description)) = entry else {
            continue;
        };
        let directory = list.strip_suffix(file_name(list)).unwrap_or_default();
        let path = format!("{directory}{file}");
        if let Some(path) = files.iter().find(|one| one.eq_ignore_ascii_case(&path)) {
            let path = with_backslashes(path);
            return vec![EfiLoader { path, description }];
        }
    }
    let found = LOADERS.into_iter().map(named).find(|all| !all.is_empty());
    let numbered = (1..).zip(found.unwrap_or_default());
    let numbered = numbered.take(EFI_LOADERS_MAX);
    numbered
        .map(|(number, path)| EfiLoader {
            path: with_backslashes(path),
            // The stock agent's descriptions, so that each agent replaces the other's entries.
            description: format!("ironic{number}"),
        })
        .collect()
}

/// The loader and the description in the first line of a list: text in UTF-16, with or without a
/// byte order mark; fields are separated by commas.
pub fn parse_efi_list(bytes: &[u8]) -> Option<(String, String)> {
    let bytes = bytes.get(..bytes.len().min(EFI_LIST_BYTES_MAX))?;
    let is_big_endian = bytes.starts_with(&[0xfe, 0xff]);
    let units = bytes.chunks_exact(2).map(|pair| {
        let pair = [pair[0], pair[1]];
        if is_big_endian {
            u16::from_be_bytes(pair)
        } else {
            u16::from_le_bytes(pair)
        }
    });
    let text: Vec<u16> = units.collect();
    let text = String::from_utf16(&text).ok()?;
    let line = text.trim_start_matches('\u{feff}').lines().next()?;
    let mut fields = line.split(',').map(str::trim);
    let is_usable = |field: &&str| {
        let count = field.chars().count();
        (1..=EFI_TEXT_CHARACTERS_MAX).contains(&count) && !field.contains(char::is_control)
    };
    let file = fields.next().filter(is_usable)?;
    let description = fields.next().filter(is_usable)?;
    Some((file.replace('\\', "/"), description.to_owned()))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn with_backslashes(path: &str) -> String {
    format!("\\{}", path.replace('/', "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GptTable, MbrPartition, MbrTable};

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn chosen(files: &[(&str, &[u8])]) -> Vec<(String, String)> {
        let names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, bytes)| bytes.to_vec())
        };
        let loaders = choose_efi_loaders(&names, &mut read).into_iter();
        loaders.map(|one| (one.path, one.description)).collect()
    }

    fn entry(path: &str, description: &str) -> (String, String) {
        (path.to_owned(), description.to_owned())
    }

    #[test]
    fn the_list_of_a_vendor_decides() {
        let list = [
            &[0xff, 0xfe],
            &utf16("SHIMX64.EFI,debian,,the loader\r\nx.efi,y,,\n")[..],
        ];
        let found = chosen(&[
            ("EFI/BOOT/BOOTX64.EFI", b""),
            ("EFI/debian/BOOTX64.CSV", &list.concat()),
            ("EFI/debian/shimx64.efi", b""),
        ]);
        assert_eq!(found, [entry("\\EFI\\debian\\shimx64.efi", "debian")]);
    }

    #[test]
    fn without_a_list_the_default_loader_is_used() {
        let found = chosen(&[
            ("EFI/debian/grubx64.efi", b""),
            ("EFI/BOOT/BootX64.efi", b""),
            ("vmlinuz", b""),
        ]);
        assert_eq!(found, [entry("\\EFI\\BOOT\\BootX64.efi", "ironic1")]);
    }

    #[test]
    fn without_a_default_loader_those_of_vendors_are_used() {
        let found = chosen(&[
            ("EFI/b/grubx64.efi", b""),
            ("EFI/a/grubx64.efi", b""),
            ("EFI/a/bootia32.efi", b""),
        ]);
        let want = [
            entry("\\EFI\\a\\grubx64.efi", "ironic1"),
            entry("\\EFI\\b\\grubx64.efi", "ironic2"),
        ];
        assert_eq!(found, want);
        let many: Vec<String> = (0..20).map(|at| format!("{at}/grubx64.efi")).collect();
        let many = choose_efi_loaders(&many, &mut |_| None);
        assert_eq!(many.len(), EFI_LOADERS_MAX);
    }

    #[test]
    fn lists_that_name_nothing_that_exists_are_left_out() {
        let gone = utf16("gone.efi,gone,,\n");
        let right = utf16("sub\\a.efi,right");
        let found = chosen(&[
            ("EFI/a/BOOTX64.CSV", b"not UTF-16"),
            ("EFI/b/BOOTX64.CSV", &gone),
            ("EFI/c/boot.csv", &right),
            ("EFI/c/sub/a.efi", b""),
        ]);
        assert_eq!(found, [entry("\\EFI\\c\\sub\\a.efi", "right")]);
        assert!(chosen(&[("EFI/b/BOOTX64.CSV", &gone)]).is_empty());
        assert!(chosen(&[("readme", b"")]).is_empty());
        let long = format!("{}/bootx64.efi", "a".repeat(EFI_TEXT_CHARACTERS_MAX));
        assert!(chosen(&[(&long, b"")]).is_empty());
    }

    #[test]
    fn lists_of_both_byte_orders_are_read() {
        let text = "a.efi, A system ,,";
        let want = Some(entry("a.efi", "A system"));
        assert_eq!(parse_efi_list(&utf16(text)), want);
        let big = text.encode_utf16().flat_map(u16::to_be_bytes);
        let big: Vec<u8> = [0xfe, 0xff].into_iter().chain(big).collect();
        assert_eq!(parse_efi_list(&big), want);
        for text in ["", "a.efi", ",b", "a.efi,", "a\0.efi,b", "\n"] {
            assert_eq!(parse_efi_list(&utf16(text)), None, "{text:?}");
        }
        let long = "x".repeat(EFI_TEXT_CHARACTERS_MAX + 1);
        assert_eq!(parse_efi_list(&utf16(&format!("a.efi,{long}"))), None);
        let rest = " ".repeat(EFI_LIST_BYTES_MAX);
        assert!(parse_efi_list(&utf16(&format!("a.efi,b\n{rest}"))).is_some());
        // Half of a character that needs two units.
        assert_eq!(parse_efi_list(&[0x00, 0xd8]), None);
    }

    #[test]
    fn the_partition_is_found_in_both_tables() {
        let mut gpt = GptTable::new(GptGuid([1; 16]), 100_000, 512).unwrap();
        let root = (GptGuid::LINUX_DATA, GptGuid([2; 16]), "");
        gpt.add_at_start(100, 8, root).unwrap();
        let table = DiskTable::Gpt(gpt.clone());
        assert_eq!(efi_system_partition(&table), None);
        let system = (GptGuid::EFI_SYSTEM, GptGuid([3; 16]), "");
        gpt.add_at_start(200, 8, system).unwrap();
        let found = efi_system_partition(&DiskTable::Gpt(gpt)).unwrap();
        assert_eq!((found.number, found.sectors), (2, 200));
        assert_eq!(found.identity, EfiPartitionIdentity::Gpt(GptGuid([3; 16])));
        let mbr = |kind| {
            DiskTable::Mbr(MbrTable {
                identifier: 7,
                partitions: vec![MbrPartition {
                    number: 3,
                    kind,
                    first_sector: 2048,
                    sectors: 10,
                }],
            })
        };
        let found = efi_system_partition(&mbr(MBR_EFI_SYSTEM)).unwrap();
        assert_eq!((found.number, found.first_sector), (3, 2048));
        assert_eq!(found.identity, EfiPartitionIdentity::Mbr(7));
        assert_eq!(efi_system_partition(&mbr(0x83)), None);
        assert_eq!(efi_system_partition(&DiskTable::Missing), None);
    }
}
