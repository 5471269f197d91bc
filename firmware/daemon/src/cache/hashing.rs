//! The thread that writes received bytes and hashes them.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use trivet_chunks::{CHUNK_BYTES, ChunkList, IncrementalDigest};
use trivet_model::Digest;

use super::entry::CacheEntry;

/// Limit of pieces that wait to be written. A piece is the result of one read from a
/// socket.
const PIECES_MAX: usize = 32;

/// Readers are woken each time this many bytes were written, or when the queue is
/// empty.
const PUBLISH_BYTES: u64 = 256 * 1024;

enum HashWorkerMessage {
    Data(Bytes),
    Pause(oneshot::Sender<io::Result<()>>),
    Finish(oneshot::Sender<io::Result<Digest>>),
}

/// A thread that writes and hashes one image.
pub(super) struct ImageHasher {
    pieces: mpsc::Sender<HashWorkerMessage>,
    failed: Arc<OnceLock<io::Error>>,
}

/// The thread ended early; [`ImageHasher::failure`] returns the reason.
#[derive(Debug)]
pub(super) struct HasherStopped;

impl ImageHasher {
    /// Continues an image whose first chunks are in the list.
    pub(super) fn start(entry: Arc<CacheEntry>, list: ChunkList, chunks: File) -> io::Result<Self> {
        let file = entry.file()?;
        let (pieces, coming) = mpsc::channel(PIECES_MAX);
        let failed = Arc::new(OnceLock::new());
        let reported = Arc::clone(&failed);
        std::thread::Builder::new()
            .name("digest".to_owned())
            .spawn(move || {
                let mut work = HashWorker::new((entry, file), list, chunks);
                if let Err(error) = work.run(coming) {
                    let _ = reported.set(error);
                }
            })?;
        Ok(Self { pieces, failed })
    }

    pub(super) async fn push(&self, piece: Bytes) -> Result<(), HasherStopped> {
        self.pieces
            .send(HashWorkerMessage::Data(piece))
            .await
            .map_err(|_| HasherStopped)
    }

    /// Why the thread ended.
    pub(super) fn failure(&self) -> io::Error {
        match self.failed.get() {
            Some(error) => io::Error::new(error.kind(), error.to_string()),
            None => io::Error::other("the thread that writes it has ended"),
        }
    }

    /// Ends with an incomplete image: all pushed bytes are then on disk, and all
    /// complete chunks are in the list.
    pub(super) async fn pause(self) -> io::Result<()> {
        let gone = || self.failure();
        let (reply, answer) = oneshot::channel();
        if self
            .pieces
            .send(HashWorkerMessage::Pause(reply))
            .await
            .is_err()
        {
            return Err(gone());
        }
        answer.await.map_err(|_| gone())?
    }

    /// The digest of all pushed bytes, which are then on disk.
    pub(super) async fn finish(self) -> io::Result<Digest> {
        let gone = || self.failure();
        let (reply, answer) = oneshot::channel();
        if self
            .pieces
            .send(HashWorkerMessage::Finish(reply))
            .await
            .is_err()
        {
            return Err(gone());
        }
        answer.await.map_err(|_| gone())?
    }
}

struct HashWorker {
    entry: Arc<CacheEntry>,
    file: Arc<File>,
    running: IncrementalDigest,
    list: ChunkList,
    chunks: File,
    published: u64,
}

impl HashWorker {
    fn new((entry, file): (Arc<CacheEntry>, Arc<File>), list: ChunkList, chunks: File) -> Self {
        let known = list.known_chunks();
        let running = list
            .digest_before(known)
            .expect("a list knows what it reaches");
        Self {
            published: running.bytes(),
            entry,
            file,
            running,
            list,
            chunks,
        }
    }

    fn run(&mut self, mut coming: mpsc::Receiver<HashWorkerMessage>) -> io::Result<()> {
        while let Some(piece) = coming.blocking_recv() {
            match piece {
                HashWorkerMessage::Data(bytes) => {
                    self.append(&bytes)?;
                    let new = self.running.bytes() - self.published;
                    if new >= PUBLISH_BYTES || coming.is_empty() {
                        self.publish();
                    }
                }
                HashWorkerMessage::Pause(reply) => {
                    let _ = reply.send(self.pause());
                    return Ok(());
                }
                HashWorkerMessage::Finish(reply) => {
                    let _ = reply.send(self.finish());
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.published = self.running.bytes();
        self.entry.set_hashed(self.published);
    }

    /// A state is added to the list when its chunk is complete and more bytes follow:
    /// the last chunk is verified by the digest.
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.running.bytes())?;
        while !bytes.is_empty() {
            let within = self.running.bytes() % CHUNK_BYTES;
            if within == 0 && self.running.bytes() > 0 {
                self.note_chunk()?;
            }
            let space = usize::try_from(CHUNK_BYTES - within).unwrap_or(usize::MAX);
            let (front, rest) = bytes.split_at(bytes.len().min(space));
            self.running.update(front);
            bytes = rest;
        }
        Ok(())
    }

    fn note_chunk(&mut self) -> io::Result<()> {
        if self.list.known_chunks() * CHUNK_BYTES >= self.running.bytes() {
            return Ok(());
        }
        let state = self.running.state().expect("chunks are whole blocks");
        let mut bytes = Vec::new();
        state.write(&mut bytes);
        self.list.push(state);
        self.chunks.write_all(&bytes)
    }

    fn pause(&mut self) -> io::Result<()> {
        let bytes = self.running.bytes();
        if bytes > 0 && bytes.is_multiple_of(CHUNK_BYTES) {
            self.note_chunk()?;
        }
        self.publish();
        self.file.sync_all()?;
        self.chunks.sync_all()
    }

    /// Bytes are on disk before they are reported as verified.
    fn finish(&mut self) -> io::Result<Digest> {
        self.publish();
        self.file.sync_all()?;
        self.chunks.sync_all()?;
        Ok(self.running.clone().finish())
    }
}
