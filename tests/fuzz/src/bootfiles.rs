//! Boot files: paths, none of which leads outside, and HTTP heads.

use std::path::{Component, Path};
use std::time::{Duration, SystemTime};

use trivet_bootfiles::{
    BootFileMetadata, BootHttpMethod, BootRequestBody, BootRoute, HEAD_BYTES_MAX, PATH_BYTES_MAX,
    RelativePath,
};

use crate::FuzzTarget;

pub(crate) const REQUESTS: FuzzTarget = FuzzTarget {
    name: "bootfiles_requests",
    run: requests,
    seeds: request_seeds,
    regressions: &[],
};

pub(crate) const PATHS: FuzzTarget = FuzzTarget {
    name: "bootfiles_paths",
    run: paths,
    seeds: path_seeds,
    regressions: &[],
};

fn paths(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    let both = [RelativePath::from_http(text), RelativePath::from_tftp(text)];
    for relative in both.iter().flatten() {
        stays_inside(relative);
    }
    for route in [
        trivet_bootfiles::http_route(text),
        trivet_bootfiles::tftp_route(text),
    ] {
        match route {
            Some(BootRoute::File(relative) | BootRoute::Loader(relative)) => {
                stays_inside(&relative);
            }
            Some(BootRoute::Image(name)) => is_one_name(&name),
            _ => {}
        }
    }
}

/// Joined to a directory as the rack does it, the path is below that directory, also for the
/// standard library.
fn stays_inside(relative: &RelativePath) {
    let root = Path::new("/files");
    let path = relative
        .segments()
        .inspect(|part| is_one_name(part))
        .fold(root.to_owned(), |path, part| path.join(part));
    let below = path.strip_prefix(root).expect("below its directory");
    let mut depth = 0;
    for component in below.components() {
        assert!(matches!(component, Component::Normal(_)), "{component:?}");
        depth += 1;
    }
    assert_eq!(depth, relative.segments().count());
    assert!(depth > 0 && relative.to_string().len() <= PATH_BYTES_MAX);
}

fn is_one_name(name: &str) {
    let bad = |character: char| character.is_control() || character == '/' || character == '\\';
    assert!(!name.is_empty() && !name.chars().any(bad), "{name:?}");
    assert!(name != "." && name != "..");
}

fn path_seeds() -> Vec<Vec<u8>> {
    let paths = [
        "/boot/52:54:00:00:00:01/script",
        "/boot/kernel",
        "/boot/ramdisk",
        "/images/debian.raw",
        "/files/a/b%20c",
        "/files/../etc/passwd",
        "/files/%2e%2e/x",
        "/files/a%2f..%2f..%2fb",
        "..\\x",
        "snponly.efi",
        "/files/%c3%a4",
    ];
    paths.map(|path| path.as_bytes().to_vec()).to_vec()
}

/// The size of the requested file.
const FILE_BYTES: u64 = 1000;

fn requests(bytes: &[u8]) {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
    let (request, length) = match trivet_bootfiles::parse(bytes) {
        Ok(Some(whole)) => whole,
        Ok(None) => return assert!(bytes.len() < HEAD_BYTES_MAX, "an endless head"),
        Err(nonsense) => {
            return is_head(&trivet_bootfiles::parse_error_response(nonsense, now), None);
        }
    };
    assert!(length <= bytes.len().min(HEAD_BYTES_MAX));
    let again = trivet_bootfiles::parse(&bytes[..length]);
    assert_eq!(
        again,
        Ok(Some((request.clone(), length))),
        "the bytes after it changed it"
    );
    let thing = BootFileMetadata {
        size: FILE_BYTES,
        media_type: trivet_bootfiles::media_type(&request.path),
        etag: Some("a-1".to_owned()),
        modified: Some(now - Duration::from_hours(1)),
    };
    for found in [Some(&thing), None] {
        let answer = trivet_bootfiles::respond(&request, found, now);
        let bytes = answer.bytes.map(|(from, to)| {
            assert!(from < to && to <= FILE_BYTES, "bytes {from} to {to}");
            assert!(found.is_some() && request.method == BootHttpMethod::Get);
            to - from
        });
        assert!(
            !answer.keep_alive || request.keep_alive && request.body != BootRequestBody::Unread
        );
        is_head(&answer.head, bytes);
    }
}

/// One complete head, without input of the client that could end a line, and with the length of
/// the body: these bytes of the file, or the message after the head.
fn is_head(head: &[u8], bytes: Option<u64>) {
    let text = core::str::from_utf8(head).expect("a head is text");
    let (lines, sentence) = text.split_once("\r\n\r\n").expect("a head has an end");
    let mut lines = lines.split("\r\n");
    assert!(
        lines
            .next()
            .is_some_and(|first| first.starts_with("HTTP/1.1 "))
    );
    let mut length = None;
    for line in lines {
        let (name, value) = line.split_once(": ").expect("a name and a value");
        assert!(!value.contains(['\r', '\n']), "{value:?}");
        if name == "Content-Length" {
            assert_eq!(length, None, "two lengths");
            length = value.parse::<u64>().ok();
        }
    }
    match bytes {
        Some(bytes) => assert_eq!((length, sentence), (Some(bytes), "")),
        None if sentence.is_empty() => {}
        None => assert_eq!(length, Some(sentence.len() as u64)),
    }
}

fn request_seeds() -> Vec<Vec<u8>> {
    let fields = [
        "",
        "Range: bytes=10-99\r\nConnection: close\r\n",
        "Range: bytes=-5\r\nIf-Range: \"a-1\"\r\n",
        "If-None-Match: W/\"x\", \"a-1\"\r\n",
        "If-Modified-Since: Sun, 17 Mar 2030 17:00:00 GMT\r\n",
        "If-Match: *\r\nIf-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "Content-Length: 5\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n",
    ];
    let get = |fields: &str| format!("GET /files/a HTTP/1.1\r\nHost: box\r\n{fields}\r\n");
    let mut heads: Vec<_> = fields.iter().map(|fields| get(fields)).collect();
    heads.push("HEAD http://box/boot/kernel?x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".into());
    heads.push("POST / HTTP/1.1\r\nHost: box\r\n\r\n".into());
    heads.into_iter().map(String::into_bytes).collect()
}
