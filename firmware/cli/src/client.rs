//! One exchange with the box over HTTP or HTTPS.

mod tls;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use serde_json::Value;
use trivet_model::bmc_request::BMC_REQUEST_MS_MAX;
use trivet_net_http::{HttpBody, HttpClient, HttpError, HttpServer, HttpTimeouts};

use crate::connection::CliConnection;
use crate::events::EventTooLong;
use crate::exit::Exit;
use crate::fault::CliFault;
use crate::request::{CliRequest, CliResponse};

/// Longest response that is accepted. A page has a thousand nodes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long one exchange may take, and connecting for any request.
const EXCHANGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Timeout where the box must send a BMC request: longer than the box itself waits.
const BMC_REQUEST_TIMEOUT: Duration = Duration::from_millis(BMC_REQUEST_MS_MAX + 120_000);

/// How long the upload of an image may take. It shows its progress, and can be stopped.
const UPLOAD_TIMEOUT: Duration = Duration::from_hours(7 * 24);

/// Sends requests to one box.
pub(crate) struct CliClient {
    connection: CliConnection,
    server: HttpServer,
}

impl CliClient {
    pub(crate) fn new(connection: CliConnection) -> Result<Self, CliFault> {
        let endpoint = &connection.endpoint;
        let (host, port) = (&endpoint.host, endpoint.port);
        let server = if endpoint.secure {
            HttpServer::secure(host, port, tls::config(&connection.trust)?)
        } else {
            HttpServer::plain(host, port)
        };
        Ok(Self { connection, server })
    }

    /// Sends an image's bytes.
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
        let message = message.map_err(|error| invalid_request(&error))?;
        self.send(message, UPLOAD_TIMEOUT).await
    }

    /// Status and body, or why there are none.
    pub(crate) async fn exchange(&self, request: &CliRequest) -> Result<CliResponse, CliFault> {
        let message = self.message(request)?;
        let wait = if request.is_slow {
            BMC_REQUEST_TIMEOUT
        } else {
            EXCHANGE_TIMEOUT
        };
        self.send(message, wait).await
    }

    async fn send<B>(
        &self,
        message: hyper::Request<B>,
        total: Duration,
    ) -> Result<CliResponse, CliFault>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let client = HttpClient::new(HttpTimeouts {
            connect: EXCHANGE_TIMEOUT,
            total,
        });
        match client
            .exchange(&self.server, message, ANSWER_BYTES_MAX)
            .await
        {
            Ok(answer) => self.answer(answer),
            Err(error) => Err(self.no_response(&error)),
        }
    }

    /// The body of a response without end. `subject` names the object of the request.
    pub(crate) async fn stream(
        &self,
        request: &CliRequest,
        subject: &str,
    ) -> Result<HttpBody, CliFault> {
        let client = HttpClient::new(HttpTimeouts {
            connect: EXCHANGE_TIMEOUT,
            total: EXCHANGE_TIMEOUT,
        });
        let message = self.message(request)?;
        let response = client.send(&self.server, message).await;
        let (head, body) = response
            .map_err(|error| self.no_response(&error))?
            .into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let body = body.collect(ANSWER_BYTES_MAX).await;
        let body = body.map_err(|error| self.no_response(&error))?;
        let answer = self.answer(hyper::Response::from_parts(head, body))?;
        Err(CliFault::of(&answer, subject))
    }

    /// The fault for a request without a response.
    pub(crate) fn no_response(&self, error: &HttpError) -> CliFault {
        let hint = match error {
            HttpError::Connect(_) => REACH_HINT,
            HttpError::Tls(_) => TRUST_HINT,
            HttpError::InvalidName => " Is its host name right?",
            HttpError::ConnectTimedOut | HttpError::ResponseTimedOut => "",
            _ => PROTOCOL_HINT,
        };
        self.unreachable(&error.cause(), hint)
    }

    /// The fault for a stream that is not one of events.
    pub(crate) fn not_events(&self, _: EventTooLong) -> CliFault {
        self.unreachable("its answer is not a stream of events", PROTOCOL_HINT)
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

    fn answer(&self, answer: hyper::Response<Bytes>) -> Result<CliResponse, CliFault> {
        let status = answer.status().as_u16();
        let version_max = answer
            .headers()
            .get("x-openstack-ironic-api-maximum-version")
            .and_then(|value| value.to_str().ok()?.strip_prefix("1.")?.parse().ok());
        let body = answer.into_body();
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
