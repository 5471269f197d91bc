//! Carries out the orders of the library on one file: requests to sources, hashing, and records.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use trivet_chunks::{CHUNK_BYTES, ChunkList};
use trivet_images::{
    ChunkFetchResult, ImageDiskError, ImageFileKind, ImageFileOrder, ImageFillResult,
    ImageMetadata, ImageSourceRequest, ImageWorkReport, UnpackedDiskRecord,
};
use trivet_unpack::{MAGIC_BYTES, Packing};

use super::checking::{self, read_list};
use super::entry::{CacheEntry, FETCH_SUFFIX, UNPACK_SUFFIX, remove_if_there};
use super::hashing::ImageHasher;
use super::origin::OriginResponse;
use super::receiving::no_hashing;
use super::{ImageCache, records};

pub(super) fn disk_error(error: &io::Error) -> ImageDiskError {
    ImageDiskError {
        why: error.to_string(),
        is_full: error.kind() == io::ErrorKind::StorageFull,
    }
}

impl ImageCache {
    /// Carries out an order on a file. What takes long goes on as a task; the rest is done in
    /// order with other work on names of files.
    pub(super) fn execute_file(&self, entry: Arc<CacheEntry>, order: ImageFileOrder) {
        let is_short = matches!(
            order,
            ImageFileOrder::MarkPartial
                | ImageFileOrder::KeepChunks { .. }
                | ImageFileOrder::StartHashing { .. }
                | ImageFileOrder::SaveMetadata(_)
                | ImageFileOrder::MarkWhole { .. }
                | ImageFileOrder::ReadMagic
                | ImageFileOrder::StoreDownload(_)
                | ImageFileOrder::StoreDisk { .. }
                | ImageFileOrder::StoreRepairedDisk { .. }
        );
        if is_short {
            let result = self.execute_short(&entry, order);
            return self.report_file(&entry, result);
        }
        let cache = self.clone();
        self.0.runtime.spawn(async move {
            let result = cache.execute_long(&entry, order).await;
            cache.report_file(&entry, result);
        });
    }

    fn report_file(&self, entry: &CacheEntry, result: io::Result<ImageFillResult>) {
        self.report(ImageWorkReport::File {
            entry: entry.id,
            result: result.map_err(|error| disk_error(&error)),
        });
    }

    fn execute_short(
        &self,
        entry: &Arc<CacheEntry>,
        order: ImageFileOrder,
    ) -> io::Result<ImageFillResult> {
        let opened = entry.opened()?;
        let root = &self.0.root;
        let path = |end: &str| root.join(format!("{}.{end}", opened.key));
        match order {
            ImageFileOrder::MarkPartial => std::fs::rename(path("whole"), path("part"))?,
            ImageFileOrder::KeepChunks { chunks } => {
                entry.set_hashed(chunks * CHUNK_BYTES);
                let mut list = read_list(&path("chunks"), &opened.key.0);
                list.truncate(chunks);
                std::fs::write(path("chunks"), list.bytes())?;
            }
            ImageFileOrder::StartHashing { chunks } => self.start_hashing(entry, chunks)?,
            ImageFileOrder::SaveMetadata(metadata) => records::write_metadata(&metadata, root)?,
            ImageFileOrder::MarkWhole { size } => {
                std::fs::rename(path("part"), path("whole"))?;
                entry.set_size(size);
                sync_directory(root)?;
            }
            ImageFileOrder::ReadMagic => {
                let mut first = [0; MAGIC_BYTES];
                let read = opened.file.read_at(&mut first, 0)?;
                let is_qcow2 = Packing::of_magic(&first[..read]) == Some(Packing::Qcow2);
                return Ok(ImageFillResult::Magic { is_qcow2 });
            }
            ImageFileOrder::StoreDownload(metadata) => self.store_download(entry, &metadata)?,
            ImageFileOrder::StoreDisk { disk, record } => {
                self.store_disk(entry, disk.as_deref(), &record)?;
            }
            ImageFileOrder::StoreRepairedDisk { size, whole } => {
                Self::write_unpacked_list(entry, &path("chunks"))?;
                if !whole {
                    std::fs::rename(path("part"), path("whole"))?;
                }
                sync_directory(root)?;
                entry.set_size(size);
                entry.set_hashed(size);
            }
            _ => {}
        }
        Ok(ImageFillResult::Done)
    }

    async fn execute_long(
        &self,
        entry: &Arc<CacheEntry>,
        order: ImageFileOrder,
    ) -> io::Result<ImageFillResult> {
        let root = &self.0.root;
        match order {
            ImageFileOrder::Verify { size, whole } => {
                let check = checking::verify_stored(root, entry, size, whole).await?;
                return Ok(ImageFillResult::Checked(check));
            }
            ImageFileOrder::FetchChunk {
                chunk,
                size,
                request,
            } => {
                let fetch = self.fetch_chunk(entry, chunk, size, &request).await?;
                return Ok(ImageFillResult::Chunk(fetch));
            }
            ImageFileOrder::FlushRepaired { size } => {
                let file = entry.file()?;
                let flush = tokio::task::spawn_blocking(move || file.sync_all());
                flush.await.map_err(io::Error::other)??;
                entry.set_hashed(size);
            }
            ImageFileOrder::Request(request) => {
                let response = self.0.options.origin.request(&request).await;
                let mut connection = entry.connection.lock().await;
                return Ok(ImageFillResult::Responded(response.map(|response| {
                    let OriginResponse { head, body } = response;
                    connection.body = Some(body);
                    head
                })));
            }
            ImageFileOrder::Receive { skip, bytes_max } => {
                return self.receive(entry, skip, bytes_max).await;
            }
            ImageFileOrder::PauseHashing => {
                let hashing = entry.connection.lock().await.hashing.take();
                hashing.ok_or_else(no_hashing)?.pause().await?;
            }
            ImageFileOrder::FinishHashing => {
                let hashing = entry.connection.lock().await.hashing.take();
                let digest = hashing.ok_or_else(no_hashing)?.finish().await?;
                return Ok(ImageFillResult::Hashed(digest));
            }
            _ => {}
        }
        Ok(ImageFillResult::Done)
    }

    /// Hashes what is appended after the chunks that are here.
    fn start_hashing(&self, entry: &Arc<CacheEntry>, chunks: u64) -> io::Result<()> {
        let opened = entry.opened()?;
        let path = entry.chunks_path(&self.0.root)?;
        let mut list = match opened.kind {
            ImageFileKind::Stored { .. } => read_list(&path, &opened.key.0),
            _ => ChunkList::new(&opened.key.0),
        };
        list.truncate(chunks);
        if list.known_chunks() != chunks {
            let why = "its chunk list is missing; start the upload again";
            return Err(io::Error::other(why));
        }
        // Make the file equal to the list, whatever it contained before.
        std::fs::write(&path, list.bytes())?;
        let file = OpenOptions::new().append(true).open(path)?;
        entry.set_hashed(chunks * CHUNK_BYTES);
        let hashing = ImageHasher::start(Arc::clone(entry), list, file)?;
        // No other order on this entry is under way.
        let mut connection = entry.connection.try_lock().map_err(io::Error::other)?;
        connection.hashing = Some(hashing);
        Ok(())
    }

    /// Fetches one chunk, and writes it if it is right.
    async fn fetch_chunk(
        &self,
        entry: &CacheEntry,
        chunk: u64,
        size: u64,
        request: &ImageSourceRequest,
    ) -> io::Result<ChunkFetchResult> {
        let opened = entry.opened()?;
        let bytes = match checking::fetch_range(&self.0.options.origin, request).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(ChunkFetchResult::NotServed),
            Err(why) => return Ok(ChunkFetchResult::Unreachable(why)),
        };
        let digest = opened.key.0;
        let list = read_list(&entry.chunks_path(&self.0.root)?, &digest);
        if !list.is_chunk_valid(chunk, &bytes, size, &digest) {
            return Ok(ChunkFetchResult::NotServed);
        }
        opened.file.write_all_at(&bytes, chunk * CHUNK_BYTES)?;
        Ok(ChunkFetchResult::Written)
    }

    /// Gives a download its final name.
    fn store_download(&self, entry: &CacheEntry, metadata: &ImageMetadata) -> io::Result<()> {
        let (root, from) = (&self.0.root, entry.opened()?.key);
        let key = metadata.spec.key();
        let list = root.join(format!("{key}.chunks"));
        std::fs::rename(entry.chunks_path(root)?, list)?;
        let file = root.join(format!("{from}.{FETCH_SUFFIX}"));
        std::fs::rename(file, root.join(format!("{key}.whole")))?;
        records::write_metadata(metadata, root)?;
        entry.set_stored_as(key);
        Ok(())
    }

    /// Gives an unpacked disk its final name, unless the cache has the same disk.
    fn store_disk(
        &self,
        entry: &CacheEntry,
        disk: Option<&ImageMetadata>,
        record: &UnpackedDiskRecord,
    ) -> io::Result<()> {
        let (root, raw) = (&self.0.root, record.raw);
        let growing = root.join(format!("{}.{UNPACK_SUFFIX}", record.key()));
        if let Some(metadata) = disk {
            Self::write_unpacked_list(entry, &root.join(format!("{raw}.chunks")))?;
            std::fs::rename(growing, root.join(format!("{raw}.whole")))?;
            records::write_metadata(metadata, root)?;
        } else {
            remove_if_there(&growing)?;
        }
        entry.set_stored_as(raw);
        records::write_disk_record(record, root)
    }

    /// The chunk list of what was unpacked into this entry.
    fn write_unpacked_list(entry: &CacheEntry, path: &Path) -> io::Result<()> {
        let mut unpacked = entry
            .unpacked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let list = unpacked.take();
        let list = list.ok_or_else(|| io::Error::other("nothing was unpacked"))?;
        std::fs::write(path, list.bytes())?;
        std::fs::File::open(path)?.sync_all()
    }
}

fn sync_directory(root: &Path) -> io::Result<()> {
    std::fs::File::open(root)?.sync_all()
}
