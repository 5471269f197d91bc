use super::*;
use crate::testing::MemoryDisk;
use crate::{GptGuid, protective_mbr};

const MIB: usize = 1 << 20;

/// A disk with a GPT that was made for its first `image` bytes.
fn gpt_disk(disk: usize, image: usize, sector_bytes: u64) -> MemoryDisk {
    let mut out = MemoryDisk::filled(disk, 0);
    out.sector_bytes = sector_bytes;
    let sectors = image as u64 / sector_bytes;
    let mut table = GptTable::new(GptGuid::random([1; 16]), sectors, sector_bytes).unwrap();
    let align = MIB as u64 / sector_bytes;
    let partition = (GptGuid::LINUX_DATA, GptGuid::random([2; 16]), "root");
    table.add_at_start(4 * align, align, partition).unwrap();
    write_table(&mut out, &table.writes(sector_bytes)).unwrap();
    out.data[..512].copy_from_slice(&protective_mbr(sectors));
    out
}

#[test]
fn a_gpt_is_moved_to_the_end_of_a_larger_disk_once() {
    for sector_bytes in [512, 4096] {
        let mut disk = gpt_disk(32 * MIB, 16 * MIB, sector_bytes);
        assert_eq!(move_gpt_backup(&mut disk), Ok(true));
        assert_eq!(move_gpt_backup(&mut disk), Ok(false));
        let end = disk.data.len() - sector_bytes as usize;
        assert_eq!(&disk.data[end..end + 8], b"EFI PART");
        let DiskTable::Gpt(table) = DiskTable::read(&mut disk).unwrap() else {
            panic!("no GPT");
        };
        assert_eq!(table.partitions[0].name, "root");
    }
}

#[test]
fn a_damaged_primary_table_is_replaced_by_the_backup() {
    let mut disk = gpt_disk(16 * MIB, 16 * MIB, 512);
    let whole = DiskTable::read(&mut disk).unwrap().partitions(512);
    disk.data[512..1024].fill(0);
    let table = DiskTable::read(&mut disk).unwrap();
    assert_eq!(table.partitions(512), whole);
    assert_eq!(
        move_gpt_backup(&mut disk),
        Ok(true),
        "the primary is written again"
    );
    assert_eq!(&disk.data[512..520], b"EFI PART");
    disk.data[512..1024].fill(0);
    let end = disk.data.len() - 512;
    disk.data[end..].fill(0);
    assert!(matches!(
        DiskTable::read(&mut disk),
        Err(DiskTableError::Gpt(_))
    ));
}

#[test]
fn entries_outside_the_disk_are_refused() {
    let mut disk = gpt_disk(16 * MIB, 16 * MIB, 512);
    disk.data.truncate(2048);
    assert!(matches!(
        DiskTable::read(&mut disk),
        Err(DiskTableError::Gpt(_))
    ));
    disk.data.truncate(512);
    assert_eq!(DiskTable::read(&mut disk), Ok(DiskTable::Missing));
}

#[test]
fn disks_with_an_mbr_or_without_a_table_have_nothing_to_move() {
    let mut disk = MemoryDisk::filled(MIB, 0);
    assert_eq!(DiskTable::read(&mut disk), Ok(DiskTable::Missing));
    assert_eq!(move_gpt_backup(&mut disk), Ok(false));
    let mut sector = [0; MBR_BYTES];
    let partition = crate::MbrPartition {
        number: 2,
        kind: 0x83,
        first_sector: 8,
        sectors: 16,
    };
    crate::put_mbr_partition(&mut sector, &partition);
    disk.data[..512].copy_from_slice(&sector);
    let table = DiskTable::read(&mut disk).unwrap();
    let want = DiskPartition {
        number: 2,
        start: 4096,
        bytes: 8192,
    };
    assert_eq!(table.partitions(512), [want]);
    assert_eq!(move_gpt_backup(&mut disk), Ok(false));
    assert_eq!(first_sector(&mut disk), Ok(sector));
}

#[test]
fn labels_of_file_systems_are_read() {
    let mut iso = vec![0; LABEL_BYTES];
    iso[0x8001..0x8006].copy_from_slice(b"CD001");
    iso[0x8028..0x8048].fill(b' ');
    iso[0x8028..0x8030].copy_from_slice(b"config-2");
    assert_eq!(file_system_label(&iso).as_deref(), Some("config-2"));
    let mut ext = vec![0; LABEL_BYTES];
    ext[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    ext[0x478..0x47c].copy_from_slice(b"root");
    assert_eq!(file_system_label(&ext).as_deref(), Some("root"));
    for (name, at, label) in [(b"FAT32", 82, 71), (b"FAT16", 54, 43)] {
        let mut fat = vec![0; 512];
        fat[510..].copy_from_slice(&[0x55, 0xaa]);
        fat[at..at + 5].copy_from_slice(name);
        fat[label..label + 11].copy_from_slice(b"CONFIG-2   ");
        assert_eq!(file_system_label(&fat).as_deref(), Some("CONFIG-2"));
        fat[label..label + 11].fill(b' ');
        assert_eq!(file_system_label(&fat), None);
    }
    assert_eq!(file_system_label(&vec![0; LABEL_BYTES]), None);
    assert_eq!(file_system_label(&[]), None);
}

#[test]
fn partitions_are_found_by_their_label() {
    let mut disk = gpt_disk(16 * MIB, 16 * MIB, 512);
    let at = MIB + 0x8001;
    disk.data[at..at + 5].copy_from_slice(b"CD001");
    disk.data[MIB + 0x8028..MIB + 0x8030].copy_from_slice(b"CONFIG-2");
    let table = DiskTable::read(&mut disk).unwrap();
    let found = labelled_partitions(&mut disk, &table, "config-2").unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].start, MIB as u64);
    assert!(
        labelled_partitions(&mut disk, &table, "other")
            .unwrap()
            .is_empty()
    );
}
