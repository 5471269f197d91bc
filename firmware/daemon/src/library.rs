//! The images in the box's directory, hashed before they are listed.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use ring::digest::{Context, SHA256};
use trivet_images::{Catalogue, Image};
use trivet_model::Digest;

/// Bytes hashed at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Lists every file in the directory. One that cannot be listed is told of and
/// left out: the others still serve.
pub(crate) fn catalogue(
    directory: &Path,
    mut tell: impl FnMut(String),
) -> anyhow::Result<Catalogue> {
    fs::create_dir_all(directory)
        .with_context(|| format!("{} cannot be made", directory.display()))?;
    let mut catalogue = Catalogue::default();
    for entry in fs::read_dir(directory)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.path().is_file() {
            continue;
        }
        let listed = hash(&entry.path())
            .map_err(|error| error.to_string())
            .and_then(|image| {
                catalogue
                    .list(&name, image)
                    .map_err(|error| error.to_string())
            });
        if let Err(why) = listed {
            tell(format!("image {name} is not served: {why}"));
        }
    }
    Ok(catalogue)
}

/// Size and SHA-256 of a file.
pub(crate) fn hash(path: &Path) -> std::io::Result<Image> {
    hash_first(path, u64::MAX)
}

/// The same of the first `bytes` of a file.
pub(crate) fn hash_first(path: &Path, bytes: u64) -> std::io::Result<Image> {
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
    Ok(Image {
        size,
        digest: Digest::Sha256(bytes),
    })
}
