//! Vendor methods: their list, their arguments, their orders.

use trivet_model::order::LookupResult;
use trivet_model::{OrderOutcome, OrderRefusal, ProvisionState, RefusalKind};

use super::*;
use crate::Request;
use crate::access;
use crate::testing::{ApiBench, get, node_id, send};

fn bench() -> ApiBench {
    ApiBench::with(ProvisionState::Manageable)
}

fn post<'a>(path: &'a str, body: &'a str) -> Request<'a> {
    send("POST", path, body)
}

const RAW: &str = "/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru?method=send_raw";
const RESET: &str = "/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru/bmc_reset";
const AGENT: &str = "/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru/agent_command";

#[track_caller]
fn becomes(request: &Request<'_>, want: VendorMethod) {
    let (order, then) = bench().order(request);
    let node = node_id(1);
    assert_eq!(order, RackOrder::Vendor { node, method: want });
    assert_eq!(then, ResponsePlan::CommandReply);
}

fn raw_order(netfn: u8, command: u8, data: &[u8]) -> VendorMethod {
    VendorMethod::Bmc(PowerOrder::Raw {
        netfn,
        command,
        data: RawBytes::new(data).unwrap(),
    })
}

#[test]
fn methods_are_described_as_ironic_does() {
    let mut bench = bench();
    let path = "/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru/methods";
    let listed = bench.reply(&get(path)).value();
    let names: Vec<&String> = listed.as_object().unwrap().keys().collect();
    assert_eq!(names, ["agent_command", "bmc_reset", "send_raw"]);
    let keys: Vec<&String> = listed["send_raw"].as_object().unwrap().keys().collect();
    let want = [
        "async",
        "attach",
        "description",
        "http_methods",
        "require_exclusive_lock",
    ];
    assert_eq!(keys, want);
    assert_eq!(listed["send_raw"]["http_methods"], json!(["POST"]));
    bench.change(|node| node.driver = "fake-hardware".into());
    let listed = bench.reply(&get(path)).value();
    assert_eq!(listed.as_object().unwrap().len(), 1);
    bench.change(|node| {
        node.driver_info
            .insert("agent_legacy_api".into(), json!(true));
    });
    assert!(bench.reply(&get(path)).value()["heartbeat"].is_object());
}

#[test]
fn every_vendor_has_the_methods_of_the_bmc() {
    let mut bench = bench();
    bench.change(|node| {
        node.attributes
            .set("vendor_interface", Some(json!("no-vendor")))
            .unwrap();
    });
    let message = bench.refuses(&post(RESET, "{}"), 400);
    assert_eq!(message, "No handler for method bmc_reset");
}

#[test]
fn unknown_methods_and_methods_without_post_are_refused_like_ironic() {
    let bench = bench();
    let message = bench.refuses(
        &get("/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru?method=dance"),
        400,
    );
    assert_eq!(message, "No handler for method dance");
    let message = bench.refuses(&send("PUT", RESET, "{}"), 400);
    assert_eq!(message, "The method bmc_reset does not support HTTP PUT");
    let message = bench.refuses(
        &post(
            "/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru",
            "",
        ),
        400,
    );
    assert_eq!(message, "Missing mandatory parameter: method");
    bench.refuses(&post("/v1/nodes/other/vendor_passthru/send_raw", ""), 404);
    let message = bench.refuses(&get("/v1/drivers/ipmi/vendor_passthru/lookup"), 400);
    assert_eq!(message, "The method lookup does not support HTTP GET");
    bench.refuses(&post("/v1/drivers/nonesuch/vendor_passthru/x", ""), 404);
}

#[test]
fn methods_are_for_admins_and_reading_of_them_for_readers() {
    for path in [
        AGENT,
        RESET,
        "/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru",
    ] {
        assert_eq!(access("POST", path), Access::Admin, "{path}");
    }
    let methods = "/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru/methods";
    assert_eq!(access("GET", methods), Access::Reader);
    for path in [
        "/v1/nodes/00000000-0000-4000-8000-000000000001/vendor_passthru/heartbeat",
        "/v1/drivers/agent_ipmitool/vendor_passthru/lookup",
    ] {
        assert_eq!(access("POST", path), Access::Agent, "{path}");
        assert_eq!(access("PUT", path), Access::Admin, "{path}");
    }
}

#[test]
fn raw_bytes_become_an_order() {
    becomes(
        &post(RAW, "{\"raw_bytes\": \"0x06 0x01\"}"),
        raw_order(6, 1, &[]),
    );
    let body = "{\"raw_bytes\": \" 0x0  0xB 0xff\"}";
    becomes(&post(RAW, body), raw_order(0, 11, &[0xff]));
}

#[test]
fn other_bytes_are_refused() {
    let long = "0x00 ".repeat(RAW_BYTES_MAX + 3);
    for text in [
        "",
        " ",
        "0x00",
        "6 1",
        "0x06 0x001",
        "0x06 0x",
        "0x06 0x+1",
        "0x07 0x01",
        "0x40 0x01",
        "0x06,0x01",
        "0X06 0x01",
        &long,
    ] {
        let body = json!({ "raw_bytes": text }).to_string();
        bench().refuses(&post(RAW, &body), 400);
    }
    for body in [
        "",
        "{}",
        "[]",
        "{\"raw_bytes\": [6, 1]}",
        "{\"raw_bytes\": \"0x6 0x1\", \"x\": 1}",
    ] {
        bench().refuses(&post(RAW, body), 400);
    }
}

#[test]
fn a_bmc_reset_is_warm_by_default() {
    let reset = |warm| VendorMethod::Bmc(PowerOrder::BmcReset { warm });
    becomes(&post(RESET, ""), reset(true));
    becomes(&post(RESET, "{\"warm\": false}"), reset(false));
    becomes(&post(RESET, "{\"warm\": \"False\"}"), reset(false));
    bench().refuses(&post(RESET, "{\"warm\": 7}"), 400);
}

#[test]
fn an_agents_command_is_passed_on() {
    let body = "{\"command\": \"standby.sync\", \"params\": {\"a\": 1}, \"wait\": true}";
    let method = VendorMethod::Agent {
        command: "standby.sync".into(),
        params: json!({"a": 1}).as_object().unwrap().clone(),
        wait: true,
    };
    becomes(&post(AGENT, body), method);
    let long = format!("{{\"command\": \"a.{}\"}}", "b".repeat(COMMAND_BYTES_MAX));
    let large = format!("{{\"command\": \"a.b\"{}}}", " ".repeat(METHOD_BYTES_MAX));
    let mut deep = String::from("{\"command\": \"a.b\", \"params\": {\"x\": ");
    deep += &"[".repeat(100);
    deep += &"]".repeat(100);
    deep += "}}";
    for body in [
        "{}",
        "{\"command\": \"sync\"}",
        "{\"command\": \"a.b/c\"}",
        "{\"command\": \".b\"}",
        "{\"command\": \"a.b\", \"params\": []}",
        "{\"command\": \"a.b\", \"x\": 1}",
        &long,
        &large,
        &deep,
    ] {
        bench().refuses(&post(AGENT, body), 400);
    }
}

#[test]
fn the_reply_is_the_response() {
    let bench = bench();
    let request = post(RESET, "");
    let message = json!({"completion_code": "0x00", "data": ""});
    let answer = bench.finish(
        &request,
        &ResponsePlan::CommandReply,
        Ok(OrderOutcome::Reply(message.clone())),
    );
    assert_eq!((answer.status, answer.value()), (200, message));
    let silent = OrderRefusal::new(RefusalKind::Failed, "the BMC did not answer");
    let answer = bench.finish(&request, &ResponsePlan::CommandReply, Err(silent));
    assert_eq!(answer.status, 500);
    assert_eq!(answer.fault()["faultstring"], "the BMC did not answer");
    assert_eq!(
        bench
            .finish(
                &request,
                &ResponsePlan::CommandReply,
                Ok(OrderOutcome::Stored)
            )
            .status,
        500
    );
}

#[test]
fn an_interrupt_is_for_ipmi() {
    let path = "/v1/nodes/node-1/management/inject_nmi";
    let mut bench = bench();
    let request = send("PUT", path, "{}").at("1.29");
    let (order, then) = bench.order(&request);
    let method = VendorMethod::Bmc(PowerOrder::Nmi);
    assert_eq!(
        order,
        RackOrder::Vendor {
            node: node_id(1),
            method
        }
    );
    let answer = bench.finish(&request, &then, Ok(OrderOutcome::Reply(Value::Null)));
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    bench.change(|node| node.driver = "fake-hardware".into());
    bench.refuses(&request, 400);
}

const LOOKUP: &str = "/v1/drivers/agent_ipmitool/vendor_passthru/lookup";
const INVENTORY: &str =
    "\"inventory\": {\"interfaces\": [{\"mac_address\": \"52:54:00:00:00:01\"}]}";

#[test]
fn a_lookup_without_token_support_becomes_an_order_on_every_path() {
    let mac = "52:54:00:00:00:01".parse().unwrap();
    for version in ["\"2\"", "2"] {
        let body = format!("{{\"version\": {version}, {INVENTORY}}}");
        for path in [
            LOOKUP,
            "/v1/drivers/ipmi/vendor_passthru/lookup",
            "/v1/drivers/fake_agent/vendor_passthru?method=lookup",
            "/v1/nodes/anything/vendor_passthru/lookup",
        ] {
            let (order, then) = bench().order(&post(path, &body));
            let addresses = vec![mac];
            assert_eq!(
                order,
                RackOrder::LegacyLookup {
                    addresses,
                    node: None
                }
            );
            assert_eq!(then, ResponsePlan::LegacyLookup);
        }
    }
    let unnamed = format!("{{{INVENTORY}}}");
    let newer = format!("{{\"version\": 3, {INVENTORY}}}");
    let strange = format!("{{\"version\": 2, \"node_uuid\": \"x\", {INVENTORY}}}");
    for body in [
        "",
        "{}",
        &unnamed,
        &newer,
        &strange,
        "{\"version\": 2}",
        "{\"version\": 2, \"inventory\": {\"interfaces\": []}}",
    ] {
        bench().refuses(&post(LOOKUP, body), 400);
    }
}

#[test]
fn its_answer_has_no_secret_and_its_refusal_no_reason() {
    let bench = bench();
    let request = post(LOOKUP, "");
    let found = OrderOutcome::Found(Box::new(LookupResult {
        node: node_id(1),
        properties: JsonObject::new(),
        instance_info: JsonObject::new(),
        driver_internal_info: JsonObject::new(),
        agent_token: "t0ken".into(),
        heartbeat_timeout_s: 300,
    }));
    let answer = bench.finish(&request, &ResponsePlan::LegacyLookup, Ok(found));
    assert_eq!(answer.value()["heartbeat_timeout"], 300);
    assert_eq!(answer.value()["node"]["uuid"], node_id(1).to_string());
    assert!(!answer.text().contains("t0ken"));
    let why = OrderRefusal::new(RefusalKind::NotFound, "it is not allowed for this node");
    let answer = bench.finish(&request, &ResponsePlan::LegacyLookup, Err(why));
    assert_eq!(
        answer.fault()["faultstring"],
        "Resource could not be found."
    );
}

#[test]
fn a_heartbeat_without_a_token_is_accepted_if_it_is_allowed() {
    let path = format!("/v1/nodes/{}/vendor_passthru/heartbeat", node_id(1));
    let body = "{\"agent_url\": \"http://192.0.2.7:9999\"}";
    let mut bench = bench();
    let message = bench.refuses(&post(&path, body), 400);
    assert_eq!(message, OrderRefusal::of_heartbeat().sentence);
    bench.change(|node| {
        node.driver_info
            .insert("agent_legacy_api".into(), json!("True"));
    });
    let (order, then) = bench.order(&post(&path, body));
    let url = "http://192.0.2.7:9999".to_owned();
    assert_eq!(
        order,
        RackOrder::LegacyHeartbeat {
            node: node_id(1),
            url
        }
    );
    assert_eq!(
        bench
            .finish(&post(&path, body), &then, Ok(OrderOutcome::Stored))
            .status,
        202
    );
    for body in [
        "",
        "{}",
        "{\"agent_url\": \"ftp://x\"}",
        "{\"agent_url\": \"http://a\", \"b\": 1}",
    ] {
        bench.refuses(&post(&path, body), 400);
    }
}

/// The requests of the bench have the same request ID, so that the responses can be compared byte
/// by byte.
#[test]
fn a_beat_from_before_tokens_does_not_reveal_whether_a_node_exists() {
    let mut bench = bench();
    let answer = |bench: &ApiBench, ident: &str, body: &str| {
        let path = format!("/v1/nodes/{ident}/vendor_passthru/heartbeat");
        let request = post(&path, body);
        let response = match bench.outcome(&request) {
            ApiOutcome::Reply(response) => response,
            // The rack's response to an unexpected heartbeat.
            ApiOutcome::Order { then, .. } => {
                bench.finish(&request, &then, Err(OrderRefusal::of_heartbeat()))
            }
            other @ ApiOutcome::Logs { .. } => panic!("became {other:?}"),
        };
        (response.status, response.headers, response.body)
    };
    let (known, unknown) = (node_id(1).to_string(), node_id(9).to_string());
    for allowed in [false, true] {
        bench.change(|node| {
            node.driver_info
                .insert("agent_legacy_api".into(), json!(allowed));
        });
        for body in [
            "{\"agent_url\": \"http://192.0.2.7:9999\"}",
            "{\"agent_url\": \"ftp://x\"}",
            "{}",
            "{",
        ] {
            let absent = answer(&bench, "absent", body);
            assert_eq!(absent.0, 400);
            for ident in ["node-1", &known, &unknown] {
                assert_eq!(answer(&bench, ident, body), absent, "{ident} {body}");
            }
        }
    }
    // The same as for a heartbeat with a wrong token.
    let heartbeat = json!({"callback_url": "https://192.0.2.7:9999", "agent_token": "x",
        "agent_version": "1"});
    let heartbeat = heartbeat.to_string();
    let modern = bench.reply(&post("/v1/heartbeat/absent", &heartbeat).at("1.68"));
    let body = "{\"agent_url\": \"http://192.0.2.7:9999\"}";
    assert_eq!(modern.body, answer(&bench, "absent", body).2);
}
