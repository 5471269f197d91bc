//! The caller of an API request: its identity and address.

use core::fmt;
use core::net::IpAddr;

use crate::{KeyDigest, NodeId};

/// Longest stored name of a caller, in characters. Ours.
const NAME_CHARS_MAX: usize = 64;

/// Longest stored request line, in characters. Ours: method and path.
const REQUEST_LINE_CHARS_MAX: usize = 200;

/// The identity of a caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CallerIdentity {
    /// Not authenticated; the settings disable authentication.
    Anyone,
    /// An agent. Its permissions are decided by its token, not here.
    Agent,
    /// A user with a password.
    User(String),
    /// A program with a token; the token's name.
    Token(String),
}

impl CallerIdentity {
    /// A user, by a name that is safe to print.
    pub fn user(name: &str) -> Self {
        Self::User(printable(name, NAME_CHARS_MAX))
    }

    /// The holder of a token, by a name that is safe to print.
    pub fn token(name: &str) -> Self {
        Self::Token(printable(name, NAME_CHARS_MAX))
    }

    /// The name, if it has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::User(name) | Self::Token(name) => Some(name),
            Self::Anyone | Self::Agent => None,
        }
    }
}

impl fmt::Display for CallerIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => write!(out, "anyone"),
            Self::Agent => write!(out, "an agent"),
            Self::User(name) => write!(out, "{name}"),
            Self::Token(name) => write!(out, "token {name}"),
        }
    }
}

/// The caller of a request, and how to find the request in the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiCaller {
    /// Its identity.
    pub identity: CallerIdentity,
    /// Its address.
    pub from: IpAddr,
    /// The identifier of the request, such as `req-<uuid>`.
    pub request: String,
    /// The caller's own identifier of the request, if it sent one.
    pub global_request: Option<String>,
    /// Method and path.
    pub request_line: String,
    /// The certificate of a node, if its connection has one.
    pub certificate: Option<NodeCertificate>,
}

/// A certificate of a node that the box has signed. Whether it is that of the node's present
/// boot is decided by the key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NodeCertificate {
    /// The node that it names.
    pub node: NodeId,
    /// SHA-256 of its public key.
    pub key: KeyDigest,
}

impl ApiCaller {
    /// An agent: requests of agents are not noted.
    pub fn agent(from: IpAddr) -> Self {
        Self {
            identity: CallerIdentity::Agent,
            from,
            request: String::new(),
            global_request: None,
            request_line: String::new(),
            certificate: None,
        }
    }

    /// The same caller with its request line, truncated and safe to print.
    #[must_use]
    pub fn with_request_line(mut self, method: &str, path: &str) -> Self {
        self.request_line = printable(&format!("{method} {path}"), REQUEST_LINE_CHARS_MAX);
        self
    }
}

impl fmt::Display for ApiCaller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            identity: who,
            from,
            request,
            global_request,
            request_line: what,
            certificate: _,
        } = self;
        write!(out, "{who} at {from} ({what}, {request}")?;
        if let Some(global) = global_request {
            write!(out, " of {global}")?;
        }
        write!(out, ")")
    }
}

/// At most this many characters, without control characters and line breaks. Quotation marks stay
/// as they are.
pub fn printable(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars().flat_map(escaped_character);
    let mut shown: String = chars.by_ref().take(chars_max).collect();
    if chars.next().is_some() {
        shown.push_str("...");
    }
    shown
}

/// The character, or its escape sequence.
fn escaped_character(character: char) -> impl Iterator<Item = char> {
    let is_quotation_mark = matches!(character, '\'' | '"');
    let plain = is_quotation_mark.then_some(character);
    let escaped = (!is_quotation_mark).then(|| character.escape_debug());
    plain.into_iter().chain(escaped.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn names_are_cut_and_cannot_begin_a_line() {
        let who = CallerIdentity::user("ann\n2026 info box: all is well\u{1b}[2J");
        let shown = who.to_string();
        assert!(!shown.chars().any(char::is_control), "{shown}");
        assert!(shown.starts_with("ann\\n2026"), "{shown}");
        assert_eq!(printable("the box's \"x\"\t", 99), "the box's \"x\"\\t");
        let long = CallerIdentity::token(&"x".repeat(10_000));
        let most = NAME_CHARS_MAX + "...".len();
        assert_eq!(long.name().map(str::len), Some(most));
    }

    #[test]
    fn a_caller_is_printed_with_name_address_and_request() {
        let caller = ApiCaller {
            identity: CallerIdentity::token("ci"),
            request: "req-1".to_owned(),
            global_request: Some("req-2".to_owned()),
            ..ApiCaller::agent(Ipv4Addr::LOCALHOST.into())
        };
        assert_eq!(
            caller
                .with_request_line("PATCH", "/v1/nodes/n1")
                .to_string(),
            "token ci at 127.0.0.1 (PATCH /v1/nodes/n1, req-1 of req-2)"
        );
    }

    #[test]
    fn only_people_and_programs_have_names() {
        assert_eq!(CallerIdentity::user("ann").name(), Some("ann"));
        assert_eq!(
            (CallerIdentity::Anyone.name(), CallerIdentity::Agent.name()),
            (None, None)
        );
    }
}
