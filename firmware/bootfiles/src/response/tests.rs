//! Replies to whole requests, as text.

use super::*;
use crate::request::parse;

/// 2 January 2026, 03:04:05 UTC.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

const CHANGED: &str = "Fri, 02 Jan 2026 02:04:05 GMT";
const BEFORE: &str = "Fri, 02 Jan 2026 02:04:04 GMT";
const AFTER: &str = "Fri, 02 Jan 2026 02:04:06 GMT";

/// A file of 100 bytes that was modified an hour ago, in the middle of a second.
fn metadata() -> BootFileMetadata {
    BootFileMetadata {
        size: 100,
        media_type: "application/octet-stream",
        etag: Some("v1".to_owned()),
        modified: Some(now() - Duration::from_millis(3_599_500)),
    }
}

fn request(line: &str, fields: &str) -> BootHttpRequest {
    let text = format!("{line} HTTP/1.1\r\nHost: box\r\n{fields}\r\n");
    parse(text.as_bytes()).unwrap().unwrap().0
}

/// The status, and which bytes follow.
#[track_caller]
fn check(fields: &str, status: u16, bytes: Option<(u64, u64)>) -> String {
    let answer = respond(&request("GET /x", fields), Some(&metadata()), now());
    let head = String::from_utf8(answer.head).unwrap();
    assert!(
        head.starts_with(&format!("HTTP/1.1 {status} ")),
        "{fields}: {head}"
    );
    assert_eq!(answer.bytes, bytes, "{fields}");
    head
}

const WHOLE: Option<(u64, u64)> = Some((0, 100));

#[test]
fn a_reply_has_all_validators_of_the_file() {
    assert_eq!(
        check("", 200, WHOLE),
        format!(
            "HTTP/1.1 200 OK\r\nDate: Fri, 02 Jan 2026 03:04:05 GMT\r\n\
             Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\nETag: \"v1\"\r\n\
             Last-Modified: {CHANGED}\r\nContent-Length: 100\r\n\r\n"
        )
    );
}

#[test]
fn head_replies_with_the_head_of_get() {
    let send = |line| {
        respond(
            &request(line, "Range: bytes=3-5\r\n"),
            Some(&metadata()),
            now(),
        )
    };
    let whole = respond(&request("GET /x", ""), Some(&metadata()), now());
    let head = send("HEAD /x");
    assert_eq!(head.head, whole.head, "ranges are ignored");
    assert_eq!(head.bytes, None);
    let nothing = respond(&request("HEAD /x", ""), None, now());
    let text = String::from_utf8(nothing.head).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 404 ") && text.ends_with("\r\n\r\n"),
        "{text}"
    );
}

#[test]
fn one_range_is_a_part_and_several_are_the_whole() {
    let head = check("Range: bytes=3-5\r\n", 206, Some((3, 6)));
    assert!(
        head.contains("\r\nContent-Range: bytes 3-5/100\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nContent-Length: 3\r\n"), "{head}");
    check("Range: bytes=0-1, 5-6\r\n", 200, WHOLE);
    let head = check("Range: bytes=100-\r\n", 416, None);
    assert!(
        head.contains("\r\nContent-Range: bytes */100\r\n"),
        "{head}"
    );
}

#[test]
fn a_part_is_only_of_the_version_the_client_has() {
    let part = Some((3, 6));
    for (field, want) in [
        ("\"v1\"", part),
        ("\"v2\"", None),
        ("W/\"v1\"", None),
        ("*", None),
        (CHANGED, part),
        (BEFORE, None),
        (AFTER, None),
        ("nonsense", None),
    ] {
        let fields = format!("Range: bytes=3-5\r\nIf-Range: {field}\r\n");
        match want {
            Some(_) => check(&fields, 206, want),
            None => check(&fields, 200, WHOLE),
        };
    }
}

/// Within a second a file may change twice and keep its date.
#[test]
fn a_recent_date_is_not_a_validator() {
    let fresh = BootFileMetadata {
        modified: Some(now() - Duration::from_secs(1)),
        ..metadata()
    };
    let fields = "Range: bytes=3-5\r\nIf-Range: Fri, 02 Jan 2026 03:04:04 GMT\r\n";
    let answer = respond(&request("GET /x", fields), Some(&fresh), now());
    assert_eq!(answer.bytes, WHOLE);
}

#[test]
fn an_unchanged_file_is_not_sent_again() {
    for fields in [
        "If-None-Match: \"v1\"\r\n".to_owned(),
        "If-None-Match: W/\"v1\"\r\n".to_owned(),
        "If-None-Match: \"v0\", \"v1\"\r\n".to_owned(),
        "If-None-Match: *\r\n".to_owned(),
        format!("If-Modified-Since: {CHANGED}\r\n"),
        format!("If-Modified-Since: {AFTER}\r\n"),
        "If-Modified-Since: Friday, 02-Jan-26 02:04:05 GMT\r\n".to_owned(),
        "If-Modified-Since: Fri Jan  2 02:04:05 2026\r\n".to_owned(),
    ] {
        let head = check(&fields, 304, None);
        assert!(
            head.contains("ETag: \"v1\"") && !head.contains("Content-Length"),
            "{head}"
        );
    }
    for fields in [
        "If-None-Match: \"v2\"\r\n".to_owned(),
        format!("If-Modified-Since: {BEFORE}\r\n"),
        "If-Modified-Since: yesterday\r\n".to_owned(),
        // The tag decides if there is one.
        format!("If-None-Match: \"v2\"\r\nIf-Modified-Since: {AFTER}\r\n"),
    ] {
        check(&fields, 200, WHOLE);
    }
}

#[test]
fn preconditions_are_evaluated_first() {
    for fields in [
        "If-Match: \"v2\"\r\n".to_owned(),
        "If-Match: W/\"v1\"\r\n".to_owned(),
        format!("If-Unmodified-Since: {BEFORE}\r\n"),
        "If-Match: \"v2\"\r\nIf-None-Match: \"v1\"\r\nRange: bytes=0-1\r\n".to_owned(),
    ] {
        let head = check(&fields, 412, None);
        assert!(head.ends_with("from its beginning\n"), "{head}");
    }
    for fields in [
        "If-Match: \"v1\"\r\n".to_owned(),
        "If-Match: *\r\n".to_owned(),
        format!("If-Unmodified-Since: {CHANGED}\r\n"),
        format!("If-Match: \"v1\"\r\nIf-Unmodified-Since: {BEFORE}\r\n"),
    ] {
        check(&fields, 200, WHOLE);
    }
}

#[test]
fn generated_content_has_no_validators() {
    let script = BootFileMetadata {
        size: 100,
        media_type: TEXT,
        etag: None,
        modified: None,
    };
    for (fields, status) in [
        ("", 200),
        ("If-None-Match: \"v1\"\r\n", 200),
        ("If-Modified-Since: Fri, 02 Jan 2026 02:04:06 GMT\r\n", 200),
        ("If-Match: \"v1\"\r\n", 412),
        ("Range: bytes=0-1\r\n", 206),
        ("Range: bytes=0-1\r\nIf-Range: \"v1\"\r\n", 200),
    ] {
        let answer = respond(&request("GET /x", fields), Some(&script), now());
        let head = String::from_utf8(answer.head).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(!head.contains("ETag") && !head.contains("Last-Modified"));
        assert!(
            status == 412 || head.contains("Cache-Control: no-store"),
            "{head}"
        );
    }
}

#[test]
fn other_methods_get_an_allow_header() {
    let answer = respond(&request("DELETE /x", ""), Some(&metadata()), now());
    let head = String::from_utf8(answer.head).unwrap();
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    assert!(head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
    assert_eq!((answer.bytes, answer.keep_alive), (None, true));
}

#[test]
fn the_connection_is_closed_where_it_must_be_with_a_header() {
    let closes = |text: &str| {
        let (request, _) = parse(text.as_bytes()).unwrap().unwrap();
        let answer = respond(&request, Some(&metadata()), now());
        let head = String::from_utf8(answer.head).unwrap();
        (head, answer.keep_alive)
    };
    for text in [
        "GET /x HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: box\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /x HTTP/1.0\r\n\r\n",
    ] {
        let (head, keep_alive) = closes(text);
        assert!(
            head.contains("\r\nConnection: close\r\n") && !keep_alive,
            "{head}"
        );
    }
    let (head, keep_alive) = closes("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(
        head.contains("\r\nConnection: keep-alive\r\n") && keep_alive,
        "{head}"
    );
}

#[test]
fn an_invalid_request_gets_the_reason() {
    for (nonsense, status) in [
        (RequestParseError::Malformed, "400"),
        (RequestParseError::Version, "505"),
        (RequestParseError::TooLong, "431"),
    ] {
        let text = String::from_utf8(parse_error_response(nonsense, now())).unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
        assert!(text.ends_with(&format!("\r\n\r\n{nonsense}\n")), "{text}");
    }
}

/// A box whose clock was never set, and files with impossible times.
#[test]
fn invalid_times_make_no_invalid_heads() {
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(300_000_000_001);
    for (now, modified) in [
        (SystemTime::UNIX_EPOCH, now()),
        (now(), far),
        (far, now()),
        (far, far),
        (now(), SystemTime::UNIX_EPOCH - Duration::from_secs(1)),
    ] {
        let thing = BootFileMetadata {
            modified: Some(modified),
            ..metadata()
        };
        let answer = respond(&request("GET /x", ""), Some(&thing), now);
        let head = String::from_utf8(answer.head).unwrap();
        assert_eq!(
            head.contains("Last-Modified"),
            modified <= now && modified < far
        );
        assert_eq!(head.contains("Date: "), now < far);
    }
}

#[test]
fn the_media_type_tells_firmware_how_to_boot_a_file() {
    for (path, want) in [
        ("/boot/loaders/snponly.efi", "application/efi"),
        ("/files/BOOTX64.EFI", "application/efi"),
        ("/files/debian.iso", "application/vnd.efi-iso"),
        ("/files/disk.img", "application/vnd.efi-img"),
        ("/files/autoexec.ipxe", TEXT),
        ("/files/inventory.json", "application/json"),
        ("/files.d/vmlinuz", "application/octet-stream"),
        ("/boot/kernel", "application/octet-stream"),
        ("", "application/octet-stream"),
    ] {
        assert_eq!(media_type(path), want, "{path}");
    }
}
