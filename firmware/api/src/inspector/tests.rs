//! The inspector's API through its two functions.

use trivet_model::{NodeId, Note};

use super::*;
use crate::testing::{ApiBench, NOW, get, node_id, node_in, send};

fn outcome(bench: &ApiBench, request: &Request<'_>) -> ApiOutcome {
    handle(request, &bench.view, &bench.facts, NOW)
}

#[track_caller]
fn answer(bench: &ApiBench, request: &Request<'_>) -> Response {
    match outcome(bench, request) {
        ApiOutcome::Reply(response) => response,
        other => panic!("became {other:?}"),
    }
}

#[track_caller]
fn refuses(bench: &ApiBench, request: &Request<'_>, status: u16) -> String {
    let response = answer(bench, request);
    assert_eq!(response.status, status, "{}", response.text());
    let message = response.value()["error"]["message"].clone();
    message.as_str().unwrap().to_owned()
}

#[track_caller]
fn ordered(bench: &ApiBench, request: &Request<'_>) -> RackOrder {
    match outcome(bench, request) {
        ApiOutcome::Order { order, then } => {
            assert_eq!(finish(&then, Ok(OrderOutcome::Stored)).status, 202);
            order
        }
        other => panic!("became {other:?}"),
    }
}

fn path(more: &str) -> String {
    format!("/v1/introspection/{}{more}", node_id(1))
}

fn wants(verb: Verb) -> RackOrder {
    RackOrder::Provision {
        node: node_id(1),
        verb,
        args: VerbArgs::default(),
        based_on: None,
    }
}

#[test]
fn versions_are_in_documents_and_headers() {
    let bench = ApiBench::new();
    let root = answer(&bench, &get("/"));
    assert_eq!(root.value()["versions"][0]["id"], "1.18");
    let maximum = "X-OpenStack-Ironic-Inspector-API-Maximum-Version";
    assert_eq!(root.header(maximum), Some("1.18"));
    let v1 = answer(&bench, &get("/v1/")).value();
    assert_eq!(v1["resources"][1]["name"], "introspection");
    assert_eq!(
        v1["resources"][1]["links"][0]["href"],
        "http://box:6385/v1/introspection"
    );
    for good in ["1.0", "1.18", "latest", ""] {
        assert_eq!(answer(&bench, &get("/v1").at(good)).status, 200, "{good}");
    }
    for (bad, status) in [
        ("1.19", 406),
        ("2.0", 406),
        ("x", 400),
        ("1", 400),
        ("+1.2", 400),
    ] {
        refuses(&bench, &get("/v1").at(bad), status);
    }
}

#[test]
fn everybody_may_discover_and_agents_continue_but_no_more() {
    for (method, path, want) in [
        ("GET", "/", Access::Public),
        ("GET", "/v1", Access::Public),
        ("POST", "/v1/continue", Access::Agent),
        ("GET", "/v1/introspection", Access::Reader),
        ("GET", "/v1/introspection/x/data", Access::Reader),
        ("POST", "/v1/introspection/x", Access::Operator),
        ("POST", "/v1/introspection/x/abort", Access::Operator),
        ("DELETE", "/v1/continue", Access::Reader),
        ("GET", "/%zz", Access::Reader),
    ] {
        assert_eq!(access(method, path), want, "{method} {path}");
    }
}

#[test]
fn an_introspection_is_an_inspection() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    let start = path("");
    assert_eq!(
        ordered(&bench, &send("POST", &start, "")),
        wants(Verb::Inspect)
    );
    let by_name = "/v1/introspection/node-1?manage_boot=1";
    assert_eq!(
        ordered(&bench, &send("POST", by_name, "")),
        wants(Verb::Inspect)
    );
    let unmanaged = path("?manage_boot=0");
    let message = refuses(&bench, &send("POST", &unmanaged, ""), 400);
    assert!(message.contains("manage_boot"), "{message}");
    refuses(&bench, &send("POST", "/v1/introspection/nobody", ""), 404);
    let refusal = OrderRefusal::new(RefusalKind::Invalid, "not now");
    let answer = finish(&empty(202, None), Err(refusal));
    assert_eq!(answer.status, 400);
    assert_eq!(answer.value(), json!({"error": {"message": "not now"}}));
}

#[test]
fn only_what_waits_is_aborted() {
    let abort = path("/abort");
    let waiting = ApiBench::with(ProvisionState::InspectWait);
    assert_eq!(
        ordered(&waiting, &send("POST", &abort, "")),
        wants(Verb::Abort)
    );
    for state in [ProvisionState::Inspecting, ProvisionState::CleanWait] {
        refuses(&ApiBench::with(state), &send("POST", &abort, ""), 409);
    }
}

#[test]
fn a_status_shows_the_progress() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    refuses(&bench, &get(&path("")), 404);
    for (state, word, finished) in [
        (ProvisionState::Inspecting, "processing", false),
        (ProvisionState::InspectWait, "waiting", false),
        (ProvisionState::InspectFail, "error", true),
        (ProvisionState::Manageable, "finished", true),
    ] {
        bench.change(|node| {
            node.provision_state = state;
            node.provision_updated_at = Some(NOW);
            node.last_error = Some("no agent".into());
            node.inspection_finished_at = Some(NOW);
        });
        let status = answer(&bench, &get(&path(""))).value();
        assert_eq!(
            (&status["state"], &status["finished"]),
            (&json!(word), &json!(finished))
        );
        let failed = state == ProvisionState::InspectFail;
        assert_eq!(status["error"] == "no agent", failed);
        assert_eq!(status["finished_at"].is_string(), finished);
        assert_eq!(status["uuid"], node_id(1).to_string());
    }
}

#[test]
fn the_timeline_remembers_when_it_began() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.change(|node| node.inspection_finished_at = Some(NOW));
    let began = |bench: &ApiBench| answer(bench, &get(&path(""))).value()["started_at"].clone();
    assert_eq!(began(&bench), Value::Null);
    let mut view = NodeView::clone(&bench.view.nodes[&node_id(1)]);
    let from = ProvisionState::Manageable;
    view.timeline.push_back(Note {
        at: UnixMs(1_794_796_000_000),
        node: Some(node_id(1)),
        kind: trivet_model::NoteKind::StateChanged {
            from,
            to: ProvisionState::Inspecting,
        },
    });
    bench.view.nodes.insert(node_id(1), view.into());
    assert_eq!(began(&bench), json!(UnixMs(1_794_796_000_000).to_string()));
}

#[test]
fn the_list_has_pages_and_states() {
    let mut bench = ApiBench::new();
    for number in 1..=3 {
        let mut node = node_in(number, ProvisionState::InspectWait);
        node.inspection_started_at = Some(UnixMs(NOW.0 + u64::from(number)));
        bench.add(node);
    }
    bench.add(node_in(4, ProvisionState::Manageable));
    let listed = |query: &str| -> Vec<NodeId> {
        let path = format!("/v1/introspection{query}");
        let list = answer(&bench, &get(&path)).value();
        let list = list["introspection"].as_array().unwrap().clone();
        let ids = list.iter().map(|one| one["uuid"].as_str().unwrap().parse());
        ids.map(Result::unwrap).collect()
    };
    assert_eq!(listed(""), [3, 2, 1].map(node_id));
    assert_eq!(listed("?limit=1"), [node_id(3)]);
    let next = format!("?limit=5&marker={}", node_id(3));
    assert_eq!(listed(&next), [2, 1].map(node_id));
    assert_eq!(listed("?state=finished,error"), []);
    assert_eq!(listed("?state=waiting&limit=0").len(), 3);
    for (query, status) in [
        ("?limit=-1", 400),
        ("?limit=1001", 400),
        ("?limit=x", 400),
        ("?marker=x", 400),
        ("?state=asleep", 400),
        ("?marker=00000000-0000-4000-8000-0000000000ff", 404),
    ] {
        let path = format!("/v1/introspection{query}");
        refuses(&bench, &get(&path), status);
    }
}

#[test]
fn data_come_as_the_inspector_gave_them() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    refuses(&bench, &get(&path("/data")), 404);
    bench.change(|node| {
        node.properties.insert("memory_mb".into(), json!(2048));
        node.inventory = Some(json!({
            "inventory": {"bmc_address": "192.0.2.9", "interfaces": [
                {"name": "eth0", "mac_address": "52:54:00:00:00:01", "ipv4_address": "192.0.2.7"},
                {"mac_address": "52:54:00:00:00:02"},
            ]},
            "plugin_data": {"root_disk": {"name": "/dev/sda"}},
        }));
    });
    let data = answer(&bench, &get(&path("/data"))).value();
    assert_eq!(data["all_interfaces"]["eth0"]["mac"], "52:54:00:00:00:01");
    assert_eq!(data["all_interfaces"]["eth0"]["ip"], "192.0.2.7");
    assert_eq!(data["macs"], json!(["52:54:00:00:00:01"]));
    assert_eq!(data["memory_mb"], 2048);
    assert_eq!(data["ipmi_address"], "192.0.2.9");
    assert_eq!(data["root_disk"]["name"], "/dev/sda");
    assert_eq!(
        data["inventory"]["interfaces"][1]["mac_address"],
        "52:54:00:00:00:02"
    );
    let raw = answer(&bench, &get(&path("/data/unprocessed"))).value();
    assert!(raw["plugin_data"].is_object());
    refuses(&bench, &send("POST", &path("/data/unprocessed"), ""), 400);
}

#[test]
fn data_of_the_ramdisk_become_an_order() {
    let bench = ApiBench::new();
    let request = send("POST", "/v1/continue", "{\"inventory\": {}}");
    let ApiOutcome::Order { order, then } = outcome(&bench, &request) else {
        panic!("no order");
    };
    let document = json!({"inventory": {}});
    assert_eq!(order, RackOrder::Inventory { document });
    let done = finish(&then, Ok(OrderOutcome::Inspected(node_id(1))));
    assert_eq!(
        (done.status, done.value()["uuid"].clone()),
        (200, json!(node_id(1).to_string()))
    );
    assert_eq!(finish(&then, Ok(OrderOutcome::Stored)).status, 500);
    for body in ["", "{", "[]", "7"] {
        refuses(&bench, &send("POST", "/v1/continue", body), 400);
    }
    let deep = format!("{{\"a\": {}1{}}}", "[".repeat(100), "]".repeat(100));
    refuses(&bench, &send("POST", "/v1/continue", &deep), 400);
}

#[test]
fn unknown_resources_are_json_errors() {
    let bench = ApiBench::new();
    for (method, path, status) in [
        ("GET", "/v1/continue", 405),
        ("DELETE", "/v1/introspection", 405),
        ("GET", "/v2", 404),
        ("GET", "/v1/rules", 501),
        ("GET", "/%zz", 400),
    ] {
        refuses(&bench, &send(method, path, ""), status);
    }
}

#[test]
fn the_ironic_api_refers_to_the_inspector_api() {
    let mut bench = ApiBench::new();
    for path in [
        "/v1/introspection",
        "/v1/introspection/x/data",
        "/v1/continue",
    ] {
        bench.facts.inspector = false;
        let off = bench.refuses(&get(path), 404);
        assert!(
            off.contains("is off") && off.contains("[inspector]"),
            "{off}"
        );
        bench.facts.inspector = true;
        let on = bench.refuses(&get(path), 404);
        assert!(
            on.contains("inspector.listen") && !on.contains("is off"),
            "{on}"
        );
    }
}

#[test]
fn rules_are_refused_with_501_and_the_sentence_of_the_other_api() {
    let bench = ApiBench::new();
    let body = "{\"actions\": [{\"op\": \"fail\", \"args\": {\"msg\": \"no\"}}]}";
    let want = bench.refuses(
        &send("POST", "/v1/inspection_rules", body).at(crate::testing::LATEST),
        501,
    );
    for (method, path) in [
        ("GET", "/v1/rules"),
        ("POST", "/v1/rules"),
        ("DELETE", "/v1/rules"),
        ("GET", "/v1/rules/00000000-0000-4000-8000-000000000001"),
    ] {
        let message = refuses(&bench, &send(method, path, body), 501);
        assert_eq!(message, want, "{method} {path}");
    }
}
