//! The program `trivet` as people and scripts run it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn trivet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trivet"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    trivet(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trivet-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.local_addr().unwrap().port()
}

/// Settings of a small box.
fn settings(data: &Path, api_port: u16) -> String {
    let data = data.display();
    let panel_port = free_port();
    format!(
        "[box]\ndata = \"{data}\"\nname = \"box\"\nstore_mib = 16\n\
         [api]\nlisten = \"127.0.0.1:{api_port}\"\nauth = \"none\"\n\
         [panel]\nlisten = \"127.0.0.1:{panel_port}\"\ntls = true\n\
         [hardware]\ntypes = [\"ipmi\"]\n"
    )
}

#[test]
fn the_default_file_has_no_mistakes() {
    let scratch = Scratch::new("default");
    let printed = run(&["config"]);
    assert!(printed.status.success());
    let file = scratch.file("settings", &String::from_utf8(printed.stdout).unwrap());
    let checked = run(&["check", "--config", &file]);
    assert!(checked.status.success(), "{}", said(&checked));
}

#[test]
fn a_settings_file_that_cannot_be_written_is_no_success() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = trivet(&["config"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("standard output cannot be written"));
}

#[test]
fn every_mistake_is_named_with_its_line_and_the_code_is_2() {
    let scratch = Scratch::new("mistakes");
    let text = "[box]\ndata = 5\n[api]\nlisten = \"nowhere\"\nauth = \"none\"\ncolour = \"red\"\n";
    let file = scratch.file("settings", text);
    for command in ["check", "serve"] {
        let output = run(&[command, "--config", &file]);
        assert_eq!(output.status.code(), Some(2));
        let said = said(&output);
        for line in [2, 4, 6] {
            assert!(
                said.contains(&format!("{file}:line {line},")),
                "{line}: {said}"
            );
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    for command in ["check", "serve"] {
        let output = run(&[command, "--config", "/nowhere/settings"]);
        assert_eq!(output.status.code(), Some(2));
        let said = said(&output);
        assert!(said.contains("/nowhere/settings cannot be read"), "{said}");
    }
    assert_eq!(run(&["no-such-command"]).status.code(), Some(2));
}

#[test]
fn a_port_in_use_is_named_and_the_code_is_1() {
    let scratch = Scratch::new("port");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = settings(&scratch.0.join("data"), port);
    let output = run(&["serve", "--config", &scratch.file("settings", &text)]);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains(&format!("port {port}")), "{said}");
    assert!(
        said.contains(&format!("(pid {})", std::process::id())),
        "{said}"
    );
}

/// A box that serves, and what it said so far.
struct Serving {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
    api: String,
}

/// A test that fails leaves no box behind.
impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(config: &str) -> Self {
        let mut child = trivet(&["serve", "--config", config])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut api = String::new();
        while !api.contains("Ironic API at http://") {
            api.clear();
            assert!(
                lines.read_line(&mut api).unwrap() > 0,
                "it says where it listens"
            );
        }
        let api = api.trim().trim_end_matches('/').rsplit('/').next().unwrap();
        let api = api.to_owned();
        Self { child, lines, api }
    }

    fn ask(&self, line: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.api).unwrap();
        let length = body.len();
        write!(
            stream,
            "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\nx-openstack-ironic-api-version: 1.72\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(mut self, name: &str) -> (std::process::ExitStatus, String) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

#[test]
fn what_was_acknowledged_survives_an_orderly_and_a_sudden_end() {
    let scratch = Scratch::new("serve");
    let data = scratch.0.join("data");
    let config = scratch.file("settings", &settings(&data, free_port()));
    let first = Serving::start(&config);
    let answer = first.ask("POST /v1/nodes", r#"{"driver": "ipmi", "name": "n1"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let (status, rest) = first.signal("-TERM");
    assert_eq!(status.code(), Some(0));
    assert!(rest.contains("stopped"), "{rest}");
    let second = Serving::start(&config);
    let answer = second.ask("POST /v1/nodes", r#"{"driver": "ipmi", "name": "n2"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    second.signal("-KILL");
    let third = Serving::start(&config);
    for name in ["n1", "n2"] {
        let answer = third.ask(&format!("GET /v1/nodes/{name}"), "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    third.signal("-INT");
}

/// Whoever reads the lines may go away: the box does not.
#[test]
fn a_box_whose_reader_went_away_goes_on() {
    let scratch = Scratch::new("reader");
    let config = scratch.file("settings", &settings(&scratch.0.join("data"), free_port()));
    let mut one = Serving::start(&config);
    let (reader, _writer) = std::io::pipe().unwrap();
    drop(std::mem::replace(
        &mut one.lines,
        BufReader::new(std::process::ChildStderr::from(std::os::fd::OwnedFd::from(
            reader,
        ))),
    ));
    // An unknown caller makes a line each time, which nobody reads.
    let answer = one.ask("POST /v1/nodes", r#"{"driver": "ipmi", "name": "n1"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let uuid = answer.split("\"uuid\":\"").nth(1).map(|rest| &rest[..36]);
    let beat = format!("POST /v1/heartbeat/{}", uuid.unwrap());
    for _ in 0..3 {
        let answer = one.ask(&beat, r#"{"callback_url": "http://127.0.0.1:1"}"#);
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let answer = one.ask("GET /v1/nodes/n1", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let pid = one.child.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert_eq!(one.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_small_demo_ends_with_every_node_active() {
    let scratch = Scratch::new("demo");
    let data = scratch.0.to_str().unwrap();
    let output = run(&["demo", "--once", "--nodes", "2", "--data", data]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}{}", said(&output));
    assert!(text.contains("2 of 2 nodes active"), "{text}");
    assert_eq!(text.matches("  equal\n").count(), 2, "{text}");
    // The same directory again would be another rack in the place of this one.
    let output = run(&["demo", "--once", "--nodes", "2", "--data", data]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("earlier demo"), "{}", said(&output));
}

#[test]
fn a_demo_needs_at_least_one_machine() {
    for nodes in ["0", "513", "x"] {
        let output = run(&["demo", "--nodes", nodes]);
        assert_eq!(output.status.code(), Some(2));
    }
}
