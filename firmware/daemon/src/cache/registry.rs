//! Registries of images: lookups of references, and requests for layers.
//!
//! The crate `trivet-oci` decides what is requested and what a challenge means. Here are the
//! connections, the logins of the settings, and the tokens of repositories, which are kept in
//! memory for the requests for layers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Response;
use hyper::header::{HeaderMap, WWW_AUTHENTICATE};
use tokio::time::{sleep, timeout};
use trivet_config::RegistrySettings;
use trivet_images::ImageSourceRequest;
use trivet_model::OciReference;
use trivet_model::oci::oci_digest;
use trivet_model::secret::SecretText;
use trivet_net_http::HttpBody;
use trivet_oci::{
    ChallengeAction, OciError, OciImage, OciLookup, OciLookupStep, OciQuery, OciRequest,
    OciResponse, RegistryAuthorization, RegistryCredentials, TOKEN_BODY_BYTES_MAX,
};

use super::origin::{Origin, OriginHeaders};

/// How often a lookup is tried, and the delay between two attempts.
const TRIES_MAX: u32 = 4;
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// How long the body of a manifest or of a token may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The most repositories whose tokens are kept. Ours.
const REPOSITORIES_MAX: usize = 256;

/// Registry and repository.
type RepositoryName = (String, String);

/// What is known about registries; clones share it.
#[derive(Clone, Default)]
pub(super) struct Registries(Arc<RegistriesInner>);

#[derive(Default)]
struct RegistriesInner {
    settings: Vec<RegistrySettings>,
    authorizations: Mutex<BTreeMap<RepositoryName, RegistryAuthorization>>,
}

fn name_of(reference: &OciReference) -> RepositoryName {
    let (registry, repository) = (reference.registry(), reference.repository());
    (registry.to_owned(), repository.to_owned())
}

impl Registries {
    pub(super) fn new(settings: &[RegistrySettings]) -> Self {
        Self(Arc::new(RegistriesInner {
            settings: settings.to_vec(),
            authorizations: Mutex::default(),
        }))
    }

    /// Layers of this repository are fetched with these credentials from now on.
    pub(super) fn use_credentials(
        &self,
        reference: &OciReference,
        credentials: RegistryCredentials,
    ) {
        let known = self.known(reference);
        if known.is_some_and(|known| known.credentials() == Some(&credentials)) {
            return;
        }
        let is_plain = self.is_plain(reference);
        let authorization = RegistryAuthorization::new(reference, Some(credentials), is_plain);
        self.keep(reference, authorization);
    }

    fn authorizations(&self) -> MutexGuard<'_, BTreeMap<RepositoryName, RegistryAuthorization>> {
        let all = self.0.authorizations.lock();
        all.unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, reference: &OciReference) -> Option<RegistryAuthorization> {
        self.authorizations().get(&name_of(reference)).cloned()
    }

    fn keep(&self, reference: &OciReference, authorization: RegistryAuthorization) {
        let mut all = self.authorizations();
        let name = name_of(reference);
        if all.len() >= REPOSITORIES_MAX && !all.contains_key(&name) {
            // Its next request logs in again.
            all.pop_first();
        }
        all.insert(name, authorization);
    }

    fn settings_of(&self, reference: &OciReference) -> Option<&RegistrySettings> {
        let mut all = self.0.settings.iter();
        all.find(|settings| settings.host == reference.registry())
    }

    /// Without a section in the settings, only registries of this machine are reached without TLS.
    fn is_plain(&self, reference: &OciReference) -> bool {
        let settings = self.settings_of(reference);
        settings.map_or_else(|| reference.is_loopback(), |settings| settings.is_plain)
    }

    fn base_url(&self, reference: &OciReference) -> String {
        let scheme = if self.is_plain(reference) {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{}", reference.registry())
    }

    /// An authorization with these credentials, or with those of the settings.
    async fn authorization(
        &self,
        reference: &OciReference,
        credentials: Option<RegistryCredentials>,
    ) -> Result<RegistryAuthorization, OciError> {
        let login = self.settings_of(reference);
        let login = login.and_then(|settings| settings.login.as_ref());
        let credentials = match (credentials, login) {
            (Some(credentials), _) => Some(credentials),
            (None, None) => None,
            (None, Some((user, path))) => {
                let text = tokio::fs::read_to_string(path).await;
                let text = text.map_err(|error| OciError::PasswordFile {
                    registry: reference.registry().to_owned(),
                    why: format!("{}: {error}", path.display()),
                })?;
                Some(RegistryCredentials {
                    user: user.clone(),
                    password: SecretText::new(text.lines().next().unwrap_or_default()),
                })
            }
        };
        let is_plain = self.is_plain(reference);
        Ok(RegistryAuthorization::new(reference, credentials, is_plain))
    }
}

impl Origin {
    /// Finds the disk image of a reference.
    pub(super) async fn resolve(&self, query: &OciQuery) -> Result<OciImage, OciError> {
        let mut tries = 1;
        loop {
            match self.lookup(query).await {
                Err(error) if !error.is_final() && tries < TRIES_MAX => {
                    sleep(RETRY_WAIT * tries).await;
                }
                result => return result,
            }
            tries += 1;
        }
    }

    async fn lookup(&self, query: &OciQuery) -> Result<OciImage, OciError> {
        let reference = &query.reference;
        let credentials = query.credentials.clone();
        let mut authorization = self
            .registries
            .authorization(reference, credentials)
            .await?;
        let mut lookup = OciLookup::new(query.clone());
        loop {
            let request = match lookup.next_step() {
                OciLookupStep::Request(request) => request,
                OciLookupStep::Done(image) => {
                    self.registries.keep(reference, authorization);
                    return Ok(*image);
                }
            };
            let response = self
                .registry_request(reference, &mut authorization, &request)
                .await?;
            let status = response.status().as_u16();
            let header = response.headers().get("docker-content-digest");
            let digest = header.and_then(|value| value.to_str().ok());
            let digest = digest.map(str::to_owned);
            let is_prefix = request.range_bytes.is_some();
            // Of an error only the status counts.
            let body = if status < 300 {
                read_body(response.into_body(), request.bytes_max, is_prefix)
                    .await
                    .map_err(|why| unreachable_registry(reference, why))?
            } else {
                Vec::new()
            };
            lookup.handle(OciResponse {
                status,
                digest: digest.as_deref(),
                body: &body,
            })?;
        }
    }

    async fn registry_request(
        &self,
        reference: &OciReference,
        authorization: &mut RegistryAuthorization,
        request: &OciRequest,
    ) -> Result<Response<HttpBody>, OciError> {
        let sent_request = ImageSourceRequest {
            url: format!("{}{}", self.registries.base_url(reference), request.path),
            from: 0,
            to: request.range_bytes.map(|bytes| bytes as u64),
            if_range: None,
            if_changed: None,
        };
        self.authorized(reference, authorization, &sent_request, request.accept)
            .await
    }

    /// Requests a layer; the digest of the reference is that of the layer. An error is the end of
    /// a sentence that begins with the source.
    pub(super) async fn request_layer(
        &self,
        reference: &OciReference,
        request: &ImageSourceRequest,
    ) -> Result<Response<HttpBody>, String> {
        let digest = reference.digest().ok_or("has no digest")?;
        let (base, repository) = (self.registries.base_url(reference), reference.repository());
        let request = ImageSourceRequest {
            url: format!("{base}/v2/{repository}/blobs/{}", oci_digest(&digest)),
            ..request.clone()
        };
        let result = async {
            let mut authorization = match self.registries.known(reference) {
                Some(known) => known,
                None => self.registries.authorization(reference, None).await?,
            };
            let response = self
                .authorized(reference, &mut authorization, &request, None)
                .await?;
            self.registries.keep(reference, authorization);
            Ok(response)
        };
        let result: Result<_, OciError> = result.await;
        result.map_err(|error| format!("does not serve it: {error}"))
    }

    /// Sends a request; a challenge is answered once.
    async fn authorized(
        &self,
        reference: &OciReference,
        authorization: &mut RegistryAuthorization,
        request: &ImageSourceRequest,
        accept: Option<&'static str>,
    ) -> Result<Response<HttpBody>, OciError> {
        let mut is_challenged = false;
        loop {
            let headers = OriginHeaders {
                accept,
                authorization: authorization.header(),
            };
            let followed = self.follow_redirects(&request.url, request, headers).await;
            let followed = followed.map_err(|why| unreachable_registry(reference, why))?;
            let response = followed.response;
            let status = response.status().as_u16();
            // Another server, to which the registry redirects, has no say about its login.
            if !followed.is_first_server || !matches!(status, 401 | 403) {
                return Ok(response);
            }
            if is_challenged || status == 403 {
                return Err(authorization.refused(status));
            }
            is_challenged = true;
            let challenges = challenges(response.headers());
            match authorization.handle_challenge(&challenges)? {
                ChallengeAction::Retry => {}
                ChallengeAction::FetchToken {
                    url,
                    authorization: login,
                } => {
                    let (status, body) = self
                        .fetch_token(url, login.as_ref())
                        .await
                        .map_err(|why| authorization.token_server(why))?;
                    authorization.handle_token(status, &body)?;
                }
            }
        }
    }

    async fn fetch_token(
        &self,
        url: String,
        login: Option<&SecretText>,
    ) -> Result<(u16, Vec<u8>), String> {
        let request = ImageSourceRequest {
            url,
            from: 0,
            to: None,
            if_range: None,
            if_changed: None,
        };
        let headers = OriginHeaders {
            accept: Some("application/json"),
            authorization: login,
        };
        let followed = self
            .follow_redirects(&request.url, &request, headers)
            .await?;
        let status = followed.response.status().as_u16();
        let body = read_body(followed.response.into_body(), TOKEN_BODY_BYTES_MAX, false).await?;
        Ok((status, body))
    }
}

fn challenges(headers: &HeaderMap) -> Vec<&str> {
    let all = headers.get_all(WWW_AUTHENTICATE).iter();
    all.filter_map(|value| value.to_str().ok()).collect()
}

fn unreachable_registry(reference: &OciReference, why: String) -> OciError {
    OciError::Unreachable {
        registry: reference.registry().to_owned(),
        why,
    }
}

/// The body, or its first `bytes_max` bytes.
async fn read_body(body: HttpBody, bytes_max: usize, is_prefix: bool) -> Result<Vec<u8>, String> {
    let read = async {
        if !is_prefix {
            let bytes = body.collect(bytes_max).await;
            return bytes
                .map(Vec::from)
                .map_err(|error| format!("was interrupted: {error}"));
        }
        let mut body = body;
        let mut bytes = Vec::new();
        while bytes.len() < bytes_max
            && let Some(piece) = body.next().await
        {
            let piece = piece.map_err(|error| format!("was interrupted: {error}"))?;
            bytes.extend_from_slice(&piece);
        }
        bytes.truncate(bytes_max);
        Ok(bytes)
    };
    let read = timeout(BODY_TIMEOUT, read).await;
    read.unwrap_or_else(|_| Err("stopped sending".to_owned()))
}

#[cfg(test)]
mod tests;
