//! Protects against requests that a web page makes a browser send: cross-site request
//! forgery and DNS rebinding.
//!
//! A browser sends the page's origin in `Origin` (RFC 6454), and the host name it
//! resolved in `Host`. A page of another site is refused by the first. An attacker's
//! name that resolves to this box is refused by the second: without authentication only
//! addresses and names of this box are accepted. A body that is declared as JSON makes
//! a browser send a preflight request (fetch standard), which this box never allows.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HOST, ORIGIN};

/// The names that a `Host` header may have.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostNames(Vec<String>);

/// Why a request is refused.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct BrowserRefusal {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl HostNames {
    /// These names, in addition to `localhost` and all IP addresses.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names = names.into_iter().filter(|name| !name.is_empty());
        Self(names.map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Refuses requests from a page of another site, or under another host name.
    /// `open`: the API has no authentication, so the host name is checked.
    pub(crate) fn check(&self, headers: &HeaderMap, open: bool) -> Result<(), BrowserRefusal> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let host = text(&HOST);
        if let Some(origin) = text(&ORIGIN)
            && !is_same_site(origin, host.unwrap_or_default())
        {
            let sentence = format!(
                "A web page of another site ({}) made this request; it is refused.",
                origin.escape_debug()
            );
            return Err(BrowserRefusal {
                status: 403,
                message: sentence,
            });
        }
        match host {
            Some(host) if open && !self.is_known(host) => Err(BrowserRefusal {
                status: 403,
                message: format!(
                    "This box is not known as {}. Use its address, or set box.name or \
                     api.host_names in its settings to that name.",
                    host.escape_debug()
                ),
            }),
            _ => Ok(()),
        }
    }

    fn is_known(&self, host: &str) -> bool {
        let name = name_of(host).trim_end_matches('.').to_ascii_lowercase();
        let local = name == "localhost" || name.ends_with(".localhost");
        local || is_address(&name) || self.0.contains(&name)
    }
}

/// A write with a body must declare it as JSON.
pub(crate) fn check_json(headers: &HeaderMap, body: &[u8]) -> Result<(), BrowserRefusal> {
    let declared = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    if body.is_empty() || declared.is_some_and(is_json) {
        return Ok(());
    }
    let shown = declared.map_or_else(
        || "none".to_owned(),
        |declared| declared.escape_debug().to_string(),
    );
    Err(BrowserRefusal {
        status: 415,
        message: format!(
            "The body's Content-Type must be application/json, but it is {shown}. With curl, add \
             -H 'Content-Type: application/json'."
        ),
    })
}

/// `application/json`, or another type in JSON's syntax (RFC 6839), with or without
/// parameters.
fn is_json(declared: &str) -> bool {
    let kind = declared.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// The host of `HOST:PORT`.
fn name_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
}

/// Whether a page of this origin has the same host and port as the request.
fn is_same_site(origin: &str, host: &str) -> bool {
    let authority = ["http://", "https://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn headers(of: &[(hyper::header::HeaderName, &'static str)]) -> HeaderMap {
        let pairs = of.iter();
        pairs
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    fn status(host: &'static str, origin: Option<&'static str>, open: bool) -> u16 {
        let names = HostNames::new(["Box.Example".to_owned(), String::new()]);
        let mut all = vec![(HOST, host)];
        all.extend(origin.map(|origin| (ORIGIN, origin)));
        let checked = names.check(&headers(&all), open);
        checked.map_or_else(|refused| refused.status, |()| 200)
    }

    #[test]
    fn an_open_api_answers_under_its_own_names_and_addresses_only() {
        for host in [
            "localhost:6385",
            "127.0.0.1:6385",
            "[::1]:6385",
            "10.0.0.1",
            "box.example",
            "BOX.EXAMPLE.:6385",
        ] {
            assert_eq!(status(host, None, true), 200, "{host}");
        }
        for host in ["attacker.example:6385", "box.example.attacker.example", ""] {
            assert_eq!(status(host, None, true), 403, "{host}");
            // An authenticated client may use any name.
            assert_eq!(status(host, None, false), 200, "{host}");
        }
        assert_eq!(HostNames::default().check(&HeaderMap::new(), true), Ok(()));
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let host = "127.0.0.1:6385";
        assert_eq!(status(host, Some("http://127.0.0.1:6385"), true), 200);
        for origin in [
            "http://attacker.example",
            "http://127.0.0.1",
            "http://127.0.0.1:8443",
            "null",
            "file://",
            "",
        ] {
            for open in [true, false] {
                assert_eq!(status(host, Some(origin), open), 403, "{origin}");
            }
        }
    }

    #[test]
    fn a_body_is_declared_as_json() {
        let declared = |kind| check_json(&headers(&[(CONTENT_TYPE, kind)]), b"{}");
        for kind in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json-patch+json",
        ] {
            assert_eq!(declared(kind), Ok(()), "{kind}");
        }
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=application/json",
            "",
        ] {
            assert_eq!(declared(kind).unwrap_err().status, 415, "{kind}");
        }
        let nothing = HeaderMap::new();
        assert_eq!(check_json(&nothing, b"{}").unwrap_err().status, 415);
        assert_eq!(check_json(&nothing, b""), Ok(()));
    }
}
