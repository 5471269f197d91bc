//! A simulated registry: a source whose URL is a reference has the layer of that reference.

use trivet_model::image::ImageFormat;
use trivet_model::oci::oci_digest;
use trivet_model::{Digest, OciReference, Tick};
use trivet_oci::{OciError, OciImage, OciQuery, RegistryCredentials};

use super::{SimImageShell, SimImageSource, sim_sha256};
use crate::{ImageWorkReport, OciResolution};

/// The repository of a reference, without tag and digest.
fn repository_url(reference: &OciReference) -> String {
    format!("{}/{}", reference.registry(), reference.repository())
}

/// The digest of the simulated manifest with this layer.
pub fn sim_manifest(layer: &[u8]) -> Digest {
    let text = format!("manifest with {}", sim_sha256(layer));
    sim_sha256(text.as_bytes())
}

impl SimImageShell {
    /// The source of a URL. A layer is at the source with the same repository, which may have
    /// other bytes by now; without the secret of the repository there is no response.
    pub(super) fn source(&self, url: &str) -> Option<&SimImageSource> {
        let Ok(reference) = url.parse::<OciReference>() else {
            return self.sources.get(url);
        };
        let repository = repository_url(&reference);
        let source = self.repository_source(&repository)?;
        let credentials = self.pull_secrets.get(&repository);
        permits(source, credentials).then_some(source)
    }

    fn repository_source(&self, repository: &str) -> Option<&SimImageSource> {
        let of_repository = |url: &str| {
            let reference = url.parse::<OciReference>();
            reference.is_ok_and(|reference| repository_url(&reference) == repository)
        };
        let mut all = self.sources.iter();
        all.find(|(url, _)| of_repository(url))
            .map(|(_, source)| source)
    }

    pub(super) fn use_pull_secret(
        &mut self,
        reference: &OciReference,
        credentials: RegistryCredentials,
    ) {
        let repository = repository_url(reference);
        self.pull_secrets.insert(repository, credentials);
    }

    pub(super) fn resolve_oci(&mut self, now: Tick, query: OciQuery) {
        let result = self.resolved(&query);
        if let (Ok(_), Some(credentials)) = (&result, &query.credentials) {
            self.use_pull_secret(&query.reference, credentials.clone());
        }
        let found = Box::new(OciResolution { query, result });
        self.report(now, ImageWorkReport::OciResolved(found));
    }

    fn resolved(&self, query: &OciQuery) -> Result<OciImage, OciError> {
        let reference = &query.reference;
        let repository = repository_url(reference);
        let source = self.repository_source(&repository);
        let Some(source) = source.filter(|source| !source.is_gone) else {
            return Err(OciError::Unreachable {
                registry: reference.registry().to_owned(),
                why: "does not answer".to_owned(),
            });
        };
        if !permits(source, query.credentials.as_ref()) {
            return Err(OciError::NoCredentials {
                registry: reference.registry().to_owned(),
                repository: reference.repository().to_owned(),
            });
        }
        let manifest = sim_manifest(&source.content);
        if let Some(expected) = reference.digest().filter(|digest| *digest != manifest) {
            return Err(OciError::ManifestDigest {
                registry: reference.registry().to_owned(),
                repository: reference.repository().to_owned(),
                object: reference.object(),
                expected: oci_digest(&expected),
                found: oci_digest(&manifest),
            });
        }
        let is_packed = source.content.starts_with(b"packed:");
        let format = if is_packed {
            ImageFormat::Gzip
        } else {
            ImageFormat::Raw
        };
        Ok(OciImage {
            manifest,
            layer: sim_sha256(&source.content),
            size: source.content.len() as u64 * super::SIM_SCALE,
            format: query.format.unwrap_or(format),
            media_type: "application/octet-stream".to_owned(),
            title: None,
        })
    }
}

fn permits(source: &SimImageSource, credentials: Option<&RegistryCredentials>) -> bool {
    let shown = credentials.map(|one| one.password.reveal());
    source.pull_secret.is_none() || source.pull_secret.as_deref() == shown
}
