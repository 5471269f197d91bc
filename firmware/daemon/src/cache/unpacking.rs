//! The disk in a packed image is taken out once, and lies in the cache as an image of
//! its own, whose key is its own digest.
//!
//! Nothing of an image is looked at before its digest was right, and every chunk of it
//! is checked again as it is read. The disk grows in a file whose name is never served
//! (`.unpack`); readers wait at its entry until it is whole and on the disk, with its
//! chunk list. What was interrupted by a power cut is made anew. A disk that has changed
//! in the cache is mended from its image, which is fetched again if it had to go.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;
use trivet_images::{Failure, Format, Key, Wanted};
use trivet_model::image::{ImageState, Unpacked};
use trivet_unpack::{MAGIC_BYTES, Packing};

use super::checking;
use super::entry::{self, Entry, Kept, Reader};
use super::link::Link;
use super::taking::{Made, Taking, Trouble};
use super::{Asked, Cache, ENTRIES_MAX, Slot, SlotState};

/// What is behind the key of an image whose disk is being made, where room is counted.
pub(super) const MAKING_END: &str = ".unpack";

/// A disk on its way out of its image.
pub(super) struct Making {
    pub(super) wanted: Wanted,
    pub(super) entry: Arc<Entry>,
    /// It was given up, and when it may be tried again.
    failed: Option<Instant>,
}

/// Why there is no disk.
pub(super) enum Why {
    /// The image itself is not to be had, which was told.
    Told(String),
    /// Something about the disk.
    New(Failure),
}

/// Which packing a format is; none for images that are read as they are.
fn packing(format: Format) -> Option<Packing> {
    match format {
        Format::Qcow2 => Some(Packing::Qcow2),
        Format::Zstd => Some(Packing::Zstd),
        Format::Gzip => Some(Packing::Gzip),
        Format::Xz => Some(Packing::Xz),
        Format::Raw | Format::Iso | Format::Kernel | Format::Ramdisk => None,
    }
}

/// An image that is said to be a disk as it is, and is none, is refused. Only qcow2 is
/// looked for: a machine that was written with it would not start, and its agent would
/// look into it.
pub(super) fn check_said(wanted: &Wanted, entry: &Entry) -> Result<(), Failure> {
    use std::os::unix::fs::FileExt as _;
    if wanted.format != Format::Raw {
        return Ok(());
    }
    let mut first = [0; MAGIC_BYTES];
    let read = entry.file.read_at(&mut first, 0);
    let read = read.map_err(|error| Failure::Disk {
        image: wanted.name.clone(),
        why: error.to_string(),
    })?;
    if Packing::of_magic(&first[..read]) != Some(Packing::Qcow2) {
        return Ok(());
    }
    Err(Failure::Format {
        image: wanted.name.clone(),
        why: "is said to be raw, but its first bytes are those of qcow2; say so: --format qcow2 \
              in the catalogue, image_disk_format=qcow2 for a node"
            .to_owned(),
    })
}

impl Cache {
    /// Opens the disk in a packed image for reading; it is made if it is not there.
    pub(super) fn disk(&self, wanted: &Wanted, asked: Asked) -> Result<Reader, String> {
        let key = wanted.key().to_string();
        let mut makings = self.makings();
        if let Some(reader) = self.made(&key, asked)? {
            return Ok(reader);
        }
        if let Some(making) = makings.get(&key)
            && making
                .failed
                .is_none_or(|until| until > Instant::now() && matches!(asked, Asked::Read))
            && making.wanted.format == wanted.format
        {
            return Ok(Reader::new(Arc::clone(&making.entry)));
        }
        if makings.len() >= ENTRIES_MAX {
            return Err(format!("the cache has {ENTRIES_MAX} images; remove some"));
        }
        let entry = Entry::unpacking(&self.0.root, &key);
        let entry = entry.map_err(|error| format!("the cache cannot make a file: {error}"))?;
        let entry = Arc::new(entry);
        let making = Making {
            wanted: wanted.clone(),
            entry: Arc::clone(&entry),
            failed: None,
        };
        if let Some(old) = makings.insert(key.clone(), making) {
            old.entry.cut("it is unpacked as something else");
        }
        let reader = Reader::new(Arc::clone(&entry));
        tokio::spawn(self.clone().make(key, wanted.clone(), entry, asked));
        Ok(reader)
    }

    /// A disk that was made before.
    fn made(&self, key: &str, asked: Asked) -> Result<Option<Reader>, String> {
        let mut slots = self.slots();
        let mut links = self.links();
        let Some(raw) = links.get(key).map(|link| link.raw.to_string()) else {
            return Ok(None);
        };
        let lost = match slots.get(&raw) {
            None => true,
            Some(slot) if matches!(slot.state, SlotState::Failed(_)) => {
                entry::kept(&self.0.root, &raw).is_none()
            }
            Some(_) => false,
        };
        if lost {
            links.remove(key);
            Link::remove(&self.0.root, key);
            return Ok(None);
        }
        let Some(slot) = slots.get_mut(&raw) else {
            return Ok(None);
        };
        if let (SlotState::Failed(until), Asked::Order) = (&mut slot.state, asked) {
            *until = Instant::now();
        }
        slot.used_at_ms = self.0.ways.clock.now().tick.0;
        let own = slot.wanted.clone();
        self.ask_again(&raw, slot, &own)?;
        self.begin(&raw, slot);
        Ok(Some(Reader::new(Arc::clone(&slot.entry))))
    }

    /// Brings a disk to its end, well or not.
    async fn make(self, key: String, wanted: Wanted, entry: Arc<Entry>, asked: Asked) {
        let went = self.take_out(&key, &wanted, &entry, asked).await;
        let went = went.and_then(|(size, made)| {
            self.publish(&key, &wanted, &entry, size, &made)
                .map(|()| size)
                .map_err(|error| Why::New(self.disk_failed(&key, &wanted, &error)))
        });
        let why = match went {
            Ok(size) => return self.tell(&wanted, Some(size), size, ImageState::Whole),
            Err(Why::Told(why)) => why,
            Err(Why::New(failure)) => {
                let why = failure.to_string();
                let state = failure.image_state();
                if entry.is_open() {
                    self.tell(&wanted, None, 0, state);
                }
                why
            }
        };
        let mut makings = self.makings();
        if let Some(making) = makings.get_mut(&key)
            && Arc::ptr_eq(&making.entry, &entry)
        {
            // An empty file stays: after a restart it is tried again, and told again.
            let _ = entry.file.set_len(0);
            entry.expects(0);
            making.failed = Some(Instant::now() + self.0.ways.failed_rest);
        }
        entry.cut(&why);
    }

    /// Waits for the image, and unpacks it on a thread of its own.
    async fn take_out(
        &self,
        key: &str,
        wanted: &Wanted,
        entry: &Arc<Entry>,
        asked: Asked,
    ) -> Result<(u64, Made), Why> {
        let (size, original) = self.original(key, wanted, asked).await?;
        self.tell(wanted, Some(size), size, ImageState::Unpacking);
        let made = self
            .unpack(key, wanted, (size, &original), entry, None)
            .await;
        Ok((size, made.map_err(Why::New)?))
    }

    /// The packed image, all of it and right, which stays as long as it is read. Until it
    /// is here nobody counts as its reader who does not read the disk.
    pub(super) async fn original(
        &self,
        key: &str,
        wanted: &Wanted,
        mut asked: Asked,
    ) -> Result<(u64, Reader), Why> {
        loop {
            let mut quiet = self.plain(wanted, asked).map_err(Why::Told)?.quiet();
            asked = Asked::Read;
            if let Err(why) = quiet.whole().await {
                if self.is_current(key, quiet.entry()) {
                    return Err(Why::Told(why));
                }
                // The source has another file now, which is on its way.
                if !self.slots().contains_key(key) {
                    return Err(Why::Told("it was removed".to_owned()));
                }
                continue;
            }
            let mut reader = self.plain(wanted, asked).map_err(Why::Told)?;
            if let Ok(size) = reader.whole().await {
                return Ok((size, reader));
            }
        }
    }

    /// Unpacks an image into the file of this entry, or only these chunks of it.
    pub(super) async fn unpack(
        &self,
        key: &str,
        wanted: &Wanted,
        original: (u64, &Reader),
        entry: &Arc<Entry>,
        only: Option<Vec<u64>>,
    ) -> Result<Made, Failure> {
        let image = wanted.name.clone();
        let unpacked_as = packing(wanted.format).ok_or_else(|| Failure::Format {
            image: image.clone(),
            why: format!("is not packed: it is {}", wanted.format),
        })?;
        let (size, reader) = original;
        let list = checking::read_list(self, key, &wanted.digest);
        let room_key = only.is_none().then(|| format!("{key}{MAKING_END}"));
        let cache = self.clone();
        let taking = Taking::new(
            (Arc::clone(reader.file()), list, wanted.digest, size),
            Arc::clone(entry),
            only,
        );
        let making = Arc::clone(entry);
        let room = move |bytes| match &room_key {
            Some(key) => {
                cache.make_room(key, bytes)?;
                making.expects(bytes);
                Ok(())
            }
            // Its place is its own already.
            None => Ok(()),
        };
        let (reply, answer) = oneshot::channel();
        let thread = std::thread::Builder::new().name("unpack".to_owned());
        let started = thread.spawn(move || {
            let _ = reply.send(taking.run(unpacked_as, &room));
        });
        started.map_err(|error| self.disk_failed(key, wanted, &error))?;
        let gone = || {
            let error = std::io::Error::other("the thread has ended");
            self.disk_failed(key, wanted, &error)
        };
        let went = answer.await.map_err(|_| gone())?;
        went.map_err(|trouble| match trouble {
            Trouble::Refused(refusal) => Failure::Format {
                image,
                why: refusal.to_string(),
            },
            Trouble::NoRoom { bytes, why } => Failure::NoRoom { image, bytes, why },
            Trouble::Disk(error) => self.disk_failed(key, wanted, &error),
            Trouble::Rotten => {
                self.distrust(key);
                let why = "it has changed on this box's disk; it is checked again".to_owned();
                Failure::Disk { image, why }
            }
            Trouble::Removed => Failure::Disk {
                image,
                why: "it was removed meanwhile".to_owned(),
            },
        })
    }

    /// From now on the disk is an image of the cache. Its record comes last: what has
    /// none is swept away at the next start.
    fn publish(
        &self,
        key: &str,
        wanted: &Wanted,
        entry: &Arc<Entry>,
        size: u64,
        made: &Made,
    ) -> std::io::Result<()> {
        let mut makings = self.makings();
        let ours = |making: &Making| Arc::ptr_eq(&making.entry, entry);
        if !makings.get(key).is_some_and(ours) {
            return Err(std::io::Error::other("it was removed meanwhile"));
        }
        let raw = Key(made.digest);
        let raw_key = raw.to_string();
        let mut slots = self.slots();
        // The same disk may be here already, from another image or as one of its own.
        let there = slots
            .get(&raw_key)
            .is_some_and(|slot| matches!(slot.state, SlotState::Busy | SlotState::Whole));
        let growing = self.path(key, "unpack");
        if there {
            std::fs::remove_file(growing)?;
        } else {
            let path = self.path(&raw_key, "chunks");
            std::fs::write(&path, made.list.bytes())?;
            std::fs::File::open(path)?.sync_all()?;
            std::fs::rename(growing, self.path(&raw_key, "whole"))?;
            let kept = Kept {
                wanted: Wanted {
                    name: wanted.name.clone(),
                    digest: made.digest,
                    sources: Vec::new(),
                    format: Format::Raw,
                },
                size: Some(made.size),
                validator: None,
                whole: true,
                from: Some(key.to_owned()),
            };
            kept.write(&self.0.root)?;
            let slot = Slot {
                wanted: kept.wanted,
                entry: Arc::clone(entry),
                state: SlotState::Whole,
                used_at_ms: self.0.ways.clock.now().tick.0,
            };
            slots.insert(raw_key, slot);
        }
        let link = Link {
            wanted: wanted.clone(),
            size,
            raw,
            raw_size: made.size,
        };
        link.write(&self.0.root)?;
        self.links().insert(key.to_owned(), link);
        makings.remove(key);
        entry.expects(0);
        entry.size_is(made.size);
        entry.hashed_is(made.size);
        entry.right();
        Ok(())
    }

    /// Whether the disk in this image is being made, and whether somebody waits for it.
    pub(super) fn is_making(&self, key: &str) -> bool {
        let makings = self.makings();
        makings.get(key).is_some_and(|it| it.failed.is_none())
    }

    pub(super) fn is_disk_read(&self, key: &str) -> bool {
        let makings = self.makings();
        makings.get(key).is_some_and(|it| it.entry.is_read())
    }

    /// The disk in this image, if it is in the cache and right.
    pub(super) fn unpacked(&self, wanted: &Wanted) -> Option<Unpacked> {
        if !wanted.format.is_packed() {
            return None;
        }
        let slots = self.slots();
        let links = self.links();
        let link = links.get(&wanted.key().to_string())?;
        let slot = slots.get(&link.raw.to_string())?;
        matches!(slot.state, SlotState::Whole).then_some(Unpacked {
            digest: link.raw.0,
            size: link.raw_size,
        })
    }

    /// The key of what is read by whoever wants this image: its own, or that of the disk
    /// in it, if that was taken out.
    pub(crate) fn read_key(&self, wanted: &Wanted) -> Option<String> {
        let key = wanted.key().to_string();
        if wanted.format.is_packed() {
            return self.links().get(&key).map(|link| link.raw.to_string());
        }
        Some(key)
    }

    /// The images that this disk was in.
    pub(super) fn links_to(&self, raw: &str) -> Vec<Link> {
        let links = self.links();
        let all = links.values().filter(|link| link.raw.to_string() == raw);
        all.cloned().collect()
    }

    /// Goes on with what was interrupted.
    pub(super) fn unpack_again(&self, wanted: &Wanted) {
        // What goes wrong is told.
        let _ = self.disk(wanted, Asked::Order);
    }

    /// An image was removed: its disk goes as well, unless it was in another one too.
    pub(super) fn drop_disk(&self, key: &str) {
        if let Some(making) = self.makings().remove(key) {
            making.entry.cut("it was removed");
        }
        let _ = std::fs::remove_file(self.path(key, "unpack"));
        let Some(link) = self.links().remove(key) else {
            return;
        };
        Link::remove(&self.0.root, key);
        let raw = link.raw.to_string();
        let made = entry::kept(&self.0.root, &raw).is_some_and(|kept| kept.from.is_some());
        if made && self.links_to(&raw).is_empty() {
            self.drop_slot(&raw);
        }
    }

    /// These were evicted. Whoever shows images hears what became of them.
    pub(super) fn tell_evicted(&self, gone: Vec<(String, Wanted)>) {
        for (key, wanted) in gone {
            let disks = self.links_to(&key);
            for link in &disks {
                self.links().remove(&link.key());
                Link::remove(&self.0.root, &link.key());
            }
            if self.unpacked(&wanted).is_some() {
                // The disk is still here, which is all that nodes read.
                continue;
            }
            if disks.is_empty() {
                self.tell(&wanted, None, 0, ImageState::Gone);
            }
            for link in disks {
                let here = self.slots().contains_key(&link.key());
                let (size, have, state) = if here {
                    (Some(link.size), link.size, ImageState::Whole)
                } else {
                    (None, 0, ImageState::Gone)
                };
                self.tell(&link.wanted, size, have, state);
            }
        }
    }

    pub(super) fn makings(&self) -> MutexGuard<'_, BTreeMap<String, Making>> {
        let makings = self.0.makings.lock();
        makings.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn links(&self) -> MutexGuard<'_, BTreeMap<String, Link>> {
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
