//! Finds the digest of an image in the checksum file of its source.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use trivet_images::ImageSourceRequest;
use trivet_images::checksums::{SUMS_BYTES_MAX, find};
use trivet_model::Digest;

use super::ImageCache;
use super::receiving::PIECE_TIMEOUT;

/// How often a checksum file is requested, and the delay between two attempts.
const TRIES_MAX: u32 = 4;
const RETRY_WAIT: Duration = Duration::from_secs(1);

impl ImageCache {
    /// The digest of the file with this name. An error is a sentence.
    pub(crate) async fn find_checksum(&self, url: &str, name: &str) -> Result<Digest, String> {
        let mut tries = 1;
        loop {
            match self.checksum_file(url).await {
                Ok(text) => return find(&text, name).map_err(|why| format!("{url}: {why}")),
                Err(why) if tries == TRIES_MAX => {
                    return Err(format!(
                        "{url} {why}; fix the network path to it, or give the digest itself"
                    ));
                }
                Err(_) => sleep(RETRY_WAIT * tries).await,
            }
            tries += 1;
        }
    }

    async fn checksum_file(&self, url: &str) -> Result<String, String> {
        let request = ImageSourceRequest {
            url: url.to_owned(),
            from: 0,
            to: None,
            if_range: None,
            if_changed: None,
        };
        let answer = self.0.options.origin.request(&request).await?;
        if answer.head.status != 200 {
            return Err(format!("answered with status {}", answer.head.status));
        }
        let mut body = answer.body;
        let mut all = Vec::new();
        loop {
            let piece = timeout(PIECE_TIMEOUT, body.next()).await;
            match piece.map_err(|_| "stopped sending".to_owned())? {
                None => break,
                Some(piece) => all.extend_from_slice(&piece?),
            }
            if all.len() > SUMS_BYTES_MAX {
                return Err("is too long to be a checksum file".to_owned());
            }
        }
        String::from_utf8(all).map_err(|_| "is not a text file".to_owned())
    }
}
