//! Boot files over loopback, from a real engine and real files.

use super::*;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::testbed::{self, Scratch, ask};

#[track_caller]
fn check(header: &str, want: Result<Option<(u64, u64)>, Unsatisfiable>) {
    let mut headers = HeaderMap::new();
    headers.insert(RANGE, HeaderValue::from_str(header).unwrap());
    assert_eq!(range(&headers, 100), want, "{header}");
}

#[test]
fn takes_every_form_of_one_range() {
    check("bytes=0-9", Ok(Some((0, 10))));
    check("bytes=90-", Ok(Some((90, 100))));
    check("bytes=-10", Ok(Some((90, 100))));
    check("bytes=-1000", Ok(Some((0, 100))));
    check("bytes=50-1000", Ok(Some((50, 100))));
}

#[test]
fn ignores_what_is_not_one_byte_range() {
    for header in [
        "bytes=9-0",
        "bytes=a-b",
        "bytes=0-1,5-6",
        "lines=0-1",
        "bytes=",
        "bytes=+1-2",
        "bytes=99999999999999999999-",
    ] {
        check(header, Ok(None));
    }
}

#[test]
fn refuses_a_range_beyond_the_end() {
    check("bytes=100-", Err(Unsatisfiable));
    check("bytes=-0", Err(Unsatisfiable));
}

/// A box with `files/` of a scratch directory.
struct Served {
    scratch: Scratch,
    engine: Engine,
    address: SocketAddr,
    _doors: JoinSet<()>,
}

async fn served() -> Served {
    let scratch = Scratch::new();
    scratch.file("files/hello", b"0123456789");
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut doors = JoinSet::new();
    let places = http::Places::new(64);
    let waits = http::Waits::default();
    let handler = handler(engine.clone());
    http::serve(&mut doors, vec![listener], None, (&places, waits), &handler);
    Served {
        scratch,
        engine,
        address,
        _doors: doors,
    }
}

#[tokio::test]
async fn a_file_comes_whole_and_in_ranges() {
    let one = served().await;
    let (head, body) = ask(one.address, "GET /files/hello", "", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-length: 10") && head.contains("accept-ranges: bytes"));
    assert_eq!(body, "0123456789");
    let (head, body) = ask(one.address, "GET /files/hello", "range: bytes=3-5\r\n", "").await;
    assert!(head.starts_with("http/1.1 206"), "{head}");
    assert!(head.contains("content-range: bytes 3-5/10"), "{head}");
    assert_eq!(body, "345");
    let (head, _) = ask(one.address, "GET /files/hello", "range: bytes=10-\r\n", "").await;
    assert!(head.starts_with("http/1.1 416"), "{head}");
    assert!(head.contains("content-range: bytes */10"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_range_of_another_version_is_the_whole_file() {
    let one = served().await;
    let headers = "range: bytes=3-5\r\nif-range: \"v1\"\r\n";
    let (head, body) = ask(one.address, "GET /files/hello", headers, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, "0123456789");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_head_request_says_the_size_and_knows_no_ranges() {
    let one = served().await;
    for headers in ["", "range: bytes=3-5\r\n"] {
        let (head, body) = ask(one.address, "HEAD /files/hello", headers, "").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-length: 10"), "{head}");
        assert_eq!(body, "");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn nothing_outside_the_directory_and_no_other_method_is_served() {
    let one = served().await;
    symlink("/etc/passwd", one.scratch.0.join("files/link")).unwrap();
    let paths = [
        "/files/../store",
        "/files/%2e%2e/store",
        "/files/link",
        "/files",
        "/store",
        "/",
    ];
    for path in paths {
        let (head, _) = ask(one.address, &format!("GET {path}"), "", "").await;
        assert!(head.starts_with("http/1.1 404"), "{path}: {head}");
    }
    let (head, _) = ask(one.address, "PUT /files/hello", "", "x").await;
    assert!(head.starts_with("http/1.1 405"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_large_file_comes_as_it_is() {
    let one = served().await;
    let content: Vec<u8> = (0..3_000_017_u32).map(|n| b'a' + (n % 26) as u8).collect();
    one.scratch.file("files/large", &content);
    let (head, body) = ask(one.address, "GET /files/large", "", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.as_bytes() == content);
    one.engine.stop().await;
}

#[tokio::test]
async fn a_file_that_shrinks_is_a_broken_answer_and_not_a_whole_one() {
    let one = served().await;
    let path = one.scratch.file("files/shrinking", &vec![b'x'; 8 << 20]);
    let mut stream = TcpStream::connect(one.address).await.unwrap();
    let request = b"GET /files/shrinking HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut first = [0; 1000];
    stream.read_exact(&mut first).await.unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(100))
        .unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.len() < 8 << 20);
    one.engine.stop().await;
}

/// Slow clients take no threads: more of them than there are threads for reading,
/// and the next one is still served.
#[test]
fn clients_that_do_not_read_leave_threads_for_others() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let one = served().await;
        one.scratch.file("files/large", &vec![b'x'; 16 << 20]);
        let mut slow = Vec::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(one.address).await.unwrap();
            let request = b"GET /files/large HTTP/1.1\r\nhost: x\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).await.unwrap();
            slow.push(stream);
        }
        let (head, _) = ask(one.address, "GET /files/hello", "", "").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        one.engine.stop().await;
    });
}
