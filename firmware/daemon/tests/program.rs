//! Tests of the program `trivet` as operators and scripts run it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use trivet_bmc_ipmi::IpmiCipherSuite;
use trivet_bmc_ipmi::bmc::{IpmiPrivilege, IpmiSimulator, IpmiSimulatorSetup, IpmiSimulatorUser};
use trivet_sim::SimChassis;

fn trivet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trivet"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    trivet(arguments).output().unwrap()
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

struct ProgramTestDirectory(PathBuf);

impl ProgramTestDirectory {
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

impl Drop for ProgramTestDirectory {
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
    let scratch = ProgramTestDirectory::new("default");
    let printed = run(&["config"]);
    assert!(printed.status.success());
    let file = scratch.file("settings", &String::from_utf8(printed.stdout).unwrap());
    let checked = run(&["check", "--config", &file]);
    assert!(checked.status.success(), "{}", stderr_text(&checked));
}

#[test]
fn a_token_is_printed_with_its_line() {
    let one = run(&["token", "new", "--role", "operator", "--name", "ci"]);
    assert!(one.status.success(), "{}", stderr_text(&one));
    let text = String::from_utf8(one.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0].len()), (2, 43));
    assert!(lines[1].starts_with("ci:operator:"), "{text}");
    let other = run(&["token", "new", "--role", "operator", "--name", "ci"]);
    assert_ne!(text.as_bytes(), other.stdout);
    for arguments in [["--role", "king"], ["--name", "a:b"]] {
        let mut all = vec!["token", "new", "--role", "admin", "--name", "x"];
        all.extend(arguments);
        assert_eq!(run(&all).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_settings_file_that_cannot_be_written_is_a_failure() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = trivet(&["config"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_text(&output).contains("standard output cannot be written"));
}

#[test]
fn every_mistake_is_named_with_its_line_and_the_code_is_2() {
    let scratch = ProgramTestDirectory::new("mistakes");
    let text = "[box]\ndata = 5\n[api]\nlisten = \"nowhere\"\nauth = \"none\"\ncolour = \"red\"\n";
    let file = scratch.file("settings", text);
    for command in ["check", "serve"] {
        let output = run(&[command, "--config", &file]);
        assert_eq!(output.status.code(), Some(2));
        let message = stderr_text(&output);
        for line in [2, 4, 6] {
            assert!(
                message.contains(&format!("{file}:line {line},")),
                "{line}: {message}"
            );
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    for command in ["check", "serve"] {
        let output = run(&[command, "--config", "/nowhere/settings"]);
        assert_eq!(output.status.code(), Some(2));
        let text = stderr_text(&output);
        assert!(text.contains("/nowhere/settings cannot be read"), "{text}");
    }
    assert_eq!(run(&["no-such-command"]).status.code(), Some(2));
}

#[test]
fn a_port_in_use_is_named_and_the_code_is_1() {
    let scratch = ProgramTestDirectory::new("port");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = settings(&scratch.0.join("data"), port);
    let output = run(&["serve", "--config", &scratch.file("settings", &text)]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr_text(&output);
    assert!(message.contains(&format!("port {port}")), "{message}");
    assert!(
        message.contains(&format!("(pid {})", std::process::id())),
        "{message}"
    );
}

/// A running `trivet serve`, and its output so far.
struct ServingProcess {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
    api: String,
}

/// Sends a signal.
fn send(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status().unwrap();
    assert!(sent.success());
}

/// A test that fails leaves no process behind.
impl Drop for ServingProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServingProcess {
    fn start(config: &str) -> Self {
        Self::wait_until_listening(Self::spawn(config))
    }

    fn spawn(config: &str) -> Child {
        let mut command = trivet(&["serve", "--config", config]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until it logs where it listens.
    fn wait_until_listening(mut child: Child) -> Self {
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

    fn request(&self, line: &str, body: &str) -> String {
        self.request_with_headers(line, "", body)
    }

    /// With headers, each with its end of line.
    fn request_with_headers(&self, line: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.api).unwrap();
        let length = body.len();
        write!(
            stream,
            "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\nx-openstack-ironic-api-version: 1.72\r\n\
             {headers}content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Its output, up to a line with these words.
    fn read_until(&mut self, words: &str) -> String {
        let mut message = String::new();
        loop {
            let from = message.len();
            assert!(self.lines.read_line(&mut message).unwrap() > 0, "{message}");
            if message[from..].contains(words) {
                return message;
            }
        }
    }

    fn signal(mut self, name: &str) -> (std::process::ExitStatus, String) {
        send(&self.child, name);
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

#[test]
fn what_was_acknowledged_survives_an_orderly_and_a_sudden_end() {
    let scratch = ProgramTestDirectory::new("serve");
    let data = scratch.0.join("data");
    let config = scratch.file("settings", &settings(&data, free_port()));
    let first = ServingProcess::start(&config);
    let answer = first.request("POST /v1/nodes", r#"{"driver": "ipmi", "name": "n1"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let (status, rest) = first.signal("-TERM");
    assert_eq!(status.code(), Some(0));
    assert!(rest.contains("stopped"), "{rest}");
    let second = ServingProcess::start(&config);
    let answer = second.request("POST /v1/nodes", r#"{"driver": "ipmi", "name": "n2"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    second.signal("-KILL");
    let third = ServingProcess::start(&config);
    for name in ["n1", "n2"] {
        let answer = third.request(&format!("GET /v1/nodes/{name}"), "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    third.signal("-INT");
}

/// A token, and a file with its line.
fn token_file(scratch: &ProgramTestDirectory, name: &str) -> (String, String) {
    let made = run(&["token", "new", "--role", "admin", "--name", name]);
    let made = String::from_utf8(made.stdout).unwrap();
    let (token, line) = made.trim_end().split_once('\n').unwrap();
    (token.to_owned(), scratch.file(name, &format!("{line}\n")))
}

#[test]
fn sighup_takes_new_tokens_and_a_settings_file_with_mistakes_changes_nothing() {
    let scratch = ProgramTestDirectory::new("hangup");
    let plain = settings(&scratch.0.join("data"), free_port());
    let (old, old_file) = token_file(&scratch, "old");
    let (new, new_file) = token_file(&scratch, "new");
    let with = |file: &str| {
        let auth = format!("auth = \"tokens\"\ntokens = \"{file}\"");
        plain.replace("auth = \"none\"", &auth)
    };
    let config = scratch.file("settings", &with(&old_file));
    let mut serving = ServingProcess::start(&config);
    let check = |serving: &ServingProcess, token: &str, status: &str| {
        let header = format!("x-auth-token: {token}\r\n");
        let answer = serving.request_with_headers("GET /v1/nodes", &header, "");
        let wanted = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&wanted), "{wanted}: {answer}");
    };
    check(&serving, &old, "200");
    check(&serving, &new, "401");
    scratch.file("settings", &with(&new_file));
    send(&serving.child, "-HUP");
    serving.read_until("users and tokens are reloaded");
    check(&serving, &new, "200");
    check(&serving, &old, "401");
    let mistaken = with(&old_file).replace("[api]\n", "[api]\ncolour = \"red\"\n");
    scratch.file("settings", &mistaken);
    send(&serving.child, "-HUP");
    let message = serving.read_until("the settings are unchanged");
    assert!(message.contains("api.colour"), "{message}");
    check(&serving, &new, "200");
    check(&serving, &old, "401");
    let (status, _) = serving.signal("-TERM");
    assert_eq!(status.code(), Some(0));
}

/// The start is blocked by a certificate file that is a pipe.
#[test]
fn a_sighup_during_the_start_does_not_end_the_process() {
    let scratch = ProgramTestDirectory::new("early");
    let data = scratch.0.join("data");
    let pipe = scratch.0.join("ca");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let text = settings(&data, free_port());
    let text = format!("{text}[images]\nca = \"{}\"\n", pipe.display());
    let child = ServingProcess::spawn(&scratch.file("settings", &text));
    // It opens when the box reads, which is before the reload task exists.
    let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    send(&child, "-HUP");
    let authority = std::fs::read(data.join("certs/ca.pem")).unwrap();
    writer.write_all(&authority).unwrap();
    drop(writer);
    let mut serving = ServingProcess::wait_until_listening(child);
    serving.read_until("the server certificate is renewed");
    let answer = serving.request("GET /v1/nodes", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (status, _) = serving.signal("-TERM");
    assert_eq!(status.code(), Some(0));
}

const PASSWORD: &str = "sealed-hunter2-4711";

/// A BMC that accepts `admin` with this password, for as long as the test runs.
fn bmc() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut bmc = IpmiSimulator::new(IpmiSimulatorSetup {
        users: vec![IpmiSimulatorUser {
            name: b"admin".to_vec(),
            password: PASSWORD.as_bytes().to_vec(),
            limit: IpmiPrivilege::Administrator,
        }],
        guid: [1; 16],
        kg: None,
        suites: vec![IpmiCipherSuite::Sha256],
    });
    std::thread::spawn(move || {
        let (mut case, mut chance) = (SimChassis::default(), trivet_model::SeededRandom::new(1));
        let mut buffer = [0; 2048];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let number = peer.port().into();
            let bytes = &buffer[..length];
            if let Some(answer) = bmc.datagram(number, bytes, &mut case, &mut chance) {
                let _ = socket.send_to(&answer, peer);
            }
        }
    });
    port
}

impl ServingProcess {
    /// Requests `manage` and waits until the BMC has accepted the box, or not.
    fn managed(&self, name: &str) -> String {
        let target = format!("PUT /v1/nodes/{name}/states/provision");
        let answer = self.request(&target, r#"{"target": "manage"}"#);
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
        for _ in 0..100_000 {
            let answer = self.request(&format!("GET /v1/nodes/{name}"), "");
            if !answer.contains(r#""provision_state":"verifying""#) {
                return answer;
            }
        }
        panic!("{name} is being verified for ever");
    }
}

/// A box with two nodes: one with the right password, one with another.
fn box_with_secrets(scratch: &ProgramTestDirectory) -> (String, ServingProcess) {
    let data = scratch.0.join("data");
    let config = scratch.file("settings", &settings(&data, free_port()));
    let one = ServingProcess::start(&config);
    let port = bmc();
    for (name, password) in [("n1", PASSWORD), ("n2", "wrong-hunter3-4711")] {
        let body = format!(
            r#"{{"driver": "ipmi", "name": "{name}", "driver_info": {{"ipmi_address": "127.0.0.1",
            "ipmi_port": {port}, "ipmi_username": "admin", "ipmi_password": "{password}"}}}}"#
        );
        let answer = one.request("POST /v1/nodes", &body);
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    (config, one)
}

/// Whether the file contains the bytes.
fn file_contains(file: &Path, part: &str) -> bool {
    let bytes = std::fs::read(file).unwrap();
    let mut windows = bytes.windows(part.len());
    windows.any(|window| window == part.as_bytes())
}

#[test]
fn a_password_is_not_in_the_store_s_file_and_works_after_a_sudden_end() {
    let scratch = ProgramTestDirectory::new("sealed");
    let (config, one) = box_with_secrets(&scratch);
    one.signal("-KILL");
    let store = scratch.0.join("data/store");
    assert!(
        file_contains(&store, "ipmi_username"),
        "the search finds things"
    );
    // The last one is Base64 of the middle of the password.
    for part in [PASSWORD, "hunter2", "hunter3", "bGVkLWh1bnRlcjI"] {
        assert!(!file_contains(&store, part), "{part} stands in the store");
    }
    let key = std::fs::metadata(scratch.0.join("data/store.key")).unwrap();
    assert_eq!((key.len(), key.permissions().mode() & 0o777), (32, 0o600));

    let again = ServingProcess::start(&config);
    let answer = again.managed("n1");
    assert!(
        answer.contains(r#""provision_state":"manageable""#),
        "{answer}"
    );
    assert!(answer.contains(r#""ipmi_password":"******""#), "{answer}");
    let answer = again.managed("n2");
    assert!(answer.contains(r#""provision_state":"enroll""#), "{answer}");
    assert!(!answer.contains(r#""last_error":null"#), "{answer}");
    again.signal("-TERM");
}

#[test]
fn a_key_file_that_is_lost_exposed_or_foreign_is_named_and_the_store_left_alone() {
    let scratch = ProgramTestDirectory::new("keys");
    let (config, one) = box_with_secrets(&scratch);
    one.signal("-TERM");
    let (store, key) = (
        scratch.0.join("data/store"),
        scratch.0.join("data/store.key"),
    );
    let (records, right) = (std::fs::read(&store).unwrap(), std::fs::read(&key).unwrap());
    let refused = |want: &str| {
        let output = run(&["serve", "--config", &config]);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr_text(&output);
        assert!(text.contains(want), "{text}");
        assert!(text.contains(key.to_str().unwrap()), "{text}");
        assert_eq!(std::fs::read(&store).unwrap(), records);
    };
    let mode = |mode| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o644);
    refused("chmod 600");
    mode(0o600);
    std::fs::write(&key, &right[..31]).unwrap();
    refused("31 bytes");
    std::fs::write(&key, [7; 32]).unwrap();
    refused("restore the key file");
    std::fs::remove_file(&key).unwrap();
    refused("its key is missing");
    assert!(!key.exists(), "no other key was put in its place");
    std::fs::write(&key, &right).unwrap();
    mode(0o600);
    let again = ServingProcess::start(&config);
    let answer = again.request("GET /v1/nodes/n1", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    again.signal("-TERM");
}

/// Overwrites the first sector of a file that contains the text with garbage.
fn damage(file: &Path, text: &str) {
    let mut bytes = std::fs::read(file).unwrap();
    let mut windows = bytes.windows(text.len());
    let at = windows.position(|window| window == text.as_bytes());
    let sector = at.unwrap() / 512 * 512;
    bytes[sector..sector + 512].fill(0xa5);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_sector_costs_one_node_and_repair_starts_the_box_with_all_others() {
    let scratch = ProgramTestDirectory::new("damaged");
    let data = scratch.0.join("data");
    let config = scratch.file("settings", &settings(&data, free_port()));
    let one = ServingProcess::start(&config);
    for name in ["first-node", "second-node", "third-node", "fourth-node"] {
        let body = format!(r#"{{"driver": "ipmi", "name": "{name}"}}"#);
        let answer = one.request("POST /v1/nodes", &body);
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    let busy = run(&["store", "check", "--config", &config]);
    assert_eq!(busy.status.code(), Some(1));
    assert!(stderr_text(&busy).contains("in use by another process"));
    one.signal("-TERM");
    let place = ["--data", data.to_str().unwrap()];
    let store = |command: &'static str| run(&[["store", command].as_slice(), &place].concat());
    assert_eq!(store("check").status.code(), Some(0));

    damage(&data.join("store"), "second-node");
    let refused = run(&["serve", "--config", &config]);
    assert_eq!(refused.status.code(), Some(1));
    let reported = stderr_text(&refused);
    assert!(
        reported.contains("trivet store repair --data"),
        "{reported}"
    );
    let checked = store("check");
    assert_eq!(checked.status.code(), Some(1));
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(text.contains("bytes at offset"), "{text}");
    let repaired = store("repair");
    assert_eq!(
        repaired.status.code(),
        Some(0),
        "{}",
        stderr_text(&repaired)
    );
    assert!(data.join("store.damaged-1").exists());
    assert_eq!(store("check").status.code(), Some(0));

    let again = ServingProcess::start(&config);
    for name in ["first-node", "third-node", "fourth-node"] {
        let answer = again.request(&format!("GET /v1/nodes/{name}"), "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let answer = again.request("GET /v1/nodes/second-node", "");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    again.signal("-TERM");
}

/// The reader of the log may disconnect; the box continues.
#[test]
fn a_box_whose_log_reader_disconnected_continues() {
    let scratch = ProgramTestDirectory::new("reader");
    let config = scratch.file("settings", &settings(&scratch.0.join("data"), free_port()));
    let mut one = ServingProcess::start(&config);
    let (reader, _writer) = std::io::pipe().unwrap();
    drop(std::mem::replace(
        &mut one.lines,
        BufReader::new(std::process::ChildStderr::from(std::os::fd::OwnedFd::from(
            reader,
        ))),
    ));
    // Each request of an unauthenticated caller makes a line, which is not read.
    let answer = one.request("POST /v1/nodes", r#"{"driver": "ipmi", "name": "n1"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let uuid = answer.split("\"uuid\":\"").nth(1).map(|rest| &rest[..36]);
    let heartbeat = format!("POST /v1/heartbeat/{}", uuid.unwrap());
    for _ in 0..3 {
        let answer = one.request(&heartbeat, r#"{"callback_url": "http://127.0.0.1:1"}"#);
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let answer = one.request("GET /v1/nodes/n1", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let pid = one.child.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert_eq!(one.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_small_demo_ends_with_every_node_active() {
    let scratch = ProgramTestDirectory::new("demo");
    let data = scratch.0.to_str().unwrap();
    let output = run(&["demo", "--once", "--nodes", "2", "--data", data]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}{}", stderr_text(&output));
    assert!(text.contains("2 of 2 nodes active"), "{text}");
    assert_eq!(text.matches("  equal\n").count(), 2, "{text}");
    // The same directory again would put another rack in the place of this one.
    let output = run(&["demo", "--once", "--nodes", "2", "--data", data]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr_text(&output).contains("earlier demo"),
        "{}",
        stderr_text(&output)
    );
}

#[test]
fn a_demo_needs_at_least_one_machine() {
    for nodes in ["0", "2001", "x"] {
        let output = run(&["demo", "--nodes", nodes]);
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn exit_codes_and_completion_need_no_box() {
    for arguments in [&["help", "exit-codes"][..], &["exit-codes"]] {
        let output = run(arguments);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("\n  7    the node did not reach"), "{text}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completion", shell]);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for word in ["boot-device", "serve", "exit-codes"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&["completion", "tcsh"]).status.code(), Some(2));
}

#[test]
fn commands_use_the_api_of_a_box() {
    let scratch = ProgramTestDirectory::new("client");
    let config = scratch.file("settings", &settings(&scratch.0.join("data"), free_port()));
    let serving = ServingProcess::start(&config);
    let url = format!("http://{}", serving.api);
    let send = |arguments: &[&str]| {
        let mut command = trivet(arguments);
        command.env("TRIVET_URL", &url).env_remove("TRIVET_USER");
        command.env_remove("TRIVET_TOKEN").output().unwrap()
    };
    let made = send(&["node", "create", "--driver", "ipmi", "--name", "n1"]);
    assert!(made.status.success(), "{}", stderr_text(&made));
    let list = String::from_utf8(send(&["node", "list"]).stdout).unwrap();
    assert!(list.starts_with("NAME  UUID "), "{list}");
    assert!(list.lines().any(|line| line.starts_with("n1 ")), "{list}");
    assert_eq!(send(&["node", "show", "n2"]).status.code(), Some(4));
    assert_eq!(send(&["node", "deploy", "n1"]).status.code(), Some(5));
    serving.signal("-TERM");
    let away = send(&["node", "list"]);
    assert_eq!(away.status.code(), Some(3));
    assert!(stderr_text(&away).contains(&url), "{}", stderr_text(&away));
}
