//! An image that somebody sends. It comes in the way a fill does, written and hashed
//! by its own thread, and readers follow it; what came before the sender went away is
//! checked and waits for the rest.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use trivet_chunks::{CHUNK_BYTES, List};
use trivet_images::{Failure, Wanted};
use trivet_model::image::ImageState;

use super::entry::{self, Entry, Kept};
use super::filling::TELL_BYTES;
use super::hashing::Hashing;
use super::unpacking::check_said;
use super::{Cache, ENTRIES_MAX, Left, Part, Slot, SlotState, checking};

/// How long the sender may pause.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Which bytes somebody offers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Offer {
    /// The first of them.
    pub(crate) from: u64,
    /// How many.
    pub(crate) bytes: u64,
    /// How large the whole image is.
    pub(crate) size: u64,
}

/// Why an upload did not go well; each a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    /// It does not fit what is here.
    Conflict(String),
    /// There is no room.
    NoRoom(String),
    /// The box's own disk failed.
    Disk(String),
    /// All came, and it is something else.
    Wrong(String),
    /// It broke off.
    Broken(String),
}

/// An upload under way.
struct Upload {
    cache: Cache,
    key: String,
    entry: Arc<Entry>,
    kept: Kept,
    have: u64,
    told: u64,
}

impl Cache {
    /// Takes what is offered; how many bytes of the image are here then.
    pub(crate) async fn upload<B>(
        &self,
        wanted: &Wanted,
        offer: Offer,
        body: &mut B,
    ) -> Result<u64, Refused>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let key = wanted.key().to_string();
        self.look_at(&key).await;
        if let Some(size) = self.adopt(&key, wanted) {
            // The sender is heard to its end: it would not read the answer before.
            while let Ok(Some(Ok(_))) = timeout(PAUSE_MAX, body.frame()).await {}
            return Ok(size);
        }
        Self::may_claim(&self.slots(), &key, wanted, offer)?;
        // Before what an earlier upload left is given up for it.
        let room = self.make_room(&key, offer.size);
        let (image, bytes) = (wanted.name.clone(), offer.size);
        let no_room = |why| Failure::NoRoom { image, bytes, why }.to_string();
        room.map_err(|why| Refused::NoRoom(format!("{}.", upper(&no_room(why)))))?;
        let entry = self.claim(&key, wanted, offer)?;
        let mut upload = Upload {
            cache: self.clone(),
            key,
            entry,
            kept: Kept {
                size: Some(offer.size),
                ..Kept::fresh(wanted)
            },
            have: offer.from,
            told: offer.from,
        };
        let went = upload.take(body, offer).await;
        upload.end(went, offer).await
    }

    /// What lies here since before we started is checked before it is gone on with.
    async fn look_at(&self, key: &str) {
        let entry = {
            let mut slots = self.slots();
            let Some(slot) = slots.get_mut(key) else {
                return;
            };
            self.begin(key, slot);
            let checks = slot.wanted.sources.is_empty() && matches!(slot.state, SlotState::Busy);
            checks.then(|| Arc::clone(&slot.entry))
        };
        if let Some(entry) = entry {
            entry.settled().await;
        }
    }

    /// A disk that was taken out of a packed image, and is this image, is from now on
    /// kept for its own sake. How large it is.
    fn adopt(&self, key: &str, wanted: &Wanted) -> Option<u64> {
        let size = {
            let mut slots = self.slots();
            let slot = slots.get_mut(key)?;
            let mut kept = entry::kept(&self.0.root, key)?;
            if !matches!(slot.state, SlotState::Whole) || kept.from.is_none() {
                return None;
            }
            kept.from = None;
            kept.wanted = wanted.clone();
            kept.write(&self.0.root).ok()?;
            slot.wanted = wanted.clone();
            kept.size?
        };
        self.tell(wanted, Some(size), size, ImageState::Whole);
        Some(size)
    }

    /// Whether an upload may have the image's place.
    fn may_claim(
        slots: &BTreeMap<String, Slot>,
        key: &str,
        wanted: &Wanted,
        offer: Offer,
    ) -> Result<(), Refused> {
        let name = &wanted.name;
        let conflict = |why: String| Err(Refused::Conflict(format!("Image {name} {why}")));
        let disk = |why: String| Refused::Disk(format!("Image {name} cannot be kept: {why}."));
        if !slots.contains_key(key) && slots.len() >= ENTRIES_MAX {
            let why = format!("the cache has {ENTRIES_MAX} images; remove some");
            return Err(disk(why));
        }
        let here = match slots.get(key).map(|slot| &slot.state) {
            None | Some(SlotState::Failed(_)) => Part::default(),
            Some(SlotState::Part(part, _)) => *part,
            Some(SlotState::Uploaded) => {
                return conflict("is being uploaded by somebody else; wait for that".to_owned());
            }
            Some(SlotState::Busy | SlotState::Unseen(_)) => {
                return conflict("is being fetched or checked; wait for that".to_owned());
            }
            Some(SlotState::Whole) => {
                return conflict("is whole already; there is nothing to upload".to_owned());
            }
        };
        let have = here.have;
        if offer.from > 0 && offer.from != have {
            return conflict(format!(
                "has {have} bytes here; go on from there, or begin at byte 0"
            ));
        }
        if let Some(size) = here
            .size
            .filter(|size| offer.from > 0 && *size != offer.size)
        {
            return conflict(format!(
                "was said to have {size} bytes when its upload began; begin it anew at byte 0"
            ));
        }
        Ok(())
    }

    /// The image's place, for us alone.
    fn claim(&self, key: &str, wanted: &Wanted, offer: Offer) -> Result<Arc<Entry>, Refused> {
        let name = &wanted.name;
        let disk = |why: String| Refused::Disk(format!("Image {name} cannot be kept: {why}."));
        let mut slots = self.slots();
        Self::may_claim(&slots, key, wanted, offer)?;
        let entry = if offer.from > 0 {
            Entry::at(&self.0.root, key, false)
        } else {
            Entry::fresh(&self.0.root, key)
        };
        let entry = Arc::new(entry.map_err(|error| disk(error.to_string()))?);
        let slot = Slot {
            wanted: wanted.clone(),
            entry: Arc::clone(&entry),
            state: SlotState::Uploaded,
            used_at_ms: self.0.ways.clock.now().tick.0,
        };
        slots.insert(key.to_owned(), slot);
        Ok(entry)
    }
}

impl Upload {
    /// Takes the body in; an end before it is all here is a failure like others.
    async fn take<B>(&mut self, body: &mut B, offer: Offer) -> Result<(), Failure>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let image = self.kept.wanted.name.clone();
        let room = self.cache.make_room(&self.key, offer.size);
        let bytes = offer.size;
        room.map_err(|why| Failure::NoRoom { image, bytes, why })?;
        let hashing = self.start()?;
        self.tell(ImageState::Filling);
        let until = offer.from + offer.bytes;
        while self.have < until {
            let piece = match timeout(PAUSE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                _ => break,
            };
            let room = usize::try_from(until - self.have).unwrap_or(usize::MAX);
            let piece = piece.slice(..piece.len().min(room));
            let length = piece.len() as u64;
            if length > 0 && hashing.push(piece).await.is_err() {
                return Err(self.disk(&hashing.why()));
            }
            self.have += length;
            if self.have - self.told >= TELL_BYTES {
                self.told = self.have;
                self.tell(ImageState::Filling);
            }
        }
        let image = self.kept.wanted.name.clone();
        if self.have < offer.size {
            hashing.pause().await.map_err(|error| self.disk(&error))?;
            let have = self.have;
            return Err(Failure::Part { image, have });
        }
        let found = hashing.finish().await.map_err(|error| self.disk(&error))?;
        let expected = self.kept.wanted.digest;
        if found != expected {
            return Err(Failure::WrongUpload {
                image,
                algorithm: found.algorithm(),
                expected: expected.to_string(),
                found: found.to_string(),
                bytes: self.have,
            });
        }
        check_said(&self.kept.wanted, &self.entry)?;
        self.keep()
    }

    /// The thread, and what a restart has to know.
    fn start(&self) -> Result<Hashing, Failure> {
        let failed = |error| self.disk(&error);
        let digest = self.kept.wanted.digest;
        let mut list = if self.have > 0 {
            checking::read_list(&self.cache, &self.key, &digest)
        } else {
            List::new(&digest)
        };
        list.keep(self.have / CHUNK_BYTES);
        if list.known() * CHUNK_BYTES != self.have {
            let error = std::io::Error::other("its chunk list is gone; begin the upload anew");
            return Err(failed(error));
        }
        let path = self.cache.path(&self.key, "chunks");
        std::fs::write(&path, list.bytes()).map_err(failed)?;
        let chunks = OpenOptions::new().append(true).open(path).map_err(failed)?;
        self.kept.write(&self.cache.0.root).map_err(failed)?;
        if let Some(size) = self.kept.size {
            self.entry.size_is(size);
        }
        self.entry.hashed_is(self.have);
        Hashing::start(Arc::clone(&self.entry), list, chunks).map_err(failed)
    }

    /// From now on it lies in the cache as a whole one.
    fn keep(&self) -> Result<(), Failure> {
        if !self.cache.is_current(&self.key, &self.entry) {
            let error = std::io::Error::other("it was removed meanwhile");
            return Err(self.disk(&error));
        }
        let path = |end| self.cache.path(&self.key, end);
        std::fs::rename(path("part"), path("whole"))
            .and_then(|()| std::fs::File::open(&self.cache.0.root)?.sync_all())
            .map_err(|error| self.disk(&error))
    }

    fn disk(&self, error: &std::io::Error) -> Failure {
        let wanted = &self.kept.wanted;
        self.cache.disk_failed(&self.key, wanted, error)
    }

    fn tell(&self, state: ImageState) {
        let size = self.kept.size;
        self.cache.tell(&self.kept.wanted, size, self.have, state);
    }

    /// Gives the place up; what is here is looked at before the next one goes on.
    async fn end(mut self, went: Result<(), Failure>, offer: Offer) -> Result<u64, Refused> {
        let Err(failure) = went else {
            if self.cache.settle(&self.key, &self.entry, Left::Whole) {
                self.tell(ImageState::Whole);
            }
            return Ok(self.have);
        };
        let why = failure.to_string();
        let sentence = format!("{}.", upper(&why));
        match failure {
            Failure::WrongUpload { .. } | Failure::Format { .. } => {
                self.have = 0;
                let left = Left::Failed {
                    why: why.clone(),
                    keeps: false,
                };
                if self.cache.settle(&self.key, &self.entry, left) {
                    self.tell(ImageState::Wrong(why));
                }
                Err(Refused::Wrong(sentence))
            }
            Failure::Part { .. } => {
                let all_came = self.have == offer.from + offer.bytes;
                self.check(&why).await;
                if all_came {
                    return Ok(self.cache.part(&self.key).have);
                }
                Err(Refused::Broken(sentence))
            }
            // Nothing has come, and nothing is worse than before.
            Failure::NoRoom { .. } if offer.from == 0 => {
                self.cache.forget(&self.key, &self.entry);
                Err(Refused::NoRoom(sentence))
            }
            Failure::NoRoom { .. } => {
                self.check(&why).await;
                Err(Refused::NoRoom(sentence))
            }
            _ => {
                if self.check(&why).await {
                    self.have = self.cache.part(&self.key).have;
                    self.tell(ImageState::Failed(why));
                }
                Err(Refused::Disk(sentence))
            }
        }
    }

    /// As after a restart: only what fits its list is kept. Where there are sources, the
    /// next reader goes on with those. Whether it was not removed meanwhile.
    async fn check(&self, why: &str) -> bool {
        if self.have < CHUNK_BYTES || !self.kept.wanted.sources.is_empty() {
            let left = Left::Failed {
                why: why.to_owned(),
                keeps: self.have >= CHUNK_BYTES,
            };
            let ours = self.cache.settle(&self.key, &self.entry, left);
            if ours {
                self.tell(ImageState::Failed(why.to_owned()));
            }
            return ours;
        }
        let fresh = {
            let mut slots = self.cache.slots();
            let slot = slots.get_mut(&self.key);
            let Some(slot) = slot.filter(|slot| Arc::ptr_eq(&slot.entry, &self.entry)) else {
                // Nobody finds it any more, so nothing of it may lie about.
                if !slots.contains_key(&self.key) {
                    self.cache.remove_files(&self.key);
                }
                return false;
            };
            let Ok(fresh) = Entry::at(&self.cache.0.root, &self.key, false) else {
                slot.state = SlotState::Failed(tokio::time::Instant::now());
                slot.entry.cut(why);
                return true;
            };
            let fresh = Arc::new(fresh);
            slot.entry.cut(why);
            slot.entry = Arc::clone(&fresh);
            let kept = Kept {
                wanted: slot.wanted.clone(),
                validator: None,
                size: self.kept.size,
                whole: self.kept.whole,
                from: None,
            };
            slot.state = SlotState::Unseen(Box::new(kept));
            self.cache.begin(&self.key, slot);
            fresh
        };
        fresh.settled().await;
        true
    }
}

impl Cache {
    /// Removes an image of which nothing is here.
    fn forget(&self, key: &str, entry: &Arc<Entry>) {
        let mut slots = self.slots();
        if slots
            .get(key)
            .is_some_and(|slot| Arc::ptr_eq(&slot.entry, entry))
        {
            slots.remove(key);
            self.remove_files(key);
        }
    }

    /// How much of an image waits for an upload to go on.
    fn part(&self, key: &str) -> Part {
        match self.slots().get(key).map(|slot| &slot.state) {
            Some(SlotState::Part(part, _)) => *part,
            _ => Part::default(),
        }
    }
}

fn upper(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
