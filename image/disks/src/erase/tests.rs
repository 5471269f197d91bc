use super::*;
use crate::testing::MemoryDisk;
use crate::{GptGuid, GptTable, protective_mbr};

const MIB: usize = 1 << 20;

/// A drive in memory whose commands work, or fail with a reason.
struct MemoryDrive {
    disk: MemoryDisk,
    fails: Option<&'static str>,
    /// It reports success and erases nothing.
    keeps_data: bool,
}

impl MemoryDrive {
    fn new() -> Self {
        Self {
            disk: MemoryDisk::filled(4 * MIB, 7),
            fails: None,
            keeps_data: false,
        }
    }

    fn command(&mut self) -> Result<(), String> {
        if let Some(reason) = self.fails {
            return Err(reason.to_owned());
        }
        if !self.keeps_data {
            self.disk.data.fill(0);
        }
        Ok(())
    }
}

impl TargetDisk for MemoryDrive {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }
    fn sector_bytes(&self) -> u64 {
        self.disk.sector_bytes()
    }
    fn is_read_only(&self) -> bool {
        self.disk.is_read_only
    }
    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
        self.disk.read_at(buffer, at)
    }
    fn write_at(&mut self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        self.disk.write_at(bytes, at)
    }
    fn write_zeroes(&mut self, at: u64, bytes: u64) -> std::io::Result<()> {
        self.disk.write_zeroes(at, bytes)
    }
    fn discard(&mut self, at: u64, bytes: u64) -> std::io::Result<()> {
        self.disk.discard(at, bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.disk.flush()
    }
    fn reread_partitions(&mut self) -> std::io::Result<()> {
        self.disk.reread_partitions()
    }
    fn is_present(&self) -> bool {
        self.disk.is_present()
    }
}

impl EraseDevice for MemoryDrive {
    fn nvme_format(&mut self, _: NvmeFormatErase) -> Result<(), String> {
        self.command()
    }
    fn nvme_sanitize(
        &mut self,
        _: NvmeSanitizeAction,
        progress: &mut dyn FnMut(u16),
    ) -> Result<(), String> {
        progress(0x8000);
        self.command()
    }
    fn ata_secure_erase(&mut self, _: AtaErasePlan) -> Result<(), String> {
        self.command()
    }
}

fn nvme() -> DriveFacts {
    DriveFacts {
        nvme: Some(NvmeController {
            can_format: true,
            can_sanitize_block: true,
            namespaces: 1,
            ..NvmeController::default()
        }),
        ..DriveFacts::default()
    }
}

fn ata(is_frozen: bool) -> DriveFacts {
    DriveFacts {
        ata: Some(AtaSecurity {
            is_supported: true,
            is_frozen,
            ..AtaSecurity::default()
        }),
        ..DriveFacts::default()
    }
}

fn erased(
    drive: &mut MemoryDrive,
    facts: &DriveFacts,
    settings: &EraseSettings,
) -> Result<EraseEvidence, DiskEraseError> {
    erase_disk(drive, facts, settings, 3, &mut |_| ())
}

#[test]
fn a_drive_erases_itself_if_it_can() {
    for (facts, method) in [
        (nvme(), "nvme-format-user-data"),
        (ata(false), "ata-secure-erase"),
    ] {
        let mut drive = MemoryDrive::new();
        let evidence = erased(&mut drive, &facts, &EraseSettings::default()).unwrap();
        assert_eq!(evidence.method, method);
        assert!(evidence.checked_samples > 8);
        assert!(drive.disk.data.iter().all(|&byte| byte == 0));
        assert_eq!(drive.disk.written, 0);
    }
}

#[test]
fn a_drive_that_reports_success_and_keeps_its_data_is_found() {
    let mut drive = MemoryDrive::new();
    drive.keeps_data = true;
    let error = erased(&mut drive, &nvme(), &EraseSettings::default()).unwrap_err();
    assert!(
        error.to_string().contains("still has data at byte 0"),
        "{error}"
    );
}

#[test]
fn a_frozen_drive_is_named_and_overwritten() {
    let mut drive = MemoryDrive::new();
    let facts = ata(true);
    assert!(is_frozen(&facts) && !is_frozen(&ata(false)) && !is_frozen(&nvme()));
    let evidence = erased(&mut drive, &facts, &EraseSettings::default()).unwrap();
    assert_eq!(evidence.method, "overwrite");
    let document = evidence.document();
    let reason = document["attempts"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("frozen"), "{reason}");
    assert_eq!(document["attempts"][1]["reason"], Value::Null);
}

#[test]
fn a_failed_command_ends_the_erasure_unless_the_settings_continue() {
    let mut drive = MemoryDrive::new();
    drive.fails = Some("status 0x0002");
    let mut settings = EraseSettings::default();
    let error = erased(&mut drive, &nvme(), &settings).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("nvme-format-user-data failed: status"),
        "{error}"
    );
    assert!(
        drive.disk.data.iter().all(|&byte| byte == 7),
        "nothing was changed"
    );
    settings.continues_after_failure = true;
    let evidence = erased(&mut drive, &nvme(), &settings).unwrap();
    assert_eq!(evidence.method, "overwrite");
    assert_eq!(evidence.attempts.len(), 3, "format, sanitize, overwrite");
}

#[test]
fn discard_counts_only_if_the_disk_reads_zeros() {
    let facts = DriveFacts {
        can_discard: true,
        ..DriveFacts::default()
    };
    let settings = EraseSettings {
        discard: true,
        ..EraseSettings::default()
    };
    let mut drive = MemoryDrive::new();
    assert_eq!(
        erased(&mut drive, &facts, &settings).unwrap().method,
        "discard"
    );
    let mut drive = MemoryDrive::new();
    drive.disk.ignores_discard = true;
    let evidence = erased(&mut drive, &facts, &settings).unwrap();
    assert_eq!(evidence.method, "overwrite");
    assert!(
        evidence.attempts[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("still has data")
    );
    let mut drive = MemoryDrive::new();
    let evidence = erased(&mut drive, &DriveFacts::default(), &settings).unwrap();
    assert_eq!(evidence.attempts[0].method, "discard");
}

#[test]
fn an_overwrite_has_its_passes_and_reports_progress() {
    let mut drive = MemoryDrive::new();
    let settings = EraseSettings {
        passes: 2,
        zeroize: false,
        ..EraseSettings::default()
    };
    let mut reports = Vec::new();
    let facts = DriveFacts::default();
    let evidence = erase_disk(&mut drive, &facts, &settings, 3, &mut |report| {
        reports.push(report);
    });
    assert!(evidence.unwrap().checked_samples > 0);
    assert_eq!(drive.disk.written, 8 * MIB as u64);
    let last = reports.last().unwrap();
    assert_eq!(
        (last.done_bytes, last.total_bytes),
        (8 * MIB as u64, 8 * MIB as u64)
    );
    assert!(reports.is_sorted_by_key(|report| report.done_bytes));
    assert!(drive.disk.data.iter().any(|&byte| byte != 7 && byte != 0));
}

#[test]
fn namespaces_of_one_controller_are_not_erased_together() {
    let mut facts = nvme();
    let controller = facts.nvme.as_mut().unwrap();
    controller.namespaces = 2;
    controller.erases_all_namespaces = true;
    let (methods, skipped) = plan_erase(&facts, &EraseSettings::default());
    assert_eq!(methods.len(), 1, "only the overwrite");
    assert!(
        skipped[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("all of its namespaces")
    );
    let mut drive = MemoryDrive::new();
    drive.disk.is_read_only = true;
    let refused = erased(&mut drive, &facts, &EraseSettings::default());
    assert_eq!(refused, Err(DiskEraseError::ReadOnly));
}

#[test]
fn a_disk_without_any_method_is_an_error_and_so_is_one_that_fails() {
    let none = EraseSettings {
        passes: 0,
        zeroize: false,
        ..EraseSettings::default()
    };
    let mut drive = MemoryDrive::new();
    let refused = erased(&mut drive, &DriveFacts::default(), &none);
    assert_eq!(refused, Err(DiskEraseError::NoMethod));
    drive.disk.fails_at = Some(2 * MIB as u64);
    let failed = erased(
        &mut drive,
        &DriveFacts::default(),
        &EraseSettings::default(),
    );
    assert!(matches!(
        failed,
        Err(DiskEraseError::Disk(TargetDiskError::Failed { .. }))
    ));
}

#[test]
fn settings_have_the_names_of_ironic() {
    let info = json!({
        "agent_enable_nvme_secure_erase": false, "agent_enable_ata_secure_erase": false,
        "agent_enable_discard_erase": true, "agent_erase_devices_iterations": 1000,
        "agent_erase_devices_zeroize": false, "agent_continue_if_ata_erase_failed": true,
        "agent_erase_skip_read_only": true});
    let settings = EraseSettings::parse(info.as_object().unwrap());
    assert!(!settings.nvme && !settings.ata && settings.discard && !settings.zeroize);
    assert!(settings.continues_after_failure && settings.skips_read_only);
    assert_eq!(settings.passes, OVERWRITE_PASSES_MAX);
    assert_eq!(EraseSettings::parse(&Map::new()), EraseSettings::default());
}

/// A disk with a GPT, file systems in its partition, and an array at its end.
fn used_disk() -> MemoryDisk {
    let mut disk = MemoryDisk::filled(64 * MIB, 9);
    let sectors = 64 * MIB as u64 / 512;
    let mut table = GptTable::new(GptGuid::random([1; 16]), sectors, 512).unwrap();
    let root = (GptGuid::LINUX_DATA, GptGuid::random([2; 16]), "root");
    table.add_at_start(20 * 2048, 2048, root).unwrap();
    crate::table::write_table(&mut disk, &table.writes(512)).unwrap();
    disk.data[..512].copy_from_slice(&protective_mbr(sectors));
    disk.data[MIB + 0x438..MIB + 0x43a].copy_from_slice(&[0x53, 0xef]);
    disk
}

#[test]
fn metadata_of_disk_and_partitions_are_erased_and_data_between_remain() {
    let mut disk = used_disk();
    let names: Vec<_> = disk_signatures(&mut disk)
        .unwrap()
        .iter()
        .map(|one| (one.name, one.at))
        .collect();
    let end = 64 * MIB as u64 - 512;
    assert_eq!(
        names,
        [
            ("dos", 510),
            ("gpt", 512),
            ("gpt", end),
            ("ext4", MIB as u64 + 0x438)
        ]
    );
    let evidence = erase_metadata(&mut disk, true).unwrap();
    assert_eq!(evidence.signatures.len(), 4);
    assert_eq!(evidence.document()["signatures"][3]["name"], "ext4");
    assert!(disk_signatures(&mut disk).unwrap().is_empty());
    assert_eq!(disk.data[10 * MIB], 9, "data remain");
    assert_eq!(disk.rereads, 1);
}

#[test]
fn shared_file_systems_and_read_only_disks_are_refused() {
    let mut disk = used_disk();
    disk.data[MIB + 0x1_0000..MIB + 0x1_0004].copy_from_slice(&[0x01, 0x16, 0x19, 0x70]);
    assert_eq!(
        erase_metadata(&mut disk, true),
        Err(DiskEraseError::Protected("gfs2"))
    );
    assert_eq!(
        refuse_shared(&mut disk),
        Err(DiskEraseError::Protected("gfs2"))
    );
    assert!(!disk_signatures(&mut disk).unwrap().is_empty());
    erase_metadata(&mut disk, false).unwrap();
    refuse_shared(&mut disk).unwrap();
    disk.is_read_only = true;
    assert_eq!(
        erase_metadata(&mut disk, true),
        Err(DiskEraseError::ReadOnly)
    );
}

#[test]
fn a_damaged_table_does_not_stop_the_erasure() {
    let mut disk = used_disk();
    disk.data[600] ^= 1;
    let end = disk.data.len();
    disk.data[end - 500] ^= 1;
    erase_metadata(&mut disk, true).unwrap();
    assert!(disk_signatures(&mut disk).unwrap().is_empty());
}
