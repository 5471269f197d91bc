//! What disks and their settings give to the agent: partition tables, signatures, boot entries,
//! root device hints and config drives.

use std::io;

use serde_json::{Value, json};
use trivet_agent_wire::inventory::IpaDisk;
use trivet_image_disks::{
    AtaSecurity, DiskTable, EFI_TEXT_CHARACTERS_MAX, NvmeController, RootDiskCandidate, TargetDisk,
    choose_efi_loaders, choose_root_disk, disk_signatures, efi_description, efi_entry_number,
    efi_system_partition, erase_metadata, file_system_label, file_system_uuid, move_gpt_backup,
    parse_boot_order, parse_nvme_sanitize_log, unpack_config_drive, write_config_drive,
};

use crate::FuzzTarget;

pub(crate) const TABLES: FuzzTarget = FuzzTarget {
    name: "disk_tables",
    run: tables,
    seeds: table_seeds,
    regressions: &[],
};

pub(crate) const HINTS: FuzzTarget = FuzzTarget {
    name: "disk_hints",
    run: hints,
    seeds: hint_seeds,
    regressions: &[],
};

pub(crate) const RECORDS: FuzzTarget = FuzzTarget {
    name: "disk_records",
    run: records,
    seeds: record_seeds,
    regressions: &[],
};

/// Where a part of an input is on the disk.
const PART_BYTES: usize = 1536;

/// Bytes of the disk.
const DISK_BYTES: usize = 1 << 20;

/// A disk in memory. Everything outside it is an error.
struct FuzzDisk(Vec<u8>);

impl FuzzDisk {
    fn range(&self, at: u64, bytes: u64) -> std::ops::Range<usize> {
        assert!(at.is_multiple_of(512) && bytes.is_multiple_of(512));
        assert!(at + bytes <= self.0.len() as u64, "outside the disk");
        at as usize..(at + bytes) as usize
    }
}

impl TargetDisk for FuzzDisk {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn sector_bytes(&self) -> u64 {
        512
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let range = self.range(at, buffer.len() as u64);
        buffer.copy_from_slice(&self.0[range]);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let range = self.range(at, bytes.len() as u64);
        self.0[range].copy_from_slice(bytes);
        Ok(())
    }

    fn write_zeroes(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        let range = self.range(at, bytes);
        self.0[range].fill(0);
        Ok(())
    }

    fn discard(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        self.write_zeroes(at, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reread_partitions(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_present(&self) -> bool {
        true
    }
}

/// The first bytes of the input are the start of the disk, the others its end.
fn disk(bytes: &[u8]) -> FuzzDisk {
    let mut disk = vec![0; DISK_BYTES];
    let (head, tail) = bytes.split_at(bytes.len().min(PART_BYTES));
    disk[..head.len()].copy_from_slice(head);
    disk[DISK_BYTES - tail.len()..].copy_from_slice(tail);
    FuzzDisk(disk)
}

fn tables(bytes: &[u8]) {
    let mut one = disk(bytes);
    if let Ok(table) = DiskTable::read(&mut one) {
        for partition in table.partitions(512) {
            assert!(partition.number > 0);
        }
        let _ = efi_system_partition(&table);
    }
    if move_gpt_backup(&mut one) == Ok(true) {
        assert!(matches!(DiskTable::read(&mut one), Ok(DiskTable::Gpt(_))));
    }
    let _ = write_config_drive(&mut one, &[1; 512], [3; 16]);
    let mut one = disk(bytes);
    if erase_metadata(&mut one, false).is_ok() {
        assert!(disk_signatures(&mut one).is_ok_and(|left| left.is_empty()));
    }
}

fn table_seeds() -> Vec<Vec<u8>> {
    let mut mbr = vec![0; 512];
    mbr[446..462].copy_from_slice(&[0x80, 0, 0, 0, 0x83, 0, 0, 0, 8, 0, 0, 0, 64, 0, 0, 0]);
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    let mut gpt = mbr.clone();
    gpt[450] = 0xee;
    gpt.extend(b"EFI PART\0\0\x01\0\x5c\0\0\0");
    gpt.resize(1536, 0);
    let mut raid = vec![0; 4000];
    raid[PART_BYTES..PART_BYTES + 4].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
    vec![mbr, gpt, raid, vec![0; 8]]
}

fn hints(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let disks = [RootDiskCandidate {
        disk: IpaDisk {
            name: Some("/dev/sda".to_owned()),
            size: Some(20 << 30),
            model: Some("a model".to_owned()),
            rotational: Some(true),
            ..IpaDisk::default()
        },
        other_serials: vec!["s".to_owned()],
        other_wwns: Vec::new(),
    }];
    let whole: Value = serde_json::from_str(&text).unwrap_or_default();
    let _ = choose_root_disk(&disks, &whole);
    for name in ["size", "model", "serial", "rotational"] {
        if let Err(error) = choose_root_disk(&disks, &json!({ name: text })) {
            assert!(!error.to_string().is_empty());
        }
    }
}

fn hint_seeds() -> Vec<Vec<u8>> {
    [
        ">= 20",
        "<or> a <or> a model",
        "<range-in> [ 10 20 )",
        "<all-in> a b",
        "s!= x",
        r#"{"size": "== 20", "model": "<in> a", "rotational": "yes"}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn records(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(number) = efi_entry_number(&text) {
        assert!(text.to_lowercase().contains(&format!("{number:04x}")));
    }
    let _ = efi_description(bytes);
    assert!(parse_boot_order(bytes).len() <= bytes.len() / 2);
    let _ = file_system_label(bytes);
    let _ = file_system_uuid(bytes);
    let files = ["EFI/a/BOOTX64.CSV", "EFI/a/a.efi", &*text].map(str::to_owned);
    for loader in choose_efi_loaders(&files, &mut |_| Some(bytes.to_vec())) {
        assert!(loader.path.starts_with('\\'));
        assert!(loader.description.chars().count() <= EFI_TEXT_CHARACTERS_MAX);
    }
    let _ = parse_nvme_sanitize_log(bytes);
    let _ = NvmeController::parse(bytes);
    if let Some(security) = AtaSecurity::parse(bytes) {
        let _ = security.plan().map(|plan| plan.commands());
    }
    let _ = unpack_config_drive(&text);
}

fn record_seeds() -> Vec<Vec<u8>> {
    let mut identify = vec![0; 512];
    identify[164] = 2;
    identify[256] = 0x21;
    vec![
        b"Boot00AF-8be4df61-93ca-11d2-aa0d-00e098032b8c".to_vec(),
        [&[1, 0, 0, 0, 4, 0][..], b"a\0b\0\0\0", &[0x7f, 0xff, 4, 0]].concat(),
        b"\xff\xfea\0.\0e\0f\0i\0,\0b\0,\0,\0\n\0".to_vec(),
        b"H4sIAAAAAAAA/wMAAAAAAAAAAAA=".to_vec(),
        identify,
        vec![0, 0x80, 2, 0],
    ]
}
