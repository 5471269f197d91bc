//! The status of each image for readers, and answers to those who requested one.

use trivet_model::image::{ImageState, ImageStatus, UnpackedImage};

use super::{ImageLibrary, ImageNews, LIBRARY_IMAGES_MAX};
use crate::{ImageFormat, ImageKey, ImageSpec};

/// Most images that were wrong and are remembered. Ours.
const WRONG_IMAGES_MAX: usize = 1024;

/// What was last decided about an image that somebody requested.
#[derive(Clone, Debug)]
pub(super) struct ShownImage {
    name: String,
    format: ImageFormat,
    size: Option<u64>,
    have: u64,
    pub(super) state: ImageState,
}

impl ImageLibrary {
    /// The status of an image, if it was requested.
    pub fn status(&self, key: ImageKey) -> Option<ImageStatus> {
        let shown = self.shown.get(&key)?;
        Some(ImageStatus {
            key: key.to_string(),
            name: shown.name.clone(),
            digest: key.0,
            format: shown.format,
            size: shown.size,
            present_bytes: shown.have,
            state: shown.state.clone(),
            raw: self.unpacked_of(key, shown.format),
        })
    }

    /// Why the image was wrong when it was last fetched in this format, if it was. It stays so
    /// until all of it was fetched again and verified.
    pub fn wrong(&self, wanted: &ImageSpec) -> Option<&str> {
        let (format, why) = self.wrong.get(&wanted.key())?;
        (*format == wanted.format).then_some(why.as_str())
    }

    /// The disk in this image, if it is in the cache and verified.
    pub(super) fn unpacked_disk(&self, wanted: &ImageSpec) -> Option<UnpackedImage> {
        self.unpacked_of(wanted.key(), wanted.format)
    }

    fn unpacked_of(&self, key: ImageKey, format: ImageFormat) -> Option<UnpackedImage> {
        if !format.is_packed() {
            return None;
        }
        let disk = self.disks.get(&key)?;
        self.images
            .get(&disk.raw)?
            .is_whole()
            .then_some(UnpackedImage {
                digest: disk.raw.0,
                size: disk.raw_size,
            })
    }

    /// The state of an image is this now.
    pub(crate) fn report(
        &mut self,
        spec: &ImageSpec,
        size: Option<u64>,
        have: u64,
        state: ImageState,
    ) {
        let key = spec.key();
        let before = self.shown.get(&key).map(|shown| &shown.state);
        let is_new_state = before != Some(&state);
        self.note_wrong(spec, &state);
        let shown = ShownImage {
            name: spec.name.clone(),
            format: spec.format,
            size,
            have,
            state,
        };
        if self.shown.len() >= LIBRARY_IMAGES_MAX && !self.shown.contains_key(&key) {
            self.shown.pop_first();
        }
        self.shown.insert(key, shown);
        self.tell(key, None, is_new_state);
    }

    /// The image is not here any more.
    pub(crate) fn report_evicted(&mut self, spec: &ImageSpec) {
        self.report(spec, None, 0, ImageState::Evicted);
        self.shown.remove(&spec.key());
    }

    fn tell(&mut self, key: ImageKey, asked: Option<&ImageSpec>, is_new_state: bool) {
        let Some(mut status) = self.status(key) else {
            return;
        };
        if let Some(asked) = asked {
            status.name.clone_from(&asked.name);
            status.format = asked.format;
            status.raw = self.unpacked_disk(asked);
        }
        self.news.push(ImageNews {
            status,
            is_new_state,
        });
    }

    fn note_wrong(&mut self, spec: &ImageSpec, state: &ImageState) {
        let key = spec.key();
        match state {
            ImageState::Wrong(why) => {
                if self.wrong.len() >= WRONG_IMAGES_MAX && !self.wrong.contains_key(&key) {
                    self.wrong.pop_first();
                }
                self.wrong.insert(key, (spec.format, why.clone()));
            }
            ImageState::Complete => {
                let is_same = |known: &(ImageFormat, String)| known.0 == spec.format;
                if self.wrong.get(&key).is_some_and(is_same) {
                    self.wrong.remove(&key);
                }
            }
            ImageState::Evicted => {
                self.wrong.remove(&key);
            }
            _ => {}
        }
    }

    /// Requests whose image is complete or has failed are answered.
    pub(super) fn answer_requests(&mut self) {
        let done = |spec: &ImageSpec, library: &Self| !library.is_under_way(spec);
        let keys: Vec<ImageKey> = self.asked.keys().copied().collect();
        for key in keys {
            let Some(all) = self.asked.remove(&key) else {
                continue;
            };
            let (ended, waiting): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|spec| done(spec, self));
            if !waiting.is_empty() {
                self.asked.insert(key, waiting);
            }
            for spec in ended {
                self.answer(&spec, None);
            }
        }
    }

    /// Tells the state of an image under the name by which it was requested.
    pub(super) fn answer(&mut self, wanted: &ImageSpec, failure: Option<String>) {
        let key = wanted.key();
        if self.shown.contains_key(&key) {
            return self.tell(key, Some(wanted), false);
        }
        let whole = self.images.get(&key).filter(|image| image.is_whole());
        let size = whole.and_then(|image| image.metadata.size);
        match (failure, size) {
            (Some(why), _) => self.report(wanted, None, 0, ImageState::Failed(why)),
            (None, Some(size)) => self.report(wanted, Some(size), size, ImageState::Complete),
            (None, None) => {}
        }
    }

    /// Whether work on what readers of this image receive has not ended.
    pub(super) fn is_under_way(&self, wanted: &ImageSpec) -> bool {
        let key = wanted.key();
        let is_busy = |key: &ImageKey| {
            let image = self.images.get(key);
            image.is_some_and(|image| {
                image.is_busy() || matches!(image.phase, super::ImagePhase::Stored)
            })
        };
        if wanted.format.is_packed() {
            let disk = self.disks.get(&key);
            return self.is_unpacking(key) || disk.is_some_and(|disk| is_busy(&disk.raw));
        }
        is_busy(&key)
    }
}
