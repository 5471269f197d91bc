//! The limit of open files of this process, free space, and write access to directories.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit and returns it.
pub fn raise_open_files() -> u64 {
    let bound = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: bound.maximum,
        maximum: bound.maximum,
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => bound.maximum,
        Err(_) => bound.current,
    };
    // None is no limit.
    limit.unwrap_or(u64::MAX)
}

/// Free bytes for this process on the file system of this path.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let facts = statvfs(path)?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Checks that this process may create files in a directory. Nothing is written.
pub fn check_writable(directory: &Path) -> io::Result<()> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(CWD, directory, access, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_can_be_made_in_a_directory_and_not_in_a_file() {
        check_writable(&std::env::temp_dir()).unwrap();
        assert!(check_writable(Path::new("/nowhere/at/all")).is_err());
        let name = format!("trivet-writable-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, b"").unwrap();
        // The file is not executable, so the check fails for root too.
        let message = check_writable(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(message.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn free_space_is_reported_and_a_missing_path_is_an_error() {
        assert!(free_bytes(&std::env::temp_dir()).unwrap() > 0);
        assert!(free_bytes(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn the_bound_is_raised_once_and_stays() {
        let bound = raise_open_files();
        assert!(bound > 64);
        assert_eq!(raise_open_files(), bound);
    }
}
