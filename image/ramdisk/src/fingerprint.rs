//! The key of a build: a digest of all that determines its result. A ramdisk with the same key
//! need not be built again.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Bytes that are read at once. Ours.
const BLOCK_BYTES: usize = 1 << 20;

/// Characters of a key. Ours: 64 bits are enough for one cache.
const KEY_CHARACTERS: usize = 16;

/// A digest of parts. Each part is hashed with its length, so that no two lists of parts have
/// the same bytes.
#[derive(Default)]
pub(crate) struct BuildKey(Sha256);

impl BuildKey {
    pub(crate) fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// Adds a list: its length, then its parts.
    pub(crate) fn add_all<T: AsRef<[u8]>>(&mut self, parts: impl IntoIterator<Item = T>) {
        let parts: Vec<T> = parts.into_iter().collect();
        self.0.update((parts.len() as u64).to_le_bytes());
        for part in parts {
            self.add(part);
        }
    }

    /// Adds a file, or all files of a directory with their names.
    pub(crate) fn add_path(&mut self, path: &Path) -> Result<()> {
        if !path.is_dir() {
            self.add(file_digest(path)?);
            return Ok(());
        }
        let mut entries: Vec<_> = fs::read_dir(path)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        self.0.update((entries.len() as u64).to_le_bytes());
        for entry in entries {
            self.add(entry.file_name().as_encoded_bytes());
            self.add_path(&entry.path())?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> String {
        let mut key = hex(self.0);
        key.truncate(KEY_CHARACTERS);
        key
    }
}

/// The SHA-256 digest of a file.
pub(crate) fn file_digest(path: &Path) -> Result<String> {
    let mut file =
        fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hex(hash)),
            count => hash.update(&block[..count]),
        }
    }
}

fn hex(hash: Sha256) -> String {
    let digest = hash.finalize();
    let characters = digest.iter().map(|byte| format!("{byte:02x}"));
    characters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(lists: &[&[&str]]) -> String {
        let mut key = BuildKey::default();
        for list in lists {
            key.add_all(*list);
        }
        key.finish()
    }

    #[test]
    fn the_same_parts_have_the_same_key_and_others_another() {
        assert_eq!(key(&[&["a", "b"]]), key(&[&["a", "b"]]));
        for other in [
            key(&[&["ab"]]),
            key(&[&["a"], &["b"]]),
            key(&[&["b", "a"]]),
            key(&[&["a", "b"], &[]]),
        ] {
            assert_ne!(key(&[&["a", "b"]]), other);
            assert_eq!(other.len(), KEY_CHARACTERS);
        }
    }

    #[test]
    fn a_changed_file_changes_the_key_of_its_directory() {
        let place = std::env::temp_dir().join(format!("trivet-key-{}", std::process::id()));
        let of = |content: &str| {
            fs::create_dir_all(place.join("below")).unwrap();
            fs::write(place.join("below/file"), content).unwrap();
            let mut key = BuildKey::default();
            key.add_path(&place).unwrap();
            key.finish()
        };
        let (one, same, other) = (of("1"), of("1"), of("2"));
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(one, same);
        assert_ne!(one, other);
    }
}
