//! The ramdisk of our agent: one static program, kernel modules and nothing else, unless options
//! add to it. The same inputs give the same bytes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::additions::RamdiskAdditions;
use crate::cpio::{ArchiveContent, CpioArchive};
use crate::debian;
use crate::fingerprint::{BuildKey, file_digest};
use crate::kernel::{firmware, unpack_kernel};
use crate::program::{ProgramList, program, remove, run};

pub(crate) const PROGRAMS: ProgramList = &[("zstd", "zstd")];

/// The name of the program, and where cargo puts a static one, from the directory of its other
/// programs.
const AGENT: &str = "trivet-agent";
const STATIC_BUILD: &str = "../x86_64-unknown-linux-musl/appliance/trivet-agent";

/// Where it is in the ramdisk.
const AGENT_PATH: &str = "usr/sbin/trivet-agent";

/// Directories that the agent mounts file systems on, and its own.
const DIRECTORIES: [&str; 5] = ["proc", "run", "sys", "tmp", "mnt"];

/// Parts of packages that no ramdisk needs.
const UNUSED: [&str; 5] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bug",
];

/// The agent of the option, else the one beside this program.
pub(crate) fn agent_binary(chosen: Option<&Path>) -> Result<PathBuf> {
    let found = if let Some(path) = chosen {
        path.to_owned()
    } else {
        let own = std::env::current_exe()?;
        let beside = own.parent().context("a program is in a directory")?;
        let places = [AGENT, STATIC_BUILD].map(|name| beside.join(name));
        let mut there = places.into_iter().filter(|path| path.is_file());
        // A program that was built for this machine may be dynamic, beside the static one.
        there
            .find(|path| fs::read(path).is_ok_and(|bytes| is_static(&bytes) == Some(true)))
            .context(
                "there is no static trivet-agent beside this program: cargo build \
                 --profile appliance --target x86_64-unknown-linux-musl -p trivet-image-agent, or \
                 --agent-binary",
            )?
    };
    let bytes = fs::read(&found).with_context(|| format!("cannot read {}", found.display()))?;
    match is_static(&bytes) {
        Some(true) => Ok(found),
        Some(false) => bail!(
            "{} needs a dynamic linker; a ramdisk has none: build it with \
             --target x86_64-unknown-linux-musl",
            found.display()
        ),
        None => bail!("{} is not a program for x86-64", found.display()),
    }
}

/// Whether an ELF program for x86-64 needs no dynamic linker: no program header is `PT_INTERP`.
/// None if it is no such program.
fn is_static(bytes: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    const EM_X86_64: u16 = 62;
    let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    // e_ident: 64 bits, little-endian.
    if bytes.get(..6)? != b"\x7fELF\x02\x01" || half(18)? != EM_X86_64 {
        return None;
    }
    let table = u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?);
    let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
    for number in 0..count {
        let at = usize::try_from(table).ok()?.checked_add(number * size)?;
        let kind = bytes.get(at..at.checked_add(4)?)?;
        if u32::from_le_bytes(kind.try_into().ok()?) == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

/// Adds what this ramdisk always has.
pub(crate) fn add_to_key(key: &mut BuildKey, agent: &Path) -> Result<()> {
    // Increased when the build process changes.
    key.add("own 1");
    key.add(include_bytes!("../files/own-init"));
    key.add(file_digest(agent)?);
    Ok(())
}

/// Makes `kernel` and `ramdisk` in `place`.
pub(crate) fn make(
    place: &Path,
    cache: &Path,
    kernel_package: &str,
    (agent, added): (&Path, &RamdiskAdditions),
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    say("the kernel and its modules");
    let tree = place.join("kernel-package");
    let kernel = unpack_kernel(cache, kernel_package, &tree)?;
    fs::copy(&kernel.image, place.join("kernel"))?;
    let (modules, missing) = kernel.selected(&added.modules)?;
    if !missing.is_empty() {
        let missing = missing.join(" ");
        say(&format!("not in this kernel, or built in: {missing}"));
    }
    let mut archive = CpioArchive::default();
    if !added.packages.is_empty() {
        say("packages");
        archive.extend(packages(place, cache, added)?);
    }
    for (number, source) in added.firmware.iter().enumerate() {
        let tree = place.join(format!("firmware-{number}"));
        archive.extend(firmware(&modules, cache, source, &tree)?);
        remove(&tree)?;
    }
    archive.extend(modules);
    remove(&tree)?;
    for directory in DIRECTORIES {
        archive.add(directory, 0o755, ArchiveContent::Directory);
    }
    // The kernel opens it for the first program.
    let console = ArchiveContent::Device { major: 5, minor: 1 };
    archive.add("dev/console", 0o600, console);
    archive.add_file(AGENT_PATH, 0o755, fs::read(agent)?);
    let agent = ArchiveContent::Link(format!("/{AGENT_PATH}"));
    // The kernel asks this program for modules by name; the agent answers to the name.
    archive.add("sbin/modprobe", 0o777, agent.clone());
    if added.runs_on_boot {
        archive.add_file("init", 0o755, *include_bytes!("../files/own-init"));
    } else {
        archive.add("init", 0o777, agent);
    }
    archive.extend(added.files.clone());
    say("packing the ramdisk");
    pack(&archive, place)
}

/// All packages, unpacked over each other.
fn packages(place: &Path, cache: &Path, added: &RamdiskAdditions) -> Result<CpioArchive> {
    let tree = place.join("packages");
    for name in &added.packages {
        debian::unpack(cache, name, &tree)?;
    }
    let mut archive = CpioArchive::default();
    archive.add_tree(&tree, "", &|path| UNUSED.contains(&path))?;
    remove(&tree)?;
    Ok(archive)
}

/// Compresses with a window that the kernel's decompressor accepts, and a checksum.
fn pack(archive: &CpioArchive, place: &Path) -> Result<()> {
    let plain = place.join("ramdisk.cpio");
    fs::write(&plain, archive.encode()?)?;
    // With workers the result does not depend on their number.
    run(program("zstd")
        .args(["-q", "-10", "-T2", "--check", "--rm", "-o"])
        .arg(place.join("ramdisk"))
        .arg(&plain))?;
    ensure!(!plain.exists(), "zstd did not remove its input");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header with one program header of this type.
    fn program_with(kind: u8, machine: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (bytes[18], bytes[32], bytes[54], bytes[56]) = (machine, 64, 56, 1);
        bytes[64] = kind;
        bytes
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert_eq!(is_static(&program_with(1, 62)), Some(true));
        assert_eq!(is_static(&program_with(3, 62)), Some(false));
    }

    #[test]
    fn what_is_no_program_of_this_machine_is_told_apart() {
        assert_eq!(is_static(&program_with(1, 183)), None);
        assert_eq!(is_static(b"#!/bin/sh\n"), None);
        for length in 0..120 {
            let cut = is_static(&program_with(1, 62)[..length]);
            assert_ne!(cut, Some(false));
        }
        let mut far = program_with(1, 62);
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(is_static(&far), None);
    }

    #[test]
    fn this_test_is_dynamic_and_not_taken_as_an_agent() {
        let own = std::env::current_exe().unwrap();
        let refused = agent_binary(Some(&own)).unwrap_err().to_string();
        assert!(refused.contains("dynamic linker"), "{refused}");
    }
}
