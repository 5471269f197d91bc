//! Fetches an image from the network and writes it to the disk.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{sleep, timeout};
use trivet_chunks::{ChunkList, LIST_BYTES_MAX};
use trivet_net_http::HttpBody;

use super::ahead::no_list;
use super::chunked::{self, ChunkedImage};
use super::disk::{AgentTargetDisk, AgentWrittenImage};
use super::{AgentShellContext, AgentShellEvent};
use crate::state_machine::{AgentWorkError, ImageOrder};

/// How many times all URLs are tried. Ours; the stock agent tries ten times.
const ROUNDS_MAX: u32 = 3;

/// How long a server may pause within the image. The stock agent's
/// `image_download_connection_timeout`.
pub(super) const PIECE_TIMEOUT: Duration = Duration::from_mins(1);

/// How many bytes are between two progress events.
const PROGRESS_BYTES: u64 = 4 * 1024 * 1024;

/// Suffix of an image URL for the URL of its chunk list.
const LIST_END: &str = ".chunks";

/// Tries the URLs in order, all of them up to [`ROUNDS_MAX`] times. After a wrong digest or a
/// disk error there is no retry: the same server would give the same result.
pub(super) async fn image(
    shared: &Arc<AgentShellContext>,
    disk: &AgentTargetDisk,
    order: &ImageOrder,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let mut last = AgentWorkError::Download("no address was given".to_owned());
    for round in 0..ROUNDS_MAX {
        if round > 0 {
            sleep(Duration::from_millis(shared.options.intervals.retry_ms)).await;
        }
        let mut hopeless = true;
        for url in &order.urls {
            match attempt(shared, disk, url, order).await {
                Ok(written) => return Ok(written),
                Err(failure @ AgentWorkError::Write(_)) => return Err(failure),
                Err(failure) => {
                    hopeless &= matches!(failure, AgentWorkError::Checksum { .. });
                    last = failure;
                }
            }
        }
        if hopeless {
            break;
        }
    }
    Err(last)
}

/// Fetches by chunks if there is a chunk list, otherwise from start to end. A server that makes
/// the list while it sends has it afterwards.
async fn attempt(
    shared: &Arc<AgentShellContext>,
    disk: &AgentTargetDisk,
    url: &str,
    order: &ImageOrder,
) -> Result<AgentWrittenImage, AgentWorkError> {
    if let Some(wanted) = fetch_chunk_list(shared, url, order).await {
        return by_chunks(shared, disk, url, wanted, order.is_ahead).await;
    }
    if order.is_ahead {
        return Err(no_list(url));
    }
    let outcome = whole(shared, disk, url, order).await;
    if let Err(AgentWorkError::Checksum { .. }) = outcome
        && let Some(wanted) = fetch_chunk_list(shared, url, order).await
    {
        return by_chunks(shared, disk, url, wanted, false).await;
    }
    outcome
}

/// The chunk list of an image, and its size.
pub(super) async fn fetch_chunk_list(
    shared: &AgentShellContext,
    url: &str,
    order: &ImageOrder,
) -> Option<ChunkedImage> {
    let client = &shared.options.client;
    if url.contains('?') {
        // A URL of this form is not one of a box.
        return None;
    }
    let list = client.get(&format!("{url}{LIST_END}"), None).await;
    let response = list.ok()?;
    if response.status().as_u16() != 200 {
        return None;
    }
    let most = usize::try_from(LIST_BYTES_MAX).unwrap_or(usize::MAX);
    let body = response.into_body().collect(most);
    let body = timeout(PIECE_TIMEOUT, body).await.ok()?.ok()?;
    let list = ChunkList::read(&order.digest, &body).ok()?;
    let size = client.size(url).await?;
    list.is_complete(size).then_some(ChunkedImage {
        list,
        size,
        digest: order.digest,
    })
}

/// Fetches the missing chunks, and invalid ones a second time.
async fn by_chunks(
    shared: &AgentShellContext,
    disk: &AgentTargetDisk,
    url: &str,
    wanted: ChunkedImage,
    is_ahead: bool,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let wanted = Arc::new(wanted);
    let writer = chunked::ChunkWriter::begin(disk, Arc::clone(&wanted), is_ahead);
    let (writer, mut lacking) = writer.await?;
    let mut run = ChunkFetch {
        shared,
        url,
        wanted: &wanted,
        writer,
        progress: ImageFetchProgress::default(),
    };
    let mut broke = None;
    for round in 0..ROUNDS_MAX {
        if round > 0 && !lacking.is_empty() {
            sleep(Duration::from_millis(shared.options.intervals.retry_ms)).await;
        }
        let mut wrong = Vec::new();
        broke = None;
        for some in chunked::runs(&lacking) {
            if let Err(failure) = run.fetch(some, &mut wrong).await {
                broke = Some(failure);
            }
        }
        lacking = wrong;
    }
    match broke {
        Some(failure @ AgentWorkError::Download(_)) => Err(failure),
        _ => run.writer.finish().await,
    }
}

/// Chunks that are being fetched.
struct ChunkFetch<'a> {
    shared: &'a AgentShellContext,
    url: &'a str,
    wanted: &'a ChunkedImage,
    writer: chunked::ChunkWriter,
    progress: ImageFetchProgress,
}

impl ChunkFetch<'_> {
    /// Fetches consecutive chunks. Invalid and missing ones are recorded.
    async fn fetch(
        &mut self,
        some: Range<u64>,
        wrong: &mut Vec<u64>,
    ) -> Result<(), AgentWorkError> {
        let mut at = some.start;
        let outcome = self.receive(&mut at, some.end, wrong).await;
        wrong.extend(at..some.end);
        outcome
    }

    async fn receive(
        &mut self,
        at: &mut u64,
        end: u64,
        wrong: &mut Vec<u64>,
    ) -> Result<(), AgentWorkError> {
        let failed = |words: String| AgentWorkError::Download(words);
        let url = self.url;
        let from = self.wanted.byte_range(*at).start;
        let bytes = from..self.wanted.byte_range(end - 1).end;
        let response = self.shared.options.client.get(url, Some(bytes)).await;
        let response = response.map_err(failed)?;
        if response.status().as_u16() != 206 {
            return Err(failed(format!("{url} answered {}", response.status())));
        }
        let mut body = response.into_body();
        let mut buffer = BytesMut::new();
        while *at < end {
            let place = self.wanted.byte_range(*at);
            let length = usize::try_from(place.end - place.start).unwrap_or(usize::MAX);
            while buffer.len() < length {
                let come = place.start + buffer.len() as u64;
                match piece(&mut body, url, come).await? {
                    Some(piece) => {
                        self.progress.report(self.shared, piece.len());
                        buffer.extend_from_slice(&piece);
                    }
                    None => return Err(failed(format!("{url} ended at byte {come}"))),
                }
            }
            let chunk = buffer.split_to(length).freeze();
            match self.writer.push(*at, chunk).await {
                Ok(true) => {}
                Ok(false) => wrong.push(*at),
                // The writer has ended early; its result has the reason.
                Err(()) => return Ok(()),
            }
            *at += 1;
        }
        Ok(())
    }
}

/// The progress, reported at intervals.
#[derive(Default)]
pub(super) struct ImageFetchProgress {
    bytes: u64,
    reported: u64,
}

impl ImageFetchProgress {
    /// Continues at this byte of the image.
    pub(super) fn restart_at(&mut self, at: u64) {
        (self.bytes, self.reported) = (at, at);
    }

    pub(super) fn report(&mut self, shared: &AgentShellContext, more: usize) {
        self.bytes += more as u64;
        if self.bytes - self.reported >= PROGRESS_BYTES {
            self.reported = self.bytes;
            let bytes = self.bytes;
            let _ = shared.events.try_send(AgentShellEvent::Writing { bytes });
        }
    }
}

/// The next bytes of a body; `None` at its end.
pub(super) async fn piece(
    body: &mut HttpBody,
    url: &str,
    at: u64,
) -> Result<Option<Bytes>, AgentWorkError> {
    let failed = |words: String| AgentWorkError::Download(words);
    let piece = timeout(PIECE_TIMEOUT, body.next()).await;
    let piece = piece.map_err(|_| failed(format!("{url} stopped at byte {at}")))?;
    piece
        .transpose()
        .map_err(|error| failed(format!("{url} {error}, at byte {at}")))
}

/// Fetches the image from start to end.
async fn whole(
    shared: &Arc<AgentShellContext>,
    disk: &AgentTargetDisk,
    url: &str,
    order: &ImageOrder,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let failed = |words: String| AgentWorkError::Download(words);
    let response = shared.options.client.get(url, None).await;
    let response = response.map_err(failed)?;
    if response.status().as_u16() != 200 {
        return Err(failed(format!("{url} answered {}", response.status())));
    }
    let mut writer = disk.writer(order.digest).await;
    let mut body = response.into_body();
    let mut progress = ImageFetchProgress::default();
    while let Some(piece) = piece(&mut body, url, progress.bytes).await? {
        progress.report(shared, piece.len());
        if writer.push(piece).await.is_err() {
            // The writer has ended early; its result has the reason.
            break;
        }
    }
    writer.finish().await
}
