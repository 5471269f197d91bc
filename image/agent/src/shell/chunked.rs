//! Writes an image with a known chunk list: every chunk is verified before it is written,
//! chunks that are already on the disk are not fetched, and wrong ones are fetched again
//! separately.
//!
//! The list proves itself: each chunk must turn the state before it into the state after it,
//! and the last one must result in the ordered digest. So a wrong list can prevent a write, but
//! never cause wrong bytes to become bootable.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use trivet_chunks::{CHUNK_BYTES, ChunkList, chunk_count};
use trivet_model::Digest;

use super::ahead::rest_of;
use super::disk::{AgentTargetDisk, AgentWrittenImage, whole_disk};
use crate::state_machine::AgentWorkError;

/// Chunks queued for the disk.
const CHUNKS_WAITING_MAX: usize = 4;

/// How many chunks are checked to find whether the disk has parts of the image. Ours: a disk
/// that never had it is not read completely.
const SAMPLES_MAX: u64 = 8;

/// The image that must be on the disk.
pub(super) struct ChunkedImage {
    pub(super) list: ChunkList,
    pub(super) size: u64,
    pub(super) digest: Digest,
}

impl ChunkedImage {
    /// The byte range of a chunk.
    pub(super) fn byte_range(&self, chunk: u64) -> Range<u64> {
        let from = chunk * CHUNK_BYTES;
        from..self.size.min(from + CHUNK_BYTES)
    }

    /// The first chunk but chunk 0 that is wrong on the disk.
    pub(super) fn first_wrong(&self, file: &File) -> io::Result<Option<u64>> {
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        for chunk in 1..chunk_count(self.size) {
            let place = self.byte_range(chunk);
            let length = usize::try_from(place.end - place.start).unwrap_or(0);
            file.read_exact_at(&mut buffer[..length], place.start)?;
            if !self.is_chunk_valid(chunk, &buffer[..length]) {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    fn is_chunk_valid(&self, chunk: u64, bytes: &[u8]) -> bool {
        self.list
            .is_chunk_valid(chunk, bytes, self.size, &self.digest)
    }
}

struct PendingChunk {
    number: u64,
    bytes: Bytes,
    verdict: oneshot::Sender<bool>,
}

/// An image that is being written. If it is dropped before the end, the disk does not boot.
pub(super) struct ChunkWriter {
    chunks: mpsc::Sender<PendingChunk>,
    thread: JoinHandle<Result<AgentWrittenImage, AgentWorkError>>,
}

impl ChunkWriter {
    /// Starts, and returns which chunks are missing.
    pub(super) async fn begin(
        disk: &AgentTargetDisk,
        wanted: Arc<ChunkedImage>,
        is_ahead: bool,
    ) -> Result<(Self, Vec<u64>), AgentWorkError> {
        let (chunks, coming) = mpsc::channel(CHUNKS_WAITING_MAX);
        let (result_sender, lacking) = oneshot::channel();
        let guard = disk.lock().await;
        let disk = disk.clone();
        let thread = spawn_blocking(move || {
            let _guard = guard;
            write(&disk, &wanted, is_ahead, result_sender, coming)
        });
        match lacking.await {
            Ok(lacking) => Ok((Self { chunks, thread }, lacking)),
            // The thread ended before it could report.
            Err(_) => Err(match thread.await {
                Ok(Err(failure)) => failure,
                _ => AgentWorkError::Write("the writer broke".to_owned()),
            }),
        }
    }

    /// Writes a chunk if it is valid. Fails when the writer has ended early; [`Self::finish`]
    /// gives the reason.
    pub(super) async fn push(&mut self, number: u64, bytes: Bytes) -> Result<bool, ()> {
        let (right, answer) = oneshot::channel();
        let chunk = PendingChunk {
            number,
            bytes,
            verdict: right,
        };
        self.chunks.send(chunk).await.map_err(|_| ())?;
        answer.await.map_err(|_| ())
    }

    /// Makes the disk bootable if the image is complete.
    pub(super) async fn finish(self) -> Result<AgentWrittenImage, AgentWorkError> {
        drop(self.chunks);
        let broken = |_| AgentWorkError::Write("the writer broke".to_owned());
        self.thread.await.map_err(broken)?
    }
}

fn write(
    disk: &AgentTargetDisk,
    wanted: &ChunkedImage,
    is_ahead: bool,
    result_sender: oneshot::Sender<Vec<u64>>,
    mut coming: mpsc::Receiver<PendingChunk>,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let failed = |error: io::Error| AgentWorkError::Write(error.to_string());
    let file = disk.begin(wanted.size)?;
    let mut lacking = lacking(&file, wanted).map_err(failed)?;
    let _ = result_sender.send(lacking.iter().copied().collect());
    let mut head = Bytes::new();
    while let Some(chunk) = coming.blocking_recv() {
        let right = wanted.is_chunk_valid(chunk.number, &chunk.bytes);
        if right {
            if chunk.number == 0 {
                head = chunk.bytes;
            } else {
                let at = wanted.byte_range(chunk.number).start;
                file.write_all_at(&chunk.bytes, at).map_err(failed)?;
            }
            lacking.remove(&chunk.number);
        }
        let _ = chunk.verdict.send(right);
    }
    if let Some(first) = lacking.first() {
        return Err(AgentWorkError::Checksum {
            want: wanted.digest.to_string(),
            got: format!(
                "{} chunks that do not match its list, the first at byte {}",
                lacking.len(),
                first * CHUNK_BYTES
            ),
        });
    }
    // The order matters: nothing boots before the image is complete.
    file.sync_all().map_err(failed)?;
    if !is_ahead {
        file.write_all_at(&head, 0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
    }
    Ok(AgentWrittenImage {
        bytes: wanted.size,
        digest: wanted.digest,
        disk: whole_disk(None, &head),
        was_on_disk: false,
        ahead: is_ahead.then(|| rest_of(wanted, &head)),
    })
}

/// The chunks that the disk does not have. The first makes it bootable, and was erased.
fn lacking(file: &File, wanted: &ChunkedImage) -> io::Result<BTreeSet<u64>> {
    let count = chunk_count(wanted.size);
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let mut has = |chunk: u64| -> io::Result<bool> {
        let place = wanted.byte_range(chunk);
        let length = usize::try_from(place.end - place.start).unwrap_or(0);
        file.read_exact_at(&mut buffer[..length], place.start)?;
        Ok(wanted.is_chunk_valid(chunk, &buffer[..length]))
    };
    let step = (count / SAMPLES_MAX).max(1);
    let samples = (1..count).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    let mut some = false;
    for chunk in samples {
        some = some || has(chunk)?;
    }
    let mut lacking = BTreeSet::from([0]);
    for chunk in 1..count {
        if !some || !has(chunk)? {
            lacking.insert(chunk);
        }
    }
    Ok(lacking)
}

/// Groups consecutive chunks into one request each.
pub(super) fn runs(chunks: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &chunk in chunks {
        match runs.last_mut() {
            Some(run) if run.end == chunk => run.end += 1,
            _ => runs.push(chunk..chunk + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
