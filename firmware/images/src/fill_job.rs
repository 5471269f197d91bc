//! The work on one image of the cache: verify what is stored, repair or fetch the rest, verify
//! the digest.
//!
//! A job has exactly one order for the shell at any time. The shell carries it out, reports the
//! result with [`ImageFillJob::handle`], and gets the next order; the last one is
//! [`ImageFillOrder::End`]. The shell has the file, its chunk list, the hashing thread and the
//! connection to the source. Bytes of the image never pass through here: the shell only reports
//! how many it has written and hashed. A job survives nothing: after a restart a new one starts
//! with the metadata that was stored, and trusts no byte before it is verified.

mod messages;

use trivet_chunks::CHUNK_BYTES;
use trivet_model::Digest;
use trivet_model::image::ImageState;

use crate::image_spec::request_url;
use crate::{
    ImageBodyAction, ImageFill, ImageFillError, ImageFillStep, ImageFormat, ImageSourceHead,
    ImageSourceRequest, ImageSpec,
};

pub use messages::{
    ChunkFetchResult, ImageBodyEnd, ImageFillOrder, ImageFillReport, ImageFillResult,
    ImageMetadata, StoredImageCheck,
};

/// Progress is reported each time this many bytes were received. Ours.
pub const REPORT_BYTES: u64 = 8 * 1024 * 1024;

/// How often in a row the request for one chunk may fail, and the first delay. Ours.
const REPAIR_TRIES_MAX: u32 = 5;
const REPAIR_WAIT_MS_FIRST: u64 = 250;

/// The error for readers that have bytes of a file that the source no longer has.
const SOURCE_CHANGED: &str = "the source has another file now; it is fetched again from the start";

/// A repair of single chunks.
#[derive(Debug)]
struct ChunkRepair {
    bad: Vec<u64>,
    /// The chunk in `bad`, and the source, that is next.
    at: usize,
    source: usize,
    tries: u32,
    /// A source failed in this round: the reason.
    unreachable: Option<String>,
}

/// What the present order is for.
#[derive(Debug)]
enum FillPhase {
    Start,
    Verify,
    Repair(ChunkRepair),
    /// The repaired file is flushed.
    Flush,
    /// The file is marked as partial; then this many chunks are kept.
    MarkPartial {
        bad: u64,
        chunks: u64,
    },
    /// The right chunks are kept for an upload; then the job fails so.
    Keep(ImageFillError),
    /// Hashing starts.
    StartHashing,
    /// The next request is decided after this.
    Next,
    /// The window is open after this, for this request.
    Window(Box<ImageSourceRequest>),
    Request,
    /// The partial download was dropped; then the body is received or not.
    Restart {
        receive: bool,
    },
    Reserve {
        skip: u64,
    },
    Save {
        skip: u64,
    },
    Receive,
    Hash,
    MarkWhole,
    Magic,
    End,
}

/// The work on one image.
#[derive(Debug)]
pub struct ImageFillJob {
    metadata: ImageMetadata,
    phase: FillPhase,
    fill: Option<ImageFill>,
    reported: u64,
    /// The stored metadata has the size.
    has_saved_size: bool,
    reports: Vec<ImageFillReport>,
}

impl ImageFillJob {
    /// A job for the image with this metadata, and its first order.
    pub fn start(metadata: ImageMetadata) -> (Self, ImageFillOrder) {
        let mut job = Self {
            has_saved_size: metadata.size.is_some(),
            metadata,
            phase: FillPhase::Start,
            fill: None,
            reported: 0,
            reports: Vec::new(),
        };
        let order = job.handle(ImageFillResult::Done);
        (job, order)
    }

    /// The metadata as it is stored now.
    pub fn metadata(&self) -> &ImageMetadata {
        &self.metadata
    }

    /// Bytes that were received, or kept from before.
    pub fn have(&self) -> u64 {
        self.fill.as_ref().map_or(0, ImageFill::have)
    }

    /// The size of the image, once a source has announced it.
    pub fn size(&self) -> Option<u64> {
        self.fill.as_ref().and_then(ImageFill::size)
    }

    /// The stored metadata has the size: a source announced it.
    pub fn has_saved_size(&self) -> bool {
        self.has_saved_size
    }

    /// The present order is [`ImageFillOrder::AwaitWindow`].
    pub fn awaits_window(&self) -> bool {
        matches!(self.phase, FillPhase::Window(_))
    }

    /// Reports since the last call, in order.
    pub fn take_reports(&mut self) -> Vec<ImageFillReport> {
        std::mem::take(&mut self.reports)
    }

    /// Bytes were appended while the body is received. Returns how many bytes need space now,
    /// where the source did not announce the length: it must not fill the disk.
    pub fn handle_received(&mut self, bytes: u64) -> Option<u64> {
        let fill = self.fill.as_mut()?;
        fill.handle_bytes(bytes);
        let (have, size) = (fill.have(), fill.size());
        if have.saturating_sub(self.reported) < REPORT_BYTES {
            return None;
        }
        self.reported = have;
        self.report(size, have, ImageState::Fetching);
        size.is_none().then_some(have + 2 * REPORT_BYTES)
    }

    /// Handles the result of the present order; returns the next one.
    pub fn handle(&mut self, result: ImageFillResult) -> ImageFillOrder {
        let phase = std::mem::replace(&mut self.phase, FillPhase::End);
        let result = match result {
            ImageFillResult::DiskFailed(why) => {
                let image = self.metadata.spec.name.clone();
                return self.end(Err(ImageFillError::Disk { image, why }));
            }
            ImageFillResult::NoSpace(why) => {
                let image = self.metadata.spec.name.clone();
                let fill = self.fill.as_ref();
                let bytes = fill.map_or(0, |fill| fill.size().unwrap_or(fill.have()));
                return self.end(Err(ImageFillError::NoSpace { image, bytes, why }));
            }
            other => other,
        };
        match (phase, result) {
            (FillPhase::Start, _) => {
                self.phase = FillPhase::Verify;
                let (size, whole) = (self.metadata.size, self.metadata.whole);
                ImageFillOrder::Verify { size, whole }
            }
            (FillPhase::Verify, ImageFillResult::Checked(check)) => self.checked(check),
            (FillPhase::Repair(repair), ImageFillResult::Chunk(fetch)) => {
                self.chunk_fetched(repair, fetch)
            }
            // A delay between two rounds of requests.
            (FillPhase::Repair(repair), ImageFillResult::Done) => self.fetch_chunk(repair),
            (FillPhase::Flush, ImageFillResult::Done) => self.read_magic(),
            (FillPhase::MarkWhole, ImageFillResult::Done) => {
                self.metadata.whole = true;
                self.metadata.size = Some(self.have());
                self.read_magic()
            }
            (FillPhase::MarkPartial { bad, chunks }, ImageFillResult::Done) => {
                self.metadata.whole = false;
                self.continue_partial(bad, chunks)
            }
            (FillPhase::Keep(error), ImageFillResult::Done) => self.end(Err(error)),
            (
                FillPhase::StartHashing | FillPhase::Next | FillPhase::Restart { receive: false },
                ImageFillResult::Done,
            ) => self.next(),
            (FillPhase::Window(request), ImageFillResult::Done) => {
                self.phase = FillPhase::Request;
                ImageFillOrder::Request(*request)
            }
            (FillPhase::Request, ImageFillResult::Responded(response)) => self.responded(response),
            (FillPhase::Restart { receive: true }, ImageFillResult::Done) => self.reserve(0),
            (FillPhase::Reserve { skip }, ImageFillResult::Done) => self.save(skip),
            (FillPhase::Save { skip }, ImageFillResult::Done) => self.receive(skip),
            (FillPhase::Receive, ImageFillResult::BodyEnded { bytes, end }) => {
                self.body_ended(bytes, end)
            }
            (FillPhase::Hash, ImageFillResult::Hashed(found)) => self.hashed(found),
            (FillPhase::Magic, ImageFillResult::Magic { is_qcow2 }) => {
                let result = check_declared_format(&self.metadata.spec, is_qcow2);
                self.end(result)
            }
            // A shell that reports the result of another order is wrong; the job does not
            // continue with it.
            (phase, result) => {
                let why = format!("result {result:?} does not belong to {phase:?}");
                let image = self.metadata.spec.name.clone();
                self.end(Err(ImageFillError::Disk { image, why }))
            }
        }
    }

    fn report(&mut self, size: Option<u64>, have: u64, state: ImageState) {
        self.reports.push(ImageFillReport { size, have, state });
    }

    fn end(&mut self, result: Result<(), ImageFillError>) -> ImageFillOrder {
        self.phase = FillPhase::End;
        ImageFillOrder::End(result)
    }

    fn checked(&mut self, check: StoredImageCheck) -> ImageFillOrder {
        let (chunks, bad) = match check {
            StoredImageCheck::Valid => return self.read_magic(),
            StoredImageCheck::Partial { chunks } => (chunks, Vec::new()),
            StoredImageCheck::Corrupt { bad } => (bad.first().copied().unwrap_or(0), bad),
        };
        let count = bad.len() as u64;
        if count > 0 && !self.metadata.spec.sources.is_empty() && self.metadata.size.is_some() {
            self.report(self.metadata.size, chunks, ImageState::Corrupt(count));
            return self.fetch_chunk(ChunkRepair {
                bad,
                at: 0,
                source: 0,
                tries: 0,
                unreachable: None,
            });
        }
        self.continue_from(count, chunks)
    }

    /// Continues after the right chunks at the beginning.
    fn continue_from(&mut self, bad: u64, chunks: u64) -> ImageFillOrder {
        if self.metadata.whole {
            self.phase = FillPhase::MarkPartial { bad, chunks };
            return ImageFillOrder::MarkPartial;
        }
        self.continue_partial(bad, chunks)
    }

    fn continue_partial(&mut self, bad: u64, chunks: u64) -> ImageFillOrder {
        let have = chunks * CHUNK_BYTES;
        let image = self.metadata.spec.name.clone();
        if self.metadata.spec.sources.is_empty() {
            // No source has the missing bytes: the right ones are kept, so that an upload can
            // continue.
            let error = match (bad, have) {
                (0, 0) => ImageFillError::NoSource { image },
                (0, _) => ImageFillError::UploadIncomplete { image, have },
                (chunks, _) => ImageFillError::Corrupt {
                    image,
                    chunks,
                    have,
                },
            };
            self.phase = FillPhase::Keep(error);
            return ImageFillOrder::KeepChunks { chunks };
        }
        let metadata = &mut self.metadata;
        let validator = metadata.validator.clone();
        let fill = ImageFill::new(metadata.spec.clone(), have, metadata.size, validator);
        let size = fill.size();
        self.fill = Some(fill);
        self.reported = have;
        self.report(size, have, ImageState::Fetching);
        self.phase = FillPhase::StartHashing;
        ImageFillOrder::StartHashing { chunks }
    }

    /// Requests the next bad chunk from the next source.
    fn fetch_chunk(&mut self, repair: ChunkRepair) -> ImageFillOrder {
        let size = self.metadata.size.unwrap_or(0);
        let Some(&chunk) = repair.bad.get(repair.at) else {
            self.phase = FillPhase::Flush;
            return ImageFillOrder::FlushRepaired { size };
        };
        let from = chunk * CHUNK_BYTES;
        let spec = &self.metadata.spec;
        let url = spec.sources.get(repair.source);
        let url = url.map(|source| request_url(source, spec.digest));
        let request = ImageSourceRequest {
            url: url.unwrap_or_default(),
            from,
            to: Some(size.min(from + CHUNK_BYTES)),
            if_range: None,
            if_changed: None,
        };
        self.phase = FillPhase::Repair(repair);
        ImageFillOrder::FetchChunk {
            chunk,
            size,
            request,
        }
    }

    fn chunk_fetched(
        &mut self,
        mut repair: ChunkRepair,
        fetch: ChunkFetchResult,
    ) -> ImageFillOrder {
        match fetch {
            ChunkFetchResult::Written => {
                repair.at += 1;
                (repair.source, repair.tries, repair.unreachable) = (0, 0, None);
                return self.fetch_chunk(repair);
            }
            ChunkFetchResult::NotServed => {}
            ChunkFetchResult::Unreachable(why) => repair.unreachable = Some(why),
        }
        repair.source += 1;
        if repair.source < self.metadata.spec.sources.len() {
            return self.fetch_chunk(repair);
        }
        repair.source = 0;
        let bad = repair.bad.len() as u64;
        let Some(why) = repair.unreachable.take() else {
            // All sources serve no ranges, or other bytes: the rest of the image is fetched.
            let first = repair.bad.first().copied().unwrap_or(0);
            return self.continue_from(bad, first);
        };
        repair.tries += 1;
        if repair.tries >= REPAIR_TRIES_MAX {
            // The right chunks stay, and are not fetched again later.
            let lost = bad * CHUNK_BYTES;
            let source_url = self.metadata.spec.sources.last().cloned();
            return self.end(Err(ImageFillError::SourceUnreachable {
                image: self.metadata.spec.name.clone(),
                source_url: source_url.unwrap_or_default(),
                why,
                have: self.metadata.size.unwrap_or(0).saturating_sub(lost),
            }));
        }
        let ms = REPAIR_WAIT_MS_FIRST << (repair.tries - 1);
        self.phase = FillPhase::Repair(repair);
        ImageFillOrder::Wait { ms }
    }

    /// The next request, or the digest.
    fn next(&mut self) -> ImageFillOrder {
        let Some(fill) = &mut self.fill else {
            return self.end_without_fill();
        };
        if fill.is_complete() {
            self.phase = FillPhase::Hash;
            return ImageFillOrder::FinishHashing;
        }
        match fill.next_step() {
            ImageFillStep::Request(request) => {
                self.phase = FillPhase::Window(Box::new(request));
                ImageFillOrder::AwaitWindow
            }
            ImageFillStep::Wait { ms } => {
                self.phase = FillPhase::Next;
                ImageFillOrder::Wait { ms }
            }
            ImageFillStep::GiveUp(error) => self.end(Err(error)),
        }
    }

    /// Phases of a fill exist only with one.
    fn end_without_fill(&mut self) -> ImageFillOrder {
        let image = self.metadata.spec.name.clone();
        self.end(Err(ImageFillError::NoSource { image }))
    }

    fn responded(&mut self, response: Result<ImageSourceHead, String>) -> ImageFillOrder {
        let Some(fill) = &mut self.fill else {
            return self.end_without_fill();
        };
        let head = match response {
            Ok(head) => head,
            Err(why) => {
                fill.handle_failure(why);
                return self.next();
            }
        };
        match fill.handle_response(&head) {
            ImageBodyAction::Append => self.reserve(0),
            ImageBodyAction::Skip(bytes) => self.reserve(bytes),
            ImageBodyAction::Restart => self.restart(true, SOURCE_CHANGED.to_owned()),
            ImageBodyAction::Discard => self.restart(false, SOURCE_CHANGED.to_owned()),
            ImageBodyAction::Refuse => self.next(),
        }
    }

    /// Drops the received bytes and disconnects the readers.
    fn restart(&mut self, receive: bool, why: String) -> ImageFillOrder {
        self.reported = 0;
        self.phase = FillPhase::Restart { receive };
        ImageFillOrder::Restart { why }
    }

    fn reserve(&mut self, skip: u64) -> ImageFillOrder {
        match self.fill.as_ref().and_then(ImageFill::size) {
            Some(bytes) => {
                self.phase = FillPhase::Reserve { skip };
                ImageFillOrder::Reserve { bytes }
            }
            None => self.save(skip),
        }
    }

    fn save(&mut self, skip: u64) -> ImageFillOrder {
        let Some(fill) = &self.fill else {
            return self.end_without_fill();
        };
        let (size, validator) = (fill.size(), fill.validator().map(str::to_owned));
        if self.metadata.size == size && self.metadata.validator == validator {
            return self.receive(skip);
        }
        (self.metadata.size, self.metadata.validator) = (size, validator);
        self.has_saved_size = size.is_some();
        self.phase = FillPhase::Save { skip };
        ImageFillOrder::SaveMetadata(Box::new(self.metadata.clone()))
    }

    fn receive(&mut self, skip: u64) -> ImageFillOrder {
        let fill = self.fill.as_ref();
        let bytes_max = fill.and_then(|fill| Some(fill.size()?.saturating_sub(fill.have())));
        self.phase = FillPhase::Receive;
        ImageFillOrder::Receive { skip, bytes_max }
    }

    fn body_ended(&mut self, bytes: u64, end: ImageBodyEnd) -> ImageFillOrder {
        let Some(fill) = &mut self.fill else {
            return self.end_without_fill();
        };
        fill.handle_bytes(bytes);
        match end {
            ImageBodyEnd::Complete => {
                fill.handle_end();
            }
            ImageBodyEnd::Interrupted(why) => fill.handle_failure(why),
            ImageBodyEnd::TooLong => {
                fill.handle_failure("sends more bytes than it announced".to_owned());
            }
            ImageBodyEnd::Removed => {
                let image = fill.spec().name.clone();
                return self.end(Err(ImageFillError::Removed { image }));
            }
        }
        self.next()
    }

    fn hashed(&mut self, found: Digest) -> ImageFillOrder {
        let Some(fill) = &mut self.fill else {
            return self.end_without_fill();
        };
        match fill.verify_digest(found) {
            Ok(()) => {
                let size = fill.have();
                self.phase = FillPhase::MarkWhole;
                ImageFillOrder::MarkWhole { size }
            }
            Err(wrong) => self.restart(false, wrong.to_string()),
        }
    }

    fn read_magic(&mut self) -> ImageFillOrder {
        if self.metadata.spec.format != ImageFormat::Raw {
            return self.end(Ok(()));
        }
        self.phase = FillPhase::Magic;
        ImageFillOrder::ReadMagic
    }
}

/// Refuses an image that is declared raw but is qcow2. Only qcow2 is detected: a machine with
/// such a disk would not boot, and its agent would parse the image.
pub fn check_declared_format(spec: &ImageSpec, is_qcow2: bool) -> Result<(), ImageFillError> {
    if spec.format != ImageFormat::Raw || !is_qcow2 {
        return Ok(());
    }
    Err(ImageFillError::Format {
        image: spec.name.clone(),
        why: "is declared raw, but its first bytes are those of qcow2; declare it: --format qcow2 \
              in the catalogue, image_disk_format=qcow2 for a node"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests;
