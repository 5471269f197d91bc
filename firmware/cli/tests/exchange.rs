//! Tests of commands over real sockets, against a box that replies from a script.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use clap::Parser;
use serde_json::{Value, json};
use trivet_cli::{ClientCommand, Exit, run_into};

#[derive(Parser)]
struct CommandLine {
    #[command(subcommand)]
    command: ClientCommand,
}

/// A scripted exchange: how the request must start, status and body of the response.
type ScriptedExchange = (&'static str, u16, Value);

/// A box that replies from a script, one connection after the other.
struct ScriptedBox {
    url: String,
    /// The requests that it received, line by line.
    received: JoinHandle<Vec<String>>,
}

/// Wraps an accepted connection, for TLS.
type StreamWrapper = dyn Fn(TcpStream) -> Option<std::boxed::Box<dyn ReadWriteStream>> + Send;

trait ReadWriteStream: Read + Write {}
impl<T: Read + Write> ReadWriteStream for T {}

impl ScriptedBox {
    fn with(exchanges: Vec<ScriptedExchange>) -> Self {
        let plain =
            |stream| Some(std::boxed::Box::new(stream) as std::boxed::Box<dyn ReadWriteStream>);
        Self::wrapped("http", std::boxed::Box::new(plain), exchanges)
    }

    fn wrapped(
        scheme: &str,
        wrap: std::boxed::Box<StreamWrapper>,
        exchanges: Vec<ScriptedExchange>,
    ) -> Self {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("{scheme}://{}", socket.local_addr().unwrap());
        let requests = std::thread::spawn(move || {
            let mut requests = Vec::new();
            for (start, status, body) in exchanges {
                let (stream, _) = socket.accept().unwrap();
                if let Some(mut stream) = wrap(stream) {
                    requests.push(answer(&mut *stream, start, status, &body));
                }
            }
            requests
        });
        Self {
            url,
            received: requests,
        }
    }

    /// Runs a command against it: exit, output, notes, and the requests that the box
    /// received.
    fn run(self, line: &str) -> (Exit, String, String, Vec<String>) {
        let (exit, out, notes) = run(&format!("{line} --url {}", self.url));
        (exit, out, notes, self.received.join().unwrap())
    }
}

/// Reads one request and replies; returns the request as received.
fn answer(stream: &mut dyn ReadWriteStream, start: &str, status: u16, body: &Value) -> String {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut request).unwrap() > 0, "{request}");
    }
    assert!(request.starts_with(start), "wanted {start}, got {request}");
    let length = request
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).unwrap();
    request.push_str(std::str::from_utf8(&sent).unwrap());
    let text = match body {
        Value::Null => String::new(),
        // Text that is not JSON is sent as it is.
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nx-openstack-ironic-api-maximum-version: 1.115\r\n\
         content-length: {}\r\n\r\n{text}",
        text.len()
    )
    .unwrap();
    stream.flush().unwrap();
    request
}

fn run(line: &str) -> (Exit, String, String) {
    let words = std::iter::once("trivet").chain(line.split_whitespace());
    let command = CommandLine::try_parse_from(words).unwrap().command;
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let exit = run_into(command, &mut out, &mut errors);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (exit, text(out), text(errors))
}

fn fault(sentence: &str) -> Value {
    json!({"error_message": json!({"faultcode": "Client", "faultstring": sentence}).to_string()})
}

fn node(state: &str, target: Option<&str>) -> Value {
    json!({"uuid": "u1", "name": "n1", "provision_state": state,
           "target_provision_state": target, "power_state": "power on", "last_error": null})
}

const PUT: &str = "PUT /v1/nodes/n1/states/provision HTTP/1.1\r\n";
const LOOK: &str = "GET /v1/nodes/n1?fields=uuid,name,";
const WORK: &str = "GET /trivet/nodes/u1/progress ";

#[test]
fn a_request_to_a_locked_node_is_retried_and_followed() {
    let locked = fault("Node n1 is locked by host box, please retry after it is done.");
    let exchanges = vec![
        (PUT, 409, locked),
        (PUT, 202, Value::Null),
        (LOOK, 200, node("deploying", Some("active"))),
        (WORK, 404, fault("There is nothing here.")),
        (LOOK, 200, node("wait call-back", Some("active"))),
        (LOOK, 200, node("active", None)),
    ];
    let (exit, out, notes, requests) = ScriptedBox::with(exchanges).run("node deploy n1");
    assert_eq!(
        (exit, out.as_str()),
        (Exit::Fine, "node n1 is active after 0 s\n")
    );
    let notes: Vec<&str> = notes.lines().collect();
    assert_eq!(
        notes,
        [
            "node n1 is busy; trying again for up to 10 s",
            "n1: deploying",
            "n1: wait call-back",
            "n1: active"
        ]
    );
    assert!(
        requests[1].ends_with("{\"target\":\"active\"}"),
        "{}",
        requests[1]
    );
    assert!(requests[1].contains("x-openstack-ironic-api-version: 1.110\r\n"));
    assert!(!requests[1].contains("authorization"));
}

#[test]
fn a_deployment_shows_phase_percent_try_and_time() {
    let work = json!({"uuid": "u1", "doing": "Deploying: loading initrd, 43 %", "percent": 61,
                      "try": 1, "tries_max": 4, "since": "t", "elapsed_ms": 5000});
    let exchanges = vec![
        (PUT, 202, Value::Null),
        (LOOK, 200, node("wait call-back", Some("active"))),
        (WORK, 200, work),
        (LOOK, 200, node("active", None)),
    ];
    let (exit, _, notes, _) = ScriptedBox::with(exchanges).run("node deploy n1");
    assert_eq!(exit, Exit::Fine);
    let want = "n1: wait call-back; 61 %, try 1 of 4, 5 s: loading initrd, 43 %";
    assert_eq!(notes.lines().next(), Some(want));
}

#[test]
fn a_deployment_that_fails_has_code_1() {
    let mut failed = node("deploy failed", Some("active"));
    failed["last_error"] = json!("no disk is large enough");
    let exchanges = vec![(PUT, 202, Value::Null), (LOOK, 200, failed)];
    let (exit, out, notes, _) = ScriptedBox::with(exchanges).run("node deploy n1 --json");
    assert_eq!(exit, Exit::Failed);
    assert!(notes.contains("no disk is large enough"), "{notes}");
    let reported: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(reported["provision_state"], "deploy failed");
}

#[test]
fn a_wait_that_is_too_long_has_code_7() {
    // The last poll is sent when a second has passed: 0, 0.3, 0.6, 0.9 and 1 s.
    let mut exchanges = vec![
        (PUT, 202, Value::Null),
        (LOOK, 200, node("deploying", Some("active"))),
        (WORK, 404, fault("There is nothing here.")),
    ];
    exchanges.extend((0..4).map(|_| (LOOK, 200, node("deploying", Some("active")))));
    let slow = ScriptedBox::with(exchanges);
    let (exit, _, notes) = run(&format!("node deploy n1 --timeout 1 --url {}", slow.url));
    assert_eq!(exit, Exit::TimedOut);
    assert!(notes.contains("still `deploying` after 1 s"), "{notes}");
}

#[test]
fn refusals_have_their_codes() {
    for (status, exit) in [
        (400, Exit::Refused),
        (401, Exit::Unauthorised),
        (403, Exit::Refused),
        (404, Exit::NotFound),
        (409, Exit::Refused),
        (500, Exit::Unreachable),
    ] {
        let exchanges = vec![
            ("GET /trivet/nodes/n1 ", 404, fault("No such path.")),
            ("GET /v1/nodes/n1 ", status, fault("It is so.")),
        ];
        let (got, out, notes, _) = ScriptedBox::with(exchanges).run("node show n1");
        assert_eq!((got, out.as_str()), (exit, ""), "{status}");
        assert!(notes.contains("It is so."), "{status}: {notes}");
    }
}

#[test]
fn an_unreachable_box_has_code_3_and_its_address() {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = socket.local_addr().unwrap();
    drop(socket);
    let (exit, _, notes) = run(&format!("node list --url http://{place}"));
    assert_eq!(exit, Exit::Unreachable);
    assert!(
        notes.contains(&place.to_string()) && notes.contains("--url"),
        "{notes}"
    );
}

#[test]
fn another_http_server_is_not_taken_for_a_box() {
    let page = json!("<html>It works!</html>");
    let (exit, _, notes, _) = ScriptedBox::with(vec![("GET ", 200, page)]).run("node list");
    assert_eq!(exit, Exit::Unreachable);
    assert!(notes.contains("not JSON"), "{notes}");
}

#[test]
fn a_watch_reports_changes_until_all_have_reached_the_goal() {
    let list = |state: &str, target| json!({"nodes": [node(state, target)]});
    let progress = |percent: u64| {
        json!({"progress": [{"uuid": "u1", "doing": "Cleaning: powering on", "percent": percent,
                             "try": 1, "tries_max": 4, "since": "t", "elapsed_ms": 5000}]})
    };
    let exchanges = vec![
        (
            "GET /v1/nodes?fields=",
            200,
            list("cleaning", Some("available")),
        ),
        ("GET /trivet/progress ", 200, progress(27)),
        (
            "GET /v1/nodes?fields=",
            200,
            list("cleaning", Some("available")),
        ),
        ("GET /trivet/progress ", 200, progress(28)),
        ("GET /v1/nodes?fields=", 200, list("available", None)),
    ];
    let (exit, out, _, _) = ScriptedBox::with(exchanges).run("node watch --until available");
    assert_eq!(exit, Exit::Fine);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines[0].contains("n1: cleaning") && lines[1].contains("n1: available"));
    assert!(
        lines[0].contains("27 %, try 1 of 4, 5 s: powering on"),
        "{out}"
    );
}

#[test]
fn images_come_from_the_boxs_own_list() {
    let list = json!({"images": [
        {"name": "a.raw", "size": 2048, "here": 2048, "state": "complete", "sha256": "00ff",
         "format": "raw"},
    ]});
    let exchanges = vec![("GET /trivet/images ", 200, list.clone())];
    let (_, out, _, _) = ScriptedBox::with(exchanges).run("image list");
    assert_eq!(
        out.lines().nth(1),
        Some("a.raw  raw     2.0 KiB  complete  100%    00ff")
    );
    let exchanges = vec![("GET /trivet/images ", 200, list)];
    assert_eq!(
        ScriptedBox::with(exchanges).run("image show b").0,
        Exit::NotFound
    );
    let exchanges = vec![("GET /trivet/images ", 404, Value::Null)];
    let (exit, _, notes, _) = ScriptedBox::with(exchanges).run("image list");
    assert_eq!(exit, Exit::NotFound);
    assert!(notes.contains("does not list its images"), "{notes}");
}

#[test]
fn credentials_are_sent_in_the_header() {
    let file = std::env::temp_dir().join(format!("trivet-cli-secret-{}", std::process::id()));
    std::fs::write(&file, "hunter2\n").unwrap();
    let name = file.to_str().unwrap();
    for (options, want) in [
        (
            format!("--user me --password-file {name}"),
            "Basic bWU6aHVudGVyMg==",
        ),
        (format!("--token-file {name}"), "Bearer hunter2"),
    ] {
        let exchanges = vec![("GET /v1/nodes?", 200, json!({"nodes": []}))];
        let (exit, _, _, requests) =
            ScriptedBox::with(exchanges).run(&format!("node list {options}"));
        assert_eq!(exit, Exit::Fine);
        let header = format!("authorization: {want}\r\n");
        assert!(requests[0].contains(&header), "{}", requests[0]);
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_secret_on_the_command_line_is_not_sent() {
    let (exit, _, notes) = run("node set n1 --driver-info ipmi_password=hunter2");
    assert_eq!(exit, Exit::Usage);
    assert!(
        notes.contains("ipmi_password=@FILE") && !notes.contains("hunter2"),
        "{notes}"
    );
}

/// A certificate for loopback, and a server with it.
fn secure(exchanges: Vec<ScriptedExchange>) -> (ScriptedBox, String) {
    let names = vec!["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let config = Arc::new(config);
    let wrap = move |mut stream: TcpStream| {
        let mut tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).ok()?;
        }
        let stream = rustls::StreamOwned::new(tls, stream);
        Some(std::boxed::Box::new(stream) as std::boxed::Box<dyn ReadWriteStream>)
    };
    let scripted = ScriptedBox::wrapped("https", std::boxed::Box::new(wrap), exchanges);
    (scripted, made.cert.pem())
}

#[test]
fn https_needs_a_trusted_certificate() {
    let exchanges = || vec![("GET /v1/nodes?", 200, json!({"nodes": []}))];
    let (unknown, _) = secure(exchanges());
    let (exit, _, notes, requests) = unknown.run("node list");
    assert_eq!(exit, Exit::Unreachable);
    assert!(notes.contains("--ca FILE"), "{notes}");
    assert!(
        requests.is_empty(),
        "no request is sent to an untrusted box"
    );

    let (any, _) = secure(exchanges());
    assert_eq!(any.run("node list --insecure").0, Exit::Fine);

    let (known, pem) = secure(exchanges());
    let file = std::env::temp_dir().join(format!("trivet-cli-ca-{}", std::process::id()));
    std::fs::write(&file, pem).unwrap();
    let line = format!("node list --ca {}", file.to_str().unwrap());
    assert_eq!(known.run(&line).0, Exit::Fine);
    std::fs::remove_file(&file).unwrap();
}

/// A temporary file with this text, removed when dropped.
struct ArgumentFile(std::path::PathBuf);

impl ArgumentFile {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("trivet-cli-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for ArgumentFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn an_upload_makes_the_record_first_and_then_sends_the_file() {
    let sample = ArgumentFile::new("new", "abc");
    let record = |state: &str| json!({"name": "a.raw", "state": state, "here": 0, "size": null});
    let one = ScriptedBox::with(vec![
        ("GET /trivet/images/a.raw ", 404, fault("none")),
        ("POST /trivet/images ", 201, record("not_cached")),
        ("PUT /trivet/images/a.raw/data ", 200, record("complete")),
    ]);
    let line = format!("image upload a.raw {} --boot-mode uefi", sample.0.display());
    let (exit, out, notes, requests) = one.run(&line);
    assert_eq!(exit, Exit::Fine, "{notes}");
    assert!(out.starts_with("image a.raw is complete after "), "{out}");
    // SHA-256 of abc, from FIPS 180-2.
    assert!(
        requests[1].contains("ba7816bf8f01cfea414140de5dae2223"),
        "{requests:?}"
    );
    assert!(
        requests[1].contains("\"boot_mode\":\"uefi\""),
        "{requests:?}"
    );
    assert!(requests[2].ends_with("\r\n\r\nabc"), "{requests:?}");
    assert!(
        requests[2].contains("content-length: 3\r\n"),
        "{requests:?}"
    );
    assert!(!requests[2].contains("content-range"), "{requests:?}");
}

#[test]
fn an_empty_file_is_refused_before_anything_is_sent() {
    let sample = ArgumentFile::new("empty", "");
    let line = format!("image upload a.raw {}", sample.0.display());
    let (exit, _, notes) = run(&format!("{line} --url http://127.0.0.1:1"));
    assert_eq!(exit, Exit::Usage, "{notes}");
    assert!(notes.contains("is empty"), "{notes}");
}

#[test]
fn an_upload_that_the_box_finds_wrong_is_a_failure() {
    let sample = ArgumentFile::new("wrong", "abc");
    let absent = json!({"name": "a", "state": "not_cached", "here": 0, "size": null});
    let wrong = json!({"name": "a", "state": "failed", "fault": "its SHA-256 is another"});
    let one = ScriptedBox::with(vec![
        ("GET /trivet/images/a ", 200, absent),
        ("PUT /trivet/images/a/data ", 200, wrong),
    ]);
    let (exit, out, notes, _) = one.run(&format!("image upload a {}", sample.0.display()));
    assert_eq!((exit, out.as_str()), (Exit::Failed, ""), "{notes}");
    assert!(notes.contains("its SHA-256 is another"), "{notes}");
}

#[test]
fn an_interrupted_upload_continues() {
    let sample = ArgumentFile::new("on", "abcdef");
    let record = |here: u64| json!({"name": "a", "state": "failed", "here": here, "size": 6});
    let one = ScriptedBox::with(vec![
        ("GET /trivet/images/a ", 200, record(2)),
        ("PUT /trivet/images/a/data ", 400, fault("it broke off")),
        ("GET /trivet/images/a ", 200, record(4)),
        (
            "PUT /trivet/images/a/data ",
            200,
            json!({"state": "complete"}),
        ),
    ]);
    let line = format!("image upload a {} --json", sample.0.display());
    let (exit, out, notes, requests) = one.run(&line);
    assert_eq!(exit, Exit::Fine, "{notes}");
    assert!(
        out.contains("\"complete\"") && notes.contains("it broke off"),
        "{out}{notes}"
    );
    assert!(
        requests[1].contains("content-range: bytes 2-5/6\r\n"),
        "{requests:?}"
    );
    assert!(requests[1].ends_with("\r\n\r\ncdef"), "{requests:?}");
    assert!(
        requests[3].contains("content-range: bytes 4-5/6\r\n"),
        "{requests:?}"
    );
}

#[test]
fn what_the_box_refuses_or_has_is_not_sent_again() {
    let sample = ArgumentFile::new("no", "abc");
    let record = json!({"name": "a", "state": "not_cached", "here": 0, "size": null});
    let one = ScriptedBox::with(vec![
        ("GET /trivet/images/a ", 200, record),
        ("PUT /trivet/images/a/data ", 413, fault("remove b.raw")),
    ]);
    let line = format!("image upload a {}", sample.0.display());
    let (exit, _, notes, _) = one.run(&line);
    assert_eq!(exit, Exit::Refused);
    assert!(notes.contains("remove b.raw"), "{notes}");
    let whole = json!({"name": "a", "state": "complete", "here": 3, "size": 3});
    let one = ScriptedBox::with(vec![("GET /trivet/images/a ", 200, whole)]);
    assert_eq!(one.run(&line).0, Exit::Fine);
    let (exit, _, notes) = run("image upload a /nowhere/file --url http://127.0.0.1:1");
    assert_eq!(exit, Exit::Usage);
    assert!(notes.contains("/nowhere/file cannot be read"), "{notes}");
}
