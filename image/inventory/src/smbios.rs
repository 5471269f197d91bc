//! The tables that the firmware gives to the system (SMBIOS, DMTF DSP0134).

use trivet_agent_wire::inventory::{IpaFirmware, IpaSystemVendor};

use crate::SystemRoot;

/// Most structures of a table. Ours; large servers have some hundred.
const STRUCTURES_MAX: usize = 8192;

/// Most strings of a structure: their numbers are bytes.
const STRINGS_MAX: usize = 255;

/// Longest string that is read, in bytes. Ours; the standard allows 64.
const STRING_BYTES_MAX: usize = 1024;

/// The header of a structure: type, length, handle (DSP0134, section 6.1.2).
const HEADER_BYTES: usize = 4;

/// Types of structures (DSP0134, section 7).
pub(crate) mod kind {
    pub(crate) const FIRMWARE: u8 = 0;
    pub(crate) const SYSTEM: u8 = 1;
    pub(crate) const PROCESSOR: u8 = 4;
    pub(crate) const MEMORY_ARRAY: u8 = 16;
    pub(crate) const MEMORY_DEVICE: u8 = 17;
    pub(crate) const MEMORY_ARRAY_ADDRESS: u8 = 19;
    pub(crate) const END: u8 = 127;
}

/// One structure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SmbiosStructure {
    /// Its type.
    pub kind: u8,
    /// Its handle.
    pub handle: u16,
    /// The formatted part, with the header.
    pub bytes: Vec<u8>,
    strings: Vec<String>,
}

impl SmbiosStructure {
    /// The byte at an offset; `None` if this version of the structure does not have it.
    pub fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// The word at an offset.
    pub fn word(&self, at: usize) -> Option<u16> {
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        Some(u16::from_le_bytes(*bytes))
    }

    /// The double word at an offset.
    pub fn dword(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// The quad word at an offset.
    pub fn qword(&self, at: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// The string whose number is at an offset. Number zero is no string.
    pub fn string(&self, at: usize) -> Option<&str> {
        let number = usize::from(self.byte(at)?);
        let string = self.strings.get(number.checked_sub(1)?)?;
        Some(string.as_str())
    }
}

/// All structures of a machine.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SmbiosTable {
    structures: Vec<SmbiosStructure>,
}

impl SmbiosTable {
    /// Reads a table. It ends at its end marker, at its last byte, or before the first structure
    /// that is malformed.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut structures = Vec::new();
        let mut rest = bytes;
        while structures.len() < STRUCTURES_MAX {
            let Some((structure, after)) = parse_structure(rest) else {
                break;
            };
            rest = after;
            let ends = structure.kind == kind::END;
            structures.push(structure);
            if ends {
                break;
            }
        }
        Self { structures }
    }

    /// The table of a machine; empty if its firmware has none.
    pub(crate) fn read(root: &SystemRoot) -> Self {
        let bytes = root.bytes("sys/firmware/dmi/tables/DMI");
        Self::parse(&bytes.unwrap_or_default())
    }

    /// The structures of a type, in order.
    pub fn of_kind(&self, kind: u8) -> impl Iterator<Item = &SmbiosStructure> {
        self.structures.iter().filter(move |one| one.kind == kind)
    }

    /// The installed memory: the sum of the memory devices, or of the address ranges of the
    /// memory arrays where no device has a size.
    pub(crate) fn memory_mib(&self) -> u64 {
        let devices: u64 = self
            .of_kind(kind::MEMORY_DEVICE)
            .filter_map(device_kib)
            .fold(0, u64::saturating_add);
        if devices > 0 {
            return devices / 1024;
        }
        let ranges = self.of_kind(kind::MEMORY_ARRAY_ADDRESS);
        ranges.filter_map(range_kib).fold(0, u64::saturating_add) / 1024
    }

    /// Vendor, product, serial number and firmware, as `lshw` shows them: the stock-keeping
    /// unit follows the product in parentheses.
    pub(crate) fn system_vendor(&self) -> IpaSystemVendor {
        let text = |structure: Option<&SmbiosStructure>, at| {
            let string = structure.and_then(|structure| structure.string(at));
            string.unwrap_or_default().trim().to_owned()
        };
        let system = self.of_kind(kind::SYSTEM).next();
        let firmware = self.of_kind(kind::FIRMWARE).next();
        let mut product_name = text(system, 5);
        // Only structures of version 2.4 have the unit and the family after it.
        let unit = text(system.filter(|system| system.bytes.len() >= 0x1b), 0x19);
        if !unit.is_empty() {
            product_name = format!("{product_name} ({unit})");
        }
        IpaSystemVendor {
            product_name,
            serial_number: text(system, 7),
            manufacturer: text(system, 4),
            firmware: IpaFirmware {
                vendor: text(firmware, 4),
                version: text(firmware, 5),
                build_date: text(firmware, 8),
            },
        }
    }
}

/// The size of a memory device in KiB (DSP0134, section 7.18); `None` for an empty slot.
pub(crate) fn device_kib(device: &SmbiosStructure) -> Option<u64> {
    let size = device.word(0x0c)?;
    match size {
        0 | 0xffff => None,
        // The size is in the extended field, in MiB.
        0x7fff => Some(u64::from(device.dword(0x1c)? & 0x7fff_ffff) * 1024),
        size if size & 0x8000 != 0 => Some(u64::from(size & 0x7fff)),
        size => Some(u64::from(size) * 1024),
    }
}

/// The size of the address range of a memory array in KiB (DSP0134, section 7.20).
fn range_kib(range: &SmbiosStructure) -> Option<u64> {
    let (start, end) = (range.dword(4)?, range.dword(8)?);
    if start == u32::MAX {
        let bytes = range.qword(0x17)?.checked_sub(range.qword(0x0f)?)?;
        return Some(bytes / 1024 + 1);
    }
    Some(u64::from(end.checked_sub(start)?) + 1)
}

fn parse_structure(bytes: &[u8]) -> Option<(SmbiosStructure, &[u8])> {
    let &[kind, length, low, high, ..] = bytes else {
        return None;
    };
    let length = usize::from(length);
    if length < HEADER_BYTES {
        return None;
    }
    let (formatted, mut rest) = bytes.split_at_checked(length)?;
    let mut strings = Vec::new();
    // The strings end with an empty one; a structure without strings has two zeros.
    if rest.first() == Some(&0) {
        rest = rest.get(2..).unwrap_or_default();
    } else {
        loop {
            let end = rest.iter().position(|&byte| byte == 0)?;
            let (string, after) = rest.split_at(end);
            rest = &after[1..];
            if string.is_empty() {
                break;
            }
            if strings.len() < STRINGS_MAX {
                let string = &string[..string.len().min(STRING_BYTES_MAX)];
                strings.push(String::from_utf8_lossy(string).into_owned());
            }
        }
    }
    let structure = SmbiosStructure {
        kind,
        handle: u16::from_le_bytes([low, high]),
        bytes: formatted.to_vec(),
        strings,
    };
    Some((structure, rest))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The bytes of a structure with this formatted part after the header.
    pub(crate) fn structure(kind: u8, formatted: &[u8], strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![kind, (HEADER_BYTES + formatted.len()) as u8, kind, 0];
        bytes.extend(formatted);
        for string in strings {
            bytes.extend(string.as_bytes());
            bytes.push(0);
        }
        if strings.is_empty() {
            bytes.push(0);
        }
        bytes.push(0);
        bytes
    }

    pub(crate) fn table(structures: &[Vec<u8>]) -> SmbiosTable {
        SmbiosTable::parse(&structures.concat())
    }

    /// A system structure of version 2.4; `unit` is the number of a string.
    pub(crate) fn system(unit: u8, strings: &[&str]) -> Vec<u8> {
        let mut formatted = [0; 0x1b - 4];
        formatted[..4].copy_from_slice(&[1, 2, 0, 3]);
        formatted[0x19 - 4] = unit;
        structure(kind::SYSTEM, &formatted, strings)
    }

    fn device(size: u16, extended: u32) -> Vec<u8> {
        let mut formatted = [0; 0x22 - 4];
        formatted[0x0c - 4..0x0e - 4].copy_from_slice(&size.to_le_bytes());
        formatted[0x1c - 4..0x20 - 4].copy_from_slice(&extended.to_le_bytes());
        structure(kind::MEMORY_DEVICE, &formatted, &[])
    }

    #[test]
    fn the_vendor_is_read_from_structures_zero_and_one() {
        let firmware = structure(
            kind::FIRMWARE,
            &[1, 2, 0, 0, 3, 0],
            &["SeaBIOS", "1.16.2-debian", "04/01/2014"],
        );
        let system = system(0, &["QEMU", "Standard PC (Q35 + ICH9, 2009)", " S1 "]);
        let vendor = table(&[firmware, system]).system_vendor();
        assert_eq!(vendor.manufacturer, "QEMU");
        assert_eq!(vendor.product_name, "Standard PC (Q35 + ICH9, 2009)");
        assert_eq!(vendor.serial_number, "S1");
        assert_eq!(vendor.firmware.vendor, "SeaBIOS");
        assert_eq!(vendor.firmware.version, "1.16.2-debian");
        assert_eq!(vendor.firmware.build_date, "04/01/2014");
    }

    #[test]
    fn the_stock_keeping_unit_follows_the_product() {
        let strings = ["Dell Inc.", "PowerEdge R640", "ABC", "SKU=NotProvided"];
        let vendor = table(&[system(4, &strings)]).system_vendor();
        assert_eq!(vendor.product_name, "PowerEdge R640 (SKU=NotProvided)");
        assert_eq!(vendor.firmware, IpaFirmware::default());
    }

    #[test]
    fn memory_devices_are_added_in_all_units() {
        let devices = [
            device(16384, 0),
            device(0, 0),
            device(0xffff, 0),
            device(0x7fff, 65536),
            device(0x8000 | 2048, 0),
        ];
        assert_eq!(table(&devices).memory_mib(), 16384 + 65536 + 2);
    }

    #[test]
    fn without_devices_the_ranges_are_added() {
        let range = |start: u32, end: u32, long: [u64; 2]| {
            let mut formatted = [start.to_le_bytes(), end.to_le_bytes()].concat();
            formatted.extend([0; 3]);
            formatted.extend(long.iter().flat_map(|address| address.to_le_bytes()));
            structure(kind::MEMORY_ARRAY_ADDRESS, &formatted, &[])
        };
        let low = range(0, 0x1f_ffff, [0, 0]);
        let high = range(u32::MAX, u32::MAX, [1 << 32, (1 << 32) + (1 << 30) - 1]);
        assert_eq!(table(&[low, high]).memory_mib(), 2048 + 1024);
        let wrong = range(5, 1, [0, 0]);
        assert_eq!(table(&[wrong]).memory_mib(), 0);
    }

    #[test]
    fn a_table_ends_at_its_end_marker_or_where_it_is_malformed() {
        let end = structure(kind::END, &[], &[]);
        let one = structure(2, &[0; 4], &["a"]);
        let kinds = |bytes: &[u8]| {
            let table = SmbiosTable::parse(bytes);
            table
                .structures
                .iter()
                .map(|one| one.kind)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            kinds(&[one.clone(), end.clone(), one.clone()].concat()),
            [2, 127]
        );
        assert_eq!(
            kinds(&[one.as_slice(), &[1, 3, 0, 0]].concat()),
            [2],
            "short length"
        );
        assert_eq!(kinds(&one[..one.len() - 2]), [0; 0], "a string without end");
        assert_eq!(kinds(&[9, 200, 0, 0, 1]), [0; 0], "longer than the table");
        assert!(kinds(&[]).is_empty());
    }

    #[test]
    fn strings_and_fields_outside_a_structure_are_none() {
        let bytes = structure(1, &[1, 9, 0, 0xaa], &["x"]);
        let table = SmbiosTable::parse(&bytes);
        let one = &table.structures[0];
        assert_eq!(one.string(4), Some("x"));
        assert_eq!(
            (one.string(5), one.string(6), one.string(99)),
            (None, None, None)
        );
        assert_eq!(one.word(6), Some(0xaa00));
        assert_eq!(
            (one.byte(8), one.word(7), one.dword(6), one.qword(1)),
            (None, None, None, None)
        );
    }
}
