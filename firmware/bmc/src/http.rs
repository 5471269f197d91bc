//! HTTP requests to BMCs and their responses, as values. Their secrets are not printed by `Debug`.

mod origin;

pub use origin::{BmcHttpOrigin, BmcHttpTarget, BmcHttpTrust, CERTIFICATE_PIN_BYTES};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trivet_model::UndeliveredReason;
use trivet_model::secret::SecretText;

/// Longest response body in bytes. Ours: the largest of real BMCs have some 200 KiB.
pub const HTTP_BODY_BYTES_MAX: usize = 512 * 1024;

/// Timeout of one response in milliseconds. Ours: slow BMCs need some ten seconds.
pub const HTTP_REQUEST_TIMEOUT_MS: u64 = 20_000;

/// Longest token or pair of user and password that is read from a header, in bytes. Ours.
const CREDENTIALS_BYTES_MAX: usize = 4096;

/// The HTTP method of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcHttpMethod {
    /// Read a resource.
    Get,
    /// Run an action or create a resource.
    Post,
    /// Change a resource.
    Patch,
    /// Remove a resource.
    Delete,
}

impl BmcHttpMethod {
    /// The method as it is sent.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// The credentials of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BmcHttpCredentials {
    /// The token of a session.
    Token(SecretText),
    /// User and password, as `user:password`.
    Basic(SecretText),
}

impl BmcHttpCredentials {
    /// The name and the value of the HTTP header.
    pub fn header(&self) -> (&'static str, SecretText) {
        match self {
            Self::Token(token) => ("x-auth-token", token.clone()),
            Self::Basic(pair) => {
                let text = STANDARD.encode(pair.reveal());
                ("authorization", SecretText::new(format!("Basic {text}")))
            }
        }
    }

    /// The credentials in a header of a request, if it is one of these two headers.
    pub fn of_header(name: &str, value: &str) -> Option<Self> {
        if value.len() > CREDENTIALS_BYTES_MAX {
            return None;
        }
        if name.eq_ignore_ascii_case("x-auth-token") {
            return Some(Self::Token(SecretText::new(value)));
        }
        if !name.eq_ignore_ascii_case("authorization") {
            return None;
        }
        let bytes = STANDARD.decode(value.strip_prefix("Basic ")?).ok()?;
        Some(Self::Basic(SecretText::new(String::from_utf8(bytes).ok()?)))
    }
}

/// A request to a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BmcHttpRequest {
    /// The HTTP method.
    pub method: BmcHttpMethod,
    /// A path on the BMC's own origin, with its query.
    pub path: String,
    /// Credentials; `None` for a request without login.
    pub credentials: Option<BmcHttpCredentials>,
    /// The ETag for `If-Match`: the change is made only if the resource still has it.
    pub if_match: Option<String>,
    /// JSON. The body of a login contains a password.
    pub body: Option<SecretText>,
}

/// A response from a BMC.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BmcHttpResponse {
    /// HTTP status.
    pub status: u16,
    /// `X-Auth-Token`.
    pub token: Option<SecretText>,
    /// `Location`.
    pub location: Option<String>,
    /// `ETag`.
    pub etag: Option<String>,
    /// `Retry-After`, where it is a number.
    pub retry_after_s: Option<u64>,
    /// The body, at most [`HTTP_BODY_BYTES_MAX`].
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BmcHttpError {
    /// No connection: the BMC did not receive the request.
    Unreachable {
        /// What the network reports, if it does.
        reason: Option<UndeliveredReason>,
        /// The error of the connection.
        message: String,
    },
    /// The certificate is not trusted: nothing was sent to the BMC.
    Untrusted {
        /// SHA-256 of the BMC's certificate, as hexadecimal digits.
        fingerprint: Option<String>,
        /// Why it is not trusted.
        message: String,
    },
    /// The connection was accepted, and no response came within [`HTTP_REQUEST_TIMEOUT_MS`]: the
    /// BMC may have received the request. Another attempt would take as long, so there is none.
    Silent,
    /// The connection was closed: the BMC may have received the request.
    Lost {
        /// The error of the connection.
        message: String,
    },
    /// The response is longer than [`HTTP_BODY_BYTES_MAX`]. The BMC received the request.
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_into_a_header_and_come_back() {
        for credentials in [
            BmcHttpCredentials::Token(SecretText::new("t0ken")),
            BmcHttpCredentials::Basic(SecretText::new("root:pass:word")),
        ] {
            let (name, value) = credentials.header();
            let back = BmcHttpCredentials::of_header(name, value.reveal());
            assert_eq!(back, Some(credentials));
        }
        // RFC 7617, section 2.
        let basic = BmcHttpCredentials::Basic(SecretText::new("Aladdin:open sesame"));
        let (_, value) = basic.header();
        assert_eq!(value.reveal(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn other_headers_and_broken_ones_are_no_credentials() {
        for (name, value) in [
            ("cookie", "x"),
            ("authorization", "Bearer x"),
            ("authorization", "Basic ???"),
            ("authorization", "Basic /w=="),
        ] {
            assert_eq!(
                BmcHttpCredentials::of_header(name, value),
                None,
                "{name} {value}"
            );
        }
        let long = "x".repeat(CREDENTIALS_BYTES_MAX + 1);
        assert_eq!(BmcHttpCredentials::of_header("X-Auth-Token", &long), None);
    }

    #[test]
    fn secrets_do_not_print() {
        let request = BmcHttpRequest {
            method: BmcHttpMethod::Post,
            path: "/redfish/v1/SessionService/Sessions".to_owned(),
            credentials: Some(BmcHttpCredentials::Basic(SecretText::new("root:hunter2"))),
            if_match: None,
            body: Some(SecretText::new("{\"Password\": \"hunter2\"}")),
        };
        let answer = BmcHttpResponse {
            token: Some(SecretText::new("hunter2")),
            ..BmcHttpResponse::default()
        };
        let printed = format!("{request:?} {answer:?}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
