use super::*;
use crate::shell::disk::tests::ScratchDiskFile;
use serde_json::json;
use trivet_agent_wire::inventory::IpaDisk;
use trivet_image_disks::{AtaSecurity, RootDeviceHints};

const MIB: usize = 1 << 20;
const DISK_BYTES: usize = 8 * MIB;

fn order(whole: bool) -> AgentEraseOrder {
    AgentEraseOrder {
        whole,
        settings: EraseSettings::default(),
        guards_shared: true,
        skipped: Vec::new(),
    }
}

/// A disk full of data, with the signature of an ext4 file system.
fn used_disk() -> ScratchDiskFile {
    let disk = ScratchDiskFile::new();
    let mut data = vec![7; DISK_BYTES];
    data[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(&disk.0, data).unwrap();
    disk
}

fn target(disk: &ScratchDiskFile) -> EraseTarget {
    EraseTarget {
        path: disk.0.clone(),
        skip_reason: None,
    }
}

fn erase(
    targets: &[EraseTarget],
    order: &AgentEraseOrder,
) -> (Result<Value, AgentWorkError>, Vec<String>) {
    let mut notes = Vec::new();
    let erased = erase_disks(targets, order, 5, &mut |_, note| notes.push(note));
    (erased, notes)
}

#[test]
fn metadata_are_erased_with_evidence_and_data_remain() {
    let disk = used_disk();
    let (erased, notes) = erase(&[target(&disk)], &order(false));
    let erased = erased.unwrap();
    let evidence = &erased[disk.0.to_str().unwrap()];
    assert_eq!(evidence["method"], "metadata");
    assert_eq!(evidence["signatures"][0]["at"], 0x438);
    assert!(evidence["zeroed_bytes"].as_u64().unwrap() >= MIB as u64);
    assert_eq!(notes, ["erased by metadata"]);
    let data = disk.bytes();
    assert!(data[..MIB].iter().all(|&byte| byte == 0));
    assert_eq!((data[2 * MIB], data[DISK_BYTES - 1]), (7, 0));
}

#[test]
fn a_disk_without_commands_is_overwritten_and_the_log_has_the_progress() {
    let disk = used_disk();
    let (erased, notes) = erase(&[target(&disk)], &order(true));
    let erased = erased.unwrap();
    let evidence = &erased[disk.0.to_str().unwrap()];
    assert_eq!(evidence["method"], "overwrite");
    assert_eq!(evidence["bytes"], DISK_BYTES);
    assert!(evidence["checked_samples"].as_u64().unwrap() > 0);
    assert!(disk.bytes().iter().all(|&byte| byte == 0));
    assert_eq!(notes[0], "overwrite, 0 %");
    assert!(notes.len() > 2 && notes.len() <= 14, "{notes:?}");
    assert_eq!(notes.last().unwrap(), "erased by overwrite");
}

#[test]
fn a_read_only_disk_is_an_error_or_skipped_by_the_settings() {
    let (disk, other) = (used_disk(), used_disk());
    let mut permissions = std::fs::metadata(&disk.0).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&disk.0, permissions).unwrap();
    let targets = [target(&disk), target(&other)];
    let mut order = order(false);
    let name = disk.0.to_str().unwrap();
    let failure = erase(&targets, &order).0.unwrap_err();
    assert_eq!(failure.kind(), "BlockDeviceEraseError");
    let words = format!("Could not erase: {name}: the disk is read-only");
    assert_eq!(failure.to_string(), words);
    assert_eq!(other.bytes()[0x438], 0, "the other disk is erased");
    order.settings.skips_read_only = true;
    let erased = erase(&targets, &order).0.unwrap();
    assert_eq!(erased[name], json!({"skipped": "the disk is read-only"}));
    assert_eq!(disk.bytes()[0x438], 0x53);
}

#[test]
fn a_shared_file_system_is_refused_unless_the_node_allows_it() {
    let disk = used_disk();
    let mut data = disk.bytes();
    data[0x1_0000..0x1_0004].copy_from_slice(&[0x01, 0x16, 0x19, 0x70]);
    std::fs::write(&disk.0, &data).unwrap();
    for whole in [false, true] {
        let failure = erase(&[target(&disk)], &order(whole)).0.unwrap_err();
        assert!(failure.to_string().contains("gfs2"), "{failure}");
        assert_eq!(disk.bytes(), data);
    }
    let allowed = AgentEraseOrder {
        guards_shared: false,
        ..order(false)
    };
    erase(&[target(&disk)], &allowed).0.unwrap();
}

#[test]
fn disks_that_are_missing_are_named() {
    let missing = EraseTarget {
        path: PathBuf::from("/nonexistent/disk"),
        skip_reason: None,
    };
    let failure = erase(&[missing.clone(), missing], &order(true))
        .0
        .unwrap_err()
        .to_string();
    assert_eq!(failure.matches("/nonexistent/disk: ").count(), 2);
    let busy = io::Error::from(io::ErrorKind::ResourceBusy);
    assert_eq!(open_error(busy), "the disk is in use");
}

#[test]
fn disks_of_the_system_virtual_media_and_excluded_disks_are_skipped() {
    let disks: Vec<RootDiskCandidate> = ["/dev/sda", "/dev/sdb", "/dev/sdc", "/dev/nvme0n1"]
        .into_iter()
        .map(|name| RootDiskCandidate {
            disk: IpaDisk {
                name: Some(name.to_owned()),
                ..IpaDisk::default()
            },
            other_serials: Vec::new(),
            other_wwns: Vec::new(),
        })
        .collect();
    let order = AgentEraseOrder {
        skipped: vec![RootDeviceHints::parse(&json!({"name": "/dev/sdc"})).unwrap()],
        ..order(true)
    };
    let (system, media) = (["sda".to_owned()], [PathBuf::from("/dev/sdb")]);
    let targets = erase_targets(&disks, &system, &media, &order);
    let skipped: Vec<_> = targets
        .iter()
        .map(|one| one.skip_reason.is_some())
        .collect();
    assert_eq!(skipped, [true, true, true, false]);
    // What is skipped is not even opened.
    let (erased, _) = erase(&targets[..3], &order);
    let erased = erased.unwrap();
    assert_eq!(erased["/dev/sda"]["skipped"], "the running system is on it");
    assert_eq!(erased.as_object().unwrap().len(), 3);
}

#[test]
fn a_frozen_drive_is_an_error_unless_the_settings_continue() {
    let facts = |is_frozen| DriveFacts {
        ata: Some(AtaSecurity {
            is_supported: true,
            is_frozen,
            ..AtaSecurity::default()
        }),
        ..DriveFacts::default()
    };
    let mut settings = EraseSettings::default();
    assert_eq!(refusal(&facts(false), &settings), None);
    let refused = refusal(&facts(true), &settings).unwrap().to_string();
    assert!(refused.contains("the drive is frozen"), "{refused}");
    settings.continues_after_failure = true;
    assert_eq!(refusal(&facts(true), &settings), None);
    settings = EraseSettings {
        ata: false,
        ..EraseSettings::default()
    };
    assert_eq!(refusal(&facts(true), &settings), None);
}
