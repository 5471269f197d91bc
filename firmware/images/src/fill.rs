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

use crate::{IMAGE_BYTES_MAX, Wanted};

/// How often in a row asking may fail without a byte coming, for each source. Ours.
const FAILURES_MAX: u32 = 5;

/// The first wait after a failure, and the longest. Ours.
const WAIT_MS_FIRST: u64 = 250;
const WAIT_MS_MAX: u64 = 15_000;

/// Longest reason of a source that is kept.
const REASON_CHARS_MAX: usize = 300;

impl Failure {
    /// Whether the bytes at the source are known not to be the image: a retry gives the same
    /// result until the operator changes the source, the digest or the format.
    pub fn is_wrong_image(&self) -> bool {
        matches!(
            self,
            Self::Mismatch { .. } | Self::WrongUpload { .. } | Self::Format { .. }
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
pub enum Failure {
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
    Away {
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
    WrongUpload {
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
    Part {
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
    Rotten {
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
    NoRoom {
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
pub enum Next {
    /// Ask for bytes.
    Ask(Ask),
    /// Wait so long, then ask what is next.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// It is over.
    GiveUp(Failure),
}

/// A request to a source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ask {
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
pub struct Head {
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
pub enum Taken {
    /// Append all of it.
    Append,
    /// The source knows no ranges: append what follows after so many bytes, which are
    /// here already.
    Skip(u64),
    /// It is another file now: drop what is here, cut off who reads it, and take this
    /// from its beginning.
    Anew,
    /// Drop what is here and do not read the body; ask what is next.
    Drop,
    /// Do not read it; ask what is next.
    Refuse,
}

/// An image on its way into the box.
#[derive(Clone, Debug)]
pub struct Fill {
    wanted: Wanted,
    have: u64,
    size: Option<u64>,
    /// What tells the file at the source from another one, and at which source.
    validator: Option<(usize, String)>,
    /// The source that is asked, and how often asking failed since bytes came.
    source: usize,
    failures: u32,
    rested: bool,
    last_why: String,
    /// What is here came in more than one answer.
    pieced: bool,
    /// Sources whose file, fetched in one piece, is wrong.
    wrong: Vec<usize>,
    mismatch: Option<Failure>,
}

impl Fill {
    /// A fill of which so many bytes are here from an earlier time.
    pub fn new(wanted: Wanted, have: u64, size: Option<u64>, validator: Option<String>) -> Self {
        Self {
            wanted,
            have,
            size,
            validator: validator.map(|validator| (0, validator)),
            source: 0,
            failures: 0,
            rested: true,
            last_why: String::new(),
            pieced: have > 0,
            wrong: Vec::new(),
            mismatch: None,
        }
    }

    /// What is filled.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
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
        self.wanted
            .sources
            .get(self.source)
            .map_or("nowhere", String::as_str)
    }

    /// All bytes are here: only the digest is to be judged.
    pub fn is_complete(&self) -> bool {
        self.size == Some(self.have)
    }

    /// What to do next.
    pub fn turn(&mut self) -> Next {
        let count = self.wanted.sources.len();
        if count == 0 {
            let image = self.wanted.name.clone();
            return Next::GiveUp(Failure::NoSource { image });
        }
        if self.wrong.len() >= count
            && let Some(mismatch) = self.mismatch.take()
        {
            return Next::GiveUp(mismatch);
        }
        if self.failures >= FAILURES_MAX.saturating_mul(count as u32) {
            return Next::GiveUp(self.mismatch.take().unwrap_or_else(|| Failure::Away {
                image: self.wanted.name.clone(),
                source_url: self.source().to_owned(),
                why: self.last_why.clone(),
                have: self.have,
            }));
        }
        if !self.rested {
            self.rested = true;
            return Next::Wait { ms: self.wait_ms() };
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
        Next::Ask(Ask {
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
        let count = self.wanted.sources.len() as u32;
        if !self.failures.is_multiple_of(count) {
            return 0;
        }
        let rounds = (self.failures / count).saturating_sub(1).min(16);
        (WAIT_MS_FIRST << rounds).min(WAIT_MS_MAX)
    }

    /// A source answered.
    pub fn answered(&mut self, head: &Head) -> Taken {
        let total = head.range.and_then(|(_, total)| total);
        let size = total.or(head.length).unwrap_or(0);
        if matches!(head.status, 200 | 206) && size > IMAGE_BYTES_MAX {
            self.failed(format!(
                "says that it has {size} bytes; an image has at most {IMAGE_BYTES_MAX}"
            ));
            return Taken::Refuse;
        }
        match head.status {
            200 => self.whole(head),
            206 => self.part(head),
            // It has no such bytes: the file has become shorter.
            416 if self.have > 0 => {
                self.forget();
                Taken::Drop
            }
            status => {
                self.failed(format!("answered with status {status}"));
                Taken::Refuse
            }
        }
    }

    fn whole(&mut self, head: &Head) -> Taken {
        let same_size = self.size.is_none() || self.size == head.length;
        let same = same_size && self.is_same(head);
        if self.have > 0 && same {
            self.pieced = true;
            self.know(head, head.length);
            return Taken::Skip(self.have);
        }
        let anew = self.have > 0;
        self.forget();
        self.know(head, head.length);
        if anew { Taken::Anew } else { Taken::Append }
    }

    fn part(&mut self, head: &Head) -> Taken {
        let Some((from, total)) = head.range else {
            self.failed("answered with a part and did not say which".to_owned());
            return Taken::Refuse;
        };
        if from != self.have {
            let have = self.have;
            self.failed(format!(
                "was asked from byte {have} and answered from {from}"
            ));
            return Taken::Refuse;
        }
        let other_size = matches!((self.size, total), (Some(old), Some(new)) if old != new);
        if other_size || !self.is_same(head) {
            self.forget();
            return Taken::Drop;
        }
        self.pieced |= self.have > 0;
        let total = total.or_else(|| head.length.map(|length| from + length));
        self.know(head, total);
        Taken::Append
    }

    /// Nothing tells that this is another file than the one we have a part of.
    fn is_same(&self, head: &Head) -> bool {
        match (&self.validator, &head.validator) {
            (Some((source, old)), Some(new)) if *source == self.source => old == new,
            _ => true,
        }
    }

    fn know(&mut self, head: &Head, size: Option<u64>) {
        self.size = size.or(self.size);
        if let Some(validator) = &head.validator {
            self.validator = Some((self.source, validator.clone()));
        }
    }

    /// Nothing is here any more.
    fn forget(&mut self) {
        self.have = 0;
        self.size = None;
        self.validator = None;
        self.pieced = false;
    }

    /// Bytes came and were appended.
    pub fn came(&mut self, bytes: u64) {
        self.have += bytes;
        if bytes > 0 {
            self.failures = 0;
        }
    }

    /// The body is at its end as HTTP has it. Whether all of the image is here.
    pub fn ended(&mut self) -> bool {
        match self.size {
            None => self.size = Some(self.have),
            Some(size) if self.have < size => {
                let have = self.have;
                self.failed(format!("ended at byte {have} of {size}"));
            }
            Some(_) => {}
        }
        self.is_complete()
    }

    /// Asking failed, or the body broke off: a few words say how.
    pub fn failed(&mut self, why: String) {
        self.failures += 1;
        self.rested = false;
        self.last_why = why.chars().take(REASON_CHARS_MAX).collect();
        let count = self.wanted.sources.len().max(1);
        self.source = (self.source + 1) % count;
    }

    /// All bytes are here and this is what they hash to. If that is wrong, all that is
    /// here must be dropped; what is next may still be another try.
    pub fn judged(&mut self, found: Digest) -> Result<(), Failure> {
        if found == self.wanted.digest {
            return Ok(());
        }
        let mismatch = Failure::Mismatch {
            image: self.wanted.name.clone(),
            source_url: self.source().to_owned(),
            algorithm: found.algorithm(),
            expected: self.wanted.digest.to_string(),
            found: found.to_string(),
            bytes: self.have,
        };
        let pieced = self.pieced;
        self.forget();
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
