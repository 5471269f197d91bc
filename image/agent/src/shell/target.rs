//! Which disk an image is written to, and which disks are erased.

use std::path::{Path, PathBuf};

use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;
use trivet_image_disks::{RootDiskCandidate, choose_root_disk};
use trivet_image_inventory::{DiskIdentity, SystemRoot, list_disks};

use super::disk::AgentTargetDisk;
use crate::state_machine::{AgentWorkError, ImageOrder};

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

#[derive(Clone)]
pub(super) struct AgentDisks {
    target: AgentTarget,
    /// One lock for all, so that work on every disk ends before the agent does.
    file: AgentTargetDisk,
}

impl AgentDisks {
    pub(super) fn new(target: AgentTarget) -> Self {
        let file = match &target {
            AgentTarget::File { path, bytes } => AgentTargetDisk::file(path.clone(), *bytes),
            _ => AgentTargetDisk::device(PathBuf::new(), 0),
        };
        Self { target, file }
    }

    pub(super) async fn wait_until_idle(&self) {
        self.file.wait_until_idle().await;
    }

    /// Waits until there is no other writer.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<()> {
        self.file.lock().await
    }

    /// The disk for an image.
    pub(super) async fn for_image(
        &self,
        order: &ImageOrder,
    ) -> Result<ImageTarget, AgentWorkError> {
        match &self.target {
            AgentTarget::File { .. } => Ok(ImageTarget::File(self.file.clone())),
            AgentTarget::Device(path) => Ok(ImageTarget::Device(path.clone())),
            AgentTarget::Machine => {
                let candidates: Vec<_> = disks().await.into_iter().map(candidate).collect();
                let chosen = choose_root_disk(&candidates, &order.root_device);
                let chosen = chosen.map_err(|error| AgentWorkError::Device(error.to_string()))?;
                let name = chosen.disk.name.clone().unwrap_or_default();
                Ok(ImageTarget::Device(PathBuf::from(name)))
            }
        }
    }

    /// Erases all disks, or what makes them bootable.
    pub(super) async fn erase(&self, whole: bool) -> Result<(), AgentWorkError> {
        match &self.target {
            AgentTarget::File { .. } => self.file.erase(whole).await,
            AgentTarget::Device(path) => self.erase_device(path, whole).await,
            AgentTarget::Machine => {
                for DiskIdentity { disk, .. } in disks().await {
                    let name = disk.name.unwrap_or_default();
                    self.erase_device(Path::new(&name), whole).await?;
                }
                Ok(())
            }
        }
    }

    async fn erase_device(&self, path: &Path, whole: bool) -> Result<(), AgentWorkError> {
        let failed = |error: String| AgentWorkError::Erase(format!("{}: {error}", path.display()));
        let opened =
            trivet_board_linux::BlockFile::open(path, trivet_board_linux::BlockAccess::Write);
        let opened = opened.map_err(|error| failed(error.to_string()))?;
        let geometry = opened.geometry();
        if geometry.is_read_only {
            return Err(failed("the disk is read-only".to_owned()));
        }
        drop(opened);
        self.file
            .on_device(path.to_owned(), geometry.bytes)
            .erase(whole)
            .await
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
