//! The box's key in a file of its own.
//!
//! The file is created once, completely or not at all, readable by its owner only. A file that
//! other users can read is rejected, and its permissions are not corrected: they may already
//! know the key.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use trivet_board_hal::{BOX_KEY_BYTES, BoxKey, KeyError, KeyVault};
use zeroize::Zeroize as _;

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// Other users may read or change it.
    #[error(
        "{} is open to others (mode {mode:03o}), so the secrets in the store may be known to them: \
         run chmod 600 on it, and change the BMC passwords if it was ever read",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It does not have the length of a key.
    #[error(
        "{} has {bytes} bytes and not {BOX_KEY_BYTES}, so it is not a key or was truncated: \
         restore it from a backup",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// It is a directory, a device or another special file.
    #[error("{} is not a regular file: move it away and restore the key file", path.display())]
    NotAFile {
        /// Its path.
        path: PathBuf,
    },
    /// There is one already, which must not be replaced.
    #[error("{} exists already and is not replaced", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The operating system reported an error.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The failed operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl From<KeyFileError> for KeyError {
    fn from(error: KeyFileError) -> Self {
        Self(Box::new(error))
    }
}

/// The file that holds the key. Only the process that has locked the flash may use it, so that
/// two processes never create one at the same time.
#[derive(Debug)]
pub struct BoxKeyFile {
    path: PathBuf,
}

impl BoxKeyFile {
    /// The key file with this path, whether or not it exists.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    fn read(&self) -> Result<Option<BoxKey>, KeyFileError> {
        let path = &self.path;
        // A FIFO in its place must not block the box.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        let mut file = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|source| io_error("open", path, source))?,
        };
        let about = file
            .metadata()
            .map_err(|source| io_error("look at", path, source))?;
        if !about.is_file() {
            let path = path.clone();
            return Err(KeyFileError::NotAFile { path });
        }
        let mode = about.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = path.clone();
            return Err(KeyFileError::Exposed { path, mode });
        }
        if about.len() != BOX_KEY_BYTES as u64 {
            let (path, bytes) = (path.clone(), about.len());
            return Err(KeyFileError::Malformed { path, bytes });
        }
        let mut bytes = [0; BOX_KEY_BYTES];
        let read = file.read_exact(&mut bytes);
        let key = BoxKey::new(bytes);
        bytes.zeroize();
        read.map_err(|source| io_error("read", path, source))?;
        Ok(Some(key))
    }

    /// Creates the file with a new key.
    fn create(&self) -> Result<BoxKey, KeyFileError> {
        let path = &self.path;
        let key = random().map_err(|source| io_error("find random bytes for", path, source))?;
        self.keep(&key)?;
        Ok(key)
    }

    /// Creates the file with this key from a backup. An existing one is not replaced. The file
    /// is created under another name and renamed when it is complete, so that a power cut never
    /// leaves a short one.
    pub fn keep(&self, key: &BoxKey) -> Result<(), KeyFileError> {
        let path = &self.path;
        let exists = path
            .try_exists()
            .map_err(|source| io_error("look at", path, source))?;
        if exists {
            let path = path.clone();
            return Err(KeyFileError::Exists { path });
        }
        let mut name = OsString::from(path);
        name.push(".new");
        let new = PathBuf::from(name);
        // A leftover of a power cut may have other permissions.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io_error("remove", &new, error));
            }
            _ => {}
        }
        let written = write_new(&new, key).and_then(|()| fs::rename(&new, path));
        if let Err(source) = written {
            let _ = fs::remove_file(&new);
            return Err(io_error("write", path, source));
        }
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        // The name is durable only after its directory is synced.
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| io_error("flush", directory, source))
    }
}

impl KeyVault for BoxKeyFile {
    fn key(&mut self) -> Result<Option<BoxKey>, KeyError> {
        Ok(self.read()?)
    }

    fn make_key(&mut self) -> Result<BoxKey, KeyError> {
        Ok(self.create()?)
    }
}

fn write_new(path: &Path, key: &BoxKey) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(key.expose())?;
    file.sync_all()
}

/// A key from the operating system. Waits until its generator is seeded, which at the first
/// start of a new box may take a moment and must not be skipped.
fn random() -> io::Result<BoxKey> {
    let mut bytes = [0_u8; BOX_KEY_BYTES];
    // Up to 256 bytes are never partial, so only a signal makes a second call necessary.
    let got = retry_on_intr(|| getrandom(&mut bytes[..], GetRandomFlags::empty()))?;
    if got < BOX_KEY_BYTES {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let key = BoxKey::new(bytes);
    bytes.zeroize();
    Ok(key)
}

fn io_error(operation: &'static str, path: &Path, source: io::Error) -> KeyFileError {
    KeyFileError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A directory of the test, removed at its end.
    struct KeyDirectory(PathBuf);

    impl KeyDirectory {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("trivet-key-{}-{count}", std::process::id());
            let place = std::env::temp_dir().join(name);
            fs::create_dir(&place).expect("a fresh directory");
            Self(place)
        }

        fn path(&self) -> PathBuf {
            self.0.join("store.key")
        }

        fn file(&self) -> BoxKeyFile {
            BoxKeyFile::at(self.path())
        }

        fn write(&self, bytes: &[u8], mode: u32) {
            fs::write(self.path(), bytes).unwrap();
            fs::set_permissions(self.path(), fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    impl Drop for KeyDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn error_text(error: &KeyError) -> String {
        error.0.to_string()
    }

    #[test]
    fn a_key_is_made_once_and_read_after_that() {
        let place = KeyDirectory::new();
        assert!(place.file().key().unwrap().is_none());
        let made = place.file().make_key().unwrap();
        let read = place.file().key().unwrap().unwrap();
        assert_eq!(made.expose(), read.expose());
        let about = fs::metadata(place.path()).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        assert_eq!(about.len(), 32);
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 1);
        let error = place.file().make_key().unwrap_err();
        assert!(
            error_text(&error).contains("not replaced"),
            "{}",
            error_text(&error)
        );
    }

    #[test]
    fn a_key_from_a_backup_is_stored_and_replaces_none() {
        let place = KeyDirectory::new();
        place.file().keep(&BoxKey::new([7; 32])).unwrap();
        let read = place.file().key().unwrap().unwrap();
        assert_eq!(read.expose(), &[7; 32]);
        assert!(matches!(
            place.file().keep(&BoxKey::new([8; 32])),
            Err(KeyFileError::Exists { .. })
        ));
        let read = place.file().key().unwrap().unwrap();
        assert_eq!(read.expose(), &[7; 32]);
    }

    #[test]
    fn two_keys_differ() {
        let (one, two) = (KeyDirectory::new(), KeyDirectory::new());
        let one = one.file().make_key().unwrap();
        let two = two.file().make_key().unwrap();
        assert_ne!(one.expose(), two.expose());
        assert_ne!(one.expose(), &[0; 32]);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let place = KeyDirectory::new();
        for mode in [0o640, 0o604, 0o660, 0o601] {
            place.write(&[1; 32], mode);
            let error = place.file().key().unwrap_err();
            let message = error_text(&error);
            assert!(message.contains(&format!("mode {mode:03o}")), "{message}");
            assert!(message.contains("chmod 600"), "{message}");
        }
        place.write(&[1; 32], 0o400);
        assert!(place.file().key().unwrap().is_some());
    }

    #[test]
    fn a_key_of_another_length_is_refused() {
        let place = KeyDirectory::new();
        for length in [0, 31, 33, 64] {
            place.write(&vec![1; length], 0o600);
            let error = place.file().key().unwrap_err();
            let message = error_text(&error);
            assert!(message.contains(&format!("{length} bytes")), "{message}");
        }
    }

    #[test]
    fn a_special_file_is_refused() {
        let place = KeyDirectory::new();
        fs::create_dir(place.path()).unwrap();
        let error = place.file().key().unwrap_err();
        assert!(
            error_text(&error).contains("store.key"),
            "{}",
            error_text(&error)
        );
    }

    #[test]
    fn the_rest_of_an_interrupted_creation_is_not_used() {
        let place = KeyDirectory::new();
        let new = place.0.join("store.key.new");
        fs::write(&new, [0; 32]).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(place.file().key().unwrap().is_none());
        let made = place.file().make_key().unwrap();
        assert_ne!(made.expose(), &[0; 32]);
        assert!(!new.exists());
        assert!(place.file().key().unwrap().is_some());
    }

    #[test]
    fn a_link_may_lead_to_the_key() {
        let place = KeyDirectory::new();
        let elsewhere = place.0.join("elsewhere");
        BoxKeyFile::at(elsewhere.clone()).make_key().unwrap();
        symlink(&elsewhere, place.path()).unwrap();
        assert!(place.file().key().unwrap().is_some());
    }

    #[test]
    fn a_key_that_cannot_be_written_is_named() {
        let place = KeyDirectory::new();
        let error = BoxKeyFile::at(place.0.join("none/store.key")).make_key();
        let error = error.unwrap_err();
        assert!(
            error_text(&error).contains("none/store.key"),
            "{}",
            error_text(&error)
        );
    }
}
