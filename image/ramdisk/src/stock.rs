//! The ramdisk of the stock Ironic Python Agent: Debian's packages by mmdebstrap, the agent by
//! pip, packed by cpio and zstd.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::additions::RamdiskAdditions;
use crate::fingerprint::BuildKey;
use crate::kernel::{firmware, unpack_kernel};
use crate::program::{ProgramList, program, remove, run};
use crate::python;
use crate::recipe::{IPA_VERSION, PACKAGES, RAMDISK_FILES, RELEASE};

pub(crate) const PROGRAMS: ProgramList = &[
    ("cpio", "cpio"),
    ("mmdebstrap", "mmdebstrap"),
    ("pip3", "python3-pip"),
    ("python3", "python3"),
    ("tar", "tar"),
    ("zstd", "zstd"),
];

/// Adds what this ramdisk always has.
pub(crate) fn add_to_key(key: &mut BuildKey) {
    // Increased when the build process changes.
    key.add_all(["stock 3", IPA_VERSION, RELEASE]);
    key.add_all(PACKAGES);
    for own in &RAMDISK_FILES {
        key.add_all([own.path, own.text]);
    }
}

/// Makes `kernel` and `ramdisk` in `place`.
pub(crate) fn make(
    place: &Path,
    cache: &Path,
    kernel_package: &str,
    added: &RamdiskAdditions,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let root = place.join("root");
    fs::create_dir(&root)?;
    say("Debian's packages (some minutes)");
    debian(place, &root, added)?;
    say("the agent and what it is made of");
    agent(&root, &added.python)?;
    say("the kernel and its modules");
    let tree = place.join("kernel-package");
    let kernel = unpack_kernel(cache, kernel_package, &tree)?;
    fs::copy(&kernel.image, place.join("kernel"))?;
    let (modules, missing) = kernel.selected(&added.modules)?;
    if !missing.is_empty() {
        let missing = missing.join(" ");
        say(&format!("not in this kernel, or built in: {missing}"));
    }
    modules.write_below(&root)?;
    for (number, source) in added.firmware.iter().enumerate() {
        let tree = place.join(format!("firmware-{number}"));
        firmware(&modules, cache, source, &tree)?.write_below(&root)?;
        remove(&tree)?;
    }
    let version = modules_version(&root)?;
    run(program("depmod").arg("-b").arg(&root).arg(version))?;
    remove(&tree)?;
    own_files(&root, added)?;
    for unused in ["var/cache/apt", "var/lib/apt/lists", "boot"] {
        remove(&root.join(unused))?;
    }
    say("packing the ramdisk");
    let packing = "cd \"$1\" && find . -print0 | LC_ALL=C sort -z | \
                   cpio --quiet -0 -o -H newc | zstd -q -10 -T0 -o \"$2\"";
    run(program("bash")
        .args(["-o", "pipefail", "-c", packing, "pack"])
        .arg(&root)
        .arg(place.join("ramdisk")))?;
    remove(&root)
}

fn debian(place: &Path, root: &Path, added: &RamdiskAdditions) -> Result<()> {
    let tar = place.join("root.tar");
    let mut packages: Vec<&str> = PACKAGES.to_vec();
    packages.extend(added.packages.iter().map(String::as_str));
    let mut debian = program("mmdebstrap");
    debian.args(["--quiet", "--variant=minbase"]);
    debian.arg(format!("--include={}", packages.join(",")));
    for unread in ["man", "doc", "locale", "info"] {
        debian.arg(format!("--dpkgopt=path-exclude=/usr/share/{unread}/*"));
    }
    run(debian.arg(RELEASE).arg(&tar))?;
    run(program("tar").arg("-C").arg(root).arg("-xf").arg(&tar))?;
    Ok(fs::remove_file(&tar)?)
}

fn agent(root: &Path, more: &[String]) -> Result<()> {
    run(program("pip3")
        .args(["install", "--quiet", "--disable-pip-version-check"])
        .args(["--no-compile", "--root-user-action=ignore", "--target"])
        .arg(root.join(python::PACKAGES))
        .arg(format!("ironic-python-agent=={IPA_VERSION}"))
        .args(more))?;
    // Compiled in advance: a machine would compile the code at each boot, because it stores
    // nothing.
    run(program("python3")
        .args(["-m", "compileall", "-q", "--invalidation-mode"])
        .args(["unchecked-hash", "-p", "/", "-s"])
        .args([root, &root.join(python::PACKAGES)]))
}

fn modules_version(root: &Path) -> Result<std::ffi::OsString> {
    let modules = crate::program::first(&root.join("lib/modules"))?;
    Ok(modules.file_name().unwrap_or_default().to_owned())
}

/// Files of ours, then those of the options, which may replace them.
fn own_files(root: &Path, added: &RamdiskAdditions) -> Result<()> {
    let mut files = crate::cpio::CpioArchive::default();
    for own in RAMDISK_FILES {
        files.add_file(own.path, own.mode, own.text);
    }
    files.extend(added.files.clone());
    files.write_below(root)
}
