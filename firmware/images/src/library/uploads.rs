//! Uploads: a fill whose bytes a client pushes.
//!
//! If the client disconnects, the received bytes are verified and kept until the upload continues.

use trivet_chunks::CHUNK_BYTES;
use trivet_model::image::ImageState;
use trivet_model::{Digest, Now};

use super::fills::{FillOutcome, chunks_before};
use super::requests::EarlyRequest;
use super::space::SpacePurpose;
use super::{
    EntryOwner, ImageDiskError, ImageEntryId, ImageFileKind, ImageFileOrder, ImageLibrary,
    ImagePhase, ImageUploadAnswer, ImageUploadError, ImageUploadRange, ImageWorkOrder,
    LIBRARY_IMAGES_MAX, LibraryImage,
};
use crate::{
    ImageFillError, ImageFillResult, ImageKey, ImageMetadata, ImageSpec, check_declared_format,
};

/// The most uploads that wait until an image is verified. Ours.
const WAITING_UPLOADS_MAX: usize = 64;

/// An offer of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct UploadOffer {
    pub(super) ticket: u64,
    pub(super) spec: ImageSpec,
    pub(super) range: ImageUploadRange,
}

/// An upload in progress.
#[derive(Debug)]
pub(super) struct ImageUploadJob {
    ticket: u64,
    range: ImageUploadRange,
    have: u64,
    phase: UploadPhase,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum UploadPhase {
    Saving,
    StartingHash,
    Receiving,
    Pausing,
    Hashing,
    Magic,
    Marking,
}

/// An upload that has ended and is answered when its bytes were verified.
#[derive(Debug)]
pub(super) struct PendingUploadReply {
    ticket: u64,
    /// All offered bytes came: otherwise the answer is this.
    otherwise: Option<ImageUploadError>,
    /// The disk failed: this is shown, and not only that the upload is incomplete.
    disk_failure: Option<String>,
}

/// What an error means for the caller.
enum UploadFailure {
    Wrong(ImageFillError),
    Incomplete(ImageFillError),
    Disk(ImageFillError),
}

impl ImageLibrary {
    /// A client offers bytes of an image.
    pub(super) fn upload_offered(&mut self, now: Now, offer: UploadOffer) {
        if !self.is_open {
            return self.defer(EarlyRequest::Upload(offer));
        }
        let key = offer.spec.key();
        // Bytes that were stored before the start are verified before an upload continues them.
        self.start_image(now, key);
        if let Some(image) = self.images.get(&key) {
            let checks = image.is_busy() && !matches!(image.phase, ImagePhase::Uploading(_));
            let is_own = image.metadata.spec.sources.is_empty();
            if checks && is_own && self.waiting_uploads.len() < WAITING_UPLOADS_MAX {
                self.waiting_uploads.push(offer);
                return;
            }
        }
        if let Some(size) = self.adopt(&offer.spec) {
            return self.answer_upload(offer.ticket, ImageUploadAnswer::HasAll(size));
        }
        if let Some(size) = self.use_stored_bytes(now, &offer.spec) {
            return self.answer_upload(offer.ticket, ImageUploadAnswer::HasAll(size));
        }
        match self.may_upload(&offer) {
            Ok(()) => self.measure(SpacePurpose::Upload(Box::new(offer))),
            Err(error) => self.answer_upload(offer.ticket, ImageUploadAnswer::Refused(error)),
        }
    }

    /// Uploads that waited for the verification of this image.
    pub(super) fn retry_waiting_uploads(&mut self, now: Now, key: ImageKey) {
        let all = std::mem::take(&mut self.waiting_uploads);
        let (ready, waiting): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|offer| offer.spec.key() == key);
        self.waiting_uploads = waiting;
        for offer in ready {
            self.upload_offered(now, offer);
        }
    }

    fn answer_upload(&mut self, ticket: u64, answer: ImageUploadAnswer) {
        self.orders.push(ImageWorkOrder::Upload { ticket, answer });
    }

    /// If the image is stored as the disk of a packed image, keeps it as an image by itself.
    /// Returns its size.
    fn adopt(&mut self, wanted: &ImageSpec) -> Option<u64> {
        let image = self.images.get_mut(&wanted.key())?;
        if !image.is_whole() || image.metadata.unpacked_from.is_none() {
            return None;
        }
        image.metadata.unpacked_from = None;
        image.metadata.spec = wanted.clone();
        let size = image.metadata.size?;
        let metadata = Box::new(image.metadata.clone());
        self.orders.push(ImageWorkOrder::KeepMetadata(metadata));
        self.report(wanted, Some(size), size, ImageState::Complete);
        Some(size)
    }

    /// If another entry stored the same bytes, this entry uses them once they are verified in
    /// its format; its state then tells whether they are right. Returns their size.
    fn use_stored_bytes(&mut self, now: Now, wanted: &ImageSpec) -> Option<u64> {
        let image = self.images.get(&wanted.key())?;
        let size = image.metadata.size.filter(|_| image.is_whole())?;
        let shown = self.status(wanted.key(), wanted.format);
        if shown.is_some_and(|status| status.state == ImageState::Complete) {
            return None;
        }
        // Errors are reported as image statuses.
        self.want(now, wanted, true);
        Some(size)
    }

    /// Whether an upload may begin.
    fn may_upload(&self, offer: &UploadOffer) -> Result<(), ImageUploadError> {
        let (key, name, range) = (offer.spec.key(), &offer.spec.name, offer.range);
        let conflict = |why: String| Err(ImageUploadError::Conflict(format!("Image {name} {why}")));
        let image = self.images.get(&key);
        if image.is_none() && self.images.len() >= LIBRARY_IMAGES_MAX {
            let why = format!("the cache has {LIBRARY_IMAGES_MAX} images; remove some");
            return Err(ImageUploadError::Disk(format!(
                "Image {name} cannot be stored: {why}."
            )));
        }
        let (have, size) = match image.map(|image| &image.phase) {
            None | Some(ImagePhase::Failed { .. }) => (0, None),
            Some(ImagePhase::Partial { have, size, .. }) => (*have, *size),
            Some(ImagePhase::Uploading(_)) => {
                return conflict("is being uploaded by another client; wait for that".to_owned());
            }
            Some(ImagePhase::Whole) => {
                return conflict("is already complete; there is nothing to upload".to_owned());
            }
            Some(_) => {
                return conflict("is being fetched or checked; wait for that".to_owned());
            }
        };
        if range.from > 0 && range.from != have {
            return conflict(format!(
                "has {have} bytes here; continue from there, or start again at byte 0"
            ));
        }
        if let Some(size) = size.filter(|size| range.from > 0 && *size != range.size) {
            return conflict(format!(
                "was announced with {size} bytes; to change that, start the upload again at byte 0"
            ));
        }
        Ok(())
    }

    /// The space for an upload was measured. Bytes of an earlier upload are kept until there is
    /// space.
    pub(super) fn upload_space(&mut self, now: Now, offer: UploadOffer, space: Result<(), String>) {
        let (ticket, range) = (offer.ticket, offer.range);
        let refusal = match space {
            Ok(()) => self.may_upload(&offer).err(),
            Err(why) => {
                let (image, bytes) = (offer.spec.name.clone(), range.size);
                let error = ImageFillError::NoSpace { image, bytes, why };
                Some(ImageUploadError::NoSpace(sentence(&error.to_string())))
            }
        };
        if let Some(error) = refusal {
            return self.answer_upload(ticket, ImageUploadAnswer::Refused(error));
        }
        let key = offer.spec.key();
        let file = if range.from > 0 {
            ImageFileKind::Stored { whole: false }
        } else {
            ImageFileKind::Empty
        };
        if let Some(old) = self.images.remove(&key) {
            self.close_entry(old.entry);
        }
        let entry = self.open_entry(EntryOwner::Image(key), key, file);
        let metadata = ImageMetadata {
            size: Some(range.size),
            ..ImageMetadata::new(&offer.spec)
        };
        let job = ImageUploadJob {
            ticket,
            range,
            have: range.from,
            phase: UploadPhase::Saving,
        };
        let phase = ImagePhase::Uploading(Box::new(job));
        let mut image = LibraryImage::new(metadata.clone(), entry, phase);
        image.used_at_ms = now.tick.0.max(1);
        image.expected_bytes = range.size;
        self.images.insert(key, image);
        let metadata = Box::new(metadata);
        self.order_file(entry, ImageFileOrder::SaveMetadata(metadata));
    }

    fn upload_mut(&mut self, key: ImageKey) -> Option<&mut ImageUploadJob> {
        match &mut self.images.get_mut(&key)?.phase {
            ImagePhase::Uploading(job) => Some(job),
            _ => None,
        }
    }

    /// The result of an order on the file that is uploaded.
    pub(super) fn upload_result(
        &mut self,
        now: Now,
        key: ImageKey,
        result: Result<ImageFillResult, ImageDiskError>,
    ) {
        let Some(image) = self.images.get(&key) else {
            return;
        };
        let (entry, spec) = (image.entry, image.metadata.spec.clone());
        let size = image.metadata.size;
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                let why = self.disk_failure_reason(key, &error);
                let image = spec.name.clone();
                let failure = UploadFailure::Disk(ImageFillError::Disk { image, why });
                return self.upload_failed(now, key, failure);
            }
        };
        let Some(job) = self.upload_mut(key) else {
            return;
        };
        let (ticket, have) = (job.ticket, job.have);
        match (job.phase, result) {
            (UploadPhase::Saving, _) => {
                job.phase = UploadPhase::StartingHash;
                let chunks = chunks_before(have);
                self.order_file(entry, ImageFileOrder::StartHashing { chunks });
            }
            (UploadPhase::StartingHash, _) => {
                job.phase = UploadPhase::Receiving;
                if let Some(size) = size {
                    self.orders
                        .push(ImageWorkOrder::AnnounceSize { entry, size });
                }
                self.report(&spec, size, have, ImageState::Fetching);
                self.answer_upload(ticket, ImageUploadAnswer::Receive(entry));
            }
            (UploadPhase::Pausing, _) => {
                let image = spec.name.clone();
                let error = ImageFillError::UploadIncomplete { image, have };
                self.upload_failed(now, key, UploadFailure::Incomplete(error));
            }
            (UploadPhase::Hashing, ImageFillResult::Hashed(found)) => {
                self.upload_hashed(now, key, found);
            }
            (UploadPhase::Magic, ImageFillResult::Magic { is_qcow2 }) => {
                if let Err(error) = check_declared_format(&spec, is_qcow2) {
                    return self.upload_failed(now, key, UploadFailure::Wrong(error));
                }
                job.phase = UploadPhase::Marking;
                self.order_file(entry, ImageFileOrder::MarkWhole { size: have });
            }
            (UploadPhase::Marking, _) => {
                self.settle(now, key, FillOutcome::Whole);
                self.report(&spec, size, have, ImageState::Complete);
                self.answer_upload(ticket, ImageUploadAnswer::Stored(have));
                if spec.format.is_packed() {
                    // The disk in it is unpacked before a node needs it.
                    let _ = self.request_disk(now, &spec, true);
                }
            }
            _ => {}
        }
    }

    /// All bytes came, and this is their digest.
    fn upload_hashed(&mut self, now: Now, key: ImageKey, found: Digest) {
        let Some(image) = self.images.get(&key) else {
            return;
        };
        let (entry, spec) = (image.entry, image.metadata.spec.clone());
        let Some(job) = self.upload_mut(key) else {
            return;
        };
        if found == spec.digest {
            job.phase = UploadPhase::Magic;
            return self.order_file(entry, ImageFileOrder::ReadMagic);
        }
        let error = ImageFillError::UploadMismatch {
            image: spec.name.clone(),
            algorithm: found.algorithm(),
            expected: spec.digest.to_string(),
            found: found.to_string(),
            bytes: job.have,
        };
        self.upload_failed(now, key, UploadFailure::Wrong(error));
    }

    /// Bytes were appended.
    pub(super) fn upload_received(&mut self, key: ImageKey, bytes: u64) {
        let Some(job) = self.upload_mut(key) else {
            return;
        };
        job.have += bytes;
        let have = job.have;
        if let Some(image) = self.images.get(&key) {
            let (spec, size) = (image.metadata.spec.clone(), image.metadata.size);
            self.report(&spec, size, have, ImageState::Fetching);
        }
    }

    /// No more bytes follow.
    pub(super) fn upload_ended(
        &mut self,
        now: Now,
        entry: ImageEntryId,
        bytes: u64,
        result: Result<(), ImageDiskError>,
    ) {
        let Some(EntryOwner::Image(key)) = self.entries.get(&entry).cloned() else {
            return;
        };
        let Some(job) = self.upload_mut(key) else {
            return;
        };
        if job.phase != UploadPhase::Receiving {
            return;
        }
        job.have += bytes;
        if let Err(error) = result {
            return self.upload_result(now, key, Err(error));
        }
        let order = if job.have < job.range.size {
            job.phase = UploadPhase::Pausing;
            ImageFileOrder::PauseHashing
        } else {
            job.phase = UploadPhase::Hashing;
            ImageFileOrder::FinishHashing
        };
        self.order_file(entry, order);
    }

    /// Releases the image; the stored bytes are verified before another upload continues.
    fn upload_failed(&mut self, now: Now, key: ImageKey, failure: UploadFailure) {
        let Some(job) = self.upload_mut(key) else {
            return;
        };
        let (ticket, have, range) = (job.ticket, job.have, job.range);
        let Some(spec) = self.images.get(&key).map(|it| it.metadata.spec.clone()) else {
            return;
        };
        let is_disk = matches!(failure, UploadFailure::Disk(_));
        let (error, otherwise) = match failure {
            UploadFailure::Wrong(error) => {
                let why = error.to_string();
                let size = self.images.get(&key).and_then(|image| image.metadata.size);
                self.report(&spec, size, 0, ImageState::Wrong(why.clone()));
                let text = ImageUploadError::Mismatch(sentence(&why));
                let outcome = FillOutcome::Failed {
                    why,
                    is_wrong: true,
                    keeps_files: false,
                };
                self.settle(now, key, outcome);
                return self.answer_upload(ticket, ImageUploadAnswer::Refused(text));
            }
            UploadFailure::Incomplete(error) => {
                let all_came = have == range.from + range.bytes;
                let text = ImageUploadError::Interrupted(sentence(&error.to_string()));
                (error, (!all_came).then_some(text))
            }
            UploadFailure::Disk(error) => {
                let text = ImageUploadError::Disk(sentence(&error.to_string()));
                (error, Some(text))
            }
        };
        let why = error.to_string();
        let reply = PendingUploadReply {
            ticket,
            otherwise,
            disk_failure: is_disk.then(|| why.clone()),
        };
        self.upload_replies.insert(key, reply);
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        // Too little to be kept, or the next reader continues from the sources.
        if have < CHUNK_BYTES || !spec.sources.is_empty() {
            let size = image.metadata.size;
            self.report(&spec, size, have, ImageState::Failed(why.clone()));
            let outcome = FillOutcome::Failed {
                why,
                is_wrong: false,
                keeps_files: have >= CHUNK_BYTES,
            };
            return self.settle(now, key, outcome);
        }
        let old = image.entry;
        image.phase = ImagePhase::Stored;
        self.end_reads(old, &why, false);
        self.reopen(key, ImageFileKind::Stored { whole: false });
        self.start_image(now, key);
    }

    /// The bytes of an upload that has ended were verified.
    pub(super) fn upload_settled(&mut self, key: ImageKey) {
        let Some(reply) = self.upload_replies.remove(&key) else {
            return;
        };
        let have = match self.images.get(&key).map(|image| &image.phase) {
            Some(ImagePhase::Partial { have, .. }) => *have,
            _ => 0,
        };
        let image = self.images.get(&key);
        let facts = image.map(|image| (image.metadata.spec.clone(), image.metadata.size));
        if let (Some((spec, size)), Some(why)) = (facts, reply.disk_failure) {
            self.report(&spec, size, have, ImageState::Failed(why));
        }
        let answer = match reply.otherwise {
            Some(error) => ImageUploadAnswer::Refused(error),
            None => ImageUploadAnswer::Stored(have),
        };
        self.answer_upload(reply.ticket, answer);
    }

    /// The image was removed while it was uploaded.
    pub(super) fn refuse_removed_upload(&mut self, upload: &ImageUploadJob) {
        let message = "The image was removed while it was uploaded.".to_owned();
        let answer = ImageUploadAnswer::Refused(ImageUploadError::Disk(message));
        self.answer_upload(upload.ticket, answer);
    }
}

/// An error as a whole sentence.
fn sentence(error: &str) -> String {
    let mut characters = error.chars();
    let first = characters
        .next()
        .map(|character| character.to_ascii_uppercase());
    let text: String = first.into_iter().chain(characters).collect();
    format!("{text}.")
}
