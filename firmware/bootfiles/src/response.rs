//! The reply to a request for a file: its head, and which bytes follow.
//!
//! Conditions and ranges follow RFC 9110, sections 13 and 14. Time and the metadata of the file
//! are arguments; the shell sends the bytes.

use core::fmt::Write as _;
use std::time::{Duration, SystemTime};

use crate::range::{UnsatisfiableRange, range};
use crate::request::{BootHttpMethod, BootHttpRequest, BootRequestBody, RequestParseError};

/// A date is a strong validator only some time after it (RFC 9110, section 8.8.2.2): within its
/// second the file may change again.
const DATE_STRONG_AFTER: Duration = Duration::from_secs(2);

/// A file to send, and its validators.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootFileMetadata {
    /// Its size.
    pub size: u64,
    /// The media type.
    pub media_type: &'static str,
    /// Different whenever the bytes differ, without quotes; `None` for content generated for
    /// each request.
    pub etag: Option<String>,
    /// When it was last modified.
    pub modified: Option<SystemTime>,
}

/// A reply to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootHttpResponse {
    /// Sent first. If the reply is not part of a file, it includes the message.
    pub head: Vec<u8>,
    /// Then these bytes of the file, from the first to the one after the last.
    pub bytes: Option<(u64, u64)>,
    /// They are a part that the client requested by a range.
    pub is_partial: bool,
    /// The connection is kept afterwards.
    pub keep_alive: bool,
}

/// Media type of plain text, used for scripts.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// The media type by file extension. UEFI firmware (EDK II's HttpBootDxe) boots a program, an
/// ISO or a disk of these names or these types.
pub fn media_type(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let end = name
        .rsplit_once('.')
        .map(|(_, end)| end.to_ascii_lowercase());
    match end.as_deref() {
        Some("efi") => "application/efi",
        Some("iso") => "application/vnd.efi-iso",
        Some("img") => "application/vnd.efi-img",
        Some("json") => "application/json",
        Some("cfg" | "conf" | "ign" | "ipxe" | "ks" | "seed" | "sh" | "txt" | "yaml" | "yml") => {
            TEXT
        }
        _ => "application/octet-stream",
    }
}

/// Status line for a file of another client.
pub const FORBIDDEN: &str = "403 Forbidden";
/// Status line for a missing file.
pub const NOT_FOUND: &str = "404 Not Found";
/// Status line for a file that is not available now.
pub const UNAVAILABLE: &str = "503 Service Unavailable";

/// The message for a file that does not exist.
pub const NO_FILE: &str = "there is no such file on this box";

/// The reply for the file that was found for the path.
pub fn respond(
    request: &BootHttpRequest,
    found: Option<&BootFileMetadata>,
    now: SystemTime,
) -> BootHttpResponse {
    let mut out = ResponseWriter::new(request, now);
    if request.method == BootHttpMethod::Other {
        out.field("Allow", "GET, HEAD");
        return out.sentence(
            "405 Method Not Allowed",
            "only GET and HEAD are served here",
        );
    }
    let Some(thing) = found else {
        return out.sentence(NOT_FOUND, NO_FILE);
    };
    match evaluate_conditions(request, thing, now) {
        ConditionalResult::NotModified => {
            out.validators(thing, now);
            out.empty("304 Not Modified")
        }
        ConditionalResult::PreconditionFailed => out.sentence(
            "412 Precondition Failed",
            "the file has changed; fetch it from its beginning",
        ),
        ConditionalResult::RangeNotSatisfiable => {
            let whole = format!("bytes */{}", thing.size);
            out.field("Content-Range", &whole);
            out.sentence(
                "416 Range Not Satisfiable",
                "the range starts after the end of the file",
            )
        }
        ConditionalResult::Whole => {
            out.entity(thing, now);
            out.bytes("200 OK", 0, thing.size)
        }
        ConditionalResult::Part(from, to) => {
            let part = format!("bytes {from}-{}/{}", to - 1, thing.size);
            out.field("Content-Range", &part);
            out.entity(thing, now);
            BootHttpResponse {
                is_partial: true,
                ..out.bytes("206 Partial Content", from, to)
            }
        }
    }
}

/// The reply for a file that is not available now, with a message that gives the reason.
pub fn unavailable(request: &BootHttpRequest, sentence: &str, now: SystemTime) -> BootHttpResponse {
    let mut out = ResponseWriter::new(request, now);
    out.field("Retry-After", "10");
    out.sentence(UNAVAILABLE, sentence)
}

/// The reply to a client that may not have the file.
pub fn forbidden(request: &BootHttpRequest, sentence: &str, now: SystemTime) -> BootHttpResponse {
    ResponseWriter::new(request, now).sentence(FORBIDDEN, sentence)
}

/// The reply when the source of an image is known to have other bytes. A client error, so that
/// agents which distinguish the two do not retry.
pub fn wrong_image(request: &BootHttpRequest, sentence: &str, now: SystemTime) -> BootHttpResponse {
    ResponseWriter::new(request, now).sentence(NOT_FOUND, sentence)
}

/// The reply to an invalid request; the connection is closed after it.
pub fn parse_error_response(nonsense: RequestParseError, now: SystemTime) -> Vec<u8> {
    let status = match nonsense {
        RequestParseError::Malformed => "400 Bad Request",
        RequestParseError::Version => "505 HTTP Version Not Supported",
        RequestParseError::TooLong => "431 Request Header Fields Too Large",
    };
    let out = ResponseWriter {
        fields: date_field(now),
        head_only: false,
        keep_alive: false,
        keep_alive_header: false,
    };
    out.sentence(status, &nonsense.to_string()).head
}

enum ConditionalResult {
    Whole,
    Part(u64, u64),
    NotModified,
    PreconditionFailed,
    RangeNotSatisfiable,
}

/// Evaluated in the order of RFC 9110, section 13.2.2.
fn evaluate_conditions(
    request: &BootHttpRequest,
    thing: &BootFileMetadata,
    now: SystemTime,
) -> ConditionalResult {
    let tag = thing.etag.as_deref();
    let modified = thing.modified.map(seconds);
    let date = |field: &Option<String>| -> Option<u64> {
        let text = field.as_deref()?;
        httpdate::parse_http_date(text.trim()).ok().map(seconds)
    };
    let held = match &request.if_match {
        Some(list) => matches(list, tag, EtagComparison::Strong),
        None => match (date(&request.if_unmodified_since), modified) {
            (Some(since), Some(modified)) => modified <= since,
            _ => true,
        },
    };
    if !held {
        return ConditionalResult::PreconditionFailed;
    }
    let same = match &request.if_none_match {
        Some(list) => matches(list, tag, EtagComparison::Weak),
        None => match (date(&request.if_modified_since), modified) {
            (Some(since), Some(modified)) => modified <= since,
            _ => false,
        },
    };
    if same {
        return ConditionalResult::NotModified;
    }
    // Ranges are defined only for GET (section 14.2).
    let Some(field) = request.range.as_deref() else {
        return ConditionalResult::Whole;
    };
    if request.method != BootHttpMethod::Get || !range_holds(request, thing, now) {
        return ConditionalResult::Whole;
    }
    match range(field, thing.size) {
        Ok(None) => ConditionalResult::Whole,
        Ok(Some((from, to))) => ConditionalResult::Part(from, to),
        Err(UnsatisfiableRange) => ConditionalResult::RangeNotSatisfiable,
    }
}

/// Parts of different versions of a file must not be joined (section 13.1.5).
fn range_holds(request: &BootHttpRequest, thing: &BootFileMetadata, now: SystemTime) -> bool {
    let Some(field) = request.if_range.as_deref().map(str::trim) else {
        return true;
    };
    if let Ok(since) = httpdate::parse_http_date(field) {
        return thing.modified.is_some_and(|modified| {
            let settled = now.duration_since(modified);
            seconds(modified) == seconds(since) && settled.is_ok_and(|age| age >= DATE_STRONG_AFTER)
        });
    }
    // A list or a star is not valid in this field.
    let quoted = thing.etag.as_ref().map(|tag| format!("\"{tag}\""));
    quoted.as_deref() == Some(field)
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum EtagComparison {
    Strong,
    Weak,
}

/// Whether a list of tags contains this one. Our tags are strong and contain neither commas nor
/// quotes, so the list can be split at commas.
fn matches(list: &str, tag: Option<&str>, comparison: EtagComparison) -> bool {
    if list.trim() == "*" {
        return true;
    }
    let Some(tag) = tag else { return false };
    list.split(',').map(str::trim).any(|one| {
        let one = match comparison {
            EtagComparison::Strong => one,
            EtagComparison::Weak => one.strip_prefix("W/").unwrap_or(one),
        };
        let inner = one.strip_prefix('"').and_then(|one| one.strip_suffix('"'));
        inner == Some(tag)
    })
}

/// Whole seconds, the precision of HTTP dates.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// An HTTP date. The library rejects years of five digits, which the time of a file can have.
fn date(time: SystemTime) -> Option<String> {
    /// The first second of the year 10000.
    const YEAR_10000: u64 = 253_402_300_800;
    let within = seconds(time) < YEAR_10000;
    within.then(|| {
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds(time)))
    })
}

fn date_field(now: SystemTime) -> String {
    date(now).map_or_else(String::new, |date| format!("Date: {date}\r\n"))
}

/// A reply head that is being written.
struct ResponseWriter {
    fields: String,
    head_only: bool,
    keep_alive: bool,
    keep_alive_header: bool,
}

impl ResponseWriter {
    fn new(request: &BootHttpRequest, now: SystemTime) -> Self {
        Self {
            fields: date_field(now),
            head_only: request.method == BootHttpMethod::Head,
            keep_alive: request.keep_alive && request.body != BootRequestBody::Unread,
            keep_alive_header: request.keep_alive_header,
        }
    }

    fn field(&mut self, name: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.fields, "{name}: {value}\r\n");
    }

    fn validators(&mut self, thing: &BootFileMetadata, now: SystemTime) {
        if let Some(tag) = &thing.etag {
            self.field("ETag", &format!("\"{tag}\""));
        }
        // A date in the future is not a valid validator (section 8.8.2.1).
        let past = thing.modified.filter(|modified| *modified <= now);
        if let Some(date) = past.and_then(date) {
            self.field("Last-Modified", &date);
        }
        if thing.etag.is_none() {
            self.field("Cache-Control", "no-store");
        }
    }

    fn entity(&mut self, thing: &BootFileMetadata, now: SystemTime) {
        self.field("Content-Type", thing.media_type);
        self.field("Accept-Ranges", "bytes");
        self.validators(thing, now);
    }

    fn bytes(mut self, status: &str, from: u64, to: u64) -> BootHttpResponse {
        self.field("Content-Length", &(to - from).to_string());
        let bytes = (!self.head_only).then_some((from, to));
        BootHttpResponse {
            bytes,
            ..self.empty(status)
        }
    }

    fn sentence(mut self, status: &str, sentence: &str) -> BootHttpResponse {
        self.field("Content-Type", TEXT);
        self.field("Content-Length", &(sentence.len() + 1).to_string());
        let head_only = self.head_only;
        let mut answer = self.empty(status);
        if !head_only {
            answer.head.extend_from_slice(sentence.as_bytes());
            answer.head.push(b'\n');
        }
        answer
    }

    fn empty(mut self, status: &str) -> BootHttpResponse {
        if !self.keep_alive {
            self.field("Connection", "close");
        } else if self.keep_alive_header {
            self.field("Connection", "keep-alive");
        }
        BootHttpResponse {
            head: format!("HTTP/1.1 {status}\r\n{}\r\n", self.fields).into_bytes(),
            bytes: None,
            is_partial: false,
            keep_alive: self.keep_alive,
        }
    }
}

#[cfg(test)]
mod tests;
