//! The logs that only this program has: its own, and the messages of the kernel.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;
use trivet_image_inventory::LogFile;

use super::journal;

/// Most bytes of the kernel's messages. Ours.
const KERNEL_LOG_BYTES_MAX: usize = 4 << 20;

/// The log of this program and the messages of the kernel.
pub(super) fn own_files() -> Vec<LogFile> {
    let mut journal = journal::lines().join("\n").into_bytes();
    journal.push(b'\n');
    let file = |name: &str, bytes: Vec<u8>| LogFile {
        name: name.to_owned(),
        bytes,
    };
    vec![
        file("journal", journal),
        file("dmesg", kernel_log()),
        file("cmdline", fs::read("/proc/cmdline").unwrap_or_default()),
    ]
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
    while all.len() < KERNEL_LOG_BYTES_MAX {
        match file.read(&mut record) {
            Ok(length) if length > 0 => all.extend_from_slice(&record[..length]),
            // EPIPE: messages were overwritten meanwhile; the next read continues after them.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            _ => break,
        }
    }
    all
}
