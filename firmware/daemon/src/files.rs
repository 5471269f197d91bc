//! Files that were granted: opened, and never outside their directory.

use std::fs::File;
use std::sync::Arc;

use trivet_board_linux::open_beneath;
use trivet_rack::{Below, Grant};

/// Something to send: bytes in memory or a file.
pub(crate) struct Opened {
    pub(crate) size: u64,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Bytes(Vec<u8>),
    File(Arc<File>),
}

/// Opens what was granted; none where no candidate is a file in its directory.
pub(crate) async fn open(grant: Grant) -> Option<Opened> {
    match grant {
        Grant::Bytes(bytes) => Some(Opened {
            size: bytes.len() as u64,
            content: Content::Bytes(bytes),
        }),
        // The cache opens the first two.
        Grant::Image(_) | Grant::ChunkList(_) | Grant::Unavailable(_) => None,
        Grant::File(candidates) => {
            tokio::task::spawn_blocking(move || candidates.iter().find_map(open_below))
                .await
                .ok()?
        }
    }
}

/// Opens it beneath its directory, so that no link leads out of it.
fn open_below(below: &Below) -> Option<Opened> {
    let relative = below.file.strip_prefix(&below.root).ok()?;
    let file = open_beneath(&below.root, relative).ok()?;
    let facts = file.metadata().ok()?;
    facts.is_file().then_some(Opened {
        size: facts.len(),
        content: Content::File(Arc::new(file)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Scratch;
    use std::os::unix::fs::symlink;

    fn opened(scratch: &Scratch, name: &str) -> Option<Opened> {
        let root = scratch.0.join("root");
        let file = root.join(name);
        open_below(&Below { root, file })
    }

    #[test]
    fn links_are_followed_within_the_directory_and_not_out_of_it() {
        let scratch = Scratch::new();
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
        let scratch = Scratch::new();
        scratch.file("root/a", b"a");
        scratch.file("root-too/b", b"b");
        symlink("../root-too/b", scratch.0.join("root/b")).unwrap();
        assert!(opened(&scratch, "b").is_none());
    }

    #[tokio::test]
    async fn the_first_candidate_that_exists_is_taken() {
        let scratch = Scratch::new();
        scratch.file("two/x", b"22");
        let below = |root: &str| Below {
            root: scratch.0.join(root),
            file: scratch.0.join(root).join("x"),
        };
        let grant = Grant::File(vec![below("one"), below("two")]);
        assert_eq!(open(grant).await.unwrap().size, 2);
    }
}
