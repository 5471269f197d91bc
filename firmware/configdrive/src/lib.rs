//! Config drives: what an instance is told at its first boot, as a small disc.
//!
//! An object with `meta_data`, `user_data`, `network_data` and `vendor_data` becomes the
//! files that cloud-init and its like look for (OpenStack's layout, as openstacksdk and
//! Ironic write it), on an ISO 9660 disc with the label `config-2`, gzipped and in base64,
//! as agents take it. Nothing here knows a node: its facts come in as `meta_data`.

mod iso;
mod template;

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

use iso::{IsoDirectory, IsoNode};

pub use template::render_template;

/// The label by which an instance finds the disc.
pub const LABEL: &str = "config-2";

/// The most bytes of all files together. Ours: the record of a node is kept on flash.
pub const CONTENT_BYTES_MAX: usize = 512 * 1024;

/// The layouts that are written; the files are the same.
const VERSIONS: [&str; 2] = ["2012-08-10", "latest"];

/// Why no drive can be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigDriveError {
    /// A template names what the node has not.
    #[error(
        "configdrive: the template wants {path}, which this node has not, or which is secret; \
         set it, or name what there is: {known}"
    )]
    UnknownTemplateField {
        /// What.
        path: String,
        /// Where facts begin.
        known: String,
    },
    /// A part is not of its kind.
    #[error("configdrive: {part} must be {kind}")]
    WrongType {
        /// Which.
        part: &'static str,
        /// What it must be.
        kind: &'static str,
    },
    /// Nobody would read this.
    #[error(
        "configdrive: {part:?} is not known; there are meta_data, user_data, network_data and \
         vendor_data"
    )]
    UnknownPart {
        /// Its name, cut to a bound.
        part: String,
    },
    /// It is too large.
    #[error(
        "configdrive: its files have {bytes} bytes, at most {CONTENT_BYTES_MAX} are made into a \
         drive; give a URL of a drive instead"
    )]
    TooLarge {
        /// How large.
        bytes: usize,
    },
}

/// The drive for these parts, as agents take it: base64 of a gzipped disc. `facts` stand in
/// `meta_data` where nothing else does.
pub fn encoded_drive(
    parts: &Map<String, Value>,
    facts: &Map<String, Value>,
) -> Result<String, ConfigDriveError> {
    let disc = iso_image(parts, facts)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let gzipped = packed.write_all(&disc).and_then(|()| packed.finish());
    Ok(STANDARD.encode(gzipped.expect("memory takes every byte")))
}

/// The disc itself.
pub fn iso_image(
    parts: &Map<String, Value>,
    facts: &Map<String, Value>,
) -> Result<Vec<u8>, ConfigDriveError> {
    let files = files(parts, facts)?;
    let bytes = files.iter().map(|(_, content)| content.len()).sum();
    if bytes > CONTENT_BYTES_MAX {
        return Err(ConfigDriveError::TooLarge { bytes });
    }
    let contents: Vec<Vec<u8>> = files.iter().map(|(_, content)| content.clone()).collect();
    let version = |name: &str| {
        let entries = files.iter().enumerate();
        let entries = entries.map(|(at, (name, _))| ((*name).to_owned(), IsoNode::File(at)));
        let directory = IsoDirectory(entries.collect());
        (name.to_owned(), IsoNode::Directory(directory))
    };
    let versions = IsoDirectory(VERSIONS.iter().map(|name| version(name)).collect());
    let root = IsoDirectory([("openstack".to_owned(), IsoNode::Directory(versions))].into());
    Ok(iso::write(LABEL, &root, &contents))
}

/// File names and contents.
fn files(
    parts: &Map<String, Value>,
    facts: &Map<String, Value>,
) -> Result<Vec<(&'static str, Vec<u8>)>, ConfigDriveError> {
    for part in parts.keys() {
        if !["meta_data", "user_data", "network_data", "vendor_data"].contains(&part.as_str()) {
            let part = part.chars().take(40).collect();
            return Err(ConfigDriveError::UnknownPart { part });
        }
    }
    let mut meta = object(parts, "meta_data")?.unwrap_or_default();
    for (key, fact) in facts {
        meta.entry(key).or_insert_with(|| fact.clone());
    }
    let mut files = vec![("meta_data.json", json(&Value::Object(meta)))];
    if let Some(network) = object(parts, "network_data")? {
        files.push(("network_data.json", json(&Value::Object(network))));
    }
    match parts.get("user_data") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => files.push(("user_data", text.clone().into_bytes())),
        Some(data @ (Value::Object(_) | Value::Array(_))) => files.push(("user_data", json(data))),
        Some(_) => {
            return Err(ConfigDriveError::WrongType {
                part: "user_data",
                kind: "text, an object or a list",
            });
        }
    }
    if let Some(vendor) = object(parts, "vendor_data")? {
        files.push(("vendor_data2.json", json(&Value::Object(vendor))));
    }
    Ok(files)
}

fn object(
    parts: &Map<String, Value>,
    part: &'static str,
) -> Result<Option<Map<String, Value>>, ConfigDriveError> {
    match parts.get(part) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object.clone())),
        Some(_) => Err(ConfigDriveError::WrongType {
            part,
            kind: "an object",
        }),
    }
}

fn json(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
