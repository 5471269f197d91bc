//! Fills: carries the jobs that verify, repair and fetch one image each.

use trivet_chunks::CHUNK_BYTES;
use trivet_model::Now;
use trivet_model::image::{ImageState, UnpackedImage};

use super::space::SpacePurpose;
use super::{
    EntryOwner, ImageDiskError, ImageEntryId, ImageFileKind, ImageFileOrder, ImageLibrary,
    ImagePhase, ImageWorkOrder, LibraryImage, UnpackedDiskRecord,
};
use crate::{
    ImageFillError, ImageFillJob, ImageFillOrder, ImageFillResult, ImageFormat, ImageKey,
    ImageMetadata, ImageSpec,
};

/// How often the hours for fills are looked at again, because the clock may be set. Ours.
const WINDOW_POLL_MS: u64 = 60_000;

/// Where the source has the wrong bytes, reads do not retry for so many times the usual delay: an
/// operator has to correct the source first. Ours.
const WRONG_RETRY_FACTOR: u64 = 6;

/// What remains of an image when its work has ended.
pub(super) enum FillOutcome {
    Whole,
    /// Verified bytes after which an upload can continue, and why the rest is missing.
    Partial {
        have: u64,
        why: String,
    },
    /// No usable image; with `keeps_files` the next fill continues with the stored bytes.
    Failed {
        why: String,
        is_wrong: bool,
        keeps_files: bool,
    },
}

impl FillOutcome {
    fn of(result: &Result<(), ImageFillError>) -> Self {
        let Err(failure) = result else {
            return Self::Whole;
        };
        let why = failure.to_string();
        match failure {
            ImageFillError::UploadIncomplete { have, .. }
            | ImageFillError::Corrupt { have, .. } => Self::Partial { have: *have, why },
            _ => Self::Failed {
                why,
                is_wrong: failure.is_wrong_image(),
                keeps_files: matches!(
                    failure,
                    ImageFillError::SourceUnreachable { .. }
                        | ImageFillError::Disk { .. }
                        | ImageFillError::Format { .. }
                ),
            },
        }
    }
}

impl ImageLibrary {
    /// Requests the file of an image as its source sends it, without unpacking. An order retries
    /// an image that failed; a read does so only after the retry delay.
    pub(super) fn request_file(
        &mut self,
        now: Now,
        wanted: &ImageSpec,
        is_order: bool,
    ) -> Result<(), String> {
        let key = wanted.key();
        if !self.images.contains_key(&key) {
            if self.images.len() >= super::LIBRARY_IMAGES_MAX {
                let most = super::LIBRARY_IMAGES_MAX;
                return Err(format!("the cache has {most} images; remove some"));
            }
            let entry = self.open_entry(EntryOwner::Image(key), key, ImageFileKind::Empty);
            self.images.insert(
                key,
                LibraryImage::new(ImageMetadata::new(wanted), entry, ImagePhase::Stored),
            );
        }
        let Some(image) = self.images.get_mut(&key) else {
            return Ok(());
        };
        image.used_at_ms = now.tick.0.max(1);
        if let ImagePhase::Partial { why, .. } = &image.phase
            && wanted.sources.is_empty()
        {
            return Err(why.clone());
        }
        self.retry_if_due(now, wanted, is_order);
        self.start_image(now, key);
        Ok(())
    }

    /// Begins a failed image again, with the sources that are known by now.
    fn retry_if_due(&mut self, now: Now, wanted: &ImageSpec, is_order: bool) {
        let key = wanted.key();
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        let other = image.metadata.spec.format != wanted.format;
        let again = match image.phase {
            ImagePhase::Failed { until, .. } => is_order || other || until <= now.tick,
            // The declared format is verified together with the bytes.
            ImagePhase::Whole => other,
            ImagePhase::Partial { .. } => true,
            _ => false,
        };
        if !again {
            return;
        }
        if image.metadata.unpacked_from.is_none() || !wanted.sources.is_empty() {
            image.metadata.spec = wanted.clone();
        }
        let whole = image.metadata.whole;
        image.phase = ImagePhase::Stored;
        if other && whole {
            let metadata = Box::new(image.metadata.clone());
            self.orders.push(ImageWorkOrder::KeepMetadata(metadata));
        }
        self.reopen(key, ImageFileKind::Stored { whole });
    }

    /// Starts the work on an image that has not begun.
    pub(super) fn start_image(&mut self, now: Now, key: ImageKey) {
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        if !matches!(image.phase, ImagePhase::Stored) {
            return;
        }
        if image.metadata.unpacked_from.is_some() {
            return self.start_disk_check(key);
        }
        let (job, order) = ImageFillJob::start(image.metadata.clone());
        image.phase = ImagePhase::Filling(Box::new(job));
        self.drive(now, key, order);
    }

    /// Carries out orders of a job until one needs the shell.
    fn drive(&mut self, now: Now, key: ImageKey, mut order: ImageFillOrder) {
        loop {
            self.show_fill_progress(key);
            let Some(image) = self.images.get_mut(&key) else {
                return;
            };
            let (entry, is_urgent) = (image.entry, image.is_urgent);
            order = match order {
                ImageFillOrder::End(result) => return self.fill_ended(now, key, &result),
                ImageFillOrder::Wait { ms } => {
                    self.timers.insert(entry, now.tick.after_ms(ms));
                    return;
                }
                ImageFillOrder::AwaitWindow => {
                    let wait_ms = self.window_wait_ms(now);
                    if wait_ms > 0 && !is_urgent {
                        let at = now.tick.after_ms(wait_ms.min(WINDOW_POLL_MS));
                        self.timers.insert(entry, at);
                        return;
                    }
                    let Some(job) = self.job_mut(key) else { return };
                    job.handle(ImageFillResult::Done)
                }
                ImageFillOrder::Reserve { bytes } => {
                    return self.measure(SpacePurpose::Fill { entry, bytes });
                }
                ImageFillOrder::Restart { why } => return self.restart_fill(key, &why),
                other => {
                    if let Some(order) = file_order(other) {
                        self.order_file(entry, order);
                    }
                    return;
                }
            };
        }
    }

    /// The fill begins again with an empty file. The response that showed it may be the new file.
    fn restart_fill(&mut self, key: ImageKey, why: &str) {
        let owner = EntryOwner::Image(key);
        let into = self.open_entry(owner, key, ImageFileKind::Empty);
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        let from = std::mem::replace(&mut image.entry, into);
        self.orders
            .push(ImageWorkOrder::MoveResponse { from, into });
        self.end_reads(from, why, false);
        self.close_entry(from);
        self.order_file(into, ImageFileOrder::StartHashing { chunks: 0 });
    }

    fn window_wait_ms(&self, now: Now) -> u64 {
        let window = self.options.window;
        window.map_or(0, |window| window.opens_in_ms(now.wall.0))
    }

    pub(super) fn job_mut(&mut self, key: ImageKey) -> Option<&mut ImageFillJob> {
        match &mut self.images.get_mut(&key)?.phase {
            ImagePhase::Filling(job) => Some(job),
            _ => None,
        }
    }

    /// A delay of a job is over, or the hours for fills may have begun.
    pub(super) fn continue_fill(&mut self, now: Now, key: ImageKey) {
        let wait_ms = self.window_wait_ms(now);
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        let (entry, is_urgent) = (image.entry, image.is_urgent);
        let ImagePhase::Filling(job) = &mut image.phase else {
            return;
        };
        if job.awaits_window() && wait_ms > 0 && !is_urgent {
            let at = now.tick.after_ms(wait_ms.min(WINDOW_POLL_MS));
            self.timers.insert(entry, at);
            return;
        }
        let order = job.handle(ImageFillResult::Done);
        self.drive(now, key, order);
    }

    /// Somebody waits for the image now.
    pub(super) fn make_urgent(&mut self, now: Now, key: ImageKey) {
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        image.is_urgent = true;
        let entry = image.entry;
        let awaits = matches!(&image.phase, ImagePhase::Filling(job) if job.awaits_window());
        if awaits && self.timers.remove(&entry).is_some() {
            self.continue_fill(now, key);
        }
    }

    /// The result of an order on the file of an image.
    pub(super) fn image_file_result(
        &mut self,
        now: Now,
        key: ImageKey,
        result: Result<ImageFillResult, ImageDiskError>,
    ) {
        let phase = self.images.get(&key).map(|image| &image.phase);
        match phase {
            Some(ImagePhase::Filling(_)) => {
                let result = result.unwrap_or_else(|error| {
                    ImageFillResult::DiskFailed(self.disk_failure_reason(key, &error))
                });
                self.give(now, key, result);
            }
            Some(ImagePhase::Repairing(_)) => self.repair_result(now, key, result),
            Some(ImagePhase::Uploading(_)) => self.upload_result(now, key, result),
            _ => {}
        }
    }

    /// Gives a job the result of its order.
    pub(super) fn give(&mut self, now: Now, key: ImageKey, result: ImageFillResult) {
        if let Some(job) = self.job_mut(key) {
            let order = job.handle(result);
            self.drive(now, key, order);
        }
    }

    /// Bytes were appended to an entry.
    pub(super) fn received(&mut self, now: Now, entry: ImageEntryId, bytes: u64) {
        match self.entries.get(&entry).cloned() {
            Some(EntryOwner::Image(key)) => match self.images.get_mut(&key).map(|it| &mut it.phase)
            {
                Some(ImagePhase::Filling(job)) => {
                    let needed = job.handle_received(bytes);
                    let waits = job.size().is_none();
                    self.show_fill_progress(key);
                    match needed {
                        Some(bytes) => self.measure(SpacePurpose::Receiving { entry, bytes }),
                        None if waits => self.orders.push(ImageWorkOrder::Continue(entry)),
                        None => {}
                    }
                }
                Some(ImagePhase::Uploading(_)) => self.upload_received(key, bytes),
                _ => {}
            },
            Some(EntryOwner::Url(url)) => self.url_received(now, &url, bytes),
            Some(EntryOwner::Unpack(_)) | None => {}
        }
    }

    fn show_fill_progress(&mut self, key: ImageKey) {
        let Some(job) = self.job_mut(key) else { return };
        let reports = job.take_reports();
        let spec = job.metadata().spec.clone();
        for report in reports {
            self.report(&spec, report.size, report.have, report.state);
        }
    }

    fn fill_ended(&mut self, now: Now, key: ImageKey, result: &Result<(), ImageFillError>) {
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        let ImagePhase::Filling(job) = &image.phase else {
            return;
        };
        let (have, was_unknown) = (job.have(), !job.has_saved_size());
        image.metadata = job.metadata().clone();
        let (spec, size) = (image.metadata.spec.clone(), image.metadata.size);
        if result.is_ok() {
            image.metadata.whole = true;
            if was_unknown {
                // The source did not announce the size.
                let metadata = Box::new(image.metadata.clone());
                self.orders.push(ImageWorkOrder::KeepMetadata(metadata));
            }
        }
        let (size, have, state) = match result {
            Ok(()) => {
                let bytes = size.unwrap_or(have);
                // A job waits for the disk in it, so it is shown as unpacking.
                let state = if self.is_unpacking(key) || self.awaits_disk(&spec) {
                    ImageState::Unpacking
                } else {
                    ImageState::Complete
                };
                (Some(bytes), bytes, state)
            }
            // Nodes read only the disk, which is here.
            Err(_) if self.unpacked_disk(&spec).is_some() => {
                let disk = self.disks.get(&key);
                let bytes = disk.map_or(0, |disk| disk.size);
                (Some(bytes), bytes, ImageState::Complete)
            }
            Err(failure) => (size, failure.have().unwrap_or(have), failure.image_state()),
        };
        self.report(&spec, size, have, state);
        self.settle(now, key, FillOutcome::of(result));
    }

    /// The work on an image has ended.
    pub(super) fn settle(&mut self, now: Now, key: ImageKey, outcome: FillOutcome) {
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        let entry = image.entry;
        self.timers.remove(&entry);
        image.is_urgent = false;
        image.expected_bytes = 0;
        match outcome {
            FillOutcome::Whole => {
                image.phase = ImagePhase::Whole;
                image.metadata.whole = true;
                let size = image.metadata.size.unwrap_or(0);
                self.orders.push(ImageWorkOrder::AllowReads { entry, size });
            }
            FillOutcome::Partial { have, why } => {
                let size = image.metadata.size;
                image.metadata.whole = false;
                image.phase = ImagePhase::Partial {
                    have,
                    size,
                    why: why.clone(),
                };
                self.end_reads(entry, &why, false);
            }
            FillOutcome::Failed {
                why,
                is_wrong,
                keeps_files,
            } => {
                let factor = if is_wrong { WRONG_RETRY_FACTOR } else { 1 };
                let rest = self.options.retry_delay_ms.saturating_mul(factor);
                image.phase = ImagePhase::Failed {
                    until: now.tick.after_ms(rest),
                    why: why.clone(),
                    keeps_files,
                };
                // Bytes that are not a correct beginning of the image are not continued.
                if !keeps_files {
                    image.metadata = ImageMetadata::new(&image.metadata.spec);
                    self.orders.push(ImageWorkOrder::DeleteFiles(key));
                }
                self.end_reads(entry, &why, is_wrong);
            }
        }
        self.settled.push_back(key);
    }

    /// The stored bytes of a complete image are wrong: they are verified and repaired, and
    /// current readers are disconnected.
    pub(super) fn invalidate(&mut self, now: Now, key: ImageKey) {
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        if !image.is_whole() {
            return;
        }
        let entry = image.entry;
        image.phase = ImagePhase::Stored;
        let why = "its bytes have changed on this box's disk; they are fetched again";
        self.end_reads(entry, why, false);
        self.reopen(key, ImageFileKind::Stored { whole: true });
        self.start_image(now, key);
    }
}

/// For tests of what follows from a state; see `simulated::states`.
impl ImageLibrary {
    /// The image is complete, with this disk if it is packed.
    pub(crate) fn simulate_whole(
        &mut self,
        now: Now,
        spec: &ImageSpec,
        size: u64,
        raw: Option<UnpackedImage>,
    ) {
        let key = spec.key();
        if let Some(raw) = raw {
            let disk = ImageSpec {
                digest: raw.digest,
                format: ImageFormat::Raw,
                ..spec.clone()
            };
            self.simulate_whole(now, &disk, raw.size, None);
            let record = UnpackedDiskRecord {
                spec: spec.clone(),
                size,
                raw: disk.key(),
                raw_size: raw.size,
            };
            self.disks.insert(key, record);
            self.unpacks.remove(&key);
        }
        if !self.images.contains_key(&key) {
            let entry = self.new_entry(EntryOwner::Image(key));
            let image = LibraryImage::new(ImageMetadata::new(spec), entry, ImagePhase::Stored);
            self.images.insert(key, image);
        }
        if let Some(image) = self.images.get_mut(&key) {
            image.metadata.size = Some(size);
        }
        self.settle(now, key, FillOutcome::Whole);
    }

    /// The present work on the image, if there is any, fails.
    pub(crate) fn simulate_failure(
        &mut self,
        now: Now,
        spec: &ImageSpec,
        why: &str,
        is_wrong: bool,
    ) {
        let outcome = FillOutcome::Failed {
            why: why.to_owned(),
            is_wrong,
            keeps_files: true,
        };
        self.settle(now, spec.key(), outcome);
    }
}

impl LibraryImage {
    pub(super) fn new(metadata: ImageMetadata, entry: ImageEntryId, phase: ImagePhase) -> Self {
        Self {
            metadata,
            entry,
            phase,
            used_at_ms: 0,
            written_at: trivet_model::UnixMs(0),
            is_urgent: false,
            expected_bytes: 0,
        }
    }
}

impl ImageFillError {
    /// Bytes that are in the cache, where the error names them.
    fn have(&self) -> Option<u64> {
        match self {
            Self::SourceUnreachable { have, .. }
            | Self::UploadIncomplete { have, .. }
            | Self::Corrupt { have, .. } => Some(*have),
            _ => None,
        }
    }
}

/// The order for the shell; none where the library carries it out itself.
fn file_order(order: ImageFillOrder) -> Option<ImageFileOrder> {
    Some(match order {
        ImageFillOrder::Verify { size, whole } => ImageFileOrder::Verify { size, whole },
        ImageFillOrder::FetchChunk {
            chunk,
            size,
            request,
        } => ImageFileOrder::FetchChunk {
            chunk,
            size,
            request,
        },
        ImageFillOrder::FlushRepaired { size } => ImageFileOrder::FlushRepaired { size },
        ImageFillOrder::MarkPartial => ImageFileOrder::MarkPartial,
        ImageFillOrder::KeepChunks { chunks } => ImageFileOrder::KeepChunks { chunks },
        ImageFillOrder::StartHashing { chunks } => ImageFileOrder::StartHashing { chunks },
        ImageFillOrder::Request(request) => ImageFileOrder::Request(request),
        ImageFillOrder::SaveMetadata(metadata) => ImageFileOrder::SaveMetadata(metadata),
        ImageFillOrder::Receive { skip, bytes_max } => ImageFileOrder::Receive { skip, bytes_max },
        ImageFillOrder::FinishHashing => ImageFileOrder::FinishHashing,
        ImageFillOrder::MarkWhole { size } => ImageFileOrder::MarkWhole { size },
        ImageFillOrder::ReadMagic => ImageFileOrder::ReadMagic,
        ImageFillOrder::Restart { .. }
        | ImageFillOrder::Wait { .. }
        | ImageFillOrder::AwaitWindow
        | ImageFillOrder::Reserve { .. }
        | ImageFillOrder::End(_) => return None,
    })
}

/// How many chunks are complete before this byte.
pub(super) fn chunks_before(bytes: u64) -> u64 {
    bytes / CHUNK_BYTES
}
