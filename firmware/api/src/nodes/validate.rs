//! `GET /v1/nodes/<ident>/validate`: what a deployment would lack.

use serde_json::{Value, json};
use trivet_hardware::Kind;
use trivet_model::node::Object;
use trivet_model::view::NodeView;
use trivet_model::{Order, ResourceKind};

use crate::call::{Call, order, reply};
use crate::error::Fault;
use crate::{Outcome, Response, Then, drivers};

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
            let result = said(reason(call, view, *kind));
            (kind.as_str().to_owned(), result)
        })
        .collect();
    if reason(call, view, Kind::Deploy).is_some() {
        return reply(&Value::Object(results));
    }
    // Templates, config drive and image meet where a deployment begins: it is tried there.
    order(Order::CheckDeploy(view.node.id), Then::Validated(results))
}

/// The answer with what a deployment would be refused for.
pub(crate) fn validated(mut results: Object, lacks: Option<String>) -> Response {
    results.insert(Kind::Deploy.as_str().to_owned(), said(lacks));
    Response::json(200, &Value::Object(results))
}

fn said(reason: Option<String>) -> Value {
    match reason {
        Some(reason) => json!({"result": false, "reason": reason}),
        None => json!({"result": true}),
    }
}

/// Why the interface of this kind cannot work; none if it can.
pub(crate) fn reason(call: &Call<'_>, view: &NodeView, kind: Kind) -> Option<String> {
    if drivers::enabled(call, &view.node.driver).is_none() {
        return Some(format!("hardware type {} is not enabled", view.node.driver));
    }
    let by_net = ["ipxe", "pxe"].contains(&trivet_hardware::interface(&view.node, kind));
    if kind == Kind::Boot && by_net && view.ports.is_empty() {
        return Some(format!(
            "Node {} does not have any port associated with it: say by which MAC address the \
             machine boots (baremetal port create)",
            view.node.id
        ));
    }
    let lacks_agent = call.facts.agent_missing && view.node.agent.is_none();
    if kind == Kind::Boot && by_net && lacks_agent && !names_agent(&view.node.driver_info) {
        return Some(format!(
            "neither are boot.kernel and boot.ramdisk set in the settings of the box, nor \
             deploy_kernel and deploy_ramdisk in driver_info. {}",
            trivet_model::fault::AGENT_REMEDY
        ));
    }
    let own = |name: &str| {
        let kept = call.view.resource(ResourceKind::Image, name);
        kept.is_some() || call.facts.images.iter().any(|image| image.name == name)
    };
    trivet_hardware::check(&view.node, kind, &own)
}

/// Whether the record names an agent of the node's own. Whether it can be loaded is another
/// check.
fn names_agent(driver_info: &Object) -> bool {
    let keys = ["deploy_kernel", "deploy_ramdisk"];
    keys.iter().all(|key| driver_info.contains_key(*key))
}
