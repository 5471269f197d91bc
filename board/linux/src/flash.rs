//! Flash in a preallocated file.
//!
//! The file is created once and filled with zeros, so that later writes neither allocate blocks
//! nor change its size: a flush then writes only the data and no file system metadata. Only one
//! process at a time can open it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use trivet_board_hal::{Flash, FlashError};

/// Zeros are written in blocks of this size.
const PIECE_BYTES: usize = 64 * 1024;

/// Statistics of the operations.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FileFlashCounts {
    /// Calls of `write`.
    pub writes: u64,
    /// Calls of `flush`.
    pub flushes: u64,
    /// Bytes passed to `write`.
    pub written_bytes: u64,
}

/// Why a file cannot be used as flash.
#[derive(Debug, thiserror::Error)]
pub enum OpenFileError {
    /// Another process has it open.
    #[error("{} is in use by another process: stop that one first", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// It is a directory, a device or another special file.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// Its path.
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

/// Flash in a file. The lock is released on drop.
#[derive(Debug)]
pub struct FileFlash {
    file: File,
    size: u64,
    counts: FileFlashCounts,
}

impl FileFlash {
    /// Opens the file and locks it against other processes. A missing file is created with
    /// `size_if_new` zeros, readable by its owner only; an existing one keeps its size.
    pub fn open(path: &Path, size_if_new: u64) -> Result<Self, OpenFileError> {
        if !exists(path)? {
            Self::create(path, size_if_new)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|source| io_error("open", path, source))?;
        Self::locked(file, path)
    }

    /// Opens an existing file for reading only and locks it against other processes. Writes
    /// fail.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenFileError> {
        let file = OpenOptions::new()
            .read(true)
            .open(path)
            .map_err(|source| io_error("open", path, source))?;
        Self::locked(file, path)
    }

    fn locked(file: File, path: &Path) -> Result<Self, OpenFileError> {
        let about = file
            .metadata()
            .map_err(|source| io_error("look at", path, source))?;
        if !about.is_file() {
            let path = path.to_owned();
            return Err(OpenFileError::NotAFile { path });
        }
        lock(&file, path)?;
        Ok(Self {
            file,
            size: about.len(),
            counts: FileFlashCounts::default(),
        })
    }

    /// Operations since it was opened.
    #[must_use]
    pub fn counts(&self) -> FileFlashCounts {
        self.counts
    }

    /// Creates the file under another name and renames it when it is complete, so that a power
    /// cut never leaves a short one.
    fn create(path: &Path, size: u64) -> Result<(), OpenFileError> {
        let mut name = OsString::from(path);
        name.push(".new");
        let new = PathBuf::from(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&new)
            .map_err(|source| io_error("create", &new, source))?;
        lock(&file, &new)?;
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(|source| io_error("protect", &new, source))?;
        // With the lock held no other process can be at this point. If one was before, the file
        // exists now and must not be replaced.
        if exists(path)? {
            return fs::remove_file(&new).map_err(|source| io_error("remove", &new, source));
        }
        if let Err(source) = write_zeros(&mut file, size) {
            // The bytes written so far would keep a full disk full.
            let _ = fs::remove_file(&new);
            return Err(io_error("fill", &new, source));
        }
        fs::rename(&new, path).map_err(|source| io_error("rename", &new, source))?;
        unlock(&file);
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| io_error("flush", directory, source))
    }
}

impl Drop for FileFlash {
    fn drop(&mut self) {
        unlock(&self.file);
    }
}

/// Releases the lock. Closing the file is not enough: a child process holds a copy of the
/// descriptor from fork to exec.
fn unlock(file: &File) {
    let _ = file.unlock();
}

fn exists(path: &Path) -> Result<bool, OpenFileError> {
    path.try_exists()
        .map_err(|source| io_error("look at", path, source))
}

fn lock(file: &File, path: &Path) -> Result<(), OpenFileError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenFileError::Busy {
            path: path.to_owned(),
        },
        TryLockError::Error(source) => io_error("lock", path, source),
    })
}

fn write_zeros(file: &mut File, size: u64) -> io::Result<()> {
    file.set_len(0)?;
    let zeros = vec![0; PIECE_BYTES];
    let mut left = size;
    while left > 0 {
        let length = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        file.write_all(&zeros[..length])?;
        left -= length as u64;
    }
    file.sync_all()
}

fn io_error(operation: &'static str, path: &Path, source: io::Error) -> OpenFileError {
    OpenFileError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

impl FileFlash {
    fn check(&self, at: u64, length: usize) -> Result<(), FlashError> {
        let end = at.checked_add(length as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(FlashError::OutOfRange {
                at,
                length: length as u64,
                size: self.size,
            });
        }
        Ok(())
    }
}

impl Flash for FileFlash {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), FlashError> {
        self.check(at, out.len())?;
        let operation = "read";
        self.file
            .read_exact_at(out, at)
            .map_err(|source| FlashError::Io {
                operation,
                at,
                source,
            })
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FlashError> {
        self.check(at, bytes.len())?;
        let operation = "write";
        self.file
            .write_all_at(bytes, at)
            .map_err(|source| FlashError::Io {
                operation,
                at,
                source,
            })?;
        self.counts.writes += 1;
        self.counts.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), FlashError> {
        self.file.sync_data().map_err(|source| FlashError::Io {
            operation: "flush",
            at: 0,
            source,
        })?;
        self.counts.flushes += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A directory of the test, removed at its end.
    struct FlashDirectory(PathBuf);

    impl FlashDirectory {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("trivet-flash-{}-{count}", std::process::id());
            let place = std::env::temp_dir().join(name);
            fs::create_dir(&place).expect("a fresh directory");
            Self(place)
        }

        fn file(&self) -> PathBuf {
            self.0.join("store")
        }
    }

    impl Drop for FlashDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_new_file_has_zeros_on_disk_and_is_readable_by_its_owner_only() {
        let place = FlashDirectory::new();
        let mut flash = FileFlash::open(&place.file(), 100_000).unwrap();
        let mut bytes = vec![1; 100_000];
        flash.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        let about = fs::metadata(place.file()).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        assert_eq!(about.len(), 100_000);
        assert!(about.blocks() * 512 >= 100_000, "blocks are allocated");
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 1);
    }

    #[test]
    fn a_file_opened_for_reading_only_is_not_made_not_shared_and_not_written() {
        let place = FlashDirectory::new();
        assert!(FileFlash::open_read_only(&place.file()).is_err());
        assert!(!place.file().exists());
        drop(FileFlash::open(&place.file(), 8192).unwrap());
        let mut flash = FileFlash::open_read_only(&place.file()).unwrap();
        assert_eq!(flash.size(), 8192);
        assert!(flash.write(0, b"a").is_err());
        let again = FileFlash::open_read_only(&place.file());
        assert!(matches!(again, Err(OpenFileError::Busy { .. })));
        let again = FileFlash::open(&place.file(), 8192);
        assert!(matches!(again, Err(OpenFileError::Busy { .. })));
    }

    #[test]
    fn what_was_written_is_there_after_reopening() {
        let place = FlashDirectory::new();
        let mut flash = FileFlash::open(&place.file(), 8192).unwrap();
        flash.write(8190, b"ab").unwrap();
        flash.flush().unwrap();
        let want = FileFlashCounts {
            writes: 1,
            flushes: 1,
            written_bytes: 2,
        };
        assert_eq!(flash.counts(), want);
        drop(flash);
        let mut flash = FileFlash::open(&place.file(), 999_999).unwrap();
        assert_eq!(flash.size(), 8192);
        let mut out = [0; 2];
        flash.read(8190, &mut out).unwrap();
        assert_eq!(&out, b"ab");
    }

    #[test]
    fn a_second_process_gets_an_error_that_the_file_is_in_use() {
        let place = FlashDirectory::new();
        let first = FileFlash::open(&place.file(), 4096).unwrap();
        let error = FileFlash::open(&place.file(), 4096).unwrap_err();
        assert!(matches!(error, OpenFileError::Busy { .. }));
        let text = error.to_string();
        assert!(
            text.contains("store is in use by another process"),
            "{text}"
        );
        drop(first);
        assert!(FileFlash::open(&place.file(), 4096).is_ok());
    }

    #[test]
    fn the_rest_of_an_interrupted_creation_is_replaced() {
        let place = FlashDirectory::new();
        let new = place.0.join("store.new");
        fs::write(&new, [7; 9000]).unwrap();
        let mut flash = FileFlash::open(&place.file(), 4096).unwrap();
        let mut out = [1; 4096];
        flash.read(0, &mut out).unwrap();
        assert_eq!(out, [0; 4096]);
        assert!(!new.exists());
    }

    #[test]
    fn refuses_what_is_outside_the_file() {
        let place = FlashDirectory::new();
        let mut flash = FileFlash::open(&place.file(), 4096).unwrap();
        for (at, length) in [(4096, 1), (4095, 2), (u64::MAX, 1)] {
            let mut bytes = vec![0; length];
            assert!(matches!(
                flash.write(at, &bytes),
                Err(FlashError::OutOfRange { .. })
            ));
            assert!(matches!(
                flash.read(at, &mut bytes),
                Err(FlashError::OutOfRange { .. })
            ));
        }
        assert_eq!(flash.counts(), FileFlashCounts::default());
    }

    #[test]
    fn names_the_file_it_cannot_open() {
        let place = FlashDirectory::new();
        let missing = place.0.join("none").join("store");
        let error = FileFlash::open(&missing, 4096).unwrap_err();
        assert!(error.to_string().contains("none/store"), "{error}");
        assert!(FileFlash::open(&place.0, 4096).is_err());
    }
}
