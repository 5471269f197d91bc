//! Config drives: the data of an instance for its first boot, as an ISO 9660 image.
//!
//! An object with `meta_data`, `user_data`, `network_data` and `vendor_data` becomes the files
//! that cloud-init and similar programs read (OpenStack's layout, as openstacksdk and Ironic
//! write it), on an ISO 9660 image with the label `config-2`, gzipped and in base64, as agents
//! accept it. Nothing here knows a node: its facts are passed in as `meta_data`.

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

/// The volume label by which an instance finds the image.
pub const LABEL: &str = "config-2";

/// Most bytes of all files together. Ours: the record of a node is stored on flash.
pub const CONTENT_BYTES_MAX: usize = 512 * 1024;

/// The versions of the layout that are written; their files are the same.
const VERSIONS: [&str; 2] = ["2012-08-10", "latest"];

/// Why no config drive can be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigDriveError {
    /// A template refers to a fact that the node does not have.
    #[error(
        "configdrive: the template uses {path}, which this node does not have, or which is \
         secret; set it, or use one of: {known}"
    )]
    UnknownTemplateField {
        /// The path in the template.
        path: String,
        /// The available facts.
        known: String,
    },
    /// A part has the wrong type.
    #[error("configdrive: {part} must be {kind}")]
    WrongType {
        /// The name of the part.
        part: &'static str,
        /// The required type.
        kind: &'static str,
    },
    /// A part that no program reads.
    #[error(
        "configdrive: {part:?} is not known; there are meta_data, user_data, network_data and \
         vendor_data"
    )]
    UnknownPart {
        /// Its name, truncated.
        part: String,
    },
    /// It is too large.
    #[error(
        "configdrive: its files have {bytes} bytes, at most {CONTENT_BYTES_MAX} are made into a \
         drive; give a URL of a drive instead"
    )]
    TooLarge {
        /// Total size of the files.
        bytes: usize,
    },
}

/// The config drive for these parts, as agents accept it: a gzipped image in base64. `facts`
/// are added to `meta_data` where it has no value of its own.
pub fn encoded_drive(
    parts: &Map<String, Value>,
    facts: &Map<String, Value>,
) -> Result<String, ConfigDriveError> {
    let disc = iso_image(parts, facts)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let gzipped = packed.write_all(&disc).and_then(|()| packed.finish());
    Ok(STANDARD.encode(gzipped.expect("memory takes every byte")))
}

/// The ISO 9660 image.
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
