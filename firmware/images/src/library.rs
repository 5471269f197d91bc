//! All images of the cache: the one state machine for catalogued, fetched, unpacked, uploaded and
//! evicted images.
//!
//! The library holds the state of each image and decides what happens to it. It gives the shell
//! orders ([`ImageWorkOrder`]), and the shell reports results ([`ImageWorkReport`]). The shell has
//! the files, the sources, the threads that hash and unpack, and the readers, who follow the
//! growing file without asking here. Bytes of an image never pass through: only their numbers and
//! digests.
//!
//! Nothing of the library is stored. After a restart [`ImageWorkOrder::Scan`] finds the files and
//! their records, and no byte is trusted before it is verified again. The orders for one image come
//! one after the other, except that a removed or replaced file is left to end by itself: its entry
//! is not that of the image any more, and its results are dropped.

mod disks;
mod fills;
mod messages;
mod repairs;
mod requests;
mod scrubs;
mod space;
mod statuses;
#[cfg(test)]
mod tests;
mod uploads;
mod urls;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_model::image::ImageStatus;
use trivet_model::{Digest, Now, OciReference, Tick, UnixMs};
use trivet_oci::{OciQuery, RegistryCredentials};

use crate::rate_limit::ImageFillWindow;
use crate::{ImageFillJob, ImageKey, ImageMetadata, ImageSpec};

use disks::DiskUnpack;
use repairs::DiskRepair;
use requests::EarlyRequest;
use scrubs::RunningScrub;
use space::SpacePurpose;
use statuses::{ShownImage, ShownKey, WrongImage};
use uploads::{ImageUploadJob, PendingUploadReply, UploadOffer};
use urls::UrlFetch;

pub use messages::{
    FileChecksum, FoundImage, FoundImages, ImageDiskError, ImageDiskUse, ImageEntryId,
    ImageEntryUse, ImageFileKind, ImageFileOrder, ImageUnpackError, ImageUploadAnswer,
    ImageUploadError, ImageUploadRange, ImageWorkOrder, ImageWorkReport, OciResolution,
    UnpackedDiskRecord,
};
pub use requests::ImageReadGrant;
pub use urls::{FetchedFile, ImageUrlAnswer};

/// The most images in the cache, including those being fetched. Ours.
pub const LIBRARY_IMAGES_MAX: usize = 4096;

/// Default delay before a failed fill is retried for a reader. Ours.
pub const RETRY_DELAY_MS: u64 = 10_000;

/// How images are fetched and kept, from the settings.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ImageLibraryOptions {
    /// When images are fetched without a waiting request.
    pub window: Option<ImageFillWindow>,
    /// How often all complete images are verified, in milliseconds.
    pub scrub_ms: Option<u64>,
    /// Size limit of the cache.
    pub quota_bytes: Option<u64>,
    /// The space that stays free for the store.
    pub reserve_bytes: u64,
    /// How long a failed fill is not retried for readers, in milliseconds. Meanwhile they receive
    /// the reason. An order retries it at once, because the operator may have repaired the cause.
    pub retry_delay_ms: u64,
}

/// The state of an image changed, or the answer to a request for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageNews {
    /// Its status, under the name by which it was requested.
    pub status: ImageStatus,
    /// It is another state than before.
    pub is_new_state: bool,
}

/// What is done with the file of an image.
#[derive(Debug)]
enum ImagePhase {
    /// Stored before the start, or not begun: work on it has not started.
    Stored,
    /// It is verified, repaired or fetched.
    Filling(Box<ImageFillJob>),
    /// A disk from a packed image is verified or repaired.
    Repairing(Box<DiskRepair>),
    /// It was hashed under another name and gets its final one.
    Storing,
    /// A client uploads it.
    Uploading(Box<ImageUploadJob>),
    /// Its first bytes are stored and verified; an upload can continue after them. The text is
    /// the error that readers receive.
    Partial {
        have: u64,
        size: Option<u64>,
        why: String,
    },
    /// Complete and verified.
    Whole,
    /// It failed; readers may cause a retry at this time.
    Failed {
        until: Tick,
        why: String,
        keeps_files: bool,
    },
}

/// The file of one image.
#[derive(Debug)]
struct LibraryImage {
    metadata: ImageMetadata,
    entry: ImageEntryId,
    phase: ImagePhase,
    /// When it was last requested; zero is never.
    used_at_ms: u64,
    /// When its record was last written because its source was compared.
    written_at: UnixMs,
    /// Somebody waits for it, so it is fetched at any hour.
    is_urgent: bool,
    /// The bytes that space was reserved for.
    expected_bytes: u64,
}

impl LibraryImage {
    fn is_whole(&self) -> bool {
        matches!(self.phase, ImagePhase::Whole)
    }

    /// Work on it is under way.
    fn is_busy(&self) -> bool {
        matches!(
            self.phase,
            ImagePhase::Filling(_)
                | ImagePhase::Repairing(_)
                | ImagePhase::Storing
                | ImagePhase::Uploading(_)
        )
    }
}

/// What an entry belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
enum EntryOwner {
    Image(ImageKey),
    /// The disk that is unpacked from this image.
    Unpack(ImageKey),
    Url(String),
}

/// All images of one box.
#[derive(Debug)]
pub struct ImageLibrary {
    options: ImageLibraryOptions,
    /// The stored images are known; before that, requests wait.
    is_open: bool,
    early: Vec<EarlyRequest>,
    images: BTreeMap<ImageKey, LibraryImage>,
    /// Unpacked disks, by the keys of the packed images.
    disks: BTreeMap<ImageKey, UnpackedDiskRecord>,
    /// Running and failed unpackings, by the keys of the packed images.
    unpacks: BTreeMap<ImageKey, DiskUnpack>,
    urls: BTreeMap<String, UrlFetch>,
    entries: BTreeMap<ImageEntryId, EntryOwner>,
    entry_count: u64,
    ticket_count: u64,
    /// Images that are never evicted.
    pinned: BTreeSet<ImageKey>,
    /// When each entry continues after a delay.
    timers: BTreeMap<ImageEntryId, Tick>,
    measurements: BTreeMap<u64, SpacePurpose>,
    scrubs: BTreeMap<u64, RunningScrub>,
    /// The images that the present scrub has not verified yet.
    scrub_queue: VecDeque<ImageKey>,
    scrub_at: Option<Tick>,
    /// Images found at the start that were not verified yet, and the one that is being verified.
    resume_queue: VecDeque<ImageKey>,
    resuming: Option<ImageKey>,
    waiting_uploads: Vec<UploadOffer>,
    upload_replies: BTreeMap<ImageKey, PendingUploadReply>,
    /// The status of each image that was requested, in each format in which it was requested.
    shown: BTreeMap<ShownKey, ShownImage>,
    /// Why images were wrong in a format when they were last fetched. An entry stays until the
    /// image is complete in that format.
    wrong: BTreeMap<ShownKey, WrongImage>,
    /// Requests that are answered when the image is complete or has failed.
    requested: BTreeMap<ImageKey, Vec<ImageSpec>>,
    /// Images whose work has ended, for those that wait for it.
    settled: VecDeque<ImageKey>,
    orders: Vec<ImageWorkOrder>,
    news: Vec<ImageNews>,
    url_answers: Vec<ImageUrlAnswer>,
    checksums: Vec<FileChecksum>,
    resolutions: Vec<OciResolution>,
}

impl ImageLibrary {
    /// A library without any image; [`Self::start`] finds the stored ones.
    pub fn new(options: ImageLibraryOptions) -> Self {
        Self {
            options,
            is_open: false,
            early: Vec::new(),
            images: BTreeMap::new(),
            disks: BTreeMap::new(),
            unpacks: BTreeMap::new(),
            urls: BTreeMap::new(),
            entries: BTreeMap::new(),
            entry_count: 0,
            ticket_count: 0,
            pinned: BTreeSet::new(),
            timers: BTreeMap::new(),
            measurements: BTreeMap::new(),
            scrubs: BTreeMap::new(),
            scrub_queue: VecDeque::new(),
            scrub_at: None,
            resume_queue: VecDeque::new(),
            resuming: None,
            waiting_uploads: Vec::new(),
            upload_replies: BTreeMap::new(),
            shown: BTreeMap::new(),
            wrong: BTreeMap::new(),
            requested: BTreeMap::new(),
            settled: VecDeque::new(),
            orders: Vec::new(),
            news: Vec::new(),
            url_answers: Vec::new(),
            checksums: Vec::new(),
            resolutions: Vec::new(),
        }
    }

    /// The box has started. Until the shell has listed the files, requests wait.
    pub fn start(&mut self) {
        self.orders.push(ImageWorkOrder::Scan);
    }

    /// Orders for the shell, in order.
    pub fn take_orders(&mut self) -> Vec<ImageWorkOrder> {
        std::mem::take(&mut self.orders)
    }

    /// Changes of states and answers, in order.
    pub fn take_news(&mut self) -> Vec<ImageNews> {
        std::mem::take(&mut self.news)
    }

    /// Answers to [`Self::fetch_url`], in order.
    pub fn take_url_answers(&mut self) -> Vec<ImageUrlAnswer> {
        std::mem::take(&mut self.url_answers)
    }

    /// Finds the digest of the file of this name in a checksum file; the answer comes from
    /// [`Self::take_checksums`].
    pub fn find_checksum(&mut self, url: &str, name: &str) {
        let (url, name) = (url.to_owned(), name.to_owned());
        self.orders.push(ImageWorkOrder::FindChecksum { url, name });
    }

    /// Answers to [`Self::find_checksum`], in order.
    pub fn take_checksums(&mut self) -> Vec<FileChecksum> {
        std::mem::take(&mut self.checksums)
    }

    /// Finds the disk image of a reference to a registry; the answer comes from
    /// [`Self::take_resolutions`].
    pub fn resolve_oci(&mut self, query: OciQuery) {
        self.orders
            .push(ImageWorkOrder::ResolveOci(Box::new(query)));
    }

    /// Answers to [`Self::resolve_oci`], in order.
    pub fn take_resolutions(&mut self) -> Vec<OciResolution> {
        std::mem::take(&mut self.resolutions)
    }

    /// Layers of the repository of this reference are fetched with these credentials from now on.
    pub fn use_pull_secret(&mut self, reference: OciReference, credentials: RegistryCredentials) {
        self.orders.push(ImageWorkOrder::UsePullSecret {
            reference,
            credentials,
        });
    }

    /// When [`Self::tick`] is due.
    pub fn deadline(&self) -> Option<Tick> {
        let timers = self.timers.values().copied();
        timers.chain(self.scrub_at).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        let due = |(entry, at): (&ImageEntryId, &Tick)| (*at <= now.tick).then_some(*entry);
        let due: Vec<ImageEntryId> = self.timers.iter().filter_map(due).collect();
        for entry in due {
            self.timers.remove(&entry);
            match self.entries.get(&entry).cloned() {
                Some(EntryOwner::Image(key)) => self.continue_fill(now, key),
                Some(EntryOwner::Url(url)) => self.continue_url(now, &url),
                Some(EntryOwner::Unpack(_)) | None => {}
            }
        }
        if self.scrub_at.is_some_and(|at| at <= now.tick) {
            self.start_scrub(now);
        }
        self.finish_input(now);
    }

    /// Handles a report of the shell.
    pub fn handle(&mut self, now: Now, report: ImageWorkReport) {
        match report {
            ImageWorkReport::Found(found) => self.found(now, *found),
            ImageWorkReport::File { entry, result } => match self.entries.get(&entry).cloned() {
                Some(EntryOwner::Image(key)) => self.image_file_result(now, key, result),
                Some(EntryOwner::Unpack(key)) => self.disk_stored(now, key, result),
                Some(EntryOwner::Url(url)) => self.url_result(now, &url, result),
                None => {}
            },
            ImageWorkReport::Received { entry, bytes } => self.received(now, entry, bytes),
            ImageWorkReport::Space { ticket, disk } => self.space_measured(now, ticket, &disk),
            ImageWorkReport::Scrubbed { ticket, is_right } => {
                self.scrubbed(now, ticket, is_right);
            }
            ImageWorkReport::UnpackNeedsSpace { into, bytes } => {
                self.unpack_needs_space(into, bytes);
            }
            ImageWorkReport::Unpacked { into, result } => self.unpacked(now, into, result),
            ImageWorkReport::UploadOffered {
                ticket,
                spec,
                range,
            } => {
                let spec = *spec;
                self.upload_offered(
                    now,
                    UploadOffer {
                        ticket,
                        spec,
                        range,
                    },
                );
            }
            ImageWorkReport::UploadEnded {
                entry,
                bytes,
                result,
            } => self.upload_ended(now, entry, bytes, result),
            ImageWorkReport::ChecksumFound(found) => self.checksums.push(*found),
            ImageWorkReport::OciResolved(found) => self.resolutions.push(*found),
        }
        self.finish_input(now);
    }

    /// What waited for images whose work has ended continues; then requests are answered.
    fn finish_input(&mut self, now: Now) {
        while let Some(key) = self.settled.pop_front() {
            self.packed_image_settled(now, key);
            self.correct_shown(key);
            self.upload_settled(key);
            self.retry_waiting_uploads(now, key);
            self.urls_settled(now, key);
            self.resume_settled(now, key);
        }
        self.verify_asked(now);
        self.answer_requests();
    }

    fn next_ticket(&mut self) -> u64 {
        self.ticket_count += 1;
        self.ticket_count
    }

    fn new_entry(&mut self, owner: EntryOwner) -> ImageEntryId {
        self.entry_count += 1;
        let entry = ImageEntryId(self.entry_count);
        self.entries.insert(entry, owner);
        entry
    }

    fn open_entry(
        &mut self,
        owner: EntryOwner,
        key: ImageKey,
        file: ImageFileKind,
    ) -> ImageEntryId {
        let entry = self.new_entry(owner);
        self.orders.push(ImageWorkOrder::Open { entry, key, file });
        entry
    }

    /// Ends an entry; its results are dropped from now on.
    fn close_entry(&mut self, entry: ImageEntryId) {
        if self.entries.remove(&entry).is_some() {
            self.timers.remove(&entry);
            self.orders.push(ImageWorkOrder::Close(entry));
        }
    }

    /// Ends an entry and removes its temporary file.
    fn discard_entry(&mut self, entry: ImageEntryId) {
        if self.entries.remove(&entry).is_some() {
            self.timers.remove(&entry);
            self.orders.push(ImageWorkOrder::Discard(entry));
        }
    }

    fn end_reads(&mut self, entry: ImageEntryId, why: &str, is_wrong: bool) {
        self.orders.push(ImageWorkOrder::EndReads {
            entry,
            why: why.to_owned(),
            is_wrong,
        });
    }

    fn order_file(&mut self, entry: ImageEntryId, order: ImageFileOrder) {
        self.orders.push(ImageWorkOrder::File { entry, order });
    }

    /// The image begins a new file; the old entry is closed.
    fn reopen(&mut self, key: ImageKey, file: ImageFileKind) {
        let entry = self.open_entry(EntryOwner::Image(key), key, file);
        let Some(image) = self.images.get_mut(&key) else {
            return;
        };
        let old = std::mem::replace(&mut image.entry, entry);
        self.close_entry(old);
    }

    /// These images are never evicted.
    pub fn pin(&mut self, digests: &[Digest]) {
        self.pinned = digests.iter().map(|digest| ImageKey(*digest)).collect();
    }
}
