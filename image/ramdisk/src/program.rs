//! Programs of the system that the builder runs. If one fails, the end of its output is shown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::recipe::RELEASE;

/// Programs and the Debian packages that have them.
pub(crate) type ProgramList = &'static [(&'static str, &'static str)];

/// Lines of a failed program that are shown. Ours.
const LINES_MAX: usize = 10;

/// Fails with the packages to install if a program is missing.
pub(crate) fn require(lists: &[ProgramList]) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin".into(), "/sbin".into()]);
    let lacks = |program: &str| !places.iter().any(|place| place.join(program).is_file());
    let wanted = lists.iter().flat_map(|list| list.iter());
    let mut missing: Vec<&str> = wanted
        .filter(|(program, _)| lacks(program))
        .map(|(_, package)| *package)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        bail!(
            "programs are missing: on Debian {RELEASE}, apt-get install {}",
            missing.join(" ")
        );
    }
    Ok(())
}

/// A program, also one of those that only root has in its path.
pub(crate) fn program(name: &str) -> Command {
    let sbin = ["/usr/sbin", "/sbin"].map(|place| Path::new(place).join(name));
    let found = sbin.into_iter().find(|path| path.is_file());
    found.map_or_else(|| Command::new(name), Command::new)
}

/// Runs a step.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    output(command).map(|_| ())
}

/// Runs a step and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ran = command.stdin(Stdio::null()).output();
    let ran = ran.with_context(|| format!("{program} cannot be run"))?;
    if !ran.status.success() {
        let text = String::from_utf8_lossy(&ran.stderr);
        let last: Vec<&str> = text.lines().rev().take(LINES_MAX).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        bail!("{program} failed ({}):\n{}", ran.status, last.join("\n"));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// The first entry of a directory, by name.
pub(crate) fn first(directory: &Path) -> Result<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let entry = entries.first();
    let entry = entry.with_context(|| format!("nothing in {}", directory.display()))?;
    Ok(entry.path())
}

/// Removes a directory if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Replaces a directory by a new, empty one.
pub(crate) fn clear(path: &Path) -> Result<()> {
    remove(path)?;
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
}
