//! A webhook with a receiver over a real socket.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::testbed::{self, TestbedDirectory};

/// Accepts one request and answers with this status. Returns its head, in small letters, and its
/// body.
async fn receive(listener: &TcpListener, status: u16) -> (String, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap();
        assert_ne!(count, 0, "the request is cut short");
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_ascii_lowercase();
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        if length.and_then(|length| length.parse().ok()) == Some(body.len()) {
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            return (head, body.to_owned());
        }
    }
}

fn settings(url: String, secret_file: Option<std::path::PathBuf>) -> WebhookSettings {
    WebhookSettings {
        url,
        topics: vec![EventTopic::Fault],
        secret_file,
        ca: None,
    }
}

fn raise(engine: &Engine, fault: BoxFault, exists: bool) {
    assert!(engine.try_send(RackInput::Fault { fault, exists }));
}

#[tokio::test]
async fn an_event_is_signed_and_repeated_until_it_is_accepted() {
    let scratch = TestbedDirectory::new();
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks/x", listener.local_addr().unwrap());
    let file = scratch.file("secret", b"Jefe\n");
    let webhook = Webhook::open(&settings(url, Some(file))).unwrap();
    assert!(!webhook.shown.contains("hooks"), "{}", webhook.shown);
    let clock = DaemonClock::start();
    let running = tokio::spawn(run(webhook, engine.clone(), clock, "box".to_owned()));
    raise(&engine, BoxFault::AgentMissing, true);
    let (head, body) = receive(&listener, 500).await;
    assert!(head.starts_with("post /hooks/x http/1.1\r\n"), "{head}");
    let signed = format!(
        "x-trivet-signature-256: {}",
        signature(b"Jefe", body.as_bytes())
    );
    assert!(head.contains(&signed), "{head}");
    let json: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["event"]["fault"], "agent_missing");
    assert_eq!(json["box"], "box");
    let (_, again) = receive(&listener, 204).await;
    assert_eq!(again, body);
    raise(&engine, BoxFault::AgentMissing, false);
    let (_, body) = receive(&listener, 204).await;
    assert!(body.contains("fault_cleared"), "{body}");
    running.abort();
    engine.stop().await;
}

#[tokio::test]
async fn a_webhook_that_keeps_failing_is_a_fault_until_it_works() {
    let scratch = TestbedDirectory::new();
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let webhook = Webhook::open(&settings(url, None)).unwrap();
    let clock = DaemonClock::start();
    let running = tokio::spawn(run(webhook, engine.clone(), clock, "box".to_owned()));
    raise(&engine, BoxFault::AgentMissing, true);
    let mut view = engine.watch();
    for _ in 0..3 {
        receive(&listener, 503).await;
    }
    let failing = view
        .wait_for(|view| {
            view.faults
                .keys()
                .any(|fault| fault.name() == "webhook_failed")
        })
        .await;
    drop(failing.unwrap());
    // Another reason replaces the first one.
    receive(&listener, 410).await;
    let other = view
        .wait_for(|view| {
            let mut faults = view.faults.keys().map(ToString::to_string);
            view.faults.len() == 2 && faults.any(|fault| fault.contains("410"))
        })
        .await;
    drop(other.unwrap());
    receive(&listener, 200).await;
    let works = view.wait_for(|view| view.faults.len() == 1).await;
    drop(works.unwrap());
    running.abort();
    engine.stop().await;
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let scratch = TestbedDirectory::new();
    let open = |secret: &str| {
        let url = "http://127.0.0.1:1/".to_owned();
        let opened = Webhook::open(&settings(url, Some(scratch.0.join(secret))));
        opened.err().map(|error| format!("{error:#}"))
    };
    scratch.file("empty", b"\n");
    scratch.file("good", b"secret");
    assert!(open("absent").unwrap().contains("webhook.secret_file"));
    assert!(open("empty").unwrap().contains("openssl rand"));
    assert_eq!(open("good"), None);
    let mut secure = settings("https://127.0.0.1:1/".to_owned(), None);
    secure.ca = Some(scratch.0.join("absent"));
    let error = Webhook::open(&secure).err().unwrap();
    assert!(format!("{error:#}").contains("webhook.ca"));
}
