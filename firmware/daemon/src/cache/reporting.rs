//! Reports the status of images to the rack, and remembers the last report.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use trivet_images::ImageSpec;
use trivet_model::image::{ImageState, ImageStatus};

use super::{CacheSlotState, ENTRIES_MAX, ImageCache};

/// After a failure reads do not start a fill again for a while. Where the source has
/// the wrong bytes that while is longer by this factor: an operator has to correct the
/// source first. Ours.
const WRONG_RETRY_FACTOR: u32 = 6;

impl ImageCache {
    /// Reports the state of an image once more, under the name it was requested by. An
    /// image that was fetched under another name has not been reported under this one.
    pub(super) fn report_again(&self, wanted: &ImageSpec, went: &Result<(), String>) {
        let key = wanted.key().to_string();
        let told = self.last_reported().get(&key).cloned();
        match (told, went) {
            // The bytes may have been fetched under another name; a failure belongs to
            // the entry that was requested.
            (Some(news), _) => (self.0.news)(ImageStatus {
                name: wanted.name.clone(),
                format: wanted.format,
                ..news
            }),
            (None, Err(why)) => self.report(wanted, None, 0, ImageState::Failed(why.clone())),
            (None, Ok(())) => {
                let size = match self.slots().get(&key) {
                    Some(slot) if matches!(slot.state, CacheSlotState::Whole) => {
                        Some(slot.entry.on_disk())
                    }
                    _ => None,
                };
                if let Some(size) = size {
                    self.report(wanted, Some(size), size, ImageState::Complete);
                }
            }
        }
    }

    /// Whether the source is known to have other bytes than this image, or bytes of another
    /// format.
    pub(crate) fn is_wrong(&self, wanted: &ImageSpec) -> bool {
        let told = self.last_reported();
        let news = told.get(&wanted.key().to_string());
        news.is_some_and(|news| {
            matches!(news.state, ImageState::Wrong(_)) && news.format == wanted.format
        })
    }

    /// How long reads do not start a fill again after one that failed.
    pub(super) fn retry_delay_after_failure(&self, key: &str) -> Duration {
        let told = self.last_reported();
        let wrong = told
            .get(key)
            .is_some_and(|news| matches!(news.state, ImageState::Wrong(_)));
        self.0.options.retry_delay * if wrong { WRONG_RETRY_FACTOR } else { 1 }
    }

    pub(super) fn report(
        &self,
        wanted: &ImageSpec,
        size: Option<u64>,
        have: u64,
        state: ImageState,
    ) {
        (self.0.news)(self.record(wanted, size, have, state));
    }

    /// Stores the state as the last one of this image; it is not sent yet.
    pub(super) fn record(
        &self,
        wanted: &ImageSpec,
        size: Option<u64>,
        have: u64,
        state: ImageState,
    ) -> ImageStatus {
        let news = ImageStatus {
            key: wanted.key().to_string(),
            name: wanted.name.clone(),
            digest: wanted.digest,
            format: wanted.format,
            size,
            present_bytes: have,
            state,
            raw: self.unpacked(wanted),
        };
        let mut told = self.last_reported();
        if news.state == ImageState::Evicted {
            told.remove(&news.key);
        } else if told.len() < ENTRIES_MAX || told.contains_key(&news.key) {
            told.insert(news.key.clone(), news.clone());
        }
        drop(told);
        news
    }

    pub(super) fn last_reported(&self) -> MutexGuard<'_, BTreeMap<String, ImageStatus>> {
        self.0
            .last_reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
