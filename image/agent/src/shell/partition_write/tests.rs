//! Partitions in a file in the place of a disk.

use super::*;
use crate::shell::disk::tests::ScratchDiskFile;
use crate::shell::mounted::tests::ScratchDirectory;
use trivet_board_linux::BlockAccess;
use trivet_image_disks::DiskTable;

fn order() -> PartitionOrder {
    PartitionOrder {
        root_mib: 20,
        swap_mib: 4,
        ephemeral_mib: 0,
        ephemeral_format: "ext4".to_owned(),
        keeps_ephemeral: false,
        is_uefi: Some(false),
        wants_gpt: false,
    }
}

fn disk(scratch: &ScratchDiskFile) -> BlockFile {
    std::fs::write(&scratch.0, vec![7; 32 << 20]).unwrap();
    BlockFile::open(&scratch.0, BlockAccess::Write).unwrap()
}

#[test]
fn the_root_partition_is_a_disk_and_its_number_is_known() {
    for (wants_gpt, number) in [(false, 2), (true, 3)] {
        let scratch = ScratchDiskFile::new();
        let mut disk = disk(&scratch);
        let order = PartitionOrder {
            wants_gpt,
            ..order()
        };
        let prepared = prepare(&mut disk, &order, None).unwrap();
        let mut root = prepared.root(&mut disk);
        assert_eq!(TargetDisk::bytes(&root), 20 << 20);
        let mut head = vec![0; 4096];
        head[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        head[0x468..0x478].fill(0xab);
        TargetDisk::write_at(&mut root, &head, 0).unwrap();
        let written = prepared.finish(disk, &scratch.0).unwrap();
        let uuid = "abababab-abab-abab-abab-abababababab";
        assert_eq!(written.root_uuid.as_deref(), Some(uuid));
        assert_eq!(written.device.as_ref(), Some(&scratch.0));
        let made = written.partitions.unwrap();
        assert_eq!((made.root, made.efi_system), (number, None));
    }
}

#[test]
fn the_table_is_that_of_the_boot_mode() {
    let kind = |is_uefi, wants_gpt, booted| {
        let order = PartitionOrder {
            is_uefi,
            wants_gpt,
            ..order()
        };
        layout(&order, Some(&[0; 10]), booted).table
    };
    assert_eq!(kind(None, false, true), PartitionTableKind::GptForUefi);
    assert_eq!(kind(None, false, false), PartitionTableKind::Mbr);
    assert_eq!(
        kind(Some(false), true, true),
        PartitionTableKind::GptForBios
    );
    assert_eq!(
        kind(Some(true), false, false),
        PartitionTableKind::GptForUefi
    );
}

#[test]
fn without_the_program_for_a_file_system_nothing_is_erased() {
    let scratch = ScratchDiskFile::new();
    let mut disk = disk(&scratch);
    let order = PartitionOrder {
        ephemeral_mib: 4,
        ephemeral_format: "nosuchfs".to_owned(),
        ..order()
    };
    let Err(error) = prepare(&mut disk, &order, None) else {
        panic!("there is no such program");
    };
    assert!(
        error.contains("mkfs.nosuchfs") && error.contains("--package"),
        "{error}"
    );
    assert!(scratch.bytes().iter().all(|&byte| byte == 7));
}

#[test]
fn a_disk_that_is_too_small_keeps_its_content() {
    let scratch = ScratchDiskFile::new();
    let mut disk = disk(&scratch);
    let order = PartitionOrder {
        root_mib: 40,
        ..order()
    };
    let Err(error) = prepare(&mut disk, &order, None) else {
        panic!("40 MiB do not fit");
    };
    assert!(error.contains("need"), "{error}");
    assert_eq!(DiskTable::read(&mut disk), Ok(DiskTable::Missing));
    assert!(scratch.bytes().iter().all(|&byte| byte == 7));
}

#[test]
fn programs_are_found_and_get_their_arguments() {
    let directory = ScratchDirectory::new();
    let place = directory.0.to_str().unwrap();
    for (kind, first) in [
        ("ext4", "-q"),
        ("xfs", "-f"),
        ("vfat", "-n"),
        ("ntfs", "-L"),
    ] {
        let path = directory.0.join(format!("mkfs.{kind}"));
        std::fs::write(&path, "").unwrap();
        let (program, arguments) = format_program(kind, &["/nonexistent", place]).unwrap();
        assert_eq!(program, path);
        assert_eq!(
            (arguments[0], arguments.last()),
            (first, Some(&EPHEMERAL_LABEL))
        );
    }
}

#[test]
fn a_program_that_fails_is_quoted() {
    let shell = Path::new("/bin/sh");
    let run = |script: &str| Command::new(shell).args(["-c", script]).output();
    assert_eq!(outcome_of(shell, run("exit 0")), Ok(()));
    let error = outcome_of(shell, run("echo first; echo it broke >&2; exit 4")).unwrap_err();
    assert!(error.starts_with("/bin/sh failed"), "{error}");
    assert!(
        error.contains("first; it broke") && error.contains('4'),
        "{error}"
    );
    let gone = Path::new("/nonexistent");
    let error = outcome_of(gone, Command::new(gone).output()).unwrap_err();
    assert!(error.starts_with("/nonexistent: "), "{error}");
}
