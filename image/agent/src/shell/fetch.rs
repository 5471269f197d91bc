//! Brings an image from the network to the disk.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::time::{sleep, timeout};
use trivet_chunks::{LIST_BYTES_MAX, List};

use super::chunked::{self, Wanted};
use super::disk::{Disk, Written};
use super::{Event, Shared, http};
use crate::brain::{Failure, ImageOrder};

/// How often all addresses are tried. Ours; the stock agent tries ten times.
const ROUNDS_MAX: u32 = 3;

/// How long a server may pause within the image. The stock agent's
/// `image_download_connection_timeout`.
const PIECE_TIMEOUT: Duration = Duration::from_mins(1);

/// How many bytes come between two events of progress.
const PROGRESS_BYTES: u64 = 4 * 1024 * 1024;

/// What follows the address of an image in the address of its chunk list.
const LIST_END: &str = ".chunks";

/// Tries the addresses in order, all of them up to [`ROUNDS_MAX`] times. A wrong
/// digest or a failing disk will not mend by asking the same server again.
pub(super) async fn image(
    shared: &Arc<Shared>,
    disk: &Disk,
    order: &ImageOrder,
) -> Result<Written, Failure> {
    let mut last = Failure::Download("no address was given".to_owned());
    for round in 0..ROUNDS_MAX {
        if round > 0 {
            sleep(Duration::from_millis(shared.options.pace.retry_ms)).await;
        }
        let mut hopeless = true;
        for url in &order.urls {
            match attempt(shared, disk, url, order).await {
                Ok(written) => return Ok(written),
                Err(failure @ Failure::Write(_)) => return Err(failure),
                Err(failure) => {
                    hopeless &= matches!(failure, Failure::Checksum { .. });
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

/// By its chunks where there is a list of them, else from its beginning to its end. A
/// server that makes the list while it sends has it in the end.
async fn attempt(
    shared: &Arc<Shared>,
    disk: &Disk,
    url: &str,
    order: &ImageOrder,
) -> Result<Written, Failure> {
    if let Some(wanted) = listed(shared, url, order).await {
        return by_chunks(shared, disk, url, wanted).await;
    }
    let went = whole(shared, disk, url, order).await;
    if let Err(Failure::Checksum { .. }) = went
        && let Some(wanted) = listed(shared, url, order).await
    {
        return by_chunks(shared, disk, url, wanted).await;
    }
    went
}

/// The chunk list of an image, and its size.
async fn listed(shared: &Shared, url: &str, order: &ImageOrder) -> Option<Wanted> {
    let own = shared.options.listen.ip();
    if url.contains('?') {
        // Such an address is not one of a box like ours.
        return None;
    }
    let list = http::get(own, &format!("{url}{LIST_END}"), None).await;
    let response = list.ok()?;
    if response.status().as_u16() != 200 {
        return None;
    }
    let most = usize::try_from(LIST_BYTES_MAX).unwrap_or(usize::MAX);
    let body = Limited::new(response.into_body(), most).collect();
    let body = timeout(PIECE_TIMEOUT, body).await.ok()?.ok()?.to_bytes();
    let list = List::read(&order.digest, &body).ok()?;
    let size = http::size(own, url).await?;
    list.is_whole(size).then_some(Wanted {
        list,
        size,
        digest: order.digest,
    })
}

/// Fetches the chunks that the disk lacks, and those that were wrong once more.
async fn by_chunks(
    shared: &Shared,
    disk: &Disk,
    url: &str,
    wanted: Wanted,
) -> Result<Written, Failure> {
    let wanted = Arc::new(wanted);
    let (writer, mut lacking) = chunked::Writer::begin(disk, Arc::clone(&wanted)).await?;
    let mut run = Run {
        shared,
        url,
        wanted: &wanted,
        writer,
        progress: Progress::default(),
    };
    let mut broke = None;
    for round in 0..ROUNDS_MAX {
        if round > 0 && !lacking.is_empty() {
            sleep(Duration::from_millis(shared.options.pace.retry_ms)).await;
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
        Some(failure @ Failure::Download(_)) => Err(failure),
        _ => run.writer.finish().await,
    }
}

/// Chunks on their way.
struct Run<'a> {
    shared: &'a Shared,
    url: &'a str,
    wanted: &'a Wanted,
    writer: chunked::Writer,
    progress: Progress,
}

impl Run<'_> {
    /// Fetches chunks that follow each other. What is wrong, or did not come, is noted.
    async fn fetch(&mut self, some: Range<u64>, wrong: &mut Vec<u64>) -> Result<(), Failure> {
        let mut at = some.start;
        let went = self.take(&mut at, some.end, wrong).await;
        wrong.extend(at..some.end);
        went
    }

    async fn take(&mut self, at: &mut u64, end: u64, wrong: &mut Vec<u64>) -> Result<(), Failure> {
        let failed = |words: String| Failure::Download(words);
        let url = self.url;
        let from = self.wanted.place(*at).start;
        let bytes = from..self.wanted.place(end - 1).end;
        let own = self.shared.options.listen.ip();
        let response = http::get(own, url, Some(bytes)).await;
        let response = response.map_err(|error| failed(error.to_string()))?;
        if response.status().as_u16() != 206 {
            return Err(failed(format!("{url} answered {}", response.status())));
        }
        let mut body = response.into_body();
        let mut buffer = BytesMut::new();
        while *at < end {
            let place = self.wanted.place(*at);
            let length = usize::try_from(place.end - place.start).unwrap_or(usize::MAX);
            while buffer.len() < length {
                let come = place.start + buffer.len() as u64;
                match piece(&mut body, url, come).await? {
                    Some(piece) => {
                        self.progress.tell(self.shared, piece.len());
                        buffer.extend_from_slice(&piece);
                    }
                    None => return Err(failed(format!("{url} ended at byte {come}"))),
                }
            }
            let chunk = buffer.split_to(length).freeze();
            match self.writer.push(*at, chunk).await {
                Ok(true) => {}
                Ok(false) => wrong.push(*at),
                // The writer has ended before us and knows why.
                Err(()) => return Ok(()),
            }
            *at += 1;
        }
        Ok(())
    }
}

/// How far it is, told now and then.
#[derive(Default)]
struct Progress {
    bytes: u64,
    told: u64,
}

impl Progress {
    fn tell(&mut self, shared: &Shared, more: usize) {
        self.bytes += more as u64;
        if self.bytes - self.told >= PROGRESS_BYTES {
            self.told = self.bytes;
            let bytes = self.bytes;
            let _ = shared.events.try_send(Event::Writing { bytes });
        }
    }
}

/// The next bytes of a body; none at its end.
async fn piece(body: &mut Incoming, url: &str, at: u64) -> Result<Option<Bytes>, Failure> {
    let failed = |words: String| Failure::Download(words);
    loop {
        let frame = timeout(PIECE_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| failed(format!("{url} stopped at byte {at}")))?;
        let Some(frame) = frame else {
            return Ok(None);
        };
        let frame =
            frame.map_err(|error| failed(format!("{url} broke off at byte {at}: {error}")))?;
        if let Ok(piece) = frame.into_data() {
            return Ok(Some(piece));
        }
    }
}

/// Fetches the image from its beginning to its end.
async fn whole(
    shared: &Arc<Shared>,
    disk: &Disk,
    url: &str,
    order: &ImageOrder,
) -> Result<Written, Failure> {
    let own = shared.options.listen.ip();
    let failed = |words: String| Failure::Download(words);
    let response = http::get(own, url, None).await;
    let response = response.map_err(|error| failed(error.to_string()))?;
    if response.status().as_u16() != 200 {
        return Err(failed(format!("{url} answered {}", response.status())));
    }
    let mut writer = disk.writer(order.digest).await;
    let mut body = response.into_body();
    let mut progress = Progress::default();
    while let Some(piece) = piece(&mut body, url, progress.bytes).await? {
        progress.tell(shared, piece.len());
        if writer.push(piece).await.is_err() {
            // The writer has ended before us and knows why.
            break;
        }
    }
    writer.finish().await
}
