//! Boot entries of UEFI firmware (UEFI 2.10, section 3.1.3), as `efivarfs` keeps them.

use std::collections::BTreeMap;

use crate::GptGuid;

/// The GUID of the variables, as it follows their names in `efivarfs`.
pub const EFI_GLOBAL_VARIABLE: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// Longest variable that is read. Ours.
pub const EFI_VARIABLE_BYTES_MAX: usize = 64 << 10;

/// Most boot entries that are read. Ours.
pub const EFI_ENTRIES_MAX: usize = 1024;

/// Attributes of the variables: non-volatile, for boot and runtime services.
const ATTRIBUTES: u32 = 7;

/// The entry is active.
const LOAD_OPTION_ACTIVE: u32 = 1;

/// The loader of a disk that has no entry (section 3.5.1).
pub const EFI_DEFAULT_LOADER: &str = if cfg!(target_arch = "aarch64") {
    r"\EFI\BOOT\BOOTAA64.EFI"
} else {
    r"\EFI\BOOT\BOOTX64.EFI"
};

/// The partition of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EfiPartition {
    /// Its number.
    pub number: u32,
    /// Its first sector.
    pub first_sector: u64,
    /// Its sectors.
    pub sectors: u64,
    /// Its GUID, or the identifier of an MBR disk.
    pub identity: EfiPartitionIdentity,
}

/// How the firmware recognizes a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EfiPartitionIdentity {
    /// The GUID of a partition of a GPT.
    Gpt(GptGuid),
    /// The identifier of an MBR.
    Mbr(u32),
}

/// A boot entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EfiBootEntry {
    /// What the firmware shows.
    pub description: String,
    /// Where the loader is.
    pub partition: EfiPartition,
    /// The path of the loader, with backslashes.
    pub loader: String,
}

/// A variable to write or to delete.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EfiVariableChange {
    /// The contents of the file in `efivarfs`.
    Write {
        /// The name of the file.
        file: String,
        /// Attributes and value.
        bytes: Vec<u8>,
    },
    /// Removes the file.
    Delete {
        /// The name of the file.
        file: String,
    },
}

impl EfiBootEntry {
    /// The value of the variable (`EFI_LOAD_OPTION`).
    pub fn encode(&self) -> Vec<u8> {
        let path = self.device_path();
        let mut bytes = LOAD_OPTION_ACTIVE.to_le_bytes().to_vec();
        bytes.extend((path.len() as u16).to_le_bytes());
        bytes.extend(utf16(&self.description));
        bytes.extend(path);
        bytes
    }

    /// A hard drive node, a file path node and the end (sections 10.3.5.1, 10.3.5.4, 10.3.1).
    fn device_path(&self) -> Vec<u8> {
        let partition = &self.partition;
        let (signature, format, kind) = match partition.identity {
            EfiPartitionIdentity::Gpt(guid) => (guid.0, 2, 2),
            EfiPartitionIdentity::Mbr(identifier) => {
                let mut signature = [0; 16];
                signature[..4].copy_from_slice(&identifier.to_le_bytes());
                (signature, 1, 1)
            }
        };
        let mut path = vec![4, 1, 42, 0];
        path.extend(partition.number.to_le_bytes());
        path.extend(partition.first_sector.to_le_bytes());
        path.extend(partition.sectors.to_le_bytes());
        path.extend(signature);
        path.extend([format, kind]);
        let loader = utf16(&self.loader);
        path.extend([4, 4]);
        path.extend((loader.len() as u16 + 4).to_le_bytes());
        path.extend(loader);
        path.extend([0x7f, 0xff, 4, 0]);
        path
    }
}

/// The description of an entry; `None` if it is malformed.
pub fn efi_description(value: &[u8]) -> Option<String> {
    let units = value.get(6..)?.chunks_exact(2);
    let units: Vec<u16> = units
        .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
        .take_while(|&unit| unit != 0)
        .collect();
    Some(String::from_utf16_lossy(&units))
}

/// The number of a variable `Boot####`, with or without its GUID.
pub fn efi_entry_number(name: &str) -> Option<u16> {
    let digits = name.strip_prefix("Boot")?.get(..4)?;
    let rest = &name[8..];
    let is_entry = rest.is_empty() || rest.strip_prefix('-') == Some(EFI_GLOBAL_VARIABLE);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_entry && is_hex).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// The numbers in `BootOrder`.
pub fn parse_boot_order(value: &[u8]) -> Vec<u16> {
    let numbers = value.chunks_exact(2).take(EFI_ENTRIES_MAX);
    numbers
        .map(|number| u16::from_le_bytes([number[0], number[1]]))
        .collect()
}

/// What adds an entry in front of the order: older entries with the same description are
/// deleted, as by the stock agent. `entries` are the values of `Boot####` by number, `order` is
/// that of `BootOrder`; both without their attributes. `None` if all numbers are used.
pub fn add_boot_entry(
    entries: &BTreeMap<u16, Vec<u8>>,
    order: &[u16],
    entry: &EfiBootEntry,
) -> Option<Vec<EfiVariableChange>> {
    let is_older =
        |value: &[u8]| efi_description(value).as_deref() == Some(entry.description.as_str());
    let older: Vec<u16> = entries
        .iter()
        .filter(|(_, value)| is_older(value))
        .map(|(&number, _)| number)
        .collect();
    let is_free = |number: &u16| !entries.contains_key(number) || older.contains(number);
    let number = (0..=u16::MAX).find(is_free)?;
    let deleted = older.iter().filter(|&&old| old != number);
    let mut changes: Vec<EfiVariableChange> = deleted
        .map(|&old| EfiVariableChange::Delete {
            file: entry_file(old),
        })
        .collect();
    changes.push(EfiVariableChange::Write {
        file: entry_file(number),
        bytes: with_attributes(entry.encode()),
    });
    let rest = order
        .iter()
        .filter(|old| **old != number && !older.contains(old));
    let order = std::iter::once(&number).chain(rest);
    changes.push(EfiVariableChange::Write {
        file: format!("BootOrder-{EFI_GLOBAL_VARIABLE}"),
        bytes: with_attributes(order.flat_map(|number| number.to_le_bytes()).collect()),
    });
    Some(changes)
}

fn entry_file(number: u16) -> String {
    format!("Boot{number:04X}-{EFI_GLOBAL_VARIABLE}")
}

fn with_attributes(value: Vec<u8>) -> Vec<u8> {
    [ATTRIBUTES.to_le_bytes().to_vec(), value].concat()
}

fn utf16(text: &str) -> Vec<u8> {
    let units = text.encode_utf16().chain([0]);
    units.flat_map(u16::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(description: &str) -> EfiBootEntry {
        EfiBootEntry {
            description: description.to_owned(),
            partition: EfiPartition {
                number: 1,
                first_sector: 2048,
                sectors: 131_072,
                identity: EfiPartitionIdentity::Gpt(GptGuid([7; 16])),
            },
            loader: EFI_DEFAULT_LOADER.to_owned(),
        }
    }

    #[test]
    fn an_entry_has_the_bytes_of_the_specification() {
        let bytes = entry("ab").encode();
        assert_eq!(bytes[..4], 1_u32.to_le_bytes());
        assert_eq!(bytes[6..12], [b'a', 0, b'b', 0, 0, 0]);
        let path = &bytes[12..];
        assert_eq!(
            usize::from(u16::from_le_bytes([bytes[4], bytes[5]])),
            path.len()
        );
        assert_eq!(path[..4], [4, 1, 42, 0]);
        assert_eq!(path[4..8], 1_u32.to_le_bytes());
        assert_eq!(path[8..16], 2048_u64.to_le_bytes());
        assert_eq!(path[16..24], 131_072_u64.to_le_bytes());
        assert_eq!(path[24..40], [7; 16]);
        assert_eq!(path[40..44], [2, 2, 4, 4]);
        let loader = 4 + 2 * (EFI_DEFAULT_LOADER.len() + 1);
        assert_eq!(usize::from(path[44]), loader);
        assert_eq!(path[42 + loader..], [0x7f, 0xff, 4, 0]);
        assert_eq!(efi_description(&bytes).as_deref(), Some("ab"));
    }

    #[test]
    fn an_mbr_partition_is_recognized_by_the_identifier_of_its_disk() {
        let mut entry = entry("x");
        entry.partition.identity = EfiPartitionIdentity::Mbr(0x1a2b_3c4d);
        let path = entry.device_path();
        assert_eq!(path[24..28], [0x4d, 0x3c, 0x2b, 0x1a]);
        assert_eq!(path[40..42], [1, 1]);
    }

    #[test]
    fn an_entry_is_added_in_front_and_replaces_those_with_its_name() {
        let entries = BTreeMap::from([
            (0, entry("UiApp").encode()),
            (1, entry("trivet").encode()),
            (2, entry("PXE").encode()),
            (4, entry("trivet").encode()),
        ]);
        let changes = add_boot_entry(&entries, &[4, 2, 1, 0], &entry("trivet")).unwrap();
        let [
            EfiVariableChange::Delete { file: deleted },
            EfiVariableChange::Write { file, bytes },
            EfiVariableChange::Write { bytes: order, .. },
        ] = &changes[..]
        else {
            panic!("{changes:?}");
        };
        assert_eq!(deleted, &entry_file(4));
        assert_eq!(file, &format!("Boot0001-{EFI_GLOBAL_VARIABLE}"));
        assert_eq!(bytes[..4], [7, 0, 0, 0]);
        assert_eq!(parse_boot_order(&order[4..]), [1, 2, 0]);
    }

    #[test]
    fn the_first_free_number_is_used() {
        let entries = BTreeMap::from([(0, entry("a").encode()), (1, entry("b").encode())]);
        let changes = add_boot_entry(&entries, &[], &entry("c")).unwrap();
        assert_eq!(changes.len(), 2);
        let EfiVariableChange::Write { file, .. } = &changes[0] else {
            panic!("{changes:?}");
        };
        assert_eq!(efi_entry_number(file), Some(2));
        let full = (0..=u16::MAX).map(|number| (number, Vec::new())).collect();
        assert_eq!(add_boot_entry(&full, &[], &entry("c")), None);
    }

    #[test]
    fn names_of_other_variables_are_no_entries() {
        assert_eq!(efi_entry_number("Boot00AF"), Some(0xaf));
        for name in [
            "BootOrder",
            "Boot",
            "Boot00",
            "Boot0001x",
            "Boot\u{e9}\u{e9}",
            "Timeout",
            "Boot+001",
        ] {
            assert_eq!(efi_entry_number(name), None, "{name}");
        }
        assert_eq!(efi_description(&[1, 0, 0]), None);
        assert_eq!(parse_boot_order(&[1, 0, 2]), [1]);
    }
}
