//! The images of the cache: the library, and what leaves the rack for it.
//!
//! The state of each image is in the library and nowhere else. The images in the snapshot are made
//! from it after each change, for readers only; decisions use the library.

use std::sync::Arc;

use trivet_images::{
    FileChecksum, ImageKey, ImageLibrary, ImageNews, ImageSpec, ImageUrlAnswer, ImageWorkReport,
    OciResolution,
};
use trivet_model::image::{ImageFormat, ImageState, ImageStatus, UnpackedImage};
use trivet_model::{Digest, Now, OciReference, Tick};
use trivet_oci::{OciQuery, RegistryCredentials};

use crate::agents::callers::without_credentials;
use crate::part_context::PartContext;
use crate::{FileGrant, ImageGrant, RackOutput, Settings};

/// All images, with the orders that they give to the shell.
pub(crate) struct ImagePart {
    library: ImageLibrary,
}

impl ImagePart {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            library: ImageLibrary::new(settings.image_library.clone()),
        }
    }

    /// For tests that put images into states.
    #[cfg(test)]
    pub(crate) fn library_mut(&mut self) -> &mut ImageLibrary {
        &mut self.library
    }

    /// When the library has something due.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.library.deadline()
    }

    /// Calls the library; its orders leave in their order.
    fn run<T>(
        &mut self,
        context: &mut PartContext,
        action: impl FnOnce(&mut ImageLibrary, Now) -> T,
    ) -> T {
        let result = action(&mut self.library, context.now);
        let orders = self.library.take_orders().into_iter();
        let outputs = orders.map(|order| RackOutput::Image(Box::new(order)));
        context.outputs.extend(outputs);
        result
    }

    pub(crate) fn start(&mut self, context: &mut PartContext) {
        self.run(context, |library, _| library.start());
    }

    pub(crate) fn tick(&mut self, context: &mut PartContext) {
        if self.deadline().is_some_and(|at| at <= context.now.tick) {
            self.run(context, ImageLibrary::tick);
        }
    }

    /// The shell reports a result.
    pub(crate) fn handle(&mut self, context: &mut PartContext, report: ImageWorkReport) {
        self.run(context, |library, now| library.handle(now, report));
    }

    /// Fetches an image; news follow in any case.
    pub(crate) fn want(&mut self, context: &mut PartContext, wanted: &ImageSpec, urgent: bool) {
        self.run(context, |library, now| library.want(now, wanted, urgent));
    }

    /// Verifies an image that an agent doubts; news follow in any case.
    pub(crate) fn verify_again(&mut self, context: &mut PartContext, wanted: &ImageSpec) {
        self.run(context, |library, now| library.verify_again(now, wanted));
    }

    /// Fetches a file by its URL; an answer follows.
    pub(crate) fn fetch_url(&mut self, context: &mut PartContext, url: &str, format: ImageFormat) {
        self.run(context, |library, now| library.fetch_url(now, url, format));
    }

    /// Reads a checksum file; an answer follows.
    pub(crate) fn find_checksum(&mut self, context: &mut PartContext, url: &str, name: &str) {
        self.run(context, |library, _| library.find_checksum(url, name));
    }

    /// Looks up a reference to a registry; an answer follows.
    pub(crate) fn resolve_oci(&mut self, context: &mut PartContext, query: OciQuery) {
        self.run(context, |library, _| library.resolve_oci(query));
    }

    /// Layers of this repository are fetched with these credentials.
    pub(crate) fn use_pull_secret(
        &mut self,
        context: &mut PartContext,
        reference: OciReference,
        credentials: RegistryCredentials,
    ) {
        self.run(context, |library, _| {
            library.use_pull_secret(reference, credentials);
        });
    }

    /// These images are never evicted.
    pub(crate) fn pin(&mut self, digests: &[Digest]) {
        self.library.pin(digests);
    }

    /// Removes an image from the cache.
    pub(crate) fn remove(&mut self, context: &mut PartContext, digest: Digest) {
        self.run(context, |library, now| library.drop_image(now, digest));
        self.show(context, ImageKey(digest));
    }

    /// No entry of the catalogue has these bytes in this format any more.
    pub(crate) fn forget(&mut self, context: &mut PartContext, spec: &ImageSpec) {
        self.run(context, |library, _| library.forget_shown(spec));
        self.show(context, spec.key());
    }

    /// Nothing names these bytes any more: what is shown of their failures is removed.
    pub(crate) fn forget_failures(&mut self, context: &mut PartContext, digest: Digest) {
        for format in ImageFormat::ALL {
            let spec = ImageSpec {
                name: String::new(),
                digest,
                sources: Vec::new(),
                format,
            };
            if self.failure_of(&spec).is_some() {
                self.forget(context, &spec);
            }
        }
    }

    /// Whether the file of the image is in the cache, in whatever format it was verified.
    pub(crate) fn has_file(&self, digest: Digest) -> bool {
        self.library.has_file(ImageKey(digest))
    }

    /// Permission to read an image, which is fetched if it is not here.
    pub(crate) fn grant(&mut self, context: &mut PartContext, spec: ImageSpec) -> FileGrant {
        match self.run(context, |library, now| library.read(now, &spec)) {
            Ok(read) => FileGrant::Image(Box::new(ImageGrant { spec, read })),
            Err(why) => FileGrant::Unavailable(why),
        }
    }

    /// The chunk list of an image, if it is complete.
    pub(crate) fn grant_chunk_list(&self, spec: &ImageSpec) -> Option<FileGrant> {
        self.library.chunk_list(spec).map(FileGrant::ChunkList)
    }

    /// The next change of a state, after the snapshot has it.
    pub(crate) fn take_news(&mut self, context: &mut PartContext) -> Vec<ImageNews> {
        let mut all = self.library.take_news();
        for news in &mut all {
            self.show(context, ImageKey(news.status.digest));
            let status = without_credentials(news.status.clone());
            news.status = status;
        }
        all
    }

    pub(crate) fn take_url_answers(&mut self) -> Vec<ImageUrlAnswer> {
        self.library.take_url_answers()
    }

    pub(crate) fn take_checksums(&mut self) -> Vec<FileChecksum> {
        self.library.take_checksums()
    }

    pub(crate) fn take_resolutions(&mut self) -> Vec<OciResolution> {
        self.library.take_resolutions()
    }

    /// Makes the statuses of an image in the snapshot from the library.
    fn show(&self, context: &mut PartContext, key: ImageKey) {
        let images = &mut context.records.view.images;
        for format in ImageFormat::ALL {
            let in_view = ImageStatus::view_key(&key.to_string(), format);
            match self.library.status(key, format) {
                Some(status) => {
                    images.insert(in_view, Arc::new(without_credentials(status)));
                }
                None => {
                    images.remove(&in_view);
                }
            }
        }
    }

    /// The status of an image in its format, if it was requested.
    pub(crate) fn status(&self, wanted: &ImageSpec) -> Option<ImageStatus> {
        self.library
            .status(wanted.key(), wanted.format)
            .map(without_credentials)
    }

    /// Whether all of the image is in the cache and verified.
    pub(crate) fn is_complete(&self, wanted: &ImageSpec) -> bool {
        let status = self.status(wanted);
        status.is_some_and(|status| status.state == ImageState::Complete)
    }

    /// Whether the image is being fetched or unpacked.
    pub(crate) fn is_coming(&self, wanted: &ImageSpec) -> bool {
        let status = self.status(wanted);
        status.is_some_and(|status| {
            matches!(status.state, ImageState::Fetching | ImageState::Unpacking)
        })
    }

    /// The disk that was unpacked from a packed image, if it is in the cache.
    pub(crate) fn unpacked(&self, wanted: &ImageSpec) -> Option<UnpackedImage> {
        self.status(wanted)?.raw
    }

    /// Why the image in the cache cannot be used now, if so.
    pub(crate) fn failure_of(&self, wanted: &ImageSpec) -> Option<String> {
        let status = self.status(wanted)?;
        status.state.failure().map(str::to_owned)
    }

    /// Why the image was wrong when it was last fetched in this format, if it was.
    pub(crate) fn wrong(&self, wanted: &ImageSpec) -> Option<String> {
        let why = self.library.wrong(wanted)?;
        Some(crate::agents::callers::redacted(why.to_owned()))
    }
}
