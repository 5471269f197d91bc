//! The partition table of a disk: reading it, moving a GPT to the end of a disk that is larger
//! than its image, and finding partitions by the label of their file system.

use crate::gpt::SectorWrite;
use crate::target::{read, write};
use crate::{
    GPT_HEADER_SECTOR, GptError, GptHeader, GptTable, MBR_BYTES, MbrTable, TargetDisk,
    TargetDiskError,
};

/// A partition of either kind of table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DiskPartition {
    /// Its number.
    pub number: u32,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Its size.
    pub bytes: u64,
}

/// The table of a disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DiskTable {
    /// A GPT.
    Gpt(GptTable),
    /// An MBR.
    Mbr(MbrTable),
    /// None.
    Missing,
}

/// Why a table cannot be read or changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DiskTableError {
    /// The GPT is damaged, or does not fit.
    #[error(transparent)]
    Gpt(#[from] GptError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] TargetDiskError),
}

impl DiskTable {
    /// Reads the table. If the primary GPT is damaged, the backup at the end of the disk is
    /// used.
    pub fn read(disk: &mut dyn TargetDisk) -> Result<Self, DiskTableError> {
        let sector_bytes = disk.sector_bytes();
        let mut sector = vec![0; sector_bytes as usize];
        if disk.bytes() < 2 * sector_bytes {
            return Ok(Self::Missing);
        }
        read(disk, &mut sector, 0)?;
        let mbr = MbrTable::parse(&sector);
        match read_gpt(disk, GPT_HEADER_SECTOR) {
            Ok(table) => return Ok(Self::Gpt(table)),
            Err(DiskTableError::Gpt(first)) => {
                let protects = mbr.as_ref().is_some_and(MbrTable::is_protective);
                if protects {
                    let last = disk.bytes() / sector_bytes - 1;
                    let backup = read_gpt(disk, last);
                    return backup.map(Self::Gpt).map_err(|_| first.into());
                }
            }
            Err(other) => return Err(other),
        }
        Ok(mbr.map_or(Self::Missing, Self::Mbr))
    }

    /// The partitions, by number.
    pub fn partitions(&self, sector_bytes: u64) -> Vec<DiskPartition> {
        let partition = |number, first: u64, sectors: u64| DiskPartition {
            number,
            start: first.saturating_mul(sector_bytes),
            bytes: sectors.saturating_mul(sector_bytes),
        };
        match self {
            Self::Gpt(table) => {
                let partitions = table.partitions.iter();
                let sectors = |first: u64, last: u64| (last - first).saturating_add(1);
                partitions
                    .map(|one| {
                        let sectors = sectors(one.first_sector, one.last_sector);
                        partition(one.number, one.first_sector, sectors)
                    })
                    .collect()
            }
            Self::Mbr(table) => {
                let partitions = table.partitions.iter();
                partitions
                    .map(|one| partition(one.number, one.first_sector, one.sectors))
                    .collect()
            }
            Self::Missing => Vec::new(),
        }
    }
}

fn read_gpt(disk: &mut dyn TargetDisk, sector: u64) -> Result<GptTable, DiskTableError> {
    let sector_bytes = disk.sector_bytes();
    let mut bytes = vec![0; sector_bytes as usize];
    read(disk, &mut bytes, sector * sector_bytes)?;
    let header = GptHeader::parse(&bytes, sector)?;
    let length = header
        .entries_bytes()
        .next_multiple_of(sector_bytes as usize);
    let at = header.entries_sector.checked_mul(sector_bytes);
    let at = at.filter(|at| {
        at.checked_add(length as u64)
            .is_some_and(|end| end <= disk.bytes())
    });
    let at = at.ok_or(GptError::Damaged("its entries are outside the disk"))?;
    let mut entries = vec![0; length];
    read(disk, &mut entries, at)?;
    Ok(GptTable::parse(header, &entries)?)
}

/// Writes the sectors of a table.
pub(crate) fn write_table(
    disk: &mut dyn TargetDisk,
    writes: &[SectorWrite],
) -> Result<(), TargetDiskError> {
    let sector_bytes = disk.sector_bytes();
    for one in writes {
        write(disk, &one.bytes, one.sector * sector_bytes)?;
    }
    crate::target::flush(disk)
}

/// Moves the backup of a GPT to the end of the disk, where an image that is smaller than the
/// disk does not have it. Whether there was anything to move.
pub fn move_gpt_backup(disk: &mut dyn TargetDisk) -> Result<bool, DiskTableError> {
    let DiskTable::Gpt(mut table) = DiskTable::read(disk)? else {
        return Ok(false);
    };
    let sector_bytes = disk.sector_bytes();
    let sectors = disk.bytes() / sector_bytes;
    if table.header.other_sector == sectors - 1 && table.header.own_sector == GPT_HEADER_SECTOR {
        return Ok(false);
    }
    table.move_to(sectors, sector_bytes)?;
    write_table(disk, &table.writes(sector_bytes))?;
    Ok(true)
}

/// Bytes at the start of a partition that have the labels of all file systems known here.
const LABEL_BYTES: usize = 0x9000;

/// The label of the file system of a partition: ISO 9660, FAT or ext.
pub fn file_system_label(head: &[u8]) -> Option<String> {
    let text = |at: usize, bytes: usize| {
        let text = String::from_utf8_lossy(head.get(at..at + bytes)?);
        let text = text.trim_end_matches(['\0', ' ']);
        (!text.is_empty()).then(|| text.to_owned())
    };
    if head.get(0x8001..0x8006) == Some(b"CD001") {
        return text(0x8028, 32);
    }
    if head.get(0x438..0x43a) == Some(&[0x53, 0xef]) {
        return text(0x478, 16);
    }
    if head.get(510..512) != Some(&[0x55, 0xaa]) {
        return None;
    }
    if head.get(82..87) == Some(b"FAT32") {
        return text(71, 11);
    }
    if head.get(54..57) == Some(b"FAT") {
        return text(43, 11);
    }
    None
}

/// The partitions whose file system has this label; upper and lower case are the same.
pub fn labelled_partitions(
    disk: &mut dyn TargetDisk,
    table: &DiskTable,
    label: &str,
) -> Result<Vec<DiskPartition>, TargetDiskError> {
    let mut found = Vec::new();
    let sector_bytes = disk.sector_bytes();
    for partition in table.partitions(sector_bytes) {
        let length = partition.bytes.min(LABEL_BYTES as u64) / sector_bytes * sector_bytes;
        let end = partition.start.checked_add(length);
        if end.is_none_or(|end| end > disk.bytes()) {
            continue;
        }
        let mut head = vec![0; length as usize];
        read(disk, &mut head, partition.start)?;
        if file_system_label(&head).is_some_and(|own| own.eq_ignore_ascii_case(label)) {
            found.push(partition);
        }
    }
    Ok(found)
}

/// The first sector of a disk.
pub(crate) fn first_sector(disk: &mut dyn TargetDisk) -> Result<[u8; MBR_BYTES], TargetDiskError> {
    let mut sector = vec![0; disk.sector_bytes() as usize];
    read(disk, &mut sector, 0)?;
    let mut first = [0; MBR_BYTES];
    first.copy_from_slice(&sector[..MBR_BYTES]);
    Ok(first)
}

#[cfg(test)]
mod tests;
