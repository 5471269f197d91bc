//! Directories that only their owner may enter, whatever the process's umask is.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Read, write and enter for the owner, nothing for others.
const OWNER_ONLY: u32 = 0o700;

/// Creates the directory and all missing parents. An existing directory keeps its mode:
/// the operator may keep other files in it.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        directory(parent)?;
    }
    match fs::DirBuilder::new().mode(OWNER_ONLY).create(path) {
        // The umask may have removed bits of the owner.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(OWNER_ONLY)),
        Err(_) if path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The same for a directory that only this program uses: an existing one is made
/// private.
pub(crate) fn own_directory(path: &Path) -> io::Result<()> {
    directory(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(OWNER_ONLY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn directories_are_for_their_owner_only_and_older_ones_of_the_operator_stay() {
        let scratch = TestbedDirectory::new();
        let theirs = scratch.0.join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o755)).unwrap();
        directory(&theirs.join("a/b")).unwrap();
        assert_eq!(mode(&theirs), 0o755);
        assert_eq!(
            (mode(&theirs.join("a")), mode(&theirs.join("a/b"))),
            (0o700, 0o700)
        );
        directory(&theirs).unwrap();
        assert_eq!(mode(&theirs), 0o755);
        own_directory(&theirs).unwrap();
        assert_eq!(mode(&theirs), 0o700);
        scratch.file("file", b"");
        assert!(directory(&scratch.0.join("file/x")).is_err());
        assert!(directory(&scratch.0.join("file")).is_err());
    }
}
