//! Scrubs: complete images are verified again, periodically and when an agent doubts one.

use std::collections::VecDeque;

use trivet_model::Now;

use super::requests::EarlyRequest;
use super::{ImageEntryId, ImageLibrary, ImageWorkOrder, LibraryImage};
use crate::{ImageKey, ImageSpec};

/// A complete image that is being verified again.
#[derive(Debug)]
pub(super) struct RunningScrub {
    key: ImageKey,
    entry: ImageEntryId,
    /// The request that waits for it; none for the periodic one.
    wanted: Option<ImageSpec>,
}

impl ImageLibrary {
    /// Verifies an image at once, because an agent reported a checksum error, and fetches wrong or
    /// missing chunks. News follow even if nothing was wrong.
    pub fn verify_again(&mut self, now: Now, wanted: &ImageSpec) {
        if !self.is_open {
            return self.defer(EarlyRequest::VerifyAgain(wanted.clone()));
        }
        let key = self.read_key(wanted);
        let is_scrubbed = key.is_some_and(|key| self.scrub_image(key, Some(wanted.clone())));
        if !is_scrubbed {
            self.want(now, wanted, true);
        }
    }

    /// Starts to verify a complete image; false for others.
    fn scrub_image(&mut self, key: ImageKey, wanted: Option<ImageSpec>) -> bool {
        let image = self.images.get(&key).filter(|image| image.is_whole());
        let Some((entry, Some(size))) = image.map(|image| (image.entry, image.metadata.size))
        else {
            return false;
        };
        let ticket = self.next_ticket();
        self.orders.push(ImageWorkOrder::Scrub {
            ticket,
            entry,
            size,
            is_paced: wanted.is_none(),
        });
        self.scrubs
            .insert(ticket, RunningScrub { key, entry, wanted });
        true
    }

    /// The time for the periodic scrub has come.
    pub(super) fn start_scrub(&mut self, now: Now) {
        self.scrub_at = None;
        let whole = self.images.iter().filter(|(_, image)| image.is_whole());
        self.scrub_queue = whole.map(|(key, _)| *key).collect::<VecDeque<_>>();
        self.scrub_next(now);
    }

    /// Verifies the next image; after the last one the next scrub is due later.
    fn scrub_next(&mut self, now: Now) {
        while let Some(key) = self.scrub_queue.pop_front() {
            if self.scrub_image(key, None) {
                return;
            }
        }
        self.scrub_at = self.options.scrub_ms.map(|ms| now.tick.after_ms(ms));
    }

    /// An image was verified.
    pub(super) fn scrubbed(&mut self, now: Now, ticket: u64, is_right: bool) {
        let Some(RunningScrub { key, entry, wanted }) = self.scrubs.remove(&ticket) else {
            return;
        };
        let is_same = |image: &LibraryImage| image.entry == entry;
        if !is_right && self.images.get(&key).is_some_and(is_same) {
            self.invalidate(now, key);
        }
        match wanted {
            Some(wanted) => self.want(now, &wanted, true),
            None => self.scrub_next(now),
        }
    }
}
