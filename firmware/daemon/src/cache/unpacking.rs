//! Unpacks the disk in a packed image once, and stores it in the cache as an image
//! under its own digest.
//!
//! No byte of a packed image is parsed before its digest is verified, and every chunk
//! of it is verified again as it is read. The disk is written to a file that is never
//! served (`.unpack`); readers wait at its entry until it is complete and on disk, with
//! its chunk list. Unpacking that was interrupted by a power cut starts again. A disk
//! that has changed in the cache is repaired from its image, which is fetched again if
//! it was evicted.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;
use trivet_images::{ImageFillError, ImageFormat, ImageKey, ImageMetadata, ImageSpec};
use trivet_model::image::{ImageState, UnpackedImage};
use trivet_unpack::Packing;

use super::checking;
use super::derived_image::DerivedImage;
use super::entry::{self, CacheEntry, ImageReader};
use super::unpack_worker::{DiskUnpackError, UnpackWorker, UnpackedDisk};
use super::{CacheSlot, CacheSlotState, ENTRIES_MAX, FillTrigger, ImageCache};

/// Suffix of the key under which space for a disk is reserved while it is unpacked.
pub(super) const UNPACK_SUFFIX: &str = ".unpack";

/// A disk that is being unpacked.
pub(super) struct UnpackJob {
    pub(super) spec: ImageSpec,
    pub(super) entry: Arc<CacheEntry>,
    /// When it may be retried after a failure.
    failed: Option<Instant>,
}

/// Why there is no disk.
pub(super) enum DiskUnavailable {
    /// The packed image itself is not available, which was already reported.
    Reported(String),
    /// A failure of the disk, not reported yet.
    Unreported(ImageFillError),
}

/// The packing of a format; none for images that are read as they are.
fn packing(format: ImageFormat) -> Option<Packing> {
    match format {
        ImageFormat::Qcow2 => Some(Packing::Qcow2),
        ImageFormat::Zstd => Some(Packing::Zstd),
        ImageFormat::Gzip => Some(Packing::Gzip),
        ImageFormat::Xz => Some(Packing::Xz),
        ImageFormat::Raw | ImageFormat::Iso | ImageFormat::Kernel | ImageFormat::Ramdisk => None,
    }
}

impl ImageCache {
    /// Opens the disk in a packed image for reading; unpacks it if necessary.
    pub(super) fn disk_reader(
        &self,
        wanted: &ImageSpec,
        asked: FillTrigger,
    ) -> Result<ImageReader, String> {
        let key = wanted.key().to_string();
        let mut makings = self.unpack_jobs();
        if let Some(reader) = self.existing_disk_reader(&key, asked)? {
            return Ok(reader);
        }
        if let Some(making) = makings.get(&key)
            && making
                .failed
                .is_none_or(|until| until > Instant::now() && matches!(asked, FillTrigger::Read))
            && making.spec.format == wanted.format
        {
            return Ok(ImageReader::new(Arc::clone(&making.entry)));
        }
        if makings.len() >= ENTRIES_MAX {
            return Err(format!("the cache has {ENTRIES_MAX} images; remove some"));
        }
        let entry = CacheEntry::create_for_unpacking(&self.0.root, &key);
        let entry = entry.map_err(|error| format!("the cache cannot create a file: {error}"))?;
        let entry = Arc::new(entry);
        let making = UnpackJob {
            spec: wanted.clone(),
            entry: Arc::clone(&entry),
            failed: None,
        };
        if let Some(old) = makings.insert(key.clone(), making) {
            old.entry.fail("it is unpacked as something else");
        }
        let reader = ImageReader::new(Arc::clone(&entry));
        tokio::spawn(
            self.clone()
                .run_unpack_job(key, wanted.clone(), entry, asked),
        );
        Ok(reader)
    }

    /// Opens a disk that was unpacked earlier.
    fn existing_disk_reader(
        &self,
        key: &str,
        asked: FillTrigger,
    ) -> Result<Option<ImageReader>, String> {
        let mut slots = self.slots();
        let mut links = self.derived_images();
        let Some(raw) = links.get(key).map(|link| link.raw.to_string()) else {
            return Ok(None);
        };
        let lost = match slots.get(&raw) {
            None => true,
            Some(slot) if matches!(slot.state, CacheSlotState::Failed(_)) => {
                entry::read_metadata(&self.0.root, &raw).is_none()
            }
            Some(_) => false,
        };
        if lost {
            links.remove(key);
            DerivedImage::remove(&self.0.root, key);
            return Ok(None);
        }
        let Some(slot) = slots.get_mut(&raw) else {
            return Ok(None);
        };
        if let (CacheSlotState::Failed(until), FillTrigger::Order) = (&mut slot.state, asked) {
            *until = Instant::now();
        }
        slot.used_at_ms = self.0.options.clock.now().tick.0;
        let own = slot.spec.clone();
        self.retry_if_due(&raw, slot, &own)?;
        self.start_task(&raw, slot);
        Ok(Some(ImageReader::new(Arc::clone(&slot.entry))))
    }

    /// Unpacks a disk and reports the result.
    async fn run_unpack_job(
        self,
        key: String,
        wanted: ImageSpec,
        entry: Arc<CacheEntry>,
        asked: FillTrigger,
    ) {
        let went = self.unpack_disk(&key, &wanted, &entry, asked).await;
        let went = went.and_then(|(size, made)| {
            self.publish(&key, &wanted, &entry, size, &made)
                .map(|()| size)
                .map_err(|error| {
                    DiskUnavailable::Unreported(self.disk_failure(&key, &wanted, &error))
                })
        });
        let why = match went {
            Ok(size) => return self.report(&wanted, Some(size), size, ImageState::Complete),
            Err(DiskUnavailable::Reported(why)) => why,
            Err(DiskUnavailable::Unreported(failure)) => {
                let why = failure.to_string();
                let state = failure.image_state();
                if entry.is_pending() {
                    self.report(&wanted, None, 0, state);
                }
                why
            }
        };
        let mut makings = self.unpack_jobs();
        if let Some(making) = makings.get_mut(&key)
            && Arc::ptr_eq(&making.entry, &entry)
        {
            // The empty file remains: after a restart the unpacking is retried, and its
            // result reported again.
            let _ = entry.file.set_len(0);
            entry.set_expected(0);
            making.failed = Some(Instant::now() + self.0.options.retry_delay);
        }
        entry.fail(&why);
    }

    /// Waits for the image, and unpacks it on a separate thread.
    async fn unpack_disk(
        &self,
        key: &str,
        wanted: &ImageSpec,
        entry: &Arc<CacheEntry>,
        asked: FillTrigger,
    ) -> Result<(u64, UnpackedDisk), DiskUnavailable> {
        let (size, original) = self.packed_image(key, wanted, asked).await?;
        self.report(wanted, Some(size), size, ImageState::Unpacking);
        let made = self
            .unpack(key, wanted, (size, &original), entry, None)
            .await;
        Ok((size, made.map_err(DiskUnavailable::Unreported)?))
    }

    /// The packed image, complete and verified. It is not evicted while it is read.
    /// Until it is complete, only readers of the disk count as its readers.
    pub(super) async fn packed_image(
        &self,
        key: &str,
        wanted: &ImageSpec,
        mut asked: FillTrigger,
    ) -> Result<(u64, ImageReader), DiskUnavailable> {
        loop {
            let mut quiet = self
                .plain_reader(wanted, asked)
                .map_err(DiskUnavailable::Reported)?
                .uncounted();
            asked = FillTrigger::Read;
            if let Err(why) = quiet.wait_whole().await {
                if self.is_current(key, quiet.entry()) {
                    return Err(DiskUnavailable::Reported(why));
                }
                // The source has another file now, which is being fetched.
                if !self.slots().contains_key(key) {
                    return Err(DiskUnavailable::Reported("it was removed".to_owned()));
                }
                continue;
            }
            let mut reader = self
                .plain_reader(wanted, asked)
                .map_err(DiskUnavailable::Reported)?;
            if let Ok(size) = reader.wait_whole().await {
                return Ok((size, reader));
            }
        }
    }

    /// Unpacks an image into the file of this entry, or only these chunks of it.
    pub(super) async fn unpack(
        &self,
        key: &str,
        wanted: &ImageSpec,
        original: (u64, &ImageReader),
        entry: &Arc<CacheEntry>,
        only: Option<Vec<u64>>,
    ) -> Result<UnpackedDisk, ImageFillError> {
        let image = wanted.name.clone();
        let unpacked_as = packing(wanted.format).ok_or_else(|| ImageFillError::Format {
            image: image.clone(),
            why: format!("is not packed: it is {}", wanted.format),
        })?;
        let (size, reader) = original;
        let list = checking::read_list(self, key, &wanted.digest);
        let room_key = only.is_none().then(|| format!("{key}{UNPACK_SUFFIX}"));
        let cache = self.clone();
        let taking = UnpackWorker::new(
            (Arc::clone(reader.file()), list, wanted.digest, size),
            Arc::clone(entry),
            only,
        );
        let making = Arc::clone(entry);
        let room = move |bytes| match &room_key {
            Some(key) => {
                cache.reserve_space(key, bytes)?;
                making.set_expected(bytes);
                Ok(())
            }
            // Its space is already reserved.
            None => Ok(()),
        };
        let (reply, answer) = oneshot::channel();
        let thread = std::thread::Builder::new().name("unpack".to_owned());
        let started = thread.spawn(move || {
            let _ = reply.send(taking.run(unpacked_as, &room));
        });
        started.map_err(|error| self.disk_failure(key, wanted, &error))?;
        let gone = || {
            let error = std::io::Error::other("the thread has ended");
            self.disk_failure(key, wanted, &error)
        };
        let went = answer.await.map_err(|_| gone())?;
        went.map_err(|trouble| match trouble {
            DiskUnpackError::Refused(refusal) => ImageFillError::Format {
                image,
                why: refusal.to_string(),
            },
            DiskUnpackError::NoSpace { bytes, why } => {
                ImageFillError::NoSpace { image, bytes, why }
            }
            DiskUnpackError::Disk(error) => self.disk_failure(key, wanted, &error),
            DiskUnpackError::Corrupt => {
                self.invalidate(key);
                let why = "it has changed on this box's disk; it is checked again".to_owned();
                ImageFillError::Disk { image, why }
            }
            DiskUnpackError::Removed => ImageFillError::Disk {
                image,
                why: "it was removed meanwhile".to_owned(),
            },
        })
    }

    /// Makes the disk an image of the cache. Its record is written last: a file without
    /// a record is removed at the next start.
    fn publish(
        &self,
        key: &str,
        wanted: &ImageSpec,
        entry: &Arc<CacheEntry>,
        size: u64,
        made: &UnpackedDisk,
    ) -> std::io::Result<()> {
        let mut makings = self.unpack_jobs();
        let ours = |making: &UnpackJob| Arc::ptr_eq(&making.entry, entry);
        if !makings.get(key).is_some_and(ours) {
            return Err(std::io::Error::other("it was removed meanwhile"));
        }
        let raw = ImageKey(made.digest);
        let raw_key = raw.to_string();
        let mut slots = self.slots();
        // The cache may already have the same disk, from another image or as an image
        // itself.
        let there = slots
            .get(&raw_key)
            .is_some_and(|slot| matches!(slot.state, CacheSlotState::Busy | CacheSlotState::Whole));
        let growing = self.path(key, "unpack");
        if there {
            std::fs::remove_file(growing)?;
        } else {
            let path = self.path(&raw_key, "chunks");
            std::fs::write(&path, made.list.bytes())?;
            std::fs::File::open(path)?.sync_all()?;
            std::fs::rename(growing, self.path(&raw_key, "whole"))?;
            let kept = ImageMetadata {
                spec: ImageSpec {
                    name: wanted.name.clone(),
                    digest: made.digest,
                    sources: Vec::new(),
                    format: ImageFormat::Raw,
                },
                size: Some(made.size),
                validator: None,
                whole: true,
                unpacked_from: Some(key.to_owned()),
            };
            entry::write_metadata(&kept, &self.0.root)?;
            let slot = CacheSlot {
                spec: kept.spec,
                entry: Arc::clone(entry),
                state: CacheSlotState::Whole,
                used_at_ms: self.0.options.clock.now().tick.0,
            };
            slots.insert(raw_key, slot);
        }
        let link = DerivedImage {
            spec: wanted.clone(),
            size,
            raw,
            raw_size: made.size,
        };
        link.write(&self.0.root)?;
        self.derived_images().insert(key.to_owned(), link);
        makings.remove(key);
        entry.set_expected(0);
        entry.set_size(made.size);
        entry.set_hashed(made.size);
        entry.mark_verified();
        Ok(())
    }

    /// Whether the disk in this image is being unpacked and a reader waits for it.
    pub(super) fn is_unpacking(&self, key: &str) -> bool {
        let makings = self.unpack_jobs();
        makings.get(key).is_some_and(|it| it.failed.is_none())
    }

    pub(super) fn is_disk_read(&self, key: &str) -> bool {
        let makings = self.unpack_jobs();
        makings.get(key).is_some_and(|it| it.entry.is_read())
    }

    /// The disk in this image, if it is in the cache and verified.
    pub(super) fn unpacked(&self, wanted: &ImageSpec) -> Option<UnpackedImage> {
        if !wanted.format.is_packed() {
            return None;
        }
        let slots = self.slots();
        let links = self.derived_images();
        let link = links.get(&wanted.key().to_string())?;
        let slot = slots.get(&link.raw.to_string())?;
        matches!(slot.state, CacheSlotState::Whole).then_some(UnpackedImage {
            digest: link.raw.0,
            size: link.raw_size,
        })
    }

    /// The key of the file that readers of this image receive: its own, or that of its
    /// disk if that was unpacked.
    pub(crate) fn read_key(&self, wanted: &ImageSpec) -> Option<String> {
        let key = wanted.key().to_string();
        if wanted.format.is_packed() {
            return self
                .derived_images()
                .get(&key)
                .map(|link| link.raw.to_string());
        }
        Some(key)
    }

    /// The images that contain this disk.
    pub(super) fn images_containing(&self, raw: &str) -> Vec<DerivedImage> {
        let links = self.derived_images();
        let all = links.values().filter(|link| link.raw.to_string() == raw);
        all.cloned().collect()
    }

    /// Continues an unpacking that was interrupted.
    pub(super) fn unpack_again(&self, wanted: &ImageSpec) {
        // Errors are reported to the rack.
        let _ = self.disk_reader(wanted, FillTrigger::Order);
    }

    /// An image was removed: removes its disk as well, unless another image contains it
    /// too.
    pub(super) fn drop_disk(&self, key: &str) {
        if let Some(making) = self.unpack_jobs().remove(key) {
            making.entry.fail("it was removed");
        }
        let _ = std::fs::remove_file(self.path(key, "unpack"));
        let Some(link) = self.derived_images().remove(key) else {
            return;
        };
        DerivedImage::remove(&self.0.root, key);
        let raw = link.raw.to_string();
        let made = entry::read_metadata(&self.0.root, &raw)
            .is_some_and(|kept| kept.unpacked_from.is_some());
        if made && self.images_containing(&raw).is_empty() {
            self.drop_slot(&raw);
        }
    }

    /// These images were evicted: reports that to the rack.
    pub(super) fn report_evicted(&self, gone: Vec<(String, ImageSpec)>) {
        for (key, wanted) in gone {
            let disks = self.images_containing(&key);
            for link in &disks {
                self.derived_images().remove(&link.key());
                DerivedImage::remove(&self.0.root, &link.key());
            }
            if self.unpacked(&wanted).is_some() {
                // The disk is still stored, and nodes read only that.
                continue;
            }
            if disks.is_empty() {
                self.report(&wanted, None, 0, ImageState::Evicted);
            }
            for link in disks {
                let here = self.slots().contains_key(&link.key());
                let (size, have, state) = if here {
                    (Some(link.size), link.size, ImageState::Complete)
                } else {
                    (None, 0, ImageState::Evicted)
                };
                self.report(&link.spec, size, have, state);
            }
        }
    }

    pub(super) fn unpack_jobs(&self) -> MutexGuard<'_, BTreeMap<String, UnpackJob>> {
        let makings = self.0.unpack_jobs.lock();
        makings.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn derived_images(&self) -> MutexGuard<'_, BTreeMap<String, DerivedImage>> {
        self.0
            .derived_images
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
