//! The task that brings one image to its end.

use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use trivet_chunks::List;
use trivet_images::{Failure, Fill, Next, Taken, Wanted};
use trivet_model::image::ImageState;

use super::checking::{self, Checked, Unmended};
use super::entry::{Entry, Kept};
use super::hashing::Hashing;
use super::origin::{Answer, Body};
use super::unpacking::check_said;
use super::{Cache, Left, Part};

/// How long a source may pause within a file.
pub(super) const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// Progress is told after so many bytes.
pub(super) const TELL_BYTES: u64 = 8 * 1024 * 1024;

/// What readers hear who have bytes of a file that the source no longer has.
const ANOTHER: &str = "the source has another file now; it is fetched from its beginning";

pub(super) struct Task {
    pub(super) cache: Cache,
    pub(super) key: String,
    pub(super) entry: Arc<Entry>,
    told: u64,
}

impl Task {
    pub(super) fn new(cache: Cache, key: String, entry: Arc<Entry>) -> Self {
        Self {
            cache,
            key,
            entry,
            told: 0,
        }
    }

    pub(super) async fn run(mut self, kept: Kept) {
        if kept.from.is_some() {
            return self.run_disk(kept).await;
        }
        let wanted = kept.wanted.clone();
        let size = kept.size;
        let went = self.bring(kept).await;
        let went = went.and_then(|()| check_said(&wanted, &self.entry));
        let have = self.entry.hashed();
        let (size, state) = match &went {
            // Who wants the disk in it hears of that.
            Ok(()) if self.cache.is_making(&self.key) => (Some(have), ImageState::Unpacking),
            Ok(()) => (Some(have), ImageState::Whole),
            Err(failure) => (size, failure.image_state()),
        };
        let left = left(went, size);
        if state == ImageState::Unpacking {
            // Before the disk can be there, which is told by whoever takes it out.
            self.cache.tell(&wanted, size, have, state);
            self.cache.settle(&self.key, &self.entry, left);
            return;
        }
        // Readers that wake up find the state that is sent below.
        let news = self.cache.record(&wanted, size, have, state);
        if self.cache.settle(&self.key, &self.entry, left) {
            (self.cache.0.news)(news);
        } else {
            // It was removed or replaced meanwhile.
            self.cache.told().remove(&self.key);
        }
    }

    async fn bring(&mut self, kept: Kept) -> Result<(), Failure> {
        let wanted = kept.wanted.clone();
        let checked = checking::look(&self.cache, &self.key, &self.entry, &kept).await;
        let checked = checked.map_err(|error| self.disk(&wanted, &error))?;
        let (list, bad) = match checked {
            Checked::Right => return Ok(()),
            Checked::Rotten { list, bad } => (list, bad),
            Checked::Part { list } => (list, Vec::new()),
        };
        if wanted.sources.is_empty() {
            return self.wait_for_upload(&kept, list, &bad);
        }
        if !bad.is_empty() {
            let first = bad[0];
            self.cache.tell(
                &wanted,
                kept.size,
                first,
                ImageState::Rotten(bad.len() as u64),
            );
            match checking::mend(&self.cache, &self.entry, &kept, &list, &bad).await {
                Ok(()) => return Ok(()),
                // What is right of it stays, and is not fetched again later.
                Err(Unmended::Away(why)) => return Err(away(&kept, bad.len(), why)),
                Err(Unmended::NotByParts) => {}
            }
        }
        let known = bad.first().copied().unwrap_or(list.known());
        let mut list = list;
        list.keep(known);
        self.fill(kept, list).await
    }

    /// Nobody can be asked for what is missing: what is right is kept for an upload
    /// to go on with.
    fn wait_for_upload(&self, kept: &Kept, mut list: List, bad: &[u64]) -> Result<(), Failure> {
        let image = kept.wanted.name.clone();
        list.keep(bad.first().copied().unwrap_or(list.known()));
        let have = list.known() * trivet_chunks::CHUNK_BYTES;
        if kept.whole {
            self.unwhole(&kept.wanted)?;
        }
        self.entry.hashed_is(have);
        std::fs::write(self.cache.path(&self.key, "chunks"), list.bytes())
            .map_err(|error| self.disk(&kept.wanted, &error))?;
        let chunks = bad.len() as u64;
        Err(match (chunks, have) {
            (0, 0) => Failure::NoSource { image },
            (0, _) => Failure::Part { image, have },
            _ => Failure::Rotten {
                image,
                chunks,
                have,
            },
        })
    }

    /// Fetches what follows after the chunks in the list.
    async fn fill(&mut self, mut kept: Kept, list: trivet_chunks::List) -> Result<(), Failure> {
        let wanted = kept.wanted.clone();
        let have = list.known() * trivet_chunks::CHUNK_BYTES;
        if kept.whole {
            self.unwhole(&wanted)?;
            kept.whole = false;
        }
        let mut fill = Fill::new(wanted.clone(), have, kept.size, kept.validator.take());
        let mut hashing = self.hash(&wanted, list)?;
        self.entry.hashed_is(have);
        if let Some(size) = fill.size() {
            self.entry.size_is(size);
        }
        self.told = have;
        self.cache
            .tell(&wanted, fill.size(), have, ImageState::Filling);
        loop {
            if fill.is_complete() {
                let found = hashing
                    .finish()
                    .await
                    .map_err(|error| self.disk(&wanted, &error))?;
                match fill.judged(found) {
                    Ok(()) => return self.keep(&wanted),
                    Err(wrong) => hashing = self.anew(&wanted, &wrong.to_string())?,
                }
                continue;
            }
            let ask = match fill.turn() {
                Next::Ask(ask) => ask,
                Next::Wait { ms } => {
                    sleep(Duration::from_millis(ms)).await;
                    continue;
                }
                Next::GiveUp(failure) => return Err(failure),
            };
            self.cache.wait_for_window(&self.key, &self.entry).await;
            let answer = match self.cache.0.ways.origin.ask(&ask).await {
                Ok(answer) => answer,
                Err(why) => {
                    fill.failed(why);
                    continue;
                }
            };
            let Answer { head, body } = answer;
            let skip = match fill.answered(&head) {
                Taken::Append => 0,
                Taken::Skip(bytes) => bytes,
                Taken::Anew => {
                    hashing = self.anew(&wanted, ANOTHER)?;
                    0
                }
                Taken::Drop => {
                    hashing = self.anew(&wanted, ANOTHER)?;
                    continue;
                }
                Taken::Refuse => continue,
            };
            self.know(&mut kept, &fill, &wanted)?;
            self.pull(&mut fill, &hashing, body, skip).await?;
        }
    }

    fn hash(&self, wanted: &Wanted, list: trivet_chunks::List) -> Result<Hashing, Failure> {
        let failed = |error| self.disk(wanted, &error);
        let path = self.cache.path(&self.key, "chunks");
        // The file has what the list has, whatever stood there before.
        std::fs::write(&path, list.bytes()).map_err(failed)?;
        let chunks = OpenOptions::new().append(true).open(path).map_err(failed)?;
        Hashing::start(Arc::clone(&self.entry), list, chunks).map_err(failed)
    }

    /// What has come is dropped, and who reads it is cut off.
    fn anew(&mut self, wanted: &Wanted, why: &str) -> Result<Hashing, Failure> {
        let image = wanted.name.clone();
        let fresh = self.cache.replace(&self.key, &self.entry, why);
        self.entry = fresh.map_err(|why| Failure::Disk { image, why })?;
        self.told = 0;
        self.hash(wanted, trivet_chunks::List::new(&wanted.digest))
    }

    /// Size and validator are kept for the time after a restart.
    fn know(&self, kept: &mut Kept, fill: &Fill, wanted: &Wanted) -> Result<(), Failure> {
        if let Some(bytes) = fill.size() {
            let room = self.cache.make_room(&self.key, bytes);
            let image = wanted.name.clone();
            room.map_err(|why| Failure::NoRoom { image, bytes, why })?;
            self.entry.size_is(bytes);
        }
        let validator = fill.validator().map(str::to_owned);
        if kept.size != fill.size() || kept.validator != validator {
            kept.size = fill.size();
            kept.validator = validator;
            kept.write(&self.cache.0.root)
                .map_err(|error| self.disk(wanted, &error))?;
        }
        Ok(())
    }

    async fn pull(
        &mut self,
        fill: &mut Fill,
        hashing: &Hashing,
        mut body: Body,
        mut skip: u64,
    ) -> Result<(), Failure> {
        loop {
            // The uplink is not for what nobody wants any more.
            if !self.entry.is_open() {
                let image = fill.wanted().name.clone();
                return Err(Failure::Removed { image });
            }
            let mut piece = match timeout(PIECE_TIMEOUT, body.next()).await {
                Ok(Some(Ok(piece))) => piece,
                other => {
                    match other {
                        Err(_) => fill.failed("stopped sending".to_owned()),
                        Ok(Some(Err(why))) => fill.failed(format!("broke off: {why}")),
                        Ok(_) => {
                            fill.ended();
                        }
                    }
                    return Ok(());
                }
            };
            let over = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            let _ = piece.split_to(over);
            skip -= over as u64;
            let length = piece.len() as u64;
            if fill.size().is_some_and(|size| fill.have() + length > size) {
                fill.failed("sends more than it said".to_owned());
                return Ok(());
            }
            if length > 0 && hashing.push(piece).await.is_err() {
                return Err(self.disk(fill.wanted(), &hashing.why()));
            }
            fill.came(length);
            self.cache.slow_down(length).await;
            if fill.have() - self.told >= TELL_BYTES {
                self.told = fill.have();
                self.tell(fill);
                self.room_for_more(fill)?;
            }
        }
    }

    /// A source that does not say how long its file is must not fill the disk.
    fn room_for_more(&self, fill: &Fill) -> Result<(), Failure> {
        if fill.size().is_some() {
            return Ok(());
        }
        let bytes = fill.have() + 2 * TELL_BYTES;
        let image = fill.wanted().name.clone();
        let room = self.cache.make_room(&self.key, bytes);
        room.map_err(|why| Failure::NoRoom { image, bytes, why })
    }

    pub(super) fn disk(&self, wanted: &Wanted, error: &std::io::Error) -> Failure {
        self.cache.disk_failed(&self.key, wanted, error)
    }

    fn tell(&self, fill: &Fill) {
        let wanted = fill.wanted();
        self.cache
            .tell(wanted, fill.size(), fill.have(), ImageState::Filling);
    }

    /// The image is right: from now on it lies in the cache as a whole one.
    fn keep(&self, wanted: &Wanted) -> Result<(), Failure> {
        let (part, whole) = (
            self.cache.path(&self.key, "part"),
            self.cache.path(&self.key, "whole"),
        );
        if !self.cache.is_current(&self.key, &self.entry) {
            let why = "it was removed meanwhile".to_owned();
            let image = wanted.name.clone();
            return Err(Failure::Disk { image, why });
        }
        let moved = std::fs::rename(part, whole)
            .and_then(|()| std::fs::File::open(&self.cache.0.root)?.sync_all());
        moved.map_err(|error| self.disk(wanted, &error))
    }

    /// A whole image is no longer one.
    fn unwhole(&self, wanted: &Wanted) -> Result<(), Failure> {
        let (part, whole) = (
            self.cache.path(&self.key, "part"),
            self.cache.path(&self.key, "whole"),
        );
        std::fs::rename(whole, part).map_err(|error| self.disk(wanted, &error))
    }
}

/// Bad chunks of an image that was whole are not to be had.
fn away(kept: &Kept, bad: usize, why: String) -> Failure {
    let source_url = kept.wanted.sources.last().cloned().unwrap_or_default();
    let lost = bad as u64 * trivet_chunks::CHUNK_BYTES;
    Failure::Away {
        image: kept.wanted.name.clone(),
        source_url,
        why,
        have: kept.size.unwrap_or(0).saturating_sub(lost),
    }
}

/// What is left of an image after this.
pub(super) fn left(went: Result<(), Failure>, size: Option<u64>) -> Left {
    let Err(failure) = went else {
        return Left::Whole;
    };
    let why = failure.to_string();
    match failure {
        Failure::Part { have, .. } | Failure::Rotten { have, .. } => {
            Left::Part(Part { have, size }, why)
        }
        Failure::Away { .. } | Failure::Disk { .. } | Failure::Format { .. } => {
            Left::Failed { why, keeps: true }
        }
        _ => Left::Failed { why, keeps: false },
    }
}
