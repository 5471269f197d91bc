//! A file that is wanted by its URL alone, such as a ramdisk without a digest in its node's
//! record: it is fetched and hashed, and is from then on an image of the cache, whose key is the
//! digest that it has.
//!
//! It comes in a file whose name is never served (`.fetch`). Its record has the source's
//! validator, with which the source is asked the next time whether it has another file. A source
//! without one sends all of it again; the rack asks for such a file less often
//! (`rack/src/boot_files.rs`). A copy that was fetched earlier is used while the source does not
//! answer.

use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ring::digest::{SHA256, digest};
use tokio::time::{sleep, timeout};
use trivet_chunks::List;
use trivet_images::{Ask, Format, Head, Key, SOURCES_MAX, Wanted, file_name};
use trivet_model::Digest;
use trivet_model::image::ImageState;
use trivet_rack::FetchedFile;

use super::entry::{self, Entry, Kept};
use super::filling::{PIECE_TIMEOUT, TELL_BYTES};
use super::hashing::Hashing;
use super::origin::{Answer, Body};
use super::{Asked, Cache, ENTRIES_MAX, Slot, SlotState};

/// The largest file that is fetched without a digest. Ours: installation discs have less.
const FILE_BYTES_MAX: u64 = 64 << 30;

/// How often a source is asked, with and without an earlier copy, and how long until the next
/// time.
const TRIES_MAX: u32 = 4;
const TRIES_WITH_COPY_MAX: u32 = 2;
const WAIT: Duration = Duration::from_millis(500);

/// How often somebody else is waited for who is at work on the same image.
const WAITS_MAX: u32 = 8;

/// How the names of files end that are on their way: the bytes and the chunk list.
const COMING: &str = "fetch";
const COMING_CHUNKS: &str = "fetch-chunks";

/// Why a file was not fetched: the end of a sentence that begins with its URL.
enum Trouble {
    /// The source may answer otherwise later.
    Away(String),
    /// Another try has the same result.
    Lasting(String),
    /// This box cannot keep it.
    Here(String),
}

/// All bytes of a file are on the disk.
struct DownloadedFile {
    entry: Arc<Entry>,
    digest: Digest,
    size: u64,
}

impl Cache {
    /// Fetches a file, unless it is here and its source has no other. There is one fetch of a
    /// URL at a time. An error is a sentence.
    pub(crate) async fn fetch_file(
        &self,
        url: &str,
        format: Format,
    ) -> Result<FetchedFile, String> {
        let copy = self.copy_of(url).await;
        let tries_max = match copy {
            Some(_) => TRIES_WITH_COPY_MAX,
            None => TRIES_MAX,
        };
        let mut tries = 1;
        let why = loop {
            match self.fetch_once(url, format, copy.as_ref()).await {
                Ok(file) => return Ok(file),
                Err(Trouble::Lasting(why)) => {
                    return Err(format!(
                        "{url} {why}; correct the URL in the node's record, or what is there"
                    ));
                }
                Err(Trouble::Here(why)) => {
                    return Err(format!("{url} {why}; make room in box.data"));
                }
                Err(Trouble::Away(why)) if tries >= tries_max => break why,
                Err(Trouble::Away(_)) => sleep(WAIT * tries).await,
            }
            tries += 1;
        };
        let Some(copy) = copy else {
            return Err(format!(
                "{url} {why}; correct the URL in the node's record, or the way from this box to \
                 its server"
            ));
        };
        let old = format!("{url} {why}; the copy that this box fetched earlier is used");
        Ok(FetchedFile {
            digest: copy.wanted.digest,
            old: Some(old),
            has_validator: copy.validator.is_some(),
        })
    }

    /// The newest whole file from this URL, if all of it is right.
    async fn copy_of(&self, url: &str) -> Option<Kept> {
        let has_source = |slot: &Slot| slot.wanted.sources.iter().any(|source| source == url);
        let keys: Vec<String> = {
            let slots = self.slots();
            let some = slots.iter().filter(|(_, slot)| has_source(slot));
            some.map(|(key, _)| key.clone()).collect()
        };
        let mut newest: Option<(SystemTime, Kept)> = None;
        for key in keys {
            let facts = std::fs::metadata(self.path(&key, "json"));
            let Ok(written) = facts.and_then(|facts| facts.modified()) else {
                continue;
            };
            let Some(kept) = entry::kept(&self.0.root, &key) else {
                continue;
            };
            let is_copy = kept.whole && !kept.wanted.format.is_packed();
            if is_copy && newest.as_ref().is_none_or(|(at, _)| *at <= written) {
                newest = Some((written, kept));
            }
        }
        let (_, kept) = newest?;
        let mut reader = self.plain(&kept.wanted, Asked::Order).ok()?;
        reader.settled().await.ok()?;
        Some(kept)
    }

    async fn fetch_once(
        &self,
        url: &str,
        format: Format,
        copy: Option<&Kept>,
    ) -> Result<FetchedFile, Trouble> {
        let ask = Ask {
            url: url.to_owned(),
            from: 0,
            to: None,
            if_range: None,
            if_changed: copy.and_then(|kept| kept.validator.clone()),
        };
        let answer = self.0.ways.origin.ask(&ask).await;
        let Answer { head, body } = answer.map_err(Trouble::Away)?;
        match (head.status, copy) {
            (304, Some(kept)) => {
                return Ok(FetchedFile {
                    digest: kept.wanted.digest,
                    old: None,
                    has_validator: true,
                });
            }
            (200, _) => {}
            (status @ (408 | 429 | 500..=599), _) => {
                return Err(Trouble::Away(format!("answered with status {status}")));
            }
            (status, _) => {
                return Err(Trouble::Lasting(format!("answered with status {status}")));
            }
        }
        let coming = coming_key(url);
        let went = self.take_in(&coming, &head, body).await;
        let went = match went {
            Ok(came) => self.keep_fetched(&coming, url, format, &head, &came).await,
            Err(trouble) => Err(trouble),
        };
        if went.is_err() {
            self.remove_coming(&coming);
        }
        went.map(|digest| FetchedFile {
            digest,
            old: None,
            has_validator: head.validator.is_some(),
        })
    }

    /// Writes and hashes what the source sends.
    async fn take_in(
        &self,
        coming: &str,
        head: &Head,
        mut body: Body,
    ) -> Result<DownloadedFile, Trouble> {
        let mut room = head.length.unwrap_or(0);
        self.room_for(coming, room)?;
        let entry = Entry::new_file(&self.path(coming, COMING)).map_err(|error| disk(&error))?;
        let entry = Arc::new(entry);
        let hashing = self.hash_coming(coming, &entry);
        let hashing = hashing.map_err(|error| disk(&error))?;
        let mut size = 0;
        loop {
            let piece = match timeout(PIECE_TIMEOUT, body.next()).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(None) => break,
                Ok(Some(Err(why))) => return Err(Trouble::Away(format!("broke off: {why}"))),
                Err(_) => return Err(Trouble::Away("stopped sending".to_owned())),
            };
            let length = piece.len() as u64;
            size += length;
            if size > room {
                room = size + 2 * TELL_BYTES;
                self.room_for(coming, room)?;
            }
            if length > 0 && hashing.push(piece).await.is_err() {
                return Err(disk(&hashing.why()));
            }
            self.slow_down(length).await;
        }
        if size == 0 {
            return Err(Trouble::Lasting("is empty".to_owned()));
        }
        if head.length.is_some_and(|length| length != size) {
            return Err(Trouble::Away(format!("broke off after {size} bytes")));
        }
        let digest = hashing.finish().await.map_err(|error| disk(&error))?;
        Ok(DownloadedFile {
            entry,
            digest,
            size,
        })
    }

    fn hash_coming(&self, coming: &str, entry: &Arc<Entry>) -> io::Result<Hashing> {
        // Of the digest only the algorithm counts here.
        let list = List::new(&Digest::Sha256([0; 32]));
        let path = self.path(coming, COMING_CHUNKS);
        std::fs::write(&path, list.bytes())?;
        let chunks = OpenOptions::new().append(true).open(path)?;
        Hashing::start(Arc::clone(entry), list, chunks)
    }

    fn room_for(&self, coming: &str, bytes: u64) -> Result<(), Trouble> {
        if bytes > FILE_BYTES_MAX {
            return Err(Trouble::Lasting(format!(
                "has more than {FILE_BYTES_MAX} bytes, the most for a file without a digest"
            )));
        }
        let room = self.make_room(coming, bytes);
        room.map_err(|why| Trouble::Here(format!("has no space in the cache: {why}")))
    }

    /// From now on the file is an image of the cache.
    async fn keep_fetched(
        &self,
        coming: &str,
        url: &str,
        format: Format,
        head: &Head,
        came: &DownloadedFile,
    ) -> Result<Digest, Trouble> {
        let name = Some(file_name(url)).filter(|name| !name.is_empty());
        let kept = Kept {
            wanted: Wanted {
                name: name.unwrap_or(url).to_owned(),
                digest: came.digest,
                sources: vec![url.to_owned()],
                format,
            },
            size: Some(came.size),
            validator: head.validator.clone(),
            whole: true,
            from: None,
        };
        self.wait_for_place(&kept.wanted.key().to_string()).await;
        let put = self.put_fetched(coming, &kept, came);
        put.map_err(|error| disk(&error))?;
        self.tell(&kept.wanted, kept.size, came.size, ImageState::Whole);
        Ok(came.digest)
    }

    /// Waits until nobody else is at work on the image with this key.
    async fn wait_for_place(&self, key: &str) {
        for _ in 0..WAITS_MAX {
            let entry = {
                let mut slots = self.slots();
                let Some(slot) = slots.get_mut(key) else {
                    return;
                };
                self.begin(key, slot);
                if !matches!(slot.state, SlotState::Busy | SlotState::Uploaded) {
                    return;
                }
                Arc::clone(&slot.entry)
            };
            entry.settled().await;
        }
    }

    /// Moves the file into its place. Its record comes last: what has none is removed at the
    /// next start.
    fn put_fetched(&self, coming: &str, kept: &Kept, came: &DownloadedFile) -> io::Result<()> {
        let key = kept.wanted.key().to_string();
        let mut slots = self.slots();
        let is_full = slots.len() >= ENTRIES_MAX;
        match slots.get_mut(&key) {
            Some(slot) if matches!(slot.state, SlotState::Whole) => {
                self.remove_coming(coming);
                return self.join_sources(slot, kept);
            }
            Some(slot) if matches!(slot.state, SlotState::Busy | SlotState::Uploaded) => {
                let why = "the same image is being fetched or uploaded";
                return Err(io::Error::other(why));
            }
            None if is_full => {
                let why = format!("the cache has {ENTRIES_MAX} images; remove some");
                return Err(io::Error::other(why));
            }
            _ => {}
        }
        if let Some(old) = slots.remove(&key) {
            old.entry.cut("it was fetched again");
        }
        self.remove_files(&key);
        std::fs::rename(self.path(coming, COMING_CHUNKS), self.path(&key, "chunks"))?;
        std::fs::rename(self.path(coming, COMING), self.path(&key, "whole"))?;
        kept.write(&self.0.root)?;
        came.entry.size_is(came.size);
        came.entry.hashed_is(came.size);
        came.entry.right();
        let slot = Slot {
            wanted: kept.wanted.clone(),
            entry: Arc::clone(&came.entry),
            state: SlotState::Whole,
            used_at_ms: self.0.ways.clock.now().tick.0,
        };
        slots.insert(key, slot);
        Ok(())
    }

    /// The same bytes are here already: they can be had from this source too. The record is
    /// written in any case, as the newest one of this source.
    fn join_sources(&self, slot: &mut Slot, fetched: &Kept) -> io::Result<()> {
        let key = fetched.wanted.key().to_string();
        let here = entry::kept(&self.0.root, &key);
        let mut here = here.ok_or_else(|| io::Error::other("its record is gone"))?;
        let sources = &mut here.wanted.sources;
        for url in &fetched.wanted.sources {
            if !sources.contains(url) && sources.len() < SOURCES_MAX {
                sources.push(url.clone());
            }
        }
        here.validator.clone_from(&fetched.validator);
        here.write(&self.0.root)?;
        slot.wanted = here.wanted;
        Ok(())
    }

    fn remove_coming(&self, coming: &str) {
        for end in [COMING, COMING_CHUNKS] {
            // What cannot be removed now is removed at the next start.
            let _ = std::fs::remove_file(self.path(coming, end));
        }
    }
}

/// What the files of a fetch are called: by their URL, as their digest is not known yet.
fn coming_key(url: &str) -> String {
    let mut name = [0; 32];
    name.copy_from_slice(digest(&SHA256, url.as_bytes()).as_ref());
    Key(Digest::Sha256(name)).to_string()
}

fn disk(error: &io::Error) -> Trouble {
    Trouble::Here(format!("cannot be kept in the cache: {error}"))
}
