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
