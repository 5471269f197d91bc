//! The thread that unpacks a disk from its image: it verifies what it reads, hashes
//! what it writes, and leaves holes where there are only zeros.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use trivet_chunks::{CHUNK_BYTES, ChunkList, DigestAlgorithm, IncrementalDigest};
use trivet_model::Digest;
use trivet_unpack::{Packing, RawImagePiece, ReadAt, UnpackRefusal, Unpacker};

use super::entry::CacheEntry;

/// Where an image does not declare the size of its disk, space is reserved in steps of
/// this size.
const RESERVE_STEP_BYTES: u64 = 256 * 1024 * 1024;

/// Chunks of the image in memory: its tables and its data may be far apart.
const CHUNKS_CACHED_MAX: usize = 4;

/// Zeros that are hashed at a time.
const ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];

/// A disk that was unpacked into the cache.
pub(super) struct UnpackedDisk {
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) list: ChunkList,
}

/// Why a disk was not unpacked.
pub(super) enum DiskUnpackError {
    Refused(UnpackRefusal),
    NoSpace {
        bytes: u64,
        why: String,
    },
    Disk(io::Error),
    /// The image has changed since its digest was verified.
    Corrupt,
    /// The image was removed.
    Removed,
}

impl From<io::Error> for DiskUnpackError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Reserves space for a disk of this many bytes. The error is an instruction for the
/// operator.
pub(super) type ReserveSpaceFn<'a> = &'a dyn Fn(u64) -> Result<(), String>;

pub(super) struct UnpackWorker {
    image: CheckedImageSource,
    entry: Arc<CacheEntry>,
    file: Arc<File>,
    /// Only these chunks are written; the others are correct.
    only: Option<BTreeSet<u64>>,
    running: IncrementalDigest,
    list: ChunkList,
}

impl UnpackWorker {
    /// From an image (its file, chunk list, digest and size) into the file of an entry.
    pub(super) fn new(
        image: (Arc<File>, ChunkList, Digest, u64),
        (entry, into): (Arc<CacheEntry>, Arc<File>),
        only: Option<Vec<u64>>,
    ) -> Self {
        let (file, list, digest, size) = image;
        Self {
            image: CheckedImageSource {
                file,
                list,
                digest,
                size,
                recent_chunks: RefCell::default(),
            },
            entry,
            file: into,
            only: only.map(BTreeSet::from_iter),
            running: IncrementalDigest::new(DigestAlgorithm::Sha256),
            list: ChunkList::new(&Digest::Sha256([0; 32])),
        }
    }

    pub(super) fn run(
        mut self,
        packing: Packing,
        reserve_space: ReserveSpaceFn<'_>,
    ) -> Result<UnpackedDisk, DiskUnpackError> {
        let none = CheckedImageSource {
            file: Arc::clone(&self.image.file),
            list: ChunkList::new(&self.image.digest),
            digest: self.image.digest,
            size: 0,
            recent_chunks: RefCell::default(),
        };
        let image = std::mem::replace(&mut self.image, none);
        let mut unpacker = Unpacker::open(packing, image).map_err(unpack_error)?;
        let mut reserved_bytes = 0;
        if let Some(size) = unpacker.size() {
            reserve(reserve_space, size)?;
            reserved_bytes = size;
        }
        while let Some(piece) = unpacker.next().map_err(unpack_error)? {
            if !self.entry.is_pending() {
                return Err(DiskUnpackError::Removed);
            }
            let after = self.running.bytes() + piece.bytes();
            if after > reserved_bytes {
                reserved_bytes = after + RESERVE_STEP_BYTES;
                reserve(reserve_space, reserved_bytes)?;
            }
            match piece {
                RawImagePiece::Data(bytes) => self.write_bytes(bytes)?,
                RawImagePiece::Zeros(bytes) => self.write_zeros(bytes)?,
            }
        }
        self.finish()
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (at, front) = (self.running.bytes(), self.before_chunk_ends(rest.len()));
            let (front, after) = rest.split_at(front);
            if self.is_written(at) {
                self.file.write_all_at(front, at)?;
            }
            self.hash(front);
            rest = after;
        }
        Ok(())
    }

    /// In a new file, regions that were not written read as zeros.
    fn write_zeros(&mut self, bytes: u64) -> Result<(), DiskUnpackError> {
        let mut left = bytes;
        while left > 0 {
            let most = left.min(ZEROS.len() as u64) as usize;
            let (at, front) = (self.running.bytes(), self.before_chunk_ends(most));
            let front = &ZEROS[..front];
            if self.only.is_some() && self.is_written(at) {
                self.file.write_all_at(front, at)?;
            }
            self.hash(front);
            left -= front.len() as u64;
            if !self.entry.is_pending() {
                return Err(DiskUnpackError::Removed);
            }
        }
        Ok(())
    }

    fn before_chunk_ends(&self, bytes: usize) -> usize {
        let left = CHUNK_BYTES - self.running.bytes() % CHUNK_BYTES;
        bytes.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    fn is_written(&self, at: u64) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| only.contains(&(at / CHUNK_BYTES)))
    }

    /// A state is added to the list when its chunk is complete and more bytes follow:
    /// the last chunk is verified by the digest.
    fn hash(&mut self, bytes: &[u8]) {
        let at = self.running.bytes();
        if at > 0 && at.is_multiple_of(CHUNK_BYTES) {
            let state = self.running.state();
            self.list.push(state.expect("chunks are whole blocks"));
        }
        self.running.update(bytes);
    }

    /// All bytes are on disk before the result is reported.
    fn finish(self) -> Result<UnpackedDisk, DiskUnpackError> {
        let size = self.running.bytes();
        self.file.set_len(size)?;
        self.file.sync_all()?;
        Ok(UnpackedDisk {
            digest: self.running.finish(),
            size,
            list: self.list,
        })
    }
}

fn reserve(reserve_space: ReserveSpaceFn<'_>, bytes: u64) -> Result<(), DiskUnpackError> {
    reserve_space(bytes).map_err(|why| DiskUnpackError::NoSpace { bytes, why })
}

fn unpack_error(refusal: UnpackRefusal) -> DiskUnpackError {
    match refusal {
        UnpackRefusal::Unreadable(why) if why == CHUNK_CHANGED => DiskUnpackError::Corrupt,
        UnpackRefusal::Unreadable(why) => DiskUnpackError::Disk(io::Error::other(why)),
        refusal => DiskUnpackError::Refused(refusal),
    }
}

/// Marks the error of a chunk that has changed since the digest was verified.
const CHUNK_CHANGED: &str = "a chunk of the image has changed on this box's disk";

/// An image whose chunks are verified as they are read.
struct CheckedImageSource {
    file: Arc<File>,
    list: ChunkList,
    digest: Digest,
    size: u64,
    /// The chunks that were read last, the newest first.
    recent_chunks: RefCell<VecDeque<(u64, Vec<u8>)>>,
}

impl CheckedImageSource {
    fn load(&self, chunk: u64, held: &mut VecDeque<(u64, Vec<u8>)>) -> io::Result<()> {
        if let Some(index) = held.iter().position(|(number, _)| *number == chunk) {
            held.swap(0, index);
            return Ok(());
        }
        let mut bytes = match held.len() {
            CHUNKS_CACHED_MAX => held.pop_back().map(|(_, bytes)| bytes).unwrap_or_default(),
            _ => Vec::new(),
        };
        let at = chunk * CHUNK_BYTES;
        let length = CHUNK_BYTES.min(self.size.saturating_sub(at));
        bytes.resize(usize::try_from(length).unwrap_or(0), 0);
        self.file.read_exact_at(&mut bytes, at)?;
        if !self
            .list
            .is_chunk_valid(chunk, &bytes, self.size, &self.digest)
        {
            return Err(io::Error::other(CHUNK_CHANGED));
        }
        held.push_front((chunk, bytes));
        Ok(())
    }
}

impl ReadAt for CheckedImageSource {
    fn length(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let mut held = self.recent_chunks.borrow_mut();
        let (mut rest, mut at) = (buffer, at);
        while !rest.is_empty() {
            self.load(at / CHUNK_BYTES, &mut held)?;
            let within = usize::try_from(at % CHUNK_BYTES).unwrap_or(usize::MAX);
            let there = held.front().and_then(|(_, bytes)| bytes.get(within..));
            let there = there.filter(|there| !there.is_empty());
            let there = there.ok_or(io::ErrorKind::UnexpectedEof)?;
            let bytes = rest.len().min(there.len());
            let (front, after) = rest.split_at_mut(bytes);
            front.copy_from_slice(&there[..bytes]);
            rest = after;
            at += bytes as u64;
        }
        Ok(())
    }
}
