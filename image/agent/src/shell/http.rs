//! Requests to the appliance and to servers of files.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, RANGE, USER_AGENT};
use hyper::{Request, Response, Uri};
use rustls::ClientConfig;
use trivet_agent_wire::VERSION_HEADER;
use trivet_net_http::{HttpBody, HttpClient, HttpServer, HttpTimeouts};

use super::NO_ANSWER;
use crate::AGENT_VERSION;

/// For a request to the appliance. The stock agent's `http_request_timeout`.
const CALL_TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(30),
    total: Duration::from_secs(30),
};

/// Until the response of a file server starts.
const FILE_TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_mins(1),
    total: Duration::from_mins(1),
};

/// A longer response of the appliance counts as none. Ours.
pub(super) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Who sends requests: the address that they come from, because the appliance identifies the
/// node by it, and whom they trust.
#[derive(Clone, Debug)]
pub struct AgentHttpClient {
    /// The address of this machine; any, if it is unspecified.
    pub own: IpAddr,
    /// For https; without it such a URL is an error.
    pub trust: Option<Arc<ClientConfig>>,
}

impl AgentHttpClient {
    /// Sends a request to the appliance. No response, a late one and one that is too long are
    /// all [`NO_ANSWER`]: the state machine retries in each case.
    pub(super) async fn call(
        &self,
        target: (&str, &str),
        version: Option<&str>,
        body: Vec<u8>,
    ) -> (u16, Vec<u8>) {
        let answered = self.exchange(target, version, body).await;
        answered.map_or((NO_ANSWER, Vec::new()), |response| {
            (response.status().as_u16(), response.into_body().to_vec())
        })
    }

    /// Sends a request to the appliance and returns the whole response. An error is a sentence.
    pub async fn exchange(
        &self,
        target: (&str, &str),
        version: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Response<Bytes>, String> {
        let name = HeaderName::from_static(VERSION_HEADER);
        let version = version.map(|version| (name, version.to_owned()));
        let (server, request) = self.request(target, version, body)?;
        let client = HttpClient::new(CALL_TIMEOUTS).from_address(self.own);
        let response = client.exchange(&server, request, ANSWER_BYTES_MAX).await;
        response.map_err(|error| format!("{} {error}", target.1))
    }

    /// Requests a file, or a byte range of it. An error is a sentence.
    pub(super) async fn get(
        &self,
        url: &str,
        bytes: Option<Range<u64>>,
    ) -> Result<Response<HttpBody>, String> {
        let range = bytes.map(|bytes| {
            let last = bytes.end.saturating_sub(1);
            (RANGE, format!("bytes={}-{last}", bytes.start))
        });
        self.send(("GET", url), range).await
    }

    /// The size of a file, if the server reports it.
    pub(super) async fn size(&self, url: &str) -> Option<u64> {
        let response = self.send(("HEAD", url), None).await.ok()?;
        let size = response.headers().get(CONTENT_LENGTH)?;
        size.to_str().ok()?.parse().ok()
    }

    /// Sends a request and waits for the head of the response.
    async fn send(
        &self,
        target: (&str, &str),
        header: Option<(HeaderName, String)>,
    ) -> Result<Response<HttpBody>, String> {
        let (server, request) = self.request(target, header, Vec::new())?;
        let client = HttpClient::new(FILE_TIMEOUTS).from_address(self.own);
        let response = client.send(&server, request).await;
        response.map_err(|error| format!("{} {error}", target.1))
    }

    fn request(
        &self,
        (method, url): (&str, &str),
        header: Option<(HeaderName, String)>,
        body: Vec<u8>,
    ) -> Result<(HttpServer, Request<Full<Bytes>>), String> {
        let bad = || {
            let url: String = url.chars().take(200).collect();
            format!("{url} is not a URL of the form http://host[:port]/path")
        };
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let host = uri.host().ok_or_else(bad)?;
        let (server, port) = match uri.scheme_str() {
            Some("http") => {
                let port = uri.port_u16().unwrap_or(80);
                (HttpServer::plain(host, port), port)
            }
            Some("https") => {
                let trust = self.trust.as_ref();
                let trust = trust.ok_or("there are no certificates of authorities for https")?;
                let port = uri.port_u16().unwrap_or(443);
                (HttpServer::secure(host, port, Arc::clone(trust)), port)
            }
            _ => return Err(bad()),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, format!("{host}:{port}"))
            .header(USER_AGENT, AGENT_VERSION)
            .header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        Ok((server, request.map_err(|_| bad())?))
    }
}
