//! An image that somebody sends. It comes in the way a fill does, written and hashed
//! by its own thread, and readers follow it; what came before the sender went away is
//! checked and waits for the rest.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use trivet_chunks::{CHUNK_BYTES, ChunkList};
use trivet_images::{ImageFillError, ImageSpec};
use trivet_model::image::ImageState;

use super::entry::{self, CacheEntry, ImageMetadata};
use super::filling::REPORT_BYTES;
use super::hashing::ImageHasher;
use super::unpacking::check_declared_format;
use super::{
    CacheSlot, CacheSlotState, ENTRIES_MAX, FillOutcome, ImageCache, PartialImage, checking,
};

/// How long the sender may pause.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Which bytes somebody offers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ImageUploadRange {
    /// The first of them.
    pub(crate) from: u64,
    /// How many.
    pub(crate) bytes: u64,
    /// How large the whole image is.
    pub(crate) size: u64,
}

/// Why an upload did not go well; each a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ImageUploadError {
    /// It does not fit what is here.
    Conflict(String),
    /// There is no room.
    NoSpace(String),
    /// The box's own disk failed.
    Disk(String),
    /// All came, and it is something else.
    Mismatch(String),
    /// It broke off.
    Interrupted(String),
}

/// An upload under way.
struct ImageUploadTask {
    cache: ImageCache,
    key: String,
    entry: Arc<CacheEntry>,
    kept: ImageMetadata,
    have: u64,
    reported: u64,
}

impl ImageCache {
    /// Takes what is offered; how many bytes of the image are here then.
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
            // The sender is heard to its end: it would not read the answer before.
            while let Ok(Some(Ok(_))) = timeout(PAUSE_MAX, body.frame()).await {}
            return Ok(size);
        }
        Self::may_claim(&self.slots(), &key, wanted, offer)?;
        // Before what an earlier upload left is given up for it.
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

    /// What lies here since before we started is checked before it is gone on with.
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

    /// A disk that was taken out of a packed image, and is this image, is from now on
    /// kept for its own sake. How large it is.
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
            kept.write(&self.0.root).ok()?;
            slot.spec = wanted.clone();
            kept.size?
        };
        self.report(wanted, Some(size), size, ImageState::Complete);
        Some(size)
    }

    /// Whether an upload may have the image's place.
    fn may_claim(
        slots: &BTreeMap<String, CacheSlot>,
        key: &str,
        wanted: &ImageSpec,
        offer: ImageUploadRange,
    ) -> Result<(), ImageUploadError> {
        let name = &wanted.name;
        let conflict = |why: String| Err(ImageUploadError::Conflict(format!("Image {name} {why}")));
        let disk =
            |why: String| ImageUploadError::Disk(format!("Image {name} cannot be kept: {why}."));
        if !slots.contains_key(key) && slots.len() >= ENTRIES_MAX {
            let why = format!("the cache has {ENTRIES_MAX} images; remove some");
            return Err(disk(why));
        }
        let here = match slots.get(key).map(|slot| &slot.state) {
            None | Some(CacheSlotState::Failed(_)) => PartialImage::default(),
            Some(CacheSlotState::Partial(part, _)) => *part,
            Some(CacheSlotState::Uploading) => {
                return conflict("is being uploaded by somebody else; wait for that".to_owned());
            }
            Some(CacheSlotState::Busy | CacheSlotState::Unverified(_)) => {
                return conflict("is being fetched or checked; wait for that".to_owned());
            }
            Some(CacheSlotState::Whole) => {
                return conflict("is whole already; there is nothing to upload".to_owned());
            }
        };
        let have = here.have;
        if offer.from > 0 && offer.from != have {
            return conflict(format!(
                "has {have} bytes here; go on from there, or begin at byte 0"
            ));
        }
        if let Some(size) = here
            .size
            .filter(|size| offer.from > 0 && *size != offer.size)
        {
            return conflict(format!(
                "was said to have {size} bytes when its upload began; begin it anew at byte 0"
            ));
        }
        Ok(())
    }

    /// The image's place, for us alone.
    fn claim(
        &self,
        key: &str,
        wanted: &ImageSpec,
        offer: ImageUploadRange,
    ) -> Result<Arc<CacheEntry>, ImageUploadError> {
        let name = &wanted.name;
        let disk =
            |why: String| ImageUploadError::Disk(format!("Image {name} cannot be kept: {why}."));
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
    /// Takes the body in; an end before it is all here is a failure like others.
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
        check_declared_format(&self.kept.spec, &self.entry)?;
        self.mark_whole()
    }

    /// The thread, and what a restart has to know.
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
            let error = std::io::Error::other("its chunk list is gone; begin the upload anew");
            return Err(failed(error));
        }
        let path = self.cache.path(&self.key, "chunks");
        std::fs::write(&path, list.bytes()).map_err(failed)?;
        let chunks = OpenOptions::new().append(true).open(path).map_err(failed)?;
        self.kept.write(&self.cache.0.root).map_err(failed)?;
        if let Some(size) = self.kept.size {
            self.entry.set_size(size);
        }
        self.entry.set_hashed(self.have);
        ImageHasher::start(Arc::clone(&self.entry), list, chunks).map_err(failed)
    }

    /// From now on it lies in the cache as a whole one.
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

    /// Gives the place up; what is here is looked at before the next one goes on.
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
            // Nothing has come, and nothing is worse than before.
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

    /// As after a restart: only what fits its list is kept. Where there are sources, the
    /// next reader goes on with those. Whether it was not removed meanwhile.
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
                // Nobody finds it any more, so nothing of it may lie about.
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
    /// Removes an image of which nothing is here.
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

    /// How much of an image waits for an upload to go on.
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
