//! Tests of metrics, health and events over loopback.

use trivet_model::BoxFault;

use super::*;

impl ServedApi {
    fn raise(&self, fault: BoxFault) {
        let exists = true;
        assert!(self.engine.try_send(RackInput::Fault { fault, exists }));
    }

    /// Raises a fault, and waits until it is in the snapshot and its event in the ring.
    async fn raise_and_wait(&self, url: &str) {
        let (url, why) = (url.to_owned(), "x".to_owned());
        let fault = BoxFault::WebhookFailed { url, why };
        let mut news = self.engine.telemetry().watch_events();
        let before = *news.borrow_and_update();
        self.raise(fault);
        news.wait_for(|newest| *newest > before).await.unwrap();
    }

    /// The whole body of a stream that does not follow.
    async fn events(&self, arguments: &str, headers: &str) -> String {
        let line = format!("GET /trivet/events?follow=false{arguments}");
        let (code, head, body) = status(self, &line, headers, "").await;
        assert_eq!(code, 200, "{body}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        body
    }
}

/// The last id in a stream.
fn last_id(body: &str) -> &str {
    let mut ids = body.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.next_back().unwrap()
}

#[tokio::test]
async fn health_is_open_and_metrics_and_events_are_for_readers() {
    let one = served_api(file_auth).await;
    let (code, _, body) = status(&one, "GET /healthz", "", "").await;
    assert_eq!((code, body.as_str()), (200, "ok\n"));
    for path in ["/metrics", "/trivet/events", "/trivet/events?topics=x"] {
        let (code, ..) = status(&one, &format!("GET {path}"), "", "").await;
        assert_eq!(code, 401, "{path}");
    }
    let (code, head, body) = status(&one, "GET /metrics", WATCHER, "").await;
    assert_eq!(code, 200);
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    for series in [
        "trivet_api_requests_total{method=\"GET\",status=\"401\"} 3\n",
        "trivet_api_requests_total{method=\"GET\",status=\"200\"} 1\n",
        "trivet_nodes{state=\"active\"} 0\n",
        "trivet_build_info{version=\"",
        "process_resident_memory_bytes ",
    ] {
        assert!(body.contains(series), "{series}{body}");
    }
    let (code, _, body) = status(&one, "GET /trivet/events?topics=x", WATCHER, "").await;
    assert_eq!(code, 400);
    assert!(body.contains("Invalid topic"), "{body}");
    one.engine.stop().await;
}

#[tokio::test]
async fn health_is_bad_when_the_engine_has_ended_or_the_store_is_full() {
    let one = served_api(file_auth).await;
    one.engine
        .telemetry()
        .store_refused(Some("the store is full"));
    let (code, _, body) = status(&one, "GET /healthz", "", "").await;
    assert_eq!((code, body.as_str()), (503, "the store is full\n"));
    let one = served_api(file_auth).await;
    one.engine.stop().await;
    let (code, _, body) = status(&one, "GET /healthz", "", "").await;
    assert_eq!((code, body.as_str()), (503, "the engine does not answer\n"));
}

#[tokio::test]
async fn a_client_of_events_resumes_after_its_last_one() {
    let one = served_api(|_| Authenticator::Open).await;
    let first = one.events("", "").await;
    assert!(first.contains("event: ready\n"), "{first}");
    assert!(!first.contains("event: fault"), "only new ones: {first}");
    one.raise_and_wait("a").await;
    one.raise_and_wait("b").await;
    let header = format!("last-event-id: {}\r\n", last_id(&first));
    let resumed = one.events("", &header).await;
    assert_eq!(resumed.matches("event: fault\n").count(), 2, "{resumed}");
    assert_eq!(
        one.events("&kept=true", "")
            .await
            .matches("event: fault\n")
            .count(),
        2
    );
    assert!(
        !one.events("&kept=true&topics=state", "")
            .await
            .contains("event: fault")
    );
    let after = format!("&after={}", last_id(&resumed));
    assert!(!one.events(&after, "").await.contains("event: fault"));
    let restarted = one.events("&after=0123456789abcdef-7", "").await;
    assert!(restarted.contains("event: reset\n"), "{restarted}");
    assert!(
        restarted.contains("\"reason\":\"restarted\""),
        "{restarted}"
    );
    one.engine.stop().await;
}

#[tokio::test]
async fn a_stream_follows_new_events_until_the_client_leaves() {
    let one = served_api(|_| Authenticator::Open).await;
    let mut stream = tokio::net::TcpStream::connect(one.address).await.unwrap();
    let request = "GET /trivet/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let mut piece = [0; 4096];
    for (fault, want) in [("", "event: ready"), ("x", "event: fault")] {
        if !fault.is_empty() {
            one.raise_and_wait(fault).await;
        }
        while !text.contains(want) {
            let count = stream.read(&mut piece).await.unwrap();
            assert_ne!(count, 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    }
    drop(stream);
    let gauge = &one.engine.telemetry().event_clients;
    while gauge.load(std::sync::atomic::Ordering::Relaxed) > 0 {
        tokio::task::yield_now().await;
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn events_can_be_those_of_a_node_that_exists() {
    let one = served_api(|_| Authenticator::Open).await;
    let node = r#"{"driver": "ipmi", "name": "n1"}"#;
    assert_eq!(status(&one, "POST /v1/nodes", "", node).await.0, 201);
    let line = "GET /trivet/events?node=nope";
    let (code, _, body) = status(&one, line, "", "").await;
    assert_eq!(code, 404, "{body}");
    assert_eq!(fault(&body)["faultstring"], "Node nope could not be found.");
    one.raise_and_wait("a").await;
    let of_node = one.events("&kept=true&node=n1", "").await;
    assert!(of_node.contains("event: order"), "{of_node}");
    assert!(!of_node.contains("event: fault"), "{of_node}");
    one.engine.stop().await;
}
