//! Writes an image to a block device while it arrives, and the config drive after it.
//!
//! `trivet-image-disks` verifies and writes, on a thread of its own; here are the requests. After
//! a network cut, or a chunk that does not match the chunk list, the image is requested again
//! from the byte that the writer needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use trivet_board_linux::{BlockAccess, BlockFile};
use trivet_image_disks::{
    ExpectedImage, ImageWriteError, ImageWriter, ImageWrittenAhead, MBR_BYTES, ReadBackCheck,
    TargetDisk, TargetDiskError, finish_written, move_gpt_backup, unpack_config_drive,
    write_config_drive,
};
use trivet_model::Digest;

use super::AgentShellContext;
use super::ahead::no_list;
use super::chunked::ChunkedImage;
use super::disk::{AgentWrittenImage, whole_disk};
use super::fetch::{ImageFetchProgress, PIECE_TIMEOUT, fetch_chunk_list, piece};
use super::partition_write::prepare;
use super::target::AgentDisks;
use crate::state_machine::{AgentWorkError, ImageOrder, PartitionOrder, WrittenDisk};

/// Pieces queued for the disk. A piece is the result of one read from the socket.
const PIECES_MAX: usize = 32;

/// Beyond the end of every image, and a number that every server can represent.
const END_OF_IMAGE: u64 = 1 << 62;

/// How many times in a row a URL may deliver nothing that is of use. Ours; the stock agent tries
/// ten times.
const TRIES_MAX: u32 = 5;

/// Longest packed config drive. Ours: one of 64 MiB does not get longer by base64 than this.
const CONFIG_DRIVE_TEXT_BYTES_MAX: usize = 96 << 20;

/// What a writer's thread does.
struct DeviceWriteTask {
    path: PathBuf,
    expected: ExpectedImage,
    config_drive: Option<Vec<u8>>,
    partitions: Option<PartitionOrder>,
    is_ahead: bool,
}

enum DeviceWriteMessage {
    Piece(Bytes),
    /// From which byte is the image needed?
    Resume(oneshot::Sender<u64>),
    /// Was a chunk wrong in what was passed on before?
    Check(oneshot::Sender<bool>),
    Finish,
}

/// The writer's thread.
struct DeviceWriter {
    messages: mpsc::Sender<DeviceWriteMessage>,
    /// A message for each chunk that was wrong.
    corrupted: mpsc::Receiver<()>,
    thread: JoinHandle<Result<AgentWrittenImage, AgentWorkError>>,
}

impl DeviceWriter {
    fn start(task: DeviceWriteTask, guard: OwnedMutexGuard<()>) -> Self {
        let (messages, incoming) = mpsc::channel(PIECES_MAX);
        let (report, corrupted) = mpsc::channel(1);
        let thread = spawn_blocking(move || {
            let _guard = guard;
            if task.is_ahead {
                write_ahead(&task, incoming, &report)
            } else {
                write(&task, incoming, &report)
            }
        });
        Self {
            messages,
            corrupted,
            thread,
        }
    }

    /// Why the thread ended.
    async fn outcome(self) -> Result<AgentWrittenImage, AgentWorkError> {
        drop(self.messages);
        let broken = |_| AgentWorkError::Write("the writer broke".to_owned());
        self.thread.await.map_err(broken)?
    }
}

/// Writes an image to this device. The URLs are tried in order.
pub(super) async fn write_image(
    shared: &Arc<AgentShellContext>,
    path: &Path,
    disks: &AgentDisks,
    order: &ImageOrder,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let config_drive = match &order.config_drive {
        Some(text) => Some(fetch_config_drive(shared, text).await?),
        None => None,
    };
    let mut last = AgentWorkError::Download("no address was given".to_owned());
    for url in &order.urls {
        let mut list = fetch_chunk_list(shared, url, order).await;
        loop {
            let is_listed = list.is_some();
            if order.is_ahead && !is_listed {
                last = no_list(url);
                break;
            }
            let task = DeviceWriteTask {
                path: path.to_owned(),
                expected: expected(order.digest, list),
                config_drive: config_drive.clone(),
                partitions: order.partitions.clone(),
                is_ahead: order.is_ahead,
            };
            let writer = DeviceWriter::start(task, disks.lock().await);
            last = match attempt(shared, url, writer).await {
                Err(failure @ AgentWorkError::Write(_)) => return Err(failure),
                Err(failure) => failure,
                written => return written,
            };
            // A server that makes the list while it sends has it afterwards.
            list = fetch_chunk_list(shared, url, order).await;
            let is_wrong = matches!(last, AgentWorkError::Checksum { .. });
            if is_listed || !is_wrong || list.is_none() {
                break;
            }
        }
    }
    Err(last)
}

fn expected(digest: Digest, list: Option<ChunkedImage>) -> ExpectedImage {
    ExpectedImage {
        digest,
        size: list.as_ref().map(|image| image.size),
        chunks: list.map(|image| image.list),
    }
}

/// Requests the image until the writer has all of it, or nothing of use arrives any more.
async fn attempt(
    shared: &Arc<AgentShellContext>,
    url: &str,
    mut writer: DeviceWriter,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let mut tries = 0;
    let mut reached = 0;
    let mut progress = ImageFetchProgress::default();
    loop {
        let Some(at) = resume_at(&writer.messages).await else {
            return writer.outcome().await;
        };
        tries = if at > reached { 1 } else { tries + 1 };
        reached = reached.max(at);
        progress.restart_at(at);
        let failure = match receive(shared, url, at, &mut writer, &mut progress).await {
            Ok(true) => {
                let _ = writer.messages.send(DeviceWriteMessage::Finish).await;
                return writer.outcome().await;
            }
            Ok(false) if writer.messages.is_closed() => return writer.outcome().await,
            Ok(false) => AgentWorkError::Checksum {
                want: "the bytes of the chunk list".to_owned(),
                got: format!("other bytes in the chunk at byte {at} or in a later one"),
            },
            Err(failure) => failure,
        };
        if tries >= TRIES_MAX {
            return Err(failure);
        }
        sleep(Duration::from_millis(shared.options.intervals.retry_ms)).await;
    }
}

/// From which byte the writer needs the image; nothing if it has ended.
async fn resume_at(messages: &mpsc::Sender<DeviceWriteMessage>) -> Option<u64> {
    let (sender, at) = oneshot::channel();
    // The error has the message and so the sender: it must be dropped before the wait.
    let sent = messages.send(DeviceWriteMessage::Resume(sender)).await;
    sent.ok()?;
    at.await.ok()
}

/// Passes the image from a byte on to the writer. False: the writer does not take more.
async fn receive(
    shared: &AgentShellContext,
    url: &str,
    at: u64,
    writer: &mut DeviceWriter,
    progress: &mut ImageFetchProgress,
) -> Result<bool, AgentWorkError> {
    let failed = |words: String| AgentWorkError::Download(words);
    // To the end of the image.
    let range = (at > 0).then_some(at..END_OF_IMAGE);
    let response = shared
        .options
        .client
        .get(url, range)
        .await
        .map_err(failed)?;
    let status = response.status().as_u16();
    if status != if at > 0 { 206 } else { 200 } {
        return Err(failed(format!("{url} answered {status}")));
    }
    let mut body = response.into_body();
    let mut come = at;
    while let Some(piece) = piece(&mut body, url, come).await? {
        come += piece.len() as u64;
        progress.report(shared, piece.len());
        let sent = writer.messages.send(DeviceWriteMessage::Piece(piece)).await;
        if sent.is_err() || writer.corrupted.try_recv().is_ok() {
            return Ok(false);
        }
    }
    // The writer may be behind.
    let (sender, is_broken) = oneshot::channel();
    let _ = writer
        .messages
        .send(DeviceWriteMessage::Check(sender))
        .await;
    let is_broken = is_broken.await.unwrap_or(true);
    let _ = writer.corrupted.try_recv();
    Ok(!is_broken)
}

/// Verifies an image that was written ahead and adds what it lacks.
pub(super) async fn finish_written_ahead(
    shared: &Arc<AgentShellContext>,
    path: &Path,
    disks: &AgentDisks,
    image: ImageWrittenAhead,
    order: &ImageOrder,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let config_drive = match &order.config_drive {
        Some(text) => Some(fetch_config_drive(shared, text).await?),
        None => None,
    };
    let task = DeviceWriteTask {
        path: path.to_owned(),
        expected: image.expected.clone(),
        config_drive,
        partitions: None,
        is_ahead: false,
    };
    let guard = disks.lock().await;
    let written = spawn_blocking(move || {
        let _guard = guard;
        let mut disk = open(&task.path)?;
        let report = finish_written(&mut disk, &image)
            .map_err(|error| write_error(&task, task.expected.digest, error))?;
        Ok(AgentWrittenImage {
            bytes: report.bytes,
            digest: report.digest,
            disk: finish_whole_disk(disk, &task.path, task.config_drive.as_deref())?,
            was_on_disk: true,
            ahead: None,
        })
    });
    let broken = |_| AgentWorkError::Write("the writer broke".to_owned());
    written.await.map_err(broken)?
}

fn open(path: &Path) -> Result<BlockFile, AgentWorkError> {
    let failed = |error| AgentWorkError::Write(format!("{}: {error}", path.display()));
    BlockFile::open(path, BlockAccess::Write).map_err(failed)
}

/// The thread: writes what arrives, with partitions around it or into it.
fn write(
    task: &DeviceWriteTask,
    incoming: mpsc::Receiver<DeviceWriteMessage>,
    corrupted: &mpsc::Sender<()>,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let path = &task.path;
    let failed = |error: String| AgentWorkError::Write(format!("{}: {error}", path.display()));
    let mut disk = open(path)?;
    let config_drive = task.config_drive.as_deref();
    let prepared = match &task.partitions {
        Some(order) => Some(prepare(&mut disk, order, config_drive).map_err(failed)?),
        None => None,
    };
    let end = |writer: ImageWriter<'_>| writer.finish(ReadBackCheck::Samples);
    let report = match &prepared {
        Some(prepared) => write_image_to(
            &mut prepared.root(&mut disk),
            task,
            incoming,
            corrupted,
            end,
        ),
        None => write_image_to(&mut disk, task, incoming, corrupted, end),
    }?;
    let disk = match prepared {
        Some(prepared) => prepared.finish(disk, path)?,
        None => finish_whole_disk(disk, path, config_drive)?,
    };
    Ok(AgentWrittenImage {
        bytes: report.bytes,
        digest: report.digest,
        disk,
        was_on_disk: false,
        ahead: None,
    })
}

/// The thread for an image that is written ahead.
fn write_ahead(
    task: &DeviceWriteTask,
    incoming: mpsc::Receiver<DeviceWriteMessage>,
    corrupted: &mpsc::Sender<()>,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let mut disk = open(&task.path)?;
    let end = |writer: ImageWriter<'_>| writer.finish_ahead();
    let rest = write_image_to(&mut disk, task, incoming, corrupted, end)?;
    Ok(AgentWrittenImage {
        bytes: rest.size,
        digest: task.expected.digest,
        disk: WrittenDisk::default(),
        was_on_disk: false,
        ahead: Some(Box::new(rest)),
    })
}

/// Writes what arrives to a disk or a partition. `end` ends the writer when all has arrived.
fn write_image_to<T>(
    disk: &mut dyn TargetDisk,
    task: &DeviceWriteTask,
    mut incoming: mpsc::Receiver<DeviceWriteMessage>,
    corrupted: &mpsc::Sender<()>,
    end: impl FnOnce(ImageWriter<'_>) -> Result<T, ImageWriteError>,
) -> Result<T, AgentWorkError> {
    let digest = task.expected.digest;
    let named = |error: ImageWriteError| write_error(task, digest, error);
    let mut writer = ImageWriter::begin(disk, task.expected.clone()).map_err(named)?;
    let mut is_broken = false;
    loop {
        match incoming.blocking_recv() {
            Some(DeviceWriteMessage::Piece(_)) if is_broken => {}
            Some(DeviceWriteMessage::Piece(piece)) => match writer.push(&piece) {
                Ok(()) => {}
                Err(ImageWriteError::CorruptedChunk { .. }) => {
                    is_broken = true;
                    let _ = corrupted.try_send(());
                }
                Err(error) => return Err(named(error)),
            },
            Some(DeviceWriteMessage::Resume(reply)) => {
                is_broken = false;
                let _ = reply.send(writer.resume_at());
            }
            Some(DeviceWriteMessage::Check(reply)) => {
                let _ = reply.send(is_broken);
            }
            Some(DeviceWriteMessage::Finish) => return end(writer).map_err(named),
            None => return Err(AgentWorkError::Download("broken off".to_owned())),
        }
    }
}

/// What follows the image of a whole disk.
fn finish_whole_disk(
    mut disk: BlockFile,
    path: &Path,
    config_drive: Option<&[u8]>,
) -> Result<WrittenDisk, AgentWorkError> {
    let drive_failed =
        |error: String| AgentWorkError::Write(format!("{}: config drive: {error}", path.display()));
    match config_drive {
        Some(image) => {
            let random = random_bytes().map_err(|error| drive_failed(error.to_string()))?;
            write_config_drive(&mut disk, image, random)
                .map_err(|error| drive_failed(error.to_string()))?;
        }
        None => {
            // An image without a GPT has nothing to move; a damaged one is the image's.
            let _ = move_gpt_backup(&mut disk);
        }
    }
    // Nothing has the old partitions open; if the kernel refuses, the next boot reads them.
    let _ = disk.reread_partitions();
    let mut head = vec![0; (disk.sector_bytes() as usize).max(MBR_BYTES)];
    let read = TargetDisk::read_at(&mut disk, &mut head, 0);
    Ok(whole_disk(Some(path), read.map_or(&[], |()| &head)))
}

pub(super) fn random_bytes() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

fn write_error(task: &DeviceWriteTask, expected: Digest, error: ImageWriteError) -> AgentWorkError {
    match error {
        ImageWriteError::Disk(TargetDiskError::TooSmall {
            needed_bytes,
            disk_bytes,
        }) if task.partitions.is_some() => AgentWorkError::Write(format!(
            "the root partition is too small: the image has {needed_bytes} bytes or more, and \
                 the partition {disk_bytes}; increase root_gb of the instance"
        )),
        // The last chunk, which is checked at the end.
        ImageWriteError::CorruptedChunk { chunk, at } => AgentWorkError::Checksum {
            want: expected.to_string(),
            got: format!("other bytes in chunk {chunk}, at byte {at}"),
        },
        ImageWriteError::Checksum { want, got } => AgentWorkError::Checksum {
            want: want.to_string(),
            got: got.to_string(),
        },
        ImageWriteError::Cut { .. } | ImageWriteError::TooLong { .. } => {
            AgentWorkError::Download(error.to_string())
        }
        _ => AgentWorkError::Write(format!("{}: {error}", task.path.display())),
    }
}

/// The config drive of a text: base64 of a gzip file, or a URL of such a text.
async fn fetch_config_drive(
    shared: &AgentShellContext,
    text: &str,
) -> Result<Vec<u8>, AgentWorkError> {
    let failed = |words: String| AgentWorkError::Download(format!("config drive: {words}"));
    let text = if text.starts_with("http://") || text.starts_with("https://") {
        let response = shared
            .options
            .client
            .get(text, None)
            .await
            .map_err(failed)?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(failed(format!("answered {status}")));
        }
        let body = response.into_body().collect(CONFIG_DRIVE_TEXT_BYTES_MAX);
        let body = timeout(PIECE_TIMEOUT, body).await;
        let body = body.map_err(|_| failed("did not arrive in time".to_owned()))?;
        let body = body.map_err(|error| failed(error.to_string()))?;
        String::from_utf8_lossy(&body).into_owned()
    } else {
        text.to_owned()
    };
    let unpacked = spawn_blocking(move || unpack_config_drive(&text)).await;
    let unpacked = unpacked.map_err(|error| failed(error.to_string()))?;
    unpacked.map_err(|error| AgentWorkError::Write(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_writer_that_has_ended_is_not_awaited() {
        let (messages, mut incoming) = mpsc::channel(1);
        let answers = async {
            if let Some(DeviceWriteMessage::Resume(reply)) = incoming.recv().await {
                let _ = reply.send(7);
            }
        };
        let (at, ()) = tokio::join!(resume_at(&messages), answers);
        assert_eq!(at, Some(7));
        // Such as one whose disk is too small.
        drop(incoming);
        let ended = timeout(Duration::from_secs(10), resume_at(&messages)).await;
        assert_eq!(ended, Ok(None));
    }
}
