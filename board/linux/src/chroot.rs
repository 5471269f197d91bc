//! Programs of another system, whose root is a directory here.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a program with `root` as its root directory, until it ends. The path of the program is
/// one below that root. Needs CAP_SYS_CHROOT.
#[expect(unsafe_code, reason = "std has no root directory for a command")]
pub fn run_in_root(root: &Path, command: &mut Command) -> io::Result<Output> {
    let root = CString::new(root.as_os_str().as_bytes())?;
    let enter = move || {
        rustix::process::chroot(root.as_c_str())?;
        rustix::process::chdir(c"/")?;
        Ok(())
    };
    // SAFETY: between fork and exec only two system calls are made, with texts that were
    // allocated before.
    unsafe { command.pre_exec(enter) };
    command.stdin(Stdio::null()).output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_sees_the_directory_as_its_root() {
        let own = Path::new("/");
        if rustix::process::chroot(own).is_err() {
            // Without the right to change the root, that is the error.
            let denied = run_in_root(own, &mut Command::new("/bin/sh")).unwrap_err();
            assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
            return;
        }
        let mut command = Command::new("/bin/sh");
        let done = run_in_root(own, command.args(["-c", "pwd; echo x >&2; exit 3"])).unwrap();
        assert_eq!(done.stdout, b"/\n");
        assert_eq!(
            (done.stderr, done.status.code()),
            (b"x\n".to_vec(), Some(3))
        );
        let directory = std::env::temp_dir().join(format!("trivet-root-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let empty = run_in_root(&directory, &mut Command::new("/bin/sh")).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::NotFound);
        std::fs::remove_dir(&directory).unwrap();
        let gone = run_in_root(&directory, &mut Command::new("/bin/sh")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
