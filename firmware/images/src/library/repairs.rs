//! Repairs of disks: a disk that was stored before the start, or that has changed, is verified and
//! repaired from a packed image that contains it, which is fetched again if it was evicted.

use trivet_chunks::chunk_count;
use trivet_model::image::ImageState;
use trivet_model::{Digest, Now};

use super::fills::FillOutcome;
use super::space::SpacePurpose;
use super::{
    EntryOwner, ImageDiskError, ImageEntryId, ImageFileOrder, ImageLibrary, ImagePhase,
    ImageUnpackError, UnpackedDiskRecord,
};
use crate::{ImageFillError, ImageFillResult, ImageKey, StoredImageCheck};

/// The check and the repair of a disk.
#[derive(Debug)]
pub(super) struct DiskRepair {
    /// The packed images that contain it, and the next one.
    sources: Vec<ImageKey>,
    at: usize,
    bad: Vec<u64>,
    phase: RepairPhase,
    last_error: Option<ImageFillError>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RepairPhase {
    Checking,
    AwaitingImage,
    Unpacking,
    Storing,
}

impl DiskRepair {
    /// The packed image that it is repaired from now.
    pub(super) fn source(&self) -> Option<ImageKey> {
        self.sources.get(self.at).copied()
    }

    /// Whether it waits for this packed image.
    pub(super) fn awaits(&self, key: ImageKey) -> bool {
        self.phase == RepairPhase::AwaitingImage && self.source() == Some(key)
    }
}

impl ImageLibrary {
    /// A disk from before the start, or one that has changed, is verified.
    pub(super) fn start_disk_check(&mut self, key: ImageKey) {
        let sources = self.images_containing(key);
        let sources = sources.iter().map(UnpackedDiskRecord::key).collect();
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        image.phase = ImagePhase::Repairing(Box::new(DiskRepair {
            sources,
            at: 0,
            bad: Vec::new(),
            phase: RepairPhase::Checking,
            last_error: None,
        }));
        let (entry, size, whole) = (image.entry, image.metadata.size, image.metadata.whole);
        self.order_file(entry, ImageFileOrder::Verify { size, whole });
    }

    fn repair_mut(&mut self, key: ImageKey) -> Option<&mut DiskRepair> {
        match &mut self.images.get_mut(&key)?.phase {
            ImagePhase::Repairing(repair) => Some(repair),
            _ => None,
        }
    }

    /// The result of an order on the file of a disk.
    pub(super) fn repair_result(
        &mut self,
        now: Now,
        key: ImageKey,
        result: Result<ImageFillResult, ImageDiskError>,
    ) {
        let Some(image) = self.images.get(&key) else {
            return;
        };
        let (spec, size) = (image.metadata.spec.clone(), image.metadata.size);
        let check = match result {
            Err(error) => {
                let failure = self.disk_failure(&spec, &error);
                return self.repair_ended(now, key, Err(failure));
            }
            Ok(ImageFillResult::Checked(check)) => check,
            Ok(_) => return self.repair_ended(now, key, Ok(())),
        };
        let Some(repair) = self.repair_mut(key) else {
            return;
        };
        repair.bad = match check {
            StoredImageCheck::Valid => return self.repair_ended(now, key, Ok(())),
            StoredImageCheck::Corrupt { bad } => bad,
            StoredImageCheck::Partial { .. } => (0..chunk_count(size.unwrap_or(0))).collect(),
        };
        self.next_repair(now, key);
    }

    /// Repairs a disk from the next packed image that contains it.
    fn next_repair(&mut self, now: Now, key: ImageKey) {
        loop {
            let Some(repair) = self.repair_mut(key) else {
                return;
            };
            let count = repair.bad.len() as u64;
            let source = repair.source();
            let record = source.and_then(|source| self.disks.get(&source).cloned());
            let Some(record) = record else {
                let spec = self
                    .images
                    .get(&key)
                    .map(|it| it.metadata.spec.name.clone());
                let image = spec.unwrap_or_default();
                let repair = self.repair_mut(key);
                let last = repair.and_then(|repair| repair.last_error.take());
                let failure = last.unwrap_or(ImageFillError::NoSource { image });
                return self.repair_ended(now, key, Err(failure));
            };
            self.report(&record.spec, None, 0, ImageState::Corrupt(count));
            if let Some(repair) = self.repair_mut(key) {
                repair.phase = RepairPhase::AwaitingImage;
            }
            match self.request_file(now, &record.spec, true) {
                Ok(()) => return self.continue_repair(now, key),
                Err(why) => {
                    let image = record.spec.name.clone();
                    self.skip_repair_source(key, ImageFillError::Disk { image, why });
                }
            }
        }
    }

    fn skip_repair_source(&mut self, key: ImageKey, error: ImageFillError) {
        if let Some(repair) = self.repair_mut(key) {
            repair.at += 1;
            repair.last_error = Some(error);
        }
    }

    /// The packed image may be complete now.
    pub(super) fn continue_repair(&mut self, now: Now, key: ImageKey) {
        let Some(image) = self.images.get(&key) else {
            return;
        };
        let ImagePhase::Repairing(repair) = &image.phase else {
            return;
        };
        let Some(source) = repair.source() else {
            return;
        };
        let (entry, size, whole) = (image.entry, image.metadata.size, image.metadata.whole);
        match self.packed_file(source) {
            None => {}
            Some(Err(why)) => {
                let image = self.disks.get(&source).map(|disk| disk.spec.name.clone());
                let image = image.unwrap_or_default();
                self.skip_repair_source(key, ImageFillError::Disk { image, why });
                self.next_repair(now, key);
            }
            Some(Ok(_)) => match size.filter(|_| !whole) {
                Some(bytes) => self.measure(SpacePurpose::RepairDisk { entry, bytes }),
                None => self.unpack_bad_chunks(now, key),
            },
        }
    }

    pub(super) fn repair_space(
        &mut self,
        now: Now,
        entry: ImageEntryId,
        space: Result<(), String>,
    ) {
        let Some(EntryOwner::Image(key)) = self.entries.get(&entry).cloned() else {
            return;
        };
        match space {
            Ok(()) => self.unpack_bad_chunks(now, key),
            Err(why) => {
                let image = self.images.get(&key).map(|image| &image.metadata);
                let name = image
                    .map(|stored| stored.spec.name.clone())
                    .unwrap_or_default();
                let bytes = image.and_then(|stored| stored.size).unwrap_or(0);
                let image = name;
                self.skip_repair_source(key, ImageFillError::NoSpace { image, bytes, why });
                self.next_repair(now, key);
            }
        }
    }

    fn unpack_bad_chunks(&mut self, now: Now, key: ImageKey) {
        let Some(into) = self.images.get(&key).map(|image| image.entry) else {
            return;
        };
        let Some(repair) = self.repair_mut(key) else {
            return;
        };
        repair.phase = RepairPhase::Unpacking;
        let (bad, source) = (repair.bad.clone(), repair.source());
        let record = source.and_then(|source| self.disks.get(&source).cloned());
        let file = source.and_then(|source| self.packed_file(source));
        if let (Some(record), Some(Ok(from))) = (record, file) {
            self.order_unpack(&record.spec, from, into, Some(bad));
        } else {
            self.next_repair(now, key);
        }
    }

    pub(super) fn repair_unpacked(
        &mut self,
        now: Now,
        key: ImageKey,
        result: Result<(Digest, u64), ImageUnpackError>,
    ) {
        let Some(repair) = self.repair_mut(key) else {
            return;
        };
        let source = repair.source();
        let record = source.and_then(|source| self.disks.get(&source).cloned());
        let Some(record) = record else {
            return self.next_repair(now, key);
        };
        let Some(repair) = self.repair_mut(key) else {
            return;
        };
        let failure = match result {
            Ok((digest, size)) if digest == key.0 => {
                repair.phase = RepairPhase::Storing;
                let Some(image) = self.images.get(&key) else {
                    return;
                };
                let (entry, whole) = (image.entry, image.metadata.whole);
                return self.order_file(entry, ImageFileOrder::StoreRepairedDisk { size, whole });
            }
            Ok((digest, _)) => ImageFillError::Disk {
                image: record.spec.name.clone(),
                why: format!(
                    "unpacking gave another disk than before: {digest} instead of {}",
                    key.0
                ),
            },
            Err(error) => self.unpack_failure(now, &record.spec, error),
        };
        self.skip_repair_source(key, failure);
        self.next_repair(now, key);
    }

    /// The check of a disk has ended: reports the status of the images that contain it.
    fn repair_ended(&mut self, now: Now, key: ImageKey, result: Result<(), ImageFillError>) {
        let (state, outcome) = match result {
            Ok(()) => (ImageState::Complete, FillOutcome::Whole),
            Err(failure) => (
                failure.image_state(),
                FillOutcome::Failed {
                    why: failure.to_string(),
                    is_wrong: failure.is_wrong_image(),
                    keeps_files: true,
                },
            ),
        };
        self.settle(now, key, outcome);
        for record in self.images_containing(key) {
            let (size, have) = (Some(record.size), record.size);
            self.report(&record.spec, size, have, state.clone());
        }
    }
}
