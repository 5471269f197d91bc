//! Manifests and indexes of the OCI image specification, and Docker's of the same form.
//!
//! A document is untrusted: its size, its lists and its texts are bounded, and what is not needed
//! is not kept.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use trivet_model::Digest;
use trivet_model::oci::parse_oci_digest;

/// Largest document: the size that the distribution specification asks registries to accept.
pub const MANIFEST_BYTES_MAX: usize = 4 << 20;

/// The most manifests of an index. Ours.
pub const MANIFESTS_MAX: usize = 256;
/// The most layers of a manifest. Ours.
pub const LAYERS_MAX: usize = 256;

/// Longest text that is kept. Ours.
const TEXT_CHARS_MAX: usize = 200;

/// The media types that are requested from a registry.
pub(crate) const MANIFEST_TYPES: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// The annotation with the name of the file in a layer.
const TITLE: &str = "org.opencontainers.image.title";

/// The annotation with the type of a disk, as Podman and Ironic use it.
const DISK_TYPE: &str = "disktype";

/// A reference to a manifest or a layer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OciDescriptor {
    /// Its media type; may be empty.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// The file name, from its annotations.
    pub title: Option<String>,
    /// The type of disk, from its annotations.
    pub disk_type: Option<String>,
    /// The architecture that it is for, of a manifest in an index.
    pub architecture: Option<String>,
}

/// A manifest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OciManifest {
    /// The type of disk, from its annotations.
    pub disk_type: Option<String>,
    /// Its layers.
    pub layers: Vec<OciDescriptor>,
}

/// What a registry serves under a tag or a digest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OciDocument {
    /// A list of manifests.
    Index(Vec<OciDescriptor>),
    /// A manifest.
    Manifest(OciManifest),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: Option<u64>,
    manifests: Option<Vec<RawDescriptor>>,
    layers: Option<Vec<RawDescriptor>>,
    annotations: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    media_type: Option<String>,
    digest: String,
    size: u64,
    annotations: Option<BTreeMap<String, Value>>,
    platform: Option<RawPlatform>,
}

#[derive(Deserialize)]
struct RawPlatform {
    architecture: Option<String>,
}

impl OciDocument {
    /// Parses a document. An error is the end of a sentence about the document.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MANIFEST_BYTES_MAX {
            return Err(format!("it has more than {MANIFEST_BYTES_MAX} bytes"));
        }
        let raw: RawDocument = serde_json::from_slice(bytes)
            .map_err(|error| bounded(&format!("it is invalid: {error}")))?;
        if raw.schema_version != Some(2) {
            return Err("its schemaVersion is not 2".to_owned());
        }
        match (raw.manifests, raw.layers) {
            (Some(manifests), None) => {
                let all = descriptors(manifests, MANIFESTS_MAX, "manifests")?;
                Ok(Self::Index(all))
            }
            (None, Some(layers)) => Ok(Self::Manifest(OciManifest {
                disk_type: annotation(raw.annotations.as_ref(), DISK_TYPE),
                layers: descriptors(layers, LAYERS_MAX, "layers")?,
            })),
            _ => Err("it has neither manifests nor layers".to_owned()),
        }
    }
}

fn descriptors(
    raw: Vec<RawDescriptor>,
    count_max: usize,
    name: &str,
) -> Result<Vec<OciDescriptor>, String> {
    if raw.len() > count_max {
        return Err(format!("it has more than {count_max} {name}"));
    }
    let descriptor = |raw: RawDescriptor| {
        let digest = parse_oci_digest(&raw.digest);
        let digest = digest.ok_or_else(|| {
            let shown = bounded(&raw.digest);
            format!("{shown:?} in its {name} is neither a SHA-256 nor a SHA-512")
        })?;
        let annotations = raw.annotations.as_ref();
        let architecture = raw.platform.and_then(|platform| platform.architecture);
        Ok(OciDescriptor {
            media_type: bounded(&raw.media_type.unwrap_or_default()),
            digest,
            size: raw.size,
            title: annotation(annotations, TITLE),
            disk_type: annotation(annotations, DISK_TYPE),
            architecture: architecture.map(|text| bounded(&text)),
        })
    };
    raw.into_iter().map(descriptor).collect()
}

fn annotation(all: Option<&BTreeMap<String, Value>>, name: &str) -> Option<String> {
    let text = all?.get(name)?.as_str()?;
    (!text.is_empty()).then(|| bounded(text))
}

/// The beginning of a text, in one line.
fn bounded(text: &str) -> String {
    let plain = |one: char| if one.is_control() { ' ' } else { one };
    text.chars().take(TEXT_CHARS_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: &Value) -> Result<OciDocument, String> {
        OciDocument::parse(value.to_string().as_bytes())
    }

    fn digest(byte: &str) -> String {
        format!("sha256:{}", byte.repeat(32))
    }

    #[test]
    fn a_manifest_of_oras_is_parsed() {
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.unknown.artifact.v1",
            "config": {"mediaType": "application/vnd.oci.empty.v1+json",
                       "digest": digest("44"), "size": 2, "data": "e30="},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar",
                        "digest": digest("ab"), "size": 7,
                        "annotations": {"org.opencontainers.image.title": "a.qcow2", "x": 7}}],
            "annotations": {"disktype": "qcow2"},
        });
        let layer = OciDescriptor {
            media_type: "application/vnd.oci.image.layer.v1.tar".into(),
            digest: Digest::Sha256([0xab; 32]),
            size: 7,
            title: Some("a.qcow2".into()),
            disk_type: None,
            architecture: None,
        };
        let want = OciManifest {
            disk_type: Some("qcow2".into()),
            layers: vec![layer],
        };
        assert_eq!(parse(&manifest), Ok(OciDocument::Manifest(want)));
    }

    #[test]
    fn an_index_of_podman_is_parsed() {
        let index = json!({
            "schemaVersion": 2,
            "manifests": [
                {"mediaType": "application/vnd.oci.image.manifest.v1+json",
                 "digest": digest("ab"), "size": 7, "annotations": {"disktype": "applehv"},
                 "platform": {"architecture": "x86_64", "os": "linux"}},
                {"digest": format!("sha512:{}", "cd".repeat(64)), "size": 8,
                 "annotations": null, "platform": null},
            ],
        });
        let Ok(OciDocument::Index(all)) = parse(&index) else {
            panic!("an index");
        };
        assert_eq!(all[0].architecture.as_deref(), Some("x86_64"));
        assert_eq!(all[0].disk_type.as_deref(), Some("applehv"));
        assert_eq!(all[1].digest, Digest::Sha512([0xcd; 64]));
        assert_eq!((all[1].media_type.as_str(), all[1].size), ("", 8));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let layer = |digest: &str| json!({"digest": digest, "size": 1});
        let many = |count: usize| vec![layer(&digest("ab")); count];
        for (value, part) in [
            (json!([]), "invalid"),
            (json!({"schemaVersion": 1, "fsLayers": []}), "schemaVersion"),
            (json!({"layers": []}), "schemaVersion"),
            (json!({"schemaVersion": 2}), "neither manifests nor layers"),
            (
                json!({"schemaVersion": 2, "layers": [], "manifests": []}),
                "neither",
            ),
            (json!({"schemaVersion": 2, "layers": [7]}), "invalid"),
            (
                json!({"schemaVersion": 2, "layers": [{"digest": digest("ab"), "size": -1}]}),
                "invalid",
            ),
            (
                json!({"schemaVersion": 2, "layers": [layer("md5:00")]}),
                "\"md5:00\"",
            ),
            (
                json!({"schemaVersion": 2, "layers": many(LAYERS_MAX + 1)}),
                "more than 256 layers",
            ),
            (
                json!({"schemaVersion": 2, "manifests": many(MANIFESTS_MAX + 1)}),
                "256 manifests",
            ),
        ] {
            let why = parse(&value).unwrap_err();
            assert!(why.contains(part), "{part}: {why}");
        }
        let long = vec![b' '; MANIFEST_BYTES_MAX + 1];
        assert!(OciDocument::parse(&long).unwrap_err().contains("4194304"));
        assert!(OciDocument::parse(&vec![b'['; 100_000]).is_err());
    }

    #[test]
    fn texts_are_bounded_and_plain() {
        let title = "a\n".repeat(1000);
        let document = json!({"schemaVersion": 2, "layers": [
            {"digest": digest("ab"), "size": 1,
             "annotations": {"org.opencontainers.image.title": title, "disktype": ""}}]});
        let Ok(OciDocument::Manifest(manifest)) = parse(&document) else {
            panic!("a manifest");
        };
        let layer = &manifest.layers[0];
        let title = layer.title.clone().unwrap();
        assert_eq!(title.chars().count(), TEXT_CHARS_MAX);
        assert!(!title.contains('\n'));
        assert_eq!(layer.disk_type, None);
    }
}
