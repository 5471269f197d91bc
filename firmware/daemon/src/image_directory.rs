//! The images in the box's directory, hashed before they are listed.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use ring::digest::{Context, SHA256};
use trivet_images::{CatalogueImage, ImageCatalogue};
use trivet_model::Digest;

/// Bytes hashed at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Lists every file in the directory. A file that cannot be listed is logged and left
/// out; the others are served.
pub(crate) fn catalogue(
    directory: &Path,
    mut report: impl FnMut(String),
) -> anyhow::Result<ImageCatalogue> {
    crate::private::directory(directory)
        .with_context(|| format!("{} cannot be created", directory.display()))?;
    let root = directory.canonicalize()?;
    let mut catalogue = ImageCatalogue::default();
    for entry in fs::read_dir(directory)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.path().is_file() {
            continue;
        }
        let inside = entry
            .path()
            .canonicalize()
            .is_ok_and(|file| file.starts_with(&root));
        if !inside {
            // It could not be downloaded: files are served from their directory only.
            report(format!(
                "image {name} is not served: it is a link out of {}",
                root.display()
            ));
            continue;
        }
        let listed = hash(&entry.path())
            .map_err(|error| error.to_string())
            .and_then(|image| {
                catalogue
                    .add(&name, image)
                    .map_err(|error| error.to_string())
            });
        if let Err(why) = listed {
            report(format!("image {name} is not served: {why}"));
        }
    }
    Ok(catalogue)
}

/// Size and SHA-256 of a file.
pub(crate) fn hash(path: &Path) -> std::io::Result<CatalogueImage> {
    hash_first(path, u64::MAX)
}

/// Size and SHA-256 of the first `bytes` of a file.
pub(crate) fn hash_first(path: &Path, bytes: u64) -> std::io::Result<CatalogueImage> {
    let mut file = File::open(path)?.take(bytes);
    let (mut context, mut size) = (Context::new(&SHA256), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            length => {
                context.update(&chunk[..length]);
                size += length as u64;
            }
        }
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    Ok(CatalogueImage {
        size,
        digest: Digest::Sha256(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;

    #[test]
    fn files_are_listed_with_their_digest_and_the_rest_is_logged() {
        let scratch = TestbedDirectory::new();
        scratch.file("outside", b"secret");
        scratch.file("images/good.raw", b"abc");
        scratch.file("images/bad name", b"x");
        scratch.file("images/directory/x", b"x");
        std::os::unix::fs::symlink("../outside", scratch.0.join("images/link.raw")).unwrap();
        let mut reported = Vec::new();
        let found = catalogue(&scratch.0.join("images"), |line| reported.push(line)).unwrap();
        let names: Vec<&str> = found.all().map(|(name, _)| name).collect();
        assert_eq!(names, ["good.raw"]);
        let image = found.find("good.raw").unwrap();
        assert_eq!(image.size, 3);
        let want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(image.digest.to_string(), want);
        reported.sort_unstable();
        assert_eq!(reported.len(), 2, "{reported:?}");
        assert!(reported[0].contains("bad name") && reported[1].contains("link.raw"));
    }

    #[test]
    fn the_first_bytes_alone_can_be_hashed() {
        let scratch = TestbedDirectory::new();
        let file = scratch.file("x", b"abcdef");
        let first = hash_first(&file, 3).unwrap();
        assert_eq!(first, hash(&scratch.file("y", b"abc")).unwrap());
        assert!(hash(&scratch.0.join("absent")).is_err());
    }
}
