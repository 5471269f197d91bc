//! The image cache: images by their digest, filled from their sources, verified, and
//! readable while they are being filled.
//!
//! The crate `trivet-images` decides which bytes are correct and which source to
//! request; this module has the files, the connections and the threads. In the cache's
//! directory an image has up to four files, named by its key: `.json` (its description
//! and its sources), `.part` (the bytes received so far) or `.whole` (the complete
//! image), and `.chunks` (its chunk list, see `trivet-chunks`). None of them is trusted
//! after a restart: every byte is hashed again before it is sent, and readers follow
//! that as they follow a fill. A packed image also has a `.disk` file, which names the
//! disk image that was unpacked from it (see `unpacking`).

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
use trivet_images::{ImageKey, ImageMetadata, ImageSpec};
use trivet_model::image::ImageStatus;

use crate::clock::DaemonClock;
use checking::ScrubPace;
use derived_image::DerivedImage;
use entry::CacheEntry;
pub(crate) use entry::ImageReader;
pub(crate) use origin::Origin;
use unpacking::UnpackJob;
pub(crate) use uploading::{ImageUploadError, ImageUploadRange};

/// Default delay before a failed fill is retried.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(10);

/// How often to check whether the fill window is open.
const WINDOW_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The most images in the cache, including those being fetched.
const ENTRIES_MAX: usize = 4096;

/// Receives status reports of images.
pub(crate) type NewsSink = Box<dyn Fn(ImageStatus) + Send + Sync>;

/// The cache; clones share one instance.
#[derive(Clone)]
pub(crate) struct ImageCache(Arc<ImageCacheInner>);

struct ImageCacheInner {
    root: PathBuf,
    slots: Mutex<BTreeMap<String, CacheSlot>>,
    options: ImageCacheOptions,
    rate_limiter: Option<Mutex<ImageRateLimiter>>,
    /// Keys of images that are never evicted.
    pinned: Mutex<BTreeSet<String>>,
    news: NewsSink,
    /// The last status that was reported for each image in the cache.
    last_reported: Mutex<BTreeMap<String, ImageStatus>>,
    /// Running unpack jobs, by the keys of the packed images. Lock order: this first,
    /// then `slots`, then `derived_images`.
    unpack_jobs: Mutex<BTreeMap<String, UnpackJob>>,
    /// Unpacked disks, by the keys of the packed images.
    derived_images: Mutex<BTreeMap<String, DerivedImage>>,
    /// Packed images whose unpacking was interrupted when the box stopped.
    interrupted: Vec<String>,
}

/// How images are fetched, from the settings.
#[derive(Clone)]
pub(crate) struct ImageCacheOptions {
    pub(crate) origin: Origin,
    /// Rate limit of all fills together.
    pub(crate) bytes_per_s: Option<u64>,
    /// When images are fetched that have no reader.
    pub(crate) window: Option<ImageFillWindow>,
    /// How often all complete images are verified.
    pub(crate) scrub: Option<Duration>,
    /// Size limit of the cache, and the space that stays free for the store.
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) reserve_bytes: u64,
    /// How long a failed fill is not retried. Meanwhile its readers receive the reason.
    pub(crate) retry_delay: Duration,
    pub(crate) clock: DaemonClock,
}

impl ImageCacheOptions {
    /// Without TLS, rate limit or fill window.
    #[cfg(any(test, feature = "demo"))]
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
    /// When the image was last requested.
    used_at_ms: u64,
}

/// What started a fill. After a failure, a reader starts a retry only after the retry
/// delay; an order starts one at once, because the operator may have repaired the
/// cause.
#[derive(Clone, Copy)]
enum FillTrigger {
    Read,
    Order,
}

enum CacheSlotState {
    /// On disk since before the start, and not verified yet.
    Unverified(Box<ImageMetadata>),
    /// A task fills or verifies it.
    Busy,
    /// An upload is running.
    Uploading,
    /// Its first bytes are stored and verified; an upload can continue after them. The
    /// text is the error that readers receive.
    Partial(PartialImage, String),
    /// Complete and verified.
    Whole,
    /// The fill failed; it may be retried at this time.
    Failed(Instant),
}

/// How many bytes of an image are stored, and its size if known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct PartialImage {
    have: u64,
    size: Option<u64>,
}

/// The result of a task.
enum FillOutcome {
    /// The complete image.
    Whole,
    /// Verified bytes after which an upload can continue, and why the rest is missing.
    Partial(PartialImage, String),
    /// No usable image; with `keeps_files` the next fill continues with the stored
    /// bytes.
    Failed { why: String, keeps_files: bool },
}

impl ImageCache {
    /// Opens the cache in this directory with its present content.
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

    /// Processes all images that were stored before the start, one after the other:
    /// complete ones are verified, partial ones are continued.
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

    /// Verifies all complete images in an endless loop: bytes that have changed on the
    /// disk are fetched again.
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

    /// Verifies an image at once, because an agent reported a checksum error, and
    /// fetches wrong or missing chunks. Reports the result even if nothing was wrong.
    pub(crate) async fn reverify(&self, wanted: &ImageSpec) {
        if let Some(key) = self.read_key(wanted) {
            self.scrub_one(&key, ScrubPace::Immediate).await;
        }
        self.ensure(wanted).await;
    }

    /// Fetches an image when the fill window is open.
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

    /// Fetches an image for a user that needs the complete image, so that it counts as
    /// read meanwhile. Reports the result even if the image was already stored.
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
        // If the disk cannot be read, the image is lost as well.
        let right = checking::scrub(self, key, file, &kept, how).await;
        if !matches!(right, Ok(true)) {
            self.invalidate(key);
        }
    }

    /// The stored bytes are wrong: they are verified and repaired, and current readers
    /// are disconnected.
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

    /// Opens an image for reading, and starts the fill if it is not running. The reader
    /// of a packed image reads the disk in it, once that has been unpacked. An error is
    /// a sentence for the operator.
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

    /// Opens an image as its source sends it, without unpacking.
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
        let slot = slots.get_mut(&key).ok_or("the image was removed")?;
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

    /// The chunk list of a complete image.
    pub(crate) async fn chunk_list(&self, wanted: &ImageSpec) -> Option<Vec<u8>> {
        let key = self.read_key(wanted)?;
        let is_whole = |slot: &CacheSlot| matches!(slot.state, CacheSlotState::Whole);
        if !self.slots().get(&key).is_some_and(is_whole) {
            return None;
        }
        tokio::fs::read(self.path(&key, "chunks")).await.ok()
    }

    /// Removes an image. Current readers can read on; new ones do not find it.
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
            // The task that fills it finds its slot gone and ends.
            slot.entry.fail("it was removed");
        }
        self.remove_files(key);
    }

    fn remove_files(&self, key: &str) {
        for end in ["json", "part", "whole", "chunks"] {
            // A file that cannot be removed now is removed after the next start.
            let _ = std::fs::remove_file(self.path(key, end));
        }
    }

    fn new_entry(&self, key: &str) -> Result<CacheEntry, String> {
        CacheEntry::create(&self.0.root, key)
            .map_err(|error| format!("the cache cannot create a file: {error}"))
    }

    /// Retries a failed image after the retry delay, with the sources that are known by
    /// now.
    fn retry_if_due(
        &self,
        key: &str,
        slot: &mut CacheSlot,
        wanted: &ImageSpec,
    ) -> Result<(), String> {
        let other = slot.spec.format != wanted.format;
        let again = match slot.state {
            CacheSlotState::Failed(until) => other || until <= Instant::now(),
            // The declared format is verified together with the bytes.
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
            let written = entry::write_metadata(&kept, &self.0.root);
            written.map_err(|error| format!("the cache cannot write its record: {error}"))?;
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

    /// Disconnects all readers of the image and gives it a new, empty file.
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

    /// Whether this entry is still the one in the image's slot.
    fn is_current(&self, key: &str, entry: &Arc<CacheEntry>) -> bool {
        let slots = self.slots();
        slots
            .get(key)
            .is_some_and(|slot| Arc::ptr_eq(&slot.entry, entry))
    }

    /// Records the result of a task. False if the image was removed meanwhile.
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
                // Bytes that are not a correct beginning of the image are not
                // continued.
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

    /// Waits as long as the rate limit requires after this many bytes.
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

    /// Waits for the window in which images without readers may be fetched.
    async fn wait_for_window(&self, key: &str, entry: &CacheEntry) {
        let Some(window) = self.0.options.window else {
            return;
        };
        while !entry.is_read() && !self.is_disk_read(key) {
            let wait_ms = window.opens_in_ms(self.0.options.clock.now().wall.0);
            if wait_ms == 0 {
                return;
            }
            // Meanwhile the clock may be set, or a reader may open the image.
            let wait = Duration::from_millis(wait_ms).min(WINDOW_POLL_INTERVAL);
            tokio::time::sleep(wait).await;
        }
    }

    fn path(&self, key: &str, end: &str) -> PathBuf {
        self.0.root.join(format!("{key}.{end}"))
    }
}

/// The key and the suffix in the name of a cache file.
fn key_of(name: &str) -> Option<(ImageKey, &str)> {
    let (key, end) = name.split_once('.')?;
    Some((ImageKey::parse(key)?, end))
}

#[cfg(test)]
mod tests;
