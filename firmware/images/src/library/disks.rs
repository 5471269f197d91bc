//! Disks in packed images: unpacked once, and kept as images under their own digests.
//!
//! No packed image is unpacked before its digest was right. A disk is an image as soon as all of
//! it is stored.

use trivet_model::image::ImageState;
use trivet_model::{Digest, Now, Tick};

use super::fills::FillOutcome;
use super::space::SpacePurpose;
use super::{
    EntryOwner, ImageDiskError, ImageEntryId, ImageFileKind, ImageFileOrder, ImageLibrary,
    ImagePhase, ImageUnpackError, ImageWorkOrder, LIBRARY_IMAGES_MAX, LibraryImage,
    UnpackedDiskRecord,
};
use crate::{ImageFillError, ImageFillResult, ImageFormat, ImageKey, ImageMetadata, ImageSpec};

/// A disk that is being unpacked.
#[derive(Debug)]
pub(super) struct DiskUnpack {
    pub(super) spec: ImageSpec,
    pub(super) entry: ImageEntryId,
    pub(super) expected_bytes: u64,
    phase: UnpackPhase,
}

#[derive(Debug)]
enum UnpackPhase {
    /// The packed image is not complete yet.
    Awaiting,
    Running,
    Storing {
        record: Box<UnpackedDiskRecord>,
        /// The disk becomes an image; the cache did not have it.
        is_new: bool,
    },
    /// Readers may cause a retry at this time.
    Failed {
        until: Tick,
    },
}

impl ImageLibrary {
    /// Requests the disk in a packed image; it is unpacked if necessary.
    pub(super) fn request_disk(
        &mut self,
        now: Now,
        wanted: &ImageSpec,
        is_order: bool,
    ) -> Result<(), String> {
        let key = wanted.key();
        if self.request_known_disk(now, key, is_order) {
            return Ok(());
        }
        if let Some(unpack) = self.unpacks.get(&key) {
            let rests = match unpack.phase {
                UnpackPhase::Failed { until } => !is_order && until > now.tick,
                _ => true,
            };
            if rests && unpack.spec.format == wanted.format {
                return Ok(());
            }
        }
        if self.unpacks.len() >= LIBRARY_IMAGES_MAX {
            return Err(format!(
                "the cache has {LIBRARY_IMAGES_MAX} images; remove some"
            ));
        }
        if let Some(old) = self.unpacks.remove(&key) {
            self.end_reads(old.entry, "it is unpacked as something else", false);
            self.close_entry(old.entry);
        }
        let owner = EntryOwner::Unpack(key);
        let entry = self.open_entry(owner, key, ImageFileKind::Unpacking);
        self.unpacks.insert(
            key,
            DiskUnpack {
                spec: wanted.clone(),
                entry,
                expected_bytes: 0,
                phase: UnpackPhase::Awaiting,
            },
        );
        if let Err(why) = self.request_file(now, wanted, is_order) {
            self.unpack_failed(now, key, Err(why));
        } else {
            self.continue_unpack(now, key);
        }
        Ok(())
    }

    /// Requests a disk that was unpacked before; false if there is none.
    fn request_known_disk(&mut self, now: Now, key: ImageKey, is_order: bool) -> bool {
        let Some(raw) = self.disks.get(&key).map(|disk| disk.raw) else {
            return false;
        };
        let Some(image) = self.images.get_mut(&raw) else {
            self.forget_disk(key);
            return false;
        };
        image.used_at_ms = now.tick.0.max(1);
        let again = match image.phase {
            ImagePhase::Failed {
                keeps_files: false, ..
            } => {
                self.forget_disk(key);
                return false;
            }
            ImagePhase::Failed { until, .. } => is_order || until <= now.tick,
            ImagePhase::Partial { .. } => true,
            _ => false,
        };
        if again {
            let whole = image.metadata.whole;
            image.phase = ImagePhase::Stored;
            self.reopen(raw, ImageFileKind::Stored { whole });
        }
        self.start_image(now, raw);
        true
    }

    fn forget_disk(&mut self, key: ImageKey) {
        if self.disks.remove(&key).is_some() {
            self.orders.push(ImageWorkOrder::DeleteDiskRecord(key));
        }
    }

    /// Whether the disk in this image is being unpacked.
    pub(super) fn is_unpacking(&self, key: ImageKey) -> bool {
        let unpack = self.unpacks.get(&key);
        unpack.is_some_and(|unpack| !matches!(unpack.phase, UnpackPhase::Failed { .. }))
    }

    /// Whether the disk in this image is known, and still has to be verified.
    pub(super) fn awaits_disk(&self, spec: &ImageSpec) -> bool {
        let disk = self.disks.get(&spec.key());
        let image = disk.and_then(|disk| self.images.get(&disk.raw));
        spec.format.is_packed()
            && image
                .is_some_and(|image| image.is_busy() || matches!(image.phase, ImagePhase::Stored))
    }

    /// Whether the file of this packed image is needed now.
    pub(super) fn is_being_unpacked(&self, key: ImageKey) -> bool {
        let repairs = |image: &LibraryImage| match &image.phase {
            ImagePhase::Repairing(repair) => repair.source() == Some(key),
            _ => false,
        };
        self.is_unpacking(key) || self.images.values().any(repairs)
    }

    /// The images that contain this disk.
    pub(super) fn images_containing(&self, raw: ImageKey) -> Vec<UnpackedDiskRecord> {
        let all = self.disks.values().filter(|disk| disk.raw == raw);
        all.cloned().collect()
    }

    /// The work on an image has ended: what needs its file continues.
    pub(super) fn packed_image_settled(&mut self, now: Now, key: ImageKey) {
        self.continue_unpack(now, key);
        let waits = |image: &LibraryImage| match &image.phase {
            ImagePhase::Repairing(repair) => repair.awaits(key),
            _ => false,
        };
        let disks = self.images.iter().filter(|(_, image)| waits(image));
        let disks: Vec<ImageKey> = disks.map(|(disk, _)| *disk).collect();
        for disk in disks {
            self.continue_repair(now, disk);
        }
    }

    /// Starts to unpack once the packed image is complete.
    fn continue_unpack(&mut self, now: Now, key: ImageKey) {
        let file = self.packed_file(key);
        let Some(unpack) = self.unpacks.get_mut(&key) else {
            return;
        };
        if !matches!(unpack.phase, UnpackPhase::Awaiting) {
            return;
        }
        let (into, spec) = (unpack.entry, unpack.spec.clone());
        match file {
            None => {}
            Some(Err(why)) => self.unpack_failed(now, key, Err(why)),
            Some(Ok((from, size))) => {
                unpack.phase = UnpackPhase::Running;
                self.report(&spec, Some(size), size, ImageState::Unpacking);
                self.order_unpack(&spec, (from, size), into, None);
            }
        }
    }

    /// The file of a packed image and its size, or why it cannot be had; none while it is fetched.
    pub(super) fn packed_file(&self, key: ImageKey) -> Option<Result<(ImageEntryId, u64), String>> {
        let Some(image) = self.images.get(&key) else {
            return Some(Err("it was removed".to_owned()));
        };
        match &image.phase {
            ImagePhase::Whole => Some(Ok((image.entry, image.metadata.size.unwrap_or(0)))),
            ImagePhase::Failed { why, .. } | ImagePhase::Partial { why, .. } => {
                Some(Err(why.clone()))
            }
            _ => None,
        }
    }

    pub(super) fn order_unpack(
        &mut self,
        spec: &ImageSpec,
        (from, size): (ImageEntryId, u64),
        into: ImageEntryId,
        only: Option<Vec<u64>>,
    ) {
        self.orders.push(ImageWorkOrder::Unpack {
            from,
            size,
            format: spec.format,
            into,
            only,
        });
    }

    /// An unpacker is about to write.
    pub(super) fn unpack_needs_space(&mut self, into: ImageEntryId, bytes: u64) {
        if let Some(EntryOwner::Unpack(_)) = self.entries.get(&into) {
            self.measure(SpacePurpose::Unpack { into, bytes });
        }
    }

    pub(super) fn unpack_space(
        &mut self,
        into: ImageEntryId,
        bytes: u64,
        result: Result<(), String>,
    ) {
        if let (Some(EntryOwner::Unpack(key)), Ok(())) = (self.entries.get(&into), &result)
            && let Some(unpack) = self.unpacks.get_mut(key)
        {
            unpack.expected_bytes = bytes;
        }
        self.orders
            .push(ImageWorkOrder::UnpackSpace { into, result });
    }

    /// An unpacker has ended.
    pub(super) fn unpacked(
        &mut self,
        now: Now,
        into: ImageEntryId,
        result: Result<(Digest, u64), ImageUnpackError>,
    ) {
        match self.entries.get(&into).cloned() {
            Some(EntryOwner::Unpack(key)) => {
                let Some(spec) = self.unpacks.get(&key).map(|unpack| unpack.spec.clone()) else {
                    return;
                };
                match result {
                    Ok((digest, size)) => self.store_disk(key, &spec, digest, size),
                    Err(error) => {
                        let failure = self.unpack_failure(now, &spec, error);
                        self.unpack_failed(now, key, Ok(failure));
                    }
                }
            }
            Some(EntryOwner::Image(disk)) => self.repair_unpacked(now, disk, result),
            Some(EntryOwner::Url(_)) | None => {}
        }
    }

    /// Makes the disk an image of the cache, unless it is one already: from another packed image,
    /// or as an image itself.
    fn store_disk(&mut self, key: ImageKey, spec: &ImageSpec, digest: Digest, raw_size: u64) {
        let raw = ImageKey(digest);
        let size = self.images.get(&key).and_then(|image| image.metadata.size);
        let record = UnpackedDiskRecord {
            spec: spec.clone(),
            size: size.unwrap_or(0),
            raw,
            raw_size,
        };
        let Some(unpack) = self.unpacks.get_mut(&key) else {
            return;
        };
        let entry = unpack.entry;
        let there = self.images.get(&raw);
        let is_new = !there.is_some_and(|image| image.is_busy() || image.is_whole());
        unpack.phase = UnpackPhase::Storing {
            record: Box::new(record.clone()),
            is_new,
        };
        let disk = is_new.then(|| {
            Box::new(ImageMetadata {
                spec: ImageSpec {
                    name: spec.name.clone(),
                    digest,
                    sources: Vec::new(),
                    format: ImageFormat::Raw,
                },
                size: Some(raw_size),
                validator: None,
                whole: true,
                unpacked_from: Some(key.to_string()),
            })
        });
        if let Some(metadata) = &disk {
            if let Some(old) = self.images.remove(&raw) {
                self.end_reads(old.entry, "it was unpacked again", false);
                self.close_entry(old.entry);
                self.orders.push(ImageWorkOrder::DeleteFiles(raw));
            }
            let image = LibraryImage::new((**metadata).clone(), entry, ImagePhase::Storing);
            self.images.insert(raw, image);
        }
        let record = Box::new(record);
        self.order_file(entry, ImageFileOrder::StoreDisk { disk, record });
    }

    /// The unpacked disk was stored.
    pub(super) fn disk_stored(
        &mut self,
        now: Now,
        key: ImageKey,
        result: Result<ImageFillResult, ImageDiskError>,
    ) {
        let Some(unpack) = self.unpacks.get(&key) else {
            return;
        };
        let UnpackPhase::Storing { record, is_new } = &unpack.phase else {
            return;
        };
        let (record, is_new, entry) = ((**record).clone(), *is_new, unpack.entry);
        if let Err(error) = result {
            if is_new {
                self.images.remove(&record.raw);
            }
            let failure = self.disk_failure(&record.spec, &error);
            return self.unpack_failed(now, key, Ok(failure));
        }
        self.unpacks.remove(&key);
        let (spec, size, raw) = (record.spec.clone(), record.size, record.raw);
        let raw_size = record.raw_size;
        self.disks.insert(key, record);
        if is_new {
            self.entries.insert(entry, EntryOwner::Image(raw));
            if let Some(image) = self.images.get_mut(&raw) {
                image.used_at_ms = now.tick.0.max(1);
            }
            self.settle(now, raw, FillOutcome::Whole);
        } else {
            self.orders.push(ImageWorkOrder::AllowReads {
                entry,
                size: raw_size,
            });
            self.close_entry(entry);
        }
        self.report(&spec, Some(size), size, ImageState::Complete);
    }

    /// There is no disk: for a failure that is not known yet, or because the packed image itself
    /// cannot be had.
    pub(super) fn unpack_failed(
        &mut self,
        now: Now,
        key: ImageKey,
        failure: Result<ImageFillError, String>,
    ) {
        let Some(unpack) = self.unpacks.get_mut(&key) else {
            return;
        };
        // The empty file remains: after a restart the unpacking is retried, and its result
        // reported again.
        let until = now.tick.after_ms(self.options.retry_delay_ms);
        unpack.phase = UnpackPhase::Failed { until };
        unpack.expected_bytes = 0;
        let (entry, spec) = (unpack.entry, unpack.spec.clone());
        let why = match failure {
            Ok(failure) => {
                self.report(&spec, None, 0, failure.image_state());
                failure.to_string()
            }
            Err(why) => {
                // Work on the file may have been done for another format.
                let shown = self.status(key, spec.format).map(|status| status.state);
                if shown.is_none_or(|state| state.failure().is_none()) {
                    let state = self.file_failure(key);
                    let state = state.unwrap_or_else(|| ImageState::Failed(why.clone()));
                    self.report(&spec, None, 0, state);
                }
                why
            }
        };
        let is_wrong = self.wrong(&spec).is_some();
        self.end_reads(entry, &why, is_wrong);
    }

    pub(super) fn disk_failure(&self, spec: &ImageSpec, error: &ImageDiskError) -> ImageFillError {
        ImageFillError::Disk {
            image: spec.name.clone(),
            why: self.disk_failure_reason(spec.key(), error),
        }
    }

    pub(super) fn unpack_failure(
        &mut self,
        now: Now,
        spec: &ImageSpec,
        error: ImageUnpackError,
    ) -> ImageFillError {
        let image = spec.name.clone();
        match error {
            ImageUnpackError::Refused(why) => ImageFillError::Format { image, why },
            ImageUnpackError::NoSpace { bytes, why } => {
                ImageFillError::NoSpace { image, bytes, why }
            }
            ImageUnpackError::Disk(error) => self.disk_failure(spec, &error),
            ImageUnpackError::Corrupt => {
                self.invalidate(now, spec.key());
                let why = "it has changed on this box's disk; it is checked again".to_owned();
                ImageFillError::Disk { image, why }
            }
            ImageUnpackError::Closed => ImageFillError::Disk {
                image,
                why: "it was removed meanwhile".to_owned(),
            },
        }
    }

    /// An image was removed: its disk goes as well, unless another image contains it too.
    pub(super) fn drop_disk(&mut self, now: Now, key: ImageKey) {
        if let Some(unpack) = self.unpacks.remove(&key) {
            self.end_reads(unpack.entry, "it was removed", false);
            if let UnpackPhase::Storing {
                record,
                is_new: true,
            } = &unpack.phase
            {
                self.drop_file(now, record.raw);
                self.orders.push(ImageWorkOrder::DeleteDiskRecord(key));
            }
            self.discard_entry(unpack.entry);
        }
        let Some(disk) = self.disks.get(&key).cloned() else {
            return;
        };
        self.forget_disk(key);
        let image = self.images.get(&disk.raw);
        let is_unpacked = image.is_some_and(|image| image.metadata.unpacked_from.is_some());
        if is_unpacked && self.images_containing(disk.raw).is_empty() {
            self.drop_file(now, disk.raw);
        }
    }
}
