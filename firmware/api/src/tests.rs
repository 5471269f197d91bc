//! Properties of the two public functions together.

mod versions;

use super::*;
use crate::testing::{ApiBench, LATEST, get, node, node_id, send};
use trivet_model::{ProvisionState, RefusalKind};

#[test]
fn every_response_has_the_version_range_and_the_request_id() {
    let bench = ApiBench::new();
    for request in [
        get("/"),
        get("/v1/nodes"),
        get("/nowhere"),
        get("/v1/nodes/x"),
    ] {
        let response = bench.reply(&request.at("1.50"));
        assert_eq!(response.header("x-openstack-request-id"), Some("req-1"));
        assert_eq!(
            response.header("X-OpenStack-Ironic-API-Version"),
            Some("1.50")
        );
        let newest = response.header("X-OpenStack-Ironic-API-Maximum-Version");
        assert_eq!(newest, Some("1.115"));
    }
}

#[test]
fn a_refused_order_keeps_its_sentence() {
    let bench = ApiBench::with(ProvisionState::Enroll);
    let request = send("PUT", "/v1/nodes/node-1/maintenance", "").at(LATEST);
    let (_, then) = bench.order(&request);
    for (kind, status) in [
        (RefusalKind::Invalid, 400),
        (RefusalKind::Forbidden, 403),
        (RefusalKind::NotFound, 404),
        (RefusalKind::Conflict, 409),
        (RefusalKind::Stale, 409),
        (RefusalKind::Unavailable, 503),
    ] {
        let refusal = OrderRefusal::new(kind, "because");
        let response = bench.finish(&request, &then, Err(refusal));
        assert_eq!(response.status, status);
        assert_eq!(response.fault()["faultstring"], "because");
        assert!(response.header("X-OpenStack-Ironic-API-Version").is_some());
    }
}

#[test]
fn handling_twice_gives_the_same() {
    let bench = ApiBench::new();
    let request = send("POST", "/v1/nodes", r#"{"driver": "ipmi"}"#).at(LATEST);
    assert_eq!(bench.outcome(&request), bench.outcome(&request));
}

#[test]
fn a_node_that_vanished_meanwhile_is_not_found() {
    let mut bench = ApiBench::new();
    bench.add(node(1));
    let then = ResponsePlan::Node {
        id: node_id(2),
        created: false,
    };
    let response = bench.finish(&get("/v1/nodes/x"), &then, Ok(OrderOutcome::Stored));
    assert_eq!(response.status, 404);
}

#[test]
fn what_the_shell_refuses_looks_like_any_other_refusal() {
    for (status, key) in [
        (403, "faultstring"),
        (400, "description"),
        (408, "description"),
        (413, "description"),
        (429, "description"),
    ] {
        let response = refuse(&get("/v1/nodes").at("1.50"), status, "because");
        assert_eq!(response.status, status);
        assert_eq!(response.fault()[key], "because", "{status}");
        assert_eq!(response.header("x-openstack-request-id"), Some("req-1"));
        let shown = response.header("X-OpenStack-Ironic-API-Version");
        assert_eq!(shown, Some("1.50"));
    }
    let response = refuse(&get("/v1/nodes").at("2.0"), 413, "because");
    assert_eq!(
        response.status, 413,
        "an unknown version does not hide the error"
    );
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let bench = ApiBench::new();
    let body = " ".repeat(BODY_BYTES_MAX + 1);
    bench.refuses(&send("POST", "/v1/nodes", &body).at(LATEST), 413);
}

#[test]
fn answers_without_a_body_have_no_content_type() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    let request = send("DELETE", "/v1/nodes/node-1/maintenance", "").at(LATEST);
    let response = bench.done(&request);
    assert_eq!(response.status, 202);
    assert!(response.body.is_empty());
    assert_eq!(response.header("Content-Type"), None);
}

/// Requests that are refused: method, path, body, and the begin of the error.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    (
        "POST",
        "/v1/ports",
        r#"{"node_uuid": "00000000-0000-4000-8000-000000000001", "address": "foo"}"#,
        "Expected valid MAC address for address: foo",
    ),
    (
        "GET",
        "/v1/ports?address=52-54-00-AA-00-20",
        "",
        "Expected valid MAC address for address: 52-54-00-AA-00-20",
    ),
    (
        "GET",
        "/v1/ports?address=x",
        "",
        "Expected valid MAC address for address: x",
    ),
    (
        "GET",
        "/v1/nodes?limit=abc",
        "",
        "Expected an integer for limit: abc",
    ),
    ("GET", "/v1/nodes?limit=-1", "", "Limit must be positive"),
    (
        "GET",
        "/v1/nodes?sort_key=nope",
        "",
        "The sort_key value \"nope\" is an invalid field for sorting",
    ),
    (
        "GET",
        "/v1/nodes?associated=x",
        "",
        "Invalid associated: Unrecognized value 'x'",
    ),
    (
        "GET",
        "/v1/nodes?detail=x",
        "",
        "Invalid detail: Unrecognized value 'x'",
    ),
    (
        "POST",
        "/v1/nodes",
        r#"{"driver": "ipmi", "boot_interface": "nope"}"#,
        "Could not find the following interface in the 'ironic.hardware.interfaces.boot' \
             entrypoint: nope. Valid interfaces are ['",
    ),
    (
        "POST",
        "/v1/nodes",
        r#"{"driver": "ipmi", "power_interface": "fake"}"#,
        "power interface implementation 'fake' is not supported by hardware type ipmi.",
    ),
    (
        "POST",
        "/v1/nodes",
        r#"{"driver": "ipmi", "name": "detail"}"#,
        "The word \"detail\" is reserved and can not be used as a node name.",
    ),
    (
        "POST",
        "/v1/ports",
        r#"{"node_uuid": "00000000-0000-4000-8000-000000000001", "physical_network": "",
            "address": "52:54:00:aa:bb:cc"}"#,
        "A non-empty value is required when setting physical_network",
    ),
    (
        "PATCH",
        "/v1/nodes/node-1",
        r#"[{"op": "add", "path": "/uuid", "value": "x"}]"#,
        "Cannot patch /uuid. Only the following can be updated: ",
    ),
    (
        "PUT",
        "/v1/nodes/node-1/states/power",
        r#"{"target": "power on", "timeout": "x"}"#,
        "Expected an integer for timeout: x",
    ),
    (
        "POST",
        "/v1/allocations",
        r#"{"resource_class": "x", "candidate_nodes": ["nope"]}"#,
        "Nodes cannot be found: nope",
    ),
    (
        "POST",
        "/v1/nodes",
        "{}",
        "Schema error for node: 'driver' is a required property",
    ),
    (
        "POST",
        "/v1/nodes",
        r#"{"driver": "ipmi", "odd": 1}"#,
        "Schema error for node: Additional properties are not allowed ('odd' was",
    ),
    (
        "POST",
        "/v1/ports",
        r#"{"node_uuid": "00000000-0000-4000-8000-000000000001", "odd": 1}"#,
        "Schema error for port: Additional properties are not allowed ('odd' was",
    ),
    (
        "POST",
        "/v1/portgroups",
        "{}",
        "Schema error for portgroup: 'node_uuid' is a required property",
    ),
];

#[test]
fn errors_begin_with_the_words_of_ironic() {
    let mut bench = ApiBench::new();
    bench.add(node(1));
    for (method, path, body, words) in REFUSED {
        let message = bench.refuses(&send(method, path, body).at(LATEST), 400);
        assert!(message.starts_with(words), "{method} {path}: {message}");
    }
    for (path, version, status, words) in [
        (
            "/v1/runbooks",
            "1.91",
            404,
            "The API version does not allow runbooks",
        ),
        (
            "/v1/deploy_templates",
            "1.54",
            404,
            "The API version does not allow deploy templates",
        ),
        (
            "/v1/nodes",
            "foo",
            406,
            "Invalid value for X-OpenStack-Ironic-API-Version header",
        ),
        ("/v1/nodes", "1.999", 406, "Version 1.999 was requested but"),
    ] {
        let message = bench.refuses(&get(path).at(version), status);
        assert!(message.starts_with(words), "{path}: {message}");
    }
}

#[test]
fn the_identifier_of_a_request_has_both_of_its_names() {
    for path in ["/v1/nodes", "/v1/nodes/x", "/"] {
        let response = ApiBench::new().reply(&get(path));
        for name in ["x-openstack-request-id", "openstack-request-id"] {
            assert_eq!(response.header(name), Some("req-1"), "{path} {name}");
        }
    }
}
