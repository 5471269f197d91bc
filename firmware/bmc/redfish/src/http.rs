//! HTTP requests and responses as values. Their secrets are not printed by `Debug`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trivet_model::secret::SecretText;

/// Longest token or pair of user and password that is read from a header, in bytes. Ours.
const CREDENTIALS_BYTES_MAX: usize = 4096;

/// The HTTP method of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RedfishMethod {
    /// Read a resource.
    Get,
    /// Run an action or create a resource.
    Post,
    /// Change a resource.
    Patch,
    /// Remove a resource.
    Delete,
}

impl RedfishMethod {
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
pub enum RedfishCredentials {
    /// The token of a session.
    Token(SecretText),
    /// User and password, as `user:password`.
    Basic(SecretText),
}

impl RedfishCredentials {
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
pub struct RedfishRequest {
    /// The HTTP method.
    pub method: RedfishMethod,
    /// A path on the BMC's own origin, with its query.
    pub path: String,
    /// Credentials; `None` for a request without login.
    pub credentials: Option<RedfishCredentials>,
    /// The ETag for `If-Match`: the change is made only if the resource still has it.
    pub if_match: Option<String>,
    /// JSON. The body of a login contains a password.
    pub body: Option<SecretText>,
}

/// A response from a BMC.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RedfishResponse {
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
    /// The body, at most [`crate::BODY_BYTES_MAX`].
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedfishTransportError {
    /// No connection: the BMC did not receive the request.
    Unreachable {
        /// The error of the connection.
        said: String,
    },
    /// The certificate is not trusted: nothing was sent to the BMC.
    Untrusted {
        /// SHA-256 of the BMC's certificate, as hexadecimal digits.
        fingerprint: Option<String>,
        /// Why it is not trusted.
        said: String,
    },
    /// The connection was closed or timed out: the BMC may have received the request.
    Lost {
        /// The error of the connection.
        said: String,
    },
    /// The response is longer than [`crate::BODY_BYTES_MAX`]. The BMC received the request.
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_into_a_header_and_come_back() {
        for credentials in [
            RedfishCredentials::Token(SecretText::new("t0ken")),
            RedfishCredentials::Basic(SecretText::new("root:pass:word")),
        ] {
            let (name, value) = credentials.header();
            let back = RedfishCredentials::of_header(name, value.reveal());
            assert_eq!(back, Some(credentials));
        }
        // RFC 7617, section 2.
        let basic = RedfishCredentials::Basic(SecretText::new("Aladdin:open sesame"));
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
                RedfishCredentials::of_header(name, value),
                None,
                "{name} {value}"
            );
        }
        let long = "x".repeat(CREDENTIALS_BYTES_MAX + 1);
        assert_eq!(RedfishCredentials::of_header("X-Auth-Token", &long), None);
    }

    #[test]
    fn secrets_do_not_print() {
        let request = RedfishRequest {
            method: RedfishMethod::Post,
            path: "/redfish/v1/SessionService/Sessions".to_owned(),
            credentials: Some(RedfishCredentials::Basic(SecretText::new("root:hunter2"))),
            if_match: None,
            body: Some(SecretText::new("{\"Password\": \"hunter2\"}")),
        };
        let answer = RedfishResponse {
            token: Some(SecretText::new("hunter2")),
            ..RedfishResponse::default()
        };
        let printed = format!("{request:?} {answer:?}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
