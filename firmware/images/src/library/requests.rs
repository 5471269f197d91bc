//! Requests for images: orders, reads, and removal.

use trivet_model::{Digest, Now};

use super::{
    EntryOwner, FoundImages, ImageEntryId, ImageFileKind, ImageLibrary, ImagePhase, ImageWorkOrder,
    LIBRARY_IMAGES_MAX, LibraryImage, UploadOffer,
};
use crate::{ImageFormat, ImageKey, ImageSpec};

/// The most requests that wait until the stored images are known. Ours.
const EARLY_REQUESTS_MAX: usize = LIBRARY_IMAGES_MAX;

/// The most names under which one image is awaited at once. Ours.
const NAMES_MAX: usize = 16;

/// A request from before the stored images were known.
#[derive(Clone, Debug)]
pub(super) enum EarlyRequest {
    Want(ImageSpec, bool),
    VerifyAgain(ImageSpec),
    Drop(Digest),
    Url(String, ImageFormat),
    Upload(UploadOffer),
}

/// Permission to read an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImageReadGrant {
    /// The entry to read.
    pub entry: ImageEntryId,
    /// The file that is read: for a packed image its disk, once that is known.
    pub key: ImageKey,
}

impl ImageLibrary {
    /// The stored images are known: they are verified one after the other, and what was requested
    /// before is handled.
    pub(super) fn found(&mut self, now: Now, found: FoundImages) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        for one in found.images.into_iter().take(LIBRARY_IMAGES_MAX) {
            let (key, whole) = (one.metadata.spec.key(), one.metadata.whole);
            let file = ImageFileKind::Stored { whole };
            let entry = self.open_entry(EntryOwner::Image(key), key, file);
            let mut image = LibraryImage::new(one.metadata, entry, ImagePhase::Stored);
            image.written_at = one.written_at;
            self.images.insert(key, image);
            self.resume_queue.push_back(key);
        }
        let disks = found.disks.into_iter().take(LIBRARY_IMAGES_MAX);
        self.disks = disks.map(|disk| (disk.key(), disk)).collect();
        for key in found.interrupted {
            let image = self.images.get(&key);
            let spec = image.map(|image| image.metadata.spec.clone());
            if let Some(spec) = spec.filter(|spec| spec.format.is_packed()) {
                // Errors are reported as image statuses.
                let _ = self.request_disk(now, &spec, true);
            }
        }
        for request in std::mem::take(&mut self.early) {
            match request {
                EarlyRequest::Want(spec, is_urgent) => self.want(now, &spec, is_urgent),
                EarlyRequest::VerifyAgain(spec) => self.verify_again(now, &spec),
                EarlyRequest::Drop(digest) => self.drop_image(now, digest),
                EarlyRequest::Url(url, format) => self.fetch_url(now, &url, format),
                EarlyRequest::Upload(offer) => self.upload_offered(now, offer),
            }
        }
        self.scrub_at = self.options.scrub_ms.map(|ms| now.tick.after_ms(ms));
        self.resume_next(now);
    }

    pub(super) fn defer(&mut self, request: EarlyRequest) {
        if self.early.len() < EARLY_REQUESTS_MAX {
            self.early.push(request);
        }
    }

    /// Images found at the start are verified one after the other.
    fn resume_next(&mut self, now: Now) {
        while self.resuming.is_none()
            && let Some(key) = self.resume_queue.pop_front()
        {
            self.start_image(now, key);
            let busy = self.images.get(&key).is_some_and(LibraryImage::is_busy);
            self.resuming = busy.then_some(key);
        }
    }

    /// Images that were found at the start are still being verified.
    pub fn is_resuming(&self) -> bool {
        self.resuming.is_some()
    }

    pub(super) fn resume_settled(&mut self, now: Now, key: ImageKey) {
        if self.resuming == Some(key) {
            self.resuming = None;
            self.resume_next(now);
        }
    }

    /// Requests what readers of this image receive.
    pub(super) fn request(
        &mut self,
        now: Now,
        wanted: &ImageSpec,
        is_order: bool,
    ) -> Result<(), String> {
        if wanted.format.is_packed() {
            self.request_disk(now, wanted, is_order)
        } else {
            self.request_file(now, wanted, is_order)
        }
    }

    /// Fetches an image, if it is not here, and unpacks it. With `is_urgent` somebody waits for
    /// it, so it is fetched at any hour. News follow in any case, under the name of this request.
    pub fn want(&mut self, now: Now, wanted: &ImageSpec, is_urgent: bool) {
        if !self.is_open {
            return self.defer(EarlyRequest::Want(wanted.clone(), is_urgent));
        }
        let failure = self.request(now, wanted, true).err();
        if is_urgent {
            self.make_urgent(now, wanted.key());
        }
        self.finish_input(now);
        self.await_answer(wanted, failure);
    }

    fn await_answer(&mut self, wanted: &ImageSpec, failure: Option<String>) {
        if failure.is_some() || !self.is_under_way(wanted) {
            return self.answer(wanted, failure);
        }
        let requested = self.requested.entry(wanted.key()).or_default();
        let is_same =
            |other: &ImageSpec| other.name == wanted.name && other.format == wanted.format;
        if requested.len() < NAMES_MAX && !requested.iter().any(is_same) {
            requested.push(wanted.clone());
        }
    }

    /// A reader opens the image; it is fetched if that is not under way. An error is a sentence.
    pub fn read(&mut self, now: Now, wanted: &ImageSpec) -> Result<ImageReadGrant, String> {
        if !self.is_open {
            return Err("the image cache is being opened; retry".to_owned());
        }
        self.request(now, wanted, false)?;
        self.make_urgent(now, wanted.key());
        self.finish_input(now);
        let key = wanted.key();
        let read = self.read_key(wanted);
        let file = read.and_then(|read| Some((read, self.images.get(&read)?.entry)));
        let unpack = self.unpacks.get(&key).map(|unpack| (key, unpack.entry));
        match file.or(unpack) {
            Some((key, entry)) => Ok(ImageReadGrant { entry, key }),
            None => Err("it was removed".to_owned()),
        }
    }

    /// The file whose chunk list belongs to what readers of this image receive, if it is complete.
    pub fn chunk_list(&self, wanted: &ImageSpec) -> Option<ImageKey> {
        let key = self.read_key(wanted)?;
        let is_whole = self.images.get(&key).is_some_and(LibraryImage::is_whole);
        is_whole.then_some(key)
    }

    /// The file that readers of this image receive: its own, or that of its disk if that was
    /// unpacked.
    pub(super) fn read_key(&self, wanted: &ImageSpec) -> Option<ImageKey> {
        let key = wanted.key();
        if wanted.format.is_packed() {
            return self.disks.get(&key).map(|disk| disk.raw);
        }
        Some(key)
    }

    /// Removes an image. Current readers of a complete image read on; new ones do not find it.
    pub fn drop_image(&mut self, now: Now, digest: Digest) {
        if !self.is_open {
            return self.defer(EarlyRequest::Drop(digest));
        }
        let key = ImageKey(digest);
        self.shown.retain(|shown, _| shown.0 != key);
        self.wrong.retain(|wrong, _| wrong.0 != key);
        self.drop_disk(now, key);
        self.drop_file(now, key);
        self.finish_input(now);
    }

    pub(super) fn drop_file(&mut self, now: Now, key: ImageKey) {
        let Some(image) = self.images.remove(&key) else {
            self.orders.push(ImageWorkOrder::DeleteFiles(key));
            return;
        };
        if !image.is_whole() {
            self.end_reads(image.entry, "it was removed", false);
        }
        if let ImagePhase::Uploading(upload) = &image.phase {
            self.refuse_removed_upload(upload);
        }
        let owner = self.entries.get(&image.entry).cloned();
        self.close_entry(image.entry);
        self.orders.push(ImageWorkOrder::DeleteFiles(key));
        match owner {
            Some(EntryOwner::Url(url)) => self.url_removed(&url),
            Some(EntryOwner::Unpack(packed)) => {
                self.unpack_failed(now, packed, Err("it was removed".to_owned()));
            }
            Some(EntryOwner::Image(_)) | None => {}
        }
        self.settled.push_back(key);
    }
}
