//! Streams, and tests for all packings.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use zstd_safe::{CCtx, CParameter};

use crate::{Packing, RawImagePiece, ReadAt, UnpackRefusal, Unpacker};

/// The whole image: its bytes, and how many of them were returned as zeros.
pub(crate) fn unpack<S>(packing: Packing, source: S) -> Result<(Vec<u8>, u64), UnpackRefusal>
where
    S: ReadAt + Send + 'static,
{
    let mut unpacker = Unpacker::open(packing, source)?;
    let (mut raw, mut zeros) = (Vec::new(), 0);
    while let Some(piece) = unpacker.next()? {
        match piece {
            RawImagePiece::Data(bytes) => raw.extend_from_slice(bytes),
            RawImagePiece::Zeros(bytes) => {
                assert!(bytes > 0);
                raw.resize(raw.len() + bytes as usize, 0);
                zeros += bytes;
            }
        }
    }
    assert_eq!(unpacker.next(), Ok(None));
    Ok((raw, zeros))
}

/// Bytes, a run of zeros, and bytes again.
fn sample() -> Vec<u8> {
    let mut raw: Vec<u8> = (0..100_000_u64).map(|at| ((at * at) >> 7) as u8).collect();
    raw.resize(500_000, 0);
    raw.extend((0..70_000_u32).map(|at| ((at * 31) >> 3) as u8));
    raw
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(raw).unwrap();
    encoder.finish().unwrap()
}

fn xz(raw: &[u8]) -> Vec<u8> {
    xz_with(raw, 1 << 20)
}

fn xz_with(raw: &[u8], dictionary: u32) -> Vec<u8> {
    let mut options = XzOptions::with_preset(1);
    options.lzma_options.dict_size = dictionary;
    let mut encoder = XzWriter::new(Vec::new(), options).unwrap();
    encoder.write_all(raw).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(raw: &[u8]) -> Vec<u8> {
    let mut context = CCtx::create();
    context
        .set_parameter(CParameter::ChecksumFlag(true))
        .unwrap();
    zstd_by(context, raw)
}

fn zstd_by(mut context: CCtx<'_>, raw: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; zstd_safe::compress_bound(raw.len())];
    let bytes = context.compress2(&mut packed[..], raw).unwrap();
    packed.truncate(bytes);
    packed
}

type PackFn = fn(&[u8]) -> Vec<u8>;

const STREAMS: [(Packing, PackFn); 3] = [
    (Packing::Gzip, gzip),
    (Packing::Xz, xz),
    (Packing::Zstd, zstd),
];

#[test]
fn streams_are_unpacked_unchanged_and_zeros_are_not_stored() {
    let raw = sample();
    for (packing, pack) in STREAMS {
        let (got, zeros) = unpack(packing, pack(&raw)).unwrap();
        assert!(got == raw, "{packing}");
        // Pieces that are all zeros: those between the first and the last byte.
        assert!(zeros >= 300_000, "{packing}: {zeros}");
        let (got, _) = unpack(packing, pack(b"")).unwrap();
        assert_eq!(got, b"", "{packing}");
    }
}

#[test]
fn many_streams_in_one_file_are_one_image() {
    let raw = sample();
    let (front, back) = raw.split_at(123_456);
    for (packing, pack) in STREAMS {
        let both = [pack(front), pack(back), pack(b"")].concat();
        let (got, _) = unpack(packing, both).unwrap();
        assert!(got == raw, "{packing}");
    }
    // A skippable frame of zstd, first and in between (RFC 8878).
    let skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec();
    let both = [skipped.clone(), zstd(front), skipped, zstd(back)].concat();
    assert!(unpack(Packing::Zstd, both).unwrap().0 == raw);
    // Zeros may follow a stream of xz, four at a time.
    let padded = [xz(front), vec![0; 8], xz(back), vec![0; 4]].concat();
    assert!(unpack(Packing::Xz, padded).unwrap().0 == raw);
}

#[test]
fn a_stream_that_is_cut_short_anywhere_is_refused() {
    let raw: Vec<u8> = (0..3000_u32).map(|at| ((at * 7) >> 4) as u8).collect();
    for (packing, pack) in STREAMS {
        let packed = pack(&raw);
        for length in 1..packed.len() {
            let why = unpack(packing, packed[..length].to_vec())
                .map(drop)
                .unwrap_err();
            let known = matches!(
                why,
                UnpackRefusal::CutShort { .. }
                    | UnpackRefusal::Damaged { .. }
                    | UnpackRefusal::WrongFormat { .. }
            );
            assert!(known, "{packing} {length}: {why}");
        }
        let almost = packed[..packed.len() - 1].to_vec();
        let why = unpack(packing, almost).map(drop).unwrap_err();
        assert!(why.to_string().contains("cut short"), "{packing}: {why}");
    }
}

#[test]
fn a_stream_with_a_changed_byte_is_refused_or_the_same() {
    let raw: Vec<u8> = (0..3000_u32).map(|at| ((at * 7) >> 4) as u8).collect();
    for (packing, pack) in STREAMS {
        let packed = pack(&raw);
        let mut refused = 0;
        for at in 0..packed.len() {
            let mut changed = packed.clone();
            changed[at] ^= 0x10;
            match unpack(packing, changed) {
                // The time and the system in a gzip header do not affect the bytes.
                Ok((got, _)) => assert!(got == raw, "{packing}: byte {at}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused + 10 >= packed.len(), "{packing}: {refused}");
    }
}

#[test]
fn trailing_bytes_after_a_stream_are_refused() {
    for (packing, pack) in STREAMS {
        for more in [&b"and more bytes than a head has"[..], b"x", &[0; 17]] {
            let packed = [pack(b"an image"), more.to_vec()].concat();
            let why = unpack(packing, packed).map(drop).unwrap_err();
            let known = matches!(
                why,
                UnpackRefusal::CutShort { .. } | UnpackRefusal::Damaged { .. }
            );
            assert!(known, "{packing}: {why}");
        }
    }
}

#[test]
fn a_stream_that_wants_too_much_memory_is_refused() {
    // A frame whose window has 2^28 bytes (RFC 8878 section 3.1.1.1.2), and an empty block.
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0, (28 - 10) << 3, 1, 0, 0];
    let why = unpack(Packing::Zstd, head.to_vec()).map(drop).unwrap_err();
    assert_eq!(why, UnpackRefusal::Window);
    assert!(why.to_string().contains("128 MiB"), "{why}");
    let smaller = [0x28, 0xb5, 0x2f, 0xfd, 0, (27 - 10) << 3, 1, 0, 0];
    assert_eq!(
        unpack(Packing::Zstd, smaller.to_vec()).unwrap().0,
        Vec::<u8>::new()
    );
    let why = unpack(Packing::Xz, xz_with(b"an image", 192 << 20))
        .map(drop)
        .unwrap_err();
    assert_eq!(why, UnpackRefusal::Window);
    let (got, _) = unpack(Packing::Xz, xz_with(b"an image", 128 << 20)).unwrap();
    assert_eq!(got, b"an image");
}

#[test]
fn a_stream_of_the_tools_themselves_is_read() {
    // printf 'hello\n' | xz --check=sha256 | xxd -p, and the same for gzip -n and zstd.
    let samples = [
        (
            Packing::Gzip,
            "1f8b0800000000000003cb48cdc9c9e7020020303a3606000000",
        ),
        (Packing::Zstd, "28b52ffd045831000068656c6c6f0a5388bd91"),
        (
            Packing::Xz,
            "fd377a585a00000ae1fb0ca10200210116000000742fe5a301000568656c6c6f0a000000\
             5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be0300013606\
             6b81f940189b4b9a01000000000a595a",
        ),
    ];
    for (packing, hex) in samples {
        let byte = |pair: &[u8]| {
            let text = core::str::from_utf8(pair).unwrap();
            u8::from_str_radix(text, 16).unwrap()
        };
        let packed: Vec<u8> = hex.as_bytes().chunks(2).map(byte).collect();
        assert_eq!(unpack(packing, packed).unwrap().0, b"hello\n", "{packing}");
    }
}

/// A file on a disk that fails after some bytes.
struct FailingPackedSource(Vec<u8>, u64);

impl ReadAt for FailingPackedSource {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if at + buffer.len() as u64 > self.1 {
            return Err(io::Error::other("the disk failed"));
        }
        self.0.read_exact_at(buffer, at)
    }
}

#[test]
fn a_disk_that_fails_is_not_reported_as_a_damaged_image() {
    // Bytes that do not compress: a linear congruential generator, of which only the high bits
    // are used.
    let mut seed = 1_u64;
    let mut byte = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    };
    let raw: Vec<u8> = (0..400_000).map(|_| byte()).collect();
    for (packing, pack) in STREAMS {
        let packed = pack(&raw);
        for works in [0, 100_000] {
            let why = unpack(packing, FailingPackedSource(packed.clone(), works))
                .map(drop)
                .unwrap_err();
            let declared = UnpackRefusal::Unreadable("the disk failed".to_owned());
            assert_eq!(why, declared, "{packing} {works}");
        }
    }
}
