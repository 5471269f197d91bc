//! How an image is brought into the box.
//!
//! One [`Fill`] is one image on its way. It says whom to ask for which bytes; the
//! shell asks, tells what was answered, and appends what it is told to take. What is
//! here already is gone on with where the source still has the same file, and dropped
//! where it has another. The digest has the last word in any case: a wrong one that
//! was pieced together is fetched once more in one piece, and a wrong one in one piece
//! is the source's fault.

use trivet_model::Digest;
use trivet_model::image::ImageState;

use crate::{IMAGE_BYTES_MAX, ImageSpec};

/// How often in a row asking may fail without a byte coming, for each source. Ours.
const FAILURES_MAX: u32 = 5;

/// The first wait after a failure, and the longest. Ours.
const WAIT_MS_FIRST: u64 = 250;
const WAIT_MS_MAX: u64 = 15_000;

/// Longest reason of a source that is kept.
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

    /// What becomes of an image that failed like this.
    pub fn image_state(&self) -> ImageState {
        if self.is_wrong_image() {
            ImageState::Wrong(self.to_string())
        } else {
            ImageState::Failed(self.to_string())
        }
    }
}

/// Why an image is not to be had, in sentences for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ImageFillError {
    /// The source has something else.
    #[error(
        "image {image} from {source_url} is not what it should be: {algorithm} {expected} is \
         expected, {found} was found in {bytes} bytes; correct the digest, or put the right file \
         at the source. What came was dropped"
    )]
    Mismatch {
        /// Which image.
        image: String,
        /// From where.
        source_url: String,
        /// Of which digest.
        algorithm: &'static str,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
        /// How much came.
        bytes: u64,
    },
    /// No source gives it.
    #[error(
        "image {image} cannot be fetched: {source_url} {why}; {have} bytes are here and are kept. \
         Mend the source or the way to it, then ask again"
    )]
    SourceUnreachable {
        /// Which image.
        image: String,
        /// The last that was tried.
        source_url: String,
        /// What it said.
        why: String,
        /// How much is here.
        have: u64,
    },
    /// What was uploaded is something else.
    #[error(
        "the upload of image {image} is not what it should be: {algorithm} {expected} is \
         expected, {found} was found in {bytes} bytes; upload the right file, or correct the \
         digest. What came was dropped"
    )]
    UploadMismatch {
        /// Which image.
        image: String,
        /// Of which digest.
        algorithm: &'static str,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
        /// How much came.
        bytes: u64,
    },
    /// Its upload is not at its end.
    #[error(
        "image {image} is not whole: {have} bytes of its upload are here and are kept. Go on \
         with the upload from there, or begin it anew"
    )]
    UploadIncomplete {
        /// Which image.
        image: String,
        /// How much is here.
        have: u64,
    },
    /// It has changed on the disk, and there is nobody to ask for it again.
    #[error(
        "image {image} has {chunks} chunks that have changed on this box's disk, and no source \
         to fetch them from; upload it again. The first {have} bytes are right and are kept"
    )]
    Corrupt {
        /// Which image.
        image: String,
        /// How many chunks.
        chunks: u64,
        /// How much before the first of them is here.
        have: u64,
    },
    /// Somebody removed it meanwhile.
    #[error("image {image} was removed")]
    Removed {
        /// Which image.
        image: String,
    },
    /// Nobody said where to get it.
    #[error("image {image} is not in the cache and has no source; add one, or upload it")]
    NoSource {
        /// Which image.
        image: String,
    },
    /// There is no room for it.
    #[error("image {image} of {bytes} bytes finds no room: {why}")]
    NoSpace {
        /// Which image.
        image: String,
        /// How large it is.
        bytes: u64,
        /// What to do.
        why: String,
    },
    /// Its bytes are right, but they are not what they are said to be.
    #[error("image {image} {why}")]
    Format {
        /// Which image.
        image: String,
        /// What is wrong with them, and what to do.
        why: String,
    },
    /// The box's own disk failed.
    #[error("image {image} cannot be kept: {why}")]
    Disk {
        /// Which image.
        image: String,
        /// What the system said.
        why: String,
    },
}

/// What to do next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageFillStep {
    /// Ask for bytes.
    Request(ImageSourceRequest),
    /// Wait so long, then ask what is next.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// It is over.
    GiveUp(ImageFillError),
}

/// A request to a source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageSourceRequest {
    /// The URL.
    pub url: String,
    /// From this byte on.
    pub from: u64,
    /// To before this one; none is to the end.
    pub to: Option<u64>,
    /// Only if the file is still this one; otherwise all of it.
    pub if_range: Option<String>,
    /// Only if the file is not this one any more; otherwise the status is 304.
    pub if_changed: Option<String>,
}

/// The head of a source's answer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ImageSourceHead {
    /// HTTP's status; a file that was opened counts as 200 or 206.
    pub status: u16,
    /// How long the body is, if it says.
    pub length: Option<u64>,
    /// `Content-Range`: the first byte, and the size of the whole if it is told.
    pub range: Option<(u64, Option<u64>)>,
    /// A strong `ETag`, or else `Last-Modified`.
    pub validator: Option<String>,
}

/// What to do with the body of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageBodyAction {
    /// Append all of it.
    Append,
    /// The source knows no ranges: append what follows after so many bytes, which are
    /// here already.
    Skip(u64),
    /// It is another file now: drop what is here, cut off who reads it, and take this
    /// from its beginning.
    Restart,
    /// Drop what is here and do not read the body; ask what is next.
    Discard,
    /// Do not read it; ask what is next.
    Refuse,
}

/// An image on its way into the box.
#[derive(Clone, Debug)]
pub struct ImageFill {
    spec: ImageSpec,
    have: u64,
    size: Option<u64>,
    /// What tells the file at the source from another one, and at which source.
    validator: Option<(usize, String)>,
    /// The source that is asked, and how often asking failed since bytes came.
    source: usize,
    failures: u32,
    waited: bool,
    last_error: String,
    /// What is here came in more than one answer.
    is_pieced: bool,
    /// Sources whose file, fetched in one piece, is wrong.
    wrong: Vec<usize>,
    mismatch: Option<ImageFillError>,
}

impl ImageFill {
    /// A fill of which so many bytes are here from an earlier time.
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

    /// What is filled.
    pub fn spec(&self) -> &ImageSpec {
        &self.spec
    }

    /// Bytes that are here.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// How large the image is, once a source has said so.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// What tells the file at the first source from another one.
    pub fn validator(&self) -> Option<&str> {
        let (_, validator) = self.validator.as_ref()?;
        Some(validator)
    }

    /// The source that is asked now.
    pub fn source(&self) -> &str {
        self.spec
            .sources
            .get(self.source)
            .map_or("nowhere", String::as_str)
    }

    /// All bytes are here: only the digest is to be judged.
    pub fn is_complete(&self) -> bool {
        self.size == Some(self.have)
    }

    /// What to do next.
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
            url: self.source().to_owned(),
            from: self.have,
            to: None,
            if_range,
            if_changed: None,
        })
    }

    /// Twice as long after each failure. With several sources the next one is asked
    /// at once, and only a whole round is waited for.
    fn wait_ms(&self) -> u64 {
        let count = self.spec.sources.len() as u32;
        if !self.failures.is_multiple_of(count) {
            return 0;
        }
        let rounds = (self.failures / count).saturating_sub(1).min(16);
        (WAIT_MS_FIRST << rounds).min(WAIT_MS_MAX)
    }

    /// A source answered.
    pub fn handle_response(&mut self, head: &ImageSourceHead) -> ImageBodyAction {
        let total = head.range.and_then(|(_, total)| total);
        let size = total.or(head.length).unwrap_or(0);
        if matches!(head.status, 200 | 206) && size > IMAGE_BYTES_MAX {
            self.handle_failure(format!(
                "says that it has {size} bytes; an image has at most {IMAGE_BYTES_MAX}"
            ));
            return ImageBodyAction::Refuse;
        }
        match head.status {
            200 => self.handle_whole(head),
            206 => self.handle_partial(head),
            // It has no such bytes: the file has become shorter.
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
        let anew = self.have > 0;
        self.reset();
        self.record_file(head, head.length);
        if anew {
            ImageBodyAction::Restart
        } else {
            ImageBodyAction::Append
        }
    }

    fn handle_partial(&mut self, head: &ImageSourceHead) -> ImageBodyAction {
        let Some((from, total)) = head.range else {
            self.handle_failure("answered with a part and did not say which".to_owned());
            return ImageBodyAction::Refuse;
        };
        if from != self.have {
            let have = self.have;
            self.handle_failure(format!(
                "was asked from byte {have} and answered from {from}"
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

    /// Nothing tells that this is another file than the one we have a part of.
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

    /// Nothing is here any more.
    fn reset(&mut self) {
        self.have = 0;
        self.size = None;
        self.validator = None;
        self.is_pieced = false;
    }

    /// Bytes came and were appended.
    pub fn handle_bytes(&mut self, bytes: u64) {
        self.have += bytes;
        if bytes > 0 {
            self.failures = 0;
        }
    }

    /// The body is at its end as HTTP has it. Whether all of the image is here.
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

    /// Asking failed, or the body broke off: a few words say how.
    pub fn handle_failure(&mut self, why: String) {
        self.failures += 1;
        self.waited = false;
        self.last_error = why.chars().take(REASON_CHARS_MAX).collect();
        let count = self.spec.sources.len().max(1);
        self.source = (self.source + 1) % count;
    }

    /// All bytes are here and this is what they hash to. If that is wrong, all that is
    /// here must be dropped; what is next may still be another try.
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
        // Half of one file and half of another are nobody's fault yet.
        if !pieced {
            self.mismatch = Some(mismatch.clone());
            self.wrong.push(self.source);
        }
        Err(mismatch)
    }
}

#[cfg(test)]
mod tests;
