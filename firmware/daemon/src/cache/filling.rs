//! Carries out the orders of the job that fills one image (`trivet_images::ImageFillJob`):
//! files, the connection to the source, and the hashing thread.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use trivet_chunks::{CHUNK_BYTES, ChunkList};
use trivet_images::{
    ChunkFetchResult, ImageBodyEnd, ImageFillError, ImageFillJob, ImageFillOrder, ImageFillResult,
    ImageMetadata, ImageSourceRequest, ImageSpec,
};
use trivet_model::image::ImageState;
use trivet_unpack::{MAGIC_BYTES, Packing};

use super::checking::{self, read_list};
use super::entry::{self, CacheEntry};
use super::hashing::ImageHasher;
use super::origin::{OriginBody, OriginResponse};
use super::{FillOutcome, ImageCache, PartialImage};

/// How long a source may pause within a file.
pub(super) const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct ImageFillTask {
    pub(super) cache: ImageCache,
    pub(super) key: String,
    pub(super) entry: Arc<CacheEntry>,
    /// The body of the present response.
    body: Option<OriginBody>,
    hashing: Option<ImageHasher>,
}

impl ImageFillTask {
    pub(super) fn new(cache: ImageCache, key: String, entry: Arc<CacheEntry>) -> Self {
        Self {
            cache,
            key,
            entry,
            body: None,
            hashing: None,
        }
    }

    pub(super) async fn run(mut self, kept: ImageMetadata) {
        if kept.unpacked_from.is_some() {
            return self.run_disk(kept).await;
        }
        let wanted = kept.spec.clone();
        let size = kept.size;
        let went = self.run_job(kept).await;
        let have = self.entry.hashed();
        let (size, state) = match &went {
            // A job waits for the disk in it, so it is reported as unpacking.
            Ok(()) if self.cache.is_unpacking(&self.key) => (Some(have), ImageState::Unpacking),
            Ok(()) => (Some(have), ImageState::Complete),
            Err(failure) => (size, failure.image_state()),
        };
        let left = fill_outcome(went, size);
        if state == ImageState::Unpacking {
            // Report this before the unpack job reports the disk.
            self.cache.report(&wanted, size, have, state);
            self.cache.finish_task(&self.key, &self.entry, left);
            return;
        }
        // Record the state before the readers wake up, so that they find it; it is sent
        // below.
        let news = self.cache.record(&wanted, size, have, state);
        if self.cache.finish_task(&self.key, &self.entry, left) {
            (self.cache.0.news)(news);
        } else {
            // It was removed or replaced meanwhile.
            self.cache.last_reported().remove(&self.key);
        }
    }

    /// Carries out one order after the other.
    async fn run_job(&mut self, kept: ImageMetadata) -> Result<(), ImageFillError> {
        let (mut job, mut order) = ImageFillJob::start(kept);
        loop {
            self.send_reports(&mut job);
            if let ImageFillOrder::End(result) = order {
                return result;
            }
            let result = match self.execute(order, &mut job).await {
                Ok(result) => result,
                Err(error) => {
                    let key = &self.key;
                    ImageFillResult::DiskFailed(self.cache.disk_failure_reason(key, &error))
                }
            };
            order = job.handle(result);
        }
    }

    fn send_reports(&self, job: &mut ImageFillJob) {
        for report in job.take_reports() {
            let spec = &job.metadata().spec;
            self.cache
                .report(spec, report.size, report.have, report.state);
        }
    }

    /// Carries out one order.
    async fn execute(
        &mut self,
        order: ImageFillOrder,
        job: &mut ImageFillJob,
    ) -> io::Result<ImageFillResult> {
        let spec = &job.metadata().spec;
        match order {
            ImageFillOrder::Verify { .. } => {
                let kept = job.metadata();
                let check = checking::verify_stored(&self.cache, &self.key, &self.entry, kept);
                return Ok(ImageFillResult::Checked(check.await?));
            }
            ImageFillOrder::FetchChunk {
                chunk,
                size,
                request,
            } => {
                let fetch = self.fetch_chunk(spec, chunk, size, &request).await?;
                return Ok(ImageFillResult::Chunk(fetch));
            }
            ImageFillOrder::FlushRepaired { size } => {
                self.entry.file.sync_all()?;
                self.entry.set_hashed(size);
            }
            ImageFillOrder::MarkPartial => std::fs::rename(self.path("whole"), self.path("part"))?,
            ImageFillOrder::KeepChunks { chunks } => {
                self.entry.set_hashed(chunks * CHUNK_BYTES);
                let list = self.known_list(spec, chunks);
                std::fs::write(self.path("chunks"), list.bytes())?;
            }
            ImageFillOrder::StartHashing { chunks } => {
                self.start_hashing(self.known_list(spec, chunks))?;
            }
            ImageFillOrder::Restart { why } => {
                let fresh = self.cache.replace(&self.key, &self.entry, &why);
                self.entry = fresh.map_err(io::Error::other)?;
                self.start_hashing(ChunkList::new(&spec.digest))?;
            }
            ImageFillOrder::Wait { ms } => sleep(Duration::from_millis(ms)).await,
            ImageFillOrder::AwaitWindow => {
                self.cache.wait_for_window(&self.key, &self.entry).await;
            }
            ImageFillOrder::Request(request) => {
                let response = self.cache.0.options.origin.request(&request).await;
                return Ok(ImageFillResult::Responded(response.map(|response| {
                    let OriginResponse { head, body } = response;
                    self.body = Some(body);
                    head
                })));
            }
            ImageFillOrder::Reserve { bytes } => {
                if let Err(why) = self.cache.reserve_space(&self.key, bytes) {
                    return Ok(ImageFillResult::NoSpace(why));
                }
                self.entry.set_size(bytes);
            }
            ImageFillOrder::SaveMetadata(kept) => entry::write_metadata(&kept, &self.cache.0.root)?,
            ImageFillOrder::Receive { skip, bytes_max } => {
                return self.receive(job, skip, bytes_max).await;
            }
            ImageFillOrder::FinishHashing => {
                let hashing = self.hashing.take().ok_or_else(no_hashing)?;
                return Ok(ImageFillResult::Hashed(hashing.finish().await?));
            }
            ImageFillOrder::MarkWhole { size } => self.mark_whole(size)?,
            ImageFillOrder::ReadMagic => {
                let is_qcow2 = is_qcow2(&self.entry)?;
                return Ok(ImageFillResult::Magic { is_qcow2 });
            }
            ImageFillOrder::End(_) => {}
        }
        Ok(ImageFillResult::Done)
    }

    fn path(&self, end: &str) -> std::path::PathBuf {
        self.cache.path(&self.key, end)
    }

    /// The stored chunk list up to this chunk.
    fn known_list(&self, spec: &ImageSpec, chunks: u64) -> ChunkList {
        let mut list = read_list(&self.cache, &self.key, &spec.digest);
        list.truncate(chunks);
        list
    }

    fn start_hashing(&mut self, list: ChunkList) -> io::Result<()> {
        let path = self.path("chunks");
        // Make the file equal to the list, whatever it contained before.
        std::fs::write(&path, list.bytes())?;
        let chunks = OpenOptions::new().append(true).open(path)?;
        self.entry.set_hashed(list.known_chunks() * CHUNK_BYTES);
        self.hashing = Some(ImageHasher::start(Arc::clone(&self.entry), list, chunks)?);
        Ok(())
    }

    /// Fetches one chunk, and writes it if it is right.
    async fn fetch_chunk(
        &self,
        spec: &ImageSpec,
        chunk: u64,
        size: u64,
        request: &ImageSourceRequest,
    ) -> io::Result<ChunkFetchResult> {
        let bytes = match checking::fetch_range(&self.cache, request).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(ChunkFetchResult::NotServed),
            Err(why) => return Ok(ChunkFetchResult::Unreachable(why)),
        };
        let list = read_list(&self.cache, &self.key, &spec.digest);
        if !list.is_chunk_valid(chunk, &bytes, size, &spec.digest) {
            return Ok(ChunkFetchResult::NotServed);
        }
        self.entry.file.write_all_at(&bytes, chunk * CHUNK_BYTES)?;
        Ok(ChunkFetchResult::Written)
    }

    /// Appends the body of the response.
    async fn receive(
        &mut self,
        job: &mut ImageFillJob,
        mut skip: u64,
        bytes_max: Option<u64>,
    ) -> io::Result<ImageFillResult> {
        let mut body = self.body.take().ok_or_else(no_hashing)?;
        let mut total = 0;
        let ended = |end| ImageFillResult::BodyEnded { bytes: 0, end };
        loop {
            // Do not use the uplink for an image that was removed.
            if !self.entry.is_pending() {
                return Ok(ended(ImageBodyEnd::Removed));
            }
            let mut piece = match timeout(PIECE_TIMEOUT, body.next()).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(None) => return Ok(ended(ImageBodyEnd::Complete)),
                Ok(Some(Err(why))) => {
                    let why = format!("disconnected: {why}");
                    return Ok(ended(ImageBodyEnd::Interrupted(why)));
                }
                Err(_) => {
                    let why = "stopped sending".to_owned();
                    return Ok(ended(ImageBodyEnd::Interrupted(why)));
                }
            };
            let over = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            let _ = piece.split_to(over);
            skip -= over as u64;
            let length = piece.len() as u64;
            if bytes_max.is_some_and(|most| total + length > most) {
                return Ok(ended(ImageBodyEnd::TooLong));
            }
            let hashing = self.hashing.as_ref().ok_or_else(no_hashing)?;
            if length > 0 && hashing.push(piece).await.is_err() {
                return Err(hashing.failure());
            }
            total += length;
            let reserve = job.handle_received(length);
            self.cache.throttle(length).await;
            self.send_reports(job);
            if let Some(bytes) = reserve
                && let Err(why) = self.cache.reserve_space(&self.key, bytes)
            {
                return Ok(ImageFillResult::NoSpace(why));
            }
        }
    }

    pub(super) fn disk_failure(&self, wanted: &ImageSpec, error: &io::Error) -> ImageFillError {
        self.cache.disk_failure(&self.key, wanted, error)
    }

    /// The image is verified: marks it as complete in the cache.
    fn mark_whole(&self, size: u64) -> io::Result<()> {
        if !self.cache.is_current(&self.key, &self.entry) {
            return Err(io::Error::other("it was removed meanwhile"));
        }
        std::fs::rename(self.path("part"), self.path("whole"))?;
        self.entry.set_size(size);
        std::fs::File::open(&self.cache.0.root)?.sync_all()
    }
}

/// Orders for a body or a digest follow those that open them.
fn no_hashing() -> io::Error {
    io::Error::other("nothing is being received")
}

/// Whether the first bytes are those of qcow2.
pub(super) fn is_qcow2(entry: &CacheEntry) -> io::Result<bool> {
    let mut first = [0; MAGIC_BYTES];
    let read = entry.file.read_at(&mut first, 0)?;
    Ok(Packing::of_magic(&first[..read]) == Some(Packing::Qcow2))
}

/// What remains in the cache after this result.
pub(super) fn fill_outcome(went: Result<(), ImageFillError>, size: Option<u64>) -> FillOutcome {
    let Err(failure) = went else {
        return FillOutcome::Whole;
    };
    let why = failure.to_string();
    match failure {
        ImageFillError::UploadIncomplete { have, .. } | ImageFillError::Corrupt { have, .. } => {
            FillOutcome::Partial(PartialImage { have, size }, why)
        }
        ImageFillError::SourceUnreachable { .. }
        | ImageFillError::Disk { .. }
        | ImageFillError::Format { .. } => FillOutcome::Failed {
            why,
            keeps_files: true,
        },
        _ => FillOutcome::Failed {
            why,
            keeps_files: false,
        },
    }
}
