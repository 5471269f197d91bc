//! A file in the place of a disk, for simulated machines: images are written to it, and it is
//! erased.
//!
//! An image becomes bootable only when its digest is right. The first part of the disk is
//! erased before anything is written and is itself written last, after the verification, so
//! neither a wrong image nor a power cut leaves a bootable disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256, Sha512};
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc};
use tokio::task::{JoinHandle, spawn_blocking};
use trivet_image_disks::ImageWrittenAhead;
use trivet_model::Digest;

use crate::state_machine::{AgentWorkError, WrittenDisk};

/// The part that makes a disk bootable: boot sector, partition table, and more. Ours; a GPT
/// with its usual 128 entries ends at 17 KiB.
pub(super) const HEAD_BYTES: usize = 1024 * 1024;

/// Pieces queued for the disk. A piece is the result of one read from the socket.
const PIECES_MAX: usize = 64;

/// The disk of a simulated machine.
#[derive(Clone)]
pub(super) struct AgentTargetDisk {
    path: PathBuf,
    bytes: u64,
    /// Locked by the present writer.
    busy: Arc<Mutex<()>>,
}

/// An image that was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct AgentWrittenImage {
    pub(super) bytes: u64,
    pub(super) digest: Digest,
    pub(super) disk: WrittenDisk,
    /// It was written ahead: nothing of it was fetched now.
    pub(super) was_on_disk: bool,
    /// What must still be written, of an image that was written ahead.
    pub(super) ahead: Option<Box<ImageWrittenAhead>>,
}

enum DiskWritePiece {
    Data(Bytes),
    End,
}

/// An image that is being written. If it is dropped before the end, the disk does not boot.
pub(super) struct DiskImageWriter {
    pieces: mpsc::Sender<DiskWritePiece>,
    thread: JoinHandle<Result<AgentWrittenImage, AgentWorkError>>,
}

impl DiskImageWriter {
    /// Fails when the writer has ended early; [`Self::finish`] gives the reason.
    pub(super) async fn push(&mut self, piece: Bytes) -> Result<(), ()> {
        self.pieces
            .send(DiskWritePiece::Data(piece))
            .await
            .map_err(|_| ())
    }

    /// Verifies the digest and makes the disk bootable.
    pub(super) async fn finish(self) -> Result<AgentWrittenImage, AgentWorkError> {
        let _ = self.pieces.send(DiskWritePiece::End).await;
        let broken = |_| AgentWorkError::Write("the writer broke".to_owned());
        self.thread.await.map_err(broken)?
    }
}

impl AgentTargetDisk {
    /// A file of this size, which is made when it is needed.
    pub(super) fn file(path: PathBuf, bytes: u64) -> Self {
        Self {
            path,
            bytes,
            busy: Arc::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until there is no writer.
    pub(super) async fn wait_until_idle(&self) {
        drop(self.busy.lock().await);
    }

    /// Starts to write an image.
    pub(super) async fn writer(&self, want: Digest) -> DiskImageWriter {
        let (pieces, coming) = mpsc::channel(PIECES_MAX);
        let guard = self.lock().await;
        let disk = self.clone();
        let thread = spawn_blocking(move || {
            let _guard = guard;
            disk.write(want, coming)
        });
        DiskImageWriter { pieces, thread }
    }

    /// Waits until there is no other writer.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.busy).lock_owned().await
    }

    /// Opens the disk for an image of this size, and erases its bootable part.
    pub(super) fn begin(&self, size: u64) -> Result<File, AgentWorkError> {
        if size > self.bytes {
            return Err(self.too_small());
        }
        let failed = |error: io::Error| AgentWorkError::Write(error.to_string());
        let file = self.open().map_err(failed)?;
        self.clear_head(&file).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(file)
    }

    /// Opens the disk and changes nothing on it.
    pub(super) fn open_unchanged(&self) -> Result<File, AgentWorkError> {
        let failed = |error: io::Error| AgentWorkError::Write(error.to_string());
        self.open().map_err(failed)
    }

    fn too_small(&self) -> AgentWorkError {
        let words = format!("the image is longer than the disk of {} bytes", self.bytes);
        AgentWorkError::Write(words)
    }

    /// Erases the whole disk, or only the part that makes it bootable.
    pub(super) async fn erase(&self, whole: bool) -> Result<(), AgentWorkError> {
        let guard = self.lock().await;
        let disk = self.clone();
        let erased = spawn_blocking(move || {
            let _guard = guard;
            let file = disk.open()?;
            if whole {
                file.set_len(0)?;
                file.set_len(disk.bytes)?;
            } else {
                disk.clear_head(&file)?;
            }
            file.sync_all()
        });
        let failed = |words: String| AgentWorkError::Erase(words);
        let erased = erased.await.map_err(|error| failed(error.to_string()))?;
        erased.map_err(|error| failed(error.to_string()))
    }

    fn open(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.path)?;
        if file.metadata()?.len() < self.bytes {
            file.set_len(self.bytes)?;
        }
        Ok(file)
    }

    /// Zeroes both ends: a GPT has its backup in the last sectors.
    fn clear_head(&self, file: &File) -> io::Result<()> {
        let length = self.bytes.min(HEAD_BYTES as u64);
        let zeroes = vec![0; usize::try_from(length).unwrap_or(HEAD_BYTES)];
        file.write_all_at(&zeroes, 0)?;
        file.write_all_at(&zeroes, self.bytes - length)
    }

    fn write(
        &self,
        want: Digest,
        mut coming: mpsc::Receiver<DiskWritePiece>,
    ) -> Result<AgentWrittenImage, AgentWorkError> {
        let failed = |error: io::Error| AgentWorkError::Write(error.to_string());
        let file = self.begin(0)?;
        let mut head = Vec::new();
        let mut hash = ImageDigester::for_digest(want);
        let mut bytes = 0_u64;
        loop {
            let piece = match coming.blocking_recv() {
                Some(DiskWritePiece::Data(piece)) => piece,
                Some(DiskWritePiece::End) => break,
                None => return Err(AgentWorkError::Download("broken off".to_owned())),
            };
            let end = bytes + piece.len() as u64;
            if end > self.bytes {
                return Err(self.too_small());
            }
            hash.update(&piece);
            let space = HEAD_BYTES.saturating_sub(head.len()).min(piece.len());
            let (front, rest) = piece.split_at(space);
            head.extend_from_slice(front);
            file.write_all_at(rest, bytes + space as u64)
                .map_err(failed)?;
            bytes = end;
        }
        let got = hash.finish();
        if got != want {
            let (want, got) = (want.to_string(), got.to_string());
            return Err(AgentWorkError::Checksum { want, got });
        }
        // The order matters: nothing boots before the image is complete.
        file.sync_all().map_err(failed)?;
        file.write_all_at(&head, 0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(AgentWrittenImage {
            bytes,
            digest: got,
            disk: whole_disk(None, &head),
            was_on_disk: false,
            ahead: None,
        })
    }
}

/// A disk with an image of a whole disk, which begins with `head`.
pub(super) fn whole_disk(device: Option<&Path>, head: &[u8]) -> WrittenDisk {
    WrittenDisk {
        device: device.map(Path::to_owned),
        root_uuid: disk_identifier(head),
        partitions: None,
    }
}

/// The disk identifier in an MBR, as the stock agent reports it for a whole disk.
fn disk_identifier(head: &[u8]) -> Option<String> {
    let boot_sector = head.get(..512)?;
    let identifier: [u8; 4] = boot_sector[440..444].try_into().ok()?;
    let signed = boot_sector[510..] == [0x55, 0xaa];
    signed.then(|| format!("0x{:08x}", u32::from_le_bytes(identifier)))
}

enum ImageDigester {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl ImageDigester {
    fn for_digest(want: Digest) -> Self {
        match want {
            Digest::Sha256(_) => Self::Sha256(Sha256::new()),
            Digest::Sha512(_) => Self::Sha512(Sha512::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
        }
    }

    fn finish(self) -> Digest {
        match self {
            Self::Sha256(hash) => Digest::Sha256(hash.finalize().into()),
            Self::Sha512(hash) => Digest::Sha512(hash.finalize().into()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
