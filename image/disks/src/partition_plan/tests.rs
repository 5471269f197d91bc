//! Plans, and tables in memory.

use super::*;
use crate::MbrTable;
use crate::testing::MemoryDisk;

const GIB: u64 = 1 << 30;

fn layout(table: PartitionTableKind) -> PartitionLayout {
    PartitionLayout {
        table,
        root_mib: 100,
        swap_mib: 8,
        ephemeral_mib: 20,
        config_drive_bytes: MIB + 1,
        keeps_ephemeral: false,
    }
}

fn roles(layout: &PartitionLayout) -> Vec<(PartitionRole, u64, u64)> {
    let planned = layout.plan(8 * GIB, 512).unwrap();
    let sizes = planned
        .iter()
        .map(|one| (one.role, one.start / MIB, one.bytes / MIB));
    sizes.collect()
}

/// Different bytes for each identifier.
fn counting() -> impl FnMut() -> [u8; 16] {
    let mut next = 0;
    move || {
        next += 1;
        [next; 16]
    }
}

#[test]
fn partitions_have_the_stock_agents_order() {
    assert_eq!(
        roles(&layout(PartitionTableKind::GptForUefi)),
        [
            (PartitionRole::EfiSystem, 1, 550),
            (PartitionRole::Ephemeral, 551, 20),
            (PartitionRole::Swap, 571, 8),
            (PartitionRole::ConfigDrive, 579, 2),
            (PartitionRole::Root, 581, 100),
        ]
    );
    let bios = roles(&layout(PartitionTableKind::GptForBios));
    assert_eq!(bios[0], (PartitionRole::BiosBoot, 1, 1));
    let mbr = roles(&layout(PartitionTableKind::Mbr));
    assert_eq!(mbr.len(), 4, "all that an MBR has");
    assert_eq!(mbr[0], (PartitionRole::Ephemeral, 1, 20));
    let small = PartitionLayout {
        swap_mib: 0,
        ephemeral_mib: 0,
        config_drive_bytes: 0,
        ..layout(PartitionTableKind::Mbr)
    };
    assert_eq!(roles(&small), [(PartitionRole::Root, 1, 100)]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let layout = layout(PartitionTableKind::Mbr);
    let error = layout.plan(100 << 20, 512).unwrap_err();
    let (needed_mib, disk_mib) = (131, 100);
    assert_eq!(
        error,
        PartitionPlanError::TooSmall {
            needed_mib,
            disk_mib
        }
    );
    assert_eq!(layout.plan(131 << 20, 512).unwrap().len(), 4);
    let gpt = PartitionLayout {
        table: PartitionTableKind::GptForBios,
        ..layout
    };
    assert!(gpt.plan(132 << 20, 512).is_err(), "the copy of the GPT");
    assert!(gpt.plan(133 << 20, 512).is_ok());
    let large = PartitionLayout {
        root_mib: 3 << 20,
        ..layout
    };
    assert!(large.plan(8 << 40, 512).is_err(), "an MBR ends at 2 TiB");
    assert!(large.plan(8 << 40, 4096).is_ok());
    for root_mib in [0, u64::MAX] {
        let wrong = PartitionLayout { root_mib, ..layout };
        assert!(wrong.plan(8 * GIB, 512).is_err());
    }
}

#[test]
fn the_table_on_the_disk_is_the_plan() {
    for table in [
        PartitionTableKind::GptForUefi,
        PartitionTableKind::GptForBios,
        PartitionTableKind::Mbr,
    ] {
        for sector_bytes in [512, 4096] {
            let layout = layout(table);
            let mut disk = MemoryDisk::filled(700 << 20, 0);
            disk.sector_bytes = sector_bytes;
            let planned = layout.plan(700 << 20, sector_bytes).unwrap();
            layout.write(&mut disk, &planned, &mut counting()).unwrap();
            let read = DiskTable::read(&mut disk).unwrap();
            let found = read.partitions(sector_bytes);
            let places = found.iter().map(|one| (one.number, one.start, one.bytes));
            let wanted = planned.iter().map(|one| (one.number, one.start, one.bytes));
            assert_eq!(places.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
            match read {
                DiskTable::Gpt(gpt) => {
                    let mut guids: Vec<_> = gpt.partitions.iter().map(|one| one.guid).collect();
                    guids.dedup();
                    assert_eq!(guids.len(), planned.len());
                    let first = gpt.partitions[0].kind;
                    let is_efi = first == GptGuid::EFI_SYSTEM;
                    assert_eq!(is_efi, table == PartitionTableKind::GptForUefi);
                }
                DiskTable::Mbr(mbr) => {
                    assert_eq!(mbr.identifier, 0x0101_0101);
                    assert_eq!(mbr.partitions[1].kind, MBR_SWAP);
                    let active = [446, 462, 478, 494].map(|at: usize| disk.data[at]);
                    assert_eq!(active, [0, 0, 0, MBR_ACTIVE], "root is booted");
                }
                DiskTable::Missing => panic!("no table"),
            }
        }
    }
}

#[test]
fn a_kept_ephemeral_partition_must_be_at_its_place() {
    for table in [PartitionTableKind::GptForBios, PartitionTableKind::Mbr] {
        let first = layout(table);
        let mut disk = MemoryDisk::filled(200 << 20, 0);
        let keeps = PartitionLayout {
            keeps_ephemeral: true,
            swap_mib: 16,
            ..first
        };
        let planned = first.plan(200 << 20, 512).unwrap();
        let again = keeps.plan(200 << 20, 512).unwrap();
        let error = keeps.write(&mut disk, &again, &mut counting()).unwrap_err();
        assert!(
            matches!(error, PartitionPlanError::NothingToKeep { mib: 20, .. }),
            "{error}"
        );
        assert_eq!(disk.written, 0);
        first.write(&mut disk, &planned, &mut counting()).unwrap();
        let before = DiskTable::read(&mut disk).unwrap();
        keeps.write(&mut disk, &again, &mut || [77; 16]).unwrap();
        let after = DiskTable::read(&mut disk).unwrap();
        if let (DiskTable::Gpt(before), DiskTable::Gpt(after)) = (&before, &after) {
            assert_eq!(before.partitions[1], after.partitions[1]);
            assert_ne!(before.partitions[2].guid, after.partitions[2].guid);
        }
        let other = PartitionLayout {
            ephemeral_mib: 21,
            ..keeps
        };
        let planned = other.plan(200 << 20, 512).unwrap();
        assert!(other.write(&mut disk, &planned, &mut counting()).is_err());
        assert_eq!(DiskTable::read(&mut disk).unwrap(), after);
    }
}

#[test]
fn the_kind_of_table_of_a_kept_partition_remains() {
    let mbr = layout(PartitionTableKind::Mbr);
    let mut disk = MemoryDisk::filled(800 << 20, 0);
    let planned = mbr.plan(800 << 20, 512).unwrap();
    mbr.write(&mut disk, &planned, &mut counting()).unwrap();
    assert_eq!(
        MbrTable::parse(&disk.data[..512]).unwrap().partitions.len(),
        4
    );
    let gpt = PartitionLayout {
        keeps_ephemeral: true,
        ..layout(PartitionTableKind::GptForUefi)
    };
    let planned = gpt.plan(800 << 20, 512).unwrap();
    assert!(gpt.write(&mut disk, &planned, &mut counting()).is_err());
}
