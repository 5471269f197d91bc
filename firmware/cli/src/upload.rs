//! Uploads a file to the box as an image, and continues an interrupted upload.
//!
//! The box reports how many bytes it has; [`ImageSnapshot`] decides where the next
//! attempt starts.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use ring::digest::{Algorithm, Context as Hash, SHA256, SHA512};

use crate::client::CliClient;
use crate::exit::Exit;
use crate::fault::CliFault;
use crate::plan::{NewImage, look_image, new_image, put_image};
use crate::progress::ProgressLine;
use crate::request::{CliRequest, CliResponse};
use crate::table::harmless;
use crate::wait::{ImageSnapshot, WaitVerdict};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// How often the line is redrawn.
const DRAW_GAP: Duration = Duration::from_millis(200);

/// How often an interrupted upload is continued without any progress.
const TRIES_MAX: u32 = 10;
const TRY_GAP: Duration = Duration::from_secs(1);

/// The upload of one file.
pub(crate) struct ImageUpload<'a> {
    pub(crate) image: &'a str,
    pub(crate) file: &'a Path,
    pub(crate) format: Option<&'a str>,
    pub(crate) boot_mode: Option<&'a str>,
    pub(crate) pin: bool,
}

/// Receives the progress of an upload.
pub(crate) trait UploadObserver {
    /// Shows the progress.
    fn progress(&mut self, progress: &ProgressLine);
    /// Shows a message.
    fn note(&mut self, sentence: &str);
    /// Milliseconds since the start.
    fn elapsed_ms(&self) -> u64;
}

impl ImageUpload<'_> {
    /// Uploads the file; returns the record of the complete image.
    pub(crate) async fn run(
        &self,
        client: &CliClient,
        watched: &mut dyn UploadObserver,
    ) -> Result<serde_json::Value, CliFault> {
        let size = self.open()?.1;
        if size == 0 {
            let file = self.file.display();
            let sentence = format!("{file} is empty; an image has at least one byte");
            return Err(CliFault::usage(sentence));
        }
        let mut tries = 0;
        let mut before = 0;
        loop {
            let snapshot = match self.look(client, watched).await? {
                Ok(whole) => return Ok(whole),
                Err(snapshot) => snapshot,
            };
            let from = snapshot.resume_offset(size);
            if from > before {
                tries = 0;
                before = from;
            }
            let broke = match self.send(client, from, size, watched).await {
                Ok(answer) if answer.status == 200 => {
                    return self.finish(client, answer.body, watched).await;
                }
                // The box replies with 400 to an interrupted upload.
                Ok(answer) if answer.status != 400 => return Err(self.refused(&answer)),
                Ok(answer) => self.refused(&answer),
                Err(fault) if fault.exit == Exit::Unreachable => fault,
                Err(fault) => return Err(fault),
            };
            tries += 1;
            if tries >= TRIES_MAX {
                return Err(broke);
            }
            watched.note(&format!("trivet: {}", broke.sentence));
            tokio::time::sleep(TRY_GAP).await;
        }
    }

    /// Waits until an image whose bytes were received is verified and unpacked: only then the
    /// box has accepted it.
    async fn finish(
        &self,
        client: &CliClient,
        mut record: serde_json::Value,
        watched: &mut dyn UploadObserver,
    ) -> Result<serde_json::Value, CliFault> {
        loop {
            match self.verdict(&record)? {
                WaitVerdict::Pending => {}
                _ => return Ok(record),
            }
            let now_ms = watched.elapsed_ms();
            let words = format!("{}  {}", self.image, ImageSnapshot::of(&record).state);
            watched.progress(&ProgressLine::many(words, None, now_ms));
            tokio::time::sleep(TRY_GAP).await;
            let answer = send_with_retry(client, &look_image(self.image)).await?;
            if !(200..300).contains(&answer.status) {
                return Err(self.refused(&answer));
            }
            record = answer.body;
        }
    }

    /// Whether the box has accepted the image; an error if it has found it wrong.
    fn verdict(&self, record: &serde_json::Value) -> Result<WaitVerdict, CliFault> {
        let snapshot = ImageSnapshot::of(record);
        let failed = |why: &str| {
            let sentence = format!("image {} {why}", self.image);
            Err(CliFault::new(Exit::Failed, sentence))
        };
        match snapshot.verdict() {
            WaitVerdict::Failed(why) => failed(&why),
            WaitVerdict::Pending if snapshot.state == "not_cached" => {
                failed("was removed from the cache before it was complete")
            }
            verdict => Ok(verdict),
        }
    }

    fn refused(&self, answer: &CliResponse) -> CliFault {
        CliFault::of(answer, &format!("image {}", self.image))
    }

    /// The complete image if the box has these bytes, or how many bytes it has; adds the
    /// image to the catalogue first if necessary.
    async fn look(
        &self,
        client: &CliClient,
        watched: &mut dyn UploadObserver,
    ) -> Result<Result<serde_json::Value, ImageSnapshot>, CliFault> {
        let mut answer = send_with_retry(client, &look_image(self.image)).await?;
        if answer.status == 404 {
            let sum = self.digest(&SHA256, watched)?;
            let create = new_image(&NewImage {
                image: self.image,
                sources: &[],
                checksum: Some(&sum),
                format: self.format,
                boot_mode: self.boot_mode,
                pin: self.pin,
            });
            answer = send_with_retry(client, &create).await?;
        }
        if !(200..300).contains(&answer.status) {
            return Err(self.refused(&answer));
        }
        let snapshot = ImageSnapshot::of(&answer.body);
        if snapshot.verdict() == WaitVerdict::Reached {
            self.check_digest(&answer.body, watched)?;
            return Ok(Ok(answer.body));
        }
        Ok(Err(snapshot))
    }

    /// Refuses the file if the complete image of this name has other bytes.
    fn check_digest(
        &self,
        record: &serde_json::Value,
        watched: &mut dyn UploadObserver,
    ) -> Result<(), CliFault> {
        let mut known = [("sha256", &SHA256), ("sha512", &SHA512)].into_iter();
        let known = known.find_map(|(key, algorithm)| Some((record[key].as_str()?, algorithm)));
        let Some((digest, algorithm)) = known else {
            return Ok(());
        };
        let own = self.digest(algorithm, watched)?;
        if digest == own {
            return Ok(());
        }
        let sentence = format!(
            "image {} exists with digest {}; this file has digest {own}; use another name, or \
             remove the image first",
            self.image,
            harmless(digest)
        );
        Err(CliFault::new(Exit::Refused, sentence))
    }

    fn open(&self) -> Result<(File, u64), CliFault> {
        let failed = |error: io::Error| {
            let file = self.file.display();
            CliFault::usage(format!("{file} cannot be read: {error}"))
        };
        let file = File::open(self.file).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        Ok((file, size))
    }

    /// The digest of the file as hexadecimal digits.
    fn digest(
        &self,
        algorithm: &'static Algorithm,
        watched: &mut dyn UploadObserver,
    ) -> Result<String, CliFault> {
        let (mut file, size) = self.open()?;
        let mut hash = Hash::new(algorithm);
        let mut buffer = vec![0; PIECE_BYTES];
        let (mut done, mut drawn_ms) = (0, 0);
        loop {
            let got = file.read(&mut buffer).map_err(|error| {
                let file = self.file.display();
                CliFault::usage(format!("{file} cannot be read: {error}"))
            })?;
            if got == 0 {
                break;
            }
            hash.update(&buffer[..got]);
            done += got as u64;
            let now_ms = watched.elapsed_ms();
            if now_ms - drawn_ms >= DRAW_GAP.as_millis() as u64 {
                drawn_ms = now_ms;
                let words = format!("{}  hashing", self.image);
                watched.progress(&ProgressLine::many(words, mib(done, size), now_ms));
            }
        }
        let sum = hash.finish();
        let digits = sum.as_ref().iter().map(|byte| format!("{byte:02x}"));
        Ok(digits.collect())
    }

    async fn send(
        &self,
        client: &CliClient,
        from: u64,
        size: u64,
        watched: &mut dyn UploadObserver,
    ) -> Result<CliResponse, CliFault> {
        let (mut file, _) = self.open()?;
        file.seek(SeekFrom::Start(from)).map_err(|error| {
            let file = self.file.display();
            CliFault::usage(format!("{file} cannot be read: {error}"))
        })?;
        let sent = Arc::new(AtomicU64::new(from));
        let body = FileBody {
            file,
            left: size - from,
            sent: Arc::clone(&sent),
        };
        let mut fields = vec![("content-type", "application/octet-stream".to_owned())];
        if from > 0 {
            let last = size - 1;
            fields.push(("content-range", format!("bytes {from}-{last}/{size}")));
        }
        let request = put_image(self.image);
        let answer = client.upload(&request, &fields, body);
        tokio::pin!(answer);
        let mut ticks = tokio::time::interval(DRAW_GAP);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                _ = ticks.tick() => {
                    let at = sent.load(Ordering::Relaxed);
                    let words = format!("{}  uploading", self.image);
                    let now_ms = watched.elapsed_ms();
                    watched.progress(&ProgressLine::many(words, mib(at, size), now_ms));
                }
            }
        }
    }
}

fn mib(done: u64, size: u64) -> Option<(u64, u64)> {
    (size > 0).then_some((done >> 20, size.div_ceil(1 << 20)))
}

/// Reads may be repeated: the box may restart meanwhile.
async fn send_with_retry(
    client: &CliClient,
    request: &CliRequest,
) -> Result<CliResponse, CliFault> {
    let mut tries = 0;
    loop {
        tries += 1;
        match client.exchange(request).await {
            Err(fault) if fault.exit == Exit::Unreachable && tries < TRIES_MAX => {
                tokio::time::sleep(TRY_GAP).await;
            }
            other => return other,
        }
    }
}

/// The rest of a file as the body of a request, read on demand.
struct FileBody {
    file: File,
    left: u64,
    sent: Arc<AtomicU64>,
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut piece = vec![0; PIECE_BYTES.min(most)];
        let got = match self.file.read(&mut piece) {
            // The file became shorter: an incomplete body must not look complete.
            Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
            Ok(got) => got,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        piece.truncate(got);
        self.left -= got as u64;
        self.sent.fetch_add(got as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct SilentObserver;

    impl UploadObserver for SilentObserver {
        fn progress(&mut self, _: &ProgressLine) {}
        fn note(&mut self, _: &str) {}
        fn elapsed_ms(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_complete_image_with_other_bytes_is_not_the_image_of_this_file() {
        let upload = ImageUpload {
            image: "a.raw",
            file: &Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"),
            format: None,
            boot_mode: None,
            pin: false,
        };
        let own = |algorithm| upload.digest(algorithm, &mut SilentObserver).unwrap();
        let (short, long) = (own(&SHA256), own(&SHA512));
        assert_eq!((short.len(), long.len()), (64, 128));
        let check = |record| upload.check_digest(&record, &mut SilentObserver);
        assert_eq!(check(json!({ "sha256": short })), Ok(()));
        assert_eq!(check(json!({ "sha512": long })), Ok(()));
        for (key, other, own) in [
            ("sha256", "0".repeat(64), short),
            ("sha512", "0".repeat(128), long),
        ] {
            let refused = check(json!({ key: other })).unwrap_err();
            assert_eq!(refused.exit, Exit::Refused);
            assert_eq!(
                refused.sentence,
                format!(
                    "image a.raw exists with digest {other}; this file has digest {own}; use \
                     another name, or remove the image first"
                )
            );
        }
    }

    /// The bytes of a packed image are right before it is known whether it can be unpacked.
    #[test]
    fn an_upload_is_complete_when_the_box_has_accepted_the_image_and_not_before() {
        let upload = ImageUpload {
            image: "a.qcow2",
            file: Path::new("a.qcow2"),
            format: None,
            boot_mode: None,
            pin: false,
        };
        let verdict = |state: &str| {
            let fault = (state == "failed").then_some("it has a backing file");
            upload.verdict(&json!({"state": state, "fault": fault, "here": 7, "size": 7}))
        };
        assert_eq!(verdict("unpacking").unwrap(), WaitVerdict::Pending);
        assert_eq!(verdict("complete").unwrap(), WaitVerdict::Reached);
        let refused = verdict("failed").unwrap_err();
        assert_eq!(refused.exit, Exit::Failed);
        assert!(
            refused.sentence.contains("backing file"),
            "{}",
            refused.sentence
        );
        assert_eq!(verdict("not_cached").unwrap_err().exit, Exit::Failed);
    }
}
