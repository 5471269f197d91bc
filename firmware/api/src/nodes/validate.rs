//! `GET /v1/nodes/<ident>/validate`: what a deployment would lack.

use serde_json::{Value, json};
use trivet_hardware::Kind;
use trivet_model::ResourceKind;
use trivet_model::node::Object;
use trivet_model::view::NodeView;

use crate::call::{Call, reply};
use crate::error::Fault;
use crate::{Outcome, drivers};

/// The kinds that are validated, with the version each came with.
const VALIDATED: [(Kind, u16); 12] = [
    (Kind::Bios, 40),
    (Kind::Boot, 1),
    (Kind::Console, 1),
    (Kind::Deploy, 1),
    (Kind::Firmware, 86),
    (Kind::Inspect, 1),
    (Kind::Management, 1),
    (Kind::Network, 1),
    (Kind::Power, 1),
    (Kind::Raid, 12),
    (Kind::Rescue, 38),
    (Kind::Storage, 1),
];

pub(crate) fn validate(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let results: Object = VALIDATED
        .iter()
        .filter(|(_, since)| call.has(*since))
        .map(|(kind, _)| {
            let result = match reason(call, view, *kind) {
                Some(reason) => json!({"result": false, "reason": reason}),
                None => json!({"result": true}),
            };
            (kind.as_str().to_owned(), result)
        })
        .collect();
    reply(&Value::Object(results))
}

/// Why the interface of this kind cannot work; none if it can.
pub(crate) fn reason(call: &Call<'_>, view: &NodeView, kind: Kind) -> Option<String> {
    if drivers::enabled(call, &view.node.driver).is_none() {
        return Some(format!("hardware type {} is not enabled", view.node.driver));
    }
    let own = |name: &str| {
        let kept = call.view.resource(ResourceKind::Image, name);
        kept.is_some() || call.facts.images.iter().any(|image| image.name == name)
    };
    trivet_hardware::check(&view.node, kind, &own)
}
