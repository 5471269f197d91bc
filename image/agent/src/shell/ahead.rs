//! An image that was written ahead: its first chunk, which the disk lacks, is in memory. So it
//! is used only by the agent that wrote it, and only while its machine runs.
//!
//! A deployment of the same image to the same disk verifies every chunk on the disk, and writes
//! the first one. All other work that changes a disk drops what is here.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;
use trivet_image_disks::{ExpectedImage, ImageWrittenAhead};
use trivet_model::Digest;

use super::AgentShellContext;
use super::chunked::ChunkedImage;
use super::device_write;
use super::disk::{AgentTargetDisk, AgentWrittenImage, whole_disk};
use super::target::{AgentDisks, ImageTarget};
use crate::state_machine::{AgentWorkError, ImageOrder};

/// What must still be written, and to which disk.
#[derive(Debug)]
pub(super) struct HeldImage {
    disk: PathBuf,
    image: ImageWrittenAhead,
}

impl HeldImage {
    pub(super) fn new(target: &ImageTarget, image: ImageWrittenAhead) -> Self {
        let disk = target.path().to_owned();
        Self { disk, image }
    }

    /// Whether it is this image, on this disk.
    pub(super) fn is(&self, disk: &Path, digest: Digest) -> bool {
        self.disk == disk && self.image.expected.digest == digest
    }
}

/// Verifies the image on the disk and makes it bootable.
pub(super) async fn finish(
    shared: &Arc<AgentShellContext>,
    disks: &AgentDisks,
    target: &ImageTarget,
    held: HeldImage,
    order: &ImageOrder,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let image = held.image;
    let mut written = match target {
        ImageTarget::Device(path) => {
            device_write::finish_written_ahead(shared, path, disks, image, order).await?
        }
        ImageTarget::File(disk) => finish_file(disk, image).await?,
    };
    written.was_on_disk = true;
    Ok(written)
}

async fn finish_file(
    disk: &AgentTargetDisk,
    image: ImageWrittenAhead,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let guard = disk.lock().await;
    let disk = disk.clone();
    let written = spawn_blocking(move || {
        let _guard = guard;
        write_head(&disk, &image)
    });
    let broken = |_| AgentWorkError::Write("the writer broke".to_owned());
    written.await.map_err(broken)?
}

fn write_head(
    disk: &AgentTargetDisk,
    image: &ImageWrittenAhead,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let failed = |error: io::Error| AgentWorkError::Write(error.to_string());
    let file = disk.open_unchanged()?;
    let wanted = chunked_image(image).ok_or_else(|| no_list("the image written ahead"))?;
    if let Some(chunk) = wanted.first_wrong(&file).map_err(failed)? {
        return Err(AgentWorkError::Write(format!(
            "the disk has other bytes than were written ahead, in chunk {chunk}"
        )));
    }
    file.write_all_at(&image.head, 0).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(AgentWrittenImage {
        bytes: image.size,
        digest: image.expected.digest,
        disk: whole_disk(None, &image.head),
        was_on_disk: true,
        ahead: None,
    })
}

fn chunked_image(image: &ImageWrittenAhead) -> Option<ChunkedImage> {
    Some(ChunkedImage {
        list: image.expected.chunks.clone()?,
        size: image.size,
        digest: image.expected.digest,
    })
}

/// What must still be written of an image in a file.
pub(super) fn rest_of(wanted: &ChunkedImage, head: &[u8]) -> Box<ImageWrittenAhead> {
    Box::new(ImageWrittenAhead {
        expected: ExpectedImage {
            digest: wanted.digest,
            size: Some(wanted.size),
            chunks: Some(wanted.list.clone()),
        },
        size: wanted.size,
        head: head.to_vec(),
    })
}

/// The server of an image has no chunk list: nothing is written ahead without one.
pub(super) fn no_list(url: &str) -> AgentWorkError {
    AgentWorkError::Download(format!(
        "{url} has no chunk list, without which an image is not written ahead"
    ))
}
