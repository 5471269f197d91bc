//! One image in the cache: its files, and how many of its bytes may be read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::derived_image::DerivedImage;
use serde_json::{Value, json};
use tokio::sync::watch;
use trivet_images::{
    ImageFillProgress, ImageFillVerdict, ImageFormat, ImageMetadata, ImageSpec, SOURCES_MAX,
};
use trivet_model::secret::without_url_credentials;

/// Longest `.json` that is read.
const METADATA_BYTES_MAX: u64 = 64 * 1024;

/// An image that is being filled or verified, or is complete. When received bytes turn
/// out to be wrong, the image gets a new entry, and the readers of this one are
/// disconnected.
pub(super) struct CacheEntry {
    pub(super) file: Arc<File>,
    progress: watch::Sender<ImageFillProgress>,
    /// Each reader holds a clone, so the reference count is the number of readers.
    readers: Arc<()>,
    /// Expected size in bytes, where readers do not know it yet.
    expected: AtomicU64,
}

impl CacheEntry {
    /// Opens the existing file in the cache, or creates an empty one.
    pub(super) fn open(root: &Path, key: &str, whole: bool) -> io::Result<Self> {
        let end = if whole { "whole" } else { "part" };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join(format!("{key}.{end}")))?;
        Ok(Self {
            file: Arc::new(file),
            progress: watch::Sender::new(ImageFillProgress::new()),
            readers: Arc::new(()),
            expected: AtomicU64::new(0),
        })
    }

    /// Creates an empty file in place of any other. Open handles to the old file stay
    /// valid.
    pub(super) fn create(root: &Path, key: &str) -> io::Result<Self> {
        for end in ["part", "whole", "chunks"] {
            match std::fs::remove_file(root.join(format!("{key}.{end}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Self::open(root, key, false)
    }

    /// Creates an empty file for the disk in the image with this key. Files with this
    /// suffix are never served.
    pub(super) fn create_for_unpacking(root: &Path, key: &str) -> io::Result<Self> {
        Self::new_file(&root.join(format!("{key}.unpack")))
    }

    /// Creates an empty file of this name in place of any other.
    pub(super) fn new_file(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Self {
            file: Arc::new(file),
            progress: watch::Sender::new(ImageFillProgress::new()),
            readers: Arc::new(()),
            expected: AtomicU64::new(0),
        })
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

    pub(super) fn hashed(&self) -> u64 {
        self.progress.borrow().hashed
    }

    /// The bytes that its file takes on the disk.
    pub(super) fn on_disk(&self) -> u64 {
        self.file.metadata().map_or(0, |facts| facts.len())
    }

    /// Its size, or the expected size while it is not complete.
    pub(super) fn total_bytes(&self) -> u64 {
        let size = self.progress.borrow().size.unwrap_or(0);
        let expected = self.expected.load(Ordering::Relaxed);
        self.on_disk().max(size).max(expected)
    }

    /// Sets the expected size, which the space calculation uses.
    pub(super) fn set_expected(&self, bytes: u64) {
        self.expected.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are not received yet.
    pub(super) fn missing_bytes(&self) -> u64 {
        self.total_bytes() - self.on_disk()
    }

    /// Whether it has readers.
    pub(super) fn is_read(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    pub(super) fn mark_verified(&self) {
        self.progress
            .send_modify(|follow| follow.verdict = ImageFillVerdict::Verified);
    }

    /// Ends all reads; current and later readers receive this reason.
    pub(super) fn fail(&self, why: &str) {
        self.progress
            .send_modify(|follow| follow.verdict = ImageFillVerdict::Failed(why.to_owned()));
    }

    /// Neither verified nor failed yet.
    pub(super) fn is_pending(&self) -> bool {
        self.progress.borrow().verdict == ImageFillVerdict::Pending
    }

    /// Waits until it is verified or has failed.
    pub(super) async fn finished(&self) {
        let mut follow = self.progress.subscribe();
        // We hold the sender, so the wait ends only with a final state.
        let _ = follow
            .wait_for(|follow| follow.verdict != ImageFillVerdict::Pending)
            .await;
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

    /// The same reader, but not counted as one.
    pub(super) fn uncounted(self) -> Self {
        Self {
            _counted: Arc::new(()),
            ..self
        }
    }

    pub(super) fn entry(&self) -> &Arc<CacheEntry> {
        &self.entry
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.entry.file
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

    /// Waits until it is complete and verified; returns its size.
    pub(super) async fn wait_whole(&mut self) -> Result<u64, String> {
        self.finished().await?;
        self.size().await
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

/// Writes metadata next to the image, atomically.
pub(super) fn write_metadata(kept: &ImageMetadata, root: &Path) -> io::Result<()> {
    let key = kept.spec.key();
    // Sources with credentials are not stored; the next order for the image names them
    // again.
    let open = |source: &&String| without_url_credentials(source).is_none();
    let sources: Vec<&String> = kept.spec.sources.iter().filter(open).collect();
    let name = &kept.spec.name;
    let text = json!({
        "name": without_url_credentials(name).unwrap_or_else(|| name.clone()),
        "sources": sources,
        "format": kept.spec.format.name(),
        "size": kept.size,
        "validator": kept.validator,
        "from": kept.unpacked_from,
    });
    write_record(root, &format!("{key}.json"), &text)
}

/// Writes a record atomically.
pub(super) fn write_record(root: &Path, name: &str, text: &Value) -> io::Result<()> {
    let new = root.join(format!("{name}.new"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.to_string().as_bytes())?;
    file.sync_data()?;
    std::fs::rename(new, root.join(name))?;
    File::open(root)?.sync_all()
}

/// Reads a record; none if it is not one of ours.
pub(super) fn read_record(path: &Path) -> Option<Value> {
    if path.metadata().ok()?.len() > METADATA_BYTES_MAX {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// The image that a record describes.
pub(super) fn spec_of_record(key: &str, value: &Value) -> Option<ImageSpec> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let sources = value["sources"].as_array()?.iter().filter_map(text);
    Some(ImageSpec {
        name: text(&value["name"])?,
        digest: trivet_images::ImageKey::parse(key)?.0,
        sources: sources.take(SOURCES_MAX).collect(),
        format: value["format"]
            .as_str()
            .and_then(ImageFormat::parse)
            .unwrap_or_default(),
    })
}

/// The metadata of the image with this key; none if it cannot be read.
pub(super) fn read_metadata(root: &Path, key: &str) -> Option<ImageMetadata> {
    let value = read_record(&root.join(format!("{key}.json")))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(ImageMetadata {
        spec: spec_of_record(key, &value)?,
        size: value["size"].as_u64(),
        validator: text(&value["validator"]),
        whole: root.join(format!("{key}.whole")).is_file(),
        unpacked_from: text(&value["from"]),
    })
}

/// The content of the cache directory.
#[derive(Default)]
pub(super) struct CacheScan {
    pub(super) images: Vec<ImageMetadata>,
    /// Which disk was unpacked from which image.
    pub(super) derived_images: Vec<DerivedImage>,
    /// Keys of images whose unpacking was interrupted.
    pub(super) interrupted: Vec<String>,
}

/// Lists everything in the cache. Removes files that cannot be used any more.
pub(super) fn scan(root: &Path) -> io::Result<CacheScan> {
    let mut found = CacheScan::default();
    for file in std::fs::read_dir(root)?.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some((key, end)) = super::key_of(&name) else {
            continue;
        };
        let key = key.to_string();
        if end == "disk"
            && let Some(link) = DerivedImage::read(root, &key)
        {
            found.derived_images.push(link);
            continue;
        }
        if end == "unpack" {
            // An incomplete disk cannot be used: it is unpacked again.
            std::fs::remove_file(file.path())?;
            found.interrupted.push(key);
            continue;
        }
        let kept = read_metadata(root, &key);
        match (kept, end) {
            (Some(kept), "json") => found.images.push(kept),
            // Without its record the content is unknown, and this one was never
            // finished.
            (None, _) | (_, "json.new" | "disk" | "disk.new") => {
                std::fs::remove_file(file.path())?;
            }
            _ => {}
        }
    }
    Ok(found)
}
