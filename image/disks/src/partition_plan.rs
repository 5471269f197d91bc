//! The partitions for an image that is one file system, in the order of the stock agent: boot
//! loader, ephemeral, swap, config drive and, as the last one, root, which can grow.

use crate::table::write_table;
use crate::target::write;
use crate::{
    DiskTable, DiskTableError, GptError, GptGuid, GptTable, MBR_BYTES, MbrPartition, TargetDisk,
    TargetDiskError, protective_mbr, put_mbr_partition,
};

const MIB: u64 = 1 << 20;

/// Sizes of the partitions for boot loaders; the stock agent's.
const EFI_SYSTEM_MIB: u64 = 550;
const BIOS_BOOT_MIB: u64 = 1;

/// Types of partitions in an MBR.
const MBR_LINUX: u8 = 0x83;
const MBR_SWAP: u8 = 0x82;

/// Where the entries of an MBR are, how long each is, and the mark of the one that is booted.
const MBR_ENTRIES_AT: usize = 446;
const MBR_ENTRY_BYTES: usize = 16;
const MBR_ACTIVE: u8 = 0x80;

/// Where the identifier of the disk is.
const MBR_IDENTIFIER_AT: usize = 440;

/// The last sector that an MBR can address.
const MBR_SECTOR_MAX: u64 = u32::MAX as u64;

/// What a partition is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PartitionRole {
    /// The EFI system partition.
    EfiSystem,
    /// The boot loader of a BIOS on a GPT.
    BiosBoot,
    /// The ephemeral file system.
    Ephemeral,
    /// Swap space.
    Swap,
    /// The config drive.
    ConfigDrive,
    /// The image.
    Root,
}

/// The kind of partition table, and what boots from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PartitionTableKind {
    /// A GPT with an EFI system partition.
    GptForUefi,
    /// A GPT with a partition for the boot loader of a BIOS.
    GptForBios,
    /// An MBR for a BIOS.
    Mbr,
}

/// What a disk must have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PartitionLayout {
    /// The table.
    pub table: PartitionTableKind,
    /// Size of the root partition.
    pub root_mib: u64,
    /// Size of the swap partition; zero is none.
    pub swap_mib: u64,
    /// Size of the ephemeral partition; zero is none.
    pub ephemeral_mib: u64,
    /// Bytes of the config drive; zero is none.
    pub config_drive_bytes: u64,
    /// The ephemeral partition is there already and keeps its content.
    pub keeps_ephemeral: bool,
}

/// A partition of a layout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlannedPartition {
    /// What it is for.
    pub role: PartitionRole,
    /// Its number.
    pub number: u32,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Why a disk cannot get its partitions.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PartitionPlanError {
    /// A disk needs a root partition.
    #[error("the root partition has no size; set root_gb of the instance")]
    NoRoot,
    /// The partitions are larger than the disk, or than an MBR can address.
    #[error("the partitions need {needed_mib} MiB, and {disk_mib} MiB can be used")]
    TooSmall {
        /// What they need.
        needed_mib: u64,
        /// What can be used.
        disk_mib: u64,
    },
    /// There is no such partition to keep.
    #[error(
        "the ephemeral partition cannot be kept: the disk has no partition {number} of {mib} MiB \
         at its place; deploy without preserve_ephemeral"
    )]
    NothingToKeep {
        /// Its number.
        number: u32,
        /// Its size.
        mib: u64,
    },
    /// The table that is there, or the new one, has an error.
    #[error(transparent)]
    Gpt(#[from] GptError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] TargetDiskError),
}

impl From<DiskTableError> for PartitionPlanError {
    fn from(error: DiskTableError) -> Self {
        match error {
            DiskTableError::Gpt(error) => Self::Gpt(error),
            DiskTableError::Disk(error) => Self::Disk(error),
        }
    }
}

impl PartitionLayout {
    /// The partitions on a disk of this size.
    pub fn plan(
        &self,
        disk_bytes: u64,
        sector_bytes: u64,
    ) -> Result<Vec<PlannedPartition>, PartitionPlanError> {
        if self.root_mib == 0 {
            return Err(PartitionPlanError::NoRoot);
        }
        let loader = match self.table {
            PartitionTableKind::GptForUefi => (PartitionRole::EfiSystem, EFI_SYSTEM_MIB),
            PartitionTableKind::GptForBios => (PartitionRole::BiosBoot, BIOS_BOOT_MIB),
            PartitionTableKind::Mbr => (PartitionRole::BiosBoot, 0),
        };
        let sizes = [
            loader,
            (PartitionRole::Ephemeral, self.ephemeral_mib),
            (PartitionRole::Swap, self.swap_mib),
            (
                PartitionRole::ConfigDrive,
                self.config_drive_bytes.div_ceil(MIB),
            ),
            (PartitionRole::Root, self.root_mib),
        ];
        // The first MiB has the table; the last one that of a GPT.
        let usable = match self.table {
            PartitionTableKind::Mbr => disk_bytes.min(MBR_SECTOR_MAX * sector_bytes),
            _ => disk_bytes.saturating_sub(MIB),
        };
        let mut planned = Vec::new();
        let mut next_mib = 1_u64;
        for (role, size_mib) in sizes.into_iter().filter(|(_, mib)| *mib > 0) {
            planned.push(PlannedPartition {
                role,
                number: planned.len() as u32 + 1,
                start: next_mib.saturating_mul(MIB),
                bytes: size_mib.saturating_mul(MIB),
            });
            next_mib = next_mib.saturating_add(size_mib);
        }
        if next_mib > usable / MIB {
            return Err(PartitionPlanError::TooSmall {
                needed_mib: next_mib,
                disk_mib: usable / MIB,
            });
        }
        Ok(planned)
    }

    /// Writes the table of a plan. `random` returns bytes for identifiers. What was at the
    /// starts of the partitions remains.
    pub fn write(
        &self,
        disk: &mut dyn TargetDisk,
        planned: &[PlannedPartition],
        random: &mut dyn FnMut() -> [u8; 16],
    ) -> Result<(), PartitionPlanError> {
        let preserved = self.preserved_ephemeral(disk, planned)?;
        match self.table {
            PartitionTableKind::Mbr => write_mbr(disk, planned, random()),
            _ => write_gpt(disk, planned, preserved, random),
        }
    }

    /// Whether the ephemeral partition is there, if it is to be kept; its GUID on a GPT.
    fn preserved_ephemeral(
        &self,
        disk: &mut dyn TargetDisk,
        planned: &[PlannedPartition],
    ) -> Result<Option<GptGuid>, PartitionPlanError> {
        let mut ephemeral = planned.iter();
        let ephemeral = ephemeral.find(|one| one.role == PartitionRole::Ephemeral);
        let Some(wanted) = ephemeral.filter(|_| self.keeps_ephemeral) else {
            return Ok(None);
        };
        let sector_bytes = disk.sector_bytes();
        let table = DiskTable::read(disk)?;
        let partitions = table.partitions(sector_bytes);
        let is_wanted = |number, start, bytes| {
            (number, start, bytes) == (wanted.number, wanted.start, wanted.bytes)
        };
        let is_there = partitions
            .iter()
            .any(|one| is_wanted(one.number, one.start, one.bytes));
        let same_kind = match (&table, self.table) {
            (DiskTable::Gpt(_), kind) => kind != PartitionTableKind::Mbr,
            (_, kind) => kind == PartitionTableKind::Mbr,
        };
        if !is_there || !same_kind {
            return Err(PartitionPlanError::NothingToKeep {
                number: wanted.number,
                mib: wanted.bytes / MIB,
            });
        }
        let DiskTable::Gpt(gpt) = table else {
            return Ok(None);
        };
        let mut entries = gpt.partitions.iter();
        let found = entries.find(|one| one.number == wanted.number);
        Ok(found.map(|one| one.guid))
    }
}

fn write_gpt(
    disk: &mut dyn TargetDisk,
    planned: &[PlannedPartition],
    preserved: Option<GptGuid>,
    random: &mut dyn FnMut() -> [u8; 16],
) -> Result<(), PartitionPlanError> {
    let sector_bytes = disk.sector_bytes();
    let sectors = disk.bytes() / sector_bytes;
    let mut table = GptTable::new(GptGuid::random(random()), sectors, sector_bytes)?;
    for one in planned {
        let kind = match one.role {
            PartitionRole::EfiSystem => GptGuid::EFI_SYSTEM,
            PartitionRole::BiosBoot => GptGuid::BIOS_BOOT,
            PartitionRole::Swap => GptGuid::LINUX_SWAP,
            _ => GptGuid::LINUX_DATA,
        };
        let guid = preserved.filter(|_| one.role == PartitionRole::Ephemeral);
        let guid = guid.unwrap_or_else(|| GptGuid::random(random()));
        // Each begins where the one before it ends.
        let added = table.add_at_start(
            one.bytes / sector_bytes,
            MIB / sector_bytes,
            (kind, guid, ""),
        )?;
        if added.first_sector * sector_bytes != one.start {
            return Err(GptError::Damaged("a new partition is at another place").into());
        }
    }
    write_first_sector(disk, &protective_mbr(sectors))?;
    Ok(write_table(disk, &table.writes(sector_bytes))?)
}

fn write_mbr(
    disk: &mut dyn TargetDisk,
    planned: &[PlannedPartition],
    random: [u8; 16],
) -> Result<(), PartitionPlanError> {
    let sector_bytes = disk.sector_bytes();
    let mut first = [0; MBR_BYTES];
    first[MBR_IDENTIFIER_AT..MBR_IDENTIFIER_AT + 4].copy_from_slice(&random[..4]);
    for one in planned {
        let partition = MbrPartition {
            number: one.number,
            kind: match one.role {
                PartitionRole::Swap => MBR_SWAP,
                _ => MBR_LINUX,
            },
            first_sector: one.start / sector_bytes,
            sectors: one.bytes / sector_bytes,
        };
        put_mbr_partition(&mut first, &partition);
        if one.role == PartitionRole::Root {
            let at = MBR_ENTRIES_AT + MBR_ENTRY_BYTES * (one.number as usize - 1);
            first[at] = MBR_ACTIVE;
        }
    }
    write_first_sector(disk, &first)?;
    Ok(crate::target::flush(disk)?)
}

fn write_first_sector(
    disk: &mut dyn TargetDisk,
    first: &[u8; MBR_BYTES],
) -> Result<(), TargetDiskError> {
    let mut sector = vec![0; disk.sector_bytes() as usize];
    sector[..MBR_BYTES].copy_from_slice(first);
    write(disk, &sector, 0)
}

#[cfg(test)]
mod tests;
