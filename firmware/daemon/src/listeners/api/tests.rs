//! Tests of the Ironic API over loopback, with a real engine.

mod enrolment;
mod telemetry;
mod upload;

use super::*;
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::info;

use crate::log::captured;
use crate::testbed::{self, TestbedDirectory, http_request};

struct ServedApi {
    api: Arc<ApiService>,
    engine: Engine,
    address: SocketAddr,
    notes: Arc<Mutex<Vec<String>>>,
    listeners: JoinSet<()>,
    scratch: TestbedDirectory,
}

async fn served_api(auth: impl FnOnce(&TestbedDirectory) -> Authenticator) -> ServedApi {
    let scratch = TestbedDirectory::new();
    let clock = DaemonClock::start();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&notes);
    let settings = testbed::settings(&scratch.0);
    let (engine, cache) = testbed::engine_with_cache(settings, &scratch.0, move |output| {
        if let trivet_rack::RackOutput::Note { note, .. } = output {
            sink.lock().unwrap().push(note.kind.to_string());
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let api = Arc::new(ApiService {
        engine: engine.clone(),
        facts: ApiFacts {
            hostname: "box".to_owned(),
            drivers: vec!["ipmi".to_owned()],
            public_endpoint: None,
            inspector: false,
            agent_http_allowed: true,
            agent_missing: false,
            agent_iso: false,
            images: Vec::new(),
            started_at: clock.now().wall,
        },
        auth: auth(&scratch),
        clock,
        cache,
        any_agent_address: true,
        hosts: HostNames::default(),
        authority: None,
        refusals: RefusalLog::new(clock.now().tick),
        observed: ApiTelemetry::new(false),
        logs: AgentLogStore::at(scratch.0.join("logs")),
    });
    let mut tasks = JoinSet::new();
    let places = http::ConnectionLimit::new(64);
    let waits = http::ClientTimeouts::default();
    let handler = handler(Arc::clone(&api));
    http::serve(&mut tasks, vec![listener], None, (&places, waits), &handler);
    ServedApi {
        api,
        engine,
        address,
        notes,
        listeners: tasks,
        scratch,
    }
}

const JSON: &str = "content-type: application/json\r\nx-openstack-ironic-api-version: 1.72\r\n";

async fn heartbeat(one: &ServedApi, node: &str, callback_url: &str) -> (String, String) {
    let body = json!({
        "callback_url": callback_url,
        "agent_token": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "agent_version": "1",
    });
    let line = format!("POST /v1/heartbeat/{node}");
    http_request(one.address, &line, JSON, &body.to_string()).await
}

#[tokio::test]
async fn a_node_that_was_acknowledged_can_be_read() {
    let one = served_api(|_| Authenticator::Open).await;
    let body = json!({"driver": "ipmi", "name": "n1"}).to_string();
    let (head, body) = http_request(one.address, "POST /v1/nodes", JSON, &body).await;
    assert!(head.starts_with("http/1.1 201"), "{head} {body}");
    let (head, body) = http_request(one.address, "GET /v1/nodes/n1", JSON, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let node: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(node["provision_state"], "enroll");
    one.engine.stop().await;
    let body = json!({"driver": "ipmi", "name": "n2"}).to_string();
    let (head, _) = http_request(one.address, "POST /v1/nodes", JSON, &body).await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
}

/// Users ann (an operator) and admin with the password `pw`, and a reader's token.
fn file_auth(scratch: &TestbedDirectory) -> Authenticator {
    let hash = bcrypt::hash("pw", 4).unwrap();
    let lines = format!("admin:{hash}\nann:{hash}:operator\n");
    let users = scratch.file("users", lines.as_bytes());
    let digest = ring::digest::digest(&ring::digest::SHA256, b"look");
    let hex: Vec<String> = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let line = format!("watcher:reader:{}\n", hex.concat());
    let tokens = scratch.file("tokens", line.as_bytes());
    Authenticator::from_files(Some(&users), Some(&tokens), DaemonClock::start())
}

const ADMIN: &str = "authorization: Basic YWRtaW46cHc=\r\n";
const ANN: &str = "authorization: Basic YW5uOnB3\r\n";
const WATCHER: &str = "authorization: Bearer look\r\n";

async fn status(one: &ServedApi, line: &str, headers: &str, body: &str) -> (u16, String, String) {
    let (head, body) = http_request(one.address, line, &format!("{JSON}{headers}"), body).await;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let id = head
        .lines()
        .find(|line| line.starts_with("x-openstack-request-id: req-"));
    assert!(id.is_some(), "{line}: every answer has an id: {head}");
    let id = id.unwrap_or_default().trim_start_matches("x-");
    assert!(head.lines().any(|line| line == id), "{line}: {head}");
    (code.unwrap_or(0), head, body)
}

/// The inner document of an error.
fn fault(body: &str) -> Value {
    let outer: Value = serde_json::from_str(body).unwrap();
    serde_json::from_str(outer["error_message"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn roles_decide_who_may_do_what() {
    let one = served_api(file_auth).await;
    let new = r#"{"driver": "ipmi", "name": "n1"}"#;
    let raw = "POST /v1/nodes/n1/vendor_passthru/send_raw";
    for (headers, line, body, want) in [
        (WATCHER, "GET /v1/nodes", "", 200),
        (WATCHER, "POST /v1/nodes", new, 403),
        (ANN, "POST /v1/nodes", new, 201),
        (WATCHER, "DELETE /v1/nodes/n1", "", 403),
        (ANN, raw, "{}", 403),
        (ANN, "DELETE /v1/runbooks/x", "", 403),
        (ANN, "DELETE /v1/nodes/n1", "", 204),
    ] {
        let (code, head, body) = status(&one, line, headers, body).await;
        assert_eq!(code, want, "{line}: {body}");
        if code == 403 {
            let text = fault(&body)["faultstring"].to_string();
            assert!(text.contains("needs the role"), "{text}");
            assert!(head.contains("x-openstack-ironic-api-maximum-version"));
        }
    }
    let (code, _, body) = status(&one, raw, ADMIN, "{}").await;
    assert_ne!((code, body.contains("needs the role")), (403, true));
    one.engine.stop().await;
}

#[tokio::test]
async fn each_change_is_noted_with_its_caller() {
    let one = served_api(file_auth).await;
    let id = "req-01234567-89ab-cdef-0123-456789abcdef";
    let headers = format!("{ANN}x-openstack-request-id: {id}\r\n");
    let new = r#"{"driver": "ipmi", "name": "n1"}"#;
    let (code, head, _) = status(&one, "POST /v1/nodes", &headers, new).await;
    assert_eq!(code, 201);
    assert!(!head.contains(id), "the answer's id is our own: {head}");
    let bad = format!("{ANN}x-openstack-request-id: req-x\r\n");
    let provide = r#"{"target": "provide"}"#;
    let line = "PUT /v1/nodes/n1/states/provision";
    assert_eq!(status(&one, line, &bad, provide).await.0, 400);
    status(&one, "GET /v1/nodes", ANN, "").await;
    one.engine.stop().await;
    let notes = one.notes.lock().unwrap().clone();
    let begin = "create node, requested by ann at 127.0.0.1 (POST /v1/nodes, req-";
    assert!(notes[0].starts_with(begin), "{notes:?}");
    assert!(notes[0].ends_with(&format!(" of {id})")), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("req-x")));
    assert!(notes.len() <= 2, "reads are not noted: {notes:?}");
}

#[tokio::test]
async fn each_refused_write_is_in_the_audit_and_counted() {
    let one = served_api(file_auth).await;
    let node = r#"{"driver": "ipmi", "name": "n1"}"#;
    assert_eq!(status(&one, "POST /v1/nodes", ANN, node).await.0, 201);
    let cases = [
        (
            ANN,
            "POST /v1/nodes",
            "{}",
            400,
            "'driver' is a required property",
        ),
        (
            ANN,
            "PATCH /v1/nodes/n2",
            "[]",
            404,
            "Node n2 could not be found.",
        ),
        (ANN, "POST /v1/nodes", node, 409, "already exists"),
        (ANN, "PUT /v1/nodes/n1/nothing", "", 404, "could not find"),
        (
            WATCHER,
            "DELETE /v1/nodes/n1",
            "",
            403,
            "needs the role operator",
        ),
        (
            ANN,
            "DELETE /v1/runbooks/x",
            "",
            403,
            "needs the role admin",
        ),
    ];
    for (number, (headers, line, body, want, why)) in cases.into_iter().enumerate() {
        let (code, _, body) = status(&one, line, headers, body).await;
        assert_eq!(code, want, "{line}: {body}");
        let entry = last_of_audit(&one, number + 2).await;
        assert_eq!((&*entry.request_line, &*entry.order), (line, "request"));
        let refused = entry.refused.as_deref().unwrap();
        assert!(refused.contains(why), "{line}: {refused}");
        assert_eq!(entry.node.is_some(), line.contains("/n1"), "{line}");
    }
    for (headers, line, want) in [
        (ANN, "GET /v1/nodes/n2", 404),
        ("", "DELETE /v1/nodes/n1", 401),
        ("", "POST /v1/heartbeat/n1", 400),
    ] {
        assert_eq!(status(&one, line, headers, "").await.0, want);
    }
    assert_eq!(status(&one, "DELETE /v1/nodes/n1", ANN, "").await.0, 204);
    let entry = last_of_audit(&one, cases.len() + 2).await;
    assert_eq!(entry.order, "delete node", "neither reads nor strangers");
    let (_, _, metrics) = status(&one, "GET /metrics", WATCHER, "").await;
    let counted = "trivet_orders_total{order=\"request\",result=\"refused\"} 6\n";
    assert!(metrics.contains(counted), "{metrics}");
    one.engine.stop().await;
}

/// The newest entry of the audit, once it has this many.
async fn last_of_audit(one: &ServedApi, count: usize) -> Arc<trivet_model::story::AuditEntry> {
    let mut views = one.engine.watch();
    let view = views
        .wait_for(|view| view.audit.len() >= count)
        .await
        .unwrap();
    assert_eq!(view.audit.len(), count);
    Arc::clone(&view.audit.get_max().unwrap().1)
}

#[tokio::test]
async fn a_client_that_guesses_passwords_gets_retry_after() {
    let one = served_api(file_auth).await;
    let wrong = "authorization: Basic YWRtaW46d3Jvbmc=\r\n";
    for _ in 0..5 {
        let (code, head, _) = status(&one, "GET /v1/nodes", wrong, "").await;
        assert_eq!(code, 401);
        assert!(head.contains("www-authenticate: bearer"), "{head}");
    }
    let (code, head, body) = status(&one, "GET /v1/nodes", ADMIN, "").await;
    assert_eq!(code, 429);
    assert!(head.contains("\r\nretry-after: "), "{head}");
    let message = fault(&body);
    assert!(message["description"].to_string().contains("try again in"));
    assert_eq!(status(&one, "GET /v1", ADMIN, "").await.0, 200, "discovery");
    assert_eq!(status(&one, "GET /v1/nodes", WATCHER, "").await.0, 200);
    one.engine.stop().await;
}

#[tokio::test]
async fn a_body_that_says_it_is_too_long_is_refused_at_once() {
    let one = served_api(|_| Authenticator::Open).await;
    let length = trivet_api::BODY_BYTES_MAX + 1;
    let request = format!(
        "POST /v1/nodes HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n"
    );
    let mut stream = tokio::net::TcpStream::connect(one.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("x-openstack-request-id: req-"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(fault(body)["title"], "Content Too Large");
    one.engine.stop().await;
}

/// Most clients send their whole body before they read a response.
#[tokio::test]
async fn a_client_that_sends_too_much_still_receives_the_reason() {
    let one = served_api(|_| Authenticator::Open).await;
    let body = " ".repeat(trivet_api::BODY_BYTES_MAX + 1);
    let (code, _, message) = status(&one, "POST /v1/nodes", "", &body).await;
    assert_eq!(code, 413);
    assert_eq!(fault(&message)["code"], 413);
    one.engine.stop().await;
}

#[tokio::test]
async fn nonsense_is_refused_in_ironics_form() {
    let one = served_api(|_| Authenticator::Open).await;
    let deep = "[".repeat(100_000);
    for body in ["\u{fffd}", "{", deep.as_str()] {
        let (code, _, message) = status(&one, "POST /v1/nodes", "", body).await;
        assert_eq!(code, 400, "{message}");
        assert!(fault(&message).is_object());
    }
    let (code, ..) = status(&one, "GET /v1/nodes/%ff%fe", "", "").await;
    assert!((400..500).contains(&code), "{code}");
    one.engine.stop().await;
}

#[test]
fn request_ids_of_clients_are_checked() {
    assert!(is_request_id("req-01234567-89ab-CDEF-0123-456789abcdef"));
    for text in [
        "",
        "req-",
        "01234567-89ab-cdef-0123-456789abcdef",
        "req-01234567-89ab-cdef-0123-456789abcdeg",
        "req-0123456789abcdef0123456789abcdef0000",
        "req-01234567-89ab-cdef-0123-456789abcdef0",
    ] {
        assert!(!is_request_id(text), "{text}");
    }
}

#[tokio::test]
async fn unauthenticated_clients_see_the_version_document_and_no_nodes() {
    let one = served_api(file_auth).await;
    let (head, _) = http_request(one.address, "GET /", "", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    for headers in ["", "authorization: Basic YWRtaW46d3Jvbmc=\r\n"] {
        let (head, body) = http_request(one.address, "GET /v1/nodes", headers, "").await;
        assert!(head.starts_with("http/1.1 401"), "{head}");
        assert!(head.contains("www-authenticate: basic"), "{head}");
        assert!(!body.contains("wrong"), "{body}");
    }
    let headers = "authorization: Basic YWRtaW46cHc=\r\n";
    let (head, _) = http_request(one.address, "GET /v1/nodes", headers, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    one.engine.stop().await;
}

#[tokio::test]
async fn a_heartbeat_cannot_send_the_box_to_a_name() {
    let one = served_api(|_| Authenticator::Open).await;
    let node = testbed::node_with_agent("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let order = RackOrder::CreateNode(Box::new(node.clone()));
    one.engine.order(testbed::caller(), order).await.unwrap();
    let id = node.id.to_string();
    let (head, body) = heartbeat(&one, &id, "http://internal.example:80").await;
    assert!(head.starts_with("http/1.1 400"), "{head}");
    assert!(body.contains("not a name"), "{body}");
    assert!(!body.contains("AAAAAAAA"), "{body}");
    let (head, body) = heartbeat(&one, &id, "http://127.0.0.1:9999").await;
    assert!(head.starts_with("http/1.1 202"), "{head} {body}");
    one.engine.stop().await;
}

/// Which of two concurrent requests won; the other must get a conflict.
async fn race(one: &ServedApi, line: &str, bodies: [Value; 2]) -> usize {
    let [first, second] = bodies.map(|body| body.to_string());
    let (first, second) = tokio::join!(
        status(one, line, "", &first),
        status(one, line, "", &second)
    );
    let won = usize::from(first.0 >= 300);
    let (winner, loser) = if won == 0 {
        (first, second)
    } else {
        (second, first)
    };
    assert!(winner.0 < 300, "{line}: nobody won: {}", winner.2);
    assert_eq!(loser.0, 409, "{line}: {}", loser.2);
    let message = fault(&loser.2);
    assert_eq!(message["faultcode"], "Client");
    assert!(message["faultstring"].is_string(), "{message}");
    won
}

#[tokio::test]
async fn of_two_writers_one_wins_and_the_other_gets_a_conflict() {
    let one = served_api(|_| Authenticator::Open).await;
    for round in 0..40 {
        let name = format!("n{round}");
        // Each node has its own BMC: a second node with the same BMC would fail at
        // once.
        let bmc = format!("127.0.1.{}", round + 1);
        let info = json!({"ipmi_address": bmc, "ipmi_port": 9, "ipmi_username": "a",
                          "ipmi_password": "b"});
        let new = |writer: usize| {
            json!({"driver": "ipmi", "name": name, "driver_info": info,
                   "extra": {"writer": writer}})
        };
        let made = race(&one, "POST /v1/nodes", [new(0), new(1)]).await;
        let instance = |writer: usize| format!("00000000-0000-4000-8000-{writer:06}{round:06}");
        let patch = |writer: usize| {
            json!([{"op": "add", "path": "/instance_uuid", "value": instance(writer)},
                   {"op": "add", "path": "/extra/patch", "value": writer}])
        };
        let line = format!("PATCH /v1/nodes/{name}");
        let taken = race(&one, &line, [patch(0), patch(1)]).await;
        let line = format!("PUT /v1/nodes/{name}/states/provision");
        let manage = json!({"target": "manage"});
        race(&one, &line, [manage.clone(), manage]).await;
        let view = one.engine.view();
        let node = &view.node(&name).unwrap().node;
        assert_eq!(node.extra["writer"], json!(made));
        assert_eq!(node.extra["patch"], json!(taken));
        assert_eq!(node.instance_uuid, Some(instance(taken)));
    }
    one.engine.stop().await;
}

#[tokio::test]
async fn a_write_needs_a_json_body_and_no_page_of_another_site() {
    let one = served_api(|_| Authenticator::Open).await;
    let body = "{\"driver\": \"ipmi\"}";
    for (headers, status) in [
        ("content-type: text/plain\r\n", "415"),
        ("content-type: application/x-www-form-urlencoded\r\n", "415"),
        ("origin: http://attacker.example\r\n", "403"),
        ("origin: null\r\n", "403"),
        ("origin: http://localhost\r\n", "201"),
        ("", "201"),
    ] {
        let (head, reply) = http_request(one.address, "POST /v1/nodes", headers, body).await;
        assert!(
            head.starts_with(&format!("http/1.1 {status}")),
            "{headers} {head} {reply}"
        );
        if status == "415" {
            assert!(reply.contains("application/json"), "{reply}");
        }
    }
}

#[tokio::test]
async fn an_open_api_refuses_a_foreign_host_name() {
    let one = served_api(|_| Authenticator::Open).await;
    let request =
        |host: &str| format!("GET /v1/nodes HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    for (host, status) in [
        ("attacker.example:6385", "403"),
        ("127.0.0.1", "200"),
        ("[::1]", "200"),
    ] {
        let answer = testbed::raw(one.address, &request(host)).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{host} {answer}"
        );
    }
}

#[test]
fn a_flood_of_refused_heartbeats_writes_no_more_lines_than_the_log_allows() {
    let log = RefusalLog::new(Tick(0));
    let refused = |now: u64| {
        captured(|| {
            if log.allows(Tick(now)) {
                info!("refused");
            }
        })
    };
    let total: usize = (0..10_000).map(|_| refused(0).len()).sum();
    assert!(total > 0 && total <= 1000, "{total}");
    let lines = refused(60_000);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let left_out = format!("{} lines about requests of machines", 10_000 - total);
    assert!(lines[0].contains(&left_out), "{lines:?}");
    assert_eq!(lines[1], "trivet: refused");
    assert_eq!(refused(60_000), ["trivet: refused"], "logged once");
}

#[tokio::test]
async fn refused_heartbeats_are_left_out_of_the_log_once_its_allowance_is_used() {
    let one = served_api(|_| Authenticator::Open).await;
    // So late that the clock of the box does not restore the allowance.
    let late = Tick(1 << 50);
    let mut allowed = 0;
    while one.api.refusals.allows(late) {
        allowed += 1;
    }
    assert!(allowed > 0);
    let node = NodeId::random(&mut DaemonEntropy::new());
    for body in ["{", "[]", "{\"callback_url\": 5}"] {
        let what = format!("POST /v1/heartbeat/{node}");
        let (head, _) = http_request(one.address, &what, JSON, body).await;
        assert!(head.starts_with("http/1.1 400"), "{head}");
    }
    let lines = captured(|| assert!(one.api.refusals.allows(late.after_ms(1000))));
    assert!(lines[0].starts_with("trivet: 4 lines about"), "{lines:?}");
}
