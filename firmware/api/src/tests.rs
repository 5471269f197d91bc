//! What the two public functions promise together.

use super::*;
use crate::testing::{Bench, LATEST, get, node, node_id, send};
use trivet_model::{ProvisionState, RefusalKind};

#[test]
fn every_answer_carries_the_range_and_the_request() {
    let bench = Bench::new();
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
        assert_eq!(newest, Some("1.110"));
    }
}

#[test]
fn a_refused_order_keeps_its_sentence() {
    let bench = Bench::with(ProvisionState::Enroll);
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
        let refusal = Refusal::new(kind, "because");
        let response = bench.finish(&request, &then, Err(refusal));
        assert_eq!(response.status, status);
        assert_eq!(response.fault()["faultstring"], "because");
        assert!(response.header("X-OpenStack-Ironic-API-Version").is_some());
    }
}

#[test]
fn handling_twice_gives_the_same() {
    let bench = Bench::new();
    let request = send("POST", "/v1/nodes", r#"{"driver": "ipmi"}"#).at(LATEST);
    assert_eq!(bench.outcome(&request), bench.outcome(&request));
}

#[test]
fn a_node_that_vanished_meanwhile_is_not_found() {
    let mut bench = Bench::new();
    bench.add(node(1));
    let then = Then::Node {
        id: node_id(2),
        created: false,
    };
    let response = bench.finish(&get("/v1/nodes/x"), &then, Ok(Done::Kept));
    assert_eq!(response.status, 404);
}

#[test]
fn only_discovery_and_the_agents_doors_are_public() {
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/v1"),
        ("GET", "/v1/"),
        ("GET", "/v1/lookup"),
        ("POST", "/v1/heartbeat/node-1"),
        ("POST", "/v1/continue_inspection"),
    ] {
        assert!(access(method, path) <= Access::Agent, "{method} {path}");
    }
    for (method, path) in [
        ("GET", "/v1/nodes"),
        ("POST", "/v1"),
        ("GET", "/v1/lookup/../nodes"),
        ("GET", "/v1//nodes"),
        ("POST", "/v1/heartbeat/a/b"),
        ("GET", "/v1/heartbeat/node-1"),
        ("GET", "/%zz"),
        ("DELETE", "/v1/nodes/x"),
    ] {
        assert!(access(method, path) > Access::Agent, "{method} {path}");
    }
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let bench = Bench::new();
    let body = " ".repeat(BODY_BYTES_MAX + 1);
    bench.refuses(&send("POST", "/v1/nodes", &body).at(LATEST), 413);
}

#[test]
fn answers_without_a_body_have_no_content_type() {
    let mut bench = Bench::with(ProvisionState::Manageable);
    let request = send("DELETE", "/v1/nodes/node-1/maintenance", "").at(LATEST);
    let response = bench.done(&request);
    assert_eq!(response.status, 202);
    assert!(response.body.is_empty());
    assert_eq!(response.header("Content-Type"), None);
}
