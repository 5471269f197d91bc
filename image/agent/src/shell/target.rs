//! Which disk an image is written to, and which disks are erased.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::{JoinError, spawn_blocking};
use trivet_image_disks::{RootDiskCandidate, choose_root_disk};
use trivet_image_inventory::{DiskIdentity, SystemRoot, list_disks};

use super::AgentShellEvent;
use super::ahead::HeldImage;
use super::disk::AgentTargetDisk;
use super::erase::{EraseTarget, erase_disks, erase_targets};
use super::system_disk::system_disks;
use crate::ramdisk::virtual_media_devices;
use crate::state_machine::{AgentEraseOrder, AgentWorkError, AgentWorkOutcome};

/// The disks of an agent.
#[derive(Clone, Debug)]
pub enum AgentTarget {
    /// A file in the place of a disk, for simulated machines.
    File {
        /// Its path.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// This block device, whatever the hints are.
    Device(PathBuf),
    /// The block devices of this machine.
    Machine,
}

/// Where an image goes.
pub(super) enum ImageTarget {
    File(AgentTargetDisk),
    Device(PathBuf),
}

impl ImageTarget {
    /// The path of the device or of the file.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File(disk) => disk.path(),
            Self::Device(path) => path,
        }
    }
}

#[derive(Clone)]
pub(super) struct AgentDisks {
    target: AgentTarget,
    /// One lock for all, so that work on every disk ends before the agent does.
    file: AgentTargetDisk,
    /// The image that was written ahead.
    held: Arc<Mutex<Option<HeldImage>>>,
}

impl AgentDisks {
    pub(super) fn new(target: AgentTarget) -> Self {
        let file = match &target {
            AgentTarget::File { path, bytes } => AgentTargetDisk::file(path.clone(), *bytes),
            _ => AgentTargetDisk::file(PathBuf::new(), 0),
        };
        let held = Arc::default();
        Self { target, file, held }
    }

    /// Keeps what must still be written of an image.
    pub(super) fn hold(&self, image: HeldImage) {
        *self.held() = Some(image);
    }

    /// Takes it: the caller changes a disk.
    pub(super) fn take_held(&self) -> Option<HeldImage> {
        self.held().take()
    }

    /// An assignment does not panic, so the value behind a poisoned lock is valid.
    fn held(&self) -> MutexGuard<'_, Option<HeldImage>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn wait_until_idle(&self) {
        self.file.wait_until_idle().await;
    }

    /// Waits until there is no other writer.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<()> {
        self.file.lock().await
    }

    /// Whether these are the disks that the firmware of this machine boots.
    pub(super) fn are_of_this_machine(&self) -> bool {
        matches!(self.target, AgentTarget::Machine)
    }

    /// The disk for an image, by the hints of a node.
    pub(super) async fn for_image(
        &self,
        root_device: &Value,
    ) -> Result<ImageTarget, AgentWorkError> {
        match &self.target {
            AgentTarget::File { .. } => Ok(ImageTarget::File(self.file.clone())),
            AgentTarget::Device(path) => Ok(ImageTarget::Device(path.clone())),
            AgentTarget::Machine => {
                let candidates: Vec<_> = disks().await.into_iter().map(candidate).collect();
                let chosen = choose_root_disk(&candidates, root_device);
                let chosen = chosen.map_err(|error| AgentWorkError::Device(error.to_string()))?;
                let name = chosen.disk.name.clone().unwrap_or_default();
                Ok(ImageTarget::Device(PathBuf::from(name)))
            }
        }
    }

    /// Erases all disks, or their partition tables and signatures. The progress goes to `events`.
    pub(super) async fn erase(
        &self,
        order: AgentEraseOrder,
        seed: u64,
        events: mpsc::Sender<AgentShellEvent>,
    ) -> Result<AgentWorkOutcome, AgentWorkError> {
        let targets = match &self.target {
            AgentTarget::File { .. } => {
                self.file.erase(order.whole).await?;
                return Ok(AgentWorkOutcome::Erased);
            }
            AgentTarget::Device(path) => vec![EraseTarget {
                path: path.clone(),
                skip_reason: None,
            }],
            AgentTarget::Machine => {
                let candidates: Vec<_> = disks().await.into_iter().map(candidate).collect();
                let found = spawn_blocking(|| {
                    let system = system_disks(&SystemRoot::new(Path::new("/")));
                    (system, virtual_media_devices())
                });
                let failed = |error: JoinError| AgentWorkError::Erase(error.to_string());
                let (system, media) = found.await.map_err(failed)?;
                erase_targets(&candidates, &system, &media, &order)
            }
        };
        let guard = self.lock().await;
        let erased = spawn_blocking(move || {
            let _guard = guard;
            erase_disks(&targets, &order, seed, &mut |device, note| {
                let _ = events.try_send(AgentShellEvent::Erasing { device, note });
            })
        });
        let erased = erased.await;
        let erased = erased.map_err(|error| AgentWorkError::Erase(error.to_string()))?;
        erased.map(AgentWorkOutcome::Value)
    }
}

fn candidate(found: DiskIdentity) -> RootDiskCandidate {
    RootDiskCandidate {
        disk: found.disk,
        other_serials: found.serials,
        other_wwns: found.wwns,
    }
}

/// The disks of this machine.
async fn disks() -> Vec<DiskIdentity> {
    let listed = spawn_blocking(|| list_disks(&SystemRoot::new(Path::new("/"))));
    listed.await.unwrap_or_default()
}
