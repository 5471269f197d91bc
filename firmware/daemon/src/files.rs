//! Opens granted files, and none outside their directory unless the settings name the
//! file itself.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use trivet_board_linux::open_beneath;
use trivet_rack::{ConfinedFile, FileGrant};

/// Something to send: bytes in memory or a file.
pub(crate) struct OpenedFile {
    pub(crate) size: u64,
    pub(crate) content: OpenedFileContent,
}

pub(crate) enum OpenedFileContent {
    Bytes(Vec<u8>),
    File(Arc<File>),
    /// A file with other bytes in some places, by their first byte.
    Patched(Arc<File>, Vec<(u64, Vec<u8>)>),
}

/// Opens a granted file; none if no candidate is a file in its directory.
pub(crate) async fn open(grant: FileGrant) -> Option<OpenedFile> {
    match grant {
        FileGrant::Bytes(bytes) => Some(OpenedFile {
            size: bytes.len() as u64,
            content: OpenedFileContent::Bytes(bytes),
        }),
        // The cache opens the first two.
        FileGrant::Image(_)
        | FileGrant::ChunkList(_)
        | FileGrant::Unavailable(_)
        | FileGrant::Forbidden(_) => None,
        FileGrant::File(candidates) => {
            tokio::task::spawn_blocking(move || candidates.iter().find_map(open_below))
                .await
                .ok()?
        }
        FileGrant::PatchedFile {
            file,
            data,
            patches,
        } => tokio::task::spawn_blocking(move || {
            let mut opened = open_named(&file, data.as_deref())?;
            if let OpenedFileContent::File(file) = opened.content {
                opened.content = OpenedFileContent::Patched(file, patches);
            }
            Some(opened)
        })
        .await
        .ok()?,
        FileGrant::NamedFile { file, data } => {
            tokio::task::spawn_blocking(move || open_named(&file, data.as_deref()))
                .await
                .ok()?
        }
    }
}

/// Opens a file that the settings name, following its symbolic links as they are now.
/// In the data directory only images are served, as the check at the start requires: a
/// link may have changed since.
fn open_named(file: &Path, data: Option<&Path>) -> Option<OpenedFile> {
    let file = file.canonicalize().ok()?;
    if let Some(data) = data.and_then(|data| data.canonicalize().ok())
        && file.starts_with(&data)
        && !file.starts_with(data.join("images"))
    {
        return None;
    }
    let root = file.parent()?.to_owned();
    open_below(&ConfinedFile {
        root,
        file,
        data: None,
    })
}

/// Opens it beneath its directory, so that no symbolic link leads out of it. Nor may the
/// directory lead to the data directory: a link of its path may have changed since the start.
fn open_below(below: &ConfinedFile) -> Option<OpenedFile> {
    let relative = below.file.strip_prefix(&below.root).ok()?;
    let data = below
        .data
        .as_ref()
        .and_then(|data| data.canonicalize().ok());
    if let Some(data) = data {
        let root = below.root.canonicalize().ok()?;
        if root.starts_with(&data) || data.starts_with(&root) {
            return None;
        }
    }
    let file = open_beneath(&below.root, relative).ok()?;
    let facts = file.metadata().ok()?;
    facts.is_file().then_some(OpenedFile {
        size: facts.len(),
        content: OpenedFileContent::File(Arc::new(file)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;
    use std::os::unix::fs::symlink;

    fn opened(scratch: &TestbedDirectory, name: &str) -> Option<OpenedFile> {
        let root = scratch.0.join("root");
        let file = root.join(name);
        open_below(&ConfinedFile {
            root,
            file,
            data: None,
        })
    }

    #[test]
    fn links_are_followed_within_the_directory_and_not_out_of_it() {
        let scratch = TestbedDirectory::new();
        scratch.file("secret", b"secret");
        scratch.file("root/plain", b"plain");
        std::fs::create_dir(scratch.0.join("root/deep")).unwrap();
        symlink("../plain", scratch.0.join("root/deep/inside")).unwrap();
        symlink("../secret", scratch.0.join("root/outside")).unwrap();
        symlink(&scratch.0, scratch.0.join("root/up")).unwrap();
        symlink("nowhere", scratch.0.join("root/broken")).unwrap();
        for name in ["plain", "deep/inside"] {
            assert_eq!(opened(&scratch, name).unwrap().size, 5, "{name}");
        }
        for name in ["outside", "up/secret", "broken", "deep", "absent", ""] {
            assert!(opened(&scratch, name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_directory_with_a_longer_name_is_another_one() {
        let scratch = TestbedDirectory::new();
        scratch.file("root/a", b"a");
        scratch.file("root-too/b", b"b");
        symlink("../root-too/b", scratch.0.join("root/b")).unwrap();
        assert!(opened(&scratch, "b").is_none());
    }

    #[tokio::test]
    async fn a_file_that_the_settings_name_may_be_a_link_and_a_changed_link_counts() {
        let scratch = TestbedDirectory::new();
        scratch.file("boot/vmlinuz-1", b"1");
        scratch.file("boot/vmlinuz-22", b"22");
        scratch.file("data/store", b"secret");
        scratch.file("data/images/kernel", b"image");
        scratch.file("srv/plain", b"333");
        let kernel = scratch.0.join("srv/kernel");
        let named = |file: &Path| FileGrant::NamedFile {
            file: file.to_owned(),
            data: Some(scratch.0.join("data")),
        };
        for (to, wanted) in [
            ("boot/vmlinuz-1", Some(1)),
            ("boot/vmlinuz-22", Some(2)),
            ("data/images/kernel", Some(5)),
            ("data/store", None),
            ("boot", None),
            ("absent", None),
        ] {
            symlink(scratch.0.join(to), &kernel).unwrap();
            let size = open(named(&kernel)).await.map(|opened| opened.size);
            assert_eq!(size, wanted, "{to}");
            std::fs::remove_file(&kernel).unwrap();
        }
        let plain = named(&scratch.0.join("srv/plain"));
        assert_eq!(open(plain).await.unwrap().size, 3);
    }

    #[test]
    fn a_directory_that_becomes_a_link_to_the_data_directory_serves_nothing() {
        let scratch = TestbedDirectory::new();
        scratch.file("data/store.key", b"secret");
        scratch.file("plain/store.key", b"other");
        let root = scratch.0.join("files");
        let below = ConfinedFile {
            file: root.join("store.key"),
            root: root.clone(),
            data: Some(scratch.0.join("data")),
        };
        assert!(open_below(&below).is_none(), "it does not exist");
        for (to, size) in [("plain", Some(5)), ("data", None), (".", None)] {
            symlink(scratch.0.join(to), &root).unwrap();
            assert_eq!(open_below(&below).map(|opened| opened.size), size, "{to}");
            std::fs::remove_file(&root).unwrap();
        }
    }

    #[tokio::test]
    async fn the_first_candidate_that_exists_is_taken() {
        let scratch = TestbedDirectory::new();
        scratch.file("two/x", b"22");
        let below = |root: &str| ConfinedFile {
            root: scratch.0.join(root),
            file: scratch.0.join(root).join("x"),
            data: None,
        };
        let grant = FileGrant::File(vec![below("one"), below("two")]);
        assert_eq!(open(grant).await.unwrap().size, 2);
    }
}
