//! The simulated disk of the cache: files that lose what was not synced when power is cut.

use std::collections::BTreeMap;

use trivet_chunks::DigestAlgorithm;
use trivet_model::{Digest, UnixMs};

use super::{SIM_CHUNK_BYTES, sim_digest};
use crate::{FoundImage, FoundImages, ImageFileKind, ImageKey, ImageMetadata, UnpackedDiskRecord};

/// One file with its chunk list.
#[derive(Clone, Debug, Default)]
pub(super) struct SimImageFile {
    pub(super) bytes: Vec<u8>,
    /// The digests of its chunks, as far as they are listed.
    list: Vec<Digest>,
    synced_bytes: usize,
    synced_chunks: usize,
    /// A byte changed on the disk.
    pub(super) has_rotted: bool,
}

impl SimImageFile {
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let full = self.bytes.len() / SIM_CHUNK_BYTES;
        for chunk in self.list.len()..full {
            let digest = self.chunk_digest(chunk);
            self.list.push(digest);
        }
    }

    fn chunk_digest(&self, chunk: usize) -> Digest {
        let from = (chunk * SIM_CHUNK_BYTES).min(self.bytes.len());
        let to = (from + SIM_CHUNK_BYTES).min(self.bytes.len());
        sim_digest(DigestAlgorithm::Sha256, &self.bytes[from..to])
    }

    fn chunks(&self) -> usize {
        self.bytes.len().div_ceil(SIM_CHUNK_BYTES).max(1)
    }

    pub(super) fn listed(&self) -> usize {
        self.list.len()
    }

    /// The whole file is right: all its chunks are listed.
    pub(super) fn list_all(&mut self) {
        self.list = (0..self.chunks()).map(|at| self.chunk_digest(at)).collect();
    }

    /// The chunk list of a disk that was unpacked from these bytes, whatever is stored.
    pub(super) fn list_as(&mut self, raw: &[u8]) {
        let of = |chunk: &[u8]| sim_digest(DigestAlgorithm::Sha256, chunk);
        self.list = raw.chunks(SIM_CHUNK_BYTES).map(of).collect();
    }

    pub(super) fn sync(&mut self) {
        if self.list.len() + 1 == self.chunks() {
            self.list.push(self.chunk_digest(self.list.len()));
        }
        (self.synced_bytes, self.synced_chunks) = (self.bytes.len(), self.list.len());
    }

    /// Keeps so many chunks; false if not so many are listed.
    pub(super) fn truncate(&mut self, chunks: usize) -> bool {
        if self.list.len() < chunks || self.bytes.len() < chunks * SIM_CHUNK_BYTES {
            return false;
        }
        self.list.truncate(chunks);
        self.bytes.truncate(chunks * SIM_CHUNK_BYTES);
        self.synced_bytes = self.synced_bytes.min(self.bytes.len());
        self.synced_chunks = self.synced_chunks.min(chunks);
        true
    }

    /// How many chunks from the beginning match the list.
    pub(super) fn right_chunks(&self) -> usize {
        let full = self.bytes.len() / SIM_CHUNK_BYTES;
        let most = self.list.len().min(full);
        let wrong = (0..most).find(|at| self.chunk_digest(*at) != self.list[*at]);
        wrong.unwrap_or(most)
    }

    pub(super) fn bad_chunks(&self) -> Vec<u64> {
        let wrong = |at: &usize| self.list.get(*at) != Some(&self.chunk_digest(*at));
        let all = (0..self.chunks()).filter(wrong);
        all.map(|at| at as u64).collect()
    }

    /// Writes a chunk if it matches the list.
    pub(super) fn replace_chunk(&mut self, chunk: usize, bytes: &[u8]) -> bool {
        let is_right = self.list.get(chunk) == Some(&sim_digest(DigestAlgorithm::Sha256, bytes));
        if is_right {
            self.write_chunk(chunk, bytes);
        }
        is_right
    }

    fn write_chunk(&mut self, chunk: usize, bytes: &[u8]) {
        let from = chunk * SIM_CHUNK_BYTES;
        let to = from + bytes.len();
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(bytes);
    }

    /// Writes these chunks of a disk.
    pub(super) fn write_chunks(&mut self, raw: &[u8], only: &[u64]) {
        for (chunk, bytes) in raw.chunks(SIM_CHUNK_BYTES).enumerate() {
            if only.contains(&(chunk as u64)) {
                self.write_chunk(chunk, bytes);
            }
        }
    }
}

/// What is stored under one key.
#[derive(Clone, Debug, Default)]
struct SimStoredImage {
    file: Option<u64>,
    metadata: Option<ImageMetadata>,
    whole: bool,
    unpacking: Option<u64>,
    download: Option<u64>,
}

/// The files of the cache.
#[derive(Clone, Debug)]
pub struct SimImageDisk {
    /// The most bytes of all files.
    pub capacity: u64,
    files: BTreeMap<u64, SimImageFile>,
    file_count: u64,
    stored: BTreeMap<ImageKey, SimStoredImage>,
    records: BTreeMap<ImageKey, UnpackedDiskRecord>,
    writes: u64,
}

impl SimImageDisk {
    /// An empty disk.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            files: BTreeMap::new(),
            file_count: 0,
            stored: BTreeMap::new(),
            records: BTreeMap::new(),
            writes: 0,
        }
    }

    /// The keys of all complete images.
    pub fn whole_images(&self) -> Vec<ImageKey> {
        let whole = self.stored.iter().filter(|(_, stored)| stored.whole);
        whole.map(|(key, _)| *key).collect()
    }

    /// The stored bytes of an image.
    pub fn bytes_of(&self, key: ImageKey) -> Option<&[u8]> {
        let file = self.stored.get(&key)?.file?;
        Some(&self.files.get(&file)?.bytes)
    }

    /// One bit of a stored image changes; false if there is no such byte.
    pub fn rot(&mut self, key: ImageKey, at: usize) -> bool {
        let file = self.stored.get(&key).and_then(|stored| stored.file);
        let file = file.and_then(|file| self.files.get_mut(&file));
        let Some(file) = file else { return false };
        let byte = file.bytes.get_mut(at);
        let done = byte.map(|byte| *byte ^= 1).is_some();
        file.has_rotted |= done;
        done
    }

    /// Power is cut: of the bytes that were not synced, `kept` in a thousand are there, and the
    /// rest is gone or, with `zeros`, reads as zeros.
    pub fn cut_power(&mut self, stored: u64, zeros: bool) {
        for file in self.files.values_mut() {
            let open = file.bytes.len().saturating_sub(file.synced_bytes) as u64;
            let keeps = file.synced_bytes.min(file.bytes.len()) + (open * stored / 1000) as usize;
            if zeros {
                file.bytes[keeps..].fill(0);
            } else {
                file.bytes.truncate(keeps);
            }
            let open = file.list.len().saturating_sub(file.synced_chunks) as u64;
            let keeps = file.synced_chunks.min(file.list.len()) + (open * stored / 1000) as usize;
            file.list.truncate(keeps);
        }
    }

    /// Free bytes.
    pub fn free_bytes(&self) -> u64 {
        let used = self.files.values().map(|file| file.bytes.len() as u64);
        self.capacity.saturating_sub(used.sum())
    }

    pub(super) fn scan(&mut self) -> FoundImages {
        let mut found = FoundImages::default();
        for (key, stored) in &mut self.stored {
            if stored.unpacking.take().is_some() {
                found.interrupted.push(*key);
            }
            stored.download = None;
            if let Some(metadata) = &stored.metadata {
                found.images.push(FoundImage {
                    metadata: ImageMetadata {
                        whole: stored.whole,
                        ..metadata.clone()
                    },
                    written_at: UnixMs(self.writes),
                });
            } else {
                // Without its record the content is unknown.
                *stored = SimStoredImage::default();
            }
        }
        found.disks = self.records.values().cloned().collect();
        self.remove_lost_files();
        found
    }

    fn remove_lost_files(&mut self) {
        let known: Vec<u64> = self
            .stored
            .values()
            .flat_map(|stored| [stored.file, stored.unpacking, stored.download])
            .flatten()
            .collect();
        self.files.retain(|file, _| known.contains(file));
    }

    pub(super) fn file(&self, file: u64) -> Option<&SimImageFile> {
        self.files.get(&file)
    }

    pub(super) fn file_mut(&mut self, file: u64) -> Option<&mut SimImageFile> {
        self.files.get_mut(&file)
    }

    fn new_file(&mut self) -> u64 {
        self.file_count += 1;
        self.files.insert(self.file_count, SimImageFile::default());
        self.file_count
    }

    pub(super) fn open(&mut self, key: ImageKey, kind: ImageFileKind) -> u64 {
        let present = self.stored.get(&key).and_then(|stored| stored.file);
        if let (ImageFileKind::Stored { .. }, Some(file)) = (kind, present) {
            return file;
        }
        let file = self.new_file();
        let stored = self.stored.entry(key).or_default();
        match kind {
            ImageFileKind::Stored { .. } | ImageFileKind::Empty => {
                (stored.file, stored.whole) = (Some(file), false);
            }
            ImageFileKind::Unpacking => stored.unpacking = Some(file),
            ImageFileKind::Download => stored.download = Some(file),
        }
        file
    }

    pub(super) fn mark(&mut self, key: ImageKey, whole: bool) {
        if let Some(stored) = self.stored.get_mut(&key) {
            stored.whole = whole;
        }
    }

    pub(super) fn keep_metadata(&mut self, metadata: ImageMetadata) {
        self.writes += 1;
        let stored = self.stored.entry(metadata.spec.key()).or_default();
        stored.metadata = Some(metadata);
    }

    pub(super) fn keep_record(&mut self, record: UnpackedDiskRecord) {
        self.records.insert(record.key(), record);
    }

    pub(super) fn delete_record(&mut self, key: ImageKey) {
        self.records.remove(&key);
    }

    /// Makes a temporary file of this key the complete file of an image.
    pub(super) fn store(&mut self, key: ImageKey, kind: ImageFileKind, metadata: ImageMetadata) {
        let stored = self.stored.entry(key).or_default();
        let file = match kind {
            ImageFileKind::Unpacking => stored.unpacking.take(),
            _ => stored.download.take(),
        };
        if let Some(file) = file.and_then(|file| self.files.get_mut(&file)) {
            file.sync();
        }
        let image = self.stored.entry(metadata.spec.key()).or_default();
        (image.file, image.whole) = (file, true);
        self.keep_metadata(metadata);
    }

    /// Removes the temporary file of an entry.
    pub(super) fn discard(&mut self, key: ImageKey, kind: ImageFileKind) {
        if let Some(stored) = self.stored.get_mut(&key) {
            match kind {
                ImageFileKind::Unpacking => stored.unpacking = None,
                ImageFileKind::Download => stored.download = None,
                ImageFileKind::Stored { .. } | ImageFileKind::Empty => {}
            }
        }
        self.remove_lost_files();
    }

    /// Removes the files of an image; open readers lose them too.
    pub fn delete(&mut self, key: ImageKey) {
        if let Some(stored) = self.stored.get_mut(&key) {
            (stored.file, stored.metadata, stored.whole) = (None, None, false);
        }
        self.remove_lost_files();
    }
}
