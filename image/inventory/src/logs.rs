//! The collector `logs`: a compressed archive of what the system says about itself.

use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::SystemRoot;

/// Longest member; only its end is archived. Ours.
const MEMBER_BYTES_MAX: usize = 4 << 20;

/// Bytes of a block of a tar archive (POSIX.1-1988, ustar).
const BLOCK_BYTES: usize = 512;

/// Longest name of a member (ustar).
const NAME_BYTES_MAX: usize = 100;

/// A member of the archive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogFile {
    /// Its name.
    pub name: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// Files of the system that are archived: the name in the archive, and the path. The first
/// names are those of the stock agent.
const FILES: [(&str, &str); 12] = [
    ("df", "proc/self/mountinfo"),
    ("mount", "proc/mounts"),
    ("mdstat", "proc/mdstat"),
    ("cpuinfo", "proc/cpuinfo"),
    ("meminfo", "proc/meminfo"),
    ("modules", "proc/modules"),
    ("interrupts", "proc/interrupts"),
    ("partitions", "proc/partitions"),
    ("net_dev", "proc/net/dev"),
    ("net_route", "proc/net/route"),
    ("if_inet6", "proc/net/if_inet6"),
    ("version", "proc/version"),
];

/// The files of a system that exist.
pub(crate) fn system_files(root: &SystemRoot) -> Vec<LogFile> {
    let file = |(name, path): &(&str, &str)| {
        Some(LogFile {
            name: (*name).to_owned(),
            bytes: root.bytes(path)?,
        })
    };
    FILES.iter().filter_map(file).collect()
}

/// An archive in the format of the field `logs`: base64 of a compressed tar archive.
/// `unix_s` is the time of its members.
pub fn log_archive(files: &[LogFile], unix_s: u64) -> io::Result<String> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    for file in files {
        let start = file.bytes.len().saturating_sub(MEMBER_BYTES_MAX);
        let bytes = &file.bytes[start..];
        packed.write_all(&header(&file.name, bytes.len(), unix_s))?;
        packed.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(BLOCK_BYTES) - bytes.len();
        packed.write_all(&[0; BLOCK_BYTES][..padding])?;
    }
    packed.write_all(&[0; 2 * BLOCK_BYTES])?;
    Ok(STANDARD.encode(packed.finish()?))
}

fn header(name: &str, bytes: usize, unix_s: u64) -> [u8; BLOCK_BYTES] {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    let name = name.as_bytes();
    put(0, &name[..name.len().min(NAME_BYTES_MAX)]);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(
        136,
        format!("{:011o}\0", unix_s & 0o77_777_777_777).as_bytes(),
    );
    // The checksum is made with spaces in its place.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SystemTree;
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    fn unpacked(archive: &str) -> Vec<u8> {
        let bytes = STANDARD.decode(archive).unwrap();
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_end(&mut tar)
            .unwrap();
        tar
    }

    fn file(name: &str, bytes: &[u8]) -> LogFile {
        LogFile {
            name: name.to_owned(),
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn tar_reads_the_archive() {
        let files = [
            file("dmesg", b"line\n"),
            file("empty", b""),
            file("block", &[b'x'; 512]),
        ];
        let tar = unpacked(&log_archive(&files, 1_794_796_162).unwrap());
        assert_eq!(tar.len() % BLOCK_BYTES, 0);
        let mut child = Command::new("tar")
            .args(["-tvf", "-"])
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&tar).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let listing = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = listing.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].contains("5 2026-") && lines[0].ends_with("dmesg"),
            "{listing}"
        );
        assert!(lines[2].contains("512 2026-"), "{listing}");
    }

    #[test]
    fn only_the_end_of_a_long_member_is_archived() {
        let mut long = vec![b'a'; MEMBER_BYTES_MAX];
        long.extend(b"end");
        let tar = unpacked(&log_archive(&[file(&"n".repeat(200), &long)], 0).unwrap());
        assert_eq!(tar.len(), BLOCK_BYTES + MEMBER_BYTES_MAX + 2 * BLOCK_BYTES);
        assert_eq!(&tar[BLOCK_BYTES + MEMBER_BYTES_MAX - 3..][..3], b"end");
        assert_eq!(tar[99], b'n');
        assert_eq!(tar[100], b'0');
    }

    #[test]
    fn files_that_exist_are_archived() {
        let tree = SystemTree::new();
        tree.file("proc/mounts", "none / tmpfs\n");
        let files = system_files(&tree.root());
        assert_eq!(files, [file("mount", b"none / tmpfs\n")]);
    }
}
