//! The status of each image for readers, and answers to those who requested one.

use trivet_model::Now;
use trivet_model::image::{ImageState, ImageStatus, UnpackedImage};

use super::{ImageLibrary, ImageNews, ImagePhase, LIBRARY_IMAGES_MAX, LibraryImage};
use crate::{ImageFormat, ImageKey, ImageSpec};

/// Most images that were wrong and are remembered. Ours.
const WRONG_IMAGES_MAX: usize = 1024;

/// Most sources of one wrong image that are remembered. Ours: several times those of a request.
const WRONG_SOURCES_MAX: usize = 4 * crate::image_spec::SOURCES_MAX;

/// Why an image was wrong, and where it was fetched from.
#[derive(Clone, Debug, Default)]
pub(super) struct WrongImage {
    why: String,
    sources: Vec<String>,
}

/// An image in one format: bytes that are right as one are wrong as another.
pub(super) type ShownKey = (ImageKey, ImageFormat);

/// What was last decided about an image that somebody requested.
#[derive(Clone, Debug)]
pub(super) struct ShownImage {
    name: String,
    size: Option<u64>,
    have: u64,
    pub(super) state: ImageState,
}

impl ImageLibrary {
    /// The status of an image in this format, if it was requested.
    pub fn status(&self, key: ImageKey, format: ImageFormat) -> Option<ImageStatus> {
        let shown = self.shown.get(&(key, format))?;
        Some(ImageStatus {
            key: key.to_string(),
            name: shown.name.clone(),
            digest: key.0,
            format,
            size: shown.size,
            present_bytes: shown.have,
            state: shown.state.clone(),
            raw: self.unpacked_of(key, format),
        })
    }

    /// Why the image was wrong when it was last fetched in this format, if it was. It stays so
    /// until all of it was fetched again and verified. A request that names a source which was
    /// not known then is another matter: that one may have the right bytes.
    pub fn wrong(&self, wanted: &ImageSpec) -> Option<&str> {
        let wrong = self.wrong.get(&(wanted.key(), wanted.format))?;
        // An image without sources was uploaded.
        let is_new = |source: &String| !wrong.sources.contains(source);
        let is_other = !wrong.sources.is_empty() && wanted.sources.iter().any(is_new);
        (!is_other).then_some(wrong.why.as_str())
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
        let key = (spec.key(), spec.format);
        let before = self.shown.get(&key).map(|shown| &shown.state);
        let is_new_state = before != Some(&state);
        self.note_wrong(spec, &state);
        let shown = ShownImage {
            name: spec.name.clone(),
            size,
            have,
            state,
        };
        if self.shown.len() >= LIBRARY_IMAGES_MAX && !self.shown.contains_key(&key) {
            self.shown.pop_first();
        }
        self.shown.insert(key, shown);
        self.push_status(key, None, is_new_state);
    }

    /// The image is not here any more.
    pub(crate) fn report_evicted(&mut self, spec: &ImageSpec) {
        self.report(spec, None, 0, ImageState::Evicted);
        self.forget_shown(spec);
        // Other entries with these bytes do not have them any more either.
        self.correct_shown(spec.key());
    }

    /// The image is not in the catalogue in this format any more.
    pub fn forget_shown(&mut self, spec: &ImageSpec) {
        self.shown.remove(&(spec.key(), spec.format));
        self.wrong.remove(&(spec.key(), spec.format));
    }

    /// Whether the file of the image is in the cache and verified, in whatever format.
    pub fn has_file(&self, key: ImageKey) -> bool {
        self.images.get(&key).is_some_and(LibraryImage::is_whole)
    }

    /// Work on the file of an image has ended. It was done under one format: what is shown of
    /// the same bytes in other formats must not say that they are here if they are not.
    pub(super) fn correct_shown(&mut self, key: ImageKey) {
        let all = ImageFormat::ALL.into_iter();
        let stale = all.filter_map(|format| {
            let shown = self.shown.get(&(key, format))?;
            let spec = ImageSpec {
                name: shown.name.clone(),
                digest: key.0,
                sources: Vec::new(),
                format,
            };
            let is_here = if format.is_packed() {
                self.unpacked_disk(&spec).is_some()
            } else {
                self.has_file(key)
            };
            let is_whole = shown.state == ImageState::Complete;
            (is_whole && !is_here && !self.is_under_way(&spec)).then_some(spec)
        });
        for spec in stale.collect::<Vec<_>>() {
            match self.file_failure(key) {
                Some(state) => self.report(&spec, None, 0, state),
                None if spec.format.is_packed() => {}
                None => {
                    self.report(&spec, None, 0, ImageState::Evicted);
                    self.forget_shown(&spec);
                }
            }
        }
    }

    /// The failure of the file of an image, as it is shown for the format of the last work.
    pub(super) fn file_failure(&self, key: ImageKey) -> Option<ImageState> {
        let image = self.images.get(&key)?;
        let (ImagePhase::Failed { why, .. } | ImagePhase::Partial { why, .. }) = &image.phase
        else {
            return None;
        };
        let shown = self.shown.get(&(key, image.metadata.spec.format));
        let shown = shown.map(|shown| &shown.state);
        let known = shown.filter(|state| state.failure().is_some()).cloned();
        Some(known.unwrap_or_else(|| ImageState::Failed(why.clone())))
    }

    fn push_status(&mut self, key: ShownKey, requested: Option<&ImageSpec>, is_new_state: bool) {
        let Some(mut status) = self.status(key.0, key.1) else {
            return;
        };
        if let Some(requested) = requested {
            status.name.clone_from(&requested.name);
        }
        self.news.push(ImageNews {
            status,
            is_new_state,
        });
    }

    fn note_wrong(&mut self, spec: &ImageSpec, state: &ImageState) {
        let key = (spec.key(), spec.format);
        match state {
            ImageState::Wrong(why) => {
                if self.wrong.len() >= WRONG_IMAGES_MAX && !self.wrong.contains_key(&key) {
                    self.wrong.pop_first();
                }
                let wrong = self.wrong.entry(key).or_default();
                wrong.why.clone_from(why);
                for source in &spec.sources {
                    if wrong.sources.len() < WRONG_SOURCES_MAX && !wrong.sources.contains(source) {
                        wrong.sources.push(source.clone());
                    }
                }
            }
            ImageState::Complete | ImageState::Evicted => {
                self.wrong.remove(&key);
            }
            _ => {}
        }
    }

    /// The file was verified for one format while another entry waited for it: now it is verified
    /// in the format of that one.
    pub(super) fn verify_asked(&mut self, now: Now) {
        let requested = self.requested.values().flatten();
        let due = requested.filter(|spec| {
            let image = self.images.get(&spec.key());
            let is_other = image.is_some_and(|image| {
                let is_file = image.is_whole() && image.metadata.unpacked_from.is_none();
                is_file && image.metadata.spec.format != spec.format
            });
            let shown = self.shown.get(&(spec.key(), spec.format));
            let is_known = shown.is_some_and(|shown| shown.state == ImageState::Complete);
            is_other && !is_known && !spec.format.is_packed() && !self.is_being_unpacked(spec.key())
        });
        for spec in due.cloned().collect::<Vec<_>>() {
            // Errors are reported as image statuses.
            let _ = self.request_file(now, &spec, true);
        }
    }

    /// Requests whose image is complete or has failed are answered.
    pub(super) fn answer_requests(&mut self) {
        let done = |spec: &ImageSpec, library: &Self| !library.is_under_way(spec);
        let keys: Vec<ImageKey> = self.requested.keys().copied().collect();
        for key in keys {
            let Some(all) = self.requested.remove(&key) else {
                continue;
            };
            let (ended, waiting): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|spec| done(spec, self));
            if !waiting.is_empty() {
                self.requested.insert(key, waiting);
            }
            for spec in ended {
                self.answer(&spec, None);
            }
        }
    }

    /// Reports the state of an image under the name by which it was requested.
    pub(super) fn answer(&mut self, wanted: &ImageSpec, failure: Option<String>) {
        let key = wanted.key();
        if self.shown.contains_key(&(key, wanted.format)) {
            return self.push_status((key, wanted.format), Some(wanted), false);
        }
        let whole = self.images.get(&key).filter(|image| image.is_whole());
        let whole = whole.filter(|_| !wanted.format.is_packed());
        let size = whole.and_then(|image| image.metadata.size);
        let disk = self.unpacked_disk(wanted).and(self.disks.get(&key));
        match (failure, size.or(disk.map(|disk| disk.size))) {
            (Some(why), _) => self.report(wanted, None, 0, ImageState::Failed(why)),
            (None, Some(size)) => self.report(wanted, Some(size), size, ImageState::Complete),
            (None, None) => {
                if let Some(state) = self.file_failure(key) {
                    self.report(wanted, None, 0, state);
                }
            }
        }
    }

    /// Whether work on what readers of this image receive has not ended.
    pub(super) fn is_under_way(&self, wanted: &ImageSpec) -> bool {
        let key = wanted.key();
        let is_busy = |key: &ImageKey| {
            let image = self.images.get(key);
            image.is_some_and(|image| image.is_busy() || matches!(image.phase, ImagePhase::Stored))
        };
        if wanted.format.is_packed() {
            let disk = self.disks.get(&key);
            return self.is_unpacking(key) || disk.is_some_and(|disk| is_busy(&disk.raw));
        }
        is_busy(&key)
    }
}
