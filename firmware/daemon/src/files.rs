//! Files that were granted: opened, and never outside their directory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use trivet_rack::{Below, Grant};

/// Something to send: bytes in memory or a file.
pub(crate) struct Opened {
    pub(crate) size: u64,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Bytes(Vec<u8>),
    File(File),
}

/// Opens what was granted; none where no candidate is a file in its directory.
pub(crate) async fn open(grant: Grant) -> Option<Opened> {
    match grant {
        Grant::Bytes(bytes) => Some(Opened {
            size: bytes.len() as u64,
            content: Content::Bytes(bytes),
        }),
        Grant::File(candidates) => {
            tokio::task::spawn_blocking(move || candidates.iter().find_map(open_below))
                .await
                .ok()?
        }
    }
}

fn open_below(below: &Below) -> Option<Opened> {
    let root: PathBuf = below.root.canonicalize().ok()?;
    let file = below.file.canonicalize().ok()?;
    if !file.starts_with(&root) {
        return None;
    }
    let file = File::open(file).ok()?;
    let facts = file.metadata().ok()?;
    facts.is_file().then(|| Opened {
        size: facts.len(),
        content: Content::File(file),
    })
}

impl Opened {
    /// Fills `out` from `at`; fewer bytes only at the end.
    pub(crate) fn read(&mut self, at: u64, out: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.content {
            Content::Bytes(bytes) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                let length = out.len().min(bytes.len() - from);
                out[..length].copy_from_slice(&bytes[from..from + length]);
                Ok(length)
            }
            Content::File(file) => {
                file.seek(SeekFrom::Start(at))?;
                let mut filled = 0;
                while filled < out.len() {
                    match file.read(&mut out[filled..])? {
                        0 => break,
                        length => filled += length,
                    }
                }
                Ok(filled)
            }
        }
    }
}
