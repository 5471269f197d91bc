//! Identifies an image for the cache: by its digest, with its sources.

use core::fmt;

use serde_json::Value;
use trivet_chunks::{DigestAlgorithm, IncrementalDigest};
pub use trivet_model::image::{IMAGE_BYTES_MAX, ImageFormat};
use trivet_model::{Digest, OciReference, Resource};

/// The most sources of one image. Ours.
pub const SOURCES_MAX: usize = 8;

/// A requested image. Two specs with the same digest are the same image, whatever their names
/// and sources.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageSpec {
    /// Name for display.
    pub name: String,
    /// The expected digest.
    pub digest: Digest,
    /// URLs, in order of preference.
    pub sources: Vec<String>,
    /// The format of its bytes. Readers of a packed image get the unpacked disk.
    pub format: ImageFormat,
}

impl ImageSpec {
    /// An image of the catalogue; `None` as long as its digest is unknown.
    pub fn of_record(record: &Resource) -> Option<Self> {
        Some(Self {
            name: record.name.clone()?,
            digest: digest_of(record)?,
            sources: sources_of(record).map(str::to_owned).collect(),
            format: record
                .text("format")
                .and_then(ImageFormat::parse)
                .unwrap_or_default(),
        })
    }

    /// Its key in the cache.
    pub fn key(&self) -> ImageKey {
        ImageKey(self.digest)
    }
}

/// The digest of an image of the catalogue, if it is known.
pub fn digest_of(record: &Resource) -> Option<Digest> {
    record.text("checksum")?.parse().ok()
}

/// The sources of an image of the catalogue.
pub fn sources_of(record: &Resource) -> impl Iterator<Item = &str> {
    let sources = record.fields.get("sources").and_then(Value::as_array);
    let sources = sources.into_iter().flatten().filter_map(Value::as_str);
    sources.take(SOURCES_MAX)
}

/// The key of an image in the cache: its algorithm and digest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ImageKey(pub Digest);

impl fmt::Display for ImageKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.0.algorithm(), self.0)
    }
}

impl ImageKey {
    /// The name of the files of a download whose digest is not known yet: the digest of its URL.
    pub fn of_url(url: &str) -> Self {
        let mut digest = IncrementalDigest::new(DigestAlgorithm::Sha256);
        digest.update(url.as_bytes());
        Self(digest.finish())
    }

    /// Parses the text form of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<Self> {
        let (algorithm, digest) = text.split_once('-')?;
        let digest: Digest = digest.parse().ok()?;
        let key = Self(digest);
        (digest.algorithm() == algorithm && key.to_string() == text).then_some(key)
    }
}

/// The URL of the bytes of an image at one of its sources: a source in a registry is requested by
/// the digest, whatever its tag means by now.
pub(crate) fn request_url(source: &str, digest: Digest) -> String {
    let reference = source.parse::<OciReference>();
    reference.map_or_else(
        |_| source.to_owned(),
        |reference| reference.with_digest(digest).to_string(),
    )
}

/// The last part of a URL's path, for display.
pub fn file_name(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_parses_and_nothing_else_does() {
        for digest in [Digest::Sha256([0xab; 32]), Digest::Sha512([1; 64])] {
            let key = ImageKey(digest);
            assert_eq!(ImageKey::parse(&key.to_string()), Some(key));
        }
        let hex = "ab".repeat(32);
        for text in [
            String::new(),
            hex.clone(),
            format!("sha512-{hex}"),
            format!("sha256-{}", hex.to_uppercase()),
            format!("sha256-{hex}.part"),
        ] {
            assert_eq!(ImageKey::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_layer_is_requested_by_its_digest() {
        let digest = Digest::Sha256([0xab; 32]);
        let layer = format!("oci://h:5000/a/b@sha256:{}", "ab".repeat(32));
        assert_eq!(request_url("oci://h:5000/a/b:12", digest), layer);
        assert_eq!(request_url("http://h/a", digest), "http://h/a");
    }

    #[test]
    fn the_name_is_the_last_part_of_the_path() {
        assert_eq!(file_name("http://h/a/b.raw?x=/y#z"), "b.raw");
        assert_eq!(file_name("b.raw"), "b.raw");
        assert_eq!(file_name("http://h/"), "");
    }

    #[test]
    fn a_record_is_an_image_once_its_digest_is_known() {
        let id = trivet_model::ResourceId::random(&mut trivet_model::SeededRandom::new(1));
        let kind = trivet_model::ResourceKind::Image;
        let mut record = Resource::new(id, kind, trivet_model::UnixMs(0));
        record.name = Some("a".into());
        let mut set = |field: &str, value: Value| {
            record.fields.insert(field.to_owned(), value);
            ImageSpec::of_record(&record)
        };
        assert_eq!(set("checksum", "http://h/SHA256SUMS".into()), None);
        let sum = "ab".repeat(32);
        let wanted = set("checksum", sum.into()).unwrap();
        assert_eq!((wanted.format, wanted.sources.len()), (ImageFormat::Raw, 0));
        set("format", "qcow2".into());
        let many: Vec<String> = (0..20).map(|n| format!("http://h/{n}")).collect();
        let wanted = set("sources", many.into()).unwrap();
        assert_eq!(wanted.format, ImageFormat::Qcow2);
        assert_eq!(wanted.sources.len(), SOURCES_MAX);
    }

    #[test]
    fn the_name_of_an_image_does_not_matter() {
        let one = ImageSpec {
            name: "a".into(),
            digest: Digest::Sha256([1; 32]),
            sources: vec!["http://h/a".into()],
            format: ImageFormat::Raw,
        };
        let two = ImageSpec {
            name: "b".into(),
            sources: Vec::new(),
            ..one.clone()
        };
        assert_eq!(one.key(), two.key());
    }
}
