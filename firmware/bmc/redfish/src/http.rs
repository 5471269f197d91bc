//! Requests and answers as values. What may be secret in them does not print.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trivet_model::secret::Hidden;

/// Longest token or user with password that is read from a header. Ours.
const CREDENTIALS_BYTES_MAX: usize = 4096;

/// What is done with a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Read it.
    Get,
    /// Do or make something.
    Post,
    /// Change it.
    Patch,
    /// Remove it.
    Delete,
}

impl Method {
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
pub enum Credentials {
    /// With the token of a session.
    Token(Hidden),
    /// With user and password, as `user:password`.
    Basic(Hidden),
}

impl Credentials {
    /// The header that carries it.
    pub fn header(&self) -> (&'static str, Hidden) {
        match self {
            Self::Token(token) => ("x-auth-token", token.clone()),
            Self::Basic(pair) => {
                let text = STANDARD.encode(pair.reveal());
                ("authorization", Hidden::new(format!("Basic {text}")))
            }
        }
    }

    /// From a header of a request, if it is one of these.
    pub fn of_header(name: &str, value: &str) -> Option<Self> {
        if value.len() > CREDENTIALS_BYTES_MAX {
            return None;
        }
        if name.eq_ignore_ascii_case("x-auth-token") {
            return Some(Self::Token(Hidden::new(value)));
        }
        if !name.eq_ignore_ascii_case("authorization") {
            return None;
        }
        let bytes = STANDARD.decode(value.strip_prefix("Basic ")?).ok()?;
        Some(Self::Basic(Hidden::new(String::from_utf8(bytes).ok()?)))
    }
}

/// Something to ask of a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// What to do.
    pub method: Method,
    /// With what: a path on the BMC's own origin, with its query.
    pub path: String,
    /// Who asks.
    pub credentials: Option<Credentials>,
    /// Only if the resource is still the one with this mark.
    pub if_match: Option<String>,
    /// JSON. A login has a password in it.
    pub body: Option<Hidden>,
}

/// What came back.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `X-Auth-Token`.
    pub token: Option<Hidden>,
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
pub enum Trouble {
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
            Credentials::Token(Hidden::new("t0ken")),
            Credentials::Basic(Hidden::new("root:pass:word")),
        ] {
            let (name, value) = credentials.header();
            let back = Credentials::of_header(name, value.reveal());
            assert_eq!(back, Some(credentials));
        }
        // RFC 7617, section 2.
        let basic = Credentials::Basic(Hidden::new("Aladdin:open sesame"));
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
            assert_eq!(Credentials::of_header(name, value), None, "{name} {value}");
        }
        let long = "x".repeat(CREDENTIALS_BYTES_MAX + 1);
        assert_eq!(Credentials::of_header("X-Auth-Token", &long), None);
    }

    #[test]
    fn secrets_do_not_print() {
        let request = Request {
            method: Method::Post,
            path: "/redfish/v1/SessionService/Sessions".to_owned(),
            credentials: Some(Credentials::Basic(Hidden::new("root:hunter2"))),
            if_match: None,
            body: Some(Hidden::new("{\"Password\": \"hunter2\"}")),
        };
        let answer = Answer {
            token: Some(Hidden::new("hunter2")),
            ..Answer::default()
        };
        let printed = format!("{request:?} {answer:?}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
