//! The image cache: files, connections and threads for the images of the library.
//!
//! The library of the crate `trivet-images`, which the rack owns, decides what happens to each
//! image; this module carries out its orders and reports results. Readers follow an image while
//! it is being filled, without asking the library. In the cache's directory an image has up to
//! four files, named by its key: `.json` (its description and its sources), `.part` (the bytes
//! received so far) or `.whole` (the complete image), and `.chunks` (its chunk list, see
//! `trivet-chunks`). A packed image also has a `.disk` file, which names the disk image that was
//! unpacked from it. None of them is trusted after a restart.

mod checking;
mod checksum_files;
mod entry;
mod filling;
mod hashing;
mod origin;
mod receiving;
mod records;
mod registry;
mod unpack_worker;
mod unpacking;
mod uploading;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use trivet_images::rate_limit::ImageRateLimiter;
use trivet_images::{
    FileChecksum, ImageDiskUse, ImageEntryId, ImageEntryUse, ImageFileKind, ImageFileOrder,
    ImageKey, ImageUploadAnswer, ImageWorkOrder, ImageWorkReport, OciResolution,
};
use trivet_oci::OciQuery;

use crate::clock::DaemonClock;
use entry::CacheEntry;
pub(crate) use entry::ImageReader;
pub(crate) use origin::Origin;
use registry::Registries;

/// The reports of the cache, in order. The library has a bounded number of orders under way, and
/// progress is reported about once per second for each, so the queue is bounded as well.
pub(crate) type ImageReports = mpsc::UnboundedReceiver<ImageWorkReport>;

/// The cache; clones share one instance.
#[derive(Clone)]
pub(crate) struct ImageCache(Arc<ImageCacheInner>);

struct ImageCacheInner {
    root: PathBuf,
    options: ImageCacheOptions,
    runtime: tokio::runtime::Handle,
    rate_limiter: Option<Mutex<ImageRateLimiter>>,
    entries: Mutex<BTreeMap<ImageEntryId, Arc<CacheEntry>>>,
    /// Work that must be done in order, because it uses names of files.
    work: std::sync::mpsc::Sender<FileWork>,
    reports: mpsc::UnboundedSender<ImageWorkReport>,
    /// Uploads that wait for an answer.
    uploads: Mutex<BTreeMap<u64, mpsc::Sender<ImageUploadAnswer>>>,
    upload_count: AtomicU64,
}

/// How images are fetched, from the settings.
#[derive(Clone)]
pub(crate) struct ImageCacheOptions {
    pub(crate) origin: Origin,
    /// Rate limit of all fills together.
    pub(crate) bytes_per_s: Option<u64>,
    pub(crate) clock: DaemonClock,
}

impl ImageCacheOptions {
    /// Without TLS and rate limit.
    #[cfg(any(test, feature = "demo"))]
    pub(crate) fn plain(clock: DaemonClock) -> Self {
        Self {
            origin: Origin::default(),
            bytes_per_s: None,
            clock,
        }
    }
}

/// Work for the thread that changes names of files.
enum FileWork {
    Order(ImageWorkOrder),
    Open(Arc<CacheEntry>, ImageKey, ImageFileKind),
    File(Arc<CacheEntry>, ImageFileOrder),
    MoveResponse(Arc<CacheEntry>, Arc<CacheEntry>),
    /// Readers are disconnected, after the files were removed that are not continued.
    EndReads {
        entry: Arc<CacheEntry>,
        why: String,
        is_wrong: bool,
    },
    Discard(Arc<CacheEntry>),
    /// The entry was closed: its connection and its hashing thread end.
    Close(Arc<CacheEntry>),
    /// All work before it is done.
    #[cfg(test)]
    Barrier(std::sync::mpsc::Sender<()>),
}

impl ImageCache {
    /// Opens the cache in this directory.
    pub(crate) fn open(
        root: &Path,
        options: ImageCacheOptions,
    ) -> std::io::Result<(Self, ImageReports)> {
        crate::private::own_directory(root)?;
        let (work, orders) = std::sync::mpsc::channel();
        let (reports, receiver) = mpsc::unbounded_channel();
        let now_ms = options.clock.now().tick.0;
        let rate_limiter = options
            .bytes_per_s
            .map(|rate| Mutex::new(ImageRateLimiter::new(rate, now_ms)));
        let inner = Arc::new(ImageCacheInner {
            root: root.to_owned(),
            rate_limiter,
            options,
            runtime: tokio::runtime::Handle::current(),
            entries: Mutex::default(),
            work,
            reports,
            uploads: Mutex::default(),
            upload_count: AtomicU64::new(0),
        });
        let shared = Arc::downgrade(&inner);
        std::thread::Builder::new()
            .name("images".to_owned())
            .spawn(move || run_file_work(&shared, &orders))?;
        Ok((Self(inner), receiver))
    }

    /// Carries out an order of the library; does not wait.
    pub(crate) fn execute(&self, order: ImageWorkOrder) {
        match order {
            ImageWorkOrder::Open { entry, key, file } => {
                let entry = self.entry_or_new(entry);
                self.work(FileWork::Open(entry, key, file));
            }
            ImageWorkOrder::File { entry, order } => {
                let entry = self.entry_or_new(entry);
                self.work(FileWork::File(entry, order));
            }
            ImageWorkOrder::MoveResponse { from, into } => {
                let (from, into) = (self.entry_or_new(from), self.entry_or_new(into));
                self.work(FileWork::MoveResponse(from, into));
            }
            ImageWorkOrder::Continue(entry) => {
                if let Some(entry) = self.entry(entry) {
                    entry.continues.add_permits(1);
                }
            }
            ImageWorkOrder::AnnounceSize { entry, size } => {
                if let Some(entry) = self.entry(entry) {
                    entry.set_size(size);
                }
            }
            ImageWorkOrder::AllowReads { entry, size } => {
                if let Some(entry) = self.entry(entry) {
                    entry.mark_verified(size);
                }
            }
            ImageWorkOrder::EndReads {
                entry,
                why,
                is_wrong,
            } => {
                if let Some(entry) = self.entry(entry) {
                    self.work(FileWork::EndReads {
                        entry,
                        why,
                        is_wrong,
                    });
                }
            }
            ImageWorkOrder::Close(entry) => {
                if let Some(entry) = self.entries().remove(&entry) {
                    entry.close();
                    self.work(FileWork::Close(entry));
                }
            }
            ImageWorkOrder::Discard(entry) => {
                if let Some(entry) = self.entries().remove(&entry) {
                    entry.close();
                    self.work(FileWork::Discard(entry));
                }
            }
            ImageWorkOrder::UnpackSpace { into, result } => {
                if let Some(entry) = self.entry(into) {
                    entry.answer_space(result);
                }
            }
            ImageWorkOrder::Upload { ticket, answer } => {
                if let Some(upload) = self.uploads().get(&ticket) {
                    // It has space for both answers; a client that is gone needs none.
                    let _ = upload.try_send(answer);
                }
            }
            other => self.work(FileWork::Order(other)),
        }
    }

    /// Opens a file for reading. An error is a sentence.
    pub(crate) fn reader(&self, entry: ImageEntryId) -> Result<ImageReader, String> {
        let entry = self.entry(entry);
        let gone = || "the image was fetched again or removed just now; retry".to_owned();
        entry.map(ImageReader::new).ok_or_else(gone)
    }

    /// Waits until all names of files are changed as ordered.
    #[cfg(test)]
    fn wait_for_work(&self) {
        let (done, waits) = std::sync::mpsc::channel();
        self.work(FileWork::Barrier(done));
        let _ = waits.recv();
    }

    /// The chunk list of a complete image.
    pub(crate) async fn chunk_list(&self, key: ImageKey) -> Option<Vec<u8>> {
        tokio::fs::read(self.path(key, "chunks")).await.ok()
    }

    fn work(&self, work: FileWork) {
        // The thread runs as long as the cache.
        let _ = self.0.work.send(work);
    }

    fn report(&self, report: ImageWorkReport) {
        // Without a receiver the box is stopping.
        let _ = self.0.reports.send(report);
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ImageEntryId, Arc<CacheEntry>>> {
        let entries = self.0.entries.lock();
        entries.unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, id: ImageEntryId) -> Option<Arc<CacheEntry>> {
        self.entries().get(&id).cloned()
    }

    fn entry_or_new(&self, id: ImageEntryId) -> Arc<CacheEntry> {
        let mut entries = self.entries();
        let entry = entries
            .entry(id)
            .or_insert_with(|| Arc::new(CacheEntry::new(id)));
        Arc::clone(entry)
    }

    fn uploads(&self) -> MutexGuard<'_, BTreeMap<u64, mpsc::Sender<ImageUploadAnswer>>> {
        let uploads = self.0.uploads.lock();
        uploads.unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_upload(&self, answers: mpsc::Sender<ImageUploadAnswer>) -> u64 {
        let ticket = self.0.upload_count.fetch_add(1, Ordering::Relaxed);
        self.uploads().insert(ticket, answers);
        ticket
    }

    fn end_upload(&self, ticket: u64) {
        self.uploads().remove(&ticket);
    }

    /// Waits as long as the rate limit requires after this many bytes.
    async fn throttle(&self, bytes: u64) {
        let Some(limiter) = &self.0.rate_limiter else {
            return;
        };
        let now_ms = self.0.options.clock.now().tick.0;
        let wait_ms = limiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .consume(bytes, now_ms);
        if wait_ms > 0 {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    fn path(&self, key: ImageKey, end: &str) -> PathBuf {
        self.0.root.join(format!("{key}.{end}"))
    }

    /// Carries out an order that does not concern one entry.
    fn execute_order(&self, order: ImageWorkOrder) {
        match order {
            ImageWorkOrder::Scan => {
                // A directory that cannot be read is an empty cache; the first fill says why.
                let found = records::scan(&self.0.root).unwrap_or_default();
                self.report(ImageWorkReport::Found(Box::new(found)));
            }
            ImageWorkOrder::DeleteFiles(key) => {
                for end in ["json", "part", "whole", "chunks"] {
                    // A file that cannot be removed now is removed after the next start.
                    let _ = std::fs::remove_file(self.path(key, end));
                }
            }
            ImageWorkOrder::DeleteDiskRecord(key) => {
                // A record that cannot be removed is ignored at the next start, as its images
                // are gone.
                let _ = std::fs::remove_file(self.path(key, "disk"));
            }
            ImageWorkOrder::KeepMetadata(metadata) => {
                // What is not written is requested again after a restart.
                let _ = records::write_metadata(&metadata, &self.0.root);
            }
            ImageWorkOrder::MeasureSpace { ticket } => {
                let disk = Box::new(self.measure());
                self.report(ImageWorkReport::Space { ticket, disk });
            }
            ImageWorkOrder::Scrub {
                ticket,
                entry,
                size,
                is_paced,
            } => {
                let (cache, entry) = (self.clone(), self.entry(entry));
                self.0.runtime.spawn(async move {
                    let right = match entry {
                        Some(entry) => checking::scrub(&cache.0.root, &entry, size, is_paced).await,
                        None => Ok(false),
                    };
                    // If the disk cannot be read, the image is lost as well.
                    let is_right = matches!(right, Ok(true));
                    cache.report(ImageWorkReport::Scrubbed { ticket, is_right });
                });
            }
            ImageWorkOrder::Unpack {
                from,
                size,
                format,
                into,
                only,
            } => {
                let (from, into) = (self.entry_or_new(from), self.entry_or_new(into));
                self.unpack((from, size, format), into, only);
            }
            ImageWorkOrder::FindChecksum { url, name } => {
                let cache = self.clone();
                self.0.runtime.spawn(async move {
                    let result = cache.find_checksum(&url, &name).await;
                    let found = Box::new(FileChecksum { url, name, result });
                    cache.report(ImageWorkReport::ChecksumFound(found));
                });
            }
            ImageWorkOrder::ResolveOci(query) => self.resolve_oci(*query),
            ImageWorkOrder::UsePullSecret {
                reference,
                credentials,
            } => self.registries().use_credentials(&reference, credentials),
            _ => {}
        }
    }

    fn registries(&self) -> &Registries {
        &self.0.options.origin.registries
    }

    fn resolve_oci(&self, query: OciQuery) {
        let cache = self.clone();
        self.0.runtime.spawn(async move {
            let result = cache.0.options.origin.resolve(&query).await;
            let found = Box::new(OciResolution { query, result });
            cache.report(ImageWorkReport::OciResolved(found));
        });
    }

    fn measure(&self) -> ImageDiskUse {
        let entries: Vec<Arc<CacheEntry>> = self.entries().values().cloned().collect();
        let entry_use = |entry: &Arc<CacheEntry>| ImageEntryUse {
            entry: entry.id,
            bytes: entry.on_disk(),
            is_read: entry.is_read(),
        };
        ImageDiskUse {
            free_bytes: trivet_board_linux::free_bytes(&self.0.root).unwrap_or(0),
            entries: entries.iter().map(entry_use).collect(),
        }
    }

    /// Removes the temporary file of an entry.
    fn discard(&self, entry: &CacheEntry) {
        let Ok(opened) = entry.opened() else { return };
        let ends: &[&str] = match opened.kind {
            ImageFileKind::Unpacking => &[entry::UNPACK_SUFFIX],
            ImageFileKind::Download => &[entry::FETCH_SUFFIX, entry::FETCH_CHUNKS_SUFFIX],
            ImageFileKind::Stored { .. } | ImageFileKind::Empty => &[],
        };
        for end in ends {
            // A file that cannot be removed now is removed at the next start.
            let _ = std::fs::remove_file(self.path(opened.key, end));
        }
    }

    fn execute_work(&self, work: FileWork) {
        match work {
            FileWork::Order(order) => self.execute_order(order),
            FileWork::Open(entry, key, kind) => {
                // The first order on the file fails if it is not open.
                let _ = entry.open(&self.0.root, key, kind);
            }
            FileWork::File(entry, order) => self.execute_file(entry, order),
            FileWork::MoveResponse(from, into) => {
                // The response is complete, so no order on either entry is under way.
                if let (Ok(mut from), Ok(mut into)) =
                    (from.connection.try_lock(), into.connection.try_lock())
                {
                    into.body = from.body.take();
                }
            }
            FileWork::EndReads {
                entry,
                why,
                is_wrong,
            } => {
                // The empty file of a failed unpacking remains: it is retried after a restart.
                if let Ok(opened) = entry.opened()
                    && opened.kind == ImageFileKind::Unpacking
                    && entry.is_unpacking()
                {
                    let _ = opened.file.set_len(0);
                }
                entry.drop_connection();
                entry.fail(&why, is_wrong);
            }
            FileWork::Discard(entry) => {
                entry.drop_connection();
                self.discard(&entry);
            }
            FileWork::Close(entry) => entry.drop_connection(),
            #[cfg(test)]
            FileWork::Barrier(done) => drop(done.send(())),
        }
    }
}

/// Carries out work in order until the cache is dropped.
fn run_file_work(cache: &Weak<ImageCacheInner>, orders: &std::sync::mpsc::Receiver<FileWork>) {
    while let Ok(work) = orders.recv() {
        let Some(inner) = cache.upgrade() else {
            return;
        };
        ImageCache(inner).execute_work(work);
    }
}

#[cfg(test)]
mod tests;
