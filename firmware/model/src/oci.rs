//! References to images in OCI registries, as Ironic writes them:
//! `oci://registry[:port]/repository[:tag][@digest]`.
//!
//! The grammar of repository, tag and digest is that of the OCI distribution specification.
//! Without tag and digest the tag is `latest`. With both, the digest decides.

use core::fmt;
use core::str::FromStr;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::Digest;

/// The scheme of a reference.
pub const OCI_SCHEME: &str = "oci://";

/// The tag of a reference that has neither tag nor digest. Ironic's.
pub const DEFAULT_TAG: &str = "latest";

/// Longest registry and repository. The distribution specification asks clients to keep both
/// together below 255.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest tag, of the distribution specification.
pub const TAG_BYTES_MAX: usize = 128;

/// A reference to an image in a registry.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct OciReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Why a text is not a reference: the end of a sentence that begins with the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OciReferenceError {
    /// The scheme is another one.
    #[error("does not begin with oci://")]
    Scheme,
    /// There is a user in the URL.
    #[error(
        "has a user in it; give user and password as image_pull_secret in instance_info, or in \
         [[registry]] of the settings"
    )]
    User,
    /// The registry is not a host with an optional port.
    #[error("has no valid registry: write oci://HOST[:PORT]/REPOSITORY")]
    Registry,
    /// The repository is missing or has invalid characters.
    #[error(
        "has no valid repository: write small letters, digits, dots, dashes and underscores, in \
         parts divided by /"
    )]
    Repository,
    /// The tag is too long or has invalid characters.
    #[error("has an invalid tag: it must be at most 128 letters, digits, dots, dashes and _")]
    Tag,
    /// The digest is neither SHA-256 nor SHA-512.
    #[error("has an invalid digest: write @sha256: and 64 digits, or @sha512: and 128 digits")]
    Digest,
}

impl OciReference {
    /// Whether a text claims to be a reference.
    pub fn is_oci(text: &str) -> bool {
        let scheme = text.get(..OCI_SCHEME.len());
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(OCI_SCHEME))
    }

    /// `host` or `host:port`, in small letters.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The name of the repository.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if it is written.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if it is written.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// What is requested from a registry: the digest, otherwise the tag.
    pub fn object(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => oci_digest(digest),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }

    /// The object with this digest in the same repository.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
            tag: None,
            digest: Some(digest),
        }
    }

    /// The host without its port; an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        host_of(&self.registry)
    }

    /// Whether the registry is on this machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback_host(self.host())
    }
}

/// The host of `host[:port]`; an IPv6 address without brackets.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    authority.split(':').next().unwrap_or_default()
}

/// Whether a host name or address means this machine without a lookup of the name.
pub fn is_loopback_host(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

/// `sha256:...` or `sha512:...`.
pub fn oci_digest(digest: &Digest) -> String {
    format!("{}:{digest}", digest.algorithm())
}

/// Parses `sha256:...` or `sha512:...`; the digits must be small letters.
pub fn parse_oci_digest(text: &str) -> Option<Digest> {
    let (algorithm, digits) = text.split_once(':')?;
    let digest: Digest = digits.parse().ok()?;
    let is_lower = !digits.bytes().any(|byte| byte.is_ascii_uppercase());
    (is_lower && digest.algorithm() == algorithm).then_some(digest)
}

impl From<OciReference> for String {
    fn from(reference: OciReference) -> Self {
        reference.to_string()
    }
}

impl TryFrom<String> for OciReference {
    type Error = OciReferenceError;

    fn try_from(text: String) -> Result<Self, OciReferenceError> {
        text.parse()
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{OCI_SCHEME}{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(out, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(out, "@{}", oci_digest(digest))?;
        }
        Ok(())
    }
}

impl FromStr for OciReference {
    type Err = OciReferenceError;

    fn from_str(text: &str) -> Result<Self, OciReferenceError> {
        if !Self::is_oci(text) {
            return Err(OciReferenceError::Scheme);
        }
        let rest = &text[OCI_SCHEME.len()..];
        let (registry, path) = rest.split_once('/').unwrap_or((rest, ""));
        if registry.contains('@') {
            return Err(OciReferenceError::User);
        }
        let registry = registry.to_ascii_lowercase();
        if !is_registry(&registry) {
            return Err(OciReferenceError::Registry);
        }
        let (name, digest) = match path.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (path, None),
        };
        let digest = digest.map(|text| parse_oci_digest(text).ok_or(OciReferenceError::Digest));
        let digest = digest.transpose()?;
        let (repository, tag) = match name.split_once(':') {
            // Examples in Ironic's manual have an empty tag before a digest.
            Some((repository, "")) if digest.is_some() => (repository, None),
            Some((repository, tag)) => (repository, Some(tag)),
            None => (name, None),
        };
        if !is_repository(repository) || registry.len() + repository.len() > NAME_BYTES_MAX {
            return Err(OciReferenceError::Repository);
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(OciReferenceError::Tag);
        }
        Ok(Self {
            registry,
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

/// Whether the text is `host` or `host:port`, in small letters.
pub fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => (
                "",
                port.strip_prefix(':').or(port.is_empty().then_some("0")),
            ),
            _ => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("0")),
        },
    };
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    let is_name = |host: &str| {
        let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        is_edge(host.bytes().next()) && is_edge(host.bytes().last()) && host.bytes().all(plain)
    };
    let is_port = |port: &str| {
        port == "0" && !text.ends_with(":0") || port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    (text.starts_with('[') || is_name(host)) && port.is_some_and(is_port)
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*` in each part; runs of separators are accepted.
fn is_repository(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        part.bytes().next().is_some_and(is_word)
            && part.bytes().last().is_some_and(is_word)
            && part
                .bytes()
                .all(|byte| is_word(byte) || b"._-".contains(&byte))
            && !part.contains("..")
    };
    text.split('/').all(is_part)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG_BYTES_MAX
        && text.bytes().next().is_some_and(is_word)
        && text
            .bytes()
            .all(|byte| is_word(byte) || b".-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<OciReference, OciReferenceError> {
        text.parse()
    }

    #[test]
    fn a_reference_is_shown_as_it_was_written() {
        let sum = "0f".repeat(32);
        for text in [
            "oci://h/a".to_owned(),
            "oci://h.example:5000/a/b-c/d_e:v1.2-3".to_owned(),
            format!("oci://[::1]:5000/a@sha256:{sum}"),
            format!("oci://127.0.0.1/a:b@sha512:{sum}{sum}"),
        ] {
            assert_eq!(parse(&text).unwrap().to_string(), text);
        }
        let upper = parse("OCI://Host.Example/a").unwrap();
        assert_eq!(upper.registry(), "host.example");
    }

    #[test]
    fn the_object_is_the_digest_then_the_tag_then_latest() {
        let sum = "ab".repeat(32);
        for (text, object) in [
            ("oci://h/a".to_owned(), "latest".to_owned()),
            ("oci://h/a:12".to_owned(), "12".to_owned()),
            (
                format!("oci://h/a:12@sha256:{sum}"),
                format!("sha256:{sum}"),
            ),
            (format!("oci://h/a:@sha256:{sum}"), format!("sha256:{sum}")),
        ] {
            assert_eq!(parse(&text).unwrap().object(), object, "{text}");
        }
    }

    #[test]
    fn another_object_of_the_repository_has_no_tag() {
        let digest = Digest::Sha256([0xab; 32]);
        let other = parse("oci://h:1/a/b:12").unwrap().with_digest(digest);
        assert_eq!(
            other.to_string(),
            format!("oci://h:1/a/b@sha256:{}", "ab".repeat(32))
        );
        assert_eq!((other.tag(), other.digest()), (None, Some(digest)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let sum = "0f".repeat(32);
        for (text, error) in [
            ("http://h/a".to_owned(), OciReferenceError::Scheme),
            ("oc".to_owned(), OciReferenceError::Scheme),
            ("oci://ann:pw@h/a".to_owned(), OciReferenceError::User),
            ("oci:///a".to_owned(), OciReferenceError::Registry),
            ("oci://h:0/a".to_owned(), OciReferenceError::Registry),
            ("oci://h:99999/a".to_owned(), OciReferenceError::Registry),
            ("oci://h_/a".to_owned(), OciReferenceError::Registry),
            ("oci://[::g]/a".to_owned(), OciReferenceError::Registry),
            ("oci://[::1]x/a".to_owned(), OciReferenceError::Registry),
            ("oci://h".to_owned(), OciReferenceError::Repository),
            ("oci://h/".to_owned(), OciReferenceError::Repository),
            ("oci://h/A".to_owned(), OciReferenceError::Repository),
            ("oci://h/a//b".to_owned(), OciReferenceError::Repository),
            ("oci://h/../b".to_owned(), OciReferenceError::Repository),
            ("oci://h/a?x=1".to_owned(), OciReferenceError::Repository),
            (
                format!("oci://h/{}", "a".repeat(300)),
                OciReferenceError::Repository,
            ),
            ("oci://h/a:".to_owned(), OciReferenceError::Tag),
            ("oci://h/a:b/c".to_owned(), OciReferenceError::Tag),
            (
                format!("oci://h/a:{}", "b".repeat(129)),
                OciReferenceError::Tag,
            ),
            ("oci://h/a@sha256:00".to_owned(), OciReferenceError::Digest),
            (format!("oci://h/a@sha512:{sum}"), OciReferenceError::Digest),
            (
                format!("oci://h/a@sha256:{}", sum.to_uppercase()),
                OciReferenceError::Digest,
            ),
        ] {
            assert_eq!(parse(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn loopback_is_known_without_a_lookup() {
        for (text, is_loopback) in [
            ("oci://127.3.0.1:5000/a", true),
            ("oci://localhost/a", true),
            ("oci://[::1]/a", true),
            ("oci://localhost.example/a", false),
            ("oci://192.0.2.1/a", false),
        ] {
            assert_eq!(parse(text).unwrap().is_loopback(), is_loopback, "{text}");
        }
    }
}
