//! Small images, made by hand.

use flate2::{Compress, Compression as Level, FlushCompress};

use super::header::Qcow2Header;
use crate::tests::{unpack, zstd};
use crate::{Packing, RAW_BYTES_MAX, RawImagePiece, UnpackRefusal, Unpacker};

/// One cluster of an image.
enum Qcow2TestCluster {
    Absent,
    Zeros,
    /// Zeros, with a position in the file whose bytes do not count.
    ZerosStored,
    Stored(Vec<u8>),
    Compressed(Vec<u8>),
    /// Bytes, which subclusters are allocated, and which are zeros.
    Parts(Vec<u8>, u32, u32),
}

/// How an image is made.
#[derive(Clone)]
struct Qcow2TestLayout {
    version: u32,
    bits: u32,
    size: u64,
    zstd: bool,
    extended: bool,
}

const PLAIN: Qcow2TestLayout = Qcow2TestLayout {
    version: 3,
    bits: 9,
    size: 0,
    zstd: false,
    extended: false,
};

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn deflate(raw: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(raw.len() + 1000);
    Compress::new(Level::default(), false)
        .compress_vec(raw, &mut packed, FlushCompress::Finish)
        .unwrap();
    packed
}

/// The file: header, level 1, level 2 tables, then clusters. Compressed ones follow each other
/// without gaps.
fn image(form: &Qcow2TestLayout, clusters: &[Qcow2TestCluster]) -> Vec<u8> {
    let cluster_bytes = 1_usize << form.bits;
    let entry_bytes = if form.extended { 16 } else { 8 };
    let per_table = cluster_bytes / entry_bytes;
    let tables = clusters.len().div_ceil(per_table);
    let l1_clusters = (tables * 8).div_ceil(cluster_bytes).max(1);
    let mut file = vec![0; cluster_bytes * (1 + l1_clusters + tables)];
    put(&mut file, 0, b"QFI\xfb");
    put(&mut file, 4, &form.version.to_be_bytes());
    put(&mut file, 20, &form.bits.to_be_bytes());
    let size = match form.size {
        0 => (clusters.len() * cluster_bytes) as u64,
        size => size,
    };
    put(&mut file, 24, &size.to_be_bytes());
    put(&mut file, 36, &(tables as u32).to_be_bytes());
    put(&mut file, 40, &(cluster_bytes as u64).to_be_bytes());
    if form.version > 2 {
        let features = u64::from(form.zstd) << 3 | u64::from(form.extended) << 4;
        put(&mut file, 72, &features.to_be_bytes());
        put(&mut file, 96, &4_u32.to_be_bytes());
        put(&mut file, 100, &112_u32.to_be_bytes());
        file[104] = u8::from(form.zstd);
    }
    for table in 0..tables {
        let at = (cluster_bytes * (1 + l1_clusters + table)) as u64 | 1 << 63;
        put(&mut file, cluster_bytes + table * 8, &at.to_be_bytes());
    }
    for (index, cluster) in clusters.iter().enumerate() {
        let (entry, map) = add(form, &mut file, cluster);
        let at = cluster_bytes * (1 + l1_clusters) + index * entry_bytes;
        put(&mut file, at, &entry.to_be_bytes());
        if form.extended {
            put(&mut file, at + 8, &map.to_be_bytes());
        }
    }
    file
}

fn add(form: &Qcow2TestLayout, file: &mut Vec<u8>, cluster: &Qcow2TestCluster) -> (u64, u64) {
    let cluster_bytes = 1 << form.bits;
    let mut stored = |bytes: &[u8]| {
        file.resize(file.len().next_multiple_of(cluster_bytes), 0xdd);
        let at = file.len() as u64;
        file.extend_from_slice(bytes);
        at | 1 << 63
    };
    match cluster {
        Qcow2TestCluster::Absent => (0, 0),
        Qcow2TestCluster::Zeros if form.extended => (0, u64::from(u32::MAX) << 32),
        Qcow2TestCluster::Zeros => (1, 0),
        Qcow2TestCluster::ZerosStored => (stored(&vec![0xcc; cluster_bytes]) | 1, 0),
        Qcow2TestCluster::Stored(bytes) => (stored(bytes), u64::from(u32::MAX)),
        Qcow2TestCluster::Parts(bytes, there, zeros) => {
            let at = if *there == 0 { 0 } else { stored(bytes) };
            (at, u64::from(*zeros) << 32 | u64::from(*there))
        }
        Qcow2TestCluster::Compressed(bytes) => {
            let packed = if form.zstd {
                zstd(bytes)
            } else {
                deflate(bytes)
            };
            let at = file.len() as u64;
            file.extend(packed);
            let sectors = (file.len() as u64 - 1) / 512 - at / 512;
            let offset_bits = 62 - (form.bits - 8);
            (at | sectors << offset_bits | 1 << 62, 0)
        }
    }
}

fn filled(bits: u32, with: u8) -> Vec<u8> {
    let bytes = 1_usize << bits;
    (0..bytes).map(|at| with ^ (at / 7) as u8).collect()
}

#[track_caller]
fn refused(file: Vec<u8>, part: &str) -> UnpackRefusal {
    let why = unpack(Packing::Qcow2, file).map(drop).unwrap_err();
    assert!(why.to_string().contains(part), "{part}: {why}");
    why
}

#[test]
fn clusters_of_every_kind_are_unpacked_in_order() {
    for (version, bits) in [(2, 9), (3, 9), (2, 12), (3, 16), (3, 21)] {
        let form = Qcow2TestLayout {
            version,
            bits,
            ..PLAIN
        };
        let bytes = 1 << bits;
        let mut clusters = vec![
            Qcow2TestCluster::Stored(filled(bits, 1)),
            Qcow2TestCluster::Absent,
            Qcow2TestCluster::Compressed(filled(bits, 2)),
            Qcow2TestCluster::Compressed(filled(bits, 3)),
            Qcow2TestCluster::Stored(filled(bits, 4)),
        ];
        let zeros = vec![0; bytes];
        let mut raw = [
            filled(bits, 1),
            zeros.clone(),
            filled(bits, 2),
            filled(bits, 3),
            filled(bits, 4),
        ]
        .concat();
        if version > 2 {
            clusters.extend([Qcow2TestCluster::Zeros, Qcow2TestCluster::ZerosStored]);
            clusters.push(Qcow2TestCluster::Stored(filled(bits, 5)));
            raw.extend([zeros.clone(), zeros, filled(bits, 5)].concat());
        }
        let (got, _) = unpack(Packing::Qcow2, image(&form, &clusters)).unwrap();
        assert!(got == raw, "version {version}, 2^{bits}");
    }
}

#[test]
fn clusters_that_zstd_made_are_read() {
    for bits in [9, 16, 21] {
        let form = Qcow2TestLayout {
            zstd: true,
            bits,
            ..PLAIN
        };
        let clusters = [
            Qcow2TestCluster::Compressed(filled(bits, 2)),
            Qcow2TestCluster::Compressed(vec![0; 1 << bits]),
            Qcow2TestCluster::Compressed(filled(bits, 3)),
        ];
        let raw = [filled(bits, 2), vec![0; 1 << bits], filled(bits, 3)].concat();
        let (got, zeros) = unpack(Packing::Qcow2, image(&form, &clusters)).unwrap();
        assert!(got == raw, "2^{bits}");
        assert_eq!(zeros, 1 << bits);
    }
}

#[test]
fn many_tables_follow_each_other() {
    // 64 entries in a table of 512 bytes: the third table begins with cluster 128.
    let mut clusters: Vec<Qcow2TestCluster> = (0..130).map(|_| Qcow2TestCluster::Absent).collect();
    clusters[63] = Qcow2TestCluster::Stored(filled(9, 1));
    clusters[64] = Qcow2TestCluster::Stored(filled(9, 2));
    clusters[129] = Qcow2TestCluster::Stored(filled(9, 3));
    let (got, zeros) = unpack(Packing::Qcow2, image(&PLAIN, &clusters)).unwrap();
    assert_eq!(got.len(), 130 * 512);
    for (index, with) in [(63, 1), (64, 2), (129, 3)] {
        assert!(got[index * 512..][..512] == filled(9, with));
    }
    assert_eq!(zeros, 127 * 512);
}

#[test]
fn subclusters_are_read_separately() {
    let form = Qcow2TestLayout {
        bits: 14,
        extended: true,
        ..PLAIN
    };
    let bytes = filled(14, 9);
    // The first and the last are allocated, some are zeros, the others absent.
    let there = 0x8000_0003;
    let clusters = [
        Qcow2TestCluster::Parts(bytes.clone(), there, 0x0ff0),
        Qcow2TestCluster::Stored(filled(14, 1)),
        Qcow2TestCluster::Compressed(filled(14, 2)),
        Qcow2TestCluster::Zeros,
        Qcow2TestCluster::Parts(Vec::new(), 0, 0x000f),
        Qcow2TestCluster::Parts(filled(14, 3), u32::MAX, 0),
    ];
    let mut first = vec![0; 1 << 14];
    first[..1024].copy_from_slice(&bytes[..1024]);
    first[31 * 512..].copy_from_slice(&bytes[31 * 512..]);
    let zeros = vec![0; 2 << 14];
    let raw = [first, filled(14, 1), filled(14, 2), zeros, filled(14, 3)].concat();
    let (got, _) = unpack(Packing::Qcow2, image(&form, &clusters)).unwrap();
    assert!(got == raw);
    let both = [Qcow2TestCluster::Parts(bytes.clone(), 1, 1)];
    refused(image(&form, &both), "subcluster bitmap contradicts");
    let mut nowhere = image(&form, &[Qcow2TestCluster::Parts(bytes, 1, 0)]);
    put(&mut nowhere, 2 << 14, &[0; 8]);
    refused(nowhere, "subcluster bitmap contradicts");
    let small = Qcow2TestLayout { bits: 13, ..form };
    refused(image(&small, &[Qcow2TestCluster::Absent]), "too small");
}

#[test]
fn an_image_may_end_within_a_cluster_and_be_empty() {
    let form = Qcow2TestLayout {
        bits: 16,
        size: 65536 + 1024,
        ..PLAIN
    };
    let mut file = image(
        &form,
        &[
            Qcow2TestCluster::Stored(filled(16, 1)),
            Qcow2TestCluster::Stored(filled(16, 2)),
        ],
    );
    let raw = [filled(16, 1), filled(16, 2)[..1024].to_vec()].concat();
    assert!(unpack(Packing::Qcow2, file.clone()).unwrap().0 == raw);
    // Data after the end need not be present.
    file.truncate(file.len() - 60_000);
    assert!(unpack(Packing::Qcow2, file.clone()).unwrap().0 == raw);
    file.truncate(file.len() - 5000);
    refused(file, "a cluster at byte");
    assert!(
        unpack(Packing::Qcow2, image(&PLAIN, &[]))
            .unwrap()
            .0
            .is_empty()
    );
}

#[test]
fn an_image_that_reads_outside_itself_is_refused() {
    let good = || image(&PLAIN, &[Qcow2TestCluster::Stored(filled(9, 1))]);
    let mut backed = good();
    put(&mut backed, 8, &200_u64.to_be_bytes());
    put(&mut backed, 16, &11_u32.to_be_bytes());
    put(&mut backed, 200, b"/etc/shadow");
    let why = refused(backed, "qemu-img convert");
    assert_eq!(why, UnpackRefusal::BackingFile("/etc/shadow".to_owned()));
    let mut unnamed = good();
    put(&mut unnamed, 8, &(1_u64 << 62).to_be_bytes());
    refused(unnamed, "has a backing file (whose name cannot be read)");
    let mut by_bit = good();
    put(&mut by_bit, 72, &4_u64.to_be_bytes());
    refused(by_bit, "external data file (without a name)");
    let mut by_name = good();
    put(&mut by_name, 112, b"DATA\0\0\0\x05ab\ncd");
    let why = refused(by_name, "external data file");
    assert_eq!(why, UnpackRefusal::DataFile("ab?cd".to_owned()));
    for (method, name) in [(1, "AES"), (2, "LUKS"), (3, "not known")] {
        let mut sealed = good();
        put(&mut sealed, 32, &u32::to_be_bytes(method));
        refused(sealed, name);
    }
    let mut sealed = good();
    put(
        &mut sealed,
        112,
        b"\x05\x37\xbe\x77\0\0\0\x10aaaaaaaabbbbbbbb",
    );
    refused(sealed, "LUKS");
}

#[test]
fn features_are_known_or_refused() {
    let good = || image(&PLAIN, &[Qcow2TestCluster::Stored(filled(9, 1))]);
    let with = |features: u64| {
        let mut file = good();
        put(&mut file, 72, &features.to_be_bytes());
        file
    };
    assert!(unpack(Packing::Qcow2, with(1)).is_ok(), "dirty");
    assert_eq!(refused(with(2), "qemu-img check"), UnpackRefusal::Corrupt);
    assert_eq!(refused(with(0x61), "0x60"), UnpackRefusal::Features(0x60));
    refused(with(8), "contradicts itself about its compression");
    let mut silent = good();
    silent[104] = 1;
    refused(silent, "contradicts itself about its compression");
    let mut odd = good();
    odd[104] = 2;
    refused(odd, "compression 2 is not known");
    for version in [0, 1, 4, u32::MAX] {
        let mut file = good();
        put(&mut file, 4, &version.to_be_bytes());
        assert_eq!(refused(file, "version"), UnpackRefusal::Version(version));
    }
    // Version 2 has no features: the bytes there have no meaning.
    let form = Qcow2TestLayout {
        version: 2,
        ..PLAIN
    };
    let mut old = image(&form, &[Qcow2TestCluster::Stored(filled(9, 1))]);
    put(&mut old, 400, &[0xff; 8]);
    assert!(unpack(Packing::Qcow2, old).is_ok());
    refused(image(&form, &[Qcow2TestCluster::Zeros]), "version 2");
}

#[test]
fn headers_with_excessive_values_are_refused() {
    let good = image(&PLAIN, &[Qcow2TestCluster::Stored(filled(9, 1))]);
    let with = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        put(&mut file, at, bytes);
        file
    };
    for bits in [0, 8, 22, 63, 64, u32::MAX] {
        refused(with(20, &bits.to_be_bytes()), "its clusters have 2^");
    }
    let large = RAW_BYTES_MAX + 512;
    let why = refused(with(24, &large.to_be_bytes()), "the most is");
    assert_eq!(why, UnpackRefusal::TooLarge { bytes: large });
    refused(with(24, &u64::MAX.to_be_bytes()), "the most is");
    refused(with(24, &100_u64.to_be_bytes()), "is odd");
    let many = 512_u64 * 64 + 512;
    refused(with(24, &many.to_be_bytes()), "too small for its size");
    refused(
        with(36, &u32::MAX.to_be_bytes()),
        "level 1 table is too large",
    );
    refused(with(40, &513_u64.to_be_bytes()), "does not begin with");
    refused(
        with(40, &(1_u64 << 40).to_be_bytes()),
        "level 1 table at byte",
    );
    for bytes in [0, 103, 513, u32::MAX] {
        refused(with(100, &bytes.to_be_bytes()), "its head has");
    }
    let long = [&b"abcd"[..], &u32::MAX.to_be_bytes()].concat();
    refused(with(112, &long), "longer than its cluster");
    let larger = Qcow2TestLayout { bits: 12, ..PLAIN };
    let mut many = image(&larger, &[Qcow2TestCluster::Absent]);
    put(&mut many, 112, &b"abcd\0\0\0\0".repeat(64));
    refused(many, "head has too many parts");
}

impl Qcow2Header {
    fn of(file: &[u8]) -> Result<Self, UnpackRefusal> {
        Self::read(&file.to_vec())
    }
}

#[test]
fn an_image_that_is_cut_short_anywhere_is_refused() {
    let clusters = [
        Qcow2TestCluster::Stored(filled(9, 1)),
        Qcow2TestCluster::Compressed(filled(9, 2)),
        Qcow2TestCluster::Absent,
        Qcow2TestCluster::Stored(filled(9, 3)),
    ];
    let file = image(&PLAIN, &clusters);
    assert!(Qcow2Header::of(&file).is_ok());
    for length in 0..file.len() {
        let why = unpack(Packing::Qcow2, file[..length].to_vec())
            .map(drop)
            .unwrap_err();
        let known = matches!(
            why,
            UnpackRefusal::CutShort { .. }
                | UnpackRefusal::Outside { .. }
                | UnpackRefusal::Damaged { .. }
                | UnpackRefusal::Overlap
                | UnpackRefusal::WrongFormat { .. }
        );
        assert!(known, "{length}: {why}");
    }
}

#[test]
fn tables_with_wrong_offsets_are_refused() {
    let clusters = [
        Qcow2TestCluster::Stored(filled(9, 1)),
        Qcow2TestCluster::Compressed(filled(9, 2)),
    ];
    let good = image(&PLAIN, &clusters);
    let with = |at: usize, entry: u64| {
        let mut file = good.clone();
        put(&mut file, at, &entry.to_be_bytes());
        file
    };
    let (l1, l2) = (512, 1024);
    refused(with(l1, 1 << 40), "a level 2 table at byte");
    refused(with(l1, 1024 | 2), "bits that are not known");
    refused(with(l2, 1 << 40), "a cluster at byte 1099511627776");
    refused(with(l2, 1 << 63 | 2), "bits that are not known");
    refused(with(l2, 0x3f << 56), "bits that are not known");
    let larger = Qcow2TestLayout { bits: 12, ..PLAIN };
    let mut unaligned = image(&larger, &[Qcow2TestCluster::Stored(filled(12, 1))]);
    put(&mut unaligned, 2 << 12, &(3_u64 << 12 | 512).to_be_bytes());
    refused(unaligned, "does not name a cluster");
    refused(
        with(l2 + 8, 1 << 62 | 1 << 50),
        "a compressed cluster at byte",
    );
    refused(with(l2 + 8, 3 << 62 | 1024), "marked as one that is not");
    // The start of the file is not a deflate stream that gives a cluster.
    refused(with(l2 + 8, 1 << 62), "a compressed cluster is");
}

#[test]
fn a_part_referenced_twice_is_refused_and_costs_no_more_than_the_file() {
    // Every entry of a large level 2 table refers to the same cluster.
    let clusters: Vec<Qcow2TestCluster> = (0..64).map(|_| Qcow2TestCluster::Absent).collect();
    let mut file = image(&PLAIN, &clusters);
    let at = file.len() as u64;
    file.extend(filled(9, 1));
    for index in 0..64 {
        put(&mut file, 1024 + index * 8, &at.to_be_bytes());
    }
    assert_eq!(refused(file.clone(), "twice"), UnpackRefusal::Overlap);
    let mut unpacker = Unpacker::open(Packing::Qcow2, file.clone()).unwrap();
    let mut bytes = 0;
    while let Ok(Some(piece)) = unpacker.next() {
        bytes += piece.bytes();
    }
    assert!(bytes <= file.len() as u64, "{bytes}");
    // Every entry of level 1 refers to the same table.
    let clusters: Vec<Qcow2TestCluster> = (0..64 * 64).map(|_| Qcow2TestCluster::Absent).collect();
    let mut file = image(&PLAIN, &clusters);
    let table = (file.len() - 512) as u64;
    for index in 0..64 {
        put(&mut file, 512 + index * 8, &table.to_be_bytes());
    }
    file.truncate(file.len() - 512 * 40);
    file.resize(table as usize + 512 - 512 * 10, 0);
    let why = unpack(Packing::Qcow2, file).map(drop).unwrap_err();
    assert!(
        matches!(why, UnpackRefusal::Overlap | UnpackRefusal::Outside { .. }),
        "{why}"
    );
}

#[test]
fn a_large_empty_disk_is_one_run_of_zeros() {
    // 16 TiB without data: clusters of 2 MiB, 32 entries of level 1, all absent.
    let form = Qcow2TestLayout {
        bits: 21,
        size: RAW_BYTES_MAX,
        ..PLAIN
    };
    let mut file = image(&form, &[Qcow2TestCluster::Absent]);
    put(&mut file, 36, &32_u32.to_be_bytes());
    put(&mut file, 1 << 21, &[0; 8]);
    let mut unpacker = Unpacker::open(Packing::Qcow2, file).unwrap();
    assert_eq!(unpacker.size(), Some(RAW_BYTES_MAX));
    let piece = unpacker.next().unwrap();
    assert_eq!(piece, Some(RawImagePiece::Zeros(RAW_BYTES_MAX)));
    assert_eq!(unpacker.next(), Ok(None));
}
