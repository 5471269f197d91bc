//! The archive of `log.collect_system_logs`: tar (POSIX ustar), gzip, base64.

use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Most bytes of one file in the archive; of a longer one the end is kept. Ours.
pub const LOG_FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Most files in the archive. Ours.
const LOG_FILES_MAX: usize = 64;

/// The unit of a tar archive (POSIX.1-1988, ustar).
const BLOCK_BYTES: usize = 512;

/// A file of the archive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogFile {
    /// Its name, without directories.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The archive of these files.
pub(super) fn archive(files: &[LogFile]) -> io::Result<String> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    for file in files.iter().take(LOG_FILES_MAX) {
        let from = file.bytes.len().saturating_sub(LOG_FILE_BYTES_MAX);
        let bytes = &file.bytes[from..];
        packed.write_all(&header(&file.name, bytes.len()))?;
        packed.write_all(bytes)?;
        packed.write_all(&vec![
            0;
            bytes.len().next_multiple_of(BLOCK_BYTES) - bytes.len()
        ])?;
    }
    // Two blocks of zeroes end an archive.
    packed.write_all(&[0; 2 * BLOCK_BYTES])?;
    Ok(STANDARD.encode(packed.finish()?))
}

fn header(name: &str, length: usize) -> [u8; BLOCK_BYTES] {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    let name: Vec<u8> = name.bytes().take(99).collect();
    put(0, &name);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{length:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // The sum is computed with blanks in its own place.
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
    use std::process::{Command, Stdio};

    #[test]
    fn tar_reads_the_archive() {
        let files = [
            LogFile {
                name: "dmesg".to_owned(),
                bytes: b"line\n".repeat(300),
            },
            LogFile {
                name: "x".repeat(300),
                bytes: Vec::new(),
            },
        ];
        let packed = STANDARD.decode(archive(&files).unwrap()).unwrap();
        let mut tar = Command::new("tar")
            .args(["-xzO", "dmesg"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&packed).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout, files[0].bytes);
    }

    #[test]
    fn of_a_long_file_the_end_is_kept() {
        let bytes = [vec![1; 100], vec![2; LOG_FILE_BYTES_MAX]].concat();
        let name = "long".to_owned();
        let text = archive(&[LogFile { name, bytes }]).unwrap();
        let packed = STANDARD.decode(text).unwrap();
        let mut all = Vec::new();
        io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut all).unwrap();
        assert!(!all[BLOCK_BYTES..].contains(&1));
        assert_eq!(
            all.iter().filter(|&&byte| byte == 2).count(),
            LOG_FILE_BYTES_MAX
        );
    }

    #[test]
    fn no_files_are_an_empty_archive() {
        assert!(!archive(&[]).unwrap().is_empty());
    }
}
