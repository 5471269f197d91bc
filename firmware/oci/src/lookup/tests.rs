//! Lookups at a registry of a few documents.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

/// Documents by path.
#[derive(Default)]
struct TestRegistry {
    documents: BTreeMap<String, Vec<u8>>,
    requests: Vec<String>,
    digest_header: Option<String>,
}

fn sha256(bytes: &[u8]) -> Digest {
    let mut hash = IncrementalDigest::new(DigestAlgorithm::Sha256);
    hash.update(bytes);
    hash.finish()
}

impl TestRegistry {
    /// Stores a document under its digest, and under a tag.
    fn push(&mut self, tag: Option<&str>, document: &Value) -> Digest {
        let bytes = document.to_string().into_bytes();
        let digest = sha256(&bytes);
        for object in [Some(oci_digest(&digest)), tag.map(str::to_owned)] {
            let Some(object) = object else { continue };
            let path = format!("/v2/team/disk/manifests/{object}");
            self.documents.insert(path, bytes.clone());
        }
        digest
    }

    fn manifest(&mut self, tag: Option<&str>, media_type: &str, title: &str) -> Digest {
        self.push(tag, &manifest(media_type, title))
    }

    fn resolve(&mut self, query: OciQuery) -> Result<OciImage, OciError> {
        let mut lookup = OciLookup::new(query);
        for _ in 0..2 * CANDIDATES_MAX {
            let request = match lookup.next_step() {
                OciLookupStep::Done(image) => return Ok(*image),
                OciLookupStep::Request(request) => request,
            };
            let document = self.documents.get(&request.path);
            self.requests.push(request.path);
            let body = document.map_or(&[][..], Vec::as_slice);
            let body = &body[..request.range_bytes.unwrap_or(body.len()).min(body.len())];
            lookup.handle(OciResponse {
                status: if document.is_some() { 200 } else { 404 },
                digest: self.digest_header.as_deref(),
                body,
            })?;
        }
        panic!("a lookup without end");
    }
}

fn manifest(media_type: &str, title: &str) -> Value {
    json!({"schemaVersion": 2, "layers": [{
        "mediaType": media_type, "digest": format!("sha256:{}", "ab".repeat(32)), "size": 7,
        "annotations": {"org.opencontainers.image.title": title}}]})
}

fn query(object: &str) -> OciQuery {
    OciQuery {
        reference: format!("oci://h:5000/team/disk{object}").parse().unwrap(),
        architecture: None,
        format: None,
        credentials: None,
    }
}

const OCTETS: &str = "application/octet-stream";

#[test]
fn a_tag_leads_to_the_digests_of_manifest_and_layer() {
    let mut registry = TestRegistry::default();
    let manifest = registry.manifest(Some("12"), OCTETS, "a.qcow2");
    let image = registry.resolve(query(":12")).unwrap();
    let want = OciImage {
        manifest,
        layer: Digest::Sha256([0xab; 32]),
        size: 7,
        format: ImageFormat::Qcow2,
        media_type: OCTETS.into(),
        title: Some("a.qcow2".into()),
    };
    assert_eq!(image, want);
    let by_digest = query(&format!("@{}", oci_digest(&manifest)));
    assert_eq!(registry.resolve(by_digest), Ok(want));
    assert_eq!(registry.requests[0], "/v2/team/disk/manifests/12");
}

#[test]
fn a_manifest_with_another_digest_is_refused() {
    let mut registry = TestRegistry::default();
    let digest = registry.manifest(Some("12"), OCTETS, "a.raw");
    let path = format!("/v2/team/disk/manifests/{}", oci_digest(&digest));
    let other = manifest(OCTETS, "b.raw").to_string().into_bytes();
    registry.documents.insert(path, other);
    let requested = query(&format!(":12@{}", oci_digest(&digest)));
    let why = registry.resolve(requested).unwrap_err();
    assert!(why.is_final());
    let why = why.to_string();
    assert!(why.contains("wrong digest for manifest sha256:"), "{why}");
    assert!(
        why.contains(&format!("{} is expected", oci_digest(&digest))),
        "{why}"
    );
    // The registry contradicts itself about a tag.
    registry.digest_header = Some(format!("sha256:{}", "00".repeat(32)));
    let why = registry.resolve(query(":12")).unwrap_err().to_string();
    assert!(why.contains("wrong digest for tag 12"), "{why}");
    registry.digest_header = Some("nonsense".into());
    assert!(registry.resolve(query(":12")).is_ok());
}

#[test]
fn an_index_leads_to_the_manifest_of_the_architecture() {
    let mut registry = TestRegistry::default();
    let zstd = registry.manifest(None, "application/zstd", "a.qcow2.zst");
    let raw = registry.manifest(None, OCTETS, "a.raw");
    let arm = registry.manifest(None, OCTETS, "arm.raw");
    let entry = |digest: Digest, disk_type: &str, architecture: &str| {
        json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1,
               "digest": oci_digest(&digest), "annotations": {"disktype": disk_type},
               "platform": {"architecture": architecture, "os": "linux"}})
    };
    let entries = [
        entry(arm, "raw", "aarch64"),
        entry(raw, "raw", "x86_64"),
        entry(zstd, "qemu", "x86_64"),
    ];
    let index = json!({"schemaVersion": 2, "manifests": entries});
    registry.push(Some("latest"), &index);
    let mut requested = query("");
    requested.architecture = Some("amd64".into());
    let image = registry.resolve(requested.clone()).unwrap();
    // The preferred manifest has a layer that is not supported.
    assert_eq!(image.manifest, raw);
    assert_eq!(registry.requests.len(), 3);
    requested.architecture = Some("riscv64".into());
    let why = registry.resolve(requested.clone()).unwrap_err().to_string();
    assert!(
        why.contains("no usable disk image for architecture riscv64"),
        "{why}"
    );
    assert!(why.contains("disktype raw for aarch64"), "{why}");
    // A manifest that the index names, but the registry lost.
    let path = format!("/v2/team/disk/manifests/{}", oci_digest(&raw));
    registry.documents.remove(&path);
    requested.architecture = Some("x86_64".into());
    let why = registry.resolve(requested).unwrap_err().to_string();
    assert!(
        why.contains(&format!("no manifest {}", oci_digest(&raw))),
        "{why}"
    );
}

#[test]
fn the_first_bytes_show_the_format() {
    let mut registry = TestRegistry::default();
    registry.manifest(Some("12"), OCTETS, "disk.img");
    let path = blob_path("team/disk", &Digest::Sha256([0xab; 32]));
    let magics: [(&[u8], ImageFormat); 6] = [
        (b"QFI\xfb\0\0\0\x03", ImageFormat::Qcow2),
        (b"\x28\xb5\x2f\xfd\0\0\0\0", ImageFormat::Zstd),
        (b"\x1f\x8b\x08\0\0\0\0\0", ImageFormat::Gzip),
        (b"\xfd7zXZ\0\0\0", ImageFormat::Xz),
        (b"\xeb\x63\x90\0\0\0\0\0", ImageFormat::Raw),
        (b"", ImageFormat::Raw),
    ];
    for (bytes, format) in magics {
        registry.documents.insert(path.clone(), bytes.to_vec());
        assert_eq!(registry.resolve(query(":12")).unwrap().format, format);
    }
    // What the operator declares needs no bytes.
    registry.documents.remove(&path);
    let mut declared = query(":12");
    declared.format = Some(ImageFormat::Raw);
    assert_eq!(registry.resolve(declared).unwrap().format, ImageFormat::Raw);
    let why = registry.resolve(query(":12")).unwrap_err().to_string();
    assert!(why.contains("has no layer sha256:abab"), "{why}");
}

#[test]
fn what_the_registry_does_not_have_is_named() {
    let mut registry = TestRegistry::default();
    let why = registry.resolve(query(":13")).unwrap_err().to_string();
    assert!(
        why.contains("registry h:5000 has no tag 13 in repository team/disk"),
        "{why}"
    );
    let why = registry.resolve(query("")).unwrap_err().to_string();
    assert!(why.contains("no tag latest"), "{why}");
    let digest = Digest::Sha512([7; 64]);
    let requested = query(&format!("@{}", oci_digest(&digest)));
    let why = registry.resolve(requested).unwrap_err().to_string();
    assert!(why.contains("no manifest sha512:0707"), "{why}");
}

#[test]
fn an_image_of_a_container_is_refused_with_its_layers() {
    let mut registry = TestRegistry::default();
    let layer = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "size": 7,
                       "digest": format!("sha256:{}", "ab".repeat(32))});
    let document = json!({"schemaVersion": 2, "layers": [layer, layer]});
    registry.push(Some("12"), &document);
    let why = registry.resolve(query(":12")).unwrap_err();
    assert!(why.is_final());
    let why = why.to_string();
    assert!(why.contains("the file system of a container"), "{why}");
    registry.push(Some("12"), &json!({"schemaVersion": 2, "manifests": []}));
    let why = registry.resolve(query(":12")).unwrap_err().to_string();
    assert!(why.contains("it has: an empty index"), "{why}");
    registry.push(Some("12"), &json!({"schemaVersion": 1}));
    let why = registry.resolve(query(":12")).unwrap_err().to_string();
    assert!(why.contains("schemaVersion is not 2"), "{why}");
}

#[test]
fn an_index_is_not_followed_without_end() {
    let mut registry = TestRegistry::default();
    let inner = registry.push(None, &json!({"schemaVersion": 2, "manifests": []}));
    let entry = json!({"digest": oci_digest(&inner), "size": 1});
    let many = vec![entry; 200];
    registry.push(Some("12"), &json!({"schemaVersion": 2, "manifests": many}));
    let why = registry.resolve(query(":12")).unwrap_err().to_string();
    assert!(why.contains("an index inside an index"), "{why}");
    assert_eq!(registry.requests.len(), 1 + CANDIDATES_MAX);
}

#[test]
fn a_problem_of_the_server_is_not_final() {
    let mut lookup = OciLookup::new(query(":12"));
    let why = lookup.handle(OciResponse {
        status: 503,
        digest: None,
        body: b"",
    });
    let why = why.unwrap_err();
    assert!(!why.is_final());
    assert!(why.to_string().contains("status 503 for tag 12"), "{why}");
}
