//! The Ironic API over loopback, through a real engine.

use super::*;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::auth::Basic;
use crate::testbed::{self, Scratch, ask};

struct Served {
    engine: Engine,
    address: SocketAddr,
    _doors: JoinSet<()>,
    _scratch: Scratch,
}

async fn served(auth: impl FnOnce(&Scratch) -> Auth) -> Served {
    let scratch = Scratch::new();
    let clock = Clock::start();
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let api = Api {
        engine: engine.clone(),
        facts: Facts {
            hostname: "box".to_owned(),
            drivers: vec!["ipmi".to_owned()],
            public_endpoint: None,
            agent_http_allowed: true,
            images: Vec::new(),
            started_at: clock.now().wall,
        },
        auth: auth(&scratch),
        clock,
    };
    let mut doors = JoinSet::new();
    let places = http::Places::new(64);
    let waits = http::Waits::default();
    let handler = handler(Arc::new(api));
    http::serve(&mut doors, vec![listener], None, (&places, waits), &handler);
    Served {
        engine,
        address,
        _doors: doors,
        _scratch: scratch,
    }
}

const JSON: &str = "content-type: application/json\r\nx-openstack-ironic-api-version: 1.72\r\n";

async fn beat(one: &Served, node: &str, callback_url: &str) -> (String, String) {
    let body = json!({
        "callback_url": callback_url,
        "agent_token": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "agent_version": "1",
    });
    let line = format!("POST /v1/heartbeat/{node}");
    ask(one.address, &line, JSON, &body.to_string()).await
}

#[tokio::test]
async fn a_node_that_was_acknowledged_can_be_read() {
    let one = served(|_| Auth::Open).await;
    let body = json!({"driver": "ipmi", "name": "n1"}).to_string();
    let (head, body) = ask(one.address, "POST /v1/nodes", JSON, &body).await;
    assert!(head.starts_with("http/1.1 201"), "{head} {body}");
    let (head, body) = ask(one.address, "GET /v1/nodes/n1", JSON, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let node: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(node["provision_state"], "enroll");
    one.engine.stop().await;
    let body = json!({"driver": "ipmi", "name": "n2"}).to_string();
    let (head, _) = ask(one.address, "POST /v1/nodes", JSON, &body).await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
}

#[tokio::test]
async fn strangers_see_the_version_document_and_no_nodes() {
    let one = served(|scratch| {
        let line = format!("admin:{}\n", bcrypt::hash("pw", 4).unwrap());
        let file = scratch.file("users", line.as_bytes());
        Auth::Basic(Arc::new(Basic::new(file)))
    })
    .await;
    let (head, _) = ask(one.address, "GET /", "", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    for headers in ["", "authorization: Basic YWRtaW46d3Jvbmc=\r\n"] {
        let (head, body) = ask(one.address, "GET /v1/nodes", headers, "").await;
        assert!(head.starts_with("http/1.1 401"), "{head}");
        assert!(head.contains("www-authenticate: basic"), "{head}");
        assert!(!body.contains("wrong"), "{body}");
    }
    let headers = "authorization: Basic YWRtaW46cHc=\r\n";
    let (head, _) = ask(one.address, "GET /v1/nodes", headers, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_heartbeat_cannot_send_the_box_to_a_name() {
    let one = served(|_| Auth::Open).await;
    let node = testbed::node_with_agent("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let order = Order::CreateNode(Box::new(node.clone()));
    one.engine.order(order).await.unwrap();
    let id = node.id.to_string();
    let (head, body) = beat(&one, &id, "http://internal.example:80").await;
    assert!(head.starts_with("http/1.1 400"), "{head}");
    assert!(body.contains("not a name"), "{body}");
    assert!(!body.contains("AAAAAAAA"), "{body}");
    let (head, body) = beat(&one, &id, "http://127.0.0.1:9999").await;
    assert!(head.starts_with("http/1.1 202"), "{head} {body}");
    one.engine.stop().await;
}
