//! Receives images that clients upload. As in a fill, a thread writes and hashes the bytes, and
//! readers follow. The library says whether the bytes are taken, and what became of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use trivet_images::{
    ImageEntryId, ImageSpec, ImageUploadAnswer, ImageUploadError, ImageUploadRange, ImageWorkReport,
};

use super::ImageCache;
use super::entry::CacheEntry;
use super::filling::disk_error;
use super::receiving::{REPORT_INTERVAL, no_hashing};

/// How long the client may pause.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Answers to one upload: the permission to send, and the result.
const ANSWERS_MAX: usize = 2;

impl ImageCache {
    /// Receives the offered bytes; returns how many bytes of the image are then stored.
    pub(crate) async fn upload<B>(
        &self,
        wanted: &ImageSpec,
        range: ImageUploadRange,
        body: &mut B,
    ) -> Result<u64, ImageUploadError>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let (reply, mut answers) = mpsc::channel(ANSWERS_MAX);
        let ticket = self.begin_upload(reply);
        self.report(ImageWorkReport::UploadOffered {
            ticket,
            spec: Box::new(wanted.clone()),
            range,
        });
        let result = loop {
            match answers.recv().await {
                Some(ImageUploadAnswer::Receive(entry)) => {
                    self.receive_upload(entry, range, body).await;
                }
                Some(ImageUploadAnswer::Stored(have)) => break Ok(have),
                Some(ImageUploadAnswer::HasAll(size)) => {
                    // Read the body to its end: the client would not read the response before.
                    while let Ok(Some(Ok(_))) = timeout(PAUSE_MAX, body.frame()).await {}
                    break Ok(size);
                }
                Some(ImageUploadAnswer::Refused(error)) => break Err(error),
                None => {
                    let why = "The box is stopping.".to_owned();
                    break Err(ImageUploadError::Disk(why));
                }
            }
        };
        self.end_upload(ticket);
        result
    }

    /// Writes the bytes of the body, and reports how many came.
    async fn receive_upload<B>(&self, id: ImageEntryId, range: ImageUploadRange, body: &mut B)
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let Some(entry) = self.entry(id) else {
            // The image was removed, and the answer says so.
            return;
        };
        let (bytes, result) = self.write_upload(&entry, range, body).await;
        self.report(ImageWorkReport::UploadEnded {
            entry: id,
            bytes,
            result: result.map_err(|error| disk_error(&error)),
        });
    }

    /// The bytes since the last report, and whether the disk failed.
    async fn write_upload<B>(
        &self,
        entry: &Arc<CacheEntry>,
        range: ImageUploadRange,
        body: &mut B,
    ) -> (u64, std::io::Result<()>)
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let connection = entry.connection.lock().await;
        let Some(hashing) = connection.hashing.as_ref() else {
            return (0, Err(no_hashing()));
        };
        let (mut total, mut reported) = (0, 0);
        let mut reported_at = Instant::now();
        while total < range.bytes && entry.is_pending() {
            let piece = match timeout(PAUSE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                _ => break,
            };
            let space = usize::try_from(range.bytes - total).unwrap_or(usize::MAX);
            let piece = piece.slice(..piece.len().min(space));
            let length = piece.len() as u64;
            if length > 0 && hashing.push(piece).await.is_err() {
                return (total - reported, Err(hashing.failure()));
            }
            total += length;
            if total > reported && reported_at.elapsed() >= REPORT_INTERVAL {
                let bytes = total - reported;
                (reported, reported_at) = (total, Instant::now());
                let entry = entry.id;
                self.report(ImageWorkReport::Received { entry, bytes });
            }
        }
        (total - reported, Ok(()))
    }
}
