//! Verifies a disk that was unpacked before the start, or that has changed, and repairs
//! it from an image that contains it: only bad chunks are written.

use trivet_chunks::chunk_count;
use trivet_images::{ImageFillError, ImageMetadata, StoredImageCheck};
use trivet_model::image::ImageState;

use super::checking;
use super::derived_image::DerivedImage;
use super::filling::ImageFillTask;
use super::unpacking::DiskUnavailable;
use super::{FillOutcome, FillTrigger};

impl ImageFillTask {
    /// Verifies a disk, and reports the status of the images that contain it.
    pub(super) async fn run_disk(self, kept: ImageMetadata) {
        let links = self.cache.images_containing(&self.key);
        let went = self.repair_disk(&kept, &links).await;
        let state = match &went {
            Ok(()) => ImageState::Complete,
            Err(failure) => failure.image_state(),
        };
        let left = match went {
            Ok(()) => FillOutcome::Whole,
            Err(failure) => FillOutcome::Failed {
                why: failure.to_string(),
                keeps_files: true,
            },
        };
        self.cache.finish_task(&self.key, &self.entry, left);
        for link in links {
            let state = state.clone();
            let (size, have) = (Some(link.size), link.size);
            self.cache.report(&link.spec, size, have, state);
        }
    }

    async fn repair_disk(
        &self,
        kept: &ImageMetadata,
        links: &[DerivedImage],
    ) -> Result<(), ImageFillError> {
        let wanted = &kept.spec;
        let looked = checking::verify_stored(&self.cache, &self.key, &self.entry, kept).await;
        let bad = match looked.map_err(|error| self.disk_failure(wanted, &error))? {
            StoredImageCheck::Valid => return Ok(()),
            StoredImageCheck::Corrupt { bad, .. } => bad,
            StoredImageCheck::Partial { .. } => (0..chunk_count(kept.size.unwrap_or(0))).collect(),
        };
        let image = wanted.name.clone();
        let mut last = ImageFillError::NoSource { image };
        for link in links {
            let count = bad.len() as u64;
            self.cache
                .report(&link.spec, None, 0, ImageState::Corrupt(count));
            match self.repair_from(kept, link, bad.clone()).await {
                Ok(()) => return Ok(()),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn repair_from(
        &self,
        kept: &ImageMetadata,
        link: &DerivedImage,
        bad: Vec<u64>,
    ) -> Result<(), ImageFillError> {
        let image = link.spec.name.clone();
        let key = link.key();
        let original = self
            .cache
            .packed_image(&key, &link.spec, FillTrigger::Order)
            .await;
        let (size, reader) = original.map_err(|why| match why {
            DiskUnavailable::Reported(why) => ImageFillError::Disk { image, why },
            DiskUnavailable::Unreported(failure) => failure,
        })?;
        if let Some(bytes) = kept.size.filter(|_| !kept.whole) {
            let image = link.spec.name.clone();
            let room = self.cache.reserve_space(&self.key, bytes);
            room.map_err(|why| ImageFillError::NoSpace { image, bytes, why })?;
        }
        let made = self
            .cache
            .unpack(&key, &link.spec, (size, &reader), &self.entry, Some(bad))
            .await?;
        if made.digest != kept.spec.digest {
            return Err(ImageFillError::Disk {
                image: link.spec.name.clone(),
                why: format!(
                    "unpacking gave another disk than before: {} instead of {}",
                    made.digest, kept.spec.digest
                ),
            });
        }
        let keep = || {
            let path = self.cache.path(&self.key, "chunks");
            std::fs::write(&path, made.list.bytes())?;
            std::fs::File::open(path)?.sync_all()?;
            if !kept.whole {
                let part = self.cache.path(&self.key, "part");
                std::fs::rename(part, self.cache.path(&self.key, "whole"))?;
            }
            std::fs::File::open(&self.cache.0.root)?.sync_all()
        };
        keep().map_err(|error| self.disk_failure(&link.spec, &error))?;
        self.entry.set_size(made.size);
        self.entry.set_hashed(made.size);
        Ok(())
    }
}
