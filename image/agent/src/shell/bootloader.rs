//! Makes a written image bootable: an image that is one file system gets a boot loader, and UEFI
//! firmware gets entries for the loaders on the EFI system partition of the disk. An image of a
//! whole disk has its boot loader, so on a machine that was booted by its BIOS nothing is done.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mount::MountFlags;
use serde_json::Value;
use tokio::task::spawn_blocking;
use trivet_board_linux::{BlockAccess, BlockFile};
use trivet_image_disks::{
    DiskTable, EFI_LIST_BYTES_MAX, EfiBootEntry, EfiLoader, EfiPartition, choose_efi_loaders,
    efi_system_partition,
};
use trivet_image_inventory::SystemRoot;

use super::efi_variables::EfiVariables;
use super::image_loader::{ImagePartitions, install_image_loader};
use super::mounted::{MountedFileSystem, partition_device};
use super::target::{AgentDisks, ImageTarget};
use super::{AgentShellContext, AgentShellEvent};
use crate::state_machine::{AgentWorkError, AgentWorkOutcome, BootloaderOrder, WrittenPartitions};

/// How deep an EFI system partition is searched, and how many of its files. Ours.
const DEPTH_MAX: usize = 8;
const FILES_MAX: usize = 4096;

/// Makes a disk bootable. The notes of what was done go to the log.
pub(super) async fn install(
    shared: &Arc<AgentShellContext>,
    disks: &AgentDisks,
    order: BootloaderOrder,
) -> Result<AgentWorkOutcome, AgentWorkError> {
    let ignored = order.ignores_failure;
    let ignored = ignored.unwrap_or(shared.options.ignores_bootloader_failure);
    let installed = install_on_disk(disks, &order).await;
    for note in notes_or_error(installed, ignored)? {
        shared.emit(AgentShellEvent::Bootloader(note)).await;
    }
    Ok(AgentWorkOutcome::Value(Value::Null))
}

/// A failure that is to be ignored is only a note.
fn notes_or_error(
    installed: Result<Vec<String>, AgentWorkError>,
    is_ignored: bool,
) -> Result<Vec<String>, AgentWorkError> {
    match installed {
        Err(error) if is_ignored => Ok(vec![format!("ignored, as it was asked for: {error}")]),
        other => other,
    }
}

async fn install_on_disk(
    disks: &AgentDisks,
    order: &BootloaderOrder,
) -> Result<Vec<String>, AgentWorkError> {
    let written = order.disk.clone().unwrap_or_default();
    let device = match written.device.clone() {
        Some(device) => device,
        None => match disks.for_image(&order.root_device).await? {
            ImageTarget::Device(device) => device,
            // A simulated machine has no firmware.
            ImageTarget::File(_) => return Ok(Vec::new()),
        },
    };
    if !disks.are_of_this_machine() {
        return Ok(Vec::new());
    }
    let guard = disks.lock().await;
    let installed = spawn_blocking(move || {
        let _guard = guard;
        let mut notes = match &written.partitions {
            Some(made) => install_in_partitions(&device, made)?,
            None => Vec::new(),
        };
        let has_bios_loader = written
            .partitions
            .is_some_and(|made| made.efi_system.is_none());
        if !has_bios_loader {
            notes.extend(add_boot_entries(&device)?);
        }
        Ok(notes)
    });
    let installed = installed.await;
    installed.map_err(|error| AgentWorkError::Bootloader(error.to_string()))?
}

/// Puts a boot loader on a disk with a partition image.
fn install_in_partitions(
    disk: &Path,
    made: &WrittenPartitions,
) -> Result<Vec<String>, AgentWorkError> {
    let root = shown_partition(disk, made.root)?;
    let efi_system = match &made.efi_system {
        Some((number, uuid)) => Some((shown_partition(disk, *number)?, uuid)),
        None => None,
    };
    let partitions = ImagePartitions {
        disk,
        root: &root,
        efi_system: efi_system
            .as_ref()
            .map(|(device, uuid)| (device.as_path(), uuid.as_str())),
    };
    let installed = install_image_loader(&partitions);
    installed.map_err(|error| AgentWorkError::Bootloader(error.to_string()))
}

/// The device of a partition, after another look at the table if the kernel does not have it.
fn shown_partition(disk: &Path, number: u32) -> Result<PathBuf, AgentWorkError> {
    let look = || partition_device(&SystemRoot::new(Path::new("/")), disk, number);
    let look_again = || {
        let opened = BlockFile::open(disk, BlockAccess::Write).ok()?;
        opened.reread_partitions().ok()?;
        look()
    };
    look().or_else(look_again).ok_or_else(|| {
        let disk = disk.display();
        let words = format!("the kernel does not show partition {number} of {disk}");
        AgentWorkError::Bootloader(words)
    })
}

/// Adds entries for the loaders of a disk to the firmware of this machine.
fn add_boot_entries(device: &Path) -> Result<Vec<String>, AgentWorkError> {
    let failed = |error: io::Error| AgentWorkError::Bootloader(error.to_string());
    let Some(variables) = EfiVariables::of_this_machine().map_err(failed)? else {
        return Ok(Vec::new());
    };
    let partition = read_system_partition(device)?;
    let found = shown_partition(device, partition.number)?;
    let mounted = MountedFileSystem::mount(&found, &["vfat"], MountFlags::RDONLY);
    let mounted = mounted.map_err(failed)?;
    let loaders = find_loaders(mounted.place()).map_err(failed)?;
    mounted.unmount().map_err(failed)?;
    if loaders.is_empty() {
        return Err(AgentWorkError::Bootloader(format!(
            "the EFI system partition {} has no loader for this machine; use an image that can be \
             booted by UEFI",
            found.display()
        )));
    }
    let entries = boot_entries(&partition, &loaders);
    variables.add(&entries).map_err(failed)?;
    Ok(notes(&entries, &found))
}

/// The EFI system partition of a disk, whose partitions the kernel knows afterwards.
fn read_system_partition(device: &Path) -> Result<EfiPartition, AgentWorkError> {
    let name = device.display();
    let failed = |error: String| AgentWorkError::Bootloader(format!("{name}: {error}"));
    let disk = BlockFile::open(device, BlockAccess::Write);
    let mut disk = disk.map_err(|error| failed(error.to_string()))?;
    let table = DiskTable::read(&mut disk).map_err(|error| failed(error.to_string()))?;
    // Where the kernel refuses, it has read them before: the step that wrote the image ended so.
    let _ = disk.reread_partitions();
    efi_system_partition(&table).ok_or_else(|| {
        AgentWorkError::Device(format!(
            "No EFI system partition was found on device {name}; use an image that can be booted \
             by UEFI, or boot the machine by its BIOS"
        ))
    })
}

fn boot_entries(partition: &EfiPartition, loaders: &[EfiLoader]) -> Vec<EfiBootEntry> {
    let entry = |loader: &EfiLoader| EfiBootEntry {
        description: loader.description.clone(),
        partition: *partition,
        loader: loader.path.clone(),
    };
    loaders.iter().map(entry).collect()
}

fn notes(entries: &[EfiBootEntry], partition: &Path) -> Vec<String> {
    let note = |entry: &EfiBootEntry| {
        let (description, loader) = (&entry.description, &entry.loader);
        format!(
            "boot entry {description}: {loader} on {}",
            partition.display()
        )
    };
    entries.iter().map(note).collect()
}

/// The loaders in the directory that an EFI system partition is mounted on.
fn find_loaders(root: &Path) -> io::Result<Vec<EfiLoader>> {
    let mut files = Vec::new();
    list_files(root, "", DEPTH_MAX, &mut files)?;
    let mut read = |path: &str| {
        let mut bytes = Vec::new();
        let file = File::open(root.join(path)).ok()?;
        file.take(EFI_LIST_BYTES_MAX as u64)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(bytes)
    };
    Ok(choose_efi_loaders(&files, &mut read))
}

/// The paths of all files below a directory, with slashes. Names that are not text are left out.
fn list_files(root: &Path, below: &str, depth: usize, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = if below.is_empty() {
            name
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            list_files(root, &path, depth - 1, found)?;
        } else if kind.is_file() && found.len() < FILES_MAX {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
