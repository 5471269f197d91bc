//! Boot entries in the variables of the firmware, as files of `efivarfs`.
//!
//! `trivet-image-disks` decides which variables change; here they are read and written.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use trivet_image_disks::{
    EFI_ENTRIES_MAX, EFI_GLOBAL_VARIABLE, EFI_VARIABLE_BYTES_MAX, EfiBootEntry, EfiVariableChange,
    add_boot_entry, efi_entry_number, parse_boot_order,
};

/// Where the kernel shows the variables.
const EFI_VARIABLES: &str = "/sys/firmware/efi/efivars";

/// A file begins with the attributes of its variable.
const ATTRIBUTES_BYTES: usize = 4;

/// What a firmware boots.
struct EfiBootVariables {
    /// The values of the boot entries, by number.
    entries: BTreeMap<u16, Vec<u8>>,
    /// The numbers of entries in the order in which they are tried.
    order: Vec<u16>,
}

/// The variables of a firmware.
#[derive(Clone, Debug)]
pub(super) struct EfiVariables {
    directory: PathBuf,
}

impl EfiVariables {
    /// The variables of this machine, mounted if they are not. `None` if it was not booted by
    /// UEFI.
    pub(super) fn of_this_machine() -> io::Result<Option<Self>> {
        let directory = Path::new(EFI_VARIABLES);
        if !directory.parent().is_some_and(Path::exists) {
            return Ok(None);
        }
        let is_mounted = fs::read_dir(directory).is_ok_and(|mut all| all.next().is_some());
        if !is_mounted {
            let flags = rustix::mount::MountFlags::NOSUID;
            rustix::mount::mount("efivarfs", directory, "efivarfs", flags, None)?;
        }
        Ok(Some(Self::at(directory)))
    }

    /// Those in a directory.
    pub(super) fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Adds entries in front of the boot order, the first one first. Older entries with the same
    /// descriptions are deleted.
    pub(super) fn add(&self, entries: &[EfiBootEntry]) -> io::Result<()> {
        for entry in entries.iter().rev() {
            let present = self.read()?;
            let changes = add_boot_entry(&present.entries, &present.order, entry);
            let full = || io::Error::other("all numbers of boot entries are used");
            for change in changes.ok_or_else(full)? {
                self.apply(&change)?;
            }
        }
        Ok(())
    }

    fn read(&self) -> io::Result<EfiBootVariables> {
        let mut entries = BTreeMap::new();
        for file in fs::read_dir(&self.directory)? {
            let name = file?.file_name();
            let number = name.to_str().and_then(efi_entry_number);
            let Some(number) = number.filter(|_| entries.len() < EFI_ENTRIES_MAX) else {
                continue;
            };
            entries.insert(number, value(&self.directory.join(&name))?);
        }
        let order = self
            .directory
            .join(format!("BootOrder-{EFI_GLOBAL_VARIABLE}"));
        let order = match value(&order) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            value => value?,
        };
        let order = parse_boot_order(&order);
        Ok(EfiBootVariables { entries, order })
    }

    fn apply(&self, change: &EfiVariableChange) -> io::Result<()> {
        let named = |file: &str, error: io::Error| {
            let words = format!("the variable {file} cannot be changed: {error}");
            io::Error::new(error.kind(), words)
        };
        match change {
            EfiVariableChange::Write { file, bytes } => {
                let path = self.directory.join(file);
                allow_changes(&path);
                // The kernel takes a variable as one write, and no file of another size.
                let written = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&path)
                    .and_then(|mut opened| opened.write(bytes));
                let written = written.map_err(|error| named(file, error))?;
                if written < bytes.len() {
                    return Err(named(file, io::ErrorKind::WriteZero.into()));
                }
                Ok(())
            }
            EfiVariableChange::Delete { file } => {
                let path = self.directory.join(file);
                allow_changes(&path);
                fs::remove_file(&path).map_err(|error| named(file, error))
            }
        }
    }
}

/// The value of a variable, without its attributes.
fn value(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(EFI_VARIABLE_BYTES_MAX as u64)
        .read_to_end(&mut bytes)?;
    Ok(bytes.split_off(ATTRIBUTES_BYTES.min(bytes.len())))
}

/// The kernel marks variables as immutable, so that they are not deleted by mistake. Where the
/// flag cannot be changed, the change that follows fails with the reason.
fn allow_changes(path: &Path) {
    if let Ok(file) = File::open(path)
        && let Ok(flags) = ioctl_getflags(&file)
        && flags.contains(IFlags::IMMUTABLE)
    {
        let _ = ioctl_setflags(&file, flags - IFlags::IMMUTABLE);
    }
}

#[cfg(test)]
mod tests;
