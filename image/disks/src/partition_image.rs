//! A disk around an image that is one file system: everything but the image itself is written
//! before it.

use crate::erase::{DiskEraseError, erase_metadata};
use crate::partition_plan::{
    PartitionLayout, PartitionPlanError, PartitionRole, PartitionTableKind, PlannedPartition,
};
use crate::target::{flush, read, write, write_zeroes};
use crate::volume::{
    DiskSlice, FatFormatError, IDENTIFIER_BYTES, file_system_uuid, format_fat32, format_swap,
};
use crate::{DiskTable, GptGuid, TargetDisk, TargetDiskError};

/// Labels of file systems; the stock agent's.
const EFI_LABEL: &str = "EFI-PART";
const SWAP_LABEL: &str = "swap1";

/// What is zeroed at the start of a partition, so that nothing old is found there.
const CLEARED_BYTES: u64 = 1 << 20;

/// Why a disk was not prepared.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PartitionImageError {
    /// The partitions do not fit, or cannot be kept.
    #[error(transparent)]
    Plan(#[from] PartitionPlanError),
    /// What was on the disk cannot be erased.
    #[error(transparent)]
    Erase(#[from] DiskEraseError),
    /// The EFI system partition has no file system.
    #[error(transparent)]
    Fat(#[from] FatFormatError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] TargetDiskError),
}

/// Identifiers of file systems.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PartitionIdentifiers {
    /// That of the root partition.
    pub root: Option<String>,
    /// That of the EFI system partition.
    pub efi_system: Option<String>,
}

/// Makes the partitions of a disk and writes all of them but root and ephemeral. Nothing is
/// changed on a disk where they do not fit. `random` returns bytes for identifiers.
pub fn prepare_partitions(
    disk: &mut dyn TargetDisk,
    layout: &PartitionLayout,
    config_drive: Option<&[u8]>,
    random: &mut dyn FnMut() -> [u8; 16],
) -> Result<Vec<PlannedPartition>, PartitionImageError> {
    let planned = layout.plan(disk.bytes(), disk.sector_bytes())?;
    if !layout.keeps_ephemeral {
        erase_metadata(disk, false)?;
    }
    layout.write(disk, &planned, random)?;
    let sector_bytes = disk.sector_bytes();
    for one in &planned {
        let keeps = one.role == PartitionRole::Ephemeral && layout.keeps_ephemeral;
        if !keeps {
            write_zeroes(disk, one.start, CLEARED_BYTES.min(one.bytes))?;
        }
        let mut slice = DiskSlice::new(disk, one.start, one.bytes);
        match one.role {
            PartitionRole::EfiSystem => {
                let id = random();
                let id = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
                format_fat32(&mut slice, one.start / sector_bytes, id, EFI_LABEL)?;
            }
            PartitionRole::Swap => format_swap(&mut slice, GptGuid::random(random()), SWAP_LABEL)?,
            PartitionRole::ConfigDrive => {
                let mut padded = config_drive.unwrap_or_default().to_vec();
                let whole = padded.len().next_multiple_of(sector_bytes as usize);
                padded.resize(whole, 0);
                write(&mut slice, &padded, 0)?;
            }
            PartitionRole::BiosBoot | PartitionRole::Ephemeral | PartitionRole::Root => {}
        }
    }
    flush(disk)?;
    Ok(planned)
}

/// The identifiers of the file systems after the image was written. A file system without one is
/// known by its partition.
pub fn partition_identifiers(
    disk: &mut dyn TargetDisk,
    layout: &PartitionLayout,
    planned: &[PlannedPartition],
) -> Result<PartitionIdentifiers, PartitionImageError> {
    let mut found = PartitionIdentifiers::default();
    for one in planned {
        let place = match one.role {
            PartitionRole::Root => &mut found.root,
            PartitionRole::EfiSystem => &mut found.efi_system,
            _ => continue,
        };
        let mut head = vec![0; IDENTIFIER_BYTES.min(one.bytes as usize)];
        read(disk, &mut head, one.start)?;
        *place = match file_system_uuid(&head) {
            Some(uuid) => Some(uuid),
            None => partition_uuid(disk, layout.table, one.number)?,
        };
    }
    Ok(found)
}

/// The identifier of a partition, as the kernel takes it in `root=PARTUUID=`.
fn partition_uuid(
    disk: &mut dyn TargetDisk,
    kind: PartitionTableKind,
    number: u32,
) -> Result<Option<String>, PartitionImageError> {
    let table = DiskTable::read(disk).map_err(PartitionPlanError::from)?;
    Ok(match (table, kind) {
        (DiskTable::Gpt(gpt), _) => {
            let mut partitions = gpt.partitions.iter();
            let found = partitions.find(|one| one.number == number);
            found.map(|one| one.guid.to_string())
        }
        (DiskTable::Mbr(mbr), PartitionTableKind::Mbr) => {
            Some(format!("{:08x}-{number:02x}", mbr.identifier))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryDisk;
    use crate::{file_system_label, labelled_partitions};

    const MIB: usize = 1 << 20;

    fn layout(table: PartitionTableKind) -> PartitionLayout {
        PartitionLayout {
            table,
            root_mib: 100,
            swap_mib: 8,
            ephemeral_mib: 4,
            config_drive_bytes: 100_000,
            keeps_ephemeral: false,
        }
    }

    fn config_drive() -> Vec<u8> {
        let mut image = vec![3; 100_000];
        image[0x8001..0x8006].copy_from_slice(b"CD001");
        image[0x8028..0x8048].fill(b' ');
        image[0x8028..0x8030].copy_from_slice(b"config-2");
        image
    }

    #[test]
    fn everything_but_the_image_is_written() {
        let layout = layout(PartitionTableKind::GptForUefi);
        let mut disk = MemoryDisk::filled(700 * MIB, 0);
        // An old file system where the ephemeral partition begins.
        disk.data[551 * MIB..552 * MIB].fill(0xee);
        let drive = config_drive();
        let planned = prepare_partitions(&mut disk, &layout, Some(&drive), &mut || [5; 16]);
        let planned = planned.unwrap();
        let start = |role| {
            let found = planned.iter().find(|one| one.role == role);
            found.unwrap().start as usize
        };
        let efi = start(PartitionRole::EfiSystem);
        let label = file_system_label(&disk.data[efi..efi + 512]);
        assert_eq!(label.as_deref(), Some("EFI-PART"));
        let swap = start(PartitionRole::Swap);
        assert_eq!(&disk.data[swap + 4086..swap + 4096], b"SWAPSPACE2");
        let ephemeral = start(PartitionRole::Ephemeral);
        assert!(
            disk.data[ephemeral..ephemeral + MIB]
                .iter()
                .all(|&byte| byte == 0)
        );
        let table = DiskTable::read(&mut disk).unwrap();
        let drives = labelled_partitions(&mut disk, &table, "config-2").unwrap();
        assert_eq!(drives.len(), 1);
        let at = drives[0].start as usize;
        assert_eq!(disk.data[at..at + drive.len()], drive);
        let root = start(PartitionRole::Root);
        disk.data[root + 0x438..root + 0x43a].copy_from_slice(&[0x53, 0xef]);
        disk.data[root + 0x468..root + 0x478].fill(0xab);
        let found = partition_identifiers(&mut disk, &layout, &planned).unwrap();
        assert_eq!(found.efi_system.as_deref(), Some("0505-0505"));
        let uuid = "abababab-abab-abab-abab-abababababab";
        assert_eq!(found.root.as_deref(), Some(uuid));
    }

    #[test]
    fn a_root_without_an_identifier_is_known_by_its_partition() {
        for (table, want) in [
            (PartitionTableKind::Mbr, "05050505-04"),
            (
                PartitionTableKind::GptForBios,
                "05050505-0505-4505-8505-050505050505",
            ),
        ] {
            let layout = layout(table);
            let mut disk = MemoryDisk::filled(200 * MIB, 0);
            let planned = prepare_partitions(&mut disk, &layout, None, &mut || [5; 16]).unwrap();
            let found = partition_identifiers(&mut disk, &layout, &planned).unwrap();
            assert_eq!(found.root.as_deref(), Some(want));
            assert_eq!(found.efi_system, None);
        }
    }

    #[test]
    fn a_disk_that_is_too_small_keeps_its_content() {
        let layout = layout(PartitionTableKind::Mbr);
        let mut disk = MemoryDisk::filled(50 * MIB, 7);
        let error = prepare_partitions(&mut disk, &layout, None, &mut || [5; 16]).unwrap_err();
        assert!(
            matches!(
                error,
                PartitionImageError::Plan(PartitionPlanError::TooSmall { .. })
            ),
            "{error}"
        );
        assert!(disk.data.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn a_kept_ephemeral_partition_keeps_its_content() {
        let first = layout(PartitionTableKind::Mbr);
        let mut disk = MemoryDisk::filled(200 * MIB, 0);
        prepare_partitions(&mut disk, &first, None, &mut || [5; 16]).unwrap();
        disk.data[MIB..5 * MIB].fill(0xcd);
        let keeps = PartitionLayout {
            keeps_ephemeral: true,
            ..first
        };
        prepare_partitions(&mut disk, &keeps, None, &mut || [6; 16]).unwrap();
        assert!(disk.data[MIB..5 * MIB].iter().all(|&byte| byte == 0xcd));
        prepare_partitions(&mut disk, &first, None, &mut || [7; 16]).unwrap();
        assert!(disk.data[MIB..2 * MIB].iter().all(|&byte| byte == 0));
    }
}
