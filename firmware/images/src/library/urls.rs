//! Files that are known by URL only, such as a ramdisk without a digest in its node's record.
//!
//! The file is hashed while it is received, and becomes an image under the digest that it has. The
//! validator of the source makes the next request conditional. While the source is unreachable,
//! the copy that was fetched earlier is used.

use trivet_model::image::ImageState;
use trivet_model::{Digest, Now};

use super::fills::FillOutcome;
use super::requests::EarlyRequest;
use super::space::SpacePurpose;
use super::{
    EntryOwner, ImageDiskError, ImageEntryId, ImageFileKind, ImageFileOrder, ImageLibrary,
    ImagePhase, ImageWorkOrder, LIBRARY_IMAGES_MAX, LibraryImage,
};
use crate::{
    ImageBodyEnd, ImageFillResult, ImageFormat, ImageKey, ImageMetadata, ImageSourceHead,
    ImageSourceRequest, ImageSpec, REPORT_BYTES, SOURCES_MAX, file_name,
};

/// The largest file that is fetched without a digest. Ours: installation discs are smaller.
const FILE_BYTES_MAX: u64 = 64 << 30;

/// How often a source is requested, with and without an earlier copy, and the delay between two
/// attempts.
const TRIES_MAX: u32 = 4;
const TRIES_WITH_COPY_MAX: u32 = 2;
const RETRY_WAIT_MS: u64 = 500;

/// The most URLs that are fetched at the same time. Ours.
const URLS_MAX: usize = 1024;

/// A file that was fetched by its URL alone and is complete in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FetchedFile {
    /// The digest of its bytes.
    pub digest: Digest,
    /// Set if it is an earlier copy that could not be compared with its source: the whole
    /// sentence for the note.
    pub old: Option<String>,
    /// The source sent an `ETag` or `Last-Modified`, so that the next fetch compares only.
    pub has_validator: bool,
}

/// The answer to a request for a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageUrlAnswer {
    /// The URL.
    pub url: String,
    /// The file, or a sentence that says why there is none.
    pub result: Result<FetchedFile, String>,
}

/// Why a file was not fetched: the end of a sentence that begins with its URL.
enum UrlFetchError {
    /// A retry may succeed.
    Unreachable(String),
    /// A retry would have the same result.
    Permanent(String),
    /// This box cannot store it.
    Local(String),
}

/// The fetch of one URL.
#[derive(Debug)]
pub(super) struct UrlFetch {
    format: ImageFormat,
    copy: Option<ImageKey>,
    tries: u32,
    entry: ImageEntryId,
    /// The bytes so far.
    have: u64,
    head: ImageSourceHead,
    phase: UrlPhase,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum UrlPhase {
    VerifyingCopy,
    /// A delay before the next request.
    Resting,
    Requested,
    Measuring,
    StartingHash,
    Receiving,
    Hashing,
    /// Other work on the image with this digest must end first.
    AwaitingImage(Digest),
    Storing(Digest),
}

impl ImageLibrary {
    /// Fetches a file, unless the cache has the source's current version. Each URL is fetched once
    /// at a time; the answer comes from [`Self::take_url_answers`].
    pub fn fetch_url(&mut self, now: Now, url: &str, format: ImageFormat) {
        if !self.is_open {
            return self.defer(EarlyRequest::Url(url.to_owned(), format));
        }
        if self.urls.contains_key(url) {
            return;
        }
        if self.urls.len() >= URLS_MAX {
            let why = format!("{url} is not fetched: {URLS_MAX} other files are being fetched");
            return self.answer_url(url, Err(why));
        }
        let copy = self.newest_copy(url);
        let fetch = UrlFetch {
            format,
            copy: copy.as_ref().map(ImageSpec::key),
            tries: 1,
            entry: ImageEntryId::default(),
            have: 0,
            head: ImageSourceHead::default(),
            phase: UrlPhase::VerifyingCopy,
        };
        self.urls.insert(url.to_owned(), fetch);
        if let Some(spec) = copy {
            // A copy that cannot be requested is not used.
            let _ = self.request_file(now, &spec, true);
            self.make_urgent(now, spec.key());
        }
        self.continue_verified_copy(now, url);
        self.finish_input(now);
    }

    fn answer_url(&mut self, url: &str, result: Result<FetchedFile, String>) {
        let url = url.to_owned();
        self.url_answers.push(ImageUrlAnswer { url, result });
    }

    /// The newest complete file from this URL.
    fn newest_copy(&self, url: &str) -> Option<ImageSpec> {
        let is_copy = |image: &&LibraryImage| {
            let stored = &image.metadata;
            let is_source = stored.spec.sources.iter().any(|source| source == url);
            is_source && stored.whole && !stored.spec.format.is_packed()
        };
        let copies = self.images.values().filter(is_copy);
        let newest = copies.max_by_key(|image| image.written_at);
        newest.map(|image| image.metadata.spec.clone())
    }

    /// Requests the URL once the earlier copy is verified or cannot be used.
    fn continue_verified_copy(&mut self, now: Now, url: &str) {
        let Some(fetch) = self.urls.get_mut(url) else {
            return;
        };
        if fetch.phase != UrlPhase::VerifyingCopy {
            return;
        }
        if let Some(copy) = fetch.copy {
            match self.images.get(&copy) {
                Some(image) if image.is_busy() => return,
                Some(image) if image.is_whole() => {}
                _ => fetch.copy = None,
            }
        }
        self.request_url(now, url);
    }

    /// Work on an image has ended.
    pub(super) fn urls_settled(&mut self, now: Now, key: ImageKey) {
        let waits = |fetch: &UrlFetch| match fetch.phase {
            UrlPhase::VerifyingCopy => fetch.copy == Some(key),
            UrlPhase::AwaitingImage(digest) => ImageKey(digest) == key,
            _ => false,
        };
        let all = self.urls.iter().filter(|(_, fetch)| waits(fetch));
        let all: Vec<String> = all.map(|(url, _)| url.clone()).collect();
        for url in all {
            match self.urls.get(&url).map(|fetch| fetch.phase) {
                Some(UrlPhase::AwaitingImage(digest)) => self.store_url(now, &url, digest),
                _ => self.continue_verified_copy(now, &url),
            }
        }
    }

    /// A delay is over.
    pub(super) fn continue_url(&mut self, now: Now, url: &str) {
        let phase = self.urls.get(url).map(|fetch| fetch.phase);
        if phase == Some(UrlPhase::Resting) {
            self.request_url(now, url);
        }
    }

    fn request_url(&mut self, _now: Now, url: &str) {
        let entry = self.new_entry(EntryOwner::Url(url.to_owned()));
        let Some(fetch) = self.urls.get_mut(url) else {
            return;
        };
        let old = std::mem::replace(&mut fetch.entry, entry);
        (fetch.phase, fetch.have) = (UrlPhase::Requested, 0);
        let copy = fetch.copy.and_then(|copy| self.images.get(&copy));
        let request = ImageSourceRequest {
            url: url.to_owned(),
            from: 0,
            to: None,
            if_range: None,
            if_changed: copy.and_then(|image| image.metadata.validator.clone()),
        };
        self.discard_entry(old);
        self.order_file(entry, ImageFileOrder::Request(request));
    }

    /// The result of an order on a download.
    pub(super) fn url_result(
        &mut self,
        now: Now,
        url: &str,
        result: Result<ImageFillResult, ImageDiskError>,
    ) {
        let Some(fetch) = self.urls.get_mut(url) else {
            return;
        };
        let entry = fetch.entry;
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                let why = format!("cannot be stored in the cache: {}", error.why);
                return self.url_failed(now, url, UrlFetchError::Local(why));
            }
        };
        match (fetch.phase, result) {
            (UrlPhase::Requested, ImageFillResult::Responded(Ok(head))) => {
                self.url_responded(now, url, head);
            }
            (UrlPhase::Requested, ImageFillResult::Responded(Err(why))) => {
                self.url_failed(now, url, UrlFetchError::Unreachable(why));
            }
            (UrlPhase::StartingHash, _) => {
                fetch.phase = UrlPhase::Receiving;
                let bytes_max = fetch.head.length;
                let order = ImageFileOrder::Receive { skip: 0, bytes_max };
                self.order_file(entry, order);
            }
            (UrlPhase::Receiving, ImageFillResult::BodyEnded { bytes, end }) => {
                fetch.have += bytes;
                self.url_body_ended(now, url, end);
            }
            (UrlPhase::Hashing, ImageFillResult::Hashed(digest)) => {
                self.store_url(now, url, digest);
            }
            (UrlPhase::Storing(digest), _) => self.url_stored(now, url, digest),
            _ => {}
        }
    }

    fn url_responded(&mut self, now: Now, url: &str, head: ImageSourceHead) {
        let Some(fetch) = self.urls.get_mut(url) else {
            return;
        };
        let failure = match (head.status, fetch.copy) {
            (304, Some(copy)) => {
                let found = FetchedFile {
                    digest: copy.0,
                    old: None,
                    has_validator: true,
                };
                return self.end_url(url, Ok(found));
            }
            (200, _) => {
                let (entry, bytes) = (fetch.entry, head.length.unwrap_or(0));
                fetch.head = head;
                fetch.phase = UrlPhase::Measuring;
                if bytes <= FILE_BYTES_MAX {
                    return self.measure(SpacePurpose::Url { entry, bytes });
                }
                too_large()
            }
            (status @ (408 | 429 | 500..=599), _) => {
                UrlFetchError::Unreachable(format!("answered with status {status}"))
            }
            (status, _) => UrlFetchError::Permanent(format!("answered with status {status}")),
        };
        self.url_failed(now, url, failure);
    }

    /// There is space for the announced size, or not.
    pub(super) fn url_space(&mut self, now: Now, entry: ImageEntryId, space: Result<(), String>) {
        let Some(EntryOwner::Url(url)) = self.entries.get(&entry).cloned() else {
            return;
        };
        if let Err(why) = space {
            return self.url_without_space(now, &url, &why);
        }
        let Some(fetch) = self.urls.get_mut(&url) else {
            return;
        };
        fetch.phase = UrlPhase::StartingHash;
        self.orders.push(ImageWorkOrder::Open {
            entry,
            key: ImageKey::of_url(&url),
            file: ImageFileKind::Download,
        });
        self.order_file(entry, ImageFileOrder::StartHashing { chunks: 0 });
    }

    pub(super) fn url_without_space(&mut self, now: Now, url: &str, why: &str) {
        let why = format!("has no space in the cache: {why}");
        self.url_failed(now, url, UrlFetchError::Local(why));
    }

    /// Bytes were appended; a source that did not announce the size must not fill the disk.
    pub(super) fn url_received(&mut self, now: Now, url: &str, bytes: u64) {
        let Some(fetch) = self.urls.get_mut(url) else {
            return;
        };
        fetch.have += bytes;
        let (entry, have) = (fetch.entry, fetch.have);
        if fetch.head.length.is_some() {
            return;
        }
        if have > FILE_BYTES_MAX {
            return self.url_failed(now, url, too_large());
        }
        let bytes = have + 2 * REPORT_BYTES;
        self.measure(SpacePurpose::Receiving { entry, bytes });
    }

    fn url_body_ended(&mut self, now: Now, url: &str, end: ImageBodyEnd) {
        let Some(fetch) = self.urls.get_mut(url) else {
            return;
        };
        let (entry, have) = (fetch.entry, fetch.have);
        let failure = match end {
            ImageBodyEnd::Interrupted(why) => UrlFetchError::Unreachable(why),
            ImageBodyEnd::TooLong => {
                UrlFetchError::Unreachable("sends more bytes than it announced".to_owned())
            }
            ImageBodyEnd::Removed => UrlFetchError::Unreachable("was removed".to_owned()),
            ImageBodyEnd::Complete if have == 0 => UrlFetchError::Permanent("is empty".to_owned()),
            ImageBodyEnd::Complete if fetch.head.length.is_some_and(|length| length != have) => {
                UrlFetchError::Unreachable(format!("disconnected after {have} bytes"))
            }
            ImageBodyEnd::Complete => {
                fetch.phase = UrlPhase::Hashing;
                return self.order_file(entry, ImageFileOrder::FinishHashing);
            }
        };
        self.url_failed(now, url, failure);
    }

    /// Makes the file an image, as soon as no other work on that image is under way.
    fn store_url(&mut self, now: Now, url: &str, digest: Digest) {
        let key = ImageKey(digest);
        self.start_image(now, key);
        let Some(fetch) = self.urls.get_mut(url) else {
            return;
        };
        let is_full = self.images.len() >= LIBRARY_IMAGES_MAX;
        match self.images.get(&key) {
            Some(image) if image.is_busy() => {
                fetch.phase = UrlPhase::AwaitingImage(digest);
                return;
            }
            Some(image) if image.is_whole() => return self.add_source(now, url, key),
            None if is_full => {
                let why = format!("the cache has {LIBRARY_IMAGES_MAX} images; remove some");
                return self.url_failed(now, url, UrlFetchError::Local(why));
            }
            _ => {}
        }
        let name = Some(file_name(url)).filter(|name| !name.is_empty());
        let metadata = ImageMetadata {
            spec: ImageSpec {
                name: name.unwrap_or(url).to_owned(),
                digest,
                sources: vec![url.to_owned()],
                format: fetch.format,
            },
            size: Some(fetch.have),
            validator: fetch.head.validator.clone(),
            whole: true,
            unpacked_from: None,
        };
        fetch.phase = UrlPhase::Storing(digest);
        let entry = fetch.entry;
        if let Some(old) = self.images.remove(&key) {
            self.end_reads(old.entry, "it was fetched again", false);
            self.close_entry(old.entry);
        }
        self.orders.push(ImageWorkOrder::DeleteFiles(key));
        let image = LibraryImage::new(metadata.clone(), entry, ImagePhase::Storing);
        self.images.insert(key, image);
        let metadata = Box::new(metadata);
        self.order_file(entry, ImageFileOrder::StoreDownload(metadata));
    }

    fn url_stored(&mut self, now: Now, url: &str, digest: Digest) {
        let Some(fetch) = self.urls.get(url) else {
            return;
        };
        let (entry, key) = (fetch.entry, ImageKey(digest));
        let has_validator = fetch.head.validator.is_some();
        self.entries.insert(entry, EntryOwner::Image(key));
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        image.used_at_ms = now.tick.0.max(1);
        image.written_at = now.wall;
        let (spec, size) = (image.metadata.spec.clone(), image.metadata.size);
        self.settle(now, key, FillOutcome::Whole);
        self.report(&spec, size, size.unwrap_or(0), ImageState::Complete);
        self.end_url(
            url,
            Ok(FetchedFile {
                digest,
                old: None,
                has_validator,
            }),
        );
    }

    /// The cache already has the same bytes: adds this source to them.
    fn add_source(&mut self, now: Now, url: &str, key: ImageKey) {
        let Some(fetch) = self.urls.get(url) else {
            return;
        };
        let validator = fetch.head.validator.clone();
        let has_validator = validator.is_some();
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        let sources = &mut image.metadata.spec.sources;
        if sources.len() < SOURCES_MAX && !sources.iter().any(|source| source == url) {
            sources.push(url.to_owned());
        }
        image.metadata.validator = validator;
        image.written_at = now.wall;
        let metadata = image.metadata.clone();
        let (spec, size) = (metadata.spec.clone(), metadata.size);
        self.orders
            .push(ImageWorkOrder::KeepMetadata(Box::new(metadata)));
        self.report(&spec, size, size.unwrap_or(0), ImageState::Complete);
        self.end_url(
            url,
            Ok(FetchedFile {
                digest: key.0,
                old: None,
                has_validator,
            }),
        );
    }

    /// Tries again, uses the earlier copy, or gives up.
    fn url_failed(&mut self, now: Now, url: &str, error: UrlFetchError) {
        let Some(fetch) = self.urls.get_mut(url) else {
            return;
        };
        if let UrlPhase::Storing(digest) = fetch.phase {
            self.images.remove(&ImageKey(digest));
        }
        let tries_max = match fetch.copy {
            Some(_) => TRIES_WITH_COPY_MAX,
            None => TRIES_MAX,
        };
        let why = match error {
            UrlFetchError::Permanent(why) => {
                let why =
                    format!("{url} {why}; correct the URL in the node's record, or the file there");
                return self.end_url(url, Err(why));
            }
            UrlFetchError::Local(why) => {
                let why = format!("{url} {why}; free space in box.data");
                return self.end_url(url, Err(why));
            }
            UrlFetchError::Unreachable(_) if fetch.tries < tries_max => {
                let wait_ms = RETRY_WAIT_MS * u64::from(fetch.tries);
                fetch.tries += 1;
                fetch.phase = UrlPhase::Resting;
                let old = fetch.entry;
                self.discard_entry(old);
                let entry = self.new_entry(EntryOwner::Url(url.to_owned()));
                if let Some(fetch) = self.urls.get_mut(url) {
                    fetch.entry = entry;
                }
                self.timers.insert(entry, now.tick.after_ms(wait_ms));
                return;
            }
            UrlFetchError::Unreachable(why) => why,
        };
        let copy = fetch.copy.and_then(|copy| self.images.get(&copy));
        let Some(copy) = copy else {
            let why = format!(
                "{url} {why}; correct the URL in the node's record, or the route from this box to \
                 its server"
            );
            return self.end_url(url, Err(why));
        };
        let old = format!("{url} {why}; the copy that this box fetched earlier is used");
        let found = FetchedFile {
            digest: copy.metadata.spec.digest,
            old: Some(old),
            has_validator: copy.metadata.validator.is_some(),
        };
        self.end_url(url, Ok(found));
    }

    /// The image that a file became was removed while it was stored.
    pub(super) fn url_removed(&mut self, url: &str) {
        self.end_url(
            url,
            Err(format!("{url} was fetched, but its image was removed")),
        );
    }

    pub(crate) fn end_url(&mut self, url: &str, result: Result<FetchedFile, String>) {
        if let Some(fetch) = self.urls.remove(url) {
            let is_image = |owner: &EntryOwner| matches!(owner, EntryOwner::Image(_));
            if !self.entries.get(&fetch.entry).is_some_and(is_image) {
                self.discard_entry(fetch.entry);
            }
        }
        self.answer_url(url, result);
    }
}

fn too_large() -> UrlFetchError {
    UrlFetchError::Permanent(format!(
        "has more than {FILE_BYTES_MAX} bytes, the most for a file without a digest"
    ))
}
