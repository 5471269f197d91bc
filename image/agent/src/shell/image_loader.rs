//! The boot loader of an image that is one file system: from its own files if it has them below
//! /boot/efi, else by its own GRUB, which runs with the image as its root directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::MountFlags;
use trivet_board_linux::{open_beneath, run_in_root};

use super::mounted::MountedFileSystem;
use super::partition_write::outcome_of;

/// File systems of images. Those that the kernel does not have are not found.
const ROOT_KINDS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// Where images have their loaders.
const EFI_MOUNT: &str = "boot/efi";
const EFI_FILES: &str = "EFI";

/// Names of GRUB's programs begin so.
const GRUBS: [&str; 2] = ["grub2", "grub"];
const PROGRAM_DIRECTORIES: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "bin"];
const PROGRAM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What GRUB is installed for.
const BIOS_TARGET: &str = "i386-pc";
const EFI_TARGET: &str = if cfg!(target_arch = "aarch64") {
    "arm64-efi"
} else {
    "x86_64-efi"
};

/// How deep loaders of an image are copied, and the longest table of file systems. Ours.
const DEPTH_MAX: usize = 8;
const FSTAB_BYTES_MAX: u64 = 1 << 20;

/// The partitions of a written image.
pub(super) struct ImagePartitions<'paths> {
    /// The disk.
    pub(super) disk: &'paths Path,
    /// The device of the root partition.
    pub(super) root: &'paths Path,
    /// The device of the EFI system partition, and the identifier of its file system.
    pub(super) efi_system: Option<(&'paths Path, &'paths str)>,
}

/// Puts a boot loader on the disk. Returns notes for the log.
pub(super) fn install_image_loader(partitions: &ImagePartitions<'_>) -> io::Result<Vec<String>> {
    let root = MountedFileSystem::mount(partitions.root, &ROOT_KINDS, MountFlags::empty())?;
    let system = ImageSystem::new(root.place())?;
    let notes = match partitions.efi_system {
        Some((device, uuid)) => install_efi(&system, device, uuid)?,
        None => system.with_kernel_files(|| install_bios(&system, partitions.disk))?,
    };
    root.unmount()?;
    Ok(notes)
}

fn install_efi(system: &ImageSystem, device: &Path, uuid: &str) -> io::Result<Vec<String>> {
    let own_files = system.inside(EFI_MOUNT).map(|place| place.join(EFI_FILES));
    let own_files = own_files.filter(|place| place.is_dir());
    let notes = if let Some(files) = own_files {
        let mut notes = Vec::new();
        if system.grub().is_some() {
            system.with_kernel_files(|| system.configure_grub())?;
            notes.push("the configuration of GRUB was made".to_owned());
        }
        let mounted = MountedFileSystem::mount(device, &["vfat"], MountFlags::empty())?;
        let to = mounted.place().join(EFI_FILES);
        copy_files(&files, &to, DEPTH_MAX)?;
        system.copy_grub_files(&to)?;
        mounted.unmount()?;
        notes.push("the loaders of the image were copied".to_owned());
        notes
    } else {
        let place = system.make_inside(EFI_MOUNT)?;
        let mounted = MountedFileSystem::mount_at(device, &place, &["vfat"], MountFlags::empty())?;
        let notes = system.with_kernel_files(|| {
            // The agent adds the boot entry.
            let target = format!("--target={EFI_TARGET}");
            system.install_grub(&[&target, "--no-nvram"])?;
            system.install_grub(&[&target, "--no-nvram", "--removable"])?;
            system.configure_grub()?;
            Ok(vec!["GRUB of the image was installed for UEFI".to_owned()])
        })?;
        mounted.unmount()?;
        notes
    };
    system.add_to_fstab(uuid)?;
    Ok(notes)
}

fn install_bios(system: &ImageSystem, disk: &Path) -> io::Result<Vec<String>> {
    let name = disk.display().to_string();
    system.install_grub(&[&format!("--target={BIOS_TARGET}"), &name])?;
    system.configure_grub()?;
    Ok(vec![format!("GRUB of the image was installed on {name}")])
}

/// The mounted root of an image. Its links lead nowhere else.
struct ImageSystem {
    root: PathBuf,
}

impl ImageSystem {
    fn new(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        Ok(Self { root })
    }

    /// A place in the image; none if it does not exist or is outside.
    fn inside(&self, path: &str) -> Option<PathBuf> {
        let place = self.root.join(path).canonicalize().ok()?;
        place.starts_with(&self.root).then_some(place)
    }

    /// A directory in the image, which is made if it does not exist.
    fn make_inside(&self, path: &str) -> io::Result<PathBuf> {
        let mut place = self.root.clone();
        for name in path.split('/') {
            place.push(name);
            match fs::create_dir(&place) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            place = place.canonicalize()?;
            if !place.starts_with(&self.root) || !place.is_dir() {
                let words = format!("/{path} of the image is not a directory in it");
                return Err(io::Error::other(words));
            }
        }
        Ok(place)
    }

    /// The first part of the names of GRUB's programs, if the image has them.
    fn grub(&self) -> Option<&'static str> {
        let mut names = GRUBS.into_iter();
        names.find(|name| self.program(&format!("{name}-install")).is_some())
    }

    /// The path of a program for the image. Its links may be absolute, so they are not followed.
    fn program(&self, name: &str) -> Option<String> {
        let mut places = PROGRAM_DIRECTORIES.into_iter();
        let place = places.find(|place| {
            let path = self.root.join(place).join(name);
            path.symlink_metadata().is_ok_and(|facts| !facts.is_dir())
        })?;
        Some(format!("/{place}/{name}"))
    }

    fn install_grub(&self, arguments: &[&str]) -> io::Result<()> {
        let grub = self.grub().ok_or_else(|| {
            let words = "the image has neither grub-install nor grub2-install, and no loaders \
                         below /boot/efi/EFI; use an image with a boot loader";
            io::Error::other(words)
        })?;
        self.run(&format!("{grub}-install"), arguments)
    }

    fn configure_grub(&self) -> io::Result<()> {
        let grub = self.grub().unwrap_or(GRUBS[1]);
        self.make_inside(&format!("boot/{grub}"))?;
        let file = format!("/boot/{grub}/grub.cfg");
        self.run(&format!("{grub}-mkconfig"), &["-o", &file])
    }

    /// Runs a program of the image.
    fn run(&self, name: &str, arguments: &[&str]) -> io::Result<()> {
        let program = self.program(name);
        let program = program.ok_or_else(|| {
            io::Error::other(format!("the image has no program {name}; install it there"))
        })?;
        let mut command = Command::new(&program);
        command.args(arguments).env_clear().envs([
            ("PATH", PROGRAM_PATH),
            ("LC_ALL", "C"),
            // Other systems on other disks are not for this menu.
            ("GRUB_DISABLE_OS_PROBER", "true"),
            ("GRUB_SAVEDEFAULT", "true"),
        ]);
        let done = run_in_root(&self.root, &mut command);
        outcome_of(Path::new(&program), done).map_err(io::Error::other)
    }

    /// Does something while the image has the files of the kernel.
    fn with_kernel_files<Done>(&self, work: impl FnOnce() -> io::Result<Done>) -> io::Result<Done> {
        let mut mounted = Vec::new();
        for name in ["dev", "proc", "run", "sys"] {
            let place = self.make_inside(name)?;
            mounted.push(MountedFileSystem::bind(&Path::new("/").join(name), &place)?);
        }
        let done = work();
        // A program that the image left running may still use one.
        while let Some(last) = mounted.pop() {
            drop(last);
        }
        done
    }

    /// The configuration of GRUB, for each vendor whose directory does not have it.
    fn copy_grub_files(&self, efi: &Path) -> io::Result<()> {
        for name in ["grub.cfg", "grubenv"] {
            let Some(from) = self.inside(&format!("boot/grub2/{name}")) else {
                continue;
            };
            for entry in fs::read_dir(efi)? {
                let to = entry?.path().join(name);
                if from.is_file() && to.parent().is_some_and(Path::is_dir) && !to.exists() {
                    fs::copy(&from, &to)?;
                }
            }
        }
        Ok(())
    }

    /// The system mounts its EFI system partition.
    fn add_to_fstab(&self, uuid: &str) -> io::Result<()> {
        let Some(path) = self.inside("etc/fstab") else {
            return Ok(());
        };
        let file = open_beneath(&self.root, Path::new("etc/fstab"))?;
        let mut table = String::new();
        io::Read::read_to_string(&mut io::Read::take(file, FSTAB_BYTES_MAX), &mut table)?;
        let name = format!("UUID={uuid}");
        if table.contains(&name) {
            return Ok(());
        }
        let end = if table.is_empty() || table.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        let mut file = OpenOptions::new().append(true).open(path)?;
        writeln!(file, "{end}{name}\t/boot/efi\tvfat\tumask=0077\t0\t1")
    }
}

/// Copies files and directories; links are left out, as FAT has none.
fn copy_files(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_file() {
            fs::copy(entry.path(), target)?;
        } else if kind.is_dir() && depth > 0 {
            copy_files(&entry.path(), &target, depth - 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
