//! Space in the cache: which images are evicted, and the error when none may be.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use trivet_images::space::{self, CacheSpace, StoredImage, select_evictions};
use trivet_images::{ImageFillError, ImageKey, ImageSpec};
use trivet_model::Digest;

use super::derived_image::DerivedImage;
use super::entry;
use super::{CacheSlot, CacheSlotState, ImageCache, unpacking};

impl ImageCache {
    /// These images are never evicted.
    pub(crate) fn pin(&self, digests: &[Digest]) {
        let keys = digests.iter().map(|digest| ImageKey(*digest).to_string());
        let mut pinned = self.0.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        *pinned = keys.collect();
    }

    /// Evicts images to make space for one of this size. The error is an instruction
    /// for the operator.
    pub(super) fn reserve_space(&self, key: &str, size: u64) -> Result<(), String> {
        let gone = self.evict_for(key, size)?;
        self.report_evicted(gone);
        Ok(())
    }

    fn evict_for(&self, key: &str, size: u64) -> Result<Vec<(String, ImageSpec)>, String> {
        let makings = self.unpack_jobs();
        let mut slots = self.slots();
        let mut held = self.other_images(&slots, key);
        // Bytes that other fills still need count as used.
        let mut coming: u64 = slots.values().map(|slot| slot.entry.missing_bytes()).sum();
        let mut here = slots.get(key).map_or(0, |slot| slot.entry.on_disk());
        for (image, making) in makings.iter() {
            if format!("{image}{}", unpacking::UNPACK_SUFFIX) == key {
                here = making.entry.on_disk();
                continue;
            }
            coming += making.entry.missing_bytes();
            held.push(StoredImage {
                key: String::new(),
                name: making.spec.name.clone(),
                bytes: making.entry.total_bytes(),
                used_at_ms: 0,
                evictable: false,
            });
        }
        let free = trivet_board_linux::free_bytes(&self.0.root);
        let free = free.map_err(|error| error.to_string())?;
        let room = CacheSpace {
            quota_bytes: self.0.options.quota_bytes,
            reserve_bytes: self.0.options.reserve_bytes,
            free_bytes: free.saturating_sub(coming).saturating_add(here),
        };
        let mut all = Vec::new();
        for gone in select_evictions(&held, size, room)? {
            if let Some(slot) = slots.remove(&gone) {
                self.remove_files(&gone);
                all.push((gone, slot.spec));
            }
        }
        Ok(all)
    }

    /// All images except this one.
    fn other_images(&self, slots: &BTreeMap<String, CacheSlot>, key: &str) -> Vec<StoredImage> {
        let pinned = self.0.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        let pinned = pinned.clone();
        let links = self.derived_images().clone();
        // A disk is pinned together with the image it was unpacked from.
        let is_pinned = |other: &str| {
            let of = |(image, link): (&String, &DerivedImage)| {
                pinned.contains(image) && link.raw.to_string() == other
            };
            pinned.contains(other) || links.iter().any(of)
        };
        // A packed image whose disk is stored is needed again only if the disk is lost.
        let is_spare = |other: &str| {
            let disk = links.get(other).map(|link| link.raw.to_string());
            let slot = disk.and_then(|disk| slots.get(&disk));
            slot.is_some_and(|slot| matches!(slot.state, CacheSlotState::Whole))
        };
        // An upload is the only copy of an image. An unpacked disk is not.
        let is_only = |other: &str, slot: &CacheSlot| {
            let made = || {
                entry::read_metadata(&self.0.root, other)
                    .is_some_and(|kept| kept.unpacked_from.is_some())
            };
            let here = matches!(
                slot.state,
                CacheSlotState::Whole | CacheSlotState::Unverified(_)
            );
            here && slot.spec.sources.is_empty() && !made()
        };
        let others = slots.iter().filter(|(other, _)| *other != key);
        others
            .map(|(other, slot)| StoredImage {
                key: other.clone(),
                name: slot.spec.name.clone(),
                bytes: slot.entry.total_bytes(),
                used_at_ms: if is_spare(other) {
                    0
                } else {
                    slot.used_at_ms.max(1)
                },
                evictable: !matches!(slot.state, CacheSlotState::Busy | CacheSlotState::Uploading)
                    && !slot.entry.is_read()
                    && !is_pinned(other)
                    && !is_only(other, slot),
            })
            .collect()
    }

    /// The error for a failed write.
    pub(super) fn disk_failure(
        &self,
        key: &str,
        wanted: &ImageSpec,
        error: &std::io::Error,
    ) -> ImageFillError {
        let why = self.disk_failure_reason(key, error);
        let image = wanted.name.clone();
        ImageFillError::Disk { image, why }
    }

    /// Why a write failed; on a full disk it names what to remove.
    pub(super) fn disk_failure_reason(&self, key: &str, error: &std::io::Error) -> String {
        if error.kind() == std::io::ErrorKind::StorageFull {
            space::disk_full_message(&self.other_images(&self.slots(), key))
        } else {
            error.to_string()
        }
    }
}
