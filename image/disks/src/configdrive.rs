//! The config drive after an image was written: a partition at the end of the disk, as the stock
//! agent makes it.
//!
//! A partition whose file system is labelled `config-2` is used again. Otherwise a GPT gets a
//! last partition of 64 MiB with a GUID of its own, and an MBR an entry for the last 64 MiB that
//! 32 bits can address, if it has at most three partitions.

use std::io::Read as _;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::table::{first_sector, write_table};
use crate::target::{flush, write, write_zeroes};
use crate::{
    DiskPartition, DiskTable, DiskTableError, GptError, GptGuid, MbrFull, TargetDisk,
    TargetDiskError, labelled_partitions, move_gpt_backup, put_mbr_partition,
};

/// The label of its file system.
pub const CONFIG_DRIVE_LABEL: &str = "config-2";

/// The largest config drive, and the size of its partition; the stock agent's.
pub const CONFIG_DRIVE_BYTES_MAX: u64 = 64 << 20;

/// The size of an unpacked config drive that is longer than this is not read to its end.
const UNPACKED_BYTES_MAX: u64 = CONFIG_DRIVE_BYTES_MAX + 1;

/// Alignment of partitions.
const ALIGN_BYTES: u64 = 1 << 20;

/// Why a config drive was not written.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigDriveWriteError {
    /// It is not a packed image.
    #[error("the config drive is not base64 of a gzip file: {0}")]
    Malformed(String),
    /// It is too large.
    #[error("the config drive is larger than 64 MiB")]
    TooLarge,
    /// The partition that is used again is too small.
    #[error("the partition for the config drive has {partition} bytes, and it needs {needed}")]
    PartitionTooSmall {
        /// Bytes of the partition.
        partition: u64,
        /// Bytes of the config drive.
        needed: u64,
    },
    /// More than one partition has its label.
    #[error("the disk has {0} partitions with the label {CONFIG_DRIVE_LABEL}")]
    Ambiguous(usize),
    /// The disk has no partition table.
    #[error("the disk has no partition table for the config drive")]
    NoTable,
    /// The MBR has no place for it.
    #[error("the config drive cannot be created: {0}")]
    Mbr(#[from] MbrFull),
    /// The GPT is damaged or full.
    #[error("the config drive cannot be created: {0}")]
    Gpt(#[from] GptError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] TargetDiskError),
}

impl From<DiskTableError> for ConfigDriveWriteError {
    fn from(error: DiskTableError) -> Self {
        match error {
            DiskTableError::Gpt(error) => Self::Gpt(error),
            DiskTableError::Disk(error) => Self::Disk(error),
        }
    }
}

/// Unpacks a config drive as agents get it: base64 of a gzip file. White space is ignored.
pub fn unpack_config_drive(text: &str) -> Result<Vec<u8>, ConfigDriveWriteError> {
    let malformed = |error: String| ConfigDriveWriteError::Malformed(error);
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let packed = GeneralPurpose::new(&STANDARD, config).decode(digits);
    let packed = packed.map_err(|error| malformed(error.to_string()))?;
    let mut image = Vec::new();
    let unpacked = flate2::read::MultiGzDecoder::new(&packed[..])
        .take(UNPACKED_BYTES_MAX)
        .read_to_end(&mut image);
    unpacked.map_err(|error| malformed(error.to_string()))?;
    check_size(&image)?;
    Ok(image)
}

fn check_size(image: &[u8]) -> Result<(), ConfigDriveWriteError> {
    if image.len() as u64 > CONFIG_DRIVE_BYTES_MAX {
        return Err(ConfigDriveWriteError::TooLarge);
    }
    Ok(())
}

/// Writes a config drive. `random` becomes the GUID of a new partition. The result is the
/// partition.
pub fn write_config_drive(
    disk: &mut dyn TargetDisk,
    image: &[u8],
    random: [u8; 16],
) -> Result<DiskPartition, ConfigDriveWriteError> {
    check_size(image)?;
    move_gpt_backup(disk)?;
    let table = DiskTable::read(disk)?;
    let mut existing = labelled_partitions(disk, &table, CONFIG_DRIVE_LABEL)?;
    let partition = match (existing.len(), existing.pop()) {
        (1, Some(partition)) => partition,
        (0, _) => add_partition(disk, table, random)?,
        (count, _) => return Err(ConfigDriveWriteError::Ambiguous(count)),
    };
    let needed = image.len() as u64;
    if partition.bytes < needed {
        return Err(ConfigDriveWriteError::PartitionTooSmall {
            partition: partition.bytes,
            needed,
        });
    }
    let mut padded = image.to_vec();
    padded.resize(
        image.len().next_multiple_of(disk.sector_bytes() as usize),
        0,
    );
    write(disk, &padded, partition.start)?;
    flush(disk)?;
    Ok(partition)
}

fn add_partition(
    disk: &mut dyn TargetDisk,
    table: DiskTable,
    random: [u8; 16],
) -> Result<DiskPartition, ConfigDriveWriteError> {
    let sector_bytes = disk.sector_bytes();
    let sectors = CONFIG_DRIVE_BYTES_MAX / sector_bytes;
    let align = ALIGN_BYTES / sector_bytes;
    let partition = match table {
        DiskTable::Gpt(mut gpt) => {
            // Without a name, as by the stock agent.
            let kind = (GptGuid::LINUX_DATA, GptGuid::random(random), "");
            let added = gpt.add_at_end(sectors, align, kind)?.clone();
            write_table(disk, &gpt.writes(sector_bytes))?;
            let sectors = added.last_sector - added.first_sector + 1;
            (added.number, added.first_sector, sectors)
        }
        DiskTable::Mbr(mbr) => {
            let added = mbr.partition_at_end(disk.bytes() / sector_bytes, sectors, align)?;
            let mut sector = vec![0; sector_bytes as usize];
            let mut first = first_sector(disk)?;
            put_mbr_partition(&mut first, &added);
            sector[..first.len()].copy_from_slice(&first);
            write(disk, &sector, 0)?;
            (added.number, added.first_sector, added.sectors)
        }
        DiskTable::Missing => return Err(ConfigDriveWriteError::NoTable),
    };
    let (number, first, sectors) = partition;
    let partition = DiskPartition {
        number,
        start: first * sector_bytes,
        bytes: sectors * sector_bytes,
    };
    // What was there before must not be taken for a file system.
    write_zeroes(disk, partition.start, ALIGN_BYTES)?;
    Ok(partition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryDisk;
    use crate::{GptTable, MbrPartition, protective_mbr};
    use base64::engine::general_purpose;
    use std::io::Write as _;

    const MIB: usize = 1 << 20;

    /// A config drive as `firmware/configdrive` makes it: only its label matters here.
    fn image() -> Vec<u8> {
        let mut image = vec![3; 100_000];
        image[0x8001..0x8006].copy_from_slice(b"CD001");
        image[0x8028..0x8048].fill(b' ');
        image[0x8028..0x8030].copy_from_slice(b"config-2");
        image
    }

    fn packed(image: &[u8]) -> String {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(image).unwrap();
        general_purpose::STANDARD.encode(packer.finish().unwrap())
    }

    fn gpt_disk(sector_bytes: u64) -> MemoryDisk {
        let mut disk = MemoryDisk::filled(160 * MIB, 0xee);
        disk.sector_bytes = sector_bytes;
        let sectors = 64 * MIB as u64 / sector_bytes;
        let mut table = GptTable::new(GptGuid::random([1; 16]), sectors, sector_bytes).unwrap();
        let align = MIB as u64 / sector_bytes;
        let root = (GptGuid::LINUX_DATA, GptGuid::random([2; 16]), "root");
        table.add_at_start(8 * align, align, root).unwrap();
        write_table(&mut disk, &table.writes(sector_bytes)).unwrap();
        disk.data[..512].copy_from_slice(&protective_mbr(sectors));
        disk
    }

    #[test]
    fn a_gpt_gets_a_last_partition_that_is_used_again() {
        for sector_bytes in [512, 4096] {
            let mut disk = gpt_disk(sector_bytes);
            let made = write_config_drive(&mut disk, &image(), [5; 16]).unwrap();
            assert_eq!(made.number, 2);
            assert!(made.bytes >= CONFIG_DRIVE_BYTES_MAX - 2 * MIB as u64);
            assert!(
                made.start + made.bytes > 158 * MIB as u64,
                "at the end of the disk"
            );
            let start = made.start as usize;
            assert_eq!(disk.data[start..start + 100_000], image());
            let mut other = image();
            other[9] = 4;
            let again = write_config_drive(&mut disk, &other, [6; 16]).unwrap();
            assert_eq!(again, made);
            assert_eq!(disk.data[start..start + 100_000], other);
        }
    }

    #[test]
    fn an_mbr_gets_an_entry_if_it_has_one_free() {
        let mut disk = MemoryDisk::filled(160 * MIB, 0);
        let put = |disk: &mut MemoryDisk, number| {
            let mut sector = first_sector(disk).unwrap();
            let partition = MbrPartition {
                number,
                kind: 0x83,
                first_sector: 2048 * u64::from(number),
                sectors: 2048,
            };
            put_mbr_partition(&mut sector, &partition);
            disk.data[..512].copy_from_slice(&sector);
        };
        for number in 1..=3 {
            put(&mut disk, number);
        }
        let made = write_config_drive(&mut disk, &image(), [5; 16]).unwrap();
        assert_eq!((made.number, made.bytes), (4, CONFIG_DRIVE_BYTES_MAX));
        let start = made.start as usize;
        assert_eq!(disk.data[start..start + 100_000], image());
        disk.data[start..].fill(0);
        let error = write_config_drive(&mut disk, &image(), [5; 16]).unwrap_err();
        assert_eq!(error, ConfigDriveWriteError::Mbr(MbrFull::Partitions));
    }

    #[test]
    fn disks_that_have_no_place_for_it_are_refused() {
        let mut empty = MemoryDisk::filled(MIB, 0);
        let error = write_config_drive(&mut empty, &image(), [5; 16]).unwrap_err();
        assert_eq!(error, ConfigDriveWriteError::NoTable);
        let mut small = gpt_disk(512);
        small.data.truncate(70 * MIB);
        let error = write_config_drive(&mut small, &image(), [5; 16]).unwrap_err();
        assert!(
            matches!(error, ConfigDriveWriteError::Gpt(GptError::NoSpace { .. })),
            "{error}"
        );
        let mut twice = gpt_disk(512);
        let made = write_config_drive(&mut twice, &image(), [5; 16]).unwrap();
        twice
            .data
            .copy_within(made.start as usize..made.start as usize + 100_000, MIB);
        let error = write_config_drive(&mut twice, &image(), [5; 16]).unwrap_err();
        assert_eq!(error, ConfigDriveWriteError::Ambiguous(2));
    }

    #[test]
    fn a_labelled_partition_that_is_too_small_is_refused() {
        let mut disk = gpt_disk(512);
        disk.data[MIB..MIB + 100_000].copy_from_slice(&image());
        let large = vec![0; 9 * MIB];
        let error = write_config_drive(&mut disk, &large, [5; 16]).unwrap_err();
        let (partition, needed) = (8 * MIB as u64, 9 * MIB as u64);
        assert_eq!(
            error,
            ConfigDriveWriteError::PartitionTooSmall { partition, needed }
        );
    }

    #[test]
    fn it_is_unpacked_as_the_stock_agent_does() {
        let text = packed(&image());
        assert_eq!(unpack_config_drive(&text), Ok(image()));
        let (one, two) = text.split_at(10);
        assert_eq!(unpack_config_drive(&format!("{one}\n{two}\n")), Ok(image()));
    }

    #[test]
    fn what_is_no_packed_image_or_too_large_is_refused() {
        for text in ["not base64!", "aGVsbG8=", ""] {
            let refused = unpack_config_drive(text);
            assert!(
                matches!(refused, Err(ConfigDriveWriteError::Malformed(_))),
                "{text}"
            );
        }
        let bomb = packed(&vec![0; 70 * MIB]);
        assert_eq!(
            unpack_config_drive(&bomb),
            Err(ConfigDriveWriteError::TooLarge)
        );
        let mut disk = gpt_disk(512);
        let error = write_config_drive(&mut disk, &vec![0; 65 * MIB], [5; 16]).unwrap_err();
        assert_eq!(error, ConfigDriveWriteError::TooLarge);
    }
}
