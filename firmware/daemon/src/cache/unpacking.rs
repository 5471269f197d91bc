//! Unpacks a disk on a thread. No byte of a packed image is parsed before its digest is verified,
//! and every chunk of it is verified again as it is read.

use std::io;
use std::sync::{Arc, PoisonError};

use trivet_images::{ImageFormat, ImageKey, ImageUnpackError, ImageWorkReport};
use trivet_model::Digest;
use trivet_unpack::Packing;

use super::ImageCache;
use super::checking::read_list;
use super::entry::CacheEntry;
use super::filling::disk_error;
use super::unpack_worker::{DiskUnpackError, UnpackWorker};

/// The packing of a format; none for images that are read as they are.
fn packing(format: ImageFormat) -> Option<Packing> {
    match format {
        ImageFormat::Qcow2 => Some(Packing::Qcow2),
        ImageFormat::Zstd => Some(Packing::Zstd),
        ImageFormat::Gzip => Some(Packing::Gzip),
        ImageFormat::Xz => Some(Packing::Xz),
        ImageFormat::Raw | ImageFormat::Iso | ImageFormat::Kernel | ImageFormat::Ramdisk => None,
    }
}

impl From<DiskUnpackError> for ImageUnpackError {
    fn from(error: DiskUnpackError) -> Self {
        match error {
            DiskUnpackError::Refused(refusal) => Self::Refused(refusal.to_string()),
            DiskUnpackError::NoSpace { bytes, why } => Self::NoSpace { bytes, why },
            DiskUnpackError::Disk(error) => Self::Disk(disk_error(&error)),
            DiskUnpackError::Corrupt => Self::Corrupt,
            DiskUnpackError::Removed => Self::Closed,
        }
    }
}

impl ImageCache {
    /// Unpacks an image into the file of another entry, or only these chunks of it.
    pub(super) fn unpack(
        &self,
        (from, size, format): (Arc<CacheEntry>, u64, ImageFormat),
        into: Arc<CacheEntry>,
        only: Option<Vec<u64>>,
    ) {
        let cache = self.clone();
        let thread = std::thread::Builder::new().name("unpack".to_owned());
        let target = Arc::clone(&into);
        let started = thread.spawn(move || {
            let result = cache.run_unpack((from, size, format), &target, only);
            cache.report_unpacked(&target, result);
        });
        if let Err(error) = started {
            self.report_unpacked(&into, Err(ImageUnpackError::Disk(disk_error(&error))));
        }
    }

    fn report_unpacked(&self, into: &CacheEntry, result: Result<(Digest, u64), ImageUnpackError>) {
        let into = into.id;
        self.report(ImageWorkReport::Unpacked { into, result });
    }

    fn run_unpack(
        &self,
        (from, size, format): (Arc<CacheEntry>, u64, ImageFormat),
        into: &Arc<CacheEntry>,
        only: Option<Vec<u64>>,
    ) -> Result<(Digest, u64), ImageUnpackError> {
        let disk = |error: io::Error| ImageUnpackError::Disk(disk_error(&error));
        let refused = || ImageUnpackError::Refused(format!("is not packed: it is {format}"));
        let packing = packing(format).ok_or_else(refused)?;
        let ImageKey(digest) = from.image_key().map_err(disk)?;
        let list = self.0.root.join(format!("{}.chunks", ImageKey(digest)));
        let image = (
            from.file().map_err(disk)?,
            read_list(&list, &digest),
            digest,
            size,
        );
        let file = into.file().map_err(disk)?;
        let needs_space = only.is_none();
        let worker = UnpackWorker::new(image, (Arc::clone(into), file), only);
        let made = worker.run(packing, &|bytes| {
            if needs_space {
                self.await_unpack_space(into, bytes)
            } else {
                // Its space is already reserved.
                Ok(())
            }
        })?;
        let mut unpacked = into.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        *unpacked = Some(made.list);
        Ok((made.digest, made.size))
    }

    /// Waits for the answer of the library, or until the entry is closed.
    fn await_unpack_space(&self, into: &CacheEntry, bytes: u64) -> Result<(), String> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        into.await_space(reply);
        let into = into.id;
        self.report(ImageWorkReport::UnpackNeedsSpace { into, bytes });
        answer
            .recv()
            .unwrap_or_else(|_| Err("it was removed meanwhile".to_owned()))
    }
}
