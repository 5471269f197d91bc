//! One exchange with the box over HTTP or HTTPS.

mod tls;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use trivet_model::bmc_request::BMC_REQUEST_MS_MAX;

use crate::connection::CliConnection;
use crate::exit::Exit;
use crate::fault::CliFault;
use crate::request::{CliRequest, CliResponse};

/// Longest response that is accepted. A page has a thousand nodes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long one exchange may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Timeout where the box must send a BMC request: longer than the box itself waits.
const BMC_REQUEST_TIMEOUT: Duration = Duration::from_millis(BMC_REQUEST_MS_MAX + 120_000);

/// Sends requests to one box.
pub(crate) struct CliClient {
    connection: CliConnection,
    tls: Option<TlsConnector>,
}

impl CliClient {
    pub(crate) fn new(connection: CliConnection) -> Result<Self, CliFault> {
        let tls = if connection.endpoint.secure {
            Some(tls::connector(&connection.trust)?)
        } else {
            None
        };
        Ok(Self { connection, tls })
    }

    /// Sends an image's bytes; the caller sets the timeout.
    pub(crate) async fn upload<B>(
        &self,
        request: &CliRequest,
        fields: &[(&str, String)],
        body: B,
    ) -> Result<CliResponse, CliFault>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let mut message = self.head(request);
        for (name, value) in fields {
            message = message.header(*name, value);
        }
        let message = message.body(body);
        self.connect_and_send(message.map_err(|error| invalid_request(&error))?)
            .await
    }

    /// Status and body, or why there are none.
    pub(crate) async fn exchange(&self, request: &CliRequest) -> Result<CliResponse, CliFault> {
        let message = self.message(request)?;
        let wait = if request.is_slow {
            BMC_REQUEST_TIMEOUT
        } else {
            EXCHANGE_TIMEOUT
        };
        match tokio::time::timeout(wait, self.connect_and_send(message)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.unreachable("no answer in time", "")),
        }
    }

    async fn connect_and_send<B>(&self, message: hyper::Request<B>) -> Result<CliResponse, CliFault>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let place = &self.connection.endpoint;
        let stream = TcpStream::connect((place.host.as_str(), place.port))
            .await
            .map_err(|error| self.unreachable(&error.to_string(), REACH_HINT))?;
        let Some(tls) = &self.tls else {
            return self.send_over(TokioIo::new(stream), message).await;
        };
        let name = tls::name(&place.host)?;
        let stream = tls
            .connect(name, stream)
            .await
            .map_err(|error| self.unreachable(&error.to_string(), TRUST_HINT))?;
        self.send_over(TokioIo::new(stream), message).await
    }

    async fn send_over<S, B>(
        &self,
        stream: S,
        message: hyper::Request<B>,
    ) -> Result<CliResponse, CliFault>
    where
        S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let broken = |error: hyper::Error| self.unreachable(&error.to_string(), PROTOCOL_HINT);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
            .await
            .map_err(broken)?;
        let connection = tokio::spawn(connection);
        let outcome = match sender.send_request(message).await {
            Ok(answer) => self.answer(answer).await,
            Err(error) => Err(broken(error)),
        };
        connection.abort();
        outcome
    }

    fn head(&self, request: &CliRequest) -> hyper::http::request::Builder {
        let place = &self.connection.endpoint;
        let version = format!("1.{}", request.version);
        let mut message = hyper::Request::builder()
            .method(request.method)
            .uri(format!("{}{}", place.prefix, request.path))
            .header("host", &place.authority)
            .header("accept", "application/json")
            .header("user-agent", concat!("trivet/", env!("CARGO_PKG_VERSION")))
            .header("x-openstack-ironic-api-version", version);
        if let Some(login) = &self.connection.login {
            message = message.header("authorization", login);
        }
        message
    }

    fn message(&self, request: &CliRequest) -> Result<hyper::Request<Full<Bytes>>, CliFault> {
        let mut message = self.head(request);
        let body = match &request.body {
            Some(body) => {
                message = message.header("content-type", "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        message
            .body(Full::new(body))
            .map_err(|error| invalid_request(&error))
    }

    async fn answer(&self, answer: hyper::Response<Incoming>) -> Result<CliResponse, CliFault> {
        let status = answer.status().as_u16();
        let version_max = answer
            .headers()
            .get("x-openstack-ironic-api-maximum-version")
            .and_then(|value| value.to_str().ok()?.strip_prefix("1.")?.parse().ok());
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| self.unreachable(&error.to_string(), PROTOCOL_HINT))?
            .to_bytes();
        let body = match serde_json::from_slice(&body) {
            Ok(value) => value,
            // Error responses may come from a proxy that does not send JSON.
            Err(_) if body.is_empty() || status >= 300 => Value::Null,
            Err(error) => {
                let why = format!("its answer is not JSON: {error}");
                return Err(self.unreachable(&why, PROTOCOL_HINT));
            }
        };
        Ok(CliResponse {
            status,
            body,
            version_max,
        })
    }

    fn unreachable(&self, why: &str, hint: &str) -> CliFault {
        let url = &self.connection.endpoint.url;
        let sentence = format!("cannot reach the box at {url}: {why}.{hint}");
        CliFault::new(Exit::Unreachable, sentence)
    }
}

fn invalid_request(error: &hyper::http::Error) -> CliFault {
    CliFault::usage(format!("the request is invalid: {error}"))
}

const REACH_HINT: &str = " Is it running? --url or TRIVET_URL name another address.";
const TRUST_HINT: &str = " For the box's own CA give --ca FILE.";
const PROTOCOL_HINT: &str =
    " Is there a Trivet or Ironic API at this address, and http or https right?";
