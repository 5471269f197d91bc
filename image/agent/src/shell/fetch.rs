//! Brings an image from the network to the disk.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::time::{sleep, timeout};

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

async fn attempt(
    shared: &Arc<Shared>,
    disk: &Disk,
    url: &str,
    order: &ImageOrder,
) -> Result<Written, Failure> {
    let own = shared.options.listen.ip();
    let failed = |words: String| Failure::Download(words);
    let response = http::send(own, ("GET", url), None, Vec::new()).await;
    let response = response.map_err(|error| failed(error.to_string()))?;
    if response.status().as_u16() != 200 {
        return Err(failed(format!("{url} answered {}", response.status())));
    }
    let mut writer = disk.writer(order.digest).await;
    let mut body = response.into_body();
    let (mut bytes, mut told) = (0_u64, 0_u64);
    loop {
        let frame = timeout(PIECE_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| failed(format!("{url} stopped at byte {bytes}")))?;
        let Some(frame) = frame else {
            break;
        };
        let frame =
            frame.map_err(|error| failed(format!("{url} broke off at byte {bytes}: {error}")))?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        bytes += piece.len() as u64;
        if writer.push(piece).await.is_err() {
            // The writer has ended before us and knows why.
            break;
        }
        if bytes - told >= PROGRESS_BYTES {
            told = bytes;
            let _ = shared.events.try_send(Event::Writing { bytes });
        }
    }
    writer.finish().await
}
