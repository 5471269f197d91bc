//! Peers from Debian, and a directory to run them in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory on the disk of the build, removed when the value is dropped.
#[derive(Debug)]
pub struct BenchDirectory(PathBuf);

impl BenchDirectory {
    /// Creates one. Not in the system's temporary directory, which may be in memory.
    ///
    /// # Errors
    ///
    /// When it cannot be created.
    pub fn new(name: &str) -> io::Result<Self> {
        let path = target()?.join(format!("bench-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file system and its device.
    ///
    /// # Errors
    ///
    /// When `df` fails.
    pub fn file_system(&self) -> io::Result<String> {
        let output = Command::new("df")
            .args(["--output=fstype,source"])
            .arg(&self.0)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().nth(1).unwrap_or("unknown");
        Ok(line.split_whitespace().collect::<Vec<_>>().join(" on "))
    }
}

impl Drop for BenchDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Cargo's target directory: this program is two directories below one of its profiles.
fn target() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let above = program.ancestors().nth(3).map(Path::to_owned);
    above.ok_or_else(|| io::Error::other("this program has no directory"))
}

/// The path of an installed program.
///
/// # Errors
///
/// When it is not found.
pub fn installed(program: &str) -> io::Result<PathBuf> {
    ["/usr/sbin", "/usr/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(program))
        .find(|path| path.exists())
        .ok_or_else(|| {
            io::Error::other(format!(
                "{program} is not installed; see tests/bench/packages"
            ))
        })
}

/// A program of a Debian package that is unpacked and not installed: Debian's TFTP servers
/// conflict with each other, and would be started.
///
/// # Errors
///
/// When it cannot be downloaded.
pub fn unpacked(package: &str, program: &str) -> io::Result<PathBuf> {
    let directory = target()?.join("bench-peers").join(package);
    let found = directory.join(program);
    if found.exists() {
        return Ok(found);
    }
    fs::create_dir_all(&directory)?;
    let script = "apt-get -qq download \"$1\" && dpkg-deb -x \"$1\"_*.deb .";
    let fetched = || {
        Command::new("sh")
            .args(["-c", script, "sh", package])
            .current_dir(&directory)
            .status()
    };
    if !fetched()?.success() {
        // The list of packages may be older than the mirror.
        Command::new("apt-get").args(["-qq", "update"]).status()?;
        fetched()?;
    }
    found
        .exists()
        .then_some(found)
        .ok_or_else(|| io::Error::other(format!("no {program} in Debian's {package}")))
}
