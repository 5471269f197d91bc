//! Requests of machines and of clients to the box.

use trivet_agent_wire::LOOKUP_VERSION;
use trivet_model::NodeCertificate;

use super::HTTP_TIMEOUT_MS;

/// An HTTP request.
#[derive(Debug)]
pub(crate) struct SimHttpRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) version: Option<String>,
    pub(crate) body: Vec<u8>,
    /// The certificate of the connection.
    pub(crate) certificate: Option<NodeCertificate>,
    /// Timeout of the client.
    pub(crate) timeout_ms: u64,
}

impl SimHttpRequest {
    /// A GET request.
    pub(crate) fn get(path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Self {
            method: "GET",
            path: path.to_owned(),
            query: query.to_owned(),
            version: Some(LOOKUP_VERSION.to_owned()),
            body: Vec::new(),
            certificate: None,
            timeout_ms: HTTP_TIMEOUT_MS,
        }
    }
}
