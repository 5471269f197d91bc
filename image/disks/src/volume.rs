//! What an agent writes to partitions itself: an empty FAT32 file system for the EFI system
//! partition, and the header of swap space. And what it reads: the identifiers of file systems.

use crate::target::{flush, write, write_zeroes};
use crate::{GptGuid, TargetDisk, TargetDiskError};

/// Sectors of FAT32 before the first table, as `mkfs.fat` reserves them.
const FAT_RESERVED_SECTORS: u64 = 32;

/// Bytes of a cluster.
const CLUSTER_BYTES: u64 = 4096;

/// Fewer clusters are a file system of another kind (FAT specification 1.03, section 3.5).
const FAT32_CLUSTERS_MIN: u64 = 65_525;

/// Bytes of a page of memory, which is the unit of swap space.
const PAGE_BYTES: usize = 4096;

/// Bytes at the start of a partition that have the identifiers of all file systems known here.
pub const IDENTIFIER_BYTES: usize = 0x1_1000;

/// A part of a disk as a disk of its own.
pub struct DiskSlice<'disk> {
    disk: &'disk mut dyn TargetDisk,
    start: u64,
    bytes: u64,
}

impl<'disk> DiskSlice<'disk> {
    /// The part from `start` on; both are multiples of the sectors.
    pub fn new(disk: &'disk mut dyn TargetDisk, start: u64, bytes: u64) -> Self {
        Self { disk, start, bytes }
    }

    /// Where a range is on the disk. What does not fit would be on another partition.
    fn place(&self, at: u64, bytes: u64) -> std::io::Result<u64> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if fits {
            Ok(self.start + at)
        } else {
            Err(std::io::ErrorKind::StorageFull.into())
        }
    }
}

impl TargetDisk for DiskSlice<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn sector_bytes(&self) -> u64 {
        self.disk.sector_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
        let at = self.place(at, buffer.len() as u64)?;
        self.disk.read_at(buffer, at)
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        let at = self.place(at, bytes.len() as u64)?;
        self.disk.write_at(bytes, at)
    }

    fn write_zeroes(&mut self, at: u64, bytes: u64) -> std::io::Result<()> {
        let at = self.place(at, bytes)?;
        self.disk.write_zeroes(at, bytes)
    }

    fn discard(&mut self, at: u64, bytes: u64) -> std::io::Result<()> {
        let at = self.place(at, bytes)?;
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

/// Why a partition gets no FAT32 file system.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FatFormatError {
    /// It has too few clusters.
    #[error("a partition of {0} bytes is too small for FAT32")]
    TooSmall(u64),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] TargetDiskError),
}

/// Writes an empty FAT32 file system (FAT specification 1.03). `hidden_sectors` are before the
/// partition; the label has up to 11 characters in upper case.
pub fn format_fat32(
    partition: &mut dyn TargetDisk,
    hidden_sectors: u64,
    volume_id: u32,
    label: &str,
) -> Result<(), FatFormatError> {
    let sector = partition.sector_bytes();
    let sectors = partition.bytes() / sector;
    let cluster_sectors = (CLUSTER_BYTES / sector).max(1);
    let for_clusters = sectors.saturating_sub(FAT_RESERVED_SECTORS);
    // Each table has an entry of four bytes for each cluster and two more.
    let table_sectors = ((for_clusters / cluster_sectors + 2) * 4).div_ceil(sector);
    let clusters = for_clusters.saturating_sub(2 * table_sectors) / cluster_sectors;
    if clusters < FAT32_CLUSTERS_MIN || sectors > u64::from(u32::MAX) {
        return Err(FatFormatError::TooSmall(partition.bytes()));
    }
    let mut name = [b' '; 11];
    for (to, from) in name.iter_mut().zip(label.bytes()) {
        *to = from;
    }
    let mut boot = vec![0; sector as usize];
    let mut put = |at: usize, bytes: &[u8]| boot[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xeb, 0x58, 0x90]);
    put(3, b"TRIVET  ");
    put(11, &(sector as u16).to_le_bytes());
    put(13, &[cluster_sectors as u8]);
    put(14, &(FAT_RESERVED_SECTORS as u16).to_le_bytes());
    // Two tables, and the medium is a disk.
    put(16, &[2, 0, 0, 0, 0, 0xf8]);
    put(24, &[63, 0, 255, 0]);
    put(28, &(hidden_sectors as u32).to_le_bytes());
    put(32, &(sectors as u32).to_le_bytes());
    put(36, &(table_sectors as u32).to_le_bytes());
    // The root directory is in cluster 2; the facts are in sector 1, the copy in sector 6.
    put(44, &[2, 0, 0, 0, 1, 0, 6, 0]);
    put(64, &[0x80, 0, 0x29]);
    put(67, &volume_id.to_le_bytes());
    put(71, &name);
    put(82, b"FAT32   ");
    put(510, &[0x55, 0xaa]);
    let mut facts = vec![0; sector as usize];
    let mut put = |at: usize, bytes: &[u8]| facts[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"RRaA");
    put(484, b"rrAa");
    put(488, &(clusters as u32 - 1).to_le_bytes());
    put(492, &3_u32.to_le_bytes());
    put(508, &[0, 0, 0x55, 0xaa]);
    let mut table = vec![0; sector as usize];
    // The medium, the end of a chain, and the root directory, which is one cluster.
    for (at, entry) in [0x0fff_fff8_u32, 0x0fff_ffff, 0x0fff_ffff]
        .iter()
        .enumerate()
    {
        table[at * 4..at * 4 + 4].copy_from_slice(&entry.to_le_bytes());
    }
    let mut directory = vec![0; sector as usize];
    directory[..11].copy_from_slice(&name);
    // The entry is the label of the volume.
    directory[11] = 8;
    let data = FAT_RESERVED_SECTORS + 2 * table_sectors;
    write_zeroes(partition, 0, (data + cluster_sectors) * sector)?;
    for (at, bytes) in [
        (FAT_RESERVED_SECTORS, &table),
        (FAT_RESERVED_SECTORS + table_sectors, &table),
        (data, &directory),
        (1, &facts),
        (7, &facts),
        (6, &boot),
        (0, &boot),
    ] {
        write(partition, bytes, at * sector)?;
    }
    Ok(flush(partition)?)
}

/// Writes the header of swap space, version 1 of Linux.
pub fn format_swap(
    partition: &mut dyn TargetDisk,
    uuid: GptGuid,
    label: &str,
) -> Result<(), TargetDiskError> {
    let mut page = vec![0; PAGE_BYTES];
    let pages = partition.bytes() / PAGE_BYTES as u64;
    let last = u32::try_from(pages).unwrap_or(u32::MAX).saturating_sub(1);
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(1024, &1_u32.to_le_bytes());
    put(1028, &last.to_le_bytes());
    // Here UUIDs have the order of RFC 9562.
    put(1036, &uuid_bytes(&uuid.to_string()));
    put(1052, &label.as_bytes()[..label.len().min(15)]);
    put(PAGE_BYTES - 10, b"SWAPSPACE2");
    write(partition, &page, 0)?;
    flush(partition)
}

fn uuid_bytes(text: &str) -> [u8; 16] {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut bytes = [0; 16];
    for (to, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let text = std::str::from_utf8(pair).unwrap_or_default();
        *to = u8::from_str_radix(text, 16).unwrap_or_default();
    }
    bytes
}

/// The identifier of the file system in the first bytes of a partition, as `blkid` prints it:
/// ext, XFS, Btrfs and FAT.
pub fn file_system_uuid(head: &[u8]) -> Option<String> {
    let uuid = |at: usize| {
        let bytes: &[u8; 16] = head.get(at..)?.first_chunk()?;
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let digits = digits.concat();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
        (*bytes != [0; 16]).then(|| parts.map(|range| &digits[range]).join("-"))
    };
    let has = |at: usize, magic: &[u8]| head.get(at..at + magic.len()) == Some(magic);
    if has(0x438, &[0x53, 0xef]) {
        return uuid(0x468);
    }
    if has(0, b"XFSB") {
        return uuid(32);
    }
    if has(0x1_0040, b"_BHRfS_M") {
        return uuid(0x1_0020);
    }
    let at = if has(82, b"FAT32   ") {
        67
    } else if has(54, b"FAT12   ") || has(54, b"FAT16   ") {
        39
    } else {
        return None;
    };
    let id = u32::from_le_bytes(*head.get(at..)?.first_chunk()?);
    has(510, &[0x55, 0xaa]).then(|| format!("{:04X}-{:04X}", id >> 16, id & 0xffff))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryDisk;
    use crate::{file_system_label, find_signatures};

    const MIB: usize = 1 << 20;

    #[test]
    fn a_fat32_file_system_has_the_fields_of_the_specification() {
        for sector_bytes in [512_u64, 4096] {
            let mut disk = MemoryDisk::filled(550 * MIB, 0);
            disk.data[..3 * MIB].fill(0xee);
            disk.sector_bytes = sector_bytes;
            format_fat32(&mut disk, 2048, 0x1234_abcd, "EFI-PART").unwrap();
            let head = &disk.data[..IDENTIFIER_BYTES];
            assert_eq!(file_system_label(head).as_deref(), Some("EFI-PART"));
            assert_eq!(file_system_uuid(head).as_deref(), Some("1234-ABCD"));
            let number =
                |at: usize| u64::from(u32::from_le_bytes(*disk.data[at..].first_chunk().unwrap()));
            assert_eq!(u64::from(disk.data[13]) * sector_bytes, CLUSTER_BYTES);
            assert_eq!(number(28), 2048);
            assert_eq!(number(32) * sector_bytes, 550 * MIB as u64);
            let sector = sector_bytes as usize;
            assert_eq!(disk.data[..512], disk.data[6 * sector..6 * sector + 512]);
            let tables = FAT_RESERVED_SECTORS as usize * sector;
            let table_bytes = number(36) as usize * sector;
            // Room for all clusters, and the second table is the first.
            let data = tables + 2 * table_bytes;
            let clusters = (550 * MIB - data) / CLUSTER_BYTES as usize;
            assert!(table_bytes >= (clusters + 2) * 4);
            assert_eq!(number(sector + 488) as usize, clusters - 1);
            assert_eq!(number(tables), 0x0fff_fff8);
            assert_eq!(number(tables + 8), 0x0fff_ffff);
            assert_eq!(
                disk.data[tables..tables + table_bytes],
                disk.data[tables + table_bytes..data]
            );
            assert_eq!(&disk.data[data..data + 12], b"EFI-PART   \x08");
            assert!(
                disk.data[data + 12..data + 4096]
                    .iter()
                    .all(|&byte| byte == 0)
            );
        }
    }

    #[test]
    fn a_partition_that_is_too_small_for_fat32_is_not_touched() {
        let mut disk = MemoryDisk::filled(200 * MIB, 0);
        let error = format_fat32(&mut disk, 0, 1, "A").unwrap_err();
        assert_eq!(error, FatFormatError::TooSmall(200 * MIB as u64));
        assert_eq!(disk.written + disk.zeroed, 0);
    }

    #[test]
    fn swap_space_has_its_header() {
        let mut disk = MemoryDisk::filled(4 * MIB, 0);
        let uuid = GptGuid::random([9; 16]);
        format_swap(&mut disk, uuid, "swap1").unwrap();
        let found = find_signatures(&disk.data[..MIB], &[], 4 << 20);
        assert_eq!(found[0].name, "swap");
        assert_eq!(disk.data[1024..1028], [1, 0, 0, 0]);
        assert_eq!(disk.data[1028..1032], 1023_u32.to_le_bytes());
        assert_eq!(disk.data[1052..1058], *b"swap1\0");
        let digits = disk.data[1036..1052].iter();
        let digits: Vec<String> = digits.map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits.concat(), uuid.to_string().replace('-', ""));
    }

    #[test]
    fn a_slice_is_a_disk_that_nothing_leaves() {
        let mut disk = MemoryDisk::filled(4 * MIB, 7);
        let mut slice = DiskSlice::new(&mut disk, MIB as u64, 2 * MIB as u64);
        assert_eq!((slice.bytes(), slice.sector_bytes()), (2 << 20, 512));
        assert!(slice.is_present() && !slice.is_read_only());
        slice.write_zeroes(0, 2 << 20).unwrap();
        slice.write_at(&[1; 512], (2 << 20) - 512).unwrap();
        let mut read = [0; 512];
        slice.read_at(&mut read, (2 << 20) - 512).unwrap();
        assert_eq!(read, [1; 512]);
        for at in [2 << 20, (2 << 20) - 256, u64::MAX - 5] {
            assert!(slice.write_at(&[1; 512], at).is_err(), "{at}");
            assert!(slice.read_at(&mut read, at).is_err(), "{at}");
            assert!(slice.write_zeroes(at, 512).is_err(), "{at}");
            assert!(slice.discard(at, 512).is_err(), "{at}");
        }
        slice.discard(0, 512).unwrap();
        slice.flush().unwrap();
        slice.reread_partitions().unwrap();
        assert!(disk.data[..MIB].iter().all(|&byte| byte == 7));
        assert!(disk.data[3 * MIB..].iter().all(|&byte| byte == 7));
        assert_eq!((disk.flushes, disk.rereads), (1, 1));
    }

    #[test]
    fn identifiers_of_file_systems_are_read() {
        let uuid: Vec<u8> = (1..=16).collect();
        let want = Some("01020304-0506-0708-090a-0b0c0d0e0f10");
        for (magic, magic_at, uuid_at) in [
            (&[0x53, 0xef][..], 0x438, 0x468),
            (b"XFSB", 0, 32),
            (b"_BHRfS_M", 0x1_0040, 0x1_0020),
        ] {
            let mut head = vec![0; IDENTIFIER_BYTES];
            head[magic_at..magic_at + magic.len()].copy_from_slice(magic);
            assert_eq!(file_system_uuid(&head), None, "without an identifier");
            head[uuid_at..uuid_at + 16].copy_from_slice(&uuid);
            assert_eq!(file_system_uuid(&head).as_deref(), want);
            assert_eq!(file_system_uuid(&head[..uuid_at + 15]), None);
        }
        let mut head = vec![0; 512];
        head[54..62].copy_from_slice(b"FAT16   ");
        head[39..43].copy_from_slice(&0x0a0b_0c0d_u32.to_le_bytes());
        assert_eq!(file_system_uuid(&head), None);
        head[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(file_system_uuid(&head).as_deref(), Some("0A0B-0C0D"));
        assert_eq!(file_system_uuid(&[]), None);
    }
}
