//! One file of the cache, and how many of its bytes may be read.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::{Semaphore, watch};
use trivet_chunks::ChunkList;
use trivet_images::{ImageEntryId, ImageFileKind, ImageFillProgress, ImageFillVerdict, ImageKey};

use super::hashing::ImageHasher;
use super::origin::OriginBody;

/// Suffixes of files that are never served: a disk that is being unpacked, and a download
/// without a digest with its chunk list.
pub(super) const UNPACK_SUFFIX: &str = "unpack";
pub(super) const FETCH_SUFFIX: &str = "fetch";
pub(super) const FETCH_CHUNKS_SUFFIX: &str = "fetch-chunks";

/// What a fill holds between two orders.
#[derive(Default)]
pub(super) struct FillConnection {
    /// The body of the present response.
    pub(super) body: Option<OriginBody>,
    pub(super) hashing: Option<ImageHasher>,
}

/// An open file with its name.
pub(super) struct CacheFile {
    pub(super) key: ImageKey,
    pub(super) kind: ImageFileKind,
    pub(super) file: Arc<File>,
}

/// A file that is being filled or verified, or is complete. When its bytes turn out to be wrong,
/// the image gets a new entry, and the readers of this one are disconnected.
pub(super) struct CacheEntry {
    pub(super) id: ImageEntryId,
    file: OnceLock<CacheFile>,
    /// The digest of what readers get, if it is not the key of the file: a disk that was unpacked.
    stored_as: OnceLock<ImageKey>,
    progress: watch::Sender<ImageFillProgress>,
    /// Each reader holds a clone, so the reference count is the number of readers.
    readers: Arc<()>,
    is_wrong: AtomicBool,
    is_closed: AtomicBool,
    pub(super) connection: tokio::sync::Mutex<FillConnection>,
    /// A download of unknown size may continue.
    pub(super) continues: Semaphore,
    /// The unpacker that waits for space.
    space: Mutex<Option<SyncSender<Result<(), String>>>>,
    /// The chunk list of the disk that was unpacked into this file.
    pub(super) unpacked: Mutex<Option<ChunkList>>,
}

impl CacheEntry {
    pub(super) fn new(id: ImageEntryId) -> Self {
        Self {
            id,
            file: OnceLock::new(),
            stored_as: OnceLock::new(),
            progress: watch::Sender::new(ImageFillProgress::new()),
            readers: Arc::new(()),
            is_wrong: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            connection: tokio::sync::Mutex::default(),
            continues: Semaphore::new(0),
            space: Mutex::default(),
            unpacked: Mutex::default(),
        }
    }

    /// Opens the file in the cache's directory.
    pub(super) fn open(&self, root: &Path, key: ImageKey, kind: ImageFileKind) -> io::Result<()> {
        let path = |end: &str| root.join(format!("{key}.{end}"));
        let file = match kind {
            ImageFileKind::Stored { whole } => {
                open_file(&path(if whole { "whole" } else { "part" }))?
            }
            ImageFileKind::Empty => {
                for end in ["part", "whole", "chunks"] {
                    remove_if_there(&path(end))?;
                }
                open_file(&path("part"))?
            }
            ImageFileKind::Unpacking => new_file(&path(UNPACK_SUFFIX))?,
            ImageFileKind::Download => new_file(&path(FETCH_SUFFIX))?,
        };
        let file = Arc::new(file);
        // An entry is opened once.
        let _ = self.file.set(CacheFile { key, kind, file });
        Ok(())
    }

    /// The open file; an error for one that could not be opened.
    pub(super) fn opened(&self) -> io::Result<&CacheFile> {
        let file = self.file.get();
        file.ok_or_else(|| io::Error::other("the file of the cache cannot be opened"))
    }

    pub(super) fn file(&self) -> io::Result<Arc<File>> {
        Ok(Arc::clone(&self.opened()?.file))
    }

    /// The digest of what readers get.
    pub(super) fn image_key(&self) -> io::Result<ImageKey> {
        let stored_as = self.stored_as.get().copied();
        stored_as.map_or_else(|| Ok(self.opened()?.key), Ok)
    }

    /// The path of the chunk list.
    pub(super) fn chunks_path(&self, root: &Path) -> io::Result<PathBuf> {
        let opened = self.opened()?;
        let end = match opened.kind {
            ImageFileKind::Download => FETCH_CHUNKS_SUFFIX,
            _ => "chunks",
        };
        Ok(root.join(format!("{}.{end}", opened.key)))
    }

    /// Its file has no final name yet.
    pub(super) fn is_unpacking(&self) -> bool {
        self.stored_as.get().is_none()
    }

    /// What was unpacked or downloaded has this digest.
    pub(super) fn set_stored_as(&self, key: ImageKey) {
        let _ = self.stored_as.set(key);
    }

    pub(super) fn set_size(&self, size: u64) {
        self.progress.send_if_modified(|follow| {
            let new = follow.size != Some(size);
            follow.size = Some(size);
            new
        });
    }

    pub(super) fn set_hashed(&self, hashed: u64) {
        self.progress.send_modify(|follow| follow.hashed = hashed);
    }

    /// The bytes that its file takes on the disk.
    pub(super) fn on_disk(&self) -> u64 {
        let length = |file: &CacheFile| file.file.metadata().map_or(0, |facts| facts.len());
        self.file.get().map_or(0, length)
    }

    /// Whether it has readers.
    pub(super) fn is_read(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    /// All bytes are verified.
    pub(super) fn mark_verified(&self, size: u64) {
        self.progress.send_modify(|follow| {
            follow.size = Some(size);
            follow.hashed = size;
            follow.verdict = ImageFillVerdict::Verified;
        });
    }

    /// Ends all reads; current and later readers receive this reason.
    pub(super) fn fail(&self, why: &str, is_wrong: bool) {
        self.is_wrong.store(is_wrong, Ordering::Release);
        self.progress
            .send_modify(|follow| follow.verdict = ImageFillVerdict::Failed(why.to_owned()));
    }

    /// No work on it may go on.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.continues.close();
        self.space().take();
    }

    /// Ends the connection to the source and the hashing thread, unless an order uses them: that
    /// one ends by itself.
    pub(super) fn drop_connection(&self) {
        if let Ok(mut connection) = self.connection.try_lock() {
            *connection = FillConnection::default();
        }
    }

    /// Whether work on it may go on: it was not closed, and has not failed.
    pub(super) fn is_pending(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
            && self.progress.borrow().verdict == ImageFillVerdict::Pending
    }

    fn space(&self) -> std::sync::MutexGuard<'_, Option<SyncSender<Result<(), String>>>> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The unpacker waits for the answer on the other end.
    pub(super) fn await_space(&self, answer: SyncSender<Result<(), String>>) {
        if !self.is_closed.load(Ordering::Acquire) {
            *self.space() = Some(answer);
        }
    }

    pub(super) fn answer_space(&self, result: Result<(), String>) {
        if let Some(waiting) = self.space().take() {
            // An unpacker that has ended needs no answer.
            let _ = waiting.try_send(result);
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// An empty file in place of any other. Open handles to the old one stay valid.
pub(super) fn new_file(path: &Path) -> io::Result<File> {
    remove_if_there(path)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A reader of one image.
pub(crate) struct ImageReader {
    entry: Arc<CacheEntry>,
    progress: watch::Receiver<ImageFillProgress>,
    _counted: Arc<()>,
}

impl ImageReader {
    pub(super) fn new(entry: Arc<CacheEntry>) -> Self {
        let follow = entry.progress.subscribe();
        let counted = Arc::clone(&entry.readers);
        Self {
            entry,
            progress: follow,
            _counted: counted,
        }
    }

    /// The file; an error before it is open, when nothing can be read.
    pub(crate) fn file(&self) -> io::Result<Arc<File>> {
        self.entry.file()
    }

    /// The digest of what is read, as far as it is known.
    pub(crate) fn key(&self) -> Option<ImageKey> {
        self.entry.image_key().ok()
    }

    /// A retry gives the same result until an operator changes something.
    pub(crate) fn is_wrong(&self) -> bool {
        self.entry.is_wrong.load(Ordering::Acquire)
    }

    /// The size of the image, as soon as it is known.
    pub(crate) async fn size(&mut self) -> Result<u64, String> {
        let known = |follow: &ImageFillProgress| {
            follow.size.is_some() || follow.verdict != ImageFillVerdict::Pending
        };
        let follow = self.progress.wait_for(known).await;
        let follow = follow.map_err(|_| "the box is stopping".to_owned())?;
        match (&follow.verdict, follow.size) {
            (ImageFillVerdict::Failed(why), _) => Err(why.clone()),
            (_, Some(size)) => Ok(size),
            (_, None) => Err("its size is not known".to_owned()),
        }
    }

    /// Waits until it is verified, or has failed with a sentence.
    #[cfg(test)]
    pub(crate) async fn finished(&mut self) -> Result<(), String> {
        let follow = self
            .progress
            .wait_for(|follow| follow.verdict != ImageFillVerdict::Pending);
        let follow = follow.await.map_err(|_| "the box is stopping".to_owned())?;
        match &follow.verdict {
            ImageFillVerdict::Failed(why) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// The end of the readable bytes; 0 for an image that turned out to be wrong.
    pub(crate) fn readable_now(&self) -> u64 {
        self.progress.borrow().readable()
    }

    /// The end of the readable bytes, as soon as it is beyond this offset.
    pub(crate) async fn readable(&mut self, beyond: u64) -> Result<u64, String> {
        let follow = self.progress.wait_for(|follow| follow.is_ready_at(beyond));
        let follow = follow.await.map_err(|_| "the box is stopping".to_owned())?;
        match &follow.verdict {
            ImageFillVerdict::Failed(why) => Err(why.clone()),
            _ => Ok(follow.readable()),
        }
    }
}
