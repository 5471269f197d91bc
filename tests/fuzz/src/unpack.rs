//! Packed images: qcow2, and streams of zstd, gzip and xz.

use trivet_unpack::{Packing, RAW_BYTES_MAX, RawImagePiece, Unpacker, WINDOW_BYTES_MAX};

use crate::FuzzTarget;

pub(crate) const QCOW2: FuzzTarget = FuzzTarget {
    name: "unpack_qcow2",
    run: qcow2,
    seeds: qcow2_seeds,
    regressions: &[],
};

pub(crate) const STREAMS: FuzzTarget = FuzzTarget {
    name: "unpack_streams",
    run: streams,
    seeds: stream_seeds,
    regressions: &[],
};

/// Most output for an input of this size: a block of zstd has three bytes and can represent 128
/// KiB (RFC 8878), an image of qcow2 as much per compressed byte.
const BYTES_PER_BYTE_MAX: u64 = 128 * 1024;

/// Unpacks all of it, and checks its bounds.
fn unpack(packing: Packing, packed: &[u8]) {
    let Ok(mut unpacker) = Unpacker::open(packing, packed.to_vec()) else {
        return;
    };
    let size = unpacker.size();
    let bound = (packed.len() as u64 + 1) * BYTES_PER_BYTE_MAX + WINDOW_BYTES_MAX;
    let (mut data, mut zeros, mut pieces) = (0, 0, 0_u64);
    let whole = loop {
        match unpacker.next() {
            Ok(Some(RawImagePiece::Data(bytes))) => {
                assert!(bytes.iter().any(|byte| *byte != 0), "zeros as bytes");
                data += bytes.len() as u64;
            }
            Ok(Some(RawImagePiece::Zeros(bytes))) => {
                assert!(bytes > 0, "nothing as zeros");
                zeros += bytes;
            }
            Ok(None) => break true,
            Err(refusal) => {
                assert!(refusal.to_string().len() < 8192);
                break false;
            }
        }
        pieces += 1;
        assert!(data <= bound, "{data} bytes out of {}", packed.len());
        assert!(data + zeros <= RAW_BYTES_MAX, "larger than any image");
        assert!(pieces <= bound / 512, "{pieces} pieces");
    };
    if let (true, Some(size)) = (whole, size) {
        assert_eq!(data + zeros, size, "another size than declared");
    }
    assert_eq!(unpacker.next(), Ok(None), "more after the end");
}

fn qcow2(bytes: &[u8]) {
    let mut packed = bytes.to_vec();
    // A fuzzer finds the magic, but need not search for it each time.
    if let Some(magic) = packed.get_mut(..4) {
        magic.copy_from_slice(b"QFI\xfb");
    }
    unpack(Packing::Qcow2, &packed);
}

fn streams(bytes: &[u8]) {
    for packing in Packing::ALL {
        if packing != Packing::Qcow2 {
            unpack(packing, bytes);
        }
    }
}

/// A header, a level 1 table and a level 2 table with these entries, followed by clusters of
/// 512 bytes. Features and compression are those of version 3.
fn image(version: u32, features: u64, compression: u8, entries: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 3 * 512];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb");
    put(4, &version.to_be_bytes());
    put(20, &9_u32.to_be_bytes());
    put(24, &(entries.len() as u64 * 512).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &512_u64.to_be_bytes());
    if version > 2 {
        put(72, &features.to_be_bytes());
        put(100, &112_u32.to_be_bytes());
        put(104, &[compression]);
    }
    put(512, &1024_u64.to_be_bytes());
    for (index, entry) in entries.iter().enumerate() {
        put(1024 + index * 8, &entry.to_be_bytes());
    }
    file.extend_from_slice(rest);
    file
}

fn qcow2_seeds() -> Vec<Vec<u8>> {
    let data = [&[7; 512][..], &[8; 512]].concat();
    // Deflate (RFC 1951): a stored block of 512 bytes; zstd: a frame with a run of 512.
    let deflate = [&[1, 0, 2, 0xff, 0xfd][..], &[5; 512]].concat();
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x60, 0, 1, 3, 16, 0, 9];
    let squeezed = 1 << 62 | 1 << 61 | 0x600;
    let mut named = image(3, 0, 0, &[0], &[]);
    named[112..128].copy_from_slice(b"\xe2\x79\x2a\xca\0\0\0\x05qcow2\0\0\0");
    let mut backed = image(2, 0, 0, &[0], &[]);
    backed[15] = 200;
    backed[19] = 4;
    let mut parts = image(3, 16, 0, &[0], &[]);
    parts[23] = 14;
    parts.resize(4096, 0);
    vec![
        image(2, 0, 0, &[1536, 0, 2048], &data),
        image(3, 1, 0, &[1536, 1, 0x800 | 1 << 63], &data),
        image(3, 0, 0, &[squeezed, 0, 1], &deflate),
        image(3, 8, 1, &[squeezed & !(1 << 61), 1], &zstd),
        named,
        backed,
        parts,
    ]
}

fn stream_seeds() -> Vec<Vec<u8>> {
    // A line as packed by gzip -n, zstd and xz --check=sha256.
    let packed = [
        "1f8b0800000000000003cb48cdc9c9e7020020303a3606000000",
        "28b52ffd045831000068656c6c6f0a5388bd91",
        "fd377a585a00000ae1fb0ca10200210116000000742fe5a301000568656c6c6f0a000000\
         5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be0300013606\
         6b81f940189b4b9a01000000000a595a",
    ];
    let mut seeds: Vec<Vec<u8>> = packed
        .iter()
        .filter_map(|hex| crate::from_hex(hex))
        .collect();
    let twice: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.repeat(2)).collect();
    seeds.extend(twice);
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_images() {
        let good = |packing: Packing, seed: &Vec<u8>| {
            let mut unpacker = Unpacker::open(packing, seed.clone())?;
            while unpacker.next()?.is_some() {}
            Ok::<(), trivet_unpack::UnpackRefusal>(())
        };
        for (at, seed) in qcow2_seeds()[..5].iter().enumerate() {
            assert_eq!(good(Packing::Qcow2, seed), Ok(()), "{at}");
        }
        for seed in stream_seeds() {
            let packing = Packing::of_magic(&seed).expect("a magic");
            assert_eq!(good(packing, &seed), Ok(()));
        }
    }
}
