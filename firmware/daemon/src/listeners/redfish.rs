//! Requests to Redfish BMCs: one HTTP exchange each, plain or over TLS with the trust
//! policy of the node's record. Nothing is retried here, and no redirect is followed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trivet_certs_authority::{TrustPolicy, verifying_client_config};
use trivet_model::secret::SecretText;
use trivet_rack::bmc_redfish::{
    BODY_BYTES_MAX, REQUEST_TIMEOUT_MS, RedfishOrigin, RedfishRequest, RedfishResponse,
    RedfishTarget, RedfishTransportError, RedfishTrust,
};

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
    /// How long a response may take once there is a connection.
    response_timeout: Duration,
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
            response_timeout: Duration::from_millis(REQUEST_TIMEOUT_MS)
                .saturating_sub(CONNECT_TIMEOUT),
        })
    }

    /// Sends one request; returns the response, or why there is none.
    pub(crate) async fn send(
        &self,
        target: &RedfishTarget,
        request: &RedfishRequest,
    ) -> Result<RedfishResponse, RedfishTransportError> {
        let Ok(_place) = self.permits.acquire().await else {
            return Err(unreachable("the box is stopping"));
        };
        let address = &target.address;
        let connecting = async {
            let stream = connect(address).await?;
            if address.secure {
                self.tls_handshake(target, stream)
                    .await
                    .map(RedfishHttpStream::Tls)
            } else {
                Ok(RedfishHttpStream::Plain(stream))
            }
        };
        let slow = || unreachable("no connection in time");
        let stream = timeout(CONNECT_TIMEOUT, connecting).await;
        let stream = stream.map_err(|_| slow())??;
        let talking = async {
            match stream {
                RedfishHttpStream::Plain(stream) => {
                    send_request(TokioIo::new(stream), address, request).await
                }
                RedfishHttpStream::Tls(stream) => {
                    send_request(TokioIo::new(*stream), address, request).await
                }
            }
        };
        let silent = || lost("no answer in time");
        timeout(self.response_timeout, talking)
            .await
            .map_err(|_| silent())?
    }

    async fn tls_handshake(
        &self,
        target: &RedfishTarget,
        stream: TcpStream,
    ) -> Result<Box<TlsStream<TcpStream>>, RedfishTransportError> {
        let untrusted =
            |fingerprint, said: String| RedfishTransportError::Untrusted { fingerprint, said };
        let text;
        let believed = match &target.trust {
            RedfishTrust::Site => TrustPolicy::Authorities(&self.site_authorities),
            RedfishTrust::Authority(pem) => {
                text = [pem.clone()];
                TrustPolicy::Authorities(&text)
            }
            RedfishTrust::File(path) => {
                text = [read(Path::new(path)).map_err(|said| untrusted(None, said))?];
                TrustPolicy::Authorities(&text)
            }
            RedfishTrust::Pin(bytes) => TrustPolicy::Fingerprint(*bytes),
            RedfishTrust::Any => TrustPolicy::AnyCertificate,
        };
        let config = verifying_client_config(&believed);
        let (config, shown) = config.map_err(|error| untrusted(None, error.to_string()))?;
        let name = ServerName::try_from(target.address.host.clone());
        let name = name.map_err(|_| unreachable("its address is not a valid host name"))?;
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        match connecting.await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
                let Some(tls) = inner.cloned() else {
                    return Err(unreachable(&error.to_string()));
                };
                let said = match &tls {
                    rustls::Error::InvalidCertificate(why) => {
                        certificate_problem(&target.trust, why)
                    }
                    other => return Err(untrusted(None, other.to_string())),
                };
                Err(untrusted(shown.hex(), said))
            }
        }
    }
}

enum RedfishHttpStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

fn unreachable(said: &str) -> RedfishTransportError {
    RedfishTransportError::Unreachable {
        said: said.to_owned(),
    }
}

fn lost(said: &str) -> RedfishTransportError {
    RedfishTransportError::Lost {
        said: said.to_owned(),
    }
}

/// Explains to the operator what is wrong with a certificate.
fn certificate_problem(trust: &RedfishTrust, why: &rustls::CertificateError) -> String {
    match (trust, why) {
        (RedfishTrust::Pin(_), _) => "its fingerprint is not the one in redfish_pin".to_owned(),
        (RedfishTrust::Site, rustls::CertificateError::UnknownIssuer) => {
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

async fn connect(address: &RedfishOrigin) -> Result<TcpStream, RedfishTransportError> {
    let place = (address.host.as_str(), address.port);
    let stream = TcpStream::connect(place).await;
    stream.map_err(|error| unreachable(&error.to_string()))
}

async fn send_request<S>(
    stream: S,
    address: &RedfishOrigin,
    request: &RedfishRequest,
) -> Result<RedfishResponse, RedfishTransportError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let message = message(address, request).map_err(|error| unreachable(&error.to_string()))?;
    let handshake = hyper::client::conn::http1::handshake(stream).await;
    let (mut sender, connection) = handshake.map_err(|error| unreachable(&error.to_string()))?;
    let connection = tokio::spawn(connection);
    let outcome = async {
        let answer = sender.send_request(message).await;
        let answer = answer.map_err(|error| lost(&error.to_string()))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                RedfishTransportError::TooLong
            } else {
                lost(&error.to_string())
            }
        })?;
        let text = |name| text(&head.headers, name);
        Ok(RedfishResponse {
            status: head.status.as_u16(),
            token: text(TOKEN).map(SecretText::new),
            location: text(header::LOCATION),
            etag: text(header::ETAG),
            retry_after_s: text(header::RETRY_AFTER).and_then(|text| text.trim().parse().ok()),
            body: body.to_bytes().to_vec(),
        })
    }
    .await;
    connection.abort();
    outcome
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn message(
    address: &RedfishOrigin,
    request: &RedfishRequest,
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
