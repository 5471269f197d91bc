//! The disk around an image that is one file system: partitions before the image is written, and
//! what is known about them afterwards. `trivet-image-disks` decides what is written.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use trivet_board_linux::BlockFile;
use trivet_image_disks::{
    DiskSlice, PartitionLayout, PartitionRole, PartitionTableKind, PlannedPartition, TargetDisk,
    partition_identifiers, prepare_partitions,
};
use trivet_image_inventory::SystemRoot;

use super::mounted::partition_device;
use crate::state_machine::{AgentWorkError, PartitionOrder, WrittenDisk, WrittenPartitions};

/// The label of the ephemeral file system; the stock agent's.
const EPHEMERAL_LABEL: &str = "ephemeral0";

/// Where programs are.
const PROGRAM_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A disk whose partitions were made.
pub(super) struct PreparedDisk {
    layout: PartitionLayout,
    planned: Vec<PlannedPartition>,
    /// The program for the ephemeral file system, if one is to be made, and its arguments.
    format: Option<(PathBuf, Vec<&'static str>)>,
}

/// Makes the partitions. A missing program is an error before anything is erased.
pub(super) fn prepare(
    disk: &mut BlockFile,
    order: &PartitionOrder,
    config_drive: Option<&[u8]>,
) -> Result<PreparedDisk, String> {
    let has_new_ephemeral = order.ephemeral_mib > 0 && !order.keeps_ephemeral;
    let format = if has_new_ephemeral {
        Some(format_program(
            &order.ephemeral_format,
            &PROGRAM_DIRECTORIES,
        )?)
    } else {
        None
    };
    let has_booted_by_uefi = Path::new("/sys/firmware/efi").exists();
    let layout = layout(order, config_drive, has_booted_by_uefi);
    let mut random_error = None;
    let mut random = || {
        super::device_write::random_bytes().unwrap_or_else(|error| {
            random_error = Some(error.to_string());
            [0; 16]
        })
    };
    let planned = prepare_partitions(disk, &layout, config_drive, &mut random);
    let planned = planned.map_err(|error| error.to_string())?;
    match random_error {
        Some(error) => Err(error),
        None => Ok(PreparedDisk {
            layout,
            planned,
            format,
        }),
    }
}

fn layout(
    order: &PartitionOrder,
    config_drive: Option<&[u8]>,
    has_booted_by_uefi: bool,
) -> PartitionLayout {
    let table = if order.is_uefi.unwrap_or(has_booted_by_uefi) {
        PartitionTableKind::GptForUefi
    } else if order.wants_gpt {
        PartitionTableKind::GptForBios
    } else {
        PartitionTableKind::Mbr
    };
    PartitionLayout {
        table,
        root_mib: order.root_mib,
        swap_mib: order.swap_mib,
        ephemeral_mib: order.ephemeral_mib,
        config_drive_bytes: config_drive.map_or(0, |image| image.len() as u64),
        keeps_ephemeral: order.keeps_ephemeral,
    }
}

/// The program that makes a kind of file systems, and its arguments before the device.
fn format_program(
    kind: &str,
    directories: &[&str],
) -> Result<(PathBuf, Vec<&'static str>), String> {
    let name = format!("mkfs.{kind}");
    let mut places = directories.iter().map(|one| Path::new(one).join(&name));
    let program = places.find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "the ephemeral partition needs the program {name}, which this ramdisk does not have; \
             nothing was erased. Build the ramdisk with `trivet-image ramdisk --package` and the \
             package that has it, such as e2fsprogs, or deploy without an ephemeral partition"
        )
    })?;
    let arguments = match kind {
        // The device may look used.
        "ext2" | "ext3" | "ext4" => vec!["-q", "-F", "-L", EPHEMERAL_LABEL],
        "xfs" | "btrfs" => vec!["-f", "-L", EPHEMERAL_LABEL],
        "vfat" | "msdos" => vec!["-n", EPHEMERAL_LABEL],
        _ => vec!["-L", EPHEMERAL_LABEL],
    };
    Ok((program, arguments))
}

impl PreparedDisk {
    /// The root partition as a disk.
    pub(super) fn root<'disk>(&self, disk: &'disk mut BlockFile) -> DiskSlice<'disk> {
        let root = self.planned_root();
        DiskSlice::new(disk, root.start, root.bytes)
    }

    /// A plan always has a root.
    fn planned_root(&self) -> PlannedPartition {
        let mut planned = self.planned.iter();
        let root = planned.find(|one| one.role == PartitionRole::Root);
        root.copied().unwrap_or(PlannedPartition {
            role: PartitionRole::Root,
            number: 0,
            start: 0,
            bytes: 0,
        })
    }

    /// After the image was written: the kernel learns the partitions, the ephemeral file system
    /// is made, and the identifiers are read.
    pub(super) fn finish(
        &self,
        mut disk: BlockFile,
        path: &Path,
    ) -> Result<WrittenDisk, AgentWorkError> {
        let failed = |error: String| AgentWorkError::Write(format!("{}: {error}", path.display()));
        let found = partition_identifiers(&mut disk, &self.layout, &self.planned);
        let found = found.map_err(|error| failed(error.to_string()))?;
        // Nothing has the old partitions open; if the kernel refuses, the next boot reads them.
        let _ = TargetDisk::reread_partitions(&mut disk);
        // The program refuses a disk that this one has open.
        drop(disk);
        if let Some((program, arguments)) = &self.format {
            self.format_ephemeral(path, program, arguments)
                .map_err(failed)?;
        }
        let number = |role| {
            let mut planned = self.planned.iter();
            planned.find(|one| one.role == role).map(|one| one.number)
        };
        let efi_system = number(PartitionRole::EfiSystem).zip(found.efi_system);
        Ok(WrittenDisk {
            device: Some(path.to_owned()),
            root_uuid: found.root,
            partitions: Some(WrittenPartitions {
                root: self.planned_root().number,
                efi_system,
            }),
        })
    }

    fn format_ephemeral(
        &self,
        path: &Path,
        program: &Path,
        arguments: &[&str],
    ) -> Result<(), String> {
        let mut planned = self.planned.iter();
        let ephemeral = planned.find(|one| one.role == PartitionRole::Ephemeral);
        let number = ephemeral.map_or(0, |one| one.number);
        let device = partition_device(&SystemRoot::new(Path::new("/")), path, number);
        let device = device.ok_or_else(|| {
            format!("the kernel does not show partition {number}, the ephemeral one")
        })?;
        let done = Command::new(program).args(arguments).arg(device).output();
        outcome_of(program, done)
    }
}

/// Why a program failed: its own last words.
pub(super) fn outcome_of(
    program: &Path,
    done: io::Result<std::process::Output>,
) -> Result<(), String> {
    let name = program.display();
    let done = done.map_err(|error| format!("{name}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let words = [done.stdout, done.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    let last: Vec<&str> = words.lines().rev().take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().map(str::trim).collect();
    Err(format!(
        "{name} failed ({}): {}",
        done.status,
        last.join("; ")
    ))
}

#[cfg(test)]
mod tests;
