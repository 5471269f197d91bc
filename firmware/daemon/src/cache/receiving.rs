//! Receives the bodies of responses into files of the cache.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use trivet_images::{ImageBodyEnd, ImageFillResult, ImageWorkReport, REPORT_BYTES};

use super::ImageCache;
use super::entry::CacheEntry;

/// How long a source may pause within a file.
pub(super) const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often received bytes are reported. Readers do not wait for that.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Orders for a body or a digest follow those that open them.
pub(super) fn no_hashing() -> io::Error {
    io::Error::other("nothing is being received")
}

impl ImageCache {
    /// Appends the body of the response.
    pub(super) async fn receive(
        &self,
        entry: &Arc<CacheEntry>,
        mut skip: u64,
        bytes_max: Option<u64>,
    ) -> io::Result<ImageFillResult> {
        let mut connection = entry.connection.lock().await;
        let mut body = connection.body.take().ok_or_else(no_hashing)?;
        let hashing = connection.hashing.as_ref().ok_or_else(no_hashing)?;
        let (mut total, mut reported) = (0, 0);
        let mut reported_at = Instant::now();
        loop {
            let ended = |bytes, end| Ok(ImageFillResult::BodyEnded { bytes, end });
            // Do not use the uplink for an image that was removed.
            if !entry.is_pending() {
                return ended(total - reported, ImageBodyEnd::Removed);
            }
            let mut piece = match timeout(PIECE_TIMEOUT, body.next()).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(None) => return ended(total - reported, ImageBodyEnd::Complete),
                Ok(Some(Err(why))) => {
                    let why = format!("disconnected: {why}");
                    return ended(total - reported, ImageBodyEnd::Interrupted(why));
                }
                Err(_) => {
                    let why = "stopped sending".to_owned();
                    return ended(total - reported, ImageBodyEnd::Interrupted(why));
                }
            };
            let over = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            let _ = piece.split_to(over);
            skip -= over as u64;
            let length = piece.len() as u64;
            if bytes_max.is_some_and(|most| total + length > most) {
                return ended(total - reported, ImageBodyEnd::TooLong);
            }
            if length > 0 && hashing.push(piece).await.is_err() {
                return Err(hashing.failure());
            }
            total += length;
            self.throttle(length).await;
            let bytes = total - reported;
            let waits = bytes_max.is_none();
            let is_due = if waits {
                bytes >= REPORT_BYTES
            } else {
                bytes > 0 && reported_at.elapsed() >= REPORT_INTERVAL
            };
            if is_due {
                (reported, reported_at) = (total, Instant::now());
                let entry_id = entry.id;
                self.report(ImageWorkReport::Received {
                    entry: entry_id,
                    bytes,
                });
                if waits {
                    match entry.continues.acquire().await {
                        Ok(permit) => permit.forget(),
                        // The entry was closed.
                        Err(_) => return ended(0, ImageBodyEnd::Removed),
                    }
                }
            }
        }
    }
}
