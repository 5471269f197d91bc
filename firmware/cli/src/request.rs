//! Requests to the box and its responses, as values.

use serde_json::Value;
use trivet_net::percent::encode;

/// The newest microversion that these commands need: `abort` while deploying.
pub(crate) const VERSION: u16 = 110;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CliRequest {
    pub(crate) method: &'static str,
    /// Path and query, encoded.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// Its microversion, `1.N`.
    pub(crate) version: u16,
    /// Whether the box must send a BMC request, which may take minutes.
    pub(crate) is_slow: bool,
    /// Path for a box that does not have `path` and answers 404.
    pub(crate) fallback: Option<String>,
}

impl CliRequest {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: None,
            version: VERSION,
            is_slow: false,
            fallback: None,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn slow(mut self) -> Self {
        self.is_slow = true;
        self
    }

    /// The same at another path if the box does not have the first one.
    pub(crate) fn or_at(mut self, path: String) -> Self {
        self.fallback = Some(path);
        self
    }

    pub(crate) fn with(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CliResponse {
    pub(crate) status: u16,
    /// Null when there is none.
    pub(crate) body: Value,
    /// The newest microversion of the box, if it reports one.
    pub(crate) version_max: Option<u16>,
}

/// `/v1/nodes/<ident>` and its sub-resources.
pub(crate) fn node_path(ident: &str, below: &str) -> String {
    format!("/v1/nodes/{}{below}", encode(ident))
}

/// `/trivet/nodes/<ident>`: a node with Trivet's own fields.
pub(crate) fn own_node_path(ident: &str) -> String {
    format!("/trivet/nodes/{}", encode(ident))
}

/// Path and query of a link in a response. The host of the link is ignored: all
/// requests go to the configured box.
pub(crate) fn link_path(link: &str) -> Option<String> {
    let rest = match link.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map(|(_, path)| format!("/{path}"))?,
        None => link.to_owned(),
    };
    let fine = rest.starts_with("/v1/") && rest.bytes().all(|byte| byte.is_ascii_graphic());
    fine.then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_path() {
        assert_eq!(
            node_path("a/../b?x=1#y", "/states"),
            "/v1/nodes/a%2F..%2Fb%3Fx%3D1%23y/states"
        );
        assert_eq!(node_path("ns~name", ""), "/v1/nodes/ns~name");
    }

    #[test]
    fn links_are_followed_on_the_same_box_only() {
        let here = Some("/v1/nodes?marker=x".to_owned());
        assert_eq!(link_path("http://evil:1/v1/nodes?marker=x"), here);
        assert_eq!(link_path("/v1/nodes?marker=x"), here);
        assert_eq!(link_path("http://box"), None);
        assert_eq!(link_path("http://box/other"), None);
        assert_eq!(link_path("/v1/a b\r\nx: y"), None);
    }
}
