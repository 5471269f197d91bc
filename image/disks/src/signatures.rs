//! What makes a disk look used: signatures of partition tables, file systems, volumes and
//! arrays, at the places where `wipefs` of util-linux finds them.

/// Bytes at the start of a disk where signatures are searched.
pub const HEAD_BYTES: usize = 1 << 20;

/// Bytes at the end of a disk where signatures are searched.
pub const TAIL_BYTES: usize = 1 << 20;

/// Most signatures that are reported. Ours.
pub const SIGNATURES_MAX: usize = 256;

/// A signature that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundSignature {
    /// Its name, as `wipefs` prints it.
    pub name: &'static str,
    /// Where it is on the disk.
    pub at: u64,
    /// How long it is.
    pub bytes: usize,
}

/// A signature at a fixed place.
struct KnownSignature {
    name: &'static str,
    at: usize,
    magic: &'static [u8],
}

const fn known(name: &'static str, at: usize, magic: &'static [u8]) -> KnownSignature {
    KnownSignature { name, at, magic }
}

/// From the start of the disk.
const AT_START: [KnownSignature; 56] = [
    known("dos", 510, &[0x55, 0xaa]),
    known("gpt", 512, b"EFI PART"),
    known("gpt", 4096, b"EFI PART"),
    known("ext4", 0x438, &[0x53, 0xef]),
    known("xfs", 0, b"XFSB"),
    known("btrfs", 0x1_0040, b"_BHRfS_M"),
    known("vfat", 54, b"FAT12   "),
    known("vfat", 54, b"FAT16   "),
    known("vfat", 82, b"FAT32   "),
    known("vfat", 82, b"MSWIN"),
    known("vfat", 54, b"MSDOS"),
    known("exfat", 3, b"EXFAT   "),
    known("ntfs", 3, b"NTFS    "),
    known("iso9660", 0x8001, b"CD001"),
    known("udf", 0x8801, b"BEA01"),
    known("udf", 0x9001, b"NSR02"),
    known("udf", 0x9001, b"NSR03"),
    known("swap", 0xff6, b"SWAPSPACE2"),
    known("swap", 0xff6, b"SWAP-SPACE"),
    known("swap", 0xfff6, b"SWAPSPACE2"),
    known("swsuspend", 0xff6, b"S1SUSPEND"),
    known("crypto_LUKS", 0, &[b'L', b'U', b'K', b'S', 0xba, 0xbe]),
    known("crypto_LUKS", 0x4000, &[b'S', b'K', b'U', b'L', 0xba, 0xbe]),
    known("LVM2_member", 0x18, b"LVM2 001"),
    known("LVM2_member", 0x200 + 0x18, b"LVM2 001"),
    known("LVM2_member", 0x400 + 0x18, b"LVM2 001"),
    known("LVM2_member", 0x600 + 0x18, b"LVM2 001"),
    known("LVM1_member", 0, b"HM\x01\x00"),
    known("linux_raid_member", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    known("linux_raid_member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    known(
        "bcache",
        0x1018,
        &[
            0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba,
            0x6d, 0x81,
        ],
    ),
    known("ceph_bluestore", 0, b"bluestore block device"),
    known("zfs_member", 0x2_0000, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    known("zfs_member", 0x2_1000, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    known("reiserfs", 0x1_0034, b"ReIsErFs"),
    known("reiserfs", 0x1_0034, b"ReIsEr2Fs"),
    known("reiserfs", 0x1_0034, b"ReIsEr3Fs"),
    known("reiser4", 0x1_0000, b"ReIsEr4"),
    known("jfs", 0x8000, b"JFS1"),
    known("f2fs", 0x400, &[0x10, 0x20, 0xf5, 0xf2]),
    known("nilfs2", 0x406, &[0x34, 0x34]),
    known("gfs2", 0x1_0000, &[0x01, 0x16, 0x19, 0x70]),
    known("ocfs2", 0x2000, b"OCFSV2"),
    known("ocfs2", 0x1000, b"OCFSV2"),
    known("ocfs2", 0x400, b"OCFSV2"),
    known("minix", 0x410, &[0x7f, 0x13]),
    known("minix", 0x410, &[0x8f, 0x13]),
    known("minix", 0x410, &[0x68, 0x24]),
    known("minix", 0x410, &[0x78, 0x24]),
    known("squashfs", 0, b"hsqs"),
    known("erofs", 0x400, &[0xe2, 0xe1, 0xf5, 0xe0]),
    known("hfsplus", 0x400, b"H+"),
    known("hfsplus", 0x400, b"HX"),
    known("stratis", 0x204, b"!Stra0tis\x86\xff\x02^\x41rh"),
    known("BitLocker", 3, b"-FVE-FS-"),
    known("DM_snapshot_cow", 0, b"SnAp"),
];

/// From the end of the disk: the distance of the first byte from the end.
const AT_END: [KnownSignature; 8] = [
    known("gpt", 512, b"EFI PART"),
    known("gpt", 4096, b"EFI PART"),
    known("ddf_raid_member", 512, &[0xde, 0x11, 0xde, 0x11]),
    known("isw_raid_member", 1024, b"Intel Raid ISM Cfg Sig. "),
    known(
        "promise_fasttrack_raid_member",
        63 * 512,
        b"Promise Technology, Inc.",
    ),
    known("nvidia_raid_member", 1024, b"NVIDIA"),
    known("lsi_mega_raid_member", 512, b"$XIDE$"),
    known("jmicron_raid_member", 512, b"JM"),
];

/// The superblocks of Linux arrays of versions 0.90 and 1.0.
const RAID_MAGIC: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];

/// All signatures in the first and the last bytes of a disk. `head` begins at the first byte,
/// `tail` ends with the last.
pub fn find_signatures(head: &[u8], tail: &[u8], disk_bytes: u64) -> Vec<FoundSignature> {
    let mut found = Vec::new();
    for one in &AT_START {
        let place = head.get(one.at..one.at + one.magic.len());
        if place == Some(one.magic) {
            found.push(FoundSignature {
                name: one.name,
                at: one.at as u64,
                bytes: one.magic.len(),
            });
        }
    }
    let raid = raid_at_end(disk_bytes).into_iter();
    let raid = raid.map(|distance| ("linux_raid_member", distance, &RAID_MAGIC[..]));
    let ends = AT_END
        .iter()
        .map(|one| (one.name, one.at as u64, one.magic));
    for (name, distance, magic) in ends.chain(raid) {
        let start = usize::try_from(distance)
            .ok()
            .and_then(|distance| tail.len().checked_sub(distance));
        let place = start.and_then(|start| tail.get(start..start + magic.len()));
        if place == Some(magic)
            && let Some(at) = disk_bytes.checked_sub(distance)
        {
            found.push(FoundSignature {
                name,
                at,
                bytes: magic.len(),
            });
        }
    }
    // Small disks have their start and their end in the same bytes.
    found.sort_by_key(|one| (one.at, one.name));
    found.dedup();
    found.truncate(SIGNATURES_MAX);
    found
}

/// Distances of the superblocks of version 0.90 (the last 64 KiB that are aligned) and 1.0 (the
/// last 8 KiB, aligned to 4 KiB) from the end.
fn raid_at_end(disk_bytes: u64) -> [u64; 2] {
    let old = (disk_bytes & !0xffff).saturating_sub(0x1_0000);
    let new = (disk_bytes.saturating_sub(0x2000)) & !0xfff;
    [disk_bytes - old, disk_bytes - new]
}

/// The ranges that are zeroed so that nothing is found again: both ends of the disk, and
/// both ends of each partition. Ranges are offset and length, do not overlap and lie within the
/// disk.
pub fn metadata_ranges(
    partitions: &[(u64, u64)],
    disk_bytes: u64,
    sector_bytes: u64,
) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut add = |start: u64, end: u64| {
        let start = start / sector_bytes * sector_bytes;
        let end = end
            .min(disk_bytes)
            .next_multiple_of(sector_bytes)
            .min(disk_bytes);
        if start < end {
            ranges.push((start, end));
        }
    };
    for &(start, length) in partitions.iter().chain([&(0, disk_bytes)]) {
        let end = start.saturating_add(length);
        add(start, start.saturating_add(HEAD_BYTES as u64).min(end));
        add(end.saturating_sub(TAIL_BYTES as u64).max(start), end);
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
        .iter()
        .map(|&(start, end)| (start, end - start))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u64 = 8 << 20;

    fn names(head: &[u8], tail: &[u8]) -> Vec<&'static str> {
        let found = find_signatures(head, tail, DISK);
        found.iter().map(|one| one.name).collect()
    }

    #[test]
    fn each_known_signature_is_found_at_its_place() {
        for one in &AT_START {
            let mut head = vec![0; HEAD_BYTES];
            head[one.at..one.at + one.magic.len()].copy_from_slice(one.magic);
            let found = find_signatures(&head, &[], DISK);
            assert!(
                found
                    .iter()
                    .any(|found| found.name == one.name && found.at == one.at as u64),
                "{}",
                one.name
            );
        }
        for one in &AT_END {
            let mut tail = vec![0; TAIL_BYTES];
            let at = TAIL_BYTES - one.at;
            tail[at..at + one.magic.len()].copy_from_slice(one.magic);
            let found = find_signatures(&[], &tail, DISK);
            let place = DISK - one.at as u64;
            assert!(
                found
                    .iter()
                    .any(|found| found.name == one.name && found.at == place)
            );
        }
    }

    #[test]
    fn an_empty_disk_has_none() {
        assert!(names(&vec![0; HEAD_BYTES], &vec![0; TAIL_BYTES]).is_empty());
        assert!(names(&[], &[]).is_empty());
        assert!(names(&[0x55; 511], &[0xaa; 3]).is_empty());
    }

    #[test]
    fn superblocks_of_arrays_at_the_end_are_found() {
        for size in [DISK, DISK + 12_800, DISK + 70_000] {
            for distance in raid_at_end(size) {
                let mut tail = vec![0; TAIL_BYTES];
                let at = TAIL_BYTES - distance as usize;
                tail[at..at + 4].copy_from_slice(&RAID_MAGIC);
                let found = find_signatures(&[], &tail, size);
                assert_eq!(found.len(), 1, "{size} {distance}");
                assert_eq!(found[0].at, size - distance);
            }
        }
    }

    #[test]
    fn both_ends_of_disk_and_partitions_are_zeroed_once() {
        let mib = 1 << 20;
        let ranges = metadata_ranges(&[(2 * mib, mib / 2), (10 * mib, 80 * mib)], 100 * mib, 512);
        assert_eq!(
            ranges,
            [
                (0, mib),
                (2 * mib, mib / 2),
                (10 * mib, mib),
                (89 * mib, mib),
                (99 * mib, mib)
            ]
        );
    }

    #[test]
    fn ranges_stay_within_the_disk_and_are_whole_sectors() {
        let ranges = metadata_ranges(
            &[(100, 1000), (u64::MAX - 5, 10), (1 << 40, 1)],
            1 << 21,
            4096,
        );
        assert_eq!(ranges, [(0, 1 << 21)]);
        assert_eq!(metadata_ranges(&[], 4096, 4096), [(0, 4096)]);
        assert!(metadata_ranges(&[], 0, 512).is_empty());
    }
}
