//! Opens files below a directory: no symbolic link leads out of it, even if another process
//! changes links meanwhile (openat2, Linux 5.6; on older kernels the path is checked first).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// Opens a file for reading by its path relative to `root`. An absolute link is followed if it
/// leads to a file below the root; opening a FIFO does not block.
pub fn open_beneath(root: &Path, relative: &Path) -> io::Result<File> {
    match open(root, relative) {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
            let root = root.canonicalize()?;
            let file = root.join(relative).canonicalize()?;
            let relative = file.strip_prefix(&root).map_err(|_| error)?;
            open(&root, relative)
        }
        // A kernel before 5.6, or a container that forbids the call.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            let root = root.canonicalize()?;
            let file = root.join(relative).canonicalize()?;
            if !file.starts_with(&root) {
                return Err(error);
            }
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(file)
        }
        opened => opened,
    }
}

fn open(root: &Path, relative: &Path) -> io::Result<File> {
    let opened = openat2(
        File::open(root)?,
        relative,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )?;
    Ok(opened.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_only_below_the_root() {
        let place = std::env::temp_dir().join(format!("trivet-beneath-{}", std::process::id()));
        let root = place.join("root");
        fs::create_dir_all(root.join("deep")).unwrap();
        fs::write(root.join("plain"), "plain").unwrap();
        fs::write(place.join("secret"), "secret").unwrap();
        symlink("../plain", root.join("deep/inside")).unwrap();
        symlink(root.join("plain"), root.join("absolute")).unwrap();
        symlink("../secret", root.join("outside")).unwrap();
        symlink(place.join("secret"), root.join("away")).unwrap();
        symlink(&place, root.join("up")).unwrap();
        for name in ["plain", "deep/inside", "absolute"] {
            let mut text = String::new();
            let mut file = open_beneath(&root, Path::new(name)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "plain", "{name}");
        }
        for name in [
            "outside",
            "away",
            "up/secret",
            "../secret",
            "absent",
            "/etc/passwd",
        ] {
            assert!(open_beneath(&root, Path::new(name)).is_err(), "{name}");
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
