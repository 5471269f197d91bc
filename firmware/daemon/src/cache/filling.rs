//! The task that fills one image, until it is complete or has failed.

use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use trivet_chunks::ChunkList;
use trivet_images::{ImageBodyAction, ImageFill, ImageFillError, ImageFillStep, ImageSpec};
use trivet_model::image::ImageState;

use super::checking::{self, ChunkRepairError, StoredImageCheck};
use super::entry::{CacheEntry, ImageMetadata};
use super::hashing::ImageHasher;
use super::origin::{OriginBody, OriginResponse};
use super::unpacking::check_declared_format;
use super::{FillOutcome, ImageCache, PartialImage};

/// How long a source may pause within a file.
pub(super) const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// Progress is reported each time this many bytes were received.
pub(super) const REPORT_BYTES: u64 = 8 * 1024 * 1024;

/// The error for readers that have bytes of a file that the source no longer has.
const SOURCE_CHANGED: &str = "the source has another file now; it is fetched again from the start";

pub(super) struct ImageFillTask {
    pub(super) cache: ImageCache,
    pub(super) key: String,
    pub(super) entry: Arc<CacheEntry>,
    reported: u64,
}

impl ImageFillTask {
    pub(super) fn new(cache: ImageCache, key: String, entry: Arc<CacheEntry>) -> Self {
        Self {
            cache,
            key,
            entry,
            reported: 0,
        }
    }

    pub(super) async fn run(mut self, kept: ImageMetadata) {
        if kept.unpacked_from.is_some() {
            return self.run_disk(kept).await;
        }
        let wanted = kept.spec.clone();
        let size = kept.size;
        let went = self.verify_and_fill(kept).await;
        let went = went.and_then(|()| check_declared_format(&wanted, &self.entry));
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

    async fn verify_and_fill(&mut self, kept: ImageMetadata) -> Result<(), ImageFillError> {
        let wanted = kept.spec.clone();
        let checked = checking::verify_stored(&self.cache, &self.key, &self.entry, &kept).await;
        let checked = checked.map_err(|error| self.disk_failure(&wanted, &error))?;
        let (list, bad) = match checked {
            StoredImageCheck::Valid => return Ok(()),
            StoredImageCheck::Corrupt { list, bad } => (list, bad),
            StoredImageCheck::Partial { list } => (list, Vec::new()),
        };
        if wanted.sources.is_empty() {
            return self.wait_for_upload(&kept, list, &bad);
        }
        if !bad.is_empty() {
            let first = bad[0];
            self.cache.report(
                &wanted,
                kept.size,
                first,
                ImageState::Corrupt(bad.len() as u64),
            );
            match checking::repair(&self.cache, &self.entry, &kept, &list, &bad).await {
                Ok(()) => return Ok(()),
                // The correct chunks stay, and are not fetched again later.
                Err(ChunkRepairError::SourceUnreachable(why)) => {
                    return Err(repair_failure(&kept, bad.len(), why));
                }
                Err(ChunkRepairError::NoRanges) => {}
            }
        }
        let known = bad.first().copied().unwrap_or(list.known_chunks());
        let mut list = list;
        list.truncate(known);
        self.fill(kept, list).await
    }

    /// No source has the missing bytes: the correct ones are kept, so that an upload
    /// can continue.
    fn wait_for_upload(
        &self,
        kept: &ImageMetadata,
        mut list: ChunkList,
        bad: &[u64],
    ) -> Result<(), ImageFillError> {
        let image = kept.spec.name.clone();
        list.truncate(bad.first().copied().unwrap_or(list.known_chunks()));
        let have = list.known_chunks() * trivet_chunks::CHUNK_BYTES;
        if kept.whole {
            self.mark_partial(&kept.spec)?;
        }
        self.entry.set_hashed(have);
        std::fs::write(self.cache.path(&self.key, "chunks"), list.bytes())
            .map_err(|error| self.disk_failure(&kept.spec, &error))?;
        let chunks = bad.len() as u64;
        Err(match (chunks, have) {
            (0, 0) => ImageFillError::NoSource { image },
            (0, _) => ImageFillError::UploadIncomplete { image, have },
            _ => ImageFillError::Corrupt {
                image,
                chunks,
                have,
            },
        })
    }

    /// Fetches the bytes after the chunks in the list.
    async fn fill(
        &mut self,
        mut kept: ImageMetadata,
        list: trivet_chunks::ChunkList,
    ) -> Result<(), ImageFillError> {
        let wanted = kept.spec.clone();
        let have = list.known_chunks() * trivet_chunks::CHUNK_BYTES;
        if kept.whole {
            self.mark_partial(&wanted)?;
            kept.whole = false;
        }
        let mut fill = ImageFill::new(wanted.clone(), have, kept.size, kept.validator.take());
        let mut hashing = self.start_hashing(&wanted, list)?;
        self.entry.set_hashed(have);
        if let Some(size) = fill.size() {
            self.entry.set_size(size);
        }
        self.reported = have;
        self.cache
            .report(&wanted, fill.size(), have, ImageState::Fetching);
        loop {
            if fill.is_complete() {
                let found = hashing
                    .finish()
                    .await
                    .map_err(|error| self.disk_failure(&wanted, &error))?;
                match fill.verify_digest(found) {
                    Ok(()) => return self.mark_whole(&wanted),
                    Err(wrong) => hashing = self.restart(&wanted, &wrong.to_string())?,
                }
                continue;
            }
            let ask = match fill.next_step() {
                ImageFillStep::Request(ask) => ask,
                ImageFillStep::Wait { ms } => {
                    sleep(Duration::from_millis(ms)).await;
                    continue;
                }
                ImageFillStep::GiveUp(failure) => return Err(failure),
            };
            self.cache.wait_for_window(&self.key, &self.entry).await;
            let answer = match self.cache.0.options.origin.request(&ask).await {
                Ok(answer) => answer,
                Err(why) => {
                    fill.handle_failure(why);
                    continue;
                }
            };
            let OriginResponse { head, body } = answer;
            let skip = match fill.handle_response(&head) {
                ImageBodyAction::Append => 0,
                ImageBodyAction::Skip(bytes) => bytes,
                ImageBodyAction::Restart => {
                    hashing = self.restart(&wanted, SOURCE_CHANGED)?;
                    0
                }
                ImageBodyAction::Discard => {
                    hashing = self.restart(&wanted, SOURCE_CHANGED)?;
                    continue;
                }
                ImageBodyAction::Refuse => continue,
            };
            self.save_metadata(&mut kept, &fill, &wanted)?;
            self.receive(&mut fill, &hashing, body, skip).await?;
        }
    }

    fn start_hashing(
        &self,
        wanted: &ImageSpec,
        list: trivet_chunks::ChunkList,
    ) -> Result<ImageHasher, ImageFillError> {
        let failed = |error| self.disk_failure(wanted, &error);
        let path = self.cache.path(&self.key, "chunks");
        // Make the file equal to the list, whatever it contained before.
        std::fs::write(&path, list.bytes()).map_err(failed)?;
        let chunks = OpenOptions::new().append(true).open(path).map_err(failed)?;
        ImageHasher::start(Arc::clone(&self.entry), list, chunks).map_err(failed)
    }

    /// Discards the received bytes and disconnects the readers.
    fn restart(&mut self, wanted: &ImageSpec, why: &str) -> Result<ImageHasher, ImageFillError> {
        let image = wanted.name.clone();
        let fresh = self.cache.replace(&self.key, &self.entry, why);
        self.entry = fresh.map_err(|why| ImageFillError::Disk { image, why })?;
        self.reported = 0;
        self.start_hashing(wanted, trivet_chunks::ChunkList::new(&wanted.digest))
    }

    /// Stores size and validator for use after a restart.
    fn save_metadata(
        &self,
        kept: &mut ImageMetadata,
        fill: &ImageFill,
        wanted: &ImageSpec,
    ) -> Result<(), ImageFillError> {
        if let Some(bytes) = fill.size() {
            let room = self.cache.reserve_space(&self.key, bytes);
            let image = wanted.name.clone();
            room.map_err(|why| ImageFillError::NoSpace { image, bytes, why })?;
            self.entry.set_size(bytes);
        }
        let validator = fill.validator().map(str::to_owned);
        if kept.size != fill.size() || kept.validator != validator {
            kept.size = fill.size();
            kept.validator = validator;
            kept.write(&self.cache.0.root)
                .map_err(|error| self.disk_failure(wanted, &error))?;
        }
        Ok(())
    }

    async fn receive(
        &mut self,
        fill: &mut ImageFill,
        hashing: &ImageHasher,
        mut body: OriginBody,
        mut skip: u64,
    ) -> Result<(), ImageFillError> {
        loop {
            // Do not use the uplink for an image that was removed.
            if !self.entry.is_pending() {
                let image = fill.spec().name.clone();
                return Err(ImageFillError::Removed { image });
            }
            let mut piece = match timeout(PIECE_TIMEOUT, body.next()).await {
                Ok(Some(Ok(piece))) => piece,
                other => {
                    match other {
                        Err(_) => fill.handle_failure("stopped sending".to_owned()),
                        Ok(Some(Err(why))) => fill.handle_failure(format!("disconnected: {why}")),
                        Ok(_) => {
                            fill.handle_end();
                        }
                    }
                    return Ok(());
                }
            };
            let over = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            let _ = piece.split_to(over);
            skip -= over as u64;
            let length = piece.len() as u64;
            if fill.size().is_some_and(|size| fill.have() + length > size) {
                fill.handle_failure("sends more bytes than it announced".to_owned());
                return Ok(());
            }
            if length > 0 && hashing.push(piece).await.is_err() {
                return Err(self.disk_failure(fill.spec(), &hashing.failure()));
            }
            fill.handle_bytes(length);
            self.cache.throttle(length).await;
            if fill.have() - self.reported >= REPORT_BYTES {
                self.reported = fill.have();
                self.report_progress(fill);
                self.check_space(fill)?;
            }
        }
    }

    /// A source that does not announce the file's length must not fill the disk.
    fn check_space(&self, fill: &ImageFill) -> Result<(), ImageFillError> {
        if fill.size().is_some() {
            return Ok(());
        }
        let bytes = fill.have() + 2 * REPORT_BYTES;
        let image = fill.spec().name.clone();
        let room = self.cache.reserve_space(&self.key, bytes);
        room.map_err(|why| ImageFillError::NoSpace { image, bytes, why })
    }

    pub(super) fn disk_failure(
        &self,
        wanted: &ImageSpec,
        error: &std::io::Error,
    ) -> ImageFillError {
        self.cache.disk_failure(&self.key, wanted, error)
    }

    fn report_progress(&self, fill: &ImageFill) {
        let wanted = fill.spec();
        self.cache
            .report(wanted, fill.size(), fill.have(), ImageState::Fetching);
    }

    /// The image is verified: marks it as complete in the cache.
    fn mark_whole(&self, wanted: &ImageSpec) -> Result<(), ImageFillError> {
        let (part, whole) = (
            self.cache.path(&self.key, "part"),
            self.cache.path(&self.key, "whole"),
        );
        if !self.cache.is_current(&self.key, &self.entry) {
            let why = "it was removed meanwhile".to_owned();
            let image = wanted.name.clone();
            return Err(ImageFillError::Disk { image, why });
        }
        let moved = std::fs::rename(part, whole)
            .and_then(|()| std::fs::File::open(&self.cache.0.root)?.sync_all());
        moved.map_err(|error| self.disk_failure(wanted, &error))
    }

    /// Marks a complete image as partial.
    fn mark_partial(&self, wanted: &ImageSpec) -> Result<(), ImageFillError> {
        let (part, whole) = (
            self.cache.path(&self.key, "part"),
            self.cache.path(&self.key, "whole"),
        );
        std::fs::rename(whole, part).map_err(|error| self.disk_failure(wanted, &error))
    }
}

/// The error when bad chunks of a complete image cannot be fetched.
fn repair_failure(kept: &ImageMetadata, bad: usize, why: String) -> ImageFillError {
    let source_url = kept.spec.sources.last().cloned().unwrap_or_default();
    let lost = bad as u64 * trivet_chunks::CHUNK_BYTES;
    ImageFillError::SourceUnreachable {
        image: kept.spec.name.clone(),
        source_url,
        why,
        have: kept.size.unwrap_or(0).saturating_sub(lost),
    }
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
