//! The partition table in the first sector (MBR), and a partition added to it.

/// Bytes of the sector; larger sectors have it at their start.
pub const MBR_BYTES: usize = 512;

/// Where the four entries are, and how long each is.
const ENTRIES_AT: usize = 446;
const ENTRY_BYTES: usize = 16;

/// Entries of the table.
pub const MBR_PARTITIONS_MAX: usize = 4;

/// The table ends with these bytes.
const SIGNATURE: [u8; 2] = [0x55, 0xaa];

/// Where the identifier of the disk is.
const IDENTIFIER_AT: usize = 440;

/// Types of partitions.
const TYPE_EMPTY: u8 = 0;
const TYPE_GPT_PROTECTIVE: u8 = 0xee;
const TYPES_EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// FAT32 with logical block addresses: `parted`'s type for `fat32`, which the stock agent asks
/// for.
const TYPE_FAT32_LBA: u8 = 0x0c;

/// The last address that fits: entries have 32 bits.
const SECTOR_MAX: u64 = u32::MAX as u64;

/// An entry of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MbrPartition {
    /// Its number, from one.
    pub number: u32,
    /// Its type.
    pub kind: u8,
    /// Its first sector.
    pub first_sector: u64,
    /// Its sectors.
    pub sectors: u64,
}

impl MbrPartition {
    /// Whether it contains logical partitions.
    pub fn is_extended(&self) -> bool {
        TYPES_EXTENDED.contains(&self.kind)
    }
}

/// A table without its code.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MbrTable {
    /// The identifier of the disk.
    pub identifier: u32,
    /// Its partitions.
    pub partitions: Vec<MbrPartition>,
}

/// Why a partition cannot be added.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MbrFull {
    /// All four entries are used.
    #[error(
        "the disk uses MBR partitioning and already has {MBR_PARTITIONS_MAX} primary partitions"
    )]
    Partitions,
    /// Other partitions are where the new one would be.
    #[error("there is no free space at the end of the disk for a partition of {sectors} sectors")]
    Space {
        /// The sectors that were needed.
        sectors: u64,
    },
}

impl MbrTable {
    /// Parses the first sector. `None` if it has no table.
    pub fn parse(sector: &[u8]) -> Option<Self> {
        let sector: &[u8; MBR_BYTES] = sector.first_chunk()?;
        if sector[510..] != SIGNATURE {
            return None;
        }
        let entries = sector[ENTRIES_AT..].chunks_exact(ENTRY_BYTES);
        let partitions = (1..).zip(entries).filter_map(|(number, entry)| {
            let number32 = |at: usize| {
                let bytes: [u8; 4] = [entry[at], entry[at + 1], entry[at + 2], entry[at + 3]];
                u64::from(u32::from_le_bytes(bytes))
            };
            // A boot sector of a file system has the same signature, and text in the entries.
            if entry[0] & 0x7f != 0 {
                return None;
            }
            let partition = MbrPartition {
                number,
                kind: entry[4],
                first_sector: number32(8),
                sectors: number32(12),
            };
            (partition.kind != TYPE_EMPTY && partition.sectors > 0).then_some(partition)
        });
        let partitions = partitions.take(MBR_PARTITIONS_MAX).collect();
        let identifier = sector[IDENTIFIER_AT..].first_chunk()?;
        Some(Self {
            identifier: u32::from_le_bytes(*identifier),
            partitions,
        })
    }

    /// Whether it only protects a GPT.
    pub fn is_protective(&self) -> bool {
        self.partitions
            .iter()
            .any(|partition| partition.kind == TYPE_GPT_PROTECTIVE)
    }

    /// The identifier as the stock agent reports it: `root uuid` of a whole disk.
    pub fn identifier_text(&self) -> String {
        format!("0x{:08x}", self.identifier)
    }

    /// A new last partition of this size at the end of the disk, or of the part of the disk that
    /// 32 bits can address.
    pub fn partition_at_end(
        &self,
        disk_sectors: u64,
        sectors: u64,
        align_sectors: u64,
    ) -> Result<MbrPartition, MbrFull> {
        let used = |number| self.partitions.iter().any(|one| one.number == number);
        let number = (1..=MBR_PARTITIONS_MAX as u32)
            .find(|&number| !used(number))
            .ok_or(MbrFull::Partitions)?;
        let end = disk_sectors.min(SECTOR_MAX);
        let last_used = self
            .partitions
            .iter()
            .map(|one| one.first_sector + one.sectors);
        let last_used = last_used.max().unwrap_or(1);
        let first = end
            .checked_sub(sectors)
            .map(|first| first / align_sectors * align_sectors);
        let first = first.filter(|&first| first >= last_used);
        let first_sector = first.ok_or(MbrFull::Space { sectors })?;
        Ok(MbrPartition {
            number,
            kind: TYPE_FAT32_LBA,
            first_sector,
            sectors,
        })
    }
}

/// Writes an entry into the first sector.
pub fn put_mbr_partition(sector: &mut [u8; MBR_BYTES], partition: &MbrPartition) {
    let at = ENTRIES_AT + ENTRY_BYTES * (partition.number.clamp(1, 4) as usize - 1);
    let entry = &mut sector[at..at + ENTRY_BYTES];
    // Cylinders that do not fit: the address is that of the sector.
    entry[..8].copy_from_slice(&[0, 0xfe, 0xff, 0xff, partition.kind, 0xfe, 0xff, 0xff]);
    entry[8..12].copy_from_slice(&(partition.first_sector as u32).to_le_bytes());
    entry[12..].copy_from_slice(&(partition.sectors as u32).to_le_bytes());
    sector[510..].copy_from_slice(&SIGNATURE);
}

/// The first sector of a disk with a GPT of this many sectors.
pub fn protective_mbr(disk_sectors: u64) -> [u8; MBR_BYTES] {
    let mut sector = [0; MBR_BYTES];
    let partition = MbrPartition {
        number: 1,
        kind: TYPE_GPT_PROTECTIVE,
        first_sector: 1,
        sectors: (disk_sectors - 1).min(SECTOR_MAX),
    };
    put_mbr_partition(&mut sector, &partition);
    sector[ENTRIES_AT + 1..ENTRIES_AT + 4].copy_from_slice(&[0, 2, 0]);
    sector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(partitions: &[(u32, u8, u64, u64)]) -> [u8; MBR_BYTES] {
        let mut sector = [0; MBR_BYTES];
        sector[IDENTIFIER_AT..IDENTIFIER_AT + 4].copy_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        for &(number, kind, first_sector, sectors) in partitions {
            let partition = MbrPartition {
                number,
                kind,
                first_sector,
                sectors,
            };
            put_mbr_partition(&mut sector, &partition);
        }
        sector[510..].copy_from_slice(&SIGNATURE);
        sector
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table =
            MbrTable::parse(&sector(&[(1, 0x83, 2048, 4096), (3, 0x05, 8192, 10)])).unwrap();
        assert_eq!(table.identifier_text(), "0x1a2b3c4d");
        assert_eq!(table.partitions.len(), 2);
        assert_eq!(table.partitions[0].first_sector, 2048);
        assert!(table.partitions[1].is_extended() && !table.is_protective());
    }

    #[test]
    fn sectors_without_a_table_are_none() {
        assert_eq!(MbrTable::parse(&[0; MBR_BYTES]), None);
        assert_eq!(MbrTable::parse(&[0; 100]), None);
        let mut text = sector(&[]);
        text[ENTRIES_AT..ENTRIES_AT + 64].fill(b'x');
        assert!(MbrTable::parse(&text).unwrap().partitions.is_empty());
    }

    #[test]
    fn a_protective_table_covers_the_disk_as_far_as_32_bits_reach() {
        let table = MbrTable::parse(&protective_mbr(1000)).unwrap();
        assert!(table.is_protective());
        assert_eq!(table.partitions[0].sectors, 999);
        let table = MbrTable::parse(&protective_mbr(1 << 40)).unwrap();
        assert_eq!(table.partitions[0].sectors, SECTOR_MAX);
    }

    #[test]
    fn a_partition_is_added_at_the_end() {
        let table = MbrTable::parse(&sector(&[(1, 0x83, 2048, 4096)])).unwrap();
        let added = table.partition_at_end(1_000_000, 131_072, 2048).unwrap();
        assert_eq!((added.number, added.kind), (2, TYPE_FAT32_LBA));
        assert_eq!(added.first_sector % 2048, 0);
        assert!(added.first_sector + added.sectors <= 1_000_000);
        assert!(added.first_sector + added.sectors + 2048 > 1_000_000);
        let large = table.partition_at_end(1 << 40, 131_072, 2048).unwrap();
        assert!(large.first_sector + large.sectors <= SECTOR_MAX);
    }

    #[test]
    fn a_full_table_and_a_full_disk_are_refused() {
        let four = [
            (1, 0x83, 2048, 1),
            (2, 0x83, 2049, 1),
            (3, 0x83, 2050, 1),
            (4, 0x83, 2051, 1),
        ];
        let table = MbrTable::parse(&sector(&four)).unwrap();
        assert_eq!(
            table.partition_at_end(9000, 10, 1),
            Err(MbrFull::Partitions)
        );
        let table = MbrTable::parse(&sector(&[(1, 0x83, 2048, 6000)])).unwrap();
        let full = Err(MbrFull::Space { sectors: 1000 });
        assert_eq!(table.partition_at_end(9000, 1000, 1), full);
        assert_eq!(table.partition_at_end(900, 1000, 1), full);
    }
}
