//! Decides how an image is fetched.
//!
//! One [`ImageFill`] is the fetch of one image. It decides which bytes to request from which
//! source; the shell sends the request, reports the response, and appends the bytes of its orders
//! to. A partial download is continued if the source still has the same file, and dropped if it
//! has another. The digest decides in any case: if the file was fetched in several parts and
//! its digest is wrong, it is fetched once more in one piece; if that is wrong too, the source
//! is wrong.

use trivet_model::Digest;
use trivet_model::image::ImageState;

use crate::image_spec::request_url;
use crate::{IMAGE_BYTES_MAX, ImageSpec};

/// How many requests in a row may fail without a byte received, for each source. Ours.
const FAILURES_MAX: u32 = 5;

/// The first delay after a failure, and the longest. Ours.
const WAIT_MS_FIRST: u64 = 250;
const WAIT_MS_MAX: u64 = 15_000;

/// Longest failure reason of a source that is kept.
const REASON_CHARS_MAX: usize = 300;

impl ImageFillError {
    /// Whether the bytes at the source are known not to be the image: a retry gives the same
    /// result until the operator changes the source, the digest or the format.
    pub fn is_wrong_image(&self) -> bool {
        matches!(
            self,
            Self::Mismatch { .. } | Self::UploadMismatch { .. } | Self::Format { .. }
        )
    }

    /// The state of an image after this error.
    pub fn image_state(&self) -> ImageState {
        if self.is_wrong_image() {
            ImageState::Wrong(self.to_string())
        } else {
            ImageState::Failed(self.to_string())
        }
    }
}

/// Why an image is not available, in sentences for the operator.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ImageFillError {
    /// The file at the source has another digest.
    #[error(
        "image {image} from {source_url} has a wrong digest: {algorithm} {expected} is \
         expected, {found} was found in {bytes} bytes; correct the digest, or put the right file \
         at the source. The bytes were dropped"
    )]
    Mismatch {
        /// The image name.
        image: String,
        /// The URL of the source.
        source_url: String,
        /// The hash algorithm.
        algorithm: &'static str,
        /// The expected digest.
        expected: String,
        /// The digest of the received bytes.
        found: String,
        /// Bytes received.
        bytes: u64,
    },
    /// No source delivers it.
    #[error(
        "image {image} cannot be fetched: {source_url} {why}; {have} bytes are here and are kept. \
         Fix the source or the network path, then retry"
    )]
    SourceUnreachable {
        /// The image name.
        image: String,
        /// The URL of the last source tried.
        source_url: String,
        /// The failure of that source.
        why: String,
        /// Bytes in the cache.
        have: u64,
    },
    /// The uploaded file has another digest.
    #[error(
        "the upload of image {image} has a wrong digest: {algorithm} {expected} is \
         expected, {found} was found in {bytes} bytes; upload the right file, or correct the \
         digest. The bytes were dropped"
    )]
    UploadMismatch {
        /// The image name.
        image: String,
        /// The hash algorithm.
        algorithm: &'static str,
        /// The expected digest.
        expected: String,
        /// The digest of the received bytes.
        found: String,
        /// Bytes received.
        bytes: u64,
    },
    /// Its upload is incomplete.
    #[error(
        "image {image} is incomplete: {have} bytes of its upload are here and are kept. Continue \
         the upload from there, or start it again"
    )]
    UploadIncomplete {
        /// The image name.
        image: String,
        /// Bytes in the cache.
        have: u64,
    },
    /// It is corrupt on the disk, and has no source to fetch it from.
    #[error(
        "image {image} has {chunks} chunks that have changed on this box's disk, and no source \
         to fetch them from; upload it again. The first {have} bytes are right and are kept"
    )]
    Corrupt {
        /// The image name.
        image: String,
        /// How many chunks are corrupt.
        chunks: u64,
        /// Bytes before the first of them.
        have: u64,
    },
    /// It was removed during the fetch.
    #[error("image {image} was removed")]
    Removed {
        /// The image name.
        image: String,
    },
    /// It has no source.
    #[error("image {image} is not in the cache and has no source; add one, or upload it")]
    NoSource {
        /// The image name.
        image: String,
    },
    /// There is no space for it.
    #[error("no space for image {image} of {bytes} bytes: {why}")]
    NoSpace {
        /// The image name.
        image: String,
        /// Its size.
        bytes: u64,
        /// What to do.
        why: String,
    },
    /// The digest is right, but the bytes do not have the declared format.
    #[error("image {image} {why}")]
    Format {
        /// The image name.
        image: String,
        /// What is wrong with the format, and what to do.
        why: String,
    },
    /// The disk of the box failed.
    #[error("image {image} cannot be stored: {why}")]
    Disk {
        /// The image name.
        image: String,
        /// The error of the operating system.
        why: String,
    },
}

/// The next step of a fill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageFillStep {
    /// Request bytes from a source.
    Request(ImageSourceRequest),
    /// Wait, then call [`ImageFill::next_step`] again.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// The fill has failed.
    GiveUp(ImageFillError),
}

/// A request to a source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageSourceRequest {
    /// The URL; `oci://registry/repository@digest` is the layer with this digest.
    pub url: String,
    /// First byte.
    pub from: u64,
    /// The byte after the last; `None` is to the end.
    pub to: Option<u64>,
    /// `If-Range`: only if the file is still this one; otherwise all of it.
    pub if_range: Option<String>,
    /// `If-None-Match` or `If-Modified-Since`: otherwise the status is 304.
    pub if_changed: Option<String>,
}

/// The head of a response of a source.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ImageSourceHead {
    /// HTTP status; a local file counts as 200 or 206.
    pub status: u16,
    /// Length of the body, if the response has it.
    pub length: Option<u64>,
    /// `Content-Range`: the first byte, and the total size if it is given.
    pub range: Option<(u64, Option<u64>)>,
    /// A strong `ETag`, otherwise `Last-Modified`.
    pub validator: Option<String>,
}

/// What to do with the body of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageBodyAction {
    /// Append all of it.
    Append,
    /// The source does not support ranges: skip so many bytes, which are already here, and
    /// append the rest.
    Skip(u64),
    /// The source has another file now: drop the partial download, disconnect its readers, and
    /// start with this body.
    Restart,
    /// Drop the partial download and do not read the body; call [`ImageFill::next_step`].
    Discard,
    /// Do not read the body; call [`ImageFill::next_step`].
    Refuse,
}

/// The fetch of one image.
#[derive(Clone, Debug)]
pub struct ImageFill {
    spec: ImageSpec,
    have: u64,
    size: Option<u64>,
    /// The validator of the file, and the index of its source.
    validator: Option<(usize, String)>,
    /// The present source, and how many requests failed since the last byte.
    source: usize,
    failures: u32,
    waited: bool,
    last_error: String,
    /// The bytes here came in more than one response.
    is_pieced: bool,
    /// Sources whose file, fetched in one piece, is wrong.
    wrong: Vec<usize>,
    mismatch: Option<ImageFillError>,
}

impl ImageFill {
    /// A fill that continues after `have` bytes of an earlier download.
    pub fn new(wanted: ImageSpec, have: u64, size: Option<u64>, validator: Option<String>) -> Self {
        Self {
            spec: wanted,
            have,
            size,
            validator: validator.map(|validator| (0, validator)),
            source: 0,
            failures: 0,
            waited: true,
            last_error: String::new(),
            is_pieced: have > 0,
            wrong: Vec::new(),
            mismatch: None,
        }
    }

    /// The image that is fetched.
    pub fn spec(&self) -> &ImageSpec {
        &self.spec
    }

    /// Bytes received.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// The size of the image, once a source has reported it.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The validator of the file at the first source.
    pub fn validator(&self) -> Option<&str> {
        let (_, validator) = self.validator.as_ref()?;
        Some(validator)
    }

    /// The URL of the present source.
    pub fn source(&self) -> &str {
        self.spec
            .sources
            .get(self.source)
            .map_or("nowhere", String::as_str)
    }

    /// All bytes are here: only the digest remains to be verified.
    pub fn is_complete(&self) -> bool {
        self.size == Some(self.have)
    }

    /// The next step.
    pub fn next_step(&mut self) -> ImageFillStep {
        let count = self.spec.sources.len();
        if count == 0 {
            let image = self.spec.name.clone();
            return ImageFillStep::GiveUp(ImageFillError::NoSource { image });
        }
        if self.wrong.len() >= count
            && let Some(mismatch) = self.mismatch.take()
        {
            return ImageFillStep::GiveUp(mismatch);
        }
        if self.failures >= FAILURES_MAX.saturating_mul(count as u32) {
            return ImageFillStep::GiveUp(self.mismatch.take().unwrap_or_else(|| {
                ImageFillError::SourceUnreachable {
                    image: self.spec.name.clone(),
                    source_url: self.source().to_owned(),
                    why: self.last_error.clone(),
                    have: self.have,
                }
            }));
        }
        if !self.waited {
            self.waited = true;
            return ImageFillStep::Wait { ms: self.wait_ms() };
        }
        while self.wrong.contains(&self.source) {
            self.source = (self.source + 1) % count;
        }
        let if_range = match &self.validator {
            Some((source, validator)) if *source == self.source && self.have > 0 => {
                Some(validator.clone())
            }
            _ => None,
        };
        ImageFillStep::Request(ImageSourceRequest {
            url: request_url(self.source(), self.spec.digest),
            from: self.have,
            to: None,
            if_range,
            if_changed: None,
        })
    }

    /// Twice as long after each failure. With several sources the next one is tried at once,
    /// and the delay applies after a whole round.
    fn wait_ms(&self) -> u64 {
        let count = self.spec.sources.len() as u32;
        if !self.failures.is_multiple_of(count) {
            return 0;
        }
        let rounds = (self.failures / count).saturating_sub(1).min(16);
        (WAIT_MS_FIRST << rounds).min(WAIT_MS_MAX)
    }

    /// Handles the head of a response.
    pub fn handle_response(&mut self, head: &ImageSourceHead) -> ImageBodyAction {
        let total = head.range.and_then(|(_, total)| total);
        let size = total.or(head.length).unwrap_or(0);
        if matches!(head.status, 200 | 206) && size > IMAGE_BYTES_MAX {
            self.handle_failure(format!(
                "reports {size} bytes; an image has at most {IMAGE_BYTES_MAX}"
            ));
            return ImageBodyAction::Refuse;
        }
        match head.status {
            200 => self.handle_whole(head),
            206 => self.handle_partial(head),
            // The source does not have these bytes: the file has become shorter.
            416 if self.have > 0 => {
                self.reset();
                ImageBodyAction::Discard
            }
            status => {
                self.handle_failure(format!("answered with status {status}"));
                ImageBodyAction::Refuse
            }
        }
    }

    fn handle_whole(&mut self, head: &ImageSourceHead) -> ImageBodyAction {
        let same_size = self.size.is_none() || self.size == head.length;
        let same = same_size && self.is_same_file(head);
        if self.have > 0 && same {
            self.is_pieced = true;
            self.record_file(head, head.length);
            return ImageBodyAction::Skip(self.have);
        }
        let restarts = self.have > 0;
        self.reset();
        self.record_file(head, head.length);
        if restarts {
            ImageBodyAction::Restart
        } else {
            ImageBodyAction::Append
        }
    }

    fn handle_partial(&mut self, head: &ImageSourceHead) -> ImageBodyAction {
        let Some((from, total)) = head.range else {
            self.handle_failure("replied with a partial body without Content-Range".to_owned());
            return ImageBodyAction::Refuse;
        };
        if from != self.have {
            let have = self.have;
            self.handle_failure(format!(
                "replied from byte {from}, requested was byte {have}"
            ));
            return ImageBodyAction::Refuse;
        }
        let other_size = matches!((self.size, total), (Some(old), Some(new)) if old != new);
        if other_size || !self.is_same_file(head) {
            self.reset();
            return ImageBodyAction::Discard;
        }
        self.is_pieced |= self.have > 0;
        let total = total.or_else(|| head.length.map(|length| from + length));
        self.record_file(head, total);
        ImageBodyAction::Append
    }

    /// Whether nothing shows that this is another file than the partial download.
    fn is_same_file(&self, head: &ImageSourceHead) -> bool {
        match (&self.validator, &head.validator) {
            (Some((source, old)), Some(new)) if *source == self.source => old == new,
            _ => true,
        }
    }

    fn record_file(&mut self, head: &ImageSourceHead, size: Option<u64>) {
        self.size = size.or(self.size);
        if let Some(validator) = &head.validator {
            self.validator = Some((self.source, validator.clone()));
        }
    }

    /// Drops the partial download.
    fn reset(&mut self) {
        self.have = 0;
        self.size = None;
        self.validator = None;
        self.is_pieced = false;
    }

    /// Bytes were received and appended.
    pub fn handle_bytes(&mut self, bytes: u64) {
        self.have += bytes;
        if bytes > 0 {
            self.failures = 0;
        }
    }

    /// The body has ended. True if the image is complete.
    pub fn handle_end(&mut self) -> bool {
        match self.size {
            None => self.size = Some(self.have),
            Some(size) if self.have < size => {
                let have = self.have;
                self.handle_failure(format!("ended at byte {have} of {size}"));
            }
            Some(_) => {}
        }
        self.is_complete()
    }

    /// The request failed or the body was interrupted; `why` is a short reason.
    pub fn handle_failure(&mut self, why: String) {
        self.failures += 1;
        self.waited = false;
        self.last_error = why.chars().take(REASON_CHARS_MAX).collect();
        let count = self.spec.sources.len().max(1);
        self.source = (self.source + 1) % count;
    }

    /// Verifies the digest of all bytes. If it is wrong, the bytes must be dropped; the next
    /// step may be another attempt.
    pub fn verify_digest(&mut self, found: Digest) -> Result<(), ImageFillError> {
        if found == self.spec.digest {
            return Ok(());
        }
        let mismatch = ImageFillError::Mismatch {
            image: self.spec.name.clone(),
            source_url: self.source().to_owned(),
            algorithm: found.algorithm(),
            expected: self.spec.digest.to_string(),
            found: found.to_string(),
            bytes: self.have,
        };
        let pieced = self.is_pieced;
        self.reset();
        // Parts of two versions of a file do not mean that the source is wrong.
        if !pieced {
            self.mismatch = Some(mismatch.clone());
            self.wrong.push(self.source);
        }
        Err(mismatch)
    }
}

#[cfg(test)]
mod tests;
