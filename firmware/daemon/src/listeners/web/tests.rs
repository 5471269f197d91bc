//! Tests of the web page over loopback.

use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::testbed::{self, TestbedDirectory, http_request};

struct ServedWebPage {
    engine: Engine,
    address: std::net::SocketAddr,
    _listeners: JoinSet<()>,
    _scratch: TestbedDirectory,
}

async fn served_page() -> ServedWebPage {
    let scratch = TestbedDirectory::new();
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    let places = http::ConnectionLimit::new(1024);
    let handler = handler(engine.clone(), DaemonClock::start(), HostNames::default());
    let waits = http::ClientTimeouts::default();
    http::serve(&mut tasks, vec![listener], None, (&places, waits), &handler);
    ServedWebPage {
        engine,
        address,
        _listeners: tasks,
        _scratch: scratch,
    }
}

async fn listening(address: std::net::SocketAddr) -> (TcpStream, [u8; 12]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /panel/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    (stream, first)
}

#[tokio::test]
async fn the_page_its_data_and_nothing_else_are_served_for_reading() {
    let one = served_page().await;
    let (head, body) = http_request(one.address, "GET /", "", "").await;
    for header in [
        "content-security-policy: default-src 'none';",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(head.contains(header), "{head}");
    }
    assert!(!head.contains("unsafe-inline"), "{head}");
    assert!(body.contains("<html"), "{body}");
    for (line, kind) in [
        ("GET /panel/page.js", "text/javascript"),
        ("GET /panel/page.css", "text/css"),
    ] {
        let (head, body) = http_request(one.address, line, "", "").await;
        assert!(head.contains(kind) && head.contains("nosniff"), "{head}");
        assert!(!body.is_empty());
    }
    let (head, body) = http_request(one.address, "GET /panel/nodes.json", "", "").await;
    assert!(head.contains("application/json"), "{head}");
    let _: serde_json::Value = serde_json::from_str(&body).unwrap();
    for (line, status) in [
        ("GET /else", "404"),
        ("POST /", "405"),
        ("HEAD /panel/events", "200"),
    ] {
        let (head, _) = http_request(one.address, line, "", "").await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_page_receives_a_new_node() {
    let one = served_page().await;
    let (mut stream, first) = listening(one.address).await;
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut node = testbed::node();
    node.name = Some("newcomer".to_owned());
    let order = trivet_model::RackOrder::CreateNode(Box::new(node));
    one.engine.order(testbed::caller(), order).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("newcomer") {
        let length = stream.read(&mut buffer).await.unwrap();
        assert!(length > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn pages_have_a_bound_and_a_closed_one_frees_its_permit() {
    let one = served_page().await;
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        let (stream, first) = listening(one.address).await;
        assert_eq!(&first, b"HTTP/1.1 200");
        open.push(stream);
    }
    let (_, first) = listening(one.address).await;
    assert_eq!(&first, b"HTTP/1.1 503");
    open.pop();
    loop {
        let (_stream, first) = listening(one.address).await;
        if &first == b"HTTP/1.1 200" {
            break;
        }
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn the_page_is_refused_under_a_foreign_host_name() {
    let one = served_page().await;
    let request = "GET /panel/nodes.json HTTP/1.1\r\nhost: attacker.example\r\n\
                   connection: close\r\n\r\n";
    let answer = testbed::raw(one.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
