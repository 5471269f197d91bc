//! Who asks for a change, by what name, and from where.

use core::fmt;
use core::net::IpAddr;

/// Longest name of a caller that is kept. Ours.
const NAME_CHARS_MAX: usize = 64;

/// Longest description of a request that is kept. Ours: method and path.
const REQUEST_LINE_CHARS_MAX: usize = 200;

/// Who asks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CallerIdentity {
    /// Somebody; the box was told to ask nobody for credentials.
    Anyone,
    /// An agent. What it may do is decided by its token, not here.
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

    /// The name, of those who have one.
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

/// Who asks for a change, and how to find the request again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiCaller {
    /// Who.
    pub identity: CallerIdentity,
    /// From where.
    pub from: IpAddr,
    /// What the request is called, such as `req-<uuid>`.
    pub request: String,
    /// What the caller itself calls it, if it said so.
    pub global_request: Option<String>,
    /// Method and path.
    pub request_line: String,
}

impl ApiCaller {
    /// An agent: nobody notes what agents ask for.
    pub fn agent(from: IpAddr) -> Self {
        Self {
            identity: CallerIdentity::Agent,
            from,
            request: String::new(),
            global_request: None,
            request_line: String::new(),
        }
    }

    /// The same caller with what it asks for, cut and made safe to print.
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
        } = self;
        write!(out, "{who} at {from} ({what}, {request}")?;
        if let Some(global) = global_request {
            write!(out, " of {global}")?;
        }
        write!(out, ")")
    }
}

/// At most so many characters, and none that speaks to a terminal or begins a line.
pub fn printable(text: &str, chars_max: usize) -> String {
    let mut shown: String = text
        .chars()
        .flat_map(char::escape_debug)
        .take(chars_max)
        .collect();
    if text
        .chars()
        .flat_map(char::escape_debug)
        .nth(chars_max)
        .is_some()
    {
        shown.push_str("...");
    }
    shown
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
        let long = CallerIdentity::token(&"x".repeat(10_000));
        let most = NAME_CHARS_MAX + "...".len();
        assert_eq!(long.name().map(str::len), Some(most));
    }

    #[test]
    fn a_caller_says_who_where_and_what() {
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
