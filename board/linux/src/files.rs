//! The limit of open files of this process, free space, and write access to directories.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Raises the soft limit of open files to the hard limit and returns it.
#[expect(unsafe_code, reason = "the system calls have no safe wrapper in std")]
pub fn raise_open_files() -> io::Result<u64> {
    let mut bound = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes into `bound`, which outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut bound) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let before = bound.rlim_cur;
    bound.rlim_cur = bound.rlim_max;
    // SAFETY: the kernel reads `bound`, which outlives the call.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const bound) } == 0;
    Ok(if raised { bound.rlim_max } else { before })
}

/// Free bytes for this process on the file system of this path.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all bytes zero is a valid value of this plain structure of numbers.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads `path`, which ends with a zero byte, and writes into `facts`;
    // both outlive the call.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut facts) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Checks that this process may create files in a directory. Nothing is written.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub fn check_writable(directory: &Path) -> io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let mode = libc::W_OK | libc::X_OK;
    // SAFETY: the kernel reads `path`, which ends with a zero byte and outlives the call.
    let result = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
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
        let said = check_writable(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(said.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn free_space_is_reported_and_a_missing_path_is_an_error() {
        assert!(free_bytes(&std::env::temp_dir()).unwrap() > 0);
        assert!(free_bytes(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn the_bound_is_raised_once_and_stays() {
        let bound = raise_open_files().unwrap();
        assert!(bound > 64);
        assert_eq!(raise_open_files().unwrap(), bound);
    }
}
