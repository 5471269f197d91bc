//! Packages of Debian that are downloaded and unpacked, not installed: no root is needed, and
//! no script of a package runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::fingerprint::file_digest;
use crate::program::{ProgramList, clear, output, program, run};

pub(crate) const PROGRAMS: ProgramList = &[
    ("apt-cache", "apt"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
];

/// A package as the package lists of this machine describe it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DebianPackage {
    /// The name of the file that apt writes.
    pub(crate) file: String,
    /// The SHA-256 digest of that file.
    pub(crate) digest: String,
}

/// The package of the kernel for real machines.
pub(crate) fn kernel_package() -> Result<String> {
    let listed = output(program("apt-cache").args(["depends", "linux-image-amd64"]))?;
    let mut lines = listed.lines().map(str::trim);
    let package = lines.find_map(|line| line.strip_prefix("Depends: "));
    let package = package.filter(|name| name.starts_with("linux-image-"));
    package
        .map(str::to_owned)
        .context("apt knows no linux-image-amd64; run apt-get update")
}

/// The packages and all that they depend on, without recommendations.
pub(crate) fn with_dependencies(names: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    if names.is_empty() {
        return Ok(BTreeSet::new());
    }
    let listed = output(
        program("apt-cache")
            .args(["depends", "--recurse", "--no-recommends", "--no-suggests"])
            .args(["--no-conflicts", "--no-breaks", "--no-replaces"])
            .arg("--no-enhances")
            .args(names),
    )?;
    Ok(dependency_names(&listed))
}

/// The packages at the beginning of lines: each real package has a paragraph of its own. A
/// virtual package is in angle brackets.
fn dependency_names(listed: &str) -> BTreeSet<String> {
    let names = listed.lines().filter(|line| {
        line.starts_with(|first: char| first.is_ascii_alphanumeric()) && !line.contains(':')
    });
    names.map(|line| line.trim().to_owned()).collect()
}

/// Looks packages up. An unknown name is an error.
pub(crate) fn look_up<'a>(
    names: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<DebianPackage>> {
    let names: Vec<&String> = names.into_iter().collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let listed = output(
        program("apt-get")
            .args(["-qq", "download", "--print-uris"])
            .args(&names),
    )?;
    let found = packages(&listed);
    ensure!(
        found.len() == names.len(),
        "apt has no download of all of {names:?}; run apt-get update"
    );
    Ok(found)
}

/// Lines of `apt-get download --print-uris`: `'URL' FILE SIZE SHA256:DIGEST`.
fn packages(listed: &str) -> Vec<DebianPackage> {
    let package = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let file = words.next().filter(|file| !file.contains('/'))?;
        let digest = words.nth(1)?.strip_prefix("SHA256:")?;
        Some(DebianPackage {
            file: file.to_owned(),
            digest: digest.to_owned(),
        })
    };
    listed.lines().filter_map(package).collect()
}

/// Downloads a package to the cache if it is not there, and unpacks it.
pub(crate) fn unpack(cache: &Path, name: &str, into: &Path) -> Result<()> {
    let name = name.to_owned();
    let package = look_up([&name])?;
    let package = package.first().context("apt names no file")?;
    let file = fetch(cache, &name, package)?;
    fs::create_dir_all(into)?;
    run(program("dpkg-deb").arg("-x").arg(file).arg(into))
}

fn fetch(cache: &Path, name: &str, package: &DebianPackage) -> Result<PathBuf> {
    let place = cache.join("packages");
    let file = place.join(&package.file);
    if file.is_file() && file_digest(&file)? == package.digest {
        return Ok(file);
    }
    let download = cache.join(format!("download-{}", std::process::id()));
    clear(&download)?;
    run(program("apt-get")
        .args(["-qq", "-o", "APT::Sandbox::User=root", "download", name])
        .current_dir(&download))?;
    fs::create_dir_all(&place)?;
    fs::rename(download.join(&package.file), &file)
        .with_context(|| format!("apt did not download {}", package.file))?;
    fs::remove_dir(&download)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_apt_is_a_package() {
        let listed = "'http://a/pool/i/i_3%3a6_all.deb' i_3%3a6_all.deb 108396 SHA256:ab12\n\
                      'file:/x' ../x 1 SHA256:00\nnonsense\n";
        let want = DebianPackage {
            file: "i_3%3a6_all.deb".into(),
            digest: "ab12".into(),
        };
        assert_eq!(packages(listed), [want]);
    }

    #[test]
    fn real_packages_are_dependencies_and_virtual_ones_are_not() {
        let listed = "dropbear-bin\n  Depends: libc6\n |Depends: <x>\nlibc6\n  Depends: libgcc-s1\n\
                      libgcc-s1\n<awk>\n    mawk\nlibc6:i386\n";
        let names: Vec<_> = dependency_names(listed).into_iter().collect();
        assert_eq!(names, ["dropbear-bin", "libc6", "libgcc-s1"]);
    }
}
