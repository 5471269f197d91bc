//! `GET /v1/nodes/<ident>/validate`: the errors that a deployment would have.

use serde_json::{Value, json};
use trivet_drivers::InterfaceKind;
use trivet_model::node::JsonObject;
use trivet_model::view::NodeView;
use trivet_model::{RackOrder, ResourceKind};

use crate::ironic::drivers;
use crate::table::call::{ApiCall, order, reply};
use crate::table::error::ApiFault;
use crate::{ApiOutcome, Response, ResponsePlan};

/// The kinds that are validated, at every version.
const VALIDATED: [InterfaceKind; 12] = [
    InterfaceKind::Bios,
    InterfaceKind::Boot,
    InterfaceKind::Console,
    InterfaceKind::Deploy,
    InterfaceKind::Firmware,
    InterfaceKind::Inspect,
    InterfaceKind::Management,
    InterfaceKind::Network,
    InterfaceKind::Power,
    InterfaceKind::Raid,
    InterfaceKind::Rescue,
    InterfaceKind::Storage,
];

pub(crate) fn validate(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let results: JsonObject = VALIDATED
        .iter()
        .map(|kind| {
            let result = interface_result(reason(call, view, *kind));
            (kind.as_str().to_owned(), result)
        })
        .collect();
    if reason(call, view, InterfaceKind::Deploy).is_some() {
        return reply(&Value::Object(results));
    }
    // Templates, config drive and image are combined when a deployment begins: the rack checks
    // them.
    order(
        RackOrder::CheckDeploy(view.node.id),
        ResponsePlan::Validated(results),
    )
}

/// The response with the reason why a deployment would be refused.
pub(crate) fn validated(mut results: JsonObject, lacks: Option<String>) -> Response {
    results.insert(
        InterfaceKind::Deploy.as_str().to_owned(),
        interface_result(lacks),
    );
    Response::json(200, &Value::Object(results))
}

fn interface_result(reason: Option<String>) -> Value {
    match reason {
        Some(reason) => json!({"result": false, "reason": reason}),
        None => json!({"result": true}),
    }
}

/// The reason why the node's machine cannot boot the agent to be inspected; `None` if it can.
/// Without ports the machine is found by the address of its BMC.
pub(crate) fn reason_not_to_inspect(call: &ApiCall<'_>, view: &NodeView) -> Option<String> {
    if view.ports.is_empty() && !trivet_drivers::bmc_addresses(&view.node).is_empty() {
        return reason_beside_ports(call, view, InterfaceKind::Boot);
    }
    reason(call, view, InterfaceKind::Boot)
}

/// The reason why the interface of this kind cannot work; `None` if it can.
pub(crate) fn reason(call: &ApiCall<'_>, view: &NodeView, kind: InterfaceKind) -> Option<String> {
    if drivers::enabled(call, &view.node.driver).is_none() {
        return Some(format!("hardware type {} is not enabled", view.node.driver));
    }
    let by_net = ["ipxe", "pxe"].contains(&trivet_drivers::interface(&view.node, kind));
    if kind == InterfaceKind::Boot && by_net && view.ports.is_empty() {
        return Some(format!(
            "Node {} does not have any port associated with it: add one with the MAC address \
             of its boot interface (baremetal port create)",
            view.node.id
        ));
    }
    reason_beside_ports(call, view, kind)
}

fn reason_beside_ports(call: &ApiCall<'_>, view: &NodeView, kind: InterfaceKind) -> Option<String> {
    let by_net = ["ipxe", "pxe"].contains(&trivet_drivers::interface(&view.node, kind));
    let lacks_agent = call.facts.agent_missing && view.node.agent.is_none();
    let lacks_agent = lacks_agent && !names_agent(&view.node.driver_info);
    let by_medium = trivet_drivers::boot_medium(&view.node).is_some();
    if kind == InterfaceKind::Boot && by_medium && lacks_agent && !call.facts.agent_iso {
        return Some(trivet_model::fault::AGENT_ISO_LACKS.to_owned());
    }
    if kind == InterfaceKind::Boot && by_net && lacks_agent {
        return Some(format!(
            "neither are boot.kernel and boot.ramdisk set in the settings of the box, nor \
             deploy_kernel and deploy_ramdisk in driver_info. {}",
            trivet_model::fault::AGENT_REMEDY
        ));
    }
    let own = |name: &str| {
        let stored = call.view.resource(ResourceKind::Image, name);
        stored.is_some() || call.facts.images.iter().any(|image| image.name == name)
    };
    trivet_drivers::check(&view.node, kind, &own)
}

/// Whether the record names another agent than the box's. Another check verifies that it can be
/// loaded.
fn names_agent(driver_info: &JsonObject) -> bool {
    let keys = ["deploy_kernel", "deploy_ramdisk"];
    keys.iter().all(|key| driver_info.contains_key(*key))
}
