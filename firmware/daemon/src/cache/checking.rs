//! Hashes stored images before they are trusted.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::{Instant, timeout};
use trivet_chunks::{CHUNK_BYTES, ChunkList, DigestAlgorithm, LIST_BYTES_MAX, chunk_count};
use trivet_images::{ImageSourceRequest, StoredImageCheck};
use trivet_model::Digest;

use super::entry::CacheEntry;
use super::origin::Origin;
use super::receiving::PIECE_TIMEOUT;

/// Hashes a stored image. Readers follow as far as it is verified.
pub(super) async fn verify_stored(
    root: &Path,
    entry: &Arc<CacheEntry>,
    size: Option<u64>,
    whole: bool,
) -> io::Result<StoredImageCheck> {
    let opened = entry.opened()?;
    let digest = opened.key.0;
    let chunks_path = entry.chunks_path(root)?;
    if let Some(size) = size {
        entry.set_size(size);
    }
    let look = StoredImageVerifier {
        entry: Arc::clone(entry),
        file: Arc::clone(&opened.file),
        list: read_list(&chunks_path, &digest),
        chunks_path,
        digest,
        size: size.filter(|_| whole),
    };
    tokio::task::spawn_blocking(move || look.run())
        .await
        .map_err(io::Error::other)?
}

/// The chunk list as far as it can be read. An incomplete last state, left by a power
/// cut, is omitted.
pub(super) fn read_list(path: &Path, digest: &Digest) -> ChunkList {
    let short = path
        .metadata()
        .is_ok_and(|facts| facts.len() <= LIST_BYTES_MAX);
    let bytes = if short {
        std::fs::read(path)
    } else {
        Ok(Vec::new())
    };
    let bytes = bytes.unwrap_or_default();
    let over = bytes.len() % DigestAlgorithm::of(digest).state_bytes();
    let list = ChunkList::read(digest, &bytes[..bytes.len() - over]);
    list.unwrap_or_else(|_| ChunkList::new(digest))
}

/// A complete stored image and its chunk list.
struct ChunkedImageFile {
    file: Arc<File>,
    list: ChunkList,
    digest: Digest,
    size: u64,
}

impl ChunkedImageFile {
    fn is_chunk_valid(&self, chunk: u64) -> io::Result<bool> {
        let at = chunk * CHUNK_BYTES;
        let length = usize::try_from(CHUNK_BYTES.min(self.size - at)).unwrap_or(0);
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(self
            .list
            .is_chunk_valid(chunk, &bytes, self.size, &self.digest))
    }

    /// Whether these chunks are all correct.
    fn are_chunks_valid(&self, some: Range<u64>) -> io::Result<bool> {
        for chunk in some {
            if !self.is_chunk_valid(chunk)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Chunks that are verified between two pauses.
const SCRUB_CHUNKS: u64 = 8;

/// Factor by which each pause is longer than the work before it, so that readers hardly
/// notice.
const SCRUB_PAUSE: u32 = 3;

/// Verifies a complete image. True if all of it is correct.
pub(super) async fn scrub(
    root: &Path,
    entry: &CacheEntry,
    size: u64,
    is_paced: bool,
) -> io::Result<bool> {
    // A disk from a packed image has its chunk list under its own name.
    let key = entry.image_key()?;
    let digest = key.0;
    let list = read_list(&root.join(format!("{key}.chunks")), &digest);
    let all = Arc::new(ChunkedImageFile {
        file: entry.file()?,
        list,
        digest,
        size,
    });
    let mut at = 0;
    while at < chunk_count(size) {
        let some = at..chunk_count(size).min(at + SCRUB_CHUNKS);
        at = some.end;
        let began = Instant::now();
        let work = Arc::clone(&all);
        let right = tokio::task::spawn_blocking(move || work.are_chunks_valid(some)).await;
        if !right.map_err(io::Error::other)?? {
            return Ok(false);
        }
        if is_paced {
            tokio::time::sleep(began.elapsed() * SCRUB_PAUSE).await;
        }
    }
    Ok(true)
}

struct StoredImageVerifier {
    entry: Arc<CacheEntry>,
    file: Arc<File>,
    list: ChunkList,
    chunks_path: PathBuf,
    digest: Digest,
    /// The recorded size of an image that is marked as complete.
    size: Option<u64>,
}

impl StoredImageVerifier {
    fn run(mut self) -> io::Result<StoredImageCheck> {
        let here = self.file.metadata()?.len();
        match self.size {
            Some(size) if size == here && self.list.is_complete(size) => self.verify_whole(size),
            // A list that does not match is rebuilt, if the digest of the whole image
            // is correct.
            Some(size) if size == here => {
                self.list.truncate(0);
                self.rebuild(size)
            }
            _ => self.verify_part(here),
        }
    }

    fn verify_whole(self, size: u64) -> io::Result<StoredImageCheck> {
        let all = ChunkedImageFile {
            file: Arc::clone(&self.file),
            list: self.list,
            digest: self.digest,
            size,
        };
        let mut bad = Vec::new();
        for chunk in 0..chunk_count(size) {
            if !all.is_chunk_valid(chunk)? {
                bad.push(chunk);
            } else if bad.is_empty() {
                self.entry.set_hashed(size.min((chunk + 1) * CHUNK_BYTES));
            }
        }
        if bad.is_empty() {
            return Ok(StoredImageCheck::Valid);
        }
        // Possibly only the list has changed.
        let (found, made) = hash(&self.file, size, &self.digest)?;
        if found != self.digest {
            return Ok(StoredImageCheck::Corrupt { bad });
        }
        std::fs::write(&self.chunks_path, made.bytes())?;
        self.entry.set_hashed(size);
        Ok(StoredImageCheck::Valid)
    }

    /// Hashes the whole image, and accepts it if the digest is correct.
    fn rebuild(self, size: u64) -> io::Result<StoredImageCheck> {
        let (found, list) = hash(&self.file, size, &self.digest)?;
        if found == self.digest {
            std::fs::write(&self.chunks_path, list.bytes())?;
            self.entry.set_hashed(size);
            return Ok(StoredImageCheck::Valid);
        }
        Ok(StoredImageCheck::Partial { chunks: 0 })
    }

    /// Counts the chunks from the beginning that match the list.
    fn verify_part(self, here: u64) -> io::Result<StoredImageCheck> {
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        let most = self.list.known_chunks().min(here / CHUNK_BYTES);
        let mut good = 0;
        while good < most {
            self.file.read_exact_at(&mut buffer, good * CHUNK_BYTES)?;
            // Pass a size larger than the real one, so that no chunk counts as the last
            // one.
            if !self
                .list
                .is_chunk_valid(good, &buffer, u64::MAX / 2, &self.digest)
            {
                break;
            }
            good += 1;
            self.entry.set_hashed(good * CHUNK_BYTES);
        }
        Ok(StoredImageCheck::Partial { chunks: good })
    }
}

/// The digest of a file and its chunk list.
fn hash(file: &File, size: u64, like: &Digest) -> io::Result<(Digest, ChunkList)> {
    let mut list = ChunkList::new(like);
    let mut running = list.digest_before(0).expect("every list has a beginning");
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    for chunk in 0..chunk_count(size) {
        let at = chunk * CHUNK_BYTES;
        if chunk > 0 {
            list.push(running.state().expect("chunks are whole blocks"));
        }
        let length = usize::try_from(CHUNK_BYTES.min(size - at)).unwrap_or(0);
        let bytes = &mut buffer[..length];
        file.read_exact_at(bytes, at)?;
        running.update(bytes);
    }
    Ok((running.finish(), list))
}

/// These bytes of a file; none from a source that does not serve the range.
pub(super) async fn fetch_range(
    origin: &Origin,
    request: &ImageSourceRequest,
) -> Result<Option<Vec<u8>>, String> {
    let answer = origin.request(request).await?;
    let from = answer.head.range.map(|(from, _)| from);
    match answer.head.status {
        206 if from == Some(request.from) => {}
        200 | 206 | 416 => return Ok(None),
        status => return Err(format!("answered with status {status}")),
    }
    let mut body = answer.body;
    let mut all = Vec::new();
    loop {
        let piece = timeout(PIECE_TIMEOUT, body.next()).await;
        match piece.map_err(|_| "stopped sending".to_owned())? {
            None => return Ok(Some(all)),
            Some(piece) => all.extend_from_slice(&piece?),
        }
        if all.len() as u64 > CHUNK_BYTES {
            return Ok(None);
        }
    }
}
