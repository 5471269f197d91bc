//! What lies on the disk is hashed before it is believed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use tokio::time::timeout;
use trivet_chunks::{CHUNK_BYTES, List, chunks};
use trivet_images::Ask;

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
    let list = std::fs::read(cache.path(key, "chunks")).unwrap_or_default();
    let digest = kept.wanted.digest;
    let whole_states =
        list.len() - list.len() % trivet_chunks::Algorithm::of(&digest).state_bytes();
    let list = List::read(&digest, &list[..whole_states]).unwrap_or_else(|_| List::new(&digest));
    if let Some(size) = kept.size {
        entry.size_is(size);
    }
    let entry = Arc::clone(entry);
    let look = Look {
        entry,
        list,
        digest,
        size: kept.size.filter(|_| kept.whole),
    };
    tokio::task::spawn_blocking(move || look.run())
        .await
        .map_err(io::Error::other)?
}

struct Look {
    entry: Arc<Entry>,
    list: List,
    digest: trivet_model::Digest,
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
        let mut bad = Vec::new();
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        for chunk in 0..chunks(size) {
            let at = chunk * CHUNK_BYTES;
            let length = usize::try_from(CHUNK_BYTES.min(size - at)).unwrap_or(0);
            let bytes = &mut buffer[..length];
            self.entry.file.read_exact_at(bytes, at)?;
            if !self.list.is_right(chunk, bytes, size, &self.digest) {
                bad.push(chunk);
            } else if bad.is_empty() {
                self.entry.hashed_is(at + length as u64);
            }
        }
        Ok(if bad.is_empty() {
            Checked::Right
        } else {
            let list = self.list;
            Checked::Rotten { list, bad }
        })
    }

    /// Hashes all of it, and believes it if the digest is right.
    fn rebuild(self, size: u64) -> io::Result<Checked> {
        let (found, list) = hash(&self.entry.file, size, &self.digest)?;
        if found == self.digest {
            self.entry.hashed_is(size);
            return Ok(Checked::Right);
        }
        let mut list = list;
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
fn hash(
    file: &File,
    size: u64,
    like: &trivet_model::Digest,
) -> io::Result<(trivet_model::Digest, List)> {
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

/// Fetches bad chunks again, and only those. An error is a sentence.
pub(super) async fn mend(
    cache: &Cache,
    entry: &Entry,
    kept: &Kept,
    list: &List,
    bad: &[u64],
) -> Result<(), String> {
    let size = kept.size.ok_or("its size is not known")?;
    for &chunk in bad {
        let at = chunk * CHUNK_BYTES;
        let to = size.min(at + CHUNK_BYTES);
        let mut last = "it has no source".to_owned();
        let mut mended = false;
        for url in &kept.wanted.sources {
            let ask = Ask {
                url: url.clone(),
                from: at,
                to: Some(to),
                if_range: None,
            };
            match part(cache, &ask).await {
                Ok(bytes) if list.is_right(chunk, &bytes, size, &kept.wanted.digest) => {
                    let written = entry.file.write_all_at(&bytes, at);
                    written.map_err(|error| error.to_string())?;
                    mended = true;
                    break;
                }
                Ok(_) => last = format!("{url} has other bytes there"),
                Err(why) => last = format!("{url} {why}"),
            }
        }
        if !mended {
            return Err(last);
        }
    }
    entry.file.sync_all().map_err(|error| error.to_string())?;
    entry.hashed_is(size);
    Ok(())
}

/// These bytes of a file, from a source that knows ranges.
async fn part(cache: &Cache, ask: &Ask) -> Result<Vec<u8>, String> {
    let answer = cache.0.ways.origin.ask(ask).await?;
    if answer.head.status != 206 || answer.head.range.map(|(from, _)| from) != Some(ask.from) {
        return Err(format!("answered with status {}", answer.head.status));
    }
    let mut body = answer.body;
    let mut all = Vec::new();
    loop {
        let piece = timeout(PIECE_TIMEOUT, body.next()).await;
        match piece.map_err(|_| "stopped sending".to_owned())? {
            None => return Ok(all),
            Some(piece) => all.extend_from_slice(&piece?),
        }
        if all.len() as u64 > CHUNK_BYTES {
            return Err("sends more than was asked for".to_owned());
        }
    }
}
