//! Reads the clusters of a qcow2 in the order of the raw image.
//!
//! Only the active state is read: snapshots, bitmaps and reference counts are skipped. One
//! level 2 table and a window of the level 1 table are in memory at a time. In a valid image
//! every table and every cluster of the active state exists once; so their sizes are added up,
//! and when the sum is more than the size of the file, some were referenced twice. That bounds
//! the work for any input.

mod compressed;
mod header;

#[cfg(test)]
mod tests;

use compressed::{CompressedCluster, CompressedClusterRange};
use header::{Qcow2Header, damaged, within};

use crate::piece::BufferedPiece;
use crate::{ReadAt, UnpackRefusal};

/// Entries of the level 1 table in memory.
const L1_WINDOW: u64 = 4096;

/// Bits of table entries.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;

/// Subclusters per cluster, if the image has them.
const SUBCLUSTERS: u64 = 32;

/// A qcow2 that is being read.
pub(crate) struct Qcow2Reader<S> {
    source: S,
    header: Qcow2Header,
    /// Offset of the next piece in the raw image.
    at: u64,
    /// Entries of the level 1 table, starting at this one.
    l1: Vec<u8>,
    l1_from: u64,
    /// The level 2 table of this level 1 entry; empty if it has none.
    l2: Vec<u8>,
    l2_of: Option<u64>,
    compressed: Option<CompressedCluster>,
    /// Index of the cluster that is decompressed in the buffer.
    compressed_index: Option<u64>,
    /// Bytes of the file that were referenced so far.
    referenced_bytes: u64,
}

/// The content of a part of the raw image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Qcow2Extent {
    Zeros(u64),
    /// Bytes stored at this offset of the file.
    Stored {
        at: u64,
        bytes: u64,
    },
    /// Bytes within the decompressed cluster.
    Compressed {
        from: u64,
        bytes: u64,
    },
}

impl<S: ReadAt> Qcow2Reader<S> {
    pub(crate) fn open(source: S) -> Result<Self, UnpackRefusal> {
        let header = Qcow2Header::read(&source)?;
        Ok(Self {
            referenced_bytes: header.l1_entries * 8,
            source,
            header,
            at: 0,
            l1: Vec::new(),
            l1_from: 0,
            l2: Vec::new(),
            l2_of: None,
            compressed: None,
            compressed_index: None,
        })
    }

    pub(crate) fn size(&self) -> u64 {
        self.header.size
    }

    pub(crate) fn next(
        &mut self,
        buffer: &mut [u8],
    ) -> Result<Option<BufferedPiece>, UnpackRefusal> {
        let mut zeros = 0;
        while self.at < self.header.size {
            match self.extent()? {
                Qcow2Extent::Zeros(bytes) => {
                    zeros += bytes;
                    self.at += bytes;
                }
                // Zeros before this part are returned first; this part is read again.
                _ if zeros > 0 => break,
                extent => return self.read_extent(extent, buffer).map(Some),
            }
        }
        Ok((zeros > 0).then_some(BufferedPiece::Zeros(zeros)))
    }

    fn read_extent(
        &mut self,
        extent: Qcow2Extent,
        buffer: &mut [u8],
    ) -> Result<BufferedPiece, UnpackRefusal> {
        let most = buffer.len() as u64;
        let bytes = match extent {
            Qcow2Extent::Zeros(_) => return Ok(BufferedPiece::Zeros(0)),
            Qcow2Extent::Stored { at, bytes } => {
                let bytes = bytes.min(most);
                let length = self.source.length();
                within("a cluster", at, bytes, length)?;
                self.count_referenced(bytes)?;
                self.source.read(&mut buffer[..bytes as usize], at)?;
                bytes as usize
            }
            Qcow2Extent::Compressed { from, bytes } => {
                let (from, bytes) = (from as usize, bytes.min(most) as usize);
                let cluster = self.compressed.as_ref().map(|it| it.cluster.as_slice());
                let part = cluster.and_then(|all| all.get(from..from + bytes));
                buffer[..bytes].copy_from_slice(part.ok_or(UnpackRefusal::Overlap)?);
                bytes
            }
        };
        self.at += bytes as u64;
        Ok(BufferedPiece::of(&buffer[..bytes]))
    }

    /// Counts bytes of the file as referenced.
    fn count_referenced(&mut self, bytes: u64) -> Result<(), UnpackRefusal> {
        self.referenced_bytes = self.referenced_bytes.saturating_add(bytes);
        if self.referenced_bytes > self.source.length() {
            return Err(UnpackRefusal::Overlap);
        }
        Ok(())
    }

    /// The next part of the raw image, within one entry.
    fn extent(&mut self) -> Result<Qcow2Extent, UnpackRefusal> {
        let covers = self.header.l2_covers();
        let l1_index = self.at / covers;
        self.load_l2(l1_index)?;
        let left = self.header.size - self.at;
        if self.l2.is_empty() {
            return Ok(Qcow2Extent::Zeros((covers - self.at % covers).min(left)));
        }
        let cluster_bytes = self.header.cluster_bytes();
        let within = self.at % cluster_bytes;
        let entry_bytes = self.header.entry_bytes();
        let index = (self.at % covers) >> self.header.cluster_bits;
        let entry_at = index as usize * entry_bytes;
        let entry = self.l2.get(entry_at..entry_at + entry_bytes);
        let entry = entry.ok_or_else(|| damaged("a level 2 table is too short"))?;
        let (entry, map) = entry.split_at(8);
        let (entry, map) = (number(entry), number(map));
        let extent = if entry & COMPRESSED != 0 {
            self.decompress(entry)?;
            Qcow2Extent::Compressed {
                from: within,
                bytes: cluster_bytes - within,
            }
        } else if self.header.extended {
            self.subclusters(entry, map, within)?
        } else {
            self.cluster(entry, within)?
        };
        Ok(extent.at_most(left))
    }

    /// A cluster without subclusters.
    fn cluster(&self, entry: u64, within: u64) -> Result<Qcow2Extent, UnpackRefusal> {
        let bytes = self.header.cluster_bytes() - within;
        let offset = self.offset(entry & !ZERO)?;
        if entry & ZERO != 0 && self.header.version < 3 {
            return Err(damaged("a cluster of version 2 is marked as zeros"));
        }
        if entry & ZERO != 0 || offset == 0 {
            return Ok(Qcow2Extent::Zeros(bytes));
        }
        let at = offset + within;
        Ok(Qcow2Extent::Stored { at, bytes })
    }

    /// A cluster with subclusters, each of which is allocated, zero or absent: the lower half
    /// of the bitmap has the allocated ones, the upper half those that are zero.
    fn subclusters(&self, entry: u64, map: u64, within: u64) -> Result<Qcow2Extent, UnpackRefusal> {
        let offset = self.offset(entry)?;
        let (there, zeros) = (map as u32, (map >> 32) as u32);
        if there & zeros != 0 || (there != 0 && offset == 0) {
            return Err(damaged("a subcluster bitmap contradicts itself"));
        }
        let bytes = self.header.cluster_bytes() / SUBCLUSTERS;
        let is_there = |index: u64| there >> index & 1 == 1;
        let first = within / bytes;
        let mut last = first;
        while last + 1 < SUBCLUSTERS && is_there(last + 1) == is_there(first) {
            last += 1;
        }
        let length = (last + 1) * bytes - within;
        if is_there(first) {
            let at = offset + within;
            return Ok(Qcow2Extent::Stored { at, bytes: length });
        }
        Ok(Qcow2Extent::Zeros(length))
    }

    /// The offset in an entry of an uncompressed cluster.
    fn offset(&self, entry: u64) -> Result<u64, UnpackRefusal> {
        let offset = entry & OFFSET;
        if entry & !(OFFSET | COPIED) != 0 {
            return Err(damaged("an entry of a table has bits that are not known"));
        }
        if !offset.is_multiple_of(self.header.cluster_bytes()) {
            return Err(damaged("an entry of a table does not name a cluster"));
        }
        Ok(offset)
    }

    /// Decompresses the next cluster, unless it is in the buffer.
    fn decompress(&mut self, entry: u64) -> Result<(), UnpackRefusal> {
        let cluster = self.at >> self.header.cluster_bits;
        if self.compressed_index == Some(cluster) {
            return Ok(());
        }
        if entry & COPIED != 0 {
            return Err(damaged("a compressed cluster is marked as one that is not"));
        }
        let place = CompressedClusterRange::of(entry, self.header.cluster_bits);
        let squeezed = match &mut self.compressed {
            Some(squeezed) => squeezed,
            none => none.insert(CompressedCluster::new(
                self.header.compression,
                self.header.cluster_bytes() as usize,
            )?),
        };
        let bytes = squeezed.read(&self.source, place)?;
        self.compressed_index = Some(cluster);
        self.count_referenced(bytes)
    }

    /// Reads the level 2 table of this level 1 entry, unless it is in memory.
    fn load_l2(&mut self, l1_index: u64) -> Result<(), UnpackRefusal> {
        if self.l2_of == Some(l1_index) {
            return Ok(());
        }
        let entry = self.l1_entry(l1_index)?;
        let offset = self.offset(entry)?;
        self.l2.clear();
        if offset != 0 {
            let bytes = self.header.cluster_bytes();
            within("a level 2 table", offset, bytes, self.source.length())?;
            self.count_referenced(bytes)?;
            self.l2.resize(bytes as usize, 0);
            self.source.read(&mut self.l2, offset)?;
        }
        self.l2_of = Some(l1_index);
        Ok(())
    }

    fn l1_entry(&mut self, index: u64) -> Result<u64, UnpackRefusal> {
        let from = index - index % L1_WINDOW;
        if self.l1.is_empty() || self.l1_from != from {
            let entries = (self.header.l1_entries - from).min(L1_WINDOW);
            self.l1.resize(entries as usize * 8, 0);
            self.source
                .read(&mut self.l1, self.header.l1_at + from * 8)?;
            self.l1_from = from;
        }
        let at = (index - from) as usize * 8;
        let entry = self.l1.get(at..at + 8);
        Ok(number(entry.ok_or_else(|| {
            damaged("its level 1 table is too short")
        })?))
    }
}

impl Qcow2Extent {
    fn at_most(self, most: u64) -> Self {
        match self {
            Self::Zeros(bytes) => Self::Zeros(bytes.min(most)),
            Self::Stored { at, bytes } => Self::Stored {
                at,
                bytes: bytes.min(most),
            },
            Self::Compressed { from, bytes } => Self::Compressed {
                from,
                bytes: bytes.min(most),
            },
        }
    }
}

/// A big-endian number of eight bytes; 0 if there are fewer.
fn number(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.first().map_or(0, |word| u64::from_be_bytes(*word))
}
