//! Compares the simulated stock agent with recorded replies of the real one, version 13.0.0:
//! every recorded request is sent again, and every reply compared. Values that differ between
//! runs are placeholders in the recording.

use serde_json::{Map, Value, json};
use trivet_model::{MacAddr, Tick};
use trivet_tests_sim::ipa::{
    PORT, SimIpa, SimIpaOutput, SimIpaReply, SimIpaRequest, SimIpaRequestKind, SimIpaSetup,
    SimIpaState,
};

const RECORDED: &str = include_str!("../recorded/ipa-13.0.0.json");
const TOKEN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const AGENT: &str = "https://192.0.2.10:9999";

fn recorded(by: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(RECORDED).expect("the recording is JSON");
    all.into_iter().filter(|one| one["by"] == by).collect()
}

/// The machine of the recording: it had no disk.
fn agent(inspects: bool) -> SimIpa {
    let inventory = json!({
        "interfaces": [{"name": "eth0", "mac_address": "52:54:00:aa:bb:01",
            "ipv4_address": "192.0.2.10", "ipv6_address": null, "has_carrier": true,
            "lldp": null, "vendor": null, "product": null, "client_id": null,
            "biosdevname": null, "speed_mbps": null, "pci_address": null, "driver": null}],
        "cpu": {"model_name": "x", "frequency": "", "count": 2, "architecture": "x86_64",
            "flags": ["fpu", "vme"], "socket_count": 1},
        "disks": [], "memory": {"total": 1, "physical_mb": null},
        "bmc_address": null, "bmc_v6address": null,
        "system_vendor": {"product_name": "", "serial_number": "", "manufacturer": "",
            "firmware": {"vendor": "", "version": "", "build_date": ""}},
        "boot": {"current_boot_mode": "bios", "pxe_interface": null}, "hostname": "h",
    });
    SimIpa::new(
        Tick(0),
        SimIpaSetup {
            macs: vec![MacAddr([0x52, 0x54, 0, 0xaa, 0xbb, 1])],
            inventory,
            inspects,
            token: None,
            host: "192.0.2.10".to_owned(),
            port: PORT,
            seed: 3,
        },
    )
}

/// Whether a text matches a text with placeholders.
fn text_fits(want: &str, got: &str, ids: &mut Map<String, Value>) -> bool {
    if let Some(id) = want.strip_prefix("<id ") {
        return ids.entry(id).or_insert_with(|| got.into()) == got;
    }
    let want = want.replace("<agent>", AGENT).replace("<token>", TOKEN);
    match want.as_str() {
        "<string>" | "<text>" => true,
        "<certificate>" => got.starts_with("-----BEGIN CERTIFICATE-----\n"),
        // A gzip header in base64.
        "<base64 of tar.gz>" => got.starts_with("H4sI"),
        _ => match want.split_once("<text>") {
            Some((before, after)) => got.starts_with(before) && got.ends_with(after),
            None => want == got,
        },
    }
}

/// The difference between a recorded value and one of the simulated agent, if there is one.
fn difference(want: &Value, got: &Value, ids: &mut Map<String, Value>) -> Option<String> {
    let differs = || Some(format!("{got} instead of {want}"));
    match (want, got) {
        (Value::String(want), Value::String(got)) if text_fits(want, got, ids) => None,
        (Value::String(want), got) => match want.as_str() {
            "<integer>" | "<seconds>" if got.is_number() => None,
            "<integer or null>" if got.is_number() || got.is_null() => None,
            "<boolean>" if got.is_boolean() => None,
            _ => differs(),
        },
        (Value::Array(want), Value::Array(got)) if *want == [json!("<string>")] => {
            let texts = got.iter().all(Value::is_string);
            if texts { None } else { differs() }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            let mut pairs = want.iter().zip(got);
            pairs.find_map(|(want, got)| difference(want, got, ids))
        }
        (Value::Object(want), Value::Object(got)) if want.len() == got.len() => {
            let mut fields = want.iter();
            fields.find_map(|(key, want)| {
                let got = got.get(key).unwrap_or(&json!("nothing")).clone();
                difference(want, &got, ids).map(|why| format!("{key}: {why}"))
            })
        }
        _ if want == got => None,
        _ => differs(),
    }
}

#[track_caller]
fn check(name: &str, want: &Value, got: &Value, ids: &mut Map<String, Value>) {
    if let Some(why) = difference(want, got, ids) {
        panic!("{name}: {why}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("the recording has a text here")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("the recording has a number here")
}

/// The query of a recorded request, as sent.
fn query(request: &Value) -> String {
    let fields = request["query"].as_object().expect("every request has one");
    let pairs: Vec<_> = fields
        .iter()
        .map(|(key, value)| {
            let value = text(value).replace("<token>", TOKEN);
            let value = value.replace("<address>", "52%3A54%3A00%3Aaa%3Abb%3A01");
            format!("{key}={value}")
        })
        .collect();
    pairs.join("&")
}

fn bytes(body: &Value) -> Vec<u8> {
    if body.is_null() {
        return Vec::new();
    }
    body.to_string().replace("<token>", TOKEN).into_bytes()
}

fn read(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    let text = String::from_utf8_lossy(body).into_owned();
    serde_json::from_slice(body).unwrap_or(Value::String(text))
}

/// Waits until the next request of the agent.
fn next_request(ipa: &mut SimIpa, now: &mut Tick) -> SimIpaRequest {
    loop {
        *now = ipa.wake_at().expect("it has no further request").max(*now);
        let outs = ipa.next(*now);
        let request = outs.into_iter().find_map(|out| match out {
            SimIpaOutput::Request(request) => Some(request),
            _ => None,
        });
        if let Some(request) = request {
            return request;
        }
    }
}

/// Plays the recorded box to an agent; the length of each pause is checked too.
fn replay_start(ipa: &mut SimIpa, now: &mut Tick, exchanges: &[Value]) {
    for exchange in exchanges {
        let name = text(&exchange["name"]);
        if name == "heartbeat, forced" {
            let body = json!({"name": "flow.start_flow", "params": {"flow": []}});
            let target = format!("/v1/commands/?agent_token={TOKEN}");
            ipa.request(*now, "POST", &target, body.to_string().as_bytes());
        }
        let since = *now;
        let sent_request = next_request(ipa, now);
        let (request, mut ids) = (&exchange["request"], Map::new());
        let query = query(request);
        let mark = if query.is_empty() { "" } else { "?" };
        let path = format!("{}{mark}{query}", text(&request["path"]));
        assert_eq!(sent_request.path_and_query, path, "{name}");
        assert_eq!(sent_request.method, request["method"], "{name}");
        let version = &request["headers"]["X-OpenStack-Ironic-API-Version"];
        assert_eq!(json!(sent_request.version), *version, "{name}");
        let want = &request["body"];
        check(name, want, &read(&sent_request.body), &mut ids);
        if let Some(pause_s) = exchange["pause_s"].as_array() {
            let took_ms = now.since_ms(since);
            let within = |at: usize| number(&pause_s[at]) * 1000;
            assert!(
                (within(0)..=within(1) + 1).contains(&took_ms),
                "{name}: {took_ms}"
            );
        }
        let answer = &exchange["answer"];
        let status = number(&answer["status"]) as u16;
        ipa.handle_response(
            *now,
            sent_request.kind,
            Some((status, &bytes(&answer["body"]))),
        );
    }
}

#[test]
fn the_agent_sends_the_recorded_requests() {
    let all = recorded("agent");
    let of_boot = |boot: u64| -> Vec<_> {
        let of = all.iter().filter(|one| one["boot"] == boot);
        of.cloned().collect()
    };
    let (first, second) = (of_boot(1), of_boot(2));
    assert_eq!(first.len() + second.len(), all.len());
    replay_start(&mut agent(false), &mut Tick(0), &first);
    let mut masked = agent(true);
    replay_start(&mut masked, &mut Tick(0), &second);
    assert_eq!(
        second.last().unwrap()["then"],
        "it neither listens nor sends heartbeats"
    );
    assert_eq!(masked.state(), SimIpaState::Stuck);
    assert!(!masked.serves());
}

/// The reply to a caller that waits for the result.
fn wait_for_result(ipa: &mut SimIpa, now: &mut Tick, reply: SimIpaReply) -> SimIpaReply {
    let Some(id) = &reply.awaits else {
        return reply;
    };
    while !ipa.has_ended(id) {
        let request = next_or_done(ipa, now, id);
        if let Some(what) = request {
            ipa.handle_response(*now, what, Some((202, b"")));
        }
    }
    ipa.result(id)
}

fn next_or_done(ipa: &mut SimIpa, now: &mut Tick, id: &str) -> Option<SimIpaRequestKind> {
    while !ipa.has_ended(id) {
        *now = ipa.wake_at()?.max(*now);
        for out in ipa.next(*now) {
            if let SimIpaOutput::Request(request) = out {
                return Some(request.kind);
            }
        }
    }
    None
}

#[test]
fn the_agent_sends_the_recorded_replies() {
    let (mut ipa, mut now, mut ids) = (agent(false), Tick(0), Map::new());
    let first: Vec<_> = recorded("agent");
    let first: Vec<_> = first.into_iter().filter(|one| one["boot"] == 1).collect();
    replay_start(&mut ipa, &mut now, &first[..5]);
    let mut compared = 0;
    for exchange in recorded("box") {
        let name = exchange["name"].as_str().unwrap();
        let (request, want) = (&exchange["request"], &exchange["answer"]);
        let mut path = request["path"].as_str().unwrap().to_owned();
        if let Some((before, id)) = path.clone().split_once("<id ") {
            path = format!("{before}{}", ids[id].as_str().unwrap());
        }
        let target = format!("{path}?{}", query(request));
        let raw = request["raw"].as_str().map(|raw| raw.as_bytes().to_vec());
        let body = raw.unwrap_or_else(|| bytes(&request["body"]));
        let method = request["method"].as_str().unwrap();
        let reply = ipa.request(now, method, target.trim_end_matches('?'), &body);
        let reply = wait_for_result(&mut ipa, &mut now, reply);
        assert_eq!(reply.status, want["status"], "{name}");
        check_headers(name, &want["headers"], &reply);
        if want["body"] == "<html>" {
            assert!(reply.body.starts_with(b"<!doctype html>"), "{name}");
        } else {
            check(name, &want["body"], &read(&reply.body), &mut ids);
        }
        compared += 1;
    }
    assert!(compared >= 55, "the recording has become short: {compared}");
}

/// Length, date and server are set by the HTTP server; the order of methods is random in
/// Python.
fn check_headers(name: &str, want: &Value, reply: &SimIpaReply) {
    assert_eq!(want["Content-Type"], reply.content_type, "{name}");
    let location = want["Location"].as_str().map(|text| {
        let text = text.replace("<agent>", AGENT);
        text.replace("<token>", TOKEN)
    });
    assert_eq!(location, reply.location, "{name}");
    let sorted = |methods: &str| {
        let mut methods: Vec<_> = methods.split(", ").map(str::to_owned).collect();
        methods.sort_unstable();
        methods
    };
    let allow = want["Allow"].as_str().map(sorted);
    assert_eq!(allow, reply.allow.map(sorted), "{name}");
}
