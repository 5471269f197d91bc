//! Requests of agents for a certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use trivet_model::node::JsonObject;
use trivet_model::order::EnrolmentRequest;
use trivet_model::{KeyDigest, MacAddr, NodeId, RackOrder};

use crate::ironic::agent::ADDRESSES_MAX;
use crate::table::access::Access;
use crate::table::body;
use crate::table::call::{ApiCall, order};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, required};
use crate::{ApiOutcome, Response, ResponsePlan};

/// Longest signing request, and longest proof, in characters of base64. Ours.
const TEXT_CHARS_MAX: usize = 4096;

const ARGS: [ApiArg; 3] = [
    required("addresses", 1, ValueShape::List),
    required("csr", 1, ValueShape::Text),
    required("proof", 1, ValueShape::Text),
];

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::new(
    "POST",
    &["trivet", "enrol"],
    1,
    "Request a certificate with the one-time token of a boot",
    enrol,
)
.body(BodySchema::Args(&ARGS))
.response(ResponseSchema::Any(200))
.for_(Access::Agent)];

/// `POST /trivet/enrol`.
fn enrol(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let object = body::object(call)?;
    body::only(&object, &ARGS.map(|arg| arg.name))?;
    let request = EnrolmentRequest {
        addresses: addresses(&object)?,
        csr: bytes(&object, "csr")?,
        // Filled in by the listener, which reads signing requests.
        key: KeyDigest([0; 32]),
        proof: bytes(&object, "proof")?,
    };
    order(RackOrder::Enrol(request), ResponsePlan::Enrolled)
}

fn addresses(object: &JsonObject) -> Result<Vec<MacAddr>, ApiFault> {
    let list = object.get("addresses").and_then(Value::as_array);
    let list = list.ok_or_else(|| ApiFault::bad("addresses must be a list."))?;
    if list.len() > ADDRESSES_MAX {
        return Err(ApiFault::bad(format!("At most {ADDRESSES_MAX} addresses.")));
    }
    // Other kinds of addresses (InfiniBand) are skipped, as in a lookup.
    let texts = list.iter().filter_map(Value::as_str);
    Ok(texts.filter_map(|text| text.parse().ok()).collect())
}

fn bytes(object: &JsonObject, key: &str) -> Result<Vec<u8>, ApiFault> {
    let text = body::text(object, key)?.unwrap_or_default();
    if text.len() > TEXT_CHARS_MAX {
        return Err(ApiFault::bad(format!(
            "{key} has more than {TEXT_CHARS_MAX} characters."
        )));
    }
    let bytes = STANDARD.decode(text);
    bytes.map_err(|_| ApiFault::bad(format!("{key} is not base64.")))
}

/// The response to an enrolment. The listener adds the certificate.
pub(crate) fn enrolled(node: NodeId) -> Response {
    Response::json(200, &json!({"node": node.to_string()}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ApiBench, node_id, send};
    use trivet_model::{OrderOutcome, OrderRefusal};

    const BODY: &str = r#"{"addresses": ["52:54:00:00:00:01", "an InfiniBand address"],
        "csr": "Y3Ny", "proof": "cHJvb2Y="}"#;

    #[test]
    fn an_enrolment_becomes_an_order_with_bytes() {
        let bench = ApiBench::new();
        let (order, then) = bench.order(&send("POST", "/trivet/enrol", BODY));
        let want = EnrolmentRequest {
            addresses: vec!["52:54:00:00:00:01".parse().unwrap()],
            csr: b"csr".to_vec(),
            key: KeyDigest([0; 32]),
            proof: b"proof".to_vec(),
        };
        assert_eq!(
            (order, &then),
            (RackOrder::Enrol(want), &ResponsePlan::Enrolled)
        );
        let request = send("POST", "/trivet/enrol", BODY);
        let done = bench.finish(&request, &then, Ok(OrderOutcome::Enrolled(node_id(1))));
        assert_eq!(done.value(), json!({"node": node_id(1).to_string()}));
        let refused = bench.finish(&request, &then, Err(OrderRefusal::of_enrolment()));
        assert_eq!(refused.status, 403);
    }

    #[test]
    fn wrong_and_long_bodies_are_refused_with_a_reason() {
        let bench = ApiBench::new();
        let many = vec!["52:54:00:00:00:01"; ADDRESSES_MAX + 1];
        let long = "A".repeat(TEXT_CHARS_MAX + 4);
        for (body, part) in [
            (json!({"csr": "", "proof": ""}), "addresses"),
            (
                json!({"addresses": many, "csr": "", "proof": ""}),
                "At most 64",
            ),
            (
                json!({"addresses": [], "csr": "*", "proof": ""}),
                "csr is not base64",
            ),
            (
                json!({"addresses": [], "csr": "", "proof": "*"}),
                "proof is not base64",
            ),
            (
                json!({"addresses": [], "csr": long, "proof": ""}),
                "csr has more than",
            ),
            (
                json!({"addresses": [], "csr": "", "proof": "", "node": 1}),
                "node",
            ),
        ] {
            let text = body.to_string();
            let why = bench.refuses(&send("POST", "/trivet/enrol", &text), 400);
            assert!(why.contains(part), "{why}");
        }
    }
}
