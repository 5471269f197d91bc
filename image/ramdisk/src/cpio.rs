//! The archive in an initramfs: cpio in the format `newc` of the kernel's documentation
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! The same entries give the same bytes: entries are sorted by path, inode numbers count from
//! one, times are zero and everything belongs to root. Directories above an entry are added.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// What an entry is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ArchiveContent {
    Directory,
    File(Vec<u8>),
    /// A symbolic link and where it leads.
    Link(String),
    /// A character device.
    Device {
        major: u32,
        minor: u32,
    },
}

impl ArchiveContent {
    /// The type in the mode of a file (POSIX `sys/stat.h`).
    const fn type_bits(&self) -> u32 {
        match self {
            Self::Directory => 0o040_000,
            Self::File(_) => 0o100_000,
            Self::Link(_) => 0o120_000,
            Self::Device { .. } => 0o020_000,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::File(bytes) => bytes,
            Self::Link(target) => target.as_bytes(),
            Self::Directory | Self::Device { .. } => &[],
        }
    }
}

/// Entries by their path, which begins without a slash.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct CpioArchive {
    entries: BTreeMap<String, (u32, ArchiveContent)>,
}

impl CpioArchive {
    /// Adds an entry, or replaces it, and the directories above it that are missing.
    pub(crate) fn add(&mut self, path: &str, mode: u32, content: ArchiveContent) {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            let above = path[..at].to_owned();
            let directory = (0o755, ArchiveContent::Directory);
            self.entries.entry(above).or_insert(directory);
        }
        self.entries.insert(path.to_owned(), (mode, content));
    }

    pub(crate) fn add_file(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        self.add(path, mode, ArchiveContent::File(bytes.into()));
    }

    /// Adds all entries of another archive; they replace those with the same paths.
    pub(crate) fn extend(&mut self, other: Self) {
        for (path, (mode, content)) in other.entries {
            self.add(&path, mode, content);
        }
    }

    /// The contents of all files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &[u8]> {
        let contents = self.entries.values().map(|(_, content)| content);
        contents.filter_map(|content| match content {
            ArchiveContent::File(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// Adds a directory of this machine with all that is in it, except what `skips` names.
    pub(crate) fn add_tree(
        &mut self,
        from: &Path,
        to: &str,
        skips: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()));
        for entry in entries? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().context("a file name is not UTF-8")?;
            let path = format!("{to}/{name}");
            let path = path.trim_start_matches('/');
            if skips(path) {
                continue;
            }
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                self.add(path, metadata.mode() & 0o777, ArchiveContent::Directory);
                self.add_tree(&entry.path(), path, skips)?;
            } else if metadata.is_symlink() {
                let target = fs::read_link(entry.path())?;
                let target = target.to_str().context("a link is not UTF-8")?.to_owned();
                self.add(path, 0o777, ArchiveContent::Link(target));
            } else if metadata.is_file() {
                self.add_file(path, metadata.mode() & 0o777, fs::read(entry.path())?);
            } else {
                bail!(
                    "{} is not a file, directory or link",
                    entry.path().display()
                );
            }
        }
        Ok(())
    }

    /// Writes all entries below a directory of this machine. Devices are left out.
    pub(crate) fn write_below(&self, root: &Path) -> Result<()> {
        for (path, (mode, content)) in &self.entries {
            let path = root.join(path);
            match content {
                ArchiveContent::Directory if path.is_dir() => continue,
                ArchiveContent::Directory => fs::create_dir_all(&path)?,
                ArchiveContent::File(bytes) => fs::write(&path, bytes)
                    .with_context(|| format!("cannot write {}", path.display()))?,
                ArchiveContent::Link(target) => {
                    std::os::unix::fs::symlink(target, &path)?;
                    continue;
                }
                ArchiveContent::Device { .. } => continue,
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
        }
        Ok(())
    }

    /// The archive. Refused are paths and files that the format has no room for.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for (inode, (path, (mode, content))) in (1..).zip(&self.entries) {
            encode_entry(&mut out, inode, path, *mode, content)?;
        }
        encode_entry(&mut out, 0, TRAILER, 0, &ArchiveContent::Directory)?;
        Ok(out)
    }
}

fn encode_entry(
    out: &mut Vec<u8>,
    inode: u32,
    path: &str,
    mode: u32,
    content: &ArchiveContent,
) -> Result<()> {
    let bytes = content.bytes();
    let size = u32::try_from(bytes.len());
    let size = size.with_context(|| format!("{path} is too large for an initramfs"))?;
    let name_size = u32::try_from(path.len() + 1).context("a path is too long")?;
    let (is_trailer, device) = (path == TRAILER, content);
    let mode = if is_trailer {
        0
    } else {
        mode | content.type_bits()
    };
    let links = if matches!(content, ArchiveContent::Directory) && !is_trailer {
        2
    } else {
        1
    };
    let (major, minor) = match device {
        ArchiveContent::Device { major, minor } => (*major, *minor),
        _ => (0, 0),
    };
    out.extend_from_slice(b"070701");
    // c_ino, c_mode, c_uid, c_gid, c_nlink, c_mtime, c_filesize, c_maj, c_min, c_rmaj, c_rmin,
    // c_namesize, c_chksum.
    let fields = [
        inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0,
    ];
    for field in fields {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(path.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(bytes);
    pad(out);
    Ok(())
}

/// Names and contents end at a multiple of four bytes.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    fn sample() -> CpioArchive {
        let mut archive = CpioArchive::default();
        archive.add_file("init", 0o755, *b"#!\n");
        archive.add_file("a/b/c", 0o644, *b"");
        archive.add("a/link", 0o777, ArchiveContent::Link("b/c".into()));
        let console = ArchiveContent::Device { major: 5, minor: 1 };
        archive.add("dev/console", 0o600, console);
        archive
    }

    #[test]
    fn entries_are_sorted_and_directories_are_added_before_their_content() {
        let paths: Vec<_> = sample().entries.into_keys().collect();
        let want = ["a", "a/b", "a/b/c", "a/link", "dev", "dev/console", "init"];
        assert_eq!(paths, want);
    }

    #[test]
    fn the_first_header_is_that_of_the_format() {
        let mut archive = CpioArchive::default();
        archive.add_file("x", 0o644, *b"hello");
        let bytes = archive.encode().unwrap();
        let head = "070701000000010000\
                    81a4000000000000000000000001000000000000000500000000000000000000000000000000\
                    0000000200000000x\0";
        assert_eq!(&bytes[..112], head.as_bytes());
        assert_eq!(&bytes[112..120], b"hello\0\0\0");
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn the_order_of_additions_does_not_matter() {
        let mut other = CpioArchive::default();
        for (path, (mode, content)) in sample().entries.into_iter().rev() {
            other.add(&path, mode, content);
        }
        assert_eq!(other.encode().unwrap(), sample().encode().unwrap());
    }

    #[test]
    fn an_added_directory_keeps_the_mode_that_it_was_given() {
        let mut archive = CpioArchive::default();
        archive.add("root/.ssh", 0o700, ArchiveContent::Directory);
        archive.add_file("root/.ssh/authorized_keys", 0o600, *b"key");
        assert_eq!(archive.entries["root/.ssh"].0, 0o700);
    }

    #[test]
    fn a_tree_that_was_written_is_read_again() {
        let place = std::env::temp_dir().join(format!("trivet-cpio-{}", std::process::id()));
        let mut written = sample();
        written.entries.remove("dev/console");
        fs::create_dir_all(&place).unwrap();
        written.write_below(&place).unwrap();
        let mut read = CpioArchive::default();
        read.add_tree(&place, "", &|path| path == "init").unwrap();
        fs::remove_dir_all(&place).unwrap();
        written.entries.remove("init");
        assert_eq!(read.encode().unwrap(), written.encode().unwrap());
    }

    /// What the program `cpio` lists; machines without it cannot show more.
    #[test]
    fn the_program_cpio_reads_the_archive() {
        let mut command = Command::new("cpio");
        command.args(["--quiet", "-t"]).stdin(Stdio::piped());
        let Ok(mut reader) = command.stdout(Stdio::piped()).spawn() else {
            return;
        };
        let bytes = sample().encode().unwrap();
        reader.stdin.take().unwrap().write_all(&bytes).unwrap();
        let listed = reader.wait_with_output().unwrap();
        let want = "a\na/b\na/b/c\na/link\ndev\ndev/console\ninit\n";
        assert!(listed.status.success());
        assert_eq!(String::from_utf8_lossy(&listed.stdout), want);
    }
}
