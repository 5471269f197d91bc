//! The header of a qcow2, after QEMU's specification (docs/interop/qcow2.txt).

use crate::{Packing, RAW_BYTES_MAX, ReadAt, UnpackRefusal};

/// Bytes of the header of version 2, and the shortest of version 3.
const V2_BYTES: usize = 72;
const V3_BYTES: usize = 104;
/// Including the field of the compression type.
const HEAD_BYTES: usize = V3_BYTES + 8;

/// Clusters have 512 bytes to 2 MiB; with subclusters at least 16 KiB, which are 32 of 512.
const CLUSTER_BITS_MIN: u32 = 9;
const CLUSTER_BITS_MAX: u32 = 21;
const SUBCLUSTERED_BITS_MIN: u32 = 14;

/// The largest level 1 table, the limit of QEMU.
const L1_BYTES_MAX: u64 = 32 << 20;

/// Sizes are multiples of this.
const SECTOR_BYTES: u64 = 512;

/// Most header extensions. There are five types. Ours.
const EXTENSIONS_MAX: usize = 64;

/// The longest name that is shown; also QEMU's limit.
const NAME_BYTES_MAX: u64 = 1023;

/// Incompatible feature bits.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// Types of header extensions that refer to other files.
const END: u32 = 0;
const DATA_FILE_NAME: u32 = 0x4441_5441;
const ENCRYPTION: u32 = 0x0537_be77;

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Qcow2Compression {
    Deflate,
    Zstd,
}

/// The validated fields of the header that are needed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Qcow2Header {
    pub(super) version: u32,
    pub(super) cluster_bits: u32,
    /// Size of the raw image.
    pub(super) size: u64,
    pub(super) l1_at: u64,
    /// As many entries as the size needs.
    pub(super) l1_entries: u64,
    pub(super) compression: Qcow2Compression,
    /// Level 2 entries have a bitmap of 32 subclusters.
    pub(super) extended: bool,
}

impl Qcow2Header {
    pub(super) fn read(source: &impl ReadAt) -> Result<Self, UnpackRefusal> {
        let mut bytes = [0; HEAD_BYTES];
        let length = source.length();
        let there = length.min(HEAD_BYTES as u64) as usize;
        source.read(&mut bytes[..there], 0)?;
        let head = Qcow2HeaderFields(&bytes);
        let version = head.u32(4);
        if there < 8 {
            return Err(cut_short());
        }
        if !matches!(version, 2 | 3) {
            return Err(UnpackRefusal::Version(version));
        }
        let least = if version == 2 { V2_BYTES } else { V3_BYTES };
        if there < least {
            return Err(cut_short());
        }
        let (features, own_bytes) = match version {
            2 => (0, V2_BYTES as u64),
            _ => (head.u64(72), u64::from(head.u32(100))),
        };
        let cluster_bits = head.u32(20);
        if !(CLUSTER_BITS_MIN..=CLUSTER_BITS_MAX).contains(&cluster_bits) {
            return Err(damaged(format!("its clusters have 2^{cluster_bits} bytes")));
        }
        if own_bytes < least as u64 || own_bytes > 1 << cluster_bits {
            return Err(damaged(format!("its head has {own_bytes} bytes")));
        }
        check_self_contained(source, &head, features, own_bytes, 1 << cluster_bits)?;
        let extended = features & EXTENDED_L2 != 0;
        if extended && cluster_bits < SUBCLUSTERED_BITS_MIN {
            return Err(damaged("its clusters are too small for subclusters"));
        }
        let kind = if own_bytes > V3_BYTES as u64 && there > V3_BYTES {
            bytes[V3_BYTES]
        } else {
            0
        };
        let compression = match kind {
            0 => Qcow2Compression::Deflate,
            1 => Qcow2Compression::Zstd,
            other => return Err(damaged(format!("its compression {other} is not known"))),
        };
        if (compression != Qcow2Compression::Deflate) != (features & COMPRESSION != 0) {
            return Err(damaged("its head contradicts itself about its compression"));
        }
        let mut header = Self {
            version,
            cluster_bits,
            size: head.u64(24),
            l1_at: head.u64(40),
            l1_entries: u64::from(head.u32(36)),
            compression,
            extended,
        };
        header.check_tables(length)?;
        Ok(header)
    }

    pub(super) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Bytes of a level 2 entry.
    pub(super) fn entry_bytes(&self) -> usize {
        if self.extended { 16 } else { 8 }
    }

    /// Bytes of the raw image that one level 2 table covers.
    pub(super) fn l2_covers(&self) -> u64 {
        (self.cluster_bytes() / self.entry_bytes() as u64) << self.cluster_bits
    }

    fn check_tables(&mut self, length: u64) -> Result<(), UnpackRefusal> {
        if self.size > RAW_BYTES_MAX {
            return Err(UnpackRefusal::TooLarge { bytes: self.size });
        }
        if !self.size.is_multiple_of(SECTOR_BYTES) {
            return Err(damaged(format!("its size of {} is odd", self.size)));
        }
        let needed = self.size.div_ceil(self.l2_covers());
        if self.l1_entries < needed {
            return Err(damaged("its level 1 table is too small for its size"));
        }
        if self.l1_entries * 8 > L1_BYTES_MAX {
            return Err(damaged("its level 1 table is too large"));
        }
        if !self.l1_at.is_multiple_of(self.cluster_bytes()) {
            return Err(damaged("its level 1 table does not begin with a cluster"));
        }
        self.l1_entries = needed;
        within("its level 1 table", self.l1_at, needed * 8, length)
    }
}

/// Rejects an image that refers to other files or is encrypted.
fn check_self_contained(
    source: &impl ReadAt,
    head: &Qcow2HeaderFields<'_>,
    features: u64,
    own_bytes: u64,
    cluster_bytes: u64,
) -> Result<(), UnpackRefusal> {
    let (backing_at, backing_bytes) = (head.u64(8), u64::from(head.u32(16)));
    if backing_at != 0 {
        return Err(UnpackRefusal::BackingFile(name(
            source,
            backing_at,
            backing_bytes,
        )));
    }
    match head.u32(32) {
        0 => {}
        1 => return Err(UnpackRefusal::Encrypted("AES")),
        2 => return Err(UnpackRefusal::Encrypted("LUKS")),
        _ => return Err(UnpackRefusal::Encrypted("in a way that is not known")),
    }
    let data_file = data_file_name(source, own_bytes, cluster_bytes)?;
    if features & DATA_FILE != 0 || data_file.is_some() {
        let unnamed = || "without a name".to_owned();
        return Err(UnpackRefusal::DataFile(data_file.unwrap_or_else(unnamed)));
    }
    if features & CORRUPT != 0 {
        return Err(UnpackRefusal::Corrupt);
    }
    let unknown = features & !(DIRTY | CORRUPT | DATA_FILE | COMPRESSION | EXTENDED_L2);
    if unknown != 0 {
        return Err(UnpackRefusal::Features(unknown));
    }
    Ok(())
}

/// Reads the header extensions, up to the end of the first cluster, and looks for references to
/// other files.
fn data_file_name(
    source: &impl ReadAt,
    own_bytes: u64,
    cluster_bytes: u64,
) -> Result<Option<String>, UnpackRefusal> {
    let ends = cluster_bytes.min(source.length());
    // Extensions are aligned to eight bytes.
    let mut at = own_bytes.next_multiple_of(8);
    let mut found = None;
    for _ in 0..EXTENSIONS_MAX {
        if at + 8 > ends {
            return Ok(found);
        }
        let mut part = [0; 8];
        source.read(&mut part, at)?;
        let part = Qcow2HeaderFields(&part);
        let (kind, bytes) = (part.u32(0), u64::from(part.u32(4)));
        at += 8;
        if kind == END {
            return Ok(found);
        }
        if bytes > ends.saturating_sub(at) {
            return Err(damaged("a part of its head is longer than its cluster"));
        }
        match kind {
            DATA_FILE_NAME => found = Some(name(source, at, bytes)),
            ENCRYPTION => return Err(UnpackRefusal::Encrypted("LUKS")),
            _ => {}
        }
        at += bytes.next_multiple_of(8);
    }
    Err(damaged("its head has too many parts"))
}

/// A name in printable form.
fn name(source: &impl ReadAt, at: u64, bytes: u64) -> String {
    let mut name = vec![0; bytes.min(NAME_BYTES_MAX) as usize];
    if source.read(&mut name, at).is_err() {
        return "whose name cannot be read".to_owned();
    }
    let text = String::from_utf8_lossy(&name);
    text.chars()
        .map(|one| if one.is_control() { '?' } else { one })
        .collect()
}

/// Checks that a part is within the file.
pub(super) fn within(
    what: &'static str,
    at: u64,
    bytes: u64,
    length: u64,
) -> Result<(), UnpackRefusal> {
    match at.checked_add(bytes) {
        Some(end) if end <= length => Ok(()),
        _ => Err(UnpackRefusal::Outside { what, at, length }),
    }
}

pub(super) fn damaged(why: impl Into<String>) -> UnpackRefusal {
    UnpackRefusal::damaged(Packing::Qcow2, why)
}

fn cut_short() -> UnpackRefusal {
    UnpackRefusal::CutShort {
        packing: Packing::Qcow2,
        what: "its head",
    }
}

/// Big-endian fields. Callers use only offsets within the bytes.
struct Qcow2HeaderFields<'bytes>(&'bytes [u8]);

impl Qcow2HeaderFields<'_> {
    fn u32(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|it| it.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    }

    fn u64(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|it| it.try_into().ok());
        u64::from_be_bytes(bytes.unwrap_or_default())
    }
}
