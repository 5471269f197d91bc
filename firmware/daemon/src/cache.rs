//! The image cache: images by their digest, filled from their sources, checked, and
//! read while that goes on.
//!
//! What is right and whom to ask says `trivet-images`; here are the files, the
//! connections and the threads. In the cache's directory an image has up to four
//! files, named by its key: `.json` (what it is and where it comes from), `.part`
//! (what has come so far) or `.whole` (all of it), and `.chunks` (its chunk list, see
//! `trivet-chunks`). None of them is believed after a restart: every byte is hashed
//! again before it leaves, and readers follow that as they follow a fill. A packed image
//! has a `.disk` beside it, which names the disk that was in it (see `unpacking`).

mod checking;
mod checksum_files;
mod derived_image;
mod entry;
mod eviction;
mod fetching;
mod filling;
mod hashing;
mod origin;
mod repair;
mod reporting;
mod unpack_worker;
mod unpacking;
mod uploading;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use trivet_images::rate_limit::{ImageFillWindow, ImageRateLimiter};
use trivet_images::{ImageKey, ImageSpec};
use trivet_model::image::ImageStatus;

use crate::clock::DaemonClock;
use checking::ScrubPace;
use derived_image::DerivedImage;
pub(crate) use entry::ImageReader;
use entry::{CacheEntry, ImageMetadata};
pub(crate) use origin::Origin;
use unpacking::UnpackJob;
pub(crate) use uploading::{ImageUploadError, ImageUploadRange};

/// How long a fill that failed rests, unless told otherwise.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(10);

/// How often to look whether images may come now.
const WINDOW_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The most images that are in the cache or on their way into it.
const ENTRIES_MAX: usize = 4096;

/// Hears what becomes of images.
pub(crate) type NewsSink = Box<dyn Fn(ImageStatus) + Send + Sync>;

/// The cache; clones are the same one.
#[derive(Clone)]
pub(crate) struct ImageCache(Arc<ImageCacheInner>);

struct ImageCacheInner {
    root: PathBuf,
    slots: Mutex<BTreeMap<String, CacheSlot>>,
    options: ImageCacheOptions,
    rate_limiter: Option<Mutex<ImageRateLimiter>>,
    /// Keys of what stays whatever comes.
    pinned: Mutex<BTreeSet<String>>,
    news: NewsSink,
    /// What was last told of each image that is here.
    last_reported: Mutex<BTreeMap<String, ImageStatus>>,
    /// Disks on their way out of packed images, by the keys of those. Where more than one
    /// is locked, this comes first, then `slots`, then `links`.
    unpack_jobs: Mutex<BTreeMap<String, UnpackJob>>,
    /// Disks that were in packed images, by the keys of those.
    derived_images: Mutex<BTreeMap<String, DerivedImage>>,
    /// Images whose disk was being taken out when we were stopped.
    interrupted: Vec<String>,
}

/// How images are fetched, by the settings.
#[derive(Clone)]
pub(crate) struct ImageCacheOptions {
    pub(crate) origin: Origin,
    /// How fast all fills together may be.
    pub(crate) bytes_per_s: Option<u64>,
    /// When images come that nobody reads.
    pub(crate) window: Option<ImageFillWindow>,
    /// How often all that is whole is read through.
    pub(crate) scrub: Option<Duration>,
    /// How much the cache may hold, and what stays free for the store.
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) reserve_bytes: u64,
    /// How long a fill that failed is not begun anew: its readers hear why meanwhile.
    pub(crate) retry_delay: Duration,
    pub(crate) clock: DaemonClock,
}

impl ImageCacheOptions {
    /// Without TLS, limits or hours.
    pub(crate) fn plain(clock: DaemonClock) -> Self {
        Self {
            origin: Origin::default(),
            bytes_per_s: None,
            window: None,
            scrub: None,
            quota_bytes: None,
            reserve_bytes: 0,
            retry_delay: RETRY_DELAY,
            clock,
        }
    }
}

/// One image.
struct CacheSlot {
    spec: ImageSpec,
    entry: Arc<CacheEntry>,
    state: CacheSlotState,
    /// When somebody last asked for it.
    used_at_ms: u64,
}

/// Who wants an image. What was given up rests before a reader makes it be tried
/// again; who gives an order may have mended what was the matter.
#[derive(Clone, Copy)]
enum FillTrigger {
    Read,
    Order,
}

enum CacheSlotState {
    /// On disk since before we started; nobody has looked at it yet.
    Unverified(Box<ImageMetadata>),
    /// A task fills or checks it.
    Busy,
    /// Somebody uploads it.
    Uploading,
    /// Its first bytes are here and were checked; an upload goes on with them. What
    /// its readers hear.
    Partial(PartialImage, String),
    /// All of it is here and right.
    Whole,
    /// It was given up, and when it may be tried again.
    Failed(Instant),
}

/// How much of an image is here, and how large it is if that is known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct PartialImage {
    have: u64,
    size: Option<u64>,
}

/// What a task leaves behind.
enum FillOutcome {
    /// All of the image.
    Whole,
    /// Bytes that an upload goes on with, and why they are not all.
    Partial(PartialImage, String),
    /// Nothing, or what the next fill goes on with.
    Failed { why: String, keeps_files: bool },
}

impl ImageCache {
    /// The cache in this directory, with what is in it.
    pub(crate) fn open(
        root: &Path,
        ways: ImageCacheOptions,
        news: NewsSink,
    ) -> std::io::Result<Self> {
        crate::private::own_directory(root)?;
        let mut slots = BTreeMap::new();
        let found = entry::scan(root)?;
        for kept in found.images {
            let key = kept.spec.key().to_string();
            let entry = Arc::new(CacheEntry::open(root, &key, kept.whole)?);
            let slot = CacheSlot {
                spec: kept.spec.clone(),
                entry,
                state: CacheSlotState::Unverified(Box::new(kept)),
                used_at_ms: 0,
            };
            if slots.len() < ENTRIES_MAX {
                slots.insert(key, slot);
            }
        }
        Ok(Self(Arc::new(ImageCacheInner {
            root: root.to_owned(),
            slots: Mutex::new(slots),
            rate_limiter: ways
                .bytes_per_s
                .map(|rate| Mutex::new(ImageRateLimiter::new(rate, ways.clock.now().tick.0))),
            options: ways,
            pinned: Mutex::default(),
            news,
            last_reported: Mutex::default(),
            unpack_jobs: Mutex::default(),
            derived_images: Mutex::new(
                found
                    .derived_images
                    .into_iter()
                    .take(ENTRIES_MAX)
                    .map(|link| (link.key(), link))
                    .collect(),
            ),
            interrupted: found.interrupted,
        })))
    }

    /// Looks after all that lies in the cache since before we started: what is whole
    /// is checked and what is not is gone on with, one after the other.
    pub(crate) async fn resume_all(&self) {
        for key in &self.0.interrupted {
            let wanted = self.slots().get(key).map(|slot| slot.spec.clone());
            if let Some(wanted) = wanted.filter(|wanted| wanted.format.is_packed()) {
                self.unpack_again(&wanted);
            }
        }
        let keys: Vec<String> = self.slots().keys().cloned().collect();
        for key in keys {
            let entry = {
                let mut slots = self.slots();
                let Some(slot) = slots.get_mut(&key) else {
                    continue;
                };
                self.start_task(&key, slot);
                Arc::clone(&slot.entry)
            };
            entry.finished().await;
        }
    }

    /// Reads all that is whole through, for ever: bytes that have changed on the disk
    /// are fetched again.
    pub(crate) async fn scrub(&self) {
        let Some(every) = self.0.options.scrub else {
            return;
        };
        loop {
            tokio::time::sleep(every).await;
            let keys: Vec<String> = self.slots().keys().cloned().collect();
            for key in keys {
                self.scrub_one(&key, ScrubPace::Throttled).await;
            }
        }
    }

    /// Reads an image through at once, because an agent doubts it, and brings in what
    /// is wrong or lacking. How it ended is told even where nothing was wrong.
    pub(crate) async fn reverify(&self, wanted: &ImageSpec) {
        if let Some(key) = self.read_key(wanted) {
            self.scrub_one(&key, ScrubPace::Immediate).await;
        }
        self.ensure(wanted).await;
    }

    /// Brings an image in when there is time for it.
    pub(crate) fn fill(&self, wanted: &ImageSpec) -> Result<(), String> {
        let mut reader = self.reader_for(wanted, FillTrigger::Order)?.uncounted();
        let (cache, wanted) = (self.clone(), wanted.clone());
        // The task that fills it reports under the name it was started with.
        tokio::spawn(async move {
            let went = reader.finished().await;
            cache.report_again(&wanted, &went);
        });
        Ok(())
    }

    /// Brings an image in for somebody who cannot read it before it is whole, so that
    /// it counts as read meanwhile. How it ended is told even where it was here.
    pub(crate) async fn ensure(&self, wanted: &ImageSpec) {
        let went = match self.reader_for(wanted, FillTrigger::Order) {
            Ok(mut reader) => reader.finished().await,
            Err(why) => Err(why),
        };
        self.report_again(wanted, &went);
    }

    async fn scrub_one(&self, key: &str, how: ScrubPace) {
        let file = match self.slots().get(key) {
            Some(slot) if matches!(slot.state, CacheSlotState::Whole) => {
                Arc::clone(&slot.entry.file)
            }
            _ => return,
        };
        let Some(kept) = entry::read_metadata(&self.0.root, key) else {
            return;
        };
        // A disk that cannot be read has lost the image as well.
        let right = checking::scrub(self, key, file, &kept, how).await;
        if !matches!(right, Ok(true)) {
            self.invalidate(key);
        }
    }

    /// What lies there is not what it was: it is checked and mended, and who reads it is
    /// cut off.
    fn invalidate(&self, key: &str) {
        let Some(kept) = entry::read_metadata(&self.0.root, key) else {
            return;
        };
        let mut slots = self.slots();
        if let Some(slot) = slots.get_mut(key)
            && matches!(slot.state, CacheSlotState::Whole)
            && let Ok(fresh) = CacheEntry::open(&self.0.root, key, true)
        {
            slot.entry
                .fail("its bytes have changed on this box's disk; they are fetched again");
            slot.entry = Arc::new(fresh);
            slot.state = CacheSlotState::Unverified(Box::new(kept));
            self.start_task(key, slot);
        }
    }

    /// Opens an image for reading; the fill begins if nobody has begun it. Who opens a
    /// packed image reads the disk that is in it, once that was taken out. An error is a
    /// sentence for people.
    pub(crate) fn reader(&self, wanted: &ImageSpec) -> Result<ImageReader, String> {
        self.reader_for(wanted, FillTrigger::Read)
    }

    fn reader_for(&self, wanted: &ImageSpec, asked: FillTrigger) -> Result<ImageReader, String> {
        if wanted.format.is_packed() {
            self.disk_reader(wanted, asked)
        } else {
            self.plain_reader(wanted, asked)
        }
    }

    /// Opens an image as it comes from its source.
    fn plain_reader(&self, wanted: &ImageSpec, asked: FillTrigger) -> Result<ImageReader, String> {
        let key = wanted.key().to_string();
        let mut slots = self.slots();
        if !slots.contains_key(&key) {
            if slots.len() >= ENTRIES_MAX {
                return Err(format!("the cache has {ENTRIES_MAX} images; remove some"));
            }
            let kept = ImageMetadata::new(wanted);
            let slot = CacheSlot {
                spec: wanted.clone(),
                entry: Arc::new(self.new_entry(&key)?),
                state: CacheSlotState::Unverified(Box::new(kept)),
                used_at_ms: 0,
            };
            slots.insert(key.clone(), slot);
        }
        let slot = slots.get_mut(&key).ok_or("the cache lost its place")?;
        if let (CacheSlotState::Failed(until), FillTrigger::Order) = (&mut slot.state, asked) {
            *until = Instant::now();
        }
        slot.used_at_ms = self.0.options.clock.now().tick.0;
        if let CacheSlotState::Partial(_, why) = &slot.state
            && wanted.sources.is_empty()
        {
            return Err(why.clone());
        }
        self.retry_if_due(&key, slot, wanted)?;
        self.start_task(&key, slot);
        Ok(ImageReader::new(Arc::clone(&slot.entry)))
    }

    /// The chunk list of an image that is whole.
    pub(crate) async fn chunk_list(&self, wanted: &ImageSpec) -> Option<Vec<u8>> {
        let key = self.read_key(wanted)?;
        let is_whole = |slot: &CacheSlot| matches!(slot.state, CacheSlotState::Whole);
        if !self.slots().get(&key).is_some_and(is_whole) {
            return None;
        }
        tokio::fs::read(self.path(&key, "chunks")).await.ok()
    }

    /// Removes an image. Who reads it now reads on; nobody finds it any more.
    pub(crate) fn drop_image(&self, key: ImageKey) {
        let key = key.to_string();
        self.last_reported().remove(&key);
        self.drop_disk(&key);
        self.drop_slot(&key);
    }

    fn drop_slot(&self, key: &str) {
        let mut slots = self.slots();
        if let Some(slot) = slots.remove(key)
            && let CacheSlotState::Busy | CacheSlotState::Uploading = slot.state
        {
            // The task that is at work on it finds its place gone and ends.
            slot.entry.fail("it was removed");
        }
        self.remove_files(key);
    }

    fn remove_files(&self, key: &str) {
        for end in ["json", "part", "whole", "chunks"] {
            // What cannot be removed now is found again at the next start.
            let _ = std::fs::remove_file(self.path(key, end));
        }
    }

    fn new_entry(&self, key: &str) -> Result<CacheEntry, String> {
        CacheEntry::create(&self.0.root, key)
            .map_err(|error| format!("the cache cannot make a file: {error}"))
    }

    /// An image that failed is tried again after its rest, from where it can be had
    /// by now.
    fn retry_if_due(
        &self,
        key: &str,
        slot: &mut CacheSlot,
        wanted: &ImageSpec,
    ) -> Result<(), String> {
        let other = slot.spec.format != wanted.format;
        let again = match slot.state {
            CacheSlotState::Failed(until) => other || until <= Instant::now(),
            // What its bytes are said to be is checked with them.
            CacheSlotState::Whole => other,
            CacheSlotState::Partial(..) => true,
            _ => false,
        };
        if !again {
            return Ok(());
        }
        slot.spec = wanted.clone();
        let kept = entry::read_metadata(&self.0.root, key)
            .filter(|kept| kept.spec.digest == wanted.digest);
        let mut kept = kept.unwrap_or_else(|| ImageMetadata::new(wanted));
        kept.spec = wanted.clone();
        if other && kept.whole {
            let written = kept.write(&self.0.root);
            written.map_err(|error| format!("the cache cannot keep its record: {error}"))?;
        }
        let entry = CacheEntry::open(&self.0.root, key, kept.whole);
        slot.entry = Arc::new(entry.map_err(|error| error.to_string())?);
        slot.state = CacheSlotState::Unverified(Box::new(kept));
        Ok(())
    }

    /// Starts the task for an image that has none.
    fn start_task(&self, key: &str, slot: &mut CacheSlot) {
        if let CacheSlotState::Unverified(_) = slot.state
            && let CacheSlotState::Unverified(kept) =
                std::mem::replace(&mut slot.state, CacheSlotState::Busy)
        {
            let task =
                filling::ImageFillTask::new(self.clone(), key.to_owned(), Arc::clone(&slot.entry));
            tokio::spawn(task.run(*kept));
        }
    }

    /// Cuts off everybody who reads the image and gives it a new, empty file.
    fn replace(
        &self,
        key: &str,
        old: &Arc<CacheEntry>,
        why: &str,
    ) -> Result<Arc<CacheEntry>, String> {
        let mut slots = self.slots();
        let slot = slots.get_mut(key);
        let Some(slot) = slot.filter(|slot| Arc::ptr_eq(&slot.entry, old)) else {
            return Err("it was removed".to_owned());
        };
        let fresh = Arc::new(self.new_entry(key)?);
        slot.entry.fail(why);
        slot.entry = Arc::clone(&fresh);
        Ok(fresh)
    }

    /// Whether this is still what lies in the image's place.
    fn is_current(&self, key: &str, entry: &Arc<CacheEntry>) -> bool {
        let slots = self.slots();
        slots
            .get(key)
            .is_some_and(|slot| Arc::ptr_eq(&slot.entry, entry))
    }

    /// A task is done with its image. Whether that was not removed meanwhile.
    fn finish_task(&self, key: &str, entry: &Arc<CacheEntry>, left: FillOutcome) -> bool {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(key) else {
            self.remove_files(key);
            return false;
        };
        if !Arc::ptr_eq(&slot.entry, entry) {
            return false;
        }
        match left {
            FillOutcome::Whole => {
                slot.state = CacheSlotState::Whole;
                slot.entry.mark_verified();
            }
            FillOutcome::Partial(part, why) => {
                slot.entry.fail(&why);
                slot.state = CacheSlotState::Partial(part, why);
            }
            FillOutcome::Failed {
                why,
                keeps_files: keeps,
            } => {
                // What is no beginning of the image is not gone on with either.
                if !keeps {
                    self.remove_files(key);
                }
                let rest = self.retry_delay_after_failure(key);
                slot.state = CacheSlotState::Failed(Instant::now() + rest);
                slot.entry.fail(&why);
            }
        }
        true
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, CacheSlot>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes have come: waits as long as the pace wants.
    async fn throttle(&self, bytes: u64) {
        let Some(pace) = &self.0.rate_limiter else {
            return;
        };
        let now_ms = self.0.options.clock.now().tick.0;
        let wait_ms = pace
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .consume(bytes, now_ms);
        if wait_ms > 0 {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    /// Waits for the hours when images may come that nobody reads.
    async fn wait_for_window(&self, key: &str, entry: &CacheEntry) {
        let Some(window) = self.0.options.window else {
            return;
        };
        while !entry.is_read() && !self.is_disk_read(key) {
            let wait_ms = window.opens_in_ms(self.0.options.clock.now().wall.0);
            if wait_ms == 0 {
                return;
            }
            // The clock may be set meanwhile, and somebody may come to read.
            let wait = Duration::from_millis(wait_ms).min(WINDOW_POLL_INTERVAL);
            tokio::time::sleep(wait).await;
        }
    }

    fn path(&self, key: &str, end: &str) -> PathBuf {
        self.0.root.join(format!("{key}.{end}"))
    }
}

/// The key of a file of the cache, by its name.
fn key_of(name: &str) -> Option<(ImageKey, &str)> {
    let (key, end) = name.split_once('.')?;
    Some((ImageKey::parse(key)?, end))
}

#[cfg(test)]
mod tests;
