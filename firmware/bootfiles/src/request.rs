//! Parses the head of an HTTP request (RFC 9112), as far as a file server needs it.
//!
//! Bytes in, a [`BootHttpRequest`] out. Ambiguous requests are rejected: a proxy in front of
//! the box could interpret them differently (request smuggling).

use httparse::{Header, Status};

/// Longest accepted head. Ours: RFC 9112 sets no limit; firmware sends some hundred bytes.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Most header fields. Ours.
const FIELDS_MAX: usize = 64;

/// Longest body that is read and dropped. Ours: a body has no meaning for GET, so the
/// connection of a client that sends more is closed.
pub const BODY_BYTES_MAX: u64 = 64 * 1024;

/// The request method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BootHttpMethod {
    /// GET: the file.
    Get,
    /// HEAD: only the head of the reply to GET.
    Head,
    /// A method that this server does not support.
    Other,
}

/// The body that follows the head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BootRequestBody {
    /// So many bytes to read and drop, usually zero.
    Dropped(u64),
    /// Longer than the limit, or sent only after `100 Continue`: the reply is sent at once and
    /// the connection is closed.
    Unread,
}

/// The head of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootHttpRequest {
    /// The request method.
    pub method: BootHttpMethod,
    /// The path as received, percent-encoded, without the query.
    pub path: String,
    /// The body that follows the head.
    pub body: BootRequestBody,
    /// The client wants to reuse this connection.
    pub keep_alive: bool,
    /// The reply must confirm that: HTTP/1.0 closes by default.
    pub(crate) keep_alive_header: bool,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) if_modified_since: Option<String>,
    pub(crate) if_unmodified_since: Option<String>,
}

impl BootHttpRequest {
    /// Whether it requests a part of a file (RFC 9110, section 14.2).
    pub fn has_range(&self) -> bool {
        self.method == BootHttpMethod::Get && self.range.is_some()
    }
}

/// Bytes that are not a valid request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestParseError {
    /// Not HTTP, or ambiguous.
    #[error("this is not a valid HTTP/1.1 request")]
    Malformed,
    /// A later version of HTTP.
    #[error("this server supports HTTP/1.0 and HTTP/1.1")]
    Version,
    /// Too many fields, or a head that does not end.
    #[error("the head is longer than {HEAD_BYTES_MAX} bytes or {FIELDS_MAX} fields")]
    TooLong,
}

/// Parses a head at the start of the received bytes: the request and the length of its head, or
/// `None` if more bytes are needed.
pub fn parse(bytes: &[u8]) -> Result<Option<(BootHttpRequest, usize)>, RequestParseError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(bytes) {
        Ok(Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(RequestParseError::TooLong),
        Err(httparse::Error::Version) => return Err(RequestParseError::Version),
        Err(_) => return Err(RequestParseError::Malformed),
    };
    let (Some(method), Some(target), Some(minor)) = (head.method, head.path, head.version) else {
        return Err(RequestParseError::Malformed);
    };
    let fields = HeaderFields(head.headers);
    let hosts = fields.all("host").count();
    if hosts > 1 || hosts == 0 && minor > 0 {
        return Err(RequestParseError::Malformed);
    }
    let keep_alive = if minor == 0 {
        fields.has("connection", "keep-alive")
    } else {
        !fields.has("connection", "close")
    };
    let request = BootHttpRequest {
        method: match method {
            "GET" => BootHttpMethod::Get,
            "HEAD" => BootHttpMethod::Head,
            _ => BootHttpMethod::Other,
        },
        path: path(target).to_owned(),
        body: body(&fields)?,
        keep_alive,
        keep_alive_header: keep_alive && minor == 0,
        range: fields.text("range"),
        if_range: fields.text("if-range"),
        if_match: fields.text("if-match"),
        if_none_match: fields.text("if-none-match"),
        if_modified_since: fields.text("if-modified-since"),
        if_unmodified_since: fields.text("if-unmodified-since"),
    };
    Ok(Some((request, length)))
}

/// The path of a request target: a server accepts both forms (RFC 9112, section 3.2). Another
/// form is a path that does not exist.
fn path(target: &str) -> &str {
    let plain = target.split_once('?').map_or(target, |(path, _)| path);
    let scheme = "http://";
    match plain.split_at_checked(scheme.len()) {
        Some((first, rest)) if first.eq_ignore_ascii_case(scheme) => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => plain,
    }
}

/// The length of the body (RFC 9112, section 6.3).
fn body(fields: &HeaderFields<'_>) -> Result<BootRequestBody, RequestParseError> {
    let mut lengths = fields.all("content-length").map(|value| {
        let digits = str::from_utf8(value).map_err(|_| RequestParseError::Malformed)?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // A length above 64 bits is treated as too long.
        plain
            .then(|| digits.parse().unwrap_or(u64::MAX))
            .ok_or(RequestParseError::Malformed)
    });
    let length: Option<u64> = lengths.next().transpose()?;
    let chunked = fields.all("transfer-encoding").next().is_some();
    if lengths.next().is_some() || chunked && length.is_some() {
        return Err(RequestParseError::Malformed);
    }
    let waits = fields.has("expect", "100-continue");
    Ok(match length {
        None if chunked => BootRequestBody::Unread,
        None | Some(0) => BootRequestBody::Dropped(0),
        Some(length) if length > BODY_BYTES_MAX || waits => BootRequestBody::Unread,
        Some(length) => BootRequestBody::Dropped(length),
    })
}

struct HeaderFields<'a>(&'a [Header<'a>]);

impl<'a> HeaderFields<'a> {
    fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.0
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    }

    /// All values of a name as one list (RFC 9110, section 5.3); `None` if there is none, or if
    /// it is not text.
    fn text(&self, name: &str) -> Option<String> {
        let parts: Option<Vec<_>> = self
            .all(name)
            .map(|value| str::from_utf8(value).ok())
            .collect();
        parts
            .filter(|parts| !parts.is_empty())
            .map(|parts| parts.join(", "))
    }

    /// Whether a list contains this word.
    fn has(&self, name: &str, word: &str) -> bool {
        self.text(name).is_some_and(|list| {
            list.split(',')
                .any(|one| one.trim().eq_ignore_ascii_case(word))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn whole(text: &str) -> BootHttpRequest {
        let (request, length) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        request
    }

    /// A request with these fields.
    #[track_caller]
    fn with(fields: &str) -> BootHttpRequest {
        whole(&format!("GET /x HTTP/1.1\r\nHost: box\r\n{fields}\r\n"))
    }

    #[track_caller]
    fn refused(text: &str, want: RequestParseError) {
        assert_eq!(parse(text.as_bytes()), Err(want), "{text}");
    }

    #[test]
    fn reads_what_ovmf_sends() {
        let request = whole(
            "HEAD /boot/loaders/snponly.efi HTTP/1.1\r\nHost: 192.0.2.1:8080\r\nAccept: */*\r\n\
             User-Agent: UefiHttpBoot/1.0\r\n\r\n",
        );
        assert_eq!(request.method, BootHttpMethod::Head);
        assert_eq!(request.path, "/boot/loaders/snponly.efi");
        assert_eq!(request.body, BootRequestBody::Dropped(0));
        assert!(request.keep_alive && !request.keep_alive_header);
    }

    #[test]
    fn waits_for_the_end_of_the_head_and_leaves_what_follows() {
        let text = "GET /a HTTP/1.1\r\nHost: box\r\n\r\n";
        for length in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..length]), Ok(None), "{length}");
        }
        let two = format!("{text}GET /b HTTP/1.1\r\n");
        let (request, length) = parse(two.as_bytes()).unwrap().unwrap();
        assert_eq!((request.path.as_str(), length), ("/a", text.len()));
    }

    #[test]
    fn a_target_may_name_the_server_and_a_query() {
        for target in ["/a/b?c=d/e", "http://box/a/b", "HTTP://box:80/a/b?", "/a/b"] {
            let request = whole(&format!("GET {target} HTTP/1.1\r\nHost: box\r\n\r\n"));
            assert_eq!(request.path, "/a/b", "{target}");
        }
        for target in ["http://box", "http://box?x", "http://box?x/y"] {
            let request = whole(&format!("GET {target} HTTP/1.1\r\nHost: box\r\n\r\n"));
            assert_eq!(request.path, "/", "{target}");
        }
    }

    #[test]
    fn a_connection_is_kept_by_the_rules_of_its_version() {
        assert!(with("").keep_alive);
        assert!(!with("Connection: foo, Close\r\n").keep_alive);
        assert!(!whole("GET / HTTP/1.0\r\n\r\n").keep_alive);
        let requested = whole("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert!(requested.keep_alive && requested.keep_alive_header);
    }

    #[test]
    fn short_bodies_are_dropped_and_others_close_the_connection() {
        assert_eq!(
            with("Content-Length: 5\r\n").body,
            BootRequestBody::Dropped(5)
        );
        for fields in [
            "Content-Length: 65537\r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Content-Length: 5\r\nExpect: 100-Continue\r\n",
            "Transfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(with(fields).body, BootRequestBody::Unread, "{fields}");
        }
        assert_eq!(
            with("Expect: 100-continue\r\n").body,
            BootRequestBody::Dropped(0)
        );
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 6\r\n",
            "Content-Length: +5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Host: another\r\n",
            "a b: c\r\n",
            "Range : bytes=0-1\r\n",
        ] {
            let text = format!("GET /x HTTP/1.1\r\nHost: box\r\n{fields}\r\n");
            refused(&text, RequestParseError::Malformed);
        }
        refused("GET /x HTTP/1.1\r\n\r\n", RequestParseError::Malformed);
        refused("\x16\x03\x01\x02\x00", RequestParseError::Malformed);
        refused("GET /x HTTP/2.0\r\n\r\n", RequestParseError::Version);
    }

    #[test]
    fn a_head_is_bounded() {
        let long = "a".repeat(HEAD_BYTES_MAX);
        refused(&long, RequestParseError::TooLong);
        let text = format!("GET /{long} HTTP/1.1\r\nHost: box\r\n\r\n");
        refused(&text, RequestParseError::TooLong);
        let many = "a: b\r\n".repeat(FIELDS_MAX);
        refused(
            &format!("GET / HTTP/1.1\r\nHost: box\r\n{many}\r\n"),
            RequestParseError::TooLong,
        );
        with(&"a: b\r\n".repeat(FIELDS_MAX - 1));
    }

    #[test]
    fn values_of_one_name_are_one_list() {
        let request = with("If-None-Match: \"a\"\r\nif-none-match: \"b\"\r\n");
        assert_eq!(request.if_none_match.as_deref(), Some("\"a\", \"b\""));
        let bytes = b"GET /x HTTP/1.1\r\nHost: box\r\nRange: \xff\r\n\r\n";
        assert_eq!(parse(bytes).unwrap().unwrap().0.range, None);
    }
}
