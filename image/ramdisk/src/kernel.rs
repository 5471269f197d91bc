//! Debian's kernel and the modules of it that a ramdisk gets, with index files that name only
//! these.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cpio::CpioArchive;
use crate::debian::unpack;
use crate::modules::{closure, firmware_names, lines_of_modules, module_name};
use crate::program::{ProgramList, first, program, run};

pub(crate) const PROGRAMS: ProgramList = &[("depmod", "kmod")];

/// Where blobs are in packages of Debian, and where the kernel looks for them.
const FIRMWARE_PLACES: [&str; 2] = ["lib/firmware", "usr/lib/firmware"];

/// A kernel that was unpacked.
pub(crate) struct UnpackedKernel {
    pub(crate) image: PathBuf,
    /// The directory of its modules and their index files.
    modules: PathBuf,
    version: String,
}

/// Downloads and unpacks a kernel below `place`, and makes its index files.
pub(crate) fn unpack_kernel(cache: &Path, package: &str, place: &Path) -> Result<UnpackedKernel> {
    unpack(cache, package, place)?;
    let modules = first(&place.join("lib/modules"))?;
    let version = modules.file_name().and_then(|name| name.to_str());
    let version = version.context("a kernel has a version")?.to_owned();
    run(program("depmod").arg("-b").arg(place).arg(&version))?;
    Ok(UnpackedKernel {
        image: place.join(format!("boot/vmlinuz-{version}")),
        modules,
        version,
    })
}

impl UnpackedKernel {
    /// These modules and their dependencies, with index files restricted to them, and the names
    /// of the modules that this kernel does not have as files.
    pub(crate) fn selected(&self, wanted: &BTreeSet<String>) -> Result<(CpioArchive, Vec<String>)> {
        let read = |name: &str| -> Result<String> {
            let path = self.modules.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let dependencies = read("modules.dep")?;
        let (files, missing) = closure(&dependencies, wanted);
        let names: BTreeSet<String> = files.iter().map(|file| module_name(file)).collect();
        let mut archive = CpioArchive::default();
        let to = format!("lib/modules/{}", self.version);
        for file in &files {
            let bytes = fs::read(self.modules.join(file))?;
            archive.add_file(&format!("{to}/{file}"), 0o644, bytes);
        }
        for index in ["modules.dep", "modules.alias", "modules.softdep"] {
            let text = lines_of_modules(index, &read(index)?, &names);
            archive.add_file(&format!("{to}/{index}"), 0o644, text);
        }
        let order = lines_of_modules("modules.order", &read("modules.order")?, &names);
        archive.add_file(&format!("{to}/modules.order"), 0o644, order);
        let builtin = read("modules.builtin")?;
        archive.add_file(&format!("{to}/modules.builtin"), 0o644, builtin);
        Ok((archive, missing))
    }
}

/// The blobs that a module of `archive` requests, from a directory or a package of Debian.
pub(crate) fn firmware(
    archive: &CpioArchive,
    cache: &Path,
    source: &str,
    place: &Path,
) -> Result<CpioArchive> {
    let mut found = CpioArchive::default();
    if Path::new(source).is_dir() {
        found.add_tree(Path::new(source), FIRMWARE_PLACES[0], &|_| false)?;
        return Ok(found);
    }
    unpack(cache, source, place)?;
    for name in archive.files().flat_map(firmware_names) {
        for directory in FIRMWARE_PLACES {
            let path = place.join(directory).join(&name);
            if path.is_file() {
                found.add_file(&format!("lib/firmware/{name}"), 0o644, fs::read(path)?);
            }
        }
    }
    Ok(found)
}
