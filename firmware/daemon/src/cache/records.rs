//! The records of images on the disk, and the list of all that is stored.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};
use trivet_images::{
    FoundImage, FoundImages, ImageFormat, ImageKey, ImageMetadata, ImageSpec, SOURCES_MAX,
    UnpackedDiskRecord,
};
use trivet_model::UnixMs;
use trivet_model::secret::without_url_credentials;

/// Longest `.json` that is read.
const METADATA_BYTES_MAX: u64 = 64 * 1024;

/// Writes metadata next to the image, atomically.
pub(super) fn write_metadata(stored: &ImageMetadata, root: &Path) -> io::Result<()> {
    let key = stored.spec.key();
    // Sources with credentials are not stored; the next order for the image names them
    // again.
    let open = |source: &&String| without_url_credentials(source).is_none();
    let sources: Vec<&String> = stored.spec.sources.iter().filter(open).collect();
    let name = &stored.spec.name;
    let text = json!({
        "name": without_url_credentials(name).unwrap_or_else(|| name.clone()),
        "sources": sources,
        "format": stored.spec.format.name(),
        "size": stored.size,
        "validator": stored.validator,
        "from": stored.unpacked_from,
    });
    write_record(root, &format!("{key}.json"), &text)
}

/// Writes which disk was unpacked from which image.
pub(super) fn write_disk_record(record: &UnpackedDiskRecord, root: &Path) -> io::Result<()> {
    let text = json!({
        "name": record.spec.name,
        "sources": record.spec.sources,
        "format": record.spec.format.name(),
        "size": record.size,
        "raw": record.raw.to_string(),
        "raw_size": record.raw_size,
    });
    write_record(root, &format!("{}.disk", record.key()), &text)
}

fn read_disk_record(root: &Path, key: ImageKey) -> Option<UnpackedDiskRecord> {
    let value = read_record(&root.join(format!("{key}.disk")))?;
    Some(UnpackedDiskRecord {
        spec: spec_of_record(key, &value)?,
        size: value["size"].as_u64()?,
        raw: ImageKey::parse(value["raw"].as_str()?)?,
        raw_size: value["raw_size"].as_u64()?,
    })
}

/// Writes a record atomically.
fn write_record(root: &Path, name: &str, text: &Value) -> io::Result<()> {
    let new = root.join(format!("{name}.new"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.to_string().as_bytes())?;
    file.sync_data()?;
    std::fs::rename(new, root.join(name))?;
    File::open(root)?.sync_all()
}

/// Reads a record; none if it is not one of ours.
fn read_record(path: &Path) -> Option<Value> {
    if path.metadata().ok()?.len() > METADATA_BYTES_MAX {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// The image that a record describes.
fn spec_of_record(key: ImageKey, value: &Value) -> Option<ImageSpec> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let sources = value["sources"].as_array()?.iter().filter_map(text);
    Some(ImageSpec {
        name: text(&value["name"])?,
        digest: key.0,
        sources: sources.take(SOURCES_MAX).collect(),
        format: value["format"]
            .as_str()
            .and_then(ImageFormat::parse)
            .unwrap_or_default(),
    })
}

/// The metadata of the image with this key; none if it cannot be read.
fn read_metadata(root: &Path, key: ImageKey) -> Option<ImageMetadata> {
    let value = read_record(&root.join(format!("{key}.json")))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(ImageMetadata {
        spec: spec_of_record(key, &value)?,
        size: value["size"].as_u64(),
        validator: text(&value["validator"]),
        whole: root.join(format!("{key}.whole")).is_file(),
        unpacked_from: text(&value["from"]),
    })
}

fn written_at(path: &Path) -> UnixMs {
    let written = path.metadata().and_then(|facts| facts.modified()).ok();
    let since = written.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    UnixMs(since.map_or(0, |since| since.as_millis() as u64))
}

/// Lists everything in the cache. Removes files that cannot be used any more.
pub(super) fn scan(root: &Path) -> io::Result<FoundImages> {
    let mut found = FoundImages::default();
    for file in std::fs::read_dir(root)?.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some((key, end)) = key_of(&name) else {
            continue;
        };
        if end == "disk"
            && let Some(record) = read_disk_record(root, key)
        {
            found.disks.push(record);
            continue;
        }
        if end == super::entry::UNPACK_SUFFIX {
            // An incomplete disk cannot be used: it is unpacked again.
            std::fs::remove_file(file.path())?;
            found.interrupted.push(key);
            continue;
        }
        match (read_metadata(root, key), end) {
            (Some(metadata), "json") => found.images.push(FoundImage {
                metadata,
                written_at: written_at(&file.path()),
            }),
            // Without its record the content is unknown, and this one was never
            // finished.
            (None, _) | (_, "json.new" | "disk" | "disk.new" | "fetch" | "fetch-chunks") => {
                std::fs::remove_file(file.path())?;
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The key and the suffix in the name of a cache file.
fn key_of(name: &str) -> Option<(ImageKey, &str)> {
    let (key, end) = name.split_once('.')?;
    Some((ImageKey::parse(key)?, end))
}
