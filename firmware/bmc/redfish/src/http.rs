//! Requests and answers as values. What may be secret in them does not print.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trivet_model::secret::SecretText;

/// Longest token or user with password that is read from a header. Ours.
const CREDENTIALS_BYTES_MAX: usize = 4096;

/// What is done with a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RedfishMethod {
    /// Read it.
    Get,
    /// Do or make something.
    Post,
    /// Change it.
    Patch,
    /// Remove it.
    Delete,
}

impl RedfishMethod {
    /// As it goes over the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// How a request proves who asks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedfishCredentials {
    /// With the token of a session.
    Token(SecretText),
    /// With user and password, as `user:password`.
    Basic(SecretText),
}

impl RedfishCredentials {
    /// The header that carries it.
    pub fn header(&self) -> (&'static str, SecretText) {
        match self {
            Self::Token(token) => ("x-auth-token", token.clone()),
            Self::Basic(pair) => {
                let text = STANDARD.encode(pair.reveal());
                ("authorization", SecretText::new(format!("Basic {text}")))
            }
        }
    }

    /// From a header of a request, if it is one of these.
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

/// Something to ask of a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RedfishRequest {
    /// What to do.
    pub method: RedfishMethod,
    /// With what: a path on the BMC's own origin, with its query.
    pub path: String,
    /// Who asks.
    pub credentials: Option<RedfishCredentials>,
    /// Only if the resource is still the one with this mark.
    pub if_match: Option<String>,
    /// JSON. A login has a password in it.
    pub body: Option<SecretText>,
}

/// What came back.
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

/// Why no answer came back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedfishTransportError {
    /// No connection: the BMC has heard nothing.
    Unreachable {
        /// What the connection said.
        said: String,
    },
    /// Its certificate is not trusted: the BMC has been told nothing.
    Untrusted {
        /// SHA-256 of the certificate it showed, as hexadecimal digits.
        fingerprint: Option<String>,
        /// What was wrong with it.
        said: String,
    },
    /// The connection broke or fell silent: the BMC may have heard the request.
    Lost {
        /// What the connection said.
        said: String,
    },
    /// The answer is longer than anybody reads. The BMC has heard the request.
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
