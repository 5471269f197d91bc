//! The diagnosis of each simulated fault on all surfaces: the API, the commands and the page say
//! the golden texts, before a power cut of the box and after it.
//!
//! The API answers over HTTP from what readers of the simulated box see. The commands are those
//! of the program, and read that API.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use clap::Parser as _;
use serde_json::{Value, json};
use trivet_api::{ApiFacts, ApiOutcome, Request, Response};
use trivet_model::{RackView, SeededRandom, UnixMs};
use trivet_tests_sim::{DIAGNOSED_FAULTS, run_until_diagnosed};

const GOLDEN: &str = include_str!("../golden/diagnosis.txt");

/// The node that has the fault.
const NODE: &str = "node-0";

/// What readers see at a time.
struct FrozenApi {
    view: RackView,
    now: UnixMs,
}

impl FrozenApi {
    fn get(&self, path: &str) -> Response {
        let facts = ApiFacts {
            hostname: "box".to_owned(),
            drivers: vec!["ipmi".to_owned()],
            ..ApiFacts::default()
        };
        let request = Request {
            method: "GET",
            path,
            query: "",
            host: "127.0.0.1",
            scheme: "http",
            version: Some("1.115"),
            openstack_version: None,
            body: b"",
            request_id: "req-test",
        };
        let mut random = SeededRandom::new(1);
        match trivet_api::handle(&request, &self.view, &facts, self.now, &mut random) {
            ApiOutcome::Reply(response) => response,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn json(&self, path: &str) -> Value {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}");
        serde_json::from_slice(&response.body).expect("JSON")
    }

    /// Answers one request.
    fn answer(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        reader.read_line(&mut head).expect("a request");
        let mut line = String::new();
        while reader.read_line(&mut line).expect("a header") > 2 {
            line.clear();
        }
        let response = self.get(head.split(' ').nth(1).expect("a path"));
        let mut answer = format!(
            "HTTP/1.1 {} X\r\ncontent-length: {}\r\nconnection: close\r\n",
            response.status,
            response.body.len()
        );
        for (name, value) in &response.headers {
            answer.extend([name, ": ", value, "\r\n"]);
        }
        let mut stream = reader.into_inner();
        stream.write_all(answer.as_bytes()).expect("it is read");
        stream.write_all(b"\r\n").expect("it is read");
        stream.write_all(&response.body).expect("it is read");
    }

    /// What a command prints, with its words separated by single spaces.
    fn command(&self, words: &[&str]) -> String {
        #[derive(clap::Parser)]
        struct TestedProgram {
            #[command(subcommand)]
            command: trivet_cli::ClientCommand,
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let words = ["trivet"].iter().chain(words);
        let words = words.copied().chain(["--url", &url]);
        let program = TestedProgram::parse_from(words);
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| self.answer(listener.accept().expect("a client").0));
            trivet_cli::run_into(program.command, &mut out, &mut errors);
        });
        assert_eq!(String::from_utf8_lossy(&errors), "");
        let out = String::from_utf8(out).expect("text");
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The lines of a fault in the golden file, by name.
fn golden(fault: &str) -> impl Fn(&str) -> &'static str {
    let (_, rest) = GOLDEN
        .split_once(&format!("## {fault}\n"))
        .expect("a section");
    let section = rest.split("\n\n").next().expect("its lines");
    move |name| {
        let mut lines = section.lines();
        lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .expect("a line")
    }
}

/// All surfaces say the golden texts.
fn check(fault: &str, api: &FrozenApi) {
    let golden = golden(fault);
    let (what, cause, next) = (golden("what"), golden("cause"), golden("next"));
    let (kind, command) = golden("action").split_once(": ").expect("an action");
    let story = api.json(&format!("/trivet/nodes/{NODE}/story"));
    let why = &story["why"];
    let shown = json!({
        "rule": why["rule"], "what": why["sentence"], "cause": why["cause"],
        "next": why["next_action"], "kind": why["action"], "command": why["command"],
    });
    let expected = json!({
        "rule": golden("rule"), "what": what, "cause": cause, "next": next, "kind": kind,
        "command": command,
    });
    assert_eq!(shown, expected, "{fault}");
    let printed = format!("what {what} cause {cause} next {next} command {command}");
    assert_eq!(api.command(&["node", "why", NODE]), printed, "{fault}");
    let reported = api.command(&["node", "story", NODE]);
    assert!(reported.starts_with(&printed), "{fault}: {reported}");
    let status = api.command(&["status"]);
    assert!(status.contains(what), "{fault}: {status}");
    let page = trivet_web::model(&api.view, api.now);
    let card = page.nodes.iter().find(|card| card.name == NODE);
    let advice = card.and_then(|card| card.advice.as_deref());
    assert_eq!(advice, Some(&*format!("{what} {cause} {next}")), "{fault}");
}

#[test]
fn api_commands_and_page_say_the_same_about_each_fault_before_and_after_a_restart() {
    for (fault, _) in DIAGNOSED_FAULTS {
        let report = run_until_diagnosed(fault);
        let (now, before, after) = report.readers.expect("a diagnosis");
        let fault = format!("{fault:?}");
        let before = FrozenApi { view: before, now };
        let after = FrozenApi { view: after, now };
        check(&fault, &before);
        check(&fault, &after);
        let path = format!("/trivet/nodes/{NODE}/story");
        let (old, new) = (before.get(&path), after.get(&path));
        let runs = before.json(&path)["job"]["outcome"] == "running";
        assert!(runs || old.body == new.body, "{fault}: {old:?} {new:?}");
        for path in [
            format!("/v1/nodes/{NODE}/history"),
            "/trivet/audit".to_owned(),
        ] {
            assert_eq!(
                before.get(&path).body,
                after.get(&path).body,
                "{fault}: {path}"
            );
        }
    }
}
