//! Partition tables and signatures against the programs that other systems use: sfdisk, wipefs,
//! blkid, fsck and mkfs. A program that is not installed is left out.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use trivet_board_linux::{BlockAccess, BlockFile};

use crate::{
    CONFIG_DRIVE_BYTES_MAX, DiskTable, PartitionLayout, PartitionRole, PartitionTableKind,
    disk_signatures, erase_metadata, move_gpt_backup, prepare_partitions, write_config_drive,
};

const MIB: u64 = 1 << 20;

/// A file in place of a disk, which is removed at the end.
struct DiskFile(PathBuf);

impl DiskFile {
    fn new(name: &str, bytes: u64) -> Self {
        let name = format!("trivet-disk-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        Self(path)
    }

    fn grow(&self, bytes: u64) {
        let file = OpenOptions::new().write(true).open(&self.0).unwrap();
        file.set_len(bytes).unwrap();
    }

    fn open(&self) -> BlockFile {
        BlockFile::open(&self.0, BlockAccess::Write).unwrap()
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a program; `None` if it is not installed. Otherwise it must succeed.
fn run(program: &str, arguments: &[&str], path: &Path, input: &str) -> Option<String> {
    let child = Command::new(program)
        .args(arguments)
        .arg(path)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("{program} is not installed");
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    // A program that reads nothing closes its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn partitions(disk: &DiskFile) -> Option<Vec<Value>> {
    let listing = run("sfdisk", &["--json"], disk.path(), "")?;
    let listing: Value = serde_json::from_str(&listing).unwrap();
    Some(
        listing["partitiontable"]["partitions"]
            .as_array()
            .unwrap()
            .clone(),
    )
}

#[test]
fn a_gpt_of_sfdisk_is_moved_and_extended_and_sfdisk_finds_no_error() {
    let disk = DiskFile::new("gpt", 64 * MIB);
    let script = "label: gpt\nsize=8MiB, type=U, name=esp\nsize=16MiB, type=L, name=root\n";
    if run("sfdisk", &["--quiet"], disk.path(), script).is_none() {
        return;
    }
    disk.grow(256 * MIB);
    let mut file = disk.open();
    assert_eq!(move_gpt_backup(&mut file), Ok(true));
    let drive = vec![1; 100_000];
    let made = write_config_drive(&mut file, &drive, [9; 16]).unwrap();
    drop(file);
    let verified = run("sfdisk", &["--verify"], disk.path(), "").unwrap();
    assert!(verified.contains("No errors detected"), "{verified}");
    let listed = partitions(&disk).unwrap();
    assert_eq!(listed.len(), 3);
    assert_eq!(listed[0]["name"], "esp");
    assert_eq!(listed[2]["start"], made.start / 512);
    assert_eq!(listed[2]["size"], made.bytes / 512);
    assert!(made.start + made.bytes > 254 * MIB);
}

#[test]
fn an_mbr_of_sfdisk_gets_the_config_drive_as_its_last_partition() {
    let disk = DiskFile::new("mbr", 256 * MIB);
    let script = "label: dos\nlabel-id: 0x1a2b3c4d\nsize=8MiB, type=83, bootable\n";
    if run("sfdisk", &["--quiet"], disk.path(), script).is_none() {
        return;
    }
    let mut file = disk.open();
    let DiskTable::Mbr(table) = DiskTable::read(&mut file).unwrap() else {
        panic!("no MBR");
    };
    assert_eq!(table.identifier_text(), "0x1a2b3c4d");
    let made = write_config_drive(&mut file, &[1; 4096], [9; 16]).unwrap();
    drop(file);
    let listed = partitions(&disk).unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["bootable"], true);
    assert_eq!(listed[1]["type"], "c");
    assert_eq!(listed[1]["start"], made.start / 512);
    assert_eq!(made.bytes, CONFIG_DRIVE_BYTES_MAX);
}

#[test]
fn all_that_wipefs_finds_is_found_and_erased() {
    let makers: [(&str, &[&str]); 6] = [
        ("mkfs.ext4", &["-q", "-F"]),
        ("mkfs.xfs", &["-q", "-f"]),
        ("mkfs.btrfs", &["-q", "-f"]),
        ("mkfs.vfat", &[]),
        ("mkswap", &["--quiet"]),
        ("mkfs.minix", &[]),
    ];
    for (maker, arguments) in makers {
        let disk = DiskFile::new(maker, 320 * MIB);
        if run(maker, arguments, disk.path(), "").is_none() {
            continue;
        }
        let Some(listed) = run("wipefs", &["--json"], disk.path(), "") else {
            return;
        };
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let listed = listed["signatures"].as_array().unwrap();
        assert!(!listed.is_empty(), "{maker}");
        let mut file = disk.open();
        let found = disk_signatures(&mut file).unwrap();
        for one in listed {
            let kind = one["type"].as_str().unwrap();
            let is_found = found.iter().any(|own| own.name == kind);
            assert!(is_found, "{maker}: {one} is not in {found:?}");
        }
        erase_metadata(&mut file, true).unwrap();
        file.flush().unwrap();
        let left = run("wipefs", &["--noheadings"], disk.path(), "").unwrap();
        assert_eq!(left.trim(), "", "{maker}");
    }
}

#[test]
fn partitions_with_file_systems_are_erased_before_the_table() {
    let disk = DiskFile::new("whole", 128 * MIB);
    let script = "label: gpt\nsize=32MiB, type=L\nsize=32MiB, type=L\n";
    if run("sfdisk", &["--quiet"], disk.path(), script).is_none() {
        return;
    }
    let inner = DiskFile::new("inner", 32 * MIB);
    if run("mkfs.ext4", &["-q", "-F"], inner.path(), "").is_none() {
        return;
    }
    let mut file = disk.open();
    let places = DiskTable::read(&mut file).unwrap().partitions(512);
    let image = std::fs::read(inner.path()).unwrap();
    for place in &places {
        file.write_at(&image, place.start).unwrap();
    }
    let evidence = erase_metadata(&mut file, true).unwrap();
    let file_systems = evidence.signatures.iter().filter(|one| one.name == "ext4");
    assert_eq!(file_systems.count(), 2);
    drop(file);
    // The same partitions again: nothing of the old file systems is in them.
    run("sfdisk", &["--quiet"], disk.path(), script).unwrap();
    let mut file = disk.open();
    let found = disk_signatures(&mut file).unwrap();
    assert!(found.iter().all(|one| one.name != "ext4"), "{found:?}");
}

/// The answer of blkid for the bytes from an offset on.
fn identified(disk: &DiskFile, at: u64) -> Option<String> {
    let at = at.to_string();
    let arguments = ["-p", "-o", "export", "-O", &at];
    run("blkid", &arguments, disk.path(), "")
}

#[test]
fn other_programs_read_the_partitions_around_an_image() {
    for (table, is_gpt) in [
        (PartitionTableKind::GptForUefi, true),
        (PartitionTableKind::Mbr, false),
    ] {
        let disk = DiskFile::new(&format!("partitions-{is_gpt}"), 700 * MIB);
        let layout = PartitionLayout {
            table,
            root_mib: 50,
            swap_mib: 8,
            ephemeral_mib: 4,
            config_drive_bytes: 0,
            keeps_ephemeral: false,
        };
        let mut serial = 0;
        let mut random = || {
            serial += 1;
            [serial; 16]
        };
        let planned = prepare_partitions(&mut disk.open(), &layout, None, &mut random).unwrap();
        let Some(listed) = partitions(&disk) else {
            return;
        };
        let sectors = |value: &Value| value.as_u64().unwrap() * 512;
        let places = listed
            .iter()
            .map(|one| (sectors(&one["start"]), sectors(&one["size"])));
        let wanted = planned.iter().map(|one| (one.start, one.bytes));
        assert_eq!(places.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
        let bootable = listed.last().map(|root| root["bootable"] == true);
        assert_eq!(bootable, Some(!is_gpt), "an MBR marks what a BIOS boots");
        let start = |role| {
            let mut planned = planned.iter();
            planned.find(|one| one.role == role).map(|one| one.start)
        };
        let swap = start(PartitionRole::Swap).unwrap();
        if let Some(found) = identified(&disk, swap) {
            assert!(
                found.contains("TYPE=swap") && found.contains("LABEL=swap1"),
                "{found}"
            );
        }
        if let Some(at) = start(PartitionRole::EfiSystem) {
            check_efi_system(&disk, at, planned[0].bytes);
        }
    }
}

/// A copy of the partition, as the program for it takes no offset.
fn check_efi_system(disk: &DiskFile, at: u64, bytes: u64) {
    if let Some(found) = identified(disk, at) {
        assert!(
            found.contains("TYPE=vfat") && found.contains("LABEL=EFI-PART"),
            "{found}"
        );
    }
    let copy = DiskFile::new("efi-system", bytes);
    let mut head = vec![0; (4 * MIB) as usize];
    crate::TargetDisk::read_at(&mut disk.open(), &mut head, at).unwrap();
    let mut file = OpenOptions::new().write(true).open(copy.path()).unwrap();
    file.write_all(&head).unwrap();
    run("fsck.fat", &["-n", "-v"], copy.path(), "");
}
