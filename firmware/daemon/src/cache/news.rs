//! What the rack is told of images, and what was told last.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use trivet_images::Wanted;
use trivet_model::image::{ImageNews, ImageState};

use super::{Cache, ENTRIES_MAX, SlotState};

/// After a failure reads do not start a fill again for a while. Where the source has the wrong
/// bytes that while is longer by this factor: somebody has to correct it first. Ours.
const WRONG_REST_FACTOR: u32 = 6;

impl Cache {
    /// Reports the state of an image once more, under the name it was asked for by. An image
    /// that was fetched under another name has not been reported under this one.
    pub(super) fn tell_again(&self, wanted: &Wanted, went: &Result<(), String>) {
        let key = wanted.key().to_string();
        let told = self.told().get(&key).cloned();
        match (told, went) {
            // The bytes may have been fetched under another name; a failure belongs to the
            // entry that was asked for.
            (Some(news), _) => (self.0.news)(ImageNews {
                name: wanted.name.clone(),
                format: wanted.format,
                ..news
            }),
            (None, Err(why)) => self.tell(wanted, None, 0, ImageState::Failed(why.clone())),
            (None, Ok(())) => {
                let size = match self.slots().get(&key) {
                    Some(slot) if matches!(slot.state, SlotState::Whole) => {
                        Some(slot.entry.on_disk())
                    }
                    _ => None,
                };
                if let Some(size) = size {
                    self.tell(wanted, Some(size), size, ImageState::Whole);
                }
            }
        }
    }

    /// Whether the source is known to have other bytes than this image, or bytes of another
    /// format.
    pub(crate) fn is_wrong(&self, wanted: &Wanted) -> bool {
        let told = self.told();
        let news = told.get(&wanted.key().to_string());
        news.is_some_and(|news| {
            matches!(news.state, ImageState::Wrong(_)) && news.format == wanted.format
        })
    }

    /// How long reads do not start a fill again after one that failed.
    pub(super) fn rest_after_failure(&self, key: &str) -> Duration {
        let told = self.told();
        let wrong = told
            .get(key)
            .is_some_and(|news| matches!(news.state, ImageState::Wrong(_)));
        self.0.ways.failed_rest * if wrong { WRONG_REST_FACTOR } else { 1 }
    }

    pub(super) fn tell(&self, wanted: &Wanted, size: Option<u64>, have: u64, state: ImageState) {
        (self.0.news)(self.record(wanted, size, have, state));
    }

    /// Keeps the state as the last one of this image; it is not sent yet.
    pub(super) fn record(
        &self,
        wanted: &Wanted,
        size: Option<u64>,
        have: u64,
        state: ImageState,
    ) -> ImageNews {
        let news = ImageNews {
            key: wanted.key().to_string(),
            name: wanted.name.clone(),
            digest: wanted.digest,
            format: wanted.format,
            size,
            have,
            state,
            raw: self.unpacked(wanted),
        };
        let mut told = self.told();
        if news.state == ImageState::Gone {
            told.remove(&news.key);
        } else if told.len() < ENTRIES_MAX || told.contains_key(&news.key) {
            told.insert(news.key.clone(), news.clone());
        }
        drop(told);
        news
    }

    pub(super) fn told(&self) -> MutexGuard<'_, BTreeMap<String, ImageNews>> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
