//! A simulated shell: image sources and cache files in memory, for simulation and tests.
//!
//! It carries out the orders of an [`crate::ImageLibrary`] in virtual time. Bytes are real and are
//! hashed, but scaled: one byte here stands for [`SIM_SCALE`] bytes of an image, so that images of
//! a few thousand bytes have several chunks.

mod disk;
mod registry;
mod sources;
mod states;
mod transfers;

use std::collections::{BTreeMap, VecDeque};

use trivet_chunks::{DigestAlgorithm, IncrementalDigest};
use trivet_model::{Digest, Tick};
use trivet_oci::RegistryCredentials;

use crate::{
    ImageDiskError, ImageDiskUse, ImageEntryId, ImageEntryUse, ImageFileKind, ImageFileOrder,
    ImageFillResult, ImageKey, ImageUploadAnswer, ImageWorkOrder, ImageWorkReport,
    StoredImageCheck,
};

pub use disk::SimImageDisk;
use disk::SimImageFile;
pub use registry::sim_manifest;
use sources::SimImageResponse;
pub use sources::SimImageSource;

/// How many bytes of an image one simulated byte stands for. Ours: a chunk is 1 KiB.
pub const SIM_SCALE: u64 = 1024;

/// Simulated bytes of one chunk.
pub(crate) const SIM_CHUNK_BYTES: usize = (trivet_chunks::CHUNK_BYTES / SIM_SCALE) as usize;

/// Simulated bytes of one report while a source sends.
const REPORT_BYTES: usize = SIM_CHUNK_BYTES / 2;

/// How long work on a file takes, in milliseconds.
const WORK_MS: u64 = 2;

/// What a reader of an entry gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SimImageRead {
    /// Not all of it is verified.
    Pending,
    /// The connection is closed, with this reason.
    Failed(String),
    /// All bytes, as they are stored now.
    Whole(Vec<u8>),
}

/// What an entry's readers know.
#[derive(Clone, Debug, Eq, PartialEq)]
enum SimVerdict {
    Pending,
    Verified,
    Failed(String),
}

/// An open file with its readers.
#[derive(Debug)]
struct SimImageEntry {
    key: ImageKey,
    kind: ImageFileKind,
    /// The number of its file; none before it was opened.
    file: Option<u64>,
    verdict: SimVerdict,
    readers: u32,
    response: Option<SimImageResponse>,
    /// The announced end of the response's bytes, and those that were appended.
    unpack: Option<SimUnpack>,
}

/// A disk that is being unpacked.
#[derive(Clone, Debug)]
struct SimUnpack {
    raw: Vec<u8>,
    only: Option<Vec<u64>>,
}

/// What happens later.
#[derive(Debug)]
enum SimImageEvent {
    Report(ImageWorkReport),
    /// A source sends the next bytes.
    Receive {
        entry: ImageEntryId,
        skip: u64,
        bytes_max: Option<u64>,
        since: u64,
    },
}

/// The simulated shell. What is stored is in [`SimImageDisk`], which outlives it.
#[derive(Debug)]
pub struct SimImageShell {
    /// The files.
    pub disk: SimImageDisk,
    /// The sources, by their URLs.
    pub sources: BTreeMap<String, SimImageSource>,
    /// Credentials by repository.
    pull_secrets: BTreeMap<String, RegistryCredentials>,
    entries: BTreeMap<ImageEntryId, SimImageEntry>,
    /// Events by their time and number.
    events: BTreeMap<(Tick, u64), SimImageEvent>,
    event_count: u64,
    /// Downloads that wait until they may continue.
    held: BTreeMap<ImageEntryId, SimImageEvent>,
    uploads: VecDeque<(u64, ImageUploadAnswer)>,
    /// Images that readers were allowed to read all of although their bytes were wrong.
    pub wrong_reads: Vec<String>,
}

/// The digest of simulated bytes.
pub fn sim_digest(algorithm: DigestAlgorithm, bytes: &[u8]) -> Digest {
    let mut digest = IncrementalDigest::new(algorithm);
    digest.update(bytes);
    digest.finish()
}

/// The SHA-256 of simulated bytes.
pub fn sim_sha256(bytes: &[u8]) -> Digest {
    sim_digest(DigestAlgorithm::Sha256, bytes)
}

/// A packed image, as the simulated unpacker reads it.
pub fn sim_pack(raw: &[u8]) -> Vec<u8> {
    let mut packed = b"packed:".to_vec();
    packed.extend(raw.iter().map(|byte| !byte));
    packed
}

fn sim_unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let raw = packed.strip_prefix(b"packed:")?;
    Some(raw.iter().map(|byte| !byte).collect())
}

impl SimImageShell {
    /// A shell with these files.
    pub fn new(disk: SimImageDisk) -> Self {
        Self {
            disk,
            sources: BTreeMap::new(),
            pull_secrets: BTreeMap::new(),
            entries: BTreeMap::new(),
            events: BTreeMap::new(),
            event_count: 0,
            held: BTreeMap::new(),
            uploads: VecDeque::new(),
            wrong_reads: Vec::new(),
        }
    }

    /// Carries out an order; its report comes from [`Self::poll`].
    pub fn carry_out(&mut self, now: Tick, order: ImageWorkOrder) {
        match order {
            ImageWorkOrder::Scan => {
                let found = Box::new(self.disk.scan());
                self.report(now, ImageWorkReport::Found(found));
            }
            ImageWorkOrder::Open { entry, key, file } => self.open(entry, key, file),
            ImageWorkOrder::MoveResponse { from, into } => {
                let response = self
                    .entries
                    .get_mut(&from)
                    .and_then(|it| it.response.take());
                if let Some(open) = self.entries.get_mut(&into) {
                    open.response = response;
                }
            }
            ImageWorkOrder::File { entry, order } => self.work(now, entry, order),
            ImageWorkOrder::Continue(entry) => {
                if let Some(event) = self.held.remove(&entry) {
                    self.later(now.after_ms(WORK_MS), event);
                }
            }
            ImageWorkOrder::AnnounceSize { .. } => {}
            ImageWorkOrder::AllowReads { entry, .. } => {
                self.check_bytes(entry);
                self.conclude(entry, SimVerdict::Verified);
            }
            ImageWorkOrder::EndReads { entry, why, .. } => {
                self.conclude(entry, SimVerdict::Failed(why));
            }
            ImageWorkOrder::Close(entry) => self.close(entry),
            ImageWorkOrder::Discard(entry) => {
                if let Some(SimImageEntry { key, kind, .. }) = self.entries.get(&entry) {
                    self.disk.discard(*key, *kind);
                }
                self.close(entry);
            }
            ImageWorkOrder::DeleteFiles(key) => self.disk.delete(key),
            ImageWorkOrder::DeleteDiskRecord(key) => self.disk.delete_record(key),
            ImageWorkOrder::KeepMetadata(metadata) => self.disk.keep_metadata(*metadata),
            ImageWorkOrder::MeasureSpace { ticket } => {
                let disk = Box::new(self.measure());
                self.report(now, ImageWorkReport::Space { ticket, disk });
            }
            ImageWorkOrder::Scrub {
                ticket,
                entry,
                size,
                ..
            } => {
                let size = Some(size);
                let check = self.verify(entry, size, true);
                let is_right = check == Some(StoredImageCheck::Valid);
                self.report(now, ImageWorkReport::Scrubbed { ticket, is_right });
            }
            ImageWorkOrder::Unpack {
                from, into, only, ..
            } => self.unpack(now, from, into, only),
            ImageWorkOrder::UnpackSpace { into, result } => self.write_disk(now, into, result),
            ImageWorkOrder::FindChecksum { url, name } => self.find_checksum(now, url, name),
            ImageWorkOrder::ResolveOci(query) => self.resolve_oci(now, *query),
            ImageWorkOrder::UsePullSecret {
                reference,
                credentials,
            } => self.use_pull_secret(&reference, credentials),
            ImageWorkOrder::Upload { ticket, answer } => self.uploads.push_back((ticket, answer)),
        }
    }

    /// When [`Self::poll`] has the next report.
    pub fn deadline(&self) -> Option<Tick> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Reports that are due.
    pub fn poll(&mut self, now: Tick) -> Vec<ImageWorkReport> {
        let mut reports = Vec::new();
        while let Some(event) = self.events.first_entry()
            && event.key().0 <= now
        {
            match event.remove() {
                SimImageEvent::Report(report) => reports.push(report),
                SimImageEvent::Receive {
                    entry,
                    skip,
                    bytes_max,
                    since,
                } => self.receive(now, entry, (skip, bytes_max, since), &mut reports),
            }
        }
        reports
    }

    /// The next answer to an upload.
    pub fn take_upload_answer(&mut self) -> Option<(u64, ImageUploadAnswer)> {
        self.uploads.pop_front()
    }

    /// What a reader of this entry gets now.
    pub fn read(&self, entry: ImageEntryId) -> SimImageRead {
        let Some(open) = self.entries.get(&entry) else {
            return SimImageRead::Failed("it was removed".to_owned());
        };
        match &open.verdict {
            SimVerdict::Pending => SimImageRead::Pending,
            SimVerdict::Failed(why) => SimImageRead::Failed(why.clone()),
            SimVerdict::Verified => {
                let file = open.file.and_then(|file| self.disk.file(file));
                SimImageRead::Whole(file.map(|file| file.bytes.clone()).unwrap_or_default())
            }
        }
    }

    /// A reader opens an entry, or closes it.
    pub fn count_reader(&mut self, entry: ImageEntryId, opens: bool) {
        if let Some(open) = self.entries.get_mut(&entry) {
            open.readers = if opens {
                open.readers + 1
            } else {
                open.readers.saturating_sub(1)
            };
        }
    }

    /// Bytes of an upload are stored, and the client sends more.
    pub fn store(&mut self, entry: ImageEntryId, bytes: &[u8]) {
        // A full disk is noticed with the last bytes.
        let _ = self.append(entry, bytes);
    }

    /// A client of an upload sends bytes into this entry.
    pub fn push(&mut self, now: Tick, entry: ImageEntryId, bytes: &[u8]) {
        let result = self.append(entry, bytes);
        let bytes = bytes.len() as u64 * SIM_SCALE;
        self.report(
            now,
            ImageWorkReport::UploadEnded {
                entry,
                bytes,
                result,
            },
        );
    }

    fn later(&mut self, at: Tick, event: SimImageEvent) {
        self.event_count += 1;
        self.events.insert((at, self.event_count), event);
    }

    fn report(&mut self, now: Tick, report: ImageWorkReport) {
        self.later(now.after_ms(WORK_MS), SimImageEvent::Report(report));
    }

    fn open(&mut self, entry: ImageEntryId, key: ImageKey, kind: ImageFileKind) {
        let file = self.disk.open(key, kind);
        let open = self.entries.entry(entry).or_insert(SimImageEntry {
            key,
            kind,
            file: None,
            verdict: SimVerdict::Pending,
            readers: 0,
            response: None,
            unpack: None,
        });
        (open.key, open.kind, open.file) = (key, kind, Some(file));
    }

    /// All of a file may be read now: its bytes must be right, unless they changed on the disk.
    fn check_bytes(&mut self, entry: ImageEntryId) {
        let Some(open) = self.entries.get(&entry) else {
            return;
        };
        let is_final = matches!(
            open.kind,
            ImageFileKind::Stored { .. } | ImageFileKind::Empty
        );
        let (key, file) = (open.key, open.file.and_then(|file| self.disk.file(file)));
        if let Some(file) = file.filter(|file| is_final && !file.has_rotted)
            && sim_digest(DigestAlgorithm::of(&key.0), &file.bytes) != key.0
        {
            self.wrong_reads.push(key.to_string());
        }
    }

    fn conclude(&mut self, entry: ImageEntryId, verdict: SimVerdict) {
        if let Some(open) = self.entries.get_mut(&entry) {
            open.verdict = verdict;
        }
    }

    fn close(&mut self, entry: ImageEntryId) {
        self.entries.remove(&entry);
        self.held.remove(&entry);
    }

    fn file_mut(&mut self, entry: ImageEntryId) -> Option<&mut SimImageFile> {
        let file = self.entries.get(&entry)?.file?;
        self.disk.file_mut(file)
    }

    fn append(&mut self, entry: ImageEntryId, bytes: &[u8]) -> Result<(), ImageDiskError> {
        if self.disk.free_bytes() < bytes.len() as u64 {
            return Err(ImageDiskError {
                why: "no space left on device".to_owned(),
                is_full: true,
            });
        }
        if let Some(file) = self.file_mut(entry) {
            file.append(bytes);
        }
        Ok(())
    }

    fn measure(&self) -> ImageDiskUse {
        let entries = self.entries.iter().map(|(entry, open)| {
            let file = open.file.and_then(|file| self.disk.file(file));
            ImageEntryUse {
                entry: *entry,
                bytes: file.map_or(0, |file| file.bytes.len() as u64 * SIM_SCALE),
                is_read: open.readers > 0,
            }
        });
        ImageDiskUse {
            free_bytes: self.disk.free_bytes().saturating_mul(SIM_SCALE),
            entries: entries.collect(),
        }
    }

    fn work(&mut self, now: Tick, entry: ImageEntryId, order: ImageFileOrder) {
        if let ImageFileOrder::Request(request) = order {
            self.entries.entry(entry).or_insert(SimImageEntry {
                key: ImageKey(Digest::Sha256([0; 32])),
                kind: ImageFileKind::Download,
                file: None,
                verdict: SimVerdict::Pending,
                readers: 0,
                response: None,
                unpack: None,
            });
            let source = self.source(&request.url);
            let (delay_ms, response) = sources::respond(source, &request);
            let head = response.map(|(head, response)| {
                if let Some(open) = self.entries.get_mut(&entry) {
                    open.response = Some(response);
                }
                head
            });
            let result = Ok(ImageFillResult::Responded(head));
            let report = ImageWorkReport::File { entry, result };
            return self.later(now.after_ms(delay_ms), SimImageEvent::Report(report));
        }
        if let ImageFileOrder::Receive { skip, bytes_max } = order {
            let event = SimImageEvent::Receive {
                entry,
                skip: skip / SIM_SCALE,
                bytes_max: bytes_max.map(|most| most / SIM_SCALE),
                since: 0,
            };
            return self.later(now.after_ms(WORK_MS), event);
        }
        if let Some(result) = self.file_work(entry, order) {
            self.report(now, ImageWorkReport::File { entry, result });
        }
    }

    /// Work that needs no time; none for an entry that is closed.
    fn file_work(
        &mut self,
        entry: ImageEntryId,
        order: ImageFileOrder,
    ) -> Option<Result<ImageFillResult, ImageDiskError>> {
        let key = self.entries.get(&entry)?.key;
        let algorithm = DigestAlgorithm::of(&key.0);
        let result = match order {
            ImageFileOrder::Verify { size, whole } => {
                ImageFillResult::Checked(self.verify(entry, size, whole)?)
            }
            ImageFileOrder::FetchChunk { chunk, request, .. } => {
                ImageFillResult::Chunk(self.fetch_chunk(entry, chunk, &request))
            }
            ImageFileOrder::FinishHashing => {
                let file = self.file_mut(entry)?;
                file.sync();
                ImageFillResult::Hashed(sim_digest(algorithm, &file.bytes))
            }
            ImageFileOrder::ReadMagic => {
                let is_qcow2 = self.file_mut(entry)?.bytes.starts_with(b"QFI\xfb");
                ImageFillResult::Magic { is_qcow2 }
            }
            ImageFileOrder::StartHashing { chunks } => {
                let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
                if !self.file_mut(entry)?.truncate(chunks) {
                    return Some(Err(ImageDiskError {
                        why: "its chunk list is missing; start the upload again".to_owned(),
                        is_full: false,
                    }));
                }
                ImageFillResult::Done
            }
            ImageFileOrder::KeepChunks { chunks } => {
                let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
                self.file_mut(entry)?.truncate(chunks);
                ImageFillResult::Done
            }
            other => return self.name_work(entry, key, other).map(Ok),
        };
        Some(Ok(result))
    }

    /// Work on names and records; none for an entry that is closed.
    fn name_work(
        &mut self,
        entry: ImageEntryId,
        key: ImageKey,
        order: ImageFileOrder,
    ) -> Option<ImageFillResult> {
        match order {
            ImageFileOrder::FlushRepaired { .. } | ImageFileOrder::PauseHashing => {
                self.file_mut(entry)?.sync();
            }
            ImageFileOrder::MarkPartial => {
                self.disk.mark(key, false);
            }
            ImageFileOrder::MarkWhole { .. } => {
                self.disk.mark(key, true);
            }
            ImageFileOrder::StoreRepairedDisk { .. } => {
                self.file_mut(entry)?.sync();
                self.disk.mark(key, true);
            }
            ImageFileOrder::SaveMetadata(metadata) => {
                self.disk.keep_metadata(*metadata);
            }
            ImageFileOrder::StoreDownload(metadata) => {
                self.disk.store(key, ImageFileKind::Download, *metadata);
            }
            ImageFileOrder::StoreDisk { disk, record } => {
                match disk {
                    Some(metadata) => self.disk.store(key, ImageFileKind::Unpacking, *metadata),
                    None => self.disk.discard(key, ImageFileKind::Unpacking),
                }
                self.disk.keep_record(*record);
            }
            _ => return None,
        }
        Some(ImageFillResult::Done)
    }
}
