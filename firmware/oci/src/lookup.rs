//! From a reference to the layer with the disk image: one request after the other.

use trivet_chunks::{DigestAlgorithm, IncrementalDigest};
use trivet_model::image::ImageFormat;
use trivet_model::oci::{oci_digest, parse_oci_digest};
use trivet_model::{Digest, OciReference};

use crate::document::MANIFEST_TYPES;
use crate::{
    LayerChoice, MANIFEST_BYTES_MAX, OciDescriptor, OciDocument, OciError, OciManifest,
    RegistryCredentials, choose_layer, choose_manifests,
};

/// The most manifests of an index that are read until one has a usable layer. Ours.
const CANDIDATES_MAX: usize = 8;

/// The first bytes of a layer that show its format.
const MAGIC_BYTES: usize = 6;

/// What is looked up, and for whom.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OciQuery {
    /// The reference.
    pub reference: OciReference,
    /// The architecture of the machine, if it is known.
    pub architecture: Option<String>,
    /// The format that the operator declared.
    pub format: Option<ImageFormat>,
    /// The credentials of the node; without them those of the settings are used.
    pub credentials: Option<RegistryCredentials>,
}

/// The disk image of a reference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OciImage {
    /// The digest of the manifest that has the layer.
    pub manifest: Digest,
    /// The digest of the layer.
    pub layer: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Its format.
    pub format: ImageFormat,
    /// Its media type; may be empty.
    pub media_type: String,
    /// Its file name.
    pub title: Option<String>,
}

/// A request to the registry of the reference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OciRequest {
    /// The path of the URL.
    pub path: String,
    /// The `Accept` header.
    pub accept: Option<&'static str>,
    /// Only so many bytes from the start of the body are read.
    pub range_bytes: Option<usize>,
    /// Longest body.
    pub bytes_max: usize,
}

/// The response to a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OciResponse<'a> {
    /// HTTP status.
    pub status: u16,
    /// The header `Docker-Content-Digest`.
    pub digest: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// The next step of a lookup.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OciLookupStep {
    /// Send this request, then call [`OciLookup::handle`].
    Request(OciRequest),
    /// The image is known.
    Done(Box<OciImage>),
}

#[derive(Debug)]
enum LookupPhase {
    /// The document of the reference itself.
    Reference,
    /// The first of the candidates.
    Candidate,
    /// The first bytes of a layer.
    Magic {
        manifest: Digest,
        layer: Box<OciDescriptor>,
    },
    Done(Box<OciImage>),
}

/// The lookup of one reference.
#[derive(Debug)]
pub struct OciLookup {
    query: OciQuery,
    phase: LookupPhase,
    /// Manifests of the index that are not read yet, the last one is next.
    candidates: Vec<OciDescriptor>,
    /// What the manifests have that were read.
    found: Vec<String>,
}

impl OciLookup {
    /// A lookup that has not begun.
    pub fn new(query: OciQuery) -> Self {
        Self {
            query,
            phase: LookupPhase::Reference,
            candidates: Vec::new(),
            found: Vec::new(),
        }
    }

    /// The next step.
    pub fn next_step(&self) -> OciLookupStep {
        let repository = self.query.reference.repository();
        let manifest = |object: &str| {
            OciLookupStep::Request(OciRequest {
                path: format!("/v2/{repository}/manifests/{object}"),
                accept: Some(MANIFEST_TYPES),
                range_bytes: None,
                bytes_max: MANIFEST_BYTES_MAX,
            })
        };
        match &self.phase {
            LookupPhase::Reference => manifest(&self.query.reference.object()),
            LookupPhase::Candidate => {
                let next = self.candidates.last();
                let object = next
                    .map(|next| oci_digest(&next.digest))
                    .unwrap_or_default();
                manifest(&object)
            }
            LookupPhase::Magic { layer, .. } => OciLookupStep::Request(OciRequest {
                path: blob_path(repository, &layer.digest),
                accept: None,
                range_bytes: Some(MAGIC_BYTES),
                bytes_max: MAGIC_BYTES,
            }),
            LookupPhase::Done(image) => OciLookupStep::Done(image.clone()),
        }
    }

    /// Handles the response to the request of [`Self::next_step`].
    pub fn handle(&mut self, response: OciResponse<'_>) -> Result<(), OciError> {
        match response.status {
            200 | 206 => {}
            404 => return Err(self.not_found()),
            status => {
                return Err(OciError::Status {
                    registry: self.registry(),
                    repository: self.repository(),
                    object: self.object(),
                    status,
                });
            }
        }
        match core::mem::replace(&mut self.phase, LookupPhase::Reference) {
            LookupPhase::Reference => {
                let digest = self.verify(self.query.reference.digest(), response)?;
                self.handle_document(digest, response.body)
            }
            LookupPhase::Candidate => {
                self.phase = LookupPhase::Candidate;
                let Some(entry) = self.candidates.last().cloned() else {
                    return Err(self.no_layer());
                };
                let digest = self.verify(Some(entry.digest), response)?;
                self.candidates.pop();
                match self.parse(response.body)? {
                    OciDocument::Manifest(manifest) => {
                        self.handle_manifest(digest, &manifest, entry.disk_type.as_deref())
                    }
                    OciDocument::Index(_) => {
                        self.found.push("an index inside an index".to_owned());
                        self.next_candidate()
                    }
                }
            }
            LookupPhase::Magic { manifest, layer } => {
                let format = format_of_magic(response.body);
                self.finish(manifest, &layer, format);
                Ok(())
            }
            done @ LookupPhase::Done(_) => {
                self.phase = done;
                Ok(())
            }
        }
    }

    fn handle_document(&mut self, digest: Digest, body: &[u8]) -> Result<(), OciError> {
        match self.parse(body)? {
            OciDocument::Manifest(manifest) => self.handle_manifest(digest, &manifest, None),
            OciDocument::Index(index) => {
                let architecture = self.query.architecture.as_deref();
                let chosen = choose_manifests(&index, architecture);
                let chosen = chosen.into_iter().take(CANDIDATES_MAX);
                self.candidates = chosen.cloned().collect();
                self.candidates.reverse();
                if self.candidates.is_empty() {
                    self.found.push(shown_index(&index));
                }
                self.next_candidate()
            }
        }
    }

    fn handle_manifest(
        &mut self,
        digest: Digest,
        manifest: &OciManifest,
        disk_type: Option<&str>,
    ) -> Result<(), OciError> {
        match choose_layer(manifest, disk_type, self.query.format) {
            Ok((layer, LayerChoice::Format(format))) => {
                self.finish(digest, layer, format);
                Ok(())
            }
            Ok((layer, LayerChoice::ReadMagic)) => {
                self.phase = LookupPhase::Magic {
                    manifest: digest,
                    layer: Box::new(layer.clone()),
                };
                Ok(())
            }
            Err(found) => {
                self.found.push(found);
                self.next_candidate()
            }
        }
    }

    fn next_candidate(&mut self) -> Result<(), OciError> {
        if self.candidates.is_empty() {
            return Err(self.no_layer());
        }
        self.phase = LookupPhase::Candidate;
        Ok(())
    }

    fn finish(&mut self, manifest: Digest, layer: &OciDescriptor, format: ImageFormat) {
        self.phase = LookupPhase::Done(Box::new(OciImage {
            manifest,
            layer: layer.digest,
            size: layer.size,
            format,
            media_type: layer.media_type.clone(),
            title: layer.title.clone(),
        }));
    }

    /// The digest of a document; an error if another one is expected, by the reference or by the
    /// registry itself.
    fn verify(
        &self,
        expected: Option<Digest>,
        response: OciResponse<'_>,
    ) -> Result<Digest, OciError> {
        let expected = expected.or_else(|| response.digest.and_then(parse_oci_digest));
        let algorithm = expected
            .as_ref()
            .map_or(DigestAlgorithm::Sha256, DigestAlgorithm::of);
        let mut hash = IncrementalDigest::new(algorithm);
        hash.update(response.body);
        let found = hash.finish();
        match expected {
            Some(expected) if expected != found => Err(OciError::ManifestDigest {
                registry: self.registry(),
                repository: self.repository(),
                object: self.object(),
                expected: oci_digest(&expected),
                found: oci_digest(&found),
            }),
            _ => Ok(found),
        }
    }

    fn parse(&self, body: &[u8]) -> Result<OciDocument, OciError> {
        OciDocument::parse(body).map_err(|why| OciError::Manifest {
            registry: self.registry(),
            repository: self.repository(),
            object: self.object(),
            why,
        })
    }

    fn registry(&self) -> String {
        self.query.reference.registry().to_owned()
    }

    fn repository(&self) -> String {
        self.query.reference.repository().to_owned()
    }

    /// What the present request is for.
    fn object(&self) -> String {
        let digest = match &self.phase {
            LookupPhase::Candidate => self.candidates.last().map(|entry| entry.digest),
            LookupPhase::Magic { layer, .. } => {
                return format!("layer {}", oci_digest(&layer.digest));
            }
            LookupPhase::Reference | LookupPhase::Done(_) => self.query.reference.digest(),
        };
        match digest {
            Some(digest) => format!("manifest {}", oci_digest(&digest)),
            None => format!("tag {}", self.query.reference.object()),
        }
    }

    fn not_found(&self) -> OciError {
        OciError::NotFound {
            registry: self.registry(),
            repository: self.repository(),
            object: self.object(),
        }
    }

    fn no_layer(&self) -> OciError {
        let wanted = self.query.architecture.as_ref();
        let wanted = wanted.map(|name| format!(" for architecture {name}"));
        OciError::NoLayer {
            reference: self.query.reference.to_string(),
            wanted: wanted.unwrap_or_default(),
            found: self.found.join("; "),
        }
    }
}

/// The path of a layer.
pub(crate) fn blob_path(repository: &str, digest: &Digest) -> String {
    format!("/v2/{repository}/blobs/{}", oci_digest(digest))
}

/// The disk types and architectures of an index without a usable manifest.
fn shown_index(index: &[OciDescriptor]) -> String {
    let shown = |entry: &OciDescriptor| {
        format!(
            "disktype {} for {}",
            entry.disk_type.as_deref().unwrap_or("unknown"),
            entry.architecture.as_deref().unwrap_or("any architecture")
        )
    };
    let all: Vec<String> = index.iter().take(CANDIDATES_MAX).map(shown).collect();
    match all.len() {
        0 => "an empty index".to_owned(),
        _ => all.join(", "),
    }
}

/// The format that the first bytes of a file show.
fn format_of_magic(bytes: &[u8]) -> ImageFormat {
    let magics: [(&[u8], ImageFormat); 4] = [
        (b"QFI\xfb", ImageFormat::Qcow2),
        (b"\x28\xb5\x2f\xfd", ImageFormat::Zstd),
        (b"\x1f\x8b", ImageFormat::Gzip),
        (b"\xfd7zXZ\0", ImageFormat::Xz),
    ];
    let found = magics
        .into_iter()
        .find(|(magic, _)| bytes.starts_with(magic));
    found.map_or(ImageFormat::Raw, |(_, format)| format)
}

#[cfg(test)]
mod tests;
