//! The logs of the machine, from files of the kernel and the log of this program.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;

use super::journal;
use crate::shell::{LOG_FILE_BYTES_MAX, LogFile};

/// Names in the archive and files of the kernel.
const FILES: [(&str, &str); 10] = [
    ("cmdline", "/proc/cmdline"),
    ("cpuinfo", "/proc/cpuinfo"),
    ("meminfo", "/proc/meminfo"),
    ("modules", "/proc/modules"),
    ("mount", "/proc/mounts"),
    ("partitions", "/proc/partitions"),
    ("mdstat", "/proc/mdstat"),
    ("interrupts", "/proc/interrupts"),
    ("routes", "/proc/net/route"),
    ("links", "/proc/net/dev"),
];

/// Collects the logs.
pub(super) fn collect() -> Vec<LogFile> {
    let mut journal = journal::lines().join("\n").into_bytes();
    journal.push(b'\n');
    let mut files = vec![
        LogFile {
            name: "journal".to_owned(),
            bytes: journal,
        },
        LogFile {
            name: "dmesg".to_owned(),
            bytes: kernel_log(),
        },
    ];
    for (name, path) in FILES {
        if let Ok(bytes) = fs::read(path) {
            files.push(LogFile {
                name: name.to_owned(),
                bytes,
            });
        }
    }
    files
}

/// The messages of the kernel, one line each: `level,number,microseconds,flags;text`.
fn kernel_log() -> Vec<u8> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open("/dev/kmsg");
    let Ok(mut file) = opened else {
        return Vec::new();
    };
    let mut all = Vec::new();
    let mut record = [0; 8192];
    while all.len() < LOG_FILE_BYTES_MAX {
        match file.read(&mut record) {
            Ok(length) if length > 0 => all.extend_from_slice(&record[..length]),
            // EPIPE: messages were overwritten meanwhile; the next read continues after them.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            _ => break,
        }
    }
    all
}
