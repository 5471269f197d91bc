use super::*;

const SECTOR: usize = 512;

fn guid(byte: u8) -> GptGuid {
    GptGuid::random([byte; 16])
}

/// A disk in memory with the writes of a table.
fn disk(table: &GptTable, sectors: u64) -> Vec<u8> {
    let mut disk = vec![0; sectors as usize * SECTOR];
    for write in table.writes(SECTOR as u64) {
        let at = write.sector as usize * SECTOR;
        disk[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
    }
    disk
}

fn read(disk: &[u8], at: u64) -> Result<GptTable, GptError> {
    let header = GptHeader::parse(&disk[at as usize * SECTOR..][..SECTOR], at)?;
    let from = header.entries_sector as usize * SECTOR;
    GptTable::parse(header, &disk[from..])
}

fn sample(sectors: u64) -> GptTable {
    let mut table = GptTable::new(guid(1), sectors, SECTOR as u64).unwrap();
    table
        .add_at_start(2048, 2048, (GptGuid::EFI_SYSTEM, guid(2), "esp"))
        .unwrap();
    table
        .add_at_start(4096, 2048, (GptGuid::LINUX_DATA, guid(3), "root"))
        .unwrap();
    table
}

#[test]
fn both_tables_are_read_as_they_were_written() {
    let disk = disk(&sample(20_000), 20_000);
    let primary = read(&disk, 1).unwrap();
    let backup = read(&disk, 19_999).unwrap();
    assert_eq!(primary.partitions, backup.partitions);
    assert_eq!(primary.partitions[0].first_sector, 2048);
    assert_eq!(primary.partitions[0].last_sector, 4095);
    assert_eq!(primary.partitions[1].name, "root");
    assert_eq!(primary.header.last_usable, 20_000 - 34);
    assert_eq!(backup.header.other_sector, 1);
}

#[test]
fn a_table_moves_to_a_larger_disk() {
    let small = disk(&sample(20_000), 20_000);
    let mut table = read(&small, 1).unwrap();
    table.move_to(50_000, SECTOR as u64).unwrap();
    let large = disk(&table, 50_000);
    let backup = read(&large, 49_999).unwrap();
    assert_eq!(backup.partitions, table.partitions);
    assert_eq!(backup.header.last_usable, 50_000 - 34);
}

#[test]
fn a_table_does_not_move_to_a_disk_without_space_for_it() {
    let mut table = sample(20_000);
    let error = table.move_to(8_000, SECTOR as u64).unwrap_err();
    assert_eq!(
        error,
        GptError::DiskTooSmall {
            last_sector: 8191,
            disk_sectors: 8_000
        }
    );
    assert!(table.move_to(10, SECTOR as u64).is_err());
    assert!(GptTable::new(guid(1), 60, SECTOR as u64).is_err());
}

#[test]
fn a_partition_is_added_at_the_end() {
    let mut table = sample(20_000);
    let added = table
        .add_at_end(4096, 2048, (GptGuid::LINUX_DATA, guid(9), "config-2"))
        .unwrap();
    assert_eq!(added.number, 3);
    assert_eq!(added.first_sector, 14_336);
    assert_eq!(added.last_sector, 18_431);
    let text = added.guid.to_string();
    assert_eq!(text.len(), 36);
    let again = read(&disk(&table, 20_000), 1).unwrap();
    assert_eq!(again.partitions[2].name, "config-2");
}

#[test]
fn a_full_disk_and_a_full_table_are_refused() {
    let mut table = sample(20_000);
    let kind = GptGuid::LINUX_DATA;
    let no_space = Err(GptError::NoSpace { sectors: 19_000 });
    assert_eq!(
        table.add_at_end(19_000, 1, (kind, guid(4), "")).cloned(),
        no_space
    );
    assert_eq!(
        table.add_at_start(19_000, 1, (kind, guid(4), "")).cloned(),
        no_space
    );
    for at in 0..126 {
        table.add_at_end(1, 1, (kind, guid(at), "")).unwrap();
    }
    let full = table.add_at_end(1, 1, (kind, guid(4), "")).cloned();
    assert_eq!(full, Err(GptError::Full));
}

#[test]
fn damaged_tables_are_refused() {
    let good = disk(&sample(20_000), 20_000);
    let damaged = |at: usize| {
        let mut bad = good.clone();
        bad[at] ^= 1;
        read(&bad, 1).unwrap_err()
    };
    assert_eq!(damaged(SECTOR), GptError::Missing);
    assert_eq!(
        damaged(SECTOR + 40),
        GptError::Damaged("the checksum of its header")
    );
    assert_eq!(
        damaged(SECTOR + 12),
        GptError::Damaged("the checksum of its header")
    );
    assert_eq!(
        damaged(2 * SECTOR + 3),
        GptError::Damaged("the checksum of its entries")
    );
    assert_eq!(
        GptHeader::parse(&good[SECTOR..2 * SECTOR], 7),
        Err(GptError::Damaged("its header is at another place"))
    );
    assert_eq!(
        GptHeader::parse(b"EFI PART", 1),
        Err(GptError::Damaged("its header is short"))
    );
    let header = GptHeader::parse(&good[SECTOR..2 * SECTOR], 1).unwrap();
    assert!(GptTable::parse(header, &good[..100]).is_err());
}

#[test]
fn sizes_of_a_hostile_header_are_bounded() {
    let good = sample(20_000).header;
    for (entries, entry_bytes) in [
        (u32::MAX, 128),
        (128, u32::MAX),
        (128, 8192),
        (128, 127),
        (1, 0),
    ] {
        let header = GptHeader {
            entries,
            entry_bytes,
            ..good.clone()
        };
        let error = GptHeader::parse(&header.encode(SECTOR), 1).unwrap_err();
        assert_eq!(
            error,
            GptError::Damaged("the number or the size of its entries")
        );
    }
}

#[test]
fn a_guid_is_written_with_its_first_fields_swapped() {
    let text = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";
    assert_eq!(GptGuid::EFI_SYSTEM.to_string(), text);
    let text = "0fc63daf-8483-4772-8e79-3d69d8477de4";
    assert_eq!(GptGuid::LINUX_DATA.to_string(), text);
}
