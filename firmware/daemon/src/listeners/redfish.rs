//! Requests to Redfish BMCs: one HTTP exchange each, plain or over TLS with the trust
//! policy of the node's record. Nothing is retried here, and no redirect is followed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::Semaphore;
use trivet_model::UndeliveredReason;
use trivet_model::secret::SecretText;
use trivet_net_http::{HttpClient, HttpError, HttpServer, HttpTimeouts};
use trivet_net_tls::{PeerFingerprint, TrustPolicy, verifying_client_config};
use trivet_rack::bmc::http::{
    BmcHttpError, BmcHttpOrigin, BmcHttpRequest, BmcHttpResponse, BmcHttpTarget, BmcHttpTrust,
    HTTP_BODY_BYTES_MAX, HTTP_REQUEST_TIMEOUT_MS,
};

use super::bmc::reason_of;

/// The most requests at once, to all BMCs together.
const REQUESTS_MAX: usize = 64;

/// How long connecting to a BMC may take, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest file of CA certificates that is read.
const CA_BYTES_MAX: u64 = 1024 * 1024;

const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");

/// Sends requests to BMCs.
#[derive(Clone)]
pub(crate) struct RedfishHttpClient {
    /// The site's CA certificates, as PEM texts.
    site_authorities: Arc<[String]>,
    permits: Arc<Semaphore>,
    client: HttpClient,
}

impl RedfishHttpClient {
    /// With the CA certificates in this file, if one is named.
    pub(crate) fn new(ca: Option<&Path>) -> anyhow::Result<Self> {
        let mut site = Vec::new();
        if let Some(path) = ca {
            let text = read(path).map_err(anyhow::Error::msg);
            site.push(text.context("hardware.redfish_ca")?);
            verifying_client_config(&TrustPolicy::Authorities(&site))
                .context("hardware.redfish_ca: it contains no CA certificate")?;
        }
        Ok(Self {
            site_authorities: site.into(),
            permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
            client: HttpClient::new(HttpTimeouts {
                connect: CONNECT_TIMEOUT,
                total: Duration::from_millis(HTTP_REQUEST_TIMEOUT_MS),
            }),
        })
    }

    /// Sends one request; returns the response, or why there is none.
    pub(crate) async fn send(
        &self,
        target: &BmcHttpTarget,
        request: &BmcHttpRequest,
    ) -> Result<BmcHttpResponse, BmcHttpError> {
        let Ok(_place) = self.permits.acquire().await else {
            return Err(unreachable(None, "the box is stopping"));
        };
        let address = &target.address;
        let (host, port) = (&address.host, address.port);
        let message =
            message(address, request).map_err(|error| unreachable(None, &error.to_string()))?;
        let (server, fingerprint) = if address.secure {
            let (config, fingerprint) = self.tls_config(target)?;
            let server = HttpServer::secure(host, port, Arc::new(config));
            (server, fingerprint)
        } else {
            (HttpServer::plain(host, port), PeerFingerprint::default())
        };
        let response = self
            .client
            .exchange(&server, message, HTTP_BODY_BYTES_MAX)
            .await;
        let response = response.map_err(|error| failure(target, error, fingerprint.hex()))?;
        let (head, body) = response.into_parts();
        let text = |name| text(&head.headers, name);
        Ok(BmcHttpResponse {
            status: head.status.as_u16(),
            token: text(TOKEN).map(SecretText::new),
            location: text(header::LOCATION),
            etag: text(header::ETAG),
            retry_after_s: text(header::RETRY_AFTER).and_then(|text| text.trim().parse().ok()),
            body: body.to_vec(),
        })
    }

    /// The trust policy of the node's record.
    fn tls_config(
        &self,
        target: &BmcHttpTarget,
    ) -> Result<(rustls::ClientConfig, PeerFingerprint), BmcHttpError> {
        let text;
        let trusted = match &target.trust {
            BmcHttpTrust::Site => TrustPolicy::Authorities(&self.site_authorities),
            BmcHttpTrust::Authority(pem) => {
                text = [pem.clone()];
                TrustPolicy::Authorities(&text)
            }
            BmcHttpTrust::File(path) => {
                text = [read(Path::new(path)).map_err(|message| untrusted(None, message))?];
                TrustPolicy::Authorities(&text)
            }
            BmcHttpTrust::Pin(bytes) => TrustPolicy::Fingerprint(*bytes),
            BmcHttpTrust::Any => TrustPolicy::AnyCertificate,
        };
        verifying_client_config(&trusted).map_err(|error| untrusted(None, error.to_string()))
    }
}

/// Why there is no response, in the words of the state machine.
fn failure(target: &BmcHttpTarget, error: HttpError, fingerprint: Option<String>) -> BmcHttpError {
    match error.tls_error() {
        Some(rustls::Error::InvalidCertificate(why)) => {
            return untrusted(fingerprint, certificate_problem(&target.trust, why));
        }
        Some(other) => return untrusted(None, other.to_string()),
        None => {}
    }
    match error {
        HttpError::TooLong { .. } => BmcHttpError::TooLong,
        HttpError::ResponseTimedOut => BmcHttpError::Silent,
        HttpError::Disconnected(_) => lost(&error.cause()),
        HttpError::InvalidName => unreachable(None, "its address is not a valid host name"),
        HttpError::Connect(ref cause) => unreachable(reason_of(cause), &error.cause()),
        other => unreachable(None, &other.cause()),
    }
}

fn untrusted(fingerprint: Option<String>, message: String) -> BmcHttpError {
    BmcHttpError::Untrusted {
        fingerprint,
        message,
    }
}

fn unreachable(reason: Option<UndeliveredReason>, message: &str) -> BmcHttpError {
    BmcHttpError::Unreachable {
        reason,
        message: message.to_owned(),
    }
}

fn lost(message: &str) -> BmcHttpError {
    BmcHttpError::Lost {
        message: message.to_owned(),
    }
}

/// Explains to the operator what is wrong with a certificate.
fn certificate_problem(trust: &BmcHttpTrust, why: &rustls::CertificateError) -> String {
    match (trust, why) {
        (BmcHttpTrust::Pin(_), _) => "its fingerprint is not the one in redfish_pin".to_owned(),
        (BmcHttpTrust::Site, rustls::CertificateError::UnknownIssuer) => {
            "no CA of this site signed it".to_owned()
        }
        (_, rustls::CertificateError::UnknownIssuer) => {
            "the CA in redfish_verify_ca did not sign it".to_owned()
        }
        (_, why) => why.to_string(),
    }
}

/// Reads a file of CA certificates that the operator named.
fn read(path: &Path) -> Result<String, String> {
    let cannot = |why: String| format!("{} cannot be used: {why}", path.display());
    let length = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
    if length.len() > CA_BYTES_MAX {
        return Err(cannot(format!("it is longer than {CA_BYTES_MAX} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| cannot(error.to_string()))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn message(
    address: &BmcHttpOrigin,
    request: &BmcHttpRequest,
) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
    let mut message = hyper::Request::builder()
        .method(request.method.as_str())
        .uri(request.path.as_str())
        .header(header::HOST, address.authority())
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close")
        .header(ODATA_VERSION, "4.0");
    if request.body.is_some() {
        message = message.header(header::CONTENT_TYPE, "application/json");
    }
    if let Some(etag) = &request.if_match {
        message = message.header(header::IF_MATCH, etag);
    }
    if let Some(credentials) = &request.credentials {
        let (name, value) = credentials.header();
        let mut value = HeaderValue::from_str(value.reveal())?;
        value.set_sensitive(true);
        message = message.header(name, value);
    }
    let body = request.body.as_ref().map(SecretText::reveal);
    message.body(Full::new(Bytes::from(body.unwrap_or_default().to_owned())))
}

#[cfg(test)]
mod tests;
