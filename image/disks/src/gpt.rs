//! GUID partition tables (UEFI 2.10, section 5.3): parsed, checked, moved to a larger disk, and
//! extended by a partition.

use crate::crc::crc32;

/// Where the primary header is.
pub const GPT_HEADER_SECTOR: u64 = 1;

/// Most entries of a table that is accepted. Ours; usual are 128.
pub const GPT_ENTRIES_MAX: u32 = 1024;

/// Usual entries of a table, and the bytes of each.
const ENTRIES: u32 = 128;
const ENTRY_BYTES: u32 = 128;

/// Longest entry that is accepted. Ours.
const ENTRY_BYTES_MAX: u32 = 4096;

const SIGNATURE: [u8; 8] = *b"EFI PART";
const REVISION: u32 = 0x0001_0000;

/// Bytes of the header that the checksum covers.
const HEADER_BYTES: usize = 92;

/// Characters of a name.
const NAME_UNITS: usize = 36;

/// A GUID as it is on the disk: its first three fields are little-endian.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GptGuid(pub [u8; 16]);

impl GptGuid {
    /// The type of an EFI system partition.
    pub const EFI_SYSTEM: Self = Self([
        0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9,
        0x3b,
    ]);
    /// The type of a partition with Linux data.
    pub const LINUX_DATA: Self = Self([
        0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d,
        0xe4,
    ]);
    /// The type of a partition with swap space.
    pub const LINUX_SWAP: Self = Self([
        0x6d, 0xfd, 0x57, 0x06, 0xab, 0xa4, 0xc4, 0x43, 0x84, 0xe5, 0x09, 0x33, 0xc8, 0x4b, 0x4f,
        0x4f,
    ]);
    /// The type of a partition for a boot loader on machines with a BIOS.
    pub const BIOS_BOOT: Self = Self([
        0x48, 0x61, 0x68, 0x21, 0x49, 0x64, 0x6f, 0x6e, 0x74, 0x4e, 0x65, 0x65, 0x64, 0x45, 0x46,
        0x49,
    ]);

    /// A random GUID (RFC 9562, version 4) from random bytes.
    pub fn random(mut bytes: [u8; 16]) -> Self {
        bytes[7] = bytes[7] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }

    fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl std::fmt::Display for GptGuid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        for (at, from) in order.into_iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
            write!(out, "{dash}{:02x}", self.0[from])?;
        }
        Ok(())
    }
}

/// A partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GptPartition {
    /// Its number, from one.
    pub number: u32,
    /// Its type.
    pub kind: GptGuid,
    /// Its own GUID.
    pub guid: GptGuid,
    /// Its first sector.
    pub first_sector: u64,
    /// Its last sector, which is part of it.
    pub last_sector: u64,
    /// Its attributes.
    pub attributes: u64,
    /// Its name.
    pub name: String,
}

/// The header of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GptHeader {
    /// Where this header is.
    pub own_sector: u64,
    /// Where the other one is.
    pub other_sector: u64,
    /// The first sector that partitions may use.
    pub first_usable: u64,
    /// The last sector that partitions may use.
    pub last_usable: u64,
    /// The GUID of the disk.
    pub disk: GptGuid,
    /// Where the entries begin.
    pub entries_sector: u64,
    /// How many entries there are.
    pub entries: u32,
    /// Bytes of an entry.
    pub entry_bytes: u32,
    /// The checksum of the entries.
    entries_crc: u32,
}

/// Why a table is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GptError {
    /// There is no GPT.
    #[error("there is no GPT")]
    Missing,
    /// A field or a checksum is wrong.
    #[error("the GPT is damaged: {0}")]
    Damaged(&'static str),
    /// The disk ends before the last partition.
    #[error("a partition ends at sector {last_sector}, and the disk has {disk_sectors}")]
    DiskTooSmall {
        /// The last sector of the partition.
        last_sector: u64,
        /// The sectors of the disk.
        disk_sectors: u64,
    },
    /// All entries are used.
    #[error("the GPT has no free entry")]
    Full,
    /// No free space is large enough.
    #[error("there is no free space for a partition of {sectors} sectors")]
    NoSpace {
        /// The sectors that were needed.
        sectors: u64,
    },
}

/// A header with its partitions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GptTable {
    /// The header.
    pub header: GptHeader,
    /// The partitions, by number.
    pub partitions: Vec<GptPartition>,
    /// The bytes of all entries, so that fields that are not known remain.
    entries: Vec<u8>,
}

/// What is written to a place of the disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SectorWrite {
    /// The first sector.
    pub sector: u64,
    /// The bytes, whole sectors.
    pub bytes: Vec<u8>,
}

impl GptHeader {
    /// Parses and checks the sector of a header.
    pub fn parse(sector: &[u8], own_sector: u64) -> Result<Self, GptError> {
        if sector.get(..8) != Some(&SIGNATURE) {
            return Err(GptError::Missing);
        }
        let number32 = |at| number32(sector, at).ok_or(GptError::Damaged("its header is short"));
        let number64 = |at| number64(sector, at).ok_or(GptError::Damaged("its header is short"));
        let length = number32(12)? as usize;
        if length < HEADER_BYTES || length > sector.len() {
            return Err(GptError::Damaged("the length of its header"));
        }
        let mut covered = sector[..length].to_vec();
        covered[16..20].fill(0);
        if crc32(&covered) != number32(16)? {
            return Err(GptError::Damaged("the checksum of its header"));
        }
        let guid = sector[56..].first_chunk();
        let header = Self {
            own_sector: number64(24)?,
            other_sector: number64(32)?,
            first_usable: number64(40)?,
            last_usable: number64(48)?,
            disk: GptGuid(*guid.ok_or(GptError::Damaged("its header is short"))?),
            entries_sector: number64(72)?,
            entries: number32(80)?,
            entry_bytes: number32(84)?,
            entries_crc: number32(88)?,
        };
        let entry_bytes = header.entry_bytes;
        if header.own_sector != own_sector {
            return Err(GptError::Damaged("its header is at another place"));
        }
        if header.entries > GPT_ENTRIES_MAX
            || !(ENTRY_BYTES..=ENTRY_BYTES_MAX).contains(&entry_bytes)
            || !entry_bytes.is_power_of_two()
        {
            return Err(GptError::Damaged("the number or the size of its entries"));
        }
        Ok(header)
    }

    /// Bytes of all entries.
    pub fn entries_bytes(&self) -> usize {
        self.entries as usize * self.entry_bytes as usize
    }

    fn encode(&self, sector_bytes: usize) -> Vec<u8> {
        let mut sector = vec![0; sector_bytes];
        let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &SIGNATURE);
        put(8, &REVISION.to_le_bytes());
        put(12, &(HEADER_BYTES as u32).to_le_bytes());
        put(24, &self.own_sector.to_le_bytes());
        put(32, &self.other_sector.to_le_bytes());
        put(40, &self.first_usable.to_le_bytes());
        put(48, &self.last_usable.to_le_bytes());
        put(56, &self.disk.0);
        put(72, &self.entries_sector.to_le_bytes());
        put(80, &self.entries.to_le_bytes());
        put(84, &self.entry_bytes.to_le_bytes());
        put(88, &self.entries_crc.to_le_bytes());
        let crc = crc32(&sector[..HEADER_BYTES]);
        sector[16..20].copy_from_slice(&crc.to_le_bytes());
        sector
    }
}

impl GptTable {
    /// Parses the entries of a header and checks them.
    pub fn parse(header: GptHeader, entries: &[u8]) -> Result<Self, GptError> {
        let entries = entries.get(..header.entries_bytes());
        let entries = entries.ok_or(GptError::Damaged("its entries are cut short"))?;
        if crc32(entries) != header.entries_crc {
            return Err(GptError::Damaged("the checksum of its entries"));
        }
        let parts = entries.chunks_exact(header.entry_bytes as usize);
        let partitions = (1..)
            .zip(parts)
            .filter_map(|(number, entry)| parse_entry(number, entry));
        let partitions: Vec<_> = partitions.collect();
        if partitions
            .iter()
            .any(|one| one.first_sector > one.last_sector)
        {
            return Err(GptError::Damaged("a partition ends before it begins"));
        }
        Ok(Self {
            header,
            partitions,
            entries: entries.to_vec(),
        })
    }

    /// An empty table for a disk.
    pub fn new(disk: GptGuid, disk_sectors: u64, sector_bytes: u64) -> Result<Self, GptError> {
        let mut table = Self {
            header: GptHeader {
                own_sector: GPT_HEADER_SECTOR,
                other_sector: 0,
                first_usable: 0,
                last_usable: 0,
                disk,
                entries_sector: GPT_HEADER_SECTOR + 1,
                entries: ENTRIES,
                entry_bytes: ENTRY_BYTES,
                entries_crc: 0,
            },
            partitions: Vec::new(),
            entries: vec![0; (ENTRIES * ENTRY_BYTES) as usize],
        };
        table.header.first_usable = GPT_HEADER_SECTOR + 1 + table.entries_sectors(sector_bytes);
        table.move_to(disk_sectors, sector_bytes)?;
        Ok(table)
    }

    fn entries_sectors(&self, sector_bytes: u64) -> u64 {
        (self.header.entries_bytes() as u64).div_ceil(sector_bytes)
    }

    /// Makes it a table of a disk of this size: the backup goes to the end, and partitions may
    /// use all of the disk.
    pub fn move_to(&mut self, disk_sectors: u64, sector_bytes: u64) -> Result<(), GptError> {
        let entries_sectors = self.entries_sectors(sector_bytes);
        let last_sector = self
            .partitions
            .iter()
            .map(|one| one.last_sector)
            .max()
            .unwrap_or(0);
        let too_small = GptError::DiskTooSmall {
            last_sector,
            disk_sectors,
        };
        let last_usable = disk_sectors
            .checked_sub(entries_sectors + 2)
            .ok_or(too_small)?;
        if last_usable < last_sector.max(self.header.first_usable) {
            return Err(too_small);
        }
        self.header.own_sector = GPT_HEADER_SECTOR;
        self.header.entries_sector = GPT_HEADER_SECTOR + 1;
        self.header.other_sector = disk_sectors - 1;
        self.header.last_usable = last_usable;
        Ok(())
    }

    /// Free ranges of sectors, first to last, that partitions may use.
    fn free_ranges(&self) -> Vec<(u64, u64)> {
        let mut used: Vec<(u64, u64)> = self
            .partitions
            .iter()
            .map(|one| (one.first_sector, one.last_sector))
            .collect();
        used.sort_unstable();
        let mut free = Vec::new();
        let mut next = self.header.first_usable;
        for (first, last) in used {
            if first > next {
                free.push((next, first - 1));
            }
            next = next.max(last.saturating_add(1));
        }
        if next <= self.header.last_usable {
            free.push((next, self.header.last_usable));
        }
        free
    }

    /// Adds a partition of this size at the end of the last free range that is large enough.
    pub fn add_at_end(
        &mut self,
        sectors: u64,
        align_sectors: u64,
        partition: (GptGuid, GptGuid, &str),
    ) -> Result<&GptPartition, GptError> {
        let place = self
            .free_ranges()
            .into_iter()
            .rev()
            .find_map(|(first, last)| {
                let start = (last + 1).checked_sub(sectors)? / align_sectors * align_sectors;
                (start >= first).then_some((start, last.min(start + sectors - 1)))
            });
        self.add(place.ok_or(GptError::NoSpace { sectors })?, partition)
    }

    /// Adds a partition of this size at the start of the first free range that is large enough.
    pub fn add_at_start(
        &mut self,
        sectors: u64,
        align_sectors: u64,
        partition: (GptGuid, GptGuid, &str),
    ) -> Result<&GptPartition, GptError> {
        let place = self.free_ranges().into_iter().find_map(|(first, last)| {
            let start = first.next_multiple_of(align_sectors);
            let end = start.checked_add(sectors)?.checked_sub(1)?;
            (end <= last).then_some((start, end))
        });
        self.add(place.ok_or(GptError::NoSpace { sectors })?, partition)
    }

    fn add(
        &mut self,
        (first_sector, last_sector): (u64, u64),
        (kind, guid, name): (GptGuid, GptGuid, &str),
    ) -> Result<&GptPartition, GptError> {
        let used = |number| self.partitions.iter().any(|one| one.number == number);
        let number = (1..=self.header.entries)
            .find(|&number| !used(number))
            .ok_or(GptError::Full)?;
        let partition = GptPartition {
            number,
            kind,
            guid,
            first_sector,
            last_sector,
            attributes: 0,
            name: name.to_owned(),
        };
        let length = self.header.entry_bytes as usize;
        let at = (number as usize - 1) * length;
        encode_entry(&partition, &mut self.entries[at..at + length]);
        self.partitions.push(partition);
        let added = self.partitions.len() - 1;
        Ok(&self.partitions[added])
    }

    /// Everything to write: entries before headers, and the backup before the primary, so that
    /// one of the two is whole at any time.
    pub fn writes(&self, sector_bytes: u64) -> Vec<SectorWrite> {
        let length = sector_bytes as usize;
        let mut entries = self.entries.clone();
        entries.resize(entries.len().next_multiple_of(length), 0);
        let entries_crc = crc32(&self.entries);
        let primary = GptHeader {
            entries_crc,
            ..self.header.clone()
        };
        let backup = GptHeader {
            own_sector: self.header.other_sector,
            other_sector: GPT_HEADER_SECTOR,
            entries_sector: self.header.other_sector - self.entries_sectors(sector_bytes),
            ..primary.clone()
        };
        let write = |sector, bytes| SectorWrite { sector, bytes };
        vec![
            write(backup.entries_sector, entries.clone()),
            write(backup.own_sector, backup.encode(length)),
            write(primary.entries_sector, entries),
            write(primary.own_sector, primary.encode(length)),
        ]
    }
}

fn parse_entry(number: u32, entry: &[u8]) -> Option<GptPartition> {
    let guid = |at: usize| Some(GptGuid(*entry.get(at..)?.first_chunk()?));
    let kind = guid(0)?;
    if kind.is_zero() {
        return None;
    }
    let units = entry.get(56..56 + 2 * NAME_UNITS)?.chunks_exact(2);
    let units = units.map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
    Some(GptPartition {
        number,
        kind,
        guid: guid(16)?,
        first_sector: number64(entry, 32)?,
        last_sector: number64(entry, 40)?,
        attributes: number64(entry, 48)?,
        name: String::from_utf16_lossy(&units),
    })
}

fn encode_entry(partition: &GptPartition, entry: &mut [u8]) {
    entry.fill(0);
    let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &partition.kind.0);
    put(16, &partition.guid.0);
    put(32, &partition.first_sector.to_le_bytes());
    put(40, &partition.last_sector.to_le_bytes());
    put(48, &partition.attributes.to_le_bytes());
    for (at, unit) in partition.name.encode_utf16().take(NAME_UNITS).enumerate() {
        put(56 + 2 * at, &unit.to_le_bytes());
    }
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
