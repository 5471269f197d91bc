//! Which disk an image is written to, and which disks are erased.

use std::fs;
use std::path::{Path, PathBuf};

use super::disk::AgentTargetDisk;
use crate::state_machine::AgentWorkError;

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
    /// The block devices of this machine.
    Machine,
}

/// The least size of a disk for an image without hints. The stock agent's.
const ROOT_BYTES_MIN: u64 = 4 << 30;

/// The size of a sector in /sys/block, whatever the disk's own is.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone)]
pub(super) struct AgentDisks {
    target: AgentTarget,
    /// One for all, so that work on one disk ends before the agent does.
    file: AgentTargetDisk,
}

impl AgentDisks {
    pub(super) fn new(target: AgentTarget) -> Self {
        let file = match &target {
            AgentTarget::File { path, bytes } => AgentTargetDisk::file(path.clone(), *bytes),
            AgentTarget::Machine => AgentTargetDisk::device(PathBuf::new(), 0),
        };
        Self { target, file }
    }

    pub(super) async fn wait_until_idle(&self) {
        self.file.wait_until_idle().await;
    }

    /// The disk for an image.
    pub(super) async fn for_image(&self) -> Result<AgentTargetDisk, AgentWorkError> {
        match self.target {
            AgentTarget::File { .. } => Ok(self.file.clone()),
            AgentTarget::Machine => {
                let mut disks = disks();
                disks.retain(|(_, bytes)| *bytes >= ROOT_BYTES_MIN);
                disks.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
                let (path, bytes) = disks.into_iter().next().ok_or_else(|| {
                    let words = "no disk of at least 4 GiB";
                    AgentWorkError::Write(words.to_owned())
                })?;
                Ok(self.file.on_device(path, bytes))
            }
        }
    }

    /// Erases all disks, or what makes them bootable.
    pub(super) async fn erase(&self, whole: bool) -> Result<(), AgentWorkError> {
        match self.target {
            AgentTarget::File { .. } => self.file.erase(whole).await,
            AgentTarget::Machine => {
                for (path, bytes) in disks() {
                    self.file.on_device(path, bytes).erase(whole).await?;
                }
                Ok(())
            }
        }
    }
}

/// Disks with their sizes, from sysfs.
fn disks() -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let sectors: u64 = text("size").trim().parse().unwrap_or(0);
        let is_disk = entry.path().join("device").exists()
            && !["sr", "fd"].iter().any(|kind| name.starts_with(kind));
        if sectors > 0 && is_disk && text("ro").trim() == "0" {
            found.push((Path::new("/dev").join(name), sectors * SECTOR_BYTES));
        }
    }
    found
}
