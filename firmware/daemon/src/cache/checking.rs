//! What lies on the disk is hashed before it is believed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use trivet_chunks::{Algorithm, CHUNK_BYTES, LIST_BYTES_MAX, List, chunks};
use trivet_images::Ask;
use trivet_model::Digest;

use super::Cache;
use super::entry::{Entry, Kept};
use super::filling::PIECE_TIMEOUT;

/// What was found.
pub(super) enum Checked {
    /// Every byte is right.
    Right,
    /// The list reaches the digest, and these chunks do not fit it.
    Rotten {
        /// The list.
        list: List,
        /// The chunks, in order.
        bad: Vec<u64>,
    },
    /// Only the beginning is here, as far as the list reaches.
    Part {
        /// The list.
        list: List,
    },
}

/// Hashes an image on the disk. Readers follow as far as it is right.
pub(super) async fn look(
    cache: &Cache,
    key: &str,
    entry: &Arc<Entry>,
    kept: &Kept,
) -> io::Result<Checked> {
    let digest = kept.wanted.digest;
    let list = read_list(cache, key, &digest);
    if let Some(size) = kept.size {
        entry.size_is(size);
    }
    let entry = Arc::clone(entry);
    let look = Look {
        entry,
        list,
        chunks_path: cache.path(key, "chunks"),
        digest,
        size: kept.size.filter(|_| kept.whole),
    };
    tokio::task::spawn_blocking(move || look.run())
        .await
        .map_err(io::Error::other)?
}

/// The chunk list as far as it can be read. A state that was being written when the
/// power went is left out.
pub(super) fn read_list(cache: &Cache, key: &str, digest: &Digest) -> List {
    let path = cache.path(key, "chunks");
    let short = path
        .metadata()
        .is_ok_and(|facts| facts.len() <= LIST_BYTES_MAX);
    let bytes = if short {
        std::fs::read(path)
    } else {
        Ok(Vec::new())
    };
    let bytes = bytes.unwrap_or_default();
    let over = bytes.len() % Algorithm::of(digest).state_bytes();
    let list = List::read(digest, &bytes[..bytes.len() - over]);
    list.unwrap_or_else(|_| List::new(digest))
}

/// A whole image on the disk and its list.
struct Chunks {
    file: Arc<File>,
    list: List,
    digest: Digest,
    size: u64,
}

impl Chunks {
    fn is_right(&self, chunk: u64) -> io::Result<bool> {
        let at = chunk * CHUNK_BYTES;
        let length = usize::try_from(CHUNK_BYTES.min(self.size - at)).unwrap_or(0);
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(self.list.is_right(chunk, &bytes, self.size, &self.digest))
    }

    /// Whether these are all right.
    fn are_right(&self, some: Range<u64>) -> io::Result<bool> {
        for chunk in some {
            if !self.is_right(chunk)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Chunks that are looked at without a pause in between.
const SCRUB_CHUNKS: u64 = 8;

/// How much longer than the work each pause is, so that readers hardly notice.
const SCRUB_PAUSE: u32 = 3;

/// How an image is read through.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Scrub {
    /// With pauses.
    Gentle,
    /// Without: somebody waits for it.
    Now,
}

/// Reads a whole image through. Whether all of it is right.
pub(super) async fn scrub(
    cache: &Cache,
    key: &str,
    file: Arc<File>,
    kept: &Kept,
    how: Scrub,
) -> io::Result<bool> {
    let Some(size) = kept.size else {
        return Ok(false);
    };
    let digest = kept.wanted.digest;
    let list = read_list(cache, key, &digest);
    let all = Arc::new(Chunks {
        file,
        list,
        digest,
        size,
    });
    let mut at = 0;
    while at < chunks(size) {
        let some = at..chunks(size).min(at + SCRUB_CHUNKS);
        at = some.end;
        let began = Instant::now();
        let work = Arc::clone(&all);
        let right = tokio::task::spawn_blocking(move || work.are_right(some)).await;
        if !right.map_err(io::Error::other)?? {
            return Ok(false);
        }
        if how == Scrub::Gentle {
            tokio::time::sleep(began.elapsed() * SCRUB_PAUSE).await;
        }
    }
    Ok(true)
}

struct Look {
    entry: Arc<Entry>,
    list: List,
    chunks_path: PathBuf,
    digest: Digest,
    /// Of an image that is said to be whole.
    size: Option<u64>,
}

impl Look {
    fn run(mut self) -> io::Result<Checked> {
        let here = self.entry.file.metadata()?.len();
        match self.size {
            Some(size) if size == here && self.list.is_whole(size) => self.whole(size),
            // A list that does not fit is made anew from what the digest says of all.
            Some(size) if size == here => {
                self.list.keep(0);
                self.rebuild(size)
            }
            _ => self.part(here),
        }
    }

    fn whole(self, size: u64) -> io::Result<Checked> {
        let all = Chunks {
            file: Arc::clone(&self.entry.file),
            list: self.list,
            digest: self.digest,
            size,
        };
        let mut bad = Vec::new();
        for chunk in 0..chunks(size) {
            if !all.is_right(chunk)? {
                bad.push(chunk);
            } else if bad.is_empty() {
                self.entry.hashed_is(size.min((chunk + 1) * CHUNK_BYTES));
            }
        }
        let list = all.list;
        if bad.is_empty() {
            return Ok(Checked::Right);
        }
        // It may be the list that has changed.
        let (found, made) = hash(&self.entry.file, size, &self.digest)?;
        if found != self.digest {
            return Ok(Checked::Rotten { list, bad });
        }
        std::fs::write(&self.chunks_path, made.bytes())?;
        self.entry.hashed_is(size);
        Ok(Checked::Right)
    }

    /// Hashes all of it, and believes it if the digest is right.
    fn rebuild(self, size: u64) -> io::Result<Checked> {
        let (found, mut list) = hash(&self.entry.file, size, &self.digest)?;
        if found == self.digest {
            std::fs::write(&self.chunks_path, list.bytes())?;
            self.entry.hashed_is(size);
            return Ok(Checked::Right);
        }
        list.keep(0);
        Ok(Checked::Part { list })
    }

    /// As many chunks from the beginning as fit the list.
    fn part(mut self, here: u64) -> io::Result<Checked> {
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        let most = self.list.known().min(here / CHUNK_BYTES);
        let mut good = 0;
        while good < most {
            self.entry
                .file
                .read_exact_at(&mut buffer, good * CHUNK_BYTES)?;
            // Larger than it is: no chunk of a beginning is the last one.
            if !self
                .list
                .is_right(good, &buffer, u64::MAX / 2, &self.digest)
            {
                break;
            }
            good += 1;
            self.entry.hashed_is(good * CHUNK_BYTES);
        }
        self.list.keep(good);
        let list = self.list;
        Ok(Checked::Part { list })
    }
}

/// The digest of a file and its chunk list.
fn hash(file: &File, size: u64, like: &Digest) -> io::Result<(Digest, List)> {
    let mut list = List::new(like);
    let mut running = list.before(0).expect("every list has a beginning");
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    for chunk in 0..chunks(size) {
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

/// Why bad chunks were not mended.
pub(super) enum Unmended {
    /// No source can be asked now: the end of a sentence that begins with the source.
    Away(String),
    /// The sources give no parts, or other bytes: all that follows must be fetched.
    NotByParts,
}

/// How often in a row asking for a chunk may fail, and the first wait. Ours.
const MEND_TRIES_MAX: u32 = 5;
const MEND_WAIT_FIRST: Duration = Duration::from_millis(250);

/// Fetches bad chunks again, and only those.
pub(super) async fn mend(
    cache: &Cache,
    entry: &Entry,
    kept: &Kept,
    list: &List,
    bad: &[u64],
) -> Result<(), Unmended> {
    let size = kept.size.ok_or(Unmended::NotByParts)?;
    let broken = |error: io::Error| Unmended::Away(error.to_string());
    for &chunk in bad {
        let bytes = mended(cache, kept, list, (chunk, size)).await?;
        entry
            .file
            .write_all_at(&bytes, chunk * CHUNK_BYTES)
            .map_err(broken)?;
    }
    entry.file.sync_all().map_err(broken)?;
    entry.hashed_is(size);
    Ok(())
}

/// The right bytes of a chunk, from whichever source has them.
async fn mended(
    cache: &Cache,
    kept: &Kept,
    list: &List,
    (chunk, size): (u64, u64),
) -> Result<Vec<u8>, Unmended> {
    let at = chunk * CHUNK_BYTES;
    let mut last = Unmended::NotByParts;
    for tries in 0..MEND_TRIES_MAX {
        if tries > 0 {
            tokio::time::sleep(MEND_WAIT_FIRST * (1 << (tries - 1))).await;
        }
        let mut away = false;
        for url in &kept.wanted.sources {
            let ask = Ask {
                url: url.clone(),
                from: at,
                to: Some(size.min(at + CHUNK_BYTES)),
                if_range: None,
                if_changed: None,
            };
            match part(cache, &ask).await {
                Ok(Some(bytes)) if list.is_right(chunk, &bytes, size, &kept.wanted.digest) => {
                    return Ok(bytes);
                }
                Ok(_) => {}
                Err(why) => {
                    away = true;
                    last = Unmended::Away(why);
                }
            }
        }
        if !away {
            return Err(Unmended::NotByParts);
        }
    }
    Err(last)
}

/// These bytes of a file; none from a source that has no such part.
async fn part(cache: &Cache, ask: &Ask) -> Result<Option<Vec<u8>>, String> {
    let answer = cache.0.ways.origin.ask(ask).await?;
    let from = answer.head.range.map(|(from, _)| from);
    match answer.head.status {
        206 if from == Some(ask.from) => {}
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
