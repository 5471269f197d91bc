//! The collector `dmi-decode`: structures of SMBIOS in the words of `dmidecode`, which the stock
//! agent runs. Values that `dmidecode` would call unspecified are left out.

use serde_json::{Map, Value, json};

use crate::smbios::{device_kib, kind};
use crate::{SmbiosStructure, SmbiosTable};

/// Types of memory devices (DSP0134, section 7.18.2), from one.
const MEMORY_TYPES: [&str; 36] = [
    "Other",
    "Unknown",
    "DRAM",
    "EDRAM",
    "VRAM",
    "SRAM",
    "RAM",
    "ROM",
    "Flash",
    "EEPROM",
    "FEPROM",
    "EPROM",
    "CDRAM",
    "3DRAM",
    "SDRAM",
    "SGRAM",
    "RDRAM",
    "DDR",
    "DDR2",
    "DDR2 FB-DIMM",
    "Reserved",
    "Reserved",
    "Reserved",
    "DDR3",
    "FBD2",
    "DDR4",
    "LPDDR",
    "LPDDR2",
    "LPDDR3",
    "LPDDR4",
    "Logical non-volatile device",
    "HBM",
    "HBM2",
    "DDR5",
    "LPDDR5",
    "HBM3",
];

/// Form factors of memory devices (section 7.18.1), from one.
const FORM_FACTORS: [&str; 16] = [
    "Other",
    "Unknown",
    "SIMM",
    "SIP",
    "Chip",
    "DIP",
    "ZIP",
    "Proprietary Card",
    "DIMM",
    "TSOP",
    "Row Of Chips",
    "RIMM",
    "SODIMM",
    "SRIMM",
    "FB-DIMM",
    "Die",
];

/// Uses of a memory array (section 7.17.2), from one.
const ARRAY_USES: [&str; 7] = [
    "Other",
    "Unknown",
    "System Memory",
    "Video Memory",
    "Flash Memory",
    "Non-volatile RAM",
    "Cache Memory",
];

/// Error corrections of a memory array (section 7.17.3), from one.
const ERROR_CORRECTIONS: [&str; 7] = [
    "Other",
    "Unknown",
    "None",
    "Parity",
    "Single-bit ECC",
    "Multi-bit ECC",
    "CRC",
];

/// Types of processors (section 7.5.1), from one.
const PROCESSOR_TYPES: [&str; 6] = [
    "Other",
    "Unknown",
    "Central Processor",
    "Math Processor",
    "DSP Processor",
    "Video Processor",
];

/// States of a processor (section 7.5), from zero.
const PROCESSOR_STATES: [&str; 5] = [
    "Unknown",
    "Enabled",
    "Disabled By User",
    "Disabled By BIOS",
    "Idle",
];

/// Firmware, processors and memory of a machine.
pub fn dmi_document(table: &SmbiosTable) -> Value {
    let listed = |kind, entries: fn(&SmbiosStructure) -> Map<String, Value>| -> Vec<Value> {
        table
            .of_kind(kind)
            .map(|one| Value::Object(entries(one)))
            .collect()
    };
    let firmware = listed(kind::FIRMWARE, firmware).pop();
    let arrays: Vec<_> = table.of_kind(kind::MEMORY_ARRAY).collect();
    let mut memory = arrays
        .first()
        .map(|array| memory_array(array))
        .unwrap_or_default();
    if !arrays.is_empty() {
        let devices = arrays.iter().filter_map(|array| array.word(0x0d));
        let devices: u64 = devices.map(u64::from).sum();
        memory.insert("Number Of Devices".to_owned(), json!(devices));
        memory.remove("Handle");
    }
    let devices = listed(kind::MEMORY_DEVICE, memory_device);
    memory.insert("devices".to_owned(), json!(devices));
    json!({
        "bios": firmware.unwrap_or_else(|| json!({})),
        "cpu": listed(kind::PROCESSOR, processor),
        "memory": memory,
    })
}

/// The fields of one structure.
struct DmiFields<'a> {
    structure: &'a SmbiosStructure,
    fields: Map<String, Value>,
}

impl<'a> DmiFields<'a> {
    fn new(structure: &'a SmbiosStructure) -> Self {
        let mut fields = Map::new();
        let (handle, kind) = (structure.handle, structure.kind);
        let length = structure.bytes.len();
        let handle = format!("Handle 0x{handle:04X}, DMI type {kind}, {length} bytes");
        fields.insert("Handle".to_owned(), handle.into());
        Self { structure, fields }
    }

    fn value(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.fields.insert(name.to_owned(), value.into());
        }
    }

    fn string(&mut self, name: &str, at: usize) {
        let string = self.structure.string(at).map(str::trim);
        self.value(name, Some(string.unwrap_or("Not Specified").to_owned()));
    }

    /// A byte that is an index from `first` into a list of words.
    fn word(&mut self, name: &str, at: usize, first: u8, words: &[&str]) {
        let byte = self.structure.byte(at);
        let index = byte.and_then(|byte| byte.checked_sub(first));
        let word = index.and_then(|index| words.get(usize::from(index)));
        self.value(name, word.map(|word| (*word).to_owned()));
    }

    /// A number with a unit; zero is unknown.
    fn number(&mut self, name: &str, at: usize, unit: &str) {
        let number = self.structure.word(at);
        self.value(
            name,
            number.map(|number| match number {
                0 => "Unknown".to_owned(),
                number => format!("{number} {unit}"),
            }),
        );
    }
}

fn firmware(structure: &SmbiosStructure) -> Map<String, Value> {
    let mut out = DmiFields::new(structure);
    out.string("Vendor", 4);
    out.string("Version", 5);
    out.string("Release Date", 8);
    if let Some(segment) = structure.word(6).filter(|segment| *segment != 0) {
        out.value("Address", Some(format!("0x{segment:04X}0")));
        let runtime = (0x10000 - u32::from(segment)) << 4;
        out.value("Runtime Size", Some(size_text(u64::from(runtime) / 1024)));
    }
    let rom_kib = structure.byte(9).map(|blocks| (u64::from(blocks) + 1) * 64);
    out.value(
        "ROM Size",
        rom_kib.filter(|&kib| kib < 16384).map(size_text),
    );
    if let (Some(major), Some(minor)) = (structure.byte(0x14), structure.byte(0x15))
        && major != u8::MAX
        && minor != u8::MAX
    {
        out.value("BIOS Revision", Some(format!("{major}.{minor}")));
    }
    out.fields
}

fn processor(structure: &SmbiosStructure) -> Map<String, Value> {
    let mut out = DmiFields::new(structure);
    out.string("Socket Designation", 4);
    out.word("Type", 5, 1, &PROCESSOR_TYPES);
    out.string("Manufacturer", 7);
    let id = structure.bytes.get(8..16).map(|id| {
        let digits: Vec<String> = id.iter().map(|byte| format!("{byte:02X}")).collect();
        digits.join(" ")
    });
    out.value("ID", id);
    out.string("Version", 0x10);
    out.number("External Clock", 0x12, "MHz");
    out.number("Max Speed", 0x14, "MHz");
    out.number("Current Speed", 0x16, "MHz");
    if let Some(status) = structure.byte(0x18) {
        let state = PROCESSOR_STATES.get(usize::from(status & 7));
        let text = if status & 0x40 == 0 {
            "Unpopulated".to_owned()
        } else {
            format!("Populated, {}", state.unwrap_or(&"Unknown"))
        };
        out.value("Status", Some(text));
    }
    if structure.bytes.len() > 0x22 {
        out.string("Serial Number", 0x20);
        out.string("Asset Tag", 0x21);
        out.string("Part Number", 0x22);
    }
    for (name, at, wide) in [
        ("Core Count", 0x23, 0x2a),
        ("Core Enabled", 0x24, 0x2c),
        ("Thread Count", 0x25, 0x2e),
    ] {
        let count = match structure.byte(at) {
            Some(0xff) => structure.word(wide),
            count => count.map(u16::from),
        };
        out.value(
            name,
            count
                .filter(|&count| count > 0)
                .map(|count| count.to_string()),
        );
    }
    out.fields
}

fn memory_array(structure: &SmbiosStructure) -> Map<String, Value> {
    let mut out = DmiFields::new(structure);
    let is_on_board = structure.byte(4) == Some(3);
    out.value(
        "Location",
        is_on_board.then(|| "System Board Or Motherboard".to_owned()),
    );
    out.word("Use", 5, 1, &ARRAY_USES);
    out.word("Error Correction Type", 6, 1, &ERROR_CORRECTIONS);
    let capacity = match structure.dword(7) {
        Some(0x8000_0000) => structure.qword(0x0f).map(|bytes| bytes / 1024),
        kib => kib.map(u64::from),
    };
    out.value("Maximum Capacity", capacity.map(size_text));
    out.fields
}

fn memory_device(structure: &SmbiosStructure) -> Map<String, Value> {
    let mut out = DmiFields::new(structure);
    out.value(
        "Array Handle",
        structure.word(4).map(|handle| format!("0x{handle:04X}")),
    );
    for (name, at) in [("Total Width", 8), ("Data Width", 0x0a)] {
        let width = structure.word(at).map(|bits| match bits {
            0 | 0xffff => "Unknown".to_owned(),
            bits => format!("{bits} bits"),
        });
        out.value(name, width);
    }
    let size = device_kib(structure).map_or_else(|| "No Module Installed".to_owned(), size_text);
    out.value("Size", Some(size));
    out.word("Form Factor", 0x0e, 1, &FORM_FACTORS);
    out.string("Locator", 0x10);
    out.string("Bank Locator", 0x11);
    out.word("Type", 0x12, 1, &MEMORY_TYPES);
    out.number("Speed", 0x15, "MT/s");
    if structure.bytes.len() > 0x1a {
        out.string("Manufacturer", 0x17);
        out.string("Serial Number", 0x18);
        out.string("Asset Tag", 0x19);
        out.string("Part Number", 0x1a);
    }
    out.number("Configured Memory Speed", 0x20, "MT/s");
    out.fields
}

/// A size in the largest unit that divides it, as `dmidecode` prints it.
fn size_text(kib: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut size = kib;
    let mut at = 0;
    while at + 1 < units.len() && size >= 1024 && size.is_multiple_of(1024) {
        size /= 1024;
        at += 1;
    }
    format!("{size} {}", units[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smbios::tests::{structure, table};

    /// Bytes of a formatted part, with values at offsets of the structure.
    fn formatted(length: usize, values: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (at, value) in values {
            bytes[*at..*at + value.len()].copy_from_slice(value);
        }
        bytes.split_off(4)
    }

    #[test]
    fn the_document_has_the_words_of_dmidecode() {
        let firmware = formatted(
            0x18,
            &[
                (4, &[1, 2]),
                (6, &[0, 0xe8]),
                (8, &[3, 0]),
                (0x14, &[1, 16]),
            ],
        );
        let processor = formatted(
            0x30,
            &[
                (4, &[1, 3, 1, 2]),
                (8, &[0x61, 0x0f, 0, 0, 0xff, 0xfb, 0x8b, 0x07]),
                (0x10, &[3]),
                (0x14, &2000_u16.to_le_bytes()),
                (0x18, &[0x41]),
                (0x23, &[4, 0xff, 0]),
                (0x2c, &300_u16.to_le_bytes()),
            ],
        );
        let array = formatted(
            0x17,
            &[
                (4, &[3, 3, 6]),
                (7, &(1_u32 << 21).to_le_bytes()),
                (0x0d, &[2]),
            ],
        );
        let device = formatted(
            0x28,
            &[
                (8, &[72, 0, 64, 0]),
                (0x0c, &2048_u16.to_le_bytes()),
                (0x0e, &[9]),
                (0x10, &[1, 0, 7]),
            ],
        );
        let document = dmi_document(&table(&[
            structure(0, &firmware, &["SeaBIOS", "1.16", "04/01/2014"]),
            structure(4, &processor, &["CPU 0", "QEMU", "pc-q35"]),
            structure(16, &array, &[]),
            structure(17, &device, &["DIMM 0"]),
            structure(17, &[0; 0x18], &[]),
        ]));
        assert_eq!(document["bios"]["Vendor"], "SeaBIOS");
        assert_eq!(document["bios"]["Address"], "0xE8000");
        assert_eq!(document["bios"]["Runtime Size"], "96 kB");
        assert_eq!(document["bios"]["ROM Size"], "64 kB");
        assert_eq!(document["bios"]["BIOS Revision"], "1.16");
        let processor = &document["cpu"][0];
        assert_eq!(processor["Type"], "Central Processor");
        assert_eq!(processor["ID"], "61 0F 00 00 FF FB 8B 07");
        assert_eq!(processor["Max Speed"], "2000 MHz");
        assert_eq!(processor["External Clock"], "Unknown");
        assert_eq!(processor["Status"], "Populated, Enabled");
        assert_eq!(
            (&processor["Core Count"], &processor["Core Enabled"]),
            (&json!("4"), &json!("300"))
        );
        let memory = &document["memory"];
        assert_eq!(memory["Maximum Capacity"], "2 GB");
        assert_eq!(memory["Number Of Devices"], 2);
        assert_eq!(memory["Error Correction Type"], "Multi-bit ECC");
        assert_eq!(memory.get("Handle"), None);
        assert_eq!(memory["devices"][0]["Size"], "2 GB");
        assert_eq!(memory["devices"][0]["Type"], "RAM");
        assert_eq!(memory["devices"][0]["Bank Locator"], "Not Specified");
        assert_eq!(memory["devices"][1]["Size"], "No Module Installed");
    }

    #[test]
    fn an_empty_table_gives_empty_sections() {
        let empty = json!({"bios": {}, "cpu": [], "memory": {"devices": []}});
        assert_eq!(dmi_document(&SmbiosTable::default()), empty);
    }

    #[test]
    fn short_structures_have_fewer_fields() {
        for kind in [0, 4, 16, 17] {
            for length in 0..0x30 {
                dmi_document(&table(&[structure(kind, &vec![0xff; length], &["a"])]));
            }
        }
        assert_eq!(size_text(3), "3 kB");
        assert_eq!(size_text(16 << 20), "16 GB");
    }
}
