//! Loaders in directories in the place of EFI system partitions, and disks in files.

use super::*;
use crate::shell::disk::tests::ScratchDiskFile;
use crate::shell::mounted::tests::ScratchDirectory;
use trivet_image_disks::{EfiPartitionIdentity, GptGuid, GptTable, protective_mbr};

fn tree(files: &[(&str, &[u8])]) -> ScratchDirectory {
    let directory = ScratchDirectory::new();
    for (path, bytes) in files {
        let path = directory.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    directory
}

#[test]
fn the_loaders_of_a_partition_are_found_by_its_list() {
    let list: Vec<u8> = "system.efi,A system,,\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let root = tree(&[
        ("EFI/trivet/BOOTX64.CSV", &list),
        ("EFI/trivet/system.efi", b"MZ"),
        ("EFI/BOOT/BOOTX64.EFI", b"MZ"),
        ("vmlinuz", b"MZ"),
    ]);
    let found = find_loaders(&root.0).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "\\EFI\\trivet\\system.efi");
    assert_eq!(found[0].description, "A system");
}

#[test]
fn very_deep_directories_are_not_searched() {
    let deep = "a/".repeat(DEPTH_MAX + 1);
    let root = tree(&[(&format!("{deep}BOOTX64.EFI"), b"MZ")]);
    assert!(find_loaders(&root.0).unwrap().is_empty());
    let root = tree(&[("EFI/BOOT/BOOTX64.EFI", b"MZ")]);
    assert_eq!(find_loaders(&root.0).unwrap().len(), 1);
    assert!(find_loaders(&root.0.join("gone")).is_err());
}

#[test]
fn entries_have_the_partition_and_the_note_names_its_device() {
    let partition = EfiPartition {
        number: 2,
        first_sector: 4096,
        sectors: 100,
        identity: EfiPartitionIdentity::Mbr(7),
    };
    let loader = EfiLoader {
        path: "\\a.efi".to_owned(),
        description: "ironic1".to_owned(),
    };
    let entries = boot_entries(&partition, &[loader]);
    assert_eq!(entries[0].partition, partition);
    let note = &notes(&entries, Path::new("/dev/sda2"))[0];
    assert_eq!(note, "boot entry ironic1: \\a.efi on /dev/sda2");
}

#[test]
fn a_disk_without_an_efi_system_partition_is_refused() {
    let scratch = ScratchDiskFile::new();
    let mut bytes = vec![0; 4 << 20];
    bytes[..512].copy_from_slice(&protective_mbr(8192));
    let mut table = GptTable::new(GptGuid([1; 16]), 8192, 512).unwrap();
    let write = |table: &GptTable, bytes: &mut Vec<u8>| {
        for one in table.writes(512) {
            let at = one.sector as usize * 512;
            bytes[at..at + one.bytes.len()].copy_from_slice(&one.bytes);
        }
        fs::write(&scratch.0, &bytes).unwrap();
    };
    write(&table, &mut bytes);
    let error = read_system_partition(&scratch.0).unwrap_err();
    assert_eq!(error.kind(), "DeviceNotFound");
    assert!(error.to_string().contains("booted by UEFI"), "{error}");
    let system = (GptGuid::EFI_SYSTEM, GptGuid([3; 16]), "");
    table.add_at_start(2048, 2048, system).unwrap();
    write(&table, &mut bytes);
    let found = read_system_partition(&scratch.0).unwrap();
    assert_eq!((found.number, found.first_sector), (1, 2048));
    let gone = scratch.0.with_extension("gone");
    let error = read_system_partition(&gone).unwrap_err();
    assert_eq!(error.kind(), "CommandExecutionError");
}

#[test]
fn a_failure_is_ignored_only_where_that_was_asked_for() {
    let failed = || Err(AgentWorkError::Bootloader("no loader".to_owned()));
    assert!(notes_or_error(failed(), false).is_err());
    let notes = notes_or_error(failed(), true).unwrap();
    assert!(
        notes[0].contains("ignored") && notes[0].contains("no loader"),
        "{notes:?}"
    );
    let done = vec!["boot entry".to_owned()];
    assert_eq!(notes_or_error(Ok(done.clone()), true), Ok(done));
}

#[test]
fn a_partition_with_very_many_files_is_searched_up_to_a_limit() {
    let directory = ScratchDirectory::new();
    for number in 0..FILES_MAX + 10 {
        fs::write(directory.0.join(number.to_string()), "").unwrap();
    }
    let mut files = Vec::new();
    list_files(&directory.0, "", DEPTH_MAX, &mut files).unwrap();
    assert_eq!(files.len(), FILES_MAX);
}
