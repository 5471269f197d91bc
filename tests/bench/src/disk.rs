//! A private disk for counting: ext4 on a loop device.
//!
//! The kernel counts sectors written and flushes of every block device. On a private loop
//! device these are exactly the writes of the program under test and of its file system. It
//! needs root; without it the bytes that each process passed to `write` are used. (The kernel's
//! `write_bytes` is not suitable: it counts whole folios, 64 KiB and more, for each page
//! written to.)

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes to the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskTraffic {
    /// Bytes.
    pub bytes: u64,
    /// Flushes; `None` if only bytes are known.
    pub flushes: Option<u64>,
}

impl DiskTraffic {
    /// The difference from `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            bytes: self.bytes - earlier.bytes,
            flushes: self
                .flushes
                .zip(earlier.flushes)
                .map(|(now, then)| now - then),
        }
    }
}

/// A directory to measure in. It is removed when the value is dropped.
#[derive(Debug)]
pub struct BenchDisk {
    directory: PathBuf,
    mount: PathBuf,
    device: Option<String>,
}

impl BenchDisk {
    /// A new disk of this size, on a loop device if possible.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let name = format!("trivet-bench-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory)?;
        let mut disk = Self {
            mount: directory.join("mount"),
            directory,
            device: None,
        };
        fs::create_dir(&disk.mount)?;
        if let Err(error) = disk.attach(bytes) {
            eprintln!(
                "no loop device ({error}): counting bytes each process gives to write instead"
            );
        }
        Ok(disk)
    }

    fn attach(&mut self, bytes: u64) -> io::Result<()> {
        let image = self.directory.join("image");
        File::create_new(&image)?.set_len(bytes)?;
        // All tables are written now, so that the kernel does not write them later.
        let whole = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        run(
            "mkfs.ext4",
            [
                OsStr::new("-q"),
                "-E".as_ref(),
                whole.as_ref(),
                image.as_ref(),
            ],
        )?;
        let device = run(
            "losetup",
            [OsStr::new("--find"), "--show".as_ref(), image.as_ref()],
        )?;
        self.device = Some(device.clone());
        let mounted = run("mount", [OsStr::new(&device), self.mount.as_ref()]);
        if mounted.is_err() {
            self.detach();
        }
        mounted.map(|_| ())
    }

    fn detach(&mut self) {
        if let Some(device) = self.device.take() {
            let _ = run("losetup", ["--detach", &device]);
        }
    }

    /// The directory for files.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Writes to the device so far; without a loop device, the bytes that the process passed to
    /// `write`.
    pub fn traffic(&self, process: u32) -> io::Result<DiskTraffic> {
        let Some(device) = &self.device else {
            return written_by(process);
        };
        run("sync", ["--file-system".as_ref(), self.mount.as_os_str()])?;
        let name = device.trim_start_matches("/dev/");
        let text = fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        // Fields of Documentation/block/stat.rst, from zero: 6 sectors written, of
        // 512 bytes each; 15 flushes.
        let field = |at| text.split_whitespace().nth(at)?.parse::<u64>().ok();
        let sectors = field(6).ok_or_else(|| unreadable(&text))?;
        Ok(DiskTraffic {
            bytes: sectors * 512,
            flushes: field(15),
        })
    }
}

impl Drop for BenchDisk {
    fn drop(&mut self) {
        if self.device.is_some() {
            let _ = run("umount", [&self.mount]);
        }
        self.detach();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn written_by(process: u32) -> io::Result<DiskTraffic> {
    let text = fs::read_to_string(format!("/proc/{process}/io"))?;
    let bytes = text
        .lines()
        .find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
        .ok_or_else(|| unreadable(&text))?;
    Ok(DiskTraffic {
        bytes,
        flushes: None,
    })
}

fn unreadable(text: &str) -> io::Error {
    io::Error::other(format!("no counters in {text:?}"))
}

fn run(
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(io::Error::other(format!("{program}: {text}")))
    }
}
