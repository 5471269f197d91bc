use super::*;
use crate::testing::{ApiBench, LATEST, get, node_id, send};
use serde_json::json;
use trivet_model::{OrderOutcome, OrderRefusal, ProvisionState, RefusalKind};

fn heartbeat_body(fields: &Value) -> String {
    let mut heartbeat = json!({
        "callback_url": "https://192.0.2.10:9999", "agent_token": "t", "agent_version": "13.0.0",
    });
    for (key, value) in fields.as_object().unwrap() {
        heartbeat[key] = value.clone();
    }
    heartbeat.to_string()
}

#[test]
fn lookup_finds_the_node_by_address_or_uuid() {
    let bench = ApiBench::new();
    let path = "/v1/lookup?addresses=52%3A54%3A00%3A00%3A00%3A01,nonsense,52:54:00:00:00:01";
    let (order, then) = bench.order(&get(path).at("1.62"));
    let want = RackOrder::Lookup {
        addresses: vec!["52:54:00:00:00:01".parse().unwrap()],
        node: None,
    };
    assert_eq!((order, then), (want, ResponsePlan::Lookup));
    let path = format!("/v1/lookup?node_uuid={}", node_id(1));
    let (order, _) = bench.order(&get(&path).at("1.62"));
    let want = RackOrder::Lookup {
        addresses: vec![],
        node: Some(node_id(1)),
    };
    assert_eq!(order, want);
}

#[test]
fn lookup_refuses_what_names_no_node() {
    let bench = ApiBench::new();
    for path in [
        "/v1/lookup",
        "/v1/lookup?addresses=",
        "/v1/lookup?addresses=x,y",
        "/v1/lookup?node_uuid=x",
        "/v1/lookup?node_uuid=&name=x",
    ] {
        bench.refuses(&get(path).at("1.62"), 400);
    }
    bench.refuses(
        &get("/v1/lookup?addresses=52:54:00:00:00:01").at("1.21"),
        404,
    );
}

#[test]
fn lookup_bounds_the_addresses() {
    let addresses = |count: usize| {
        let list: Vec<String> = (0..count)
            .map(|at| format!("52:54:00:00:00:{at:02x}"))
            .collect();
        format!("/v1/lookup?addresses={}", list.join(","))
    };
    let bench = ApiBench::new();
    bench.order(&get(&addresses(ADDRESSES_MAX)).at("1.62"));
    bench.refuses(&get(&addresses(ADDRESSES_MAX + 1)).at("1.62"), 400);
}

#[test]
fn a_lookup_returns_the_node_and_its_token() {
    let bench = ApiBench::new();
    let request = get("/v1/lookup?addresses=52:54:00:00:00:01").at("1.62");
    let found = LookupResult {
        node: node_id(1),
        properties: JsonObject::new(),
        instance_info: JsonObject::new(),
        driver_internal_info: JsonObject::new(),
        agent_token: "secret".into(),
        heartbeat_timeout_s: 300,
    };
    let response = bench.finish(
        &request,
        &ResponsePlan::Lookup,
        Ok(OrderOutcome::Found(Box::new(found))),
    );
    assert_eq!(response.status, 200);
    let uuid = node_id(1).to_string();
    assert_eq!(
        response.value(),
        json!({
            "node": {
                "uuid": uuid, "properties": {}, "instance_info": {}, "driver_internal_info": {},
                "links": [
                    {"href": format!("http://box:6385/v1/nodes/{uuid}"), "rel": "self"},
                    {"href": format!("http://box:6385/nodes/{uuid}"), "rel": "bookmark"},
                ],
            },
            "config": {
                "heartbeat_timeout": 300, "agent_token": "secret", "agent_token_required": true,
            },
        })
    );
}

#[test]
fn only_a_file_system_lets_the_agent_install_its_boot_loader() {
    let bench = ApiBench::new();
    let request = get("/v1/lookup?addresses=52:54:00:00:00:01").at("1.62");
    for (kind, want) in [("partition", json!(true)), ("whole-disk", json!(null))] {
        let found = LookupResult {
            node: node_id(1),
            properties: JsonObject::new(),
            instance_info: JsonObject::from_iter([("image_type".to_owned(), kind.into())]),
            driver_internal_info: JsonObject::new(),
            agent_token: "secret".into(),
            heartbeat_timeout_s: 300,
        };
        let response = bench.finish(
            &request,
            &ResponsePlan::Lookup,
            Ok(OrderOutcome::Found(Box::new(found))),
        );
        let config = response.value()["config"].clone();
        assert_eq!(config["enable_bios_bootloader_install"], want);
    }
}

#[test]
fn an_unknown_machine_does_not_learn_which_nodes_exist() {
    let bench = ApiBench::new();
    let request = get("/v1/lookup?addresses=52:54:00:00:00:01").at("1.62");
    for sentence in ["no such node", "node is active"] {
        let refusal = OrderRefusal::new(RefusalKind::NotFound, sentence);
        let response = bench.finish(&request, &ResponsePlan::Lookup, Err(refusal));
        assert_eq!(response.status, 404);
        assert_eq!(
            response.fault()["faultstring"],
            "Resource could not be found."
        );
    }
}

#[test]
fn a_heartbeat_becomes_an_order_and_202() {
    let mut bench = ApiBench::with(ProvisionState::DeployWait);
    let body = heartbeat_body(&json!({"agent_verify_ca": "PEM"}));
    let request = send("POST", "/v1/heartbeat/node-1", &body).at("1.68");
    let (order, _) = bench.order(&request);
    let want = AgentHeartbeat {
        callback_url: "https://192.0.2.10:9999".into(),
        agent_token: Some("t".into()),
        agent_version: Some("13.0.0".into()),
        agent_verify_ca: Some("PEM".into()),
        callback_refused: None,
    };
    let node = node_id(1);
    assert_eq!(
        order,
        RackOrder::Heartbeat {
            node,
            heartbeat: want
        }
    );
    let response = bench.done(&request);
    assert_eq!((response.status, response.body.len()), (202, 0));
}

#[test]
fn a_heartbeat_has_only_the_keys_of_its_version() {
    let bench = ApiBench::with(ProvisionState::DeployWait);
    for (fields, since) in [
        (json!({"agent_verify_ca": "PEM"}), 68),
        (json!({"agent_status": "end"}), 72),
        (json!({"agent_status_message": "x"}), 72),
    ] {
        let body = heartbeat_body(&fields);
        let at = format!("1.{since}");
        bench.order(&send("POST", "/v1/heartbeat/node-1", &body).at(&at));
        let below = format!("1.{}", since - 1);
        bench.refuses(&send("POST", "/v1/heartbeat/node-1", &body).at(&below), 400);
    }
    bench.refuses(
        &send("POST", "/v1/heartbeat/node-1", &heartbeat_body(&json!({}))).at("1.61"),
        400,
    );
    bench.refuses(
        &send("POST", "/v1/heartbeat/node-1", &heartbeat_body(&json!({}))).at("1.21"),
        404,
    );
}

#[test]
fn a_heartbeat_needs_token_version_and_a_callback_over_tls() {
    let mut bench = ApiBench::with(ProvisionState::DeployWait);
    for fields in [
        json!({"agent_token": null}),
        json!({"agent_version": null}),
        json!({"callback_url": ""}),
        json!({"callback_url": "ftp://x"}),
        json!({"callback_url": "https://"}),
        json!({"callback_url": "https:// x/"}),
        json!({"callback_url": "https://user@host/"}),
        json!({"callback_url": "https://192.0.2.10:0/"}),
        json!({"callback_url": "http://192.0.2.10:9999"}),
        json!({"callback_url": 5}),
        json!({"agent_status": "dancing"}),
        json!({"colour": "red"}),
        json!({"agent_verify_ca": "x".repeat(HEARTBEAT_TEXT_BYTES_MAX + 1)}),
    ] {
        let body = heartbeat_body(&fields);
        bench.refuses(&send("POST", "/v1/heartbeat/node-1", &body).at(LATEST), 400);
    }
    bench.refuses(
        &send("POST", "/v1/heartbeat/other", &heartbeat_body(&json!({}))).at(LATEST),
        400,
    );
    bench.facts.agent_http_allowed = true;
    let body = heartbeat_body(&json!({"callback_url": "http://[2001:db8::1]:9999"}));
    bench.order(&send("POST", "/v1/heartbeat/node-1", &body).at(LATEST));
}

#[test]
fn inspection_data_becomes_an_order_and_returns_its_node() {
    let bench = ApiBench::new();
    let document = json!({"inventory": {
        "interfaces": [{"mac_address": "52:54:00:00:00:01"}], "bmc_address": null,
    }, "logs": "x"});
    let body = document.to_string();
    for version in [None, Some("1.1"), Some("1.84"), Some(LATEST)] {
        let mut request = send("POST", "/v1/continue_inspection", &body);
        request.version = version;
        let (order, then) = bench.order(&request);
        let document = document.clone();
        assert_eq!(order, RackOrder::Inventory { document });
        let response = bench.finish(&request, &then, Ok(OrderOutcome::Inspected(node_id(1))));
        assert_eq!(response.status, 202);
        assert_eq!(response.value(), json!({"uuid": node_id(1).to_string()}));
    }
    bench.refuses(
        &send("POST", "/v1/continue_inspection", &body).at("1.83"),
        404,
    );
}

#[test]
fn inspection_data_must_name_interfaces() {
    let bench = ApiBench::new();
    let some = json!({"interfaces": [{"mac_address": null}, {"mac_address": "52:54:00:00:00:01"}]});
    let body = json!({ "inventory": some }).to_string();
    bench.order(&send("POST", "/v1/continue_inspection", &body));
    for document in [
        json!({}),
        json!({"inventory": []}),
        json!({"inventory": {"interfaces": []}}),
        json!({"inventory": {"interfaces": [{"name": "eth0"}]}}),
        json!({"inventory": {"interfaces": [{"mac_address": "x"}], "bmc_address": 5}}),
    ] {
        let body = document.to_string();
        bench.refuses(&send("POST", "/v1/continue_inspection", &body), 400);
    }
}

#[test]
fn an_order_without_a_result_is_a_server_error() {
    let bench = ApiBench::new();
    let response = bench.finish(
        &get("/v1/lookup"),
        &ResponsePlan::Lookup,
        Ok(OrderOutcome::Stored),
    );
    assert_eq!(response.status, 500);
    assert_eq!(response.fault()["faultcode"], "Server");
}

#[test]
fn a_heartbeat_does_not_reveal_whether_a_node_exists() {
    let bench = ApiBench::new();
    let refusal = trivet_model::OrderRefusal::of_heartbeat();
    for ident in ["nobody", "00000000-0000-4000-8000-000000000000"] {
        let path = format!("/v1/heartbeat/{ident}");
        let body =
            heartbeat_body(&json!({"agent_token": "x".repeat(43), "agent_version": "13.0.0"}));
        let message = bench.refuses(&send("POST", &path, &body).at("1.68"), 400);
        assert_eq!(message, refusal.sentence);
    }
}

#[test]
fn a_request_of_an_agent_has_a_purpose_and_a_node() {
    let bench = ApiBench::with(trivet_model::ProvisionState::Enroll).wired();
    let node = Some(crate::testing::node_id(1));
    let call =
        |method: &str, path: &str| crate::agent_call(&send(method, path, "nonsense"), &bench.view);
    for (path, named) in [
        ("/v1/lookup?addresses=52:54:00:00:00:01", node),
        ("/v1/lookup?addresses=x,52:54:00:00:00:01", node),
        ("/v1/lookup?addresses=52:54:00:00:00:09", None),
        ("/v1/lookup", None),
    ] {
        assert_eq!(call("GET", path), Some(("lookup", named)), "{path}");
    }
    for (path, named) in [
        ("/v1/heartbeat/node-1", node),
        ("/v1/heartbeat/other", None),
        ("/v1/nodes/node-1/vendor_passthru/heartbeat", node),
    ] {
        assert_eq!(call("POST", path), Some(("heartbeat", named)), "{path}");
    }
    for path in ["/v1/continue_inspection", "/v1/continue"] {
        assert_eq!(call("POST", path), Some(("inspection data", None)));
    }
    assert_eq!(call("GET", "/v1/nodes"), None);
}

#[test]
fn the_path_of_a_request_names_a_node() {
    let bench = ApiBench::with(trivet_model::ProvisionState::Enroll).wired();
    let node = Some(crate::testing::node_id(1));
    let port = format!("/v1/ports/{}", crate::testing::port_id(1));
    for (path, want) in [
        ("/v1/nodes/node-1", node),
        ("/v1/nodes/node-1/states/power", node),
        ("/nodes/states/power/node-1", node),
        ("/trivet/nodes/node-1/console", node),
        (port.as_str(), node),
        ("/v1/nodes/node-2", None),
        ("/v1/nodes", None),
        ("/v1/ports/x", None),
        ("/v1/chassis/node-1", None),
        ("/%", None),
    ] {
        assert_eq!(crate::node_of_path(path, &bench.view), want, "{path}");
    }
}
