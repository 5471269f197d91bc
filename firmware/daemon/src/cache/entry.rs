//! One image in the cache: its files, and how far it may be read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::link::Link;
use serde_json::{Value, json};
use tokio::sync::watch;
use trivet_images::{Ending, Follow, Format, SOURCES_MAX, Wanted};
use trivet_model::secret::without_url_credentials;

/// Longest `.json` that is read.
const KEPT_BYTES_MAX: u64 = 64 * 1024;

/// An image that is being filled or checked, or is whole. When what has come turns out
/// to be wrong, the image gets another entry, and this one's readers are cut off.
pub(super) struct Entry {
    pub(super) file: Arc<File>,
    follow: watch::Sender<Follow>,
    /// Readers have a clone each.
    readers: Arc<()>,
    /// Bytes it will have, where its readers do not hear of that yet.
    expected: AtomicU64,
}

impl Entry {
    /// The file as it lies in the cache, or an empty one.
    pub(super) fn at(root: &Path, key: &str, whole: bool) -> io::Result<Self> {
        let end = if whole { "whole" } else { "part" };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join(format!("{key}.{end}")))?;
        Ok(Self {
            file: Arc::new(file),
            follow: watch::Sender::new(Follow::new()),
            readers: Arc::new(()),
            expected: AtomicU64::new(0),
        })
    }

    /// An empty file in place of any other. Whoever has the old one open keeps it.
    pub(super) fn fresh(root: &Path, key: &str) -> io::Result<Self> {
        for end in ["part", "whole", "chunks"] {
            match std::fs::remove_file(root.join(format!("{key}.{end}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Self::at(root, key, false)
    }

    /// An empty file for the disk in the image with this key. No name that is ever
    /// served ends so.
    pub(super) fn unpacking(root: &Path, key: &str) -> io::Result<Self> {
        Self::new_file(&root.join(format!("{key}.unpack")))
    }

    /// An empty file of this name in place of any other.
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
            follow: watch::Sender::new(Follow::new()),
            readers: Arc::new(()),
            expected: AtomicU64::new(0),
        })
    }

    pub(super) fn size_is(&self, size: u64) {
        self.follow.send_if_modified(|follow| {
            let new = follow.size != Some(size);
            follow.size = Some(size);
            new
        });
    }

    pub(super) fn hashed_is(&self, hashed: u64) {
        self.follow.send_modify(|follow| follow.hashed = hashed);
    }

    pub(super) fn hashed(&self) -> u64 {
        self.follow.borrow().hashed
    }

    /// Bytes it has on the disk.
    pub(super) fn on_disk(&self) -> u64 {
        self.file.metadata().map_or(0, |facts| facts.len())
    }

    /// Bytes it has, or will have once it is whole.
    pub(super) fn claims(&self) -> u64 {
        let size = self.follow.borrow().size.unwrap_or(0);
        let expected = self.expected.load(Ordering::Relaxed);
        self.on_disk().max(size).max(expected)
    }

    /// It will have so many bytes; others count on that.
    pub(super) fn expects(&self, bytes: u64) {
        self.expected.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are still to come.
    pub(super) fn lacks(&self) -> u64 {
        self.claims() - self.on_disk()
    }

    /// Whether somebody reads it.
    pub(super) fn is_read(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    pub(super) fn right(&self) {
        self.follow
            .send_modify(|follow| follow.ending = Ending::Right);
    }

    /// Nobody reads on, and everybody who tries hears why.
    pub(super) fn cut(&self, why: &str) {
        self.follow
            .send_modify(|follow| follow.ending = Ending::Wrong(why.to_owned()));
    }

    /// Neither right nor given up yet.
    pub(super) fn is_open(&self) -> bool {
        self.follow.borrow().ending == Ending::Open
    }

    /// Waits until it is right or given up.
    pub(super) async fn settled(&self) {
        let mut follow = self.follow.subscribe();
        // The sender is ours, so waiting ends with an ending only.
        let _ = follow
            .wait_for(|follow| follow.ending != Ending::Open)
            .await;
    }
}

/// Somebody who reads an image.
pub(crate) struct Reader {
    entry: Arc<Entry>,
    follow: watch::Receiver<Follow>,
    _counted: Arc<()>,
}

impl Reader {
    pub(super) fn new(entry: Arc<Entry>) -> Self {
        let follow = entry.follow.subscribe();
        let counted = Arc::clone(&entry.readers);
        Self {
            entry,
            follow,
            _counted: counted,
        }
    }

    /// The same, without counting as one who reads.
    pub(super) fn quiet(self) -> Self {
        Self {
            _counted: Arc::new(()),
            ..self
        }
    }

    pub(super) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.entry.file
    }

    /// How large the image is, as soon as that is known.
    pub(crate) async fn size(&mut self) -> Result<u64, String> {
        let known = |follow: &Follow| follow.size.is_some() || follow.ending != Ending::Open;
        let follow = self.follow.wait_for(known).await;
        let follow = follow.map_err(|_| "the box is stopping".to_owned())?;
        match (&follow.ending, follow.size) {
            (Ending::Wrong(why), _) => Err(why.clone()),
            (_, Some(size)) => Ok(size),
            (_, None) => Err("its size is not known".to_owned()),
        }
    }

    /// Waits until it is right, or given up with a sentence.
    pub(crate) async fn settled(&mut self) -> Result<(), String> {
        let follow = self.follow.wait_for(|follow| follow.ending != Ending::Open);
        let follow = follow.await.map_err(|_| "the box is stopping".to_owned())?;
        match &follow.ending {
            Ending::Wrong(why) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until all of it is here and right; tells its size.
    pub(super) async fn whole(&mut self) -> Result<u64, String> {
        self.settled().await?;
        self.size().await
    }

    /// Up to which byte may be read now; none of an image that turned out to be wrong.
    pub(crate) fn readable_now(&self) -> u64 {
        self.follow.borrow().readable()
    }

    /// Up to which byte may be read, as soon as that is beyond this one.
    pub(crate) async fn readable(&mut self, beyond: u64) -> Result<u64, String> {
        let follow = self.follow.wait_for(|follow| follow.concerns(beyond));
        let follow = follow.await.map_err(|_| "the box is stopping".to_owned())?;
        match &follow.ending {
            Ending::Wrong(why) => Err(why.clone()),
            _ => Ok(follow.readable()),
        }
    }
}

/// What the cache remembers of an image over a restart.
pub(super) struct Kept {
    pub(super) wanted: Wanted,
    pub(super) size: Option<u64>,
    pub(super) validator: Option<String>,
    pub(super) whole: bool,
    /// Of a disk that was in a packed image: that image's key.
    pub(super) from: Option<String>,
}

impl Kept {
    /// Nothing is here yet.
    pub(super) fn fresh(wanted: &Wanted) -> Self {
        Self {
            wanted: wanted.clone(),
            size: None,
            validator: None,
            whole: false,
            from: None,
        }
    }

    /// Puts it beside the image, all or nothing.
    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        let key = self.wanted.key();
        // Sources with credentials are asked for again where the image is wanted.
        let open = |source: &&String| without_url_credentials(source).is_none();
        let sources: Vec<&String> = self.wanted.sources.iter().filter(open).collect();
        let name = &self.wanted.name;
        let text = json!({
            "name": without_url_credentials(name).unwrap_or_else(|| name.clone()),
            "sources": sources,
            "format": self.wanted.format.name(),
            "size": self.size,
            "validator": self.validator,
            "from": self.from,
        });
        write_text(root, &format!("{key}.json"), &text)
    }
}

/// Writes a record, all or nothing.
pub(super) fn write_text(root: &Path, name: &str, text: &Value) -> io::Result<()> {
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

/// Reads a record; none if it is no record of ours.
pub(super) fn read_text(path: &Path) -> Option<Value> {
    if path.metadata().ok()?.len() > KEPT_BYTES_MAX {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// The image that a record is about.
pub(super) fn wanted(key: &str, value: &Value) -> Option<Wanted> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let sources = value["sources"].as_array()?.iter().filter_map(text);
    Some(Wanted {
        name: text(&value["name"])?,
        digest: trivet_images::Key::parse(key)?.0,
        sources: sources.take(SOURCES_MAX).collect(),
        format: value["format"]
            .as_str()
            .and_then(Format::parse)
            .unwrap_or_default(),
    })
}

/// What is kept of the image with this key; none if it cannot be read.
pub(super) fn kept(root: &Path, key: &str) -> Option<Kept> {
    let value = read_text(&root.join(format!("{key}.json")))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(Kept {
        wanted: wanted(key, &value)?,
        size: value["size"].as_u64(),
        validator: text(&value["validator"]),
        whole: root.join(format!("{key}.whole")).is_file(),
        from: text(&value["from"]),
    })
}

/// What is in the cache.
#[derive(Default)]
pub(super) struct Found {
    pub(super) kept: Vec<Kept>,
    /// Which disk was in which image.
    pub(super) links: Vec<Link>,
    /// Keys of images whose disk was being taken out.
    pub(super) interrupted: Vec<String>,
}

/// Everything in the cache. What nobody can use any more is removed.
pub(super) fn scan(root: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    for file in std::fs::read_dir(root)?.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some((key, end)) = super::key_of(&name) else {
            continue;
        };
        let key = key.to_string();
        if end == "disk"
            && let Some(link) = Link::read(root, &key)
        {
            found.links.push(link);
            continue;
        }
        if end == "unpack" {
            // A disk that is not whole is nothing: it is made anew.
            std::fs::remove_file(file.path())?;
            found.interrupted.push(key);
            continue;
        }
        let kept = kept(root, &key);
        match (kept, end) {
            (Some(kept), "json") => found.kept.push(kept),
            // Without its record nobody knows what it is, and this one was never
            // finished.
            (None, _) | (_, "json.new" | "disk" | "disk.new") => {
                std::fs::remove_file(file.path())?;
            }
            _ => {}
        }
    }
    Ok(found)
}
