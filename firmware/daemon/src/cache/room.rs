//! Room in the cache: who goes for whom, and what to do when nobody may.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use trivet_images::space::{self, Held, Room, make_room};
use trivet_images::{Failure, Key, Wanted};
use trivet_model::Digest;

use super::entry;
use super::link::Link;
use super::{Cache, Slot, SlotState, unpacking};

impl Cache {
    /// These images stay whatever comes.
    pub(crate) fn pin(&self, digests: &[Digest]) {
        let keys = digests.iter().map(|digest| Key(*digest).to_string());
        let mut pinned = self.0.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        *pinned = keys.collect();
    }

    /// Makes room for an image of this size, or says what to do.
    pub(super) fn make_room(&self, key: &str, size: u64) -> Result<(), String> {
        let gone = self.evict_for(key, size)?;
        self.tell_evicted(gone);
        Ok(())
    }

    fn evict_for(&self, key: &str, size: u64) -> Result<Vec<(String, Wanted)>, String> {
        let makings = self.makings();
        let mut slots = self.slots();
        let mut held = self.held(&slots, key);
        // What others on their way will still take is as good as taken.
        let mut coming: u64 = slots.values().map(|slot| slot.entry.lacks()).sum();
        let mut here = slots.get(key).map_or(0, |slot| slot.entry.on_disk());
        for (image, making) in makings.iter() {
            if format!("{image}{}", unpacking::MAKING_END) == key {
                here = making.entry.on_disk();
                continue;
            }
            coming += making.entry.lacks();
            held.push(Held {
                key: String::new(),
                name: making.wanted.name.clone(),
                bytes: making.entry.claims(),
                used_at_ms: 0,
                may_go: false,
            });
        }
        let free = trivet_board_linux::free_bytes(&self.0.root);
        let free = free.map_err(|error| error.to_string())?;
        let room = Room {
            quota_bytes: self.0.ways.quota_bytes,
            reserve_bytes: self.0.ways.reserve_bytes,
            free_bytes: free.saturating_sub(coming).saturating_add(here),
        };
        let mut all = Vec::new();
        for gone in make_room(&held, size, room)? {
            if let Some(slot) = slots.remove(&gone) {
                self.remove_files(&gone);
                all.push((gone, slot.wanted));
            }
        }
        Ok(all)
    }

    /// All images but this one.
    fn held(&self, slots: &BTreeMap<String, Slot>, key: &str) -> Vec<Held> {
        let pinned = self.0.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        let pinned = pinned.clone();
        let links = self.links().clone();
        // A disk is pinned with the image that it was in.
        let is_pinned = |other: &str| {
            let of = |(image, link): (&String, &Link)| {
                pinned.contains(image) && link.raw.to_string() == other
            };
            pinned.contains(other) || links.iter().any(of)
        };
        // An image whose disk is here is needed again only if that is lost.
        let is_spare = |other: &str| {
            let disk = links.get(other).map(|link| link.raw.to_string());
            let slot = disk.and_then(|disk| slots.get(&disk));
            slot.is_some_and(|slot| matches!(slot.state, SlotState::Whole))
        };
        // An upload is the only copy there is. A disk that was in an image is not.
        let is_only = |other: &str, slot: &Slot| {
            let made = || entry::kept(&self.0.root, other).is_some_and(|kept| kept.from.is_some());
            let here = matches!(slot.state, SlotState::Whole | SlotState::Unseen(_));
            here && slot.wanted.sources.is_empty() && !made()
        };
        let others = slots.iter().filter(|(other, _)| *other != key);
        others
            .map(|(other, slot)| Held {
                key: other.clone(),
                name: slot.wanted.name.clone(),
                bytes: slot.entry.claims(),
                used_at_ms: if is_spare(other) {
                    0
                } else {
                    slot.used_at_ms.max(1)
                },
                may_go: !matches!(slot.state, SlotState::Busy | SlotState::Uploaded)
                    && !slot.entry.is_read()
                    && !is_pinned(other)
                    && !is_only(other, slot),
            })
            .collect()
    }

    /// The disk failed; where it is full, what to remove is said.
    pub(super) fn disk_failed(
        &self,
        key: &str,
        wanted: &Wanted,
        error: &std::io::Error,
    ) -> Failure {
        let why = if error.kind() == std::io::ErrorKind::StorageFull {
            space::full(&self.held(&self.slots(), key))
        } else {
            error.to_string()
        };
        let image = wanted.name.clone();
        Failure::Disk { image, why }
    }
}
