//! Space: what is evicted for which work, and the error when nothing may be.

use std::collections::BTreeMap;

use trivet_model::Now;

use super::{
    EntryOwner, ImageDiskError, ImageDiskUse, ImageEntryId, ImageEntryUse, ImageLibrary,
    ImagePhase, ImageWorkOrder, LibraryImage, UploadOffer,
};
use crate::space::{CacheSpace, StoredImage, disk_full_message, select_evictions};
use crate::{ImageFillResult, ImageKey};

/// Who needs space.
#[derive(Debug)]
pub(super) enum SpacePurpose {
    /// A fill whose size is known now.
    Fill { entry: ImageEntryId, bytes: u64 },
    /// A fill or a download from a source that did not announce a size.
    Receiving { entry: ImageEntryId, bytes: u64 },
    /// A disk that is unpacked.
    Unpack { into: ImageEntryId, bytes: u64 },
    /// A disk that is unpacked again, because its file was not complete.
    RepairDisk { entry: ImageEntryId, bytes: u64 },
    /// An upload.
    Upload(Box<UploadOffer>),
    /// A file without a digest.
    Url { entry: ImageEntryId, bytes: u64 },
}

/// Lengths and readers of files, by their entries.
type EntryUses = BTreeMap<ImageEntryId, ImageEntryUse>;

impl ImageLibrary {
    /// Measures the disk before space is reserved.
    pub(super) fn measure(&mut self, purpose: SpacePurpose) {
        let ticket = self.next_ticket();
        self.measurements.insert(ticket, purpose);
        self.orders.push(ImageWorkOrder::MeasureSpace { ticket });
    }

    /// The disk was measured.
    pub(super) fn space_measured(&mut self, now: Now, ticket: u64, disk: &ImageDiskUse) {
        let Some(purpose) = self.measurements.remove(&ticket) else {
            return;
        };
        let (entry, bytes) = match &purpose {
            SpacePurpose::Fill { entry, bytes }
            | SpacePurpose::Receiving { entry, bytes }
            | SpacePurpose::Url { entry, bytes }
            | SpacePurpose::RepairDisk { entry, bytes }
            | SpacePurpose::Unpack { into: entry, bytes } => (Some(*entry), *bytes),
            SpacePurpose::Upload(offer) => {
                let image = self.images.get(&offer.spec.key());
                (image.map(|image| image.entry), offer.range.size)
            }
        };
        let is_current = entry.is_some_and(|entry| self.entries.contains_key(&entry));
        if !is_current && !matches!(purpose, SpacePurpose::Upload(_)) {
            // What needed the space was removed meanwhile.
            return;
        }
        let space = self.reserve(entry, bytes, disk);
        match purpose {
            SpacePurpose::Fill { entry, bytes } => self.fill_space(now, entry, bytes, space),
            SpacePurpose::Receiving { entry, .. } => self.receiving_space(now, entry, space),
            SpacePurpose::Unpack { into, bytes } => self.unpack_space(into, bytes, space),
            SpacePurpose::RepairDisk { entry, .. } => self.repair_space(now, entry, space),
            SpacePurpose::Upload(offer) => self.upload_space(now, *offer, space),
            SpacePurpose::Url { entry, .. } => self.url_space(now, entry, space),
        }
    }

    fn fill_space(&mut self, now: Now, entry: ImageEntryId, bytes: u64, space: Result<(), String>) {
        let Some(EntryOwner::Image(key)) = self.entries.get(&entry).cloned() else {
            return;
        };
        if let Some(image) = self.images.get_mut(&key) {
            image.expected_bytes = bytes;
        }
        let result = match space {
            Ok(()) => {
                let size = bytes;
                self.orders
                    .push(ImageWorkOrder::AnnounceSize { entry, size });
                ImageFillResult::Done
            }
            Err(why) => ImageFillResult::NoSpace(why),
        };
        self.give(now, key, result);
    }

    fn receiving_space(&mut self, now: Now, entry: ImageEntryId, space: Result<(), String>) {
        match (self.entries.get(&entry).cloned(), space) {
            (Some(_), Ok(())) => self.orders.push(ImageWorkOrder::Continue(entry)),
            (Some(EntryOwner::Image(key)), Err(why)) => {
                self.give(now, key, ImageFillResult::NoSpace(why));
            }
            (Some(EntryOwner::Url(url)), Err(why)) => self.url_without_space(now, &url, &why),
            (Some(EntryOwner::Unpack(_)) | None, Err(_)) | (None, Ok(())) => {}
        }
    }

    /// Evicts images to make space for a file of this size. The error is an instruction for the
    /// operator.
    fn reserve(
        &mut self,
        entry: Option<ImageEntryId>,
        bytes: u64,
        disk: &ImageDiskUse,
    ) -> Result<(), String> {
        let uses: EntryUses = disk.entries.iter().map(|one| (one.entry, *one)).collect();
        let on_disk = |entry: ImageEntryId| uses.get(&entry).map_or(0, |one| one.bytes);
        let mut held = self.other_images(entry, &uses);
        // Bytes that other work still needs count as used.
        let mut coming: u64 = 0;
        for image in self.images.values() {
            let here = on_disk(image.entry);
            if image.is_busy() {
                coming += image.total_bytes(here) - here;
            }
        }
        for unpack in self.unpacks.values() {
            if Some(unpack.entry) == entry {
                continue;
            }
            let here = on_disk(unpack.entry);
            let total = here.max(unpack.expected_bytes);
            coming += total - here;
            held.push(StoredImage {
                key: String::new(),
                name: unpack.spec.name.clone(),
                bytes: total,
                used_at_ms: 0,
                evictable: false,
            });
        }
        let here = entry.map_or(0, on_disk);
        let space = CacheSpace {
            quota_bytes: self.options.quota_bytes,
            reserve_bytes: self.options.reserve_bytes,
            free_bytes: disk.free_bytes.saturating_sub(coming).saturating_add(here),
        };
        let gone = select_evictions(&held, bytes, space)?;
        let gone = gone.iter().filter_map(|key| ImageKey::parse(key)).collect();
        self.evict(gone);
        Ok(())
    }

    /// All images that have a file, except the one with this entry.
    fn other_images(&self, entry: Option<ImageEntryId>, uses: &EntryUses) -> Vec<StoredImage> {
        let others = self
            .images
            .iter()
            .filter(|(_, image)| Some(image.entry) != entry);
        let stored = |(key, image): (&ImageKey, &LibraryImage)| {
            let facts = uses.get(&image.entry);
            let is_read = facts.is_some_and(|one| one.is_read);
            StoredImage {
                key: key.to_string(),
                name: image.metadata.spec.name.clone(),
                bytes: image.total_bytes(facts.map_or(0, |one| one.bytes)),
                used_at_ms: if self.is_spare(*key) {
                    0
                } else {
                    image.used_at_ms.max(1)
                },
                evictable: !image.is_busy()
                    && !is_read
                    && !image.is_only_copy()
                    && !self.is_pinned(*key)
                    && !self.is_being_unpacked(*key),
            }
        };
        others.map(stored).collect()
    }

    /// A disk is pinned together with the image it was unpacked from.
    fn is_pinned(&self, key: ImageKey) -> bool {
        let holds =
            |disk: &super::UnpackedDiskRecord| disk.raw == key && self.pinned.contains(&disk.key());
        self.pinned.contains(&key) || self.disks.values().any(holds)
    }

    /// A packed image whose disk is stored is needed again only if the disk is lost.
    fn is_spare(&self, key: ImageKey) -> bool {
        let disk = self.disks.get(&key);
        let disk = disk.and_then(|disk| self.images.get(&disk.raw));
        disk.is_some_and(LibraryImage::is_whole)
    }

    /// Removes images, and reports what is gone for those who request them.
    fn evict(&mut self, gone: Vec<ImageKey>) {
        let mut specs = Vec::new();
        for key in gone {
            if let Some(image) = self.images.remove(&key) {
                self.close_entry(image.entry);
                self.orders.push(ImageWorkOrder::DeleteFiles(key));
                specs.push((key, image.metadata.spec));
            }
        }
        for (key, spec) in specs {
            let disks = self.images_containing(key);
            for disk in &disks {
                self.disks.remove(&disk.key());
                self.orders
                    .push(ImageWorkOrder::DeleteDiskRecord(disk.key()));
            }
            if self.unpacked_disk(&spec).is_some() {
                // The disk is still stored, and nodes read only that.
                self.correct_shown(key);
                continue;
            }
            if disks.is_empty() {
                self.report_evicted(&spec);
            }
            for disk in disks {
                if self.images.contains_key(&disk.key()) {
                    let state = trivet_model::image::ImageState::Complete;
                    self.report(&disk.spec, Some(disk.size), disk.size, state);
                } else {
                    self.report_evicted(&disk.spec);
                }
            }
        }
    }

    /// Why a write failed; on a full disk it names what to remove.
    pub(super) fn disk_failure_reason(&self, key: ImageKey, error: &ImageDiskError) -> String {
        if !error.is_full {
            return error.why.clone();
        }
        let entry = self.images.get(&key).map(|image| image.entry);
        disk_full_message(&self.other_images(entry, &EntryUses::new()))
    }
}

impl LibraryImage {
    /// Its size, or the expected size while it is not complete.
    fn total_bytes(&self, on_disk: u64) -> u64 {
        let has_file = !matches!(
            self.phase,
            ImagePhase::Failed {
                keeps_files: false,
                ..
            }
        );
        let size = self.metadata.size.filter(|_| has_file).unwrap_or(0);
        on_disk.max(size).max(self.expected_bytes)
    }

    /// An upload is the only copy of an image. An unpacked disk is not.
    fn is_only_copy(&self) -> bool {
        matches!(self.phase, ImagePhase::Whole | ImagePhase::Stored)
            && self.metadata.spec.sources.is_empty()
            && self.metadata.unpacked_from.is_none()
    }
}
