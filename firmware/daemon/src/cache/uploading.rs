//! Receives images that clients upload. As in a fill, a thread writes and hashes the
//! bytes, and readers follow. If the client disconnects, the received bytes are
//! verified and kept until the upload continues.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use trivet_chunks::{CHUNK_BYTES, ChunkList};
use trivet_images::{
    ImageFillError, ImageMetadata, ImageSpec, REPORT_BYTES, check_declared_format,
};
use trivet_model::image::ImageState;

use super::entry::{self, CacheEntry};
use super::filling::is_qcow2;
use super::hashing::ImageHasher;
use super::{
    CacheSlot, CacheSlotState, ENTRIES_MAX, FillOutcome, ImageCache, PartialImage, checking,
};

/// How long the client may pause.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// The range of bytes that a client uploads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ImageUploadRange {
    /// Offset of the first byte.
    pub(crate) from: u64,
    /// Number of bytes in this range.
    pub(crate) bytes: u64,
    /// Size of the whole image in bytes.
    pub(crate) size: u64,
}

/// Why an upload failed; each variant has a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ImageUploadError {
    /// The range does not match the state of the image.
    Conflict(String),
    /// The cache has no space.
    NoSpace(String),
    /// The box's own disk failed.
    Disk(String),
    /// All bytes were received, but the digest is wrong.
    Mismatch(String),
    /// The client disconnected.
    Interrupted(String),
}

/// An upload in progress.
struct ImageUploadTask {
    cache: ImageCache,
    key: String,
    entry: Arc<CacheEntry>,
    kept: ImageMetadata,
    have: u64,
    reported: u64,
}

impl ImageCache {
    /// Receives the offered bytes; returns how many bytes of the image are then stored.
    pub(crate) async fn upload<B>(
        &self,
        wanted: &ImageSpec,
        offer: ImageUploadRange,
        body: &mut B,
    ) -> Result<u64, ImageUploadError>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let key = wanted.key().to_string();
        self.verify_stored(&key).await;
        if let Some(size) = self.adopt(&key, wanted) {
            // Read the body to its end: the client would not read the response before.
            while let Ok(Some(Ok(_))) = timeout(PAUSE_MAX, body.frame()).await {}
            return Ok(size);
        }
        Self::may_claim(&self.slots(), &key, wanted, offer)?;
        // Check the space before the bytes of an earlier upload are discarded.
        let room = self.reserve_space(&key, offer.size);
        let (image, bytes) = (wanted.name.clone(), offer.size);
        let no_room = |why| ImageFillError::NoSpace { image, bytes, why }.to_string();
        room.map_err(|why| ImageUploadError::NoSpace(format!("{}.", capitalised(&no_room(why)))))?;
        let entry = self.claim(&key, wanted, offer)?;
        let mut upload = ImageUploadTask {
            cache: self.clone(),
            key,
            entry,
            kept: ImageMetadata {
                size: Some(offer.size),
                ..ImageMetadata::new(wanted)
            },
            have: offer.from,
            reported: offer.from,
        };
        let went = upload.receive(body, offer).await;
        upload.finish(went, offer).await
    }

    /// Bytes that were stored before the start are verified before an upload continues
    /// them.
    async fn verify_stored(&self, key: &str) {
        let entry = {
            let mut slots = self.slots();
            let Some(slot) = slots.get_mut(key) else {
                return;
            };
            self.start_task(key, slot);
            let checks = slot.spec.sources.is_empty() && matches!(slot.state, CacheSlotState::Busy);
            checks.then(|| Arc::clone(&slot.entry))
        };
        if let Some(entry) = entry {
            entry.finished().await;
        }
    }

    /// If the image is stored as the disk of a packed image, keeps it as an image by
    /// itself. Returns its size.
    fn adopt(&self, key: &str, wanted: &ImageSpec) -> Option<u64> {
        let size = {
            let mut slots = self.slots();
            let slot = slots.get_mut(key)?;
            let mut kept = entry::read_metadata(&self.0.root, key)?;
            if !matches!(slot.state, CacheSlotState::Whole) || kept.unpacked_from.is_none() {
                return None;
            }
            kept.unpacked_from = None;
            kept.spec = wanted.clone();
            entry::write_metadata(&kept, &self.0.root).ok()?;
            slot.spec = wanted.clone();
            kept.size?
        };
        self.report(wanted, Some(size), size, ImageState::Complete);
        Some(size)
    }

    /// Whether an upload may take the image's slot.
    fn may_claim(
        slots: &BTreeMap<String, CacheSlot>,
        key: &str,
        wanted: &ImageSpec,
        offer: ImageUploadRange,
    ) -> Result<(), ImageUploadError> {
        let name = &wanted.name;
        let conflict = |why: String| Err(ImageUploadError::Conflict(format!("Image {name} {why}")));
        let disk =
            |why: String| ImageUploadError::Disk(format!("Image {name} cannot be stored: {why}."));
        if !slots.contains_key(key) && slots.len() >= ENTRIES_MAX {
            let why = format!("the cache has {ENTRIES_MAX} images; remove some");
            return Err(disk(why));
        }
        let here = match slots.get(key).map(|slot| &slot.state) {
            None | Some(CacheSlotState::Failed(_)) => PartialImage::default(),
            Some(CacheSlotState::Partial(part, _)) => *part,
            Some(CacheSlotState::Uploading) => {
                return conflict("is being uploaded by another client; wait for that".to_owned());
            }
            Some(CacheSlotState::Busy | CacheSlotState::Unverified(_)) => {
                return conflict("is being fetched or checked; wait for that".to_owned());
            }
            Some(CacheSlotState::Whole) => {
                return conflict("is already complete; there is nothing to upload".to_owned());
            }
        };
        let have = here.have;
        if offer.from > 0 && offer.from != have {
            return conflict(format!(
                "has {have} bytes here; continue from there, or start again at byte 0"
            ));
        }
        if let Some(size) = here
            .size
            .filter(|size| offer.from > 0 && *size != offer.size)
        {
            return conflict(format!(
                "was announced with {size} bytes; to change that, start the upload again at byte 0"
            ));
        }
        Ok(())
    }

    /// Takes the image's slot exclusively.
    fn claim(
        &self,
        key: &str,
        wanted: &ImageSpec,
        offer: ImageUploadRange,
    ) -> Result<Arc<CacheEntry>, ImageUploadError> {
        let name = &wanted.name;
        let disk =
            |why: String| ImageUploadError::Disk(format!("Image {name} cannot be stored: {why}."));
        let mut slots = self.slots();
        Self::may_claim(&slots, key, wanted, offer)?;
        let entry = if offer.from > 0 {
            CacheEntry::open(&self.0.root, key, false)
        } else {
            CacheEntry::create(&self.0.root, key)
        };
        let entry = Arc::new(entry.map_err(|error| disk(error.to_string()))?);
        let slot = CacheSlot {
            spec: wanted.clone(),
            entry: Arc::clone(&entry),
            state: CacheSlotState::Uploading,
            used_at_ms: self.0.options.clock.now().tick.0,
        };
        slots.insert(key.to_owned(), slot);
        Ok(entry)
    }
}

impl ImageUploadTask {
    /// Receives the body; an early end is a failure like others.
    async fn receive<B>(
        &mut self,
        body: &mut B,
        offer: ImageUploadRange,
    ) -> Result<(), ImageFillError>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let image = self.kept.spec.name.clone();
        let room = self.cache.reserve_space(&self.key, offer.size);
        let bytes = offer.size;
        room.map_err(|why| ImageFillError::NoSpace { image, bytes, why })?;
        let hashing = self.start()?;
        self.report(ImageState::Fetching);
        let until = offer.from + offer.bytes;
        while self.have < until {
            let piece = match timeout(PAUSE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                _ => break,
            };
            let room = usize::try_from(until - self.have).unwrap_or(usize::MAX);
            let piece = piece.slice(..piece.len().min(room));
            let length = piece.len() as u64;
            if length > 0 && hashing.push(piece).await.is_err() {
                return Err(self.disk_failure(&hashing.failure()));
            }
            self.have += length;
            if self.have - self.reported >= REPORT_BYTES {
                self.reported = self.have;
                self.report(ImageState::Fetching);
            }
        }
        let image = self.kept.spec.name.clone();
        if self.have < offer.size {
            hashing
                .pause()
                .await
                .map_err(|error| self.disk_failure(&error))?;
            let have = self.have;
            return Err(ImageFillError::UploadIncomplete { image, have });
        }
        let found = hashing
            .finish()
            .await
            .map_err(|error| self.disk_failure(&error))?;
        let expected = self.kept.spec.digest;
        if found != expected {
            return Err(ImageFillError::UploadMismatch {
                image,
                algorithm: found.algorithm(),
                expected: expected.to_string(),
                found: found.to_string(),
                bytes: self.have,
            });
        }
        let packed = is_qcow2(&self.entry).map_err(|error| self.disk_failure(&error))?;
        check_declared_format(&self.kept.spec, packed)?;
        self.mark_whole()
    }

    /// Starts the thread, and stores what is needed after a restart.
    fn start(&self) -> Result<ImageHasher, ImageFillError> {
        let failed = |error| self.disk_failure(&error);
        let digest = self.kept.spec.digest;
        let mut list = if self.have > 0 {
            checking::read_list(&self.cache, &self.key, &digest)
        } else {
            ChunkList::new(&digest)
        };
        list.truncate(self.have / CHUNK_BYTES);
        if list.known_chunks() * CHUNK_BYTES != self.have {
            let error = std::io::Error::other("its chunk list is missing; start the upload again");
            return Err(failed(error));
        }
        let path = self.cache.path(&self.key, "chunks");
        std::fs::write(&path, list.bytes()).map_err(failed)?;
        let chunks = OpenOptions::new().append(true).open(path).map_err(failed)?;
        entry::write_metadata(&self.kept, &self.cache.0.root).map_err(failed)?;
        if let Some(size) = self.kept.size {
            self.entry.set_size(size);
        }
        self.entry.set_hashed(self.have);
        ImageHasher::start(Arc::clone(&self.entry), list, chunks).map_err(failed)
    }

    /// Marks the image as complete in the cache.
    fn mark_whole(&self) -> Result<(), ImageFillError> {
        if !self.cache.is_current(&self.key, &self.entry) {
            let error = std::io::Error::other("it was removed meanwhile");
            return Err(self.disk_failure(&error));
        }
        let path = |end| self.cache.path(&self.key, end);
        std::fs::rename(path("part"), path("whole"))
            .and_then(|()| std::fs::File::open(&self.cache.0.root)?.sync_all())
            .map_err(|error| self.disk_failure(&error))
    }

    fn disk_failure(&self, error: &std::io::Error) -> ImageFillError {
        let wanted = &self.kept.spec;
        self.cache.disk_failure(&self.key, wanted, error)
    }

    fn report(&self, state: ImageState) {
        let size = self.kept.size;
        self.cache.report(&self.kept.spec, size, self.have, state);
    }

    /// Releases the slot; the stored bytes are verified before another upload
    /// continues.
    async fn finish(
        mut self,
        went: Result<(), ImageFillError>,
        offer: ImageUploadRange,
    ) -> Result<u64, ImageUploadError> {
        let Err(failure) = went else {
            if self
                .cache
                .finish_task(&self.key, &self.entry, FillOutcome::Whole)
            {
                self.report(ImageState::Complete);
            }
            return Ok(self.have);
        };
        let why = failure.to_string();
        let sentence = format!("{}.", capitalised(&why));
        match failure {
            ImageFillError::UploadMismatch { .. } | ImageFillError::Format { .. } => {
                self.have = 0;
                let left = FillOutcome::Failed {
                    why: why.clone(),
                    keeps_files: false,
                };
                if self.cache.finish_task(&self.key, &self.entry, left) {
                    self.report(ImageState::Wrong(why));
                }
                Err(ImageUploadError::Mismatch(sentence))
            }
            ImageFillError::UploadIncomplete { .. } => {
                let all_came = self.have == offer.from + offer.bytes;
                self.verify_partial(&why).await;
                if all_came {
                    return Ok(self.cache.partial_image(&self.key).have);
                }
                Err(ImageUploadError::Interrupted(sentence))
            }
            // No byte was received, so the earlier state is unchanged.
            ImageFillError::NoSpace { .. } if offer.from == 0 => {
                self.cache.remove_empty(&self.key, &self.entry);
                Err(ImageUploadError::NoSpace(sentence))
            }
            ImageFillError::NoSpace { .. } => {
                self.verify_partial(&why).await;
                Err(ImageUploadError::NoSpace(sentence))
            }
            _ => {
                if self.verify_partial(&why).await {
                    self.have = self.cache.partial_image(&self.key).have;
                    self.report(ImageState::Failed(why));
                }
                Err(ImageUploadError::Disk(sentence))
            }
        }
    }

    /// As after a restart: only chunks that match the list are kept. If there are
    /// sources, the next reader continues from those. False if the image was removed
    /// meanwhile.
    async fn verify_partial(&self, why: &str) -> bool {
        if self.have < CHUNK_BYTES || !self.kept.spec.sources.is_empty() {
            let left = FillOutcome::Failed {
                why: why.to_owned(),
                keeps_files: self.have >= CHUNK_BYTES,
            };
            let ours = self.cache.finish_task(&self.key, &self.entry, left);
            if ours {
                self.report(ImageState::Failed(why.to_owned()));
            }
            return ours;
        }
        let fresh = {
            let mut slots = self.cache.slots();
            let slot = slots.get_mut(&self.key);
            let Some(slot) = slot.filter(|slot| Arc::ptr_eq(&slot.entry, &self.entry)) else {
                // The image was removed meanwhile, so no file of it may remain.
                if !slots.contains_key(&self.key) {
                    self.cache.remove_files(&self.key);
                }
                return false;
            };
            let Ok(fresh) = CacheEntry::open(&self.cache.0.root, &self.key, false) else {
                slot.state = CacheSlotState::Failed(tokio::time::Instant::now());
                slot.entry.fail(why);
                return true;
            };
            let fresh = Arc::new(fresh);
            slot.entry.fail(why);
            slot.entry = Arc::clone(&fresh);
            let kept = ImageMetadata {
                spec: slot.spec.clone(),
                validator: None,
                size: self.kept.size,
                whole: self.kept.whole,
                unpacked_from: None,
            };
            slot.state = CacheSlotState::Unverified(Box::new(kept));
            self.cache.start_task(&self.key, slot);
            fresh
        };
        fresh.finished().await;
        true
    }
}

impl ImageCache {
    /// Removes an image of which no byte is stored.
    fn remove_empty(&self, key: &str, entry: &Arc<CacheEntry>) {
        let mut slots = self.slots();
        if slots
            .get(key)
            .is_some_and(|slot| Arc::ptr_eq(&slot.entry, entry))
        {
            slots.remove(key);
            self.remove_files(key);
        }
    }

    /// How many bytes of an image are stored for an upload to continue.
    fn partial_image(&self, key: &str) -> PartialImage {
        match self.slots().get(key).map(|slot| &slot.state) {
            Some(CacheSlotState::Partial(part, _)) => *part,
            _ => PartialImage::default(),
        }
    }
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
