//! Fetches files that are known by URL only, such as a ramdisk without a digest in its
//! node's record. The file is hashed while it is received, and becomes an image of the
//! cache under the digest that it has.
//!
//! It is received into a file with a suffix that is never served (`.fetch`). Its record
//! has the source's validator, which makes the next request conditional. A source
//! without validators sends the whole file again; the rack requests such a file less
//! often (`rack/src/boot_files.rs`). While the source is unreachable, the copy that was
//! fetched earlier is used.

use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ring::digest::{SHA256, digest};
use tokio::time::{sleep, timeout};
use trivet_chunks::ChunkList;
use trivet_images::{
    ImageFormat, ImageKey, ImageMetadata, ImageSourceHead, ImageSourceRequest, ImageSpec,
    REPORT_BYTES, SOURCES_MAX, file_name,
};
use trivet_model::Digest;
use trivet_model::image::ImageState;
use trivet_rack::FetchedFile;

use super::entry::{self, CacheEntry};
use super::filling::PIECE_TIMEOUT;
use super::hashing::ImageHasher;
use super::origin::{OriginBody, OriginResponse};
use super::{CacheSlot, CacheSlotState, ENTRIES_MAX, FillTrigger, ImageCache};

/// The largest file that is fetched without a digest. Ours: installation discs are
/// smaller.
const FILE_BYTES_MAX: u64 = 64 << 30;

/// How often a source is requested, with and without an earlier copy, and the delay
/// between two attempts.
const TRIES_MAX: u32 = 4;
const TRIES_WITH_COPY_MAX: u32 = 2;
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// How often to wait for another task that works on the same image.
const WAITS_MAX: u32 = 8;

/// Suffixes of files that are being received: the bytes and the chunk list.
const FETCH_SUFFIX: &str = "fetch";
const FETCH_CHUNKS_SUFFIX: &str = "fetch-chunks";

/// Why a file was not fetched: the end of a sentence that begins with its URL.
enum FileFetchError {
    /// A retry may succeed.
    Unreachable(String),
    /// A retry would have the same result.
    Permanent(String),
    /// This box cannot store it.
    Local(String),
}

/// A file whose bytes are all on the disk.
struct DownloadedFile {
    entry: Arc<CacheEntry>,
    digest: Digest,
    size: u64,
}

impl ImageCache {
    /// Fetches a file, unless the cache has the source's current version. Each URL is
    /// fetched once at a time. An error is a sentence.
    pub(crate) async fn fetch_file(
        &self,
        url: &str,
        format: ImageFormat,
    ) -> Result<FetchedFile, String> {
        let copy = self.cached_copy(url).await;
        let tries_max = match copy {
            Some(_) => TRIES_WITH_COPY_MAX,
            None => TRIES_MAX,
        };
        let mut tries = 1;
        let why = loop {
            match self.fetch_once(url, format, copy.as_ref()).await {
                Ok(file) => return Ok(file),
                Err(FileFetchError::Permanent(why)) => {
                    return Err(format!(
                        "{url} {why}; correct the URL in the node's record, or the file there"
                    ));
                }
                Err(FileFetchError::Local(why)) => {
                    return Err(format!("{url} {why}; free space in box.data"));
                }
                Err(FileFetchError::Unreachable(why)) if tries >= tries_max => break why,
                Err(FileFetchError::Unreachable(_)) => sleep(RETRY_WAIT * tries).await,
            }
            tries += 1;
        };
        let Some(copy) = copy else {
            return Err(format!(
                "{url} {why}; correct the URL in the node's record, or the route from this box to \
                 its server"
            ));
        };
        let old = format!("{url} {why}; the copy that this box fetched earlier is used");
        Ok(FetchedFile {
            digest: copy.spec.digest,
            old: Some(old),
            has_validator: copy.validator.is_some(),
        })
    }

    /// The newest complete file from this URL, if it is verified.
    async fn cached_copy(&self, url: &str) -> Option<ImageMetadata> {
        let has_source = |slot: &CacheSlot| slot.spec.sources.iter().any(|source| source == url);
        let keys: Vec<String> = {
            let slots = self.slots();
            let some = slots.iter().filter(|(_, slot)| has_source(slot));
            some.map(|(key, _)| key.clone()).collect()
        };
        let mut newest: Option<(SystemTime, ImageMetadata)> = None;
        for key in keys {
            let facts = std::fs::metadata(self.path(&key, "json"));
            let Ok(written) = facts.and_then(|facts| facts.modified()) else {
                continue;
            };
            let Some(kept) = entry::read_metadata(&self.0.root, &key) else {
                continue;
            };
            let is_copy = kept.whole && !kept.spec.format.is_packed();
            if is_copy && newest.as_ref().is_none_or(|(at, _)| *at <= written) {
                newest = Some((written, kept));
            }
        }
        let (_, kept) = newest?;
        let mut reader = self.plain_reader(&kept.spec, FillTrigger::Order).ok()?;
        reader.finished().await.ok()?;
        Some(kept)
    }

    async fn fetch_once(
        &self,
        url: &str,
        format: ImageFormat,
        copy: Option<&ImageMetadata>,
    ) -> Result<FetchedFile, FileFetchError> {
        let ask = ImageSourceRequest {
            url: url.to_owned(),
            from: 0,
            to: None,
            if_range: None,
            if_changed: copy.and_then(|kept| kept.validator.clone()),
        };
        let answer = self.0.options.origin.request(&ask).await;
        let OriginResponse { head, body } = answer.map_err(FileFetchError::Unreachable)?;
        match (head.status, copy) {
            (304, Some(kept)) => {
                return Ok(FetchedFile {
                    digest: kept.spec.digest,
                    old: None,
                    has_validator: true,
                });
            }
            (200, _) => {}
            (status @ (408 | 429 | 500..=599), _) => {
                return Err(FileFetchError::Unreachable(format!(
                    "answered with status {status}"
                )));
            }
            (status, _) => {
                return Err(FileFetchError::Permanent(format!(
                    "answered with status {status}"
                )));
            }
        }
        let coming = fetch_key(url);
        let went = self.receive_file(&coming, &head, body).await;
        let went = match went {
            Ok(came) => self.store_fetched(&coming, url, format, &head, &came).await,
            Err(trouble) => Err(trouble),
        };
        if went.is_err() {
            self.remove_partial(&coming);
        }
        went.map(|digest| FetchedFile {
            digest,
            old: None,
            has_validator: head.validator.is_some(),
        })
    }

    /// Writes and hashes the bytes that the source sends.
    async fn receive_file(
        &self,
        coming: &str,
        head: &ImageSourceHead,
        mut body: OriginBody,
    ) -> Result<DownloadedFile, FileFetchError> {
        let mut room = head.length.unwrap_or(0);
        self.reserve_for_fetch(coming, room)?;
        let entry = CacheEntry::new_file(&self.path(coming, FETCH_SUFFIX))
            .map_err(|error| disk_error(&error))?;
        let entry = Arc::new(entry);
        let hashing = self.start_hashing(coming, &entry);
        let hashing = hashing.map_err(|error| disk_error(&error))?;
        let mut size = 0;
        loop {
            let piece = match timeout(PIECE_TIMEOUT, body.next()).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(None) => break,
                Ok(Some(Err(why))) => {
                    return Err(FileFetchError::Unreachable(format!("disconnected: {why}")));
                }
                Err(_) => return Err(FileFetchError::Unreachable("stopped sending".to_owned())),
            };
            let length = piece.len() as u64;
            size += length;
            if size > room {
                room = size + 2 * REPORT_BYTES;
                self.reserve_for_fetch(coming, room)?;
            }
            if length > 0 && hashing.push(piece).await.is_err() {
                return Err(disk_error(&hashing.failure()));
            }
            self.throttle(length).await;
        }
        if size == 0 {
            return Err(FileFetchError::Permanent("is empty".to_owned()));
        }
        if head.length.is_some_and(|length| length != size) {
            return Err(FileFetchError::Unreachable(format!(
                "disconnected after {size} bytes"
            )));
        }
        let digest = hashing.finish().await.map_err(|error| disk_error(&error))?;
        Ok(DownloadedFile {
            entry,
            digest,
            size,
        })
    }

    fn start_hashing(&self, coming: &str, entry: &Arc<CacheEntry>) -> io::Result<ImageHasher> {
        // Only the algorithm of this digest is used here.
        let list = ChunkList::new(&Digest::Sha256([0; 32]));
        let path = self.path(coming, FETCH_CHUNKS_SUFFIX);
        std::fs::write(&path, list.bytes())?;
        let chunks = OpenOptions::new().append(true).open(path)?;
        ImageHasher::start(Arc::clone(entry), list, chunks)
    }

    fn reserve_for_fetch(&self, coming: &str, bytes: u64) -> Result<(), FileFetchError> {
        if bytes > FILE_BYTES_MAX {
            return Err(FileFetchError::Permanent(format!(
                "has more than {FILE_BYTES_MAX} bytes, the most for a file without a digest"
            )));
        }
        let room = self.reserve_space(coming, bytes);
        room.map_err(|why| FileFetchError::Local(format!("has no space in the cache: {why}")))
    }

    /// Makes the file an image of the cache.
    async fn store_fetched(
        &self,
        coming: &str,
        url: &str,
        format: ImageFormat,
        head: &ImageSourceHead,
        came: &DownloadedFile,
    ) -> Result<Digest, FileFetchError> {
        let name = Some(file_name(url)).filter(|name| !name.is_empty());
        let kept = ImageMetadata {
            spec: ImageSpec {
                name: name.unwrap_or(url).to_owned(),
                digest: came.digest,
                sources: vec![url.to_owned()],
                format,
            },
            size: Some(came.size),
            validator: head.validator.clone(),
            whole: true,
            unpacked_from: None,
        };
        self.wait_until_idle(&kept.spec.key().to_string()).await;
        let put = self.move_fetched(coming, &kept, came);
        put.map_err(|error| disk_error(&error))?;
        self.report(&kept.spec, kept.size, came.size, ImageState::Complete);
        Ok(came.digest)
    }

    /// Waits until no other task works on the image with this key.
    async fn wait_until_idle(&self, key: &str) {
        for _ in 0..WAITS_MAX {
            let entry = {
                let mut slots = self.slots();
                let Some(slot) = slots.get_mut(key) else {
                    return;
                };
                self.start_task(key, slot);
                if !matches!(slot.state, CacheSlotState::Busy | CacheSlotState::Uploading) {
                    return;
                }
                Arc::clone(&slot.entry)
            };
            entry.finished().await;
        }
    }

    /// Moves the file to its final name. Its record is written last: a file without a
    /// record is removed at the next start.
    fn move_fetched(
        &self,
        coming: &str,
        kept: &ImageMetadata,
        came: &DownloadedFile,
    ) -> io::Result<()> {
        let key = kept.spec.key().to_string();
        let mut slots = self.slots();
        let is_full = slots.len() >= ENTRIES_MAX;
        match slots.get_mut(&key) {
            Some(slot) if matches!(slot.state, CacheSlotState::Whole) => {
                self.remove_partial(coming);
                return self.add_source(slot, kept);
            }
            Some(slot)
                if matches!(slot.state, CacheSlotState::Busy | CacheSlotState::Uploading) =>
            {
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
            old.entry.fail("it was fetched again");
        }
        self.remove_files(&key);
        std::fs::rename(
            self.path(coming, FETCH_CHUNKS_SUFFIX),
            self.path(&key, "chunks"),
        )?;
        std::fs::rename(self.path(coming, FETCH_SUFFIX), self.path(&key, "whole"))?;
        entry::write_metadata(kept, &self.0.root)?;
        came.entry.set_size(came.size);
        came.entry.set_hashed(came.size);
        came.entry.mark_verified();
        let slot = CacheSlot {
            spec: kept.spec.clone(),
            entry: Arc::clone(&came.entry),
            state: CacheSlotState::Whole,
            used_at_ms: self.0.options.clock.now().tick.0,
        };
        slots.insert(key, slot);
        Ok(())
    }

    /// The cache already has the same bytes: adds this source to them. The record is
    /// written in any case, so that it is the newest one of this source.
    fn add_source(&self, slot: &mut CacheSlot, fetched: &ImageMetadata) -> io::Result<()> {
        let key = fetched.spec.key().to_string();
        let here = entry::read_metadata(&self.0.root, &key);
        let mut here = here.ok_or_else(|| io::Error::other("its record is gone"))?;
        let sources = &mut here.spec.sources;
        for url in &fetched.spec.sources {
            if !sources.contains(url) && sources.len() < SOURCES_MAX {
                sources.push(url.clone());
            }
        }
        here.validator.clone_from(&fetched.validator);
        entry::write_metadata(&here, &self.0.root)?;
        slot.spec = here.spec;
        Ok(())
    }

    fn remove_partial(&self, coming: &str) {
        for end in [FETCH_SUFFIX, FETCH_CHUNKS_SUFFIX] {
            // A file that cannot be removed now is removed at the next start.
            let _ = std::fs::remove_file(self.path(coming, end));
        }
    }
}

/// The base name of the files of a fetch: from the URL, as the digest is not known yet.
fn fetch_key(url: &str) -> String {
    let mut name = [0; 32];
    name.copy_from_slice(digest(&SHA256, url.as_bytes()).as_ref());
    ImageKey(Digest::Sha256(name)).to_string()
}

fn disk_error(error: &io::Error) -> FileFetchError {
    FileFetchError::Local(format!("cannot be stored in the cache: {error}"))
}
