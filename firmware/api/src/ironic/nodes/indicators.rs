//! `/v1/nodes/<ident>/management/indicators`: the indicator LEDs of a machine.
//!
//! A BMC has one, the identify LED, which is read and set by a BMC request. Indicators of fake
//! hardware are stored in the node's field `indicators`.

use serde_json::{Value, json};
use trivet_drivers::{HardwareCapability, InterfaceKind, can, is_fake};
use trivet_model::bmc_request as model;
use trivet_model::view::NodeView;
use trivet_model::{BmcRequest, Node};

use super::{capability, replace, unlocked};
use crate::table::body;
use crate::table::call::{ApiCall, empty, reply};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, required};
use crate::trivet::bmc_requests::bmc_request;
use crate::{ApiOutcome, ResponsePlan};

/// One indicator: its name at its component, and its possible states.
struct NodeIndicator {
    name: &'static str,
    component: &'static str,
    readonly: bool,
    states: &'static [&'static str],
}

/// The indicators of Ironic's fake hardware.
const FAKE_INDICATORS: &[NodeIndicator] = &[
    NodeIndicator {
        name: "led-0@chassis",
        component: "chassis",
        readonly: true,
        states: &["off", "on"],
    },
    NodeIndicator {
        name: "led@system",
        component: "system",
        readonly: false,
        states: &["blinking", "off", "on"],
    },
];

/// The indicators of a BMC, for every protocol.
const BMC_INDICATORS: &[NodeIndicator] = &[NodeIndicator {
    name: "led@system",
    component: "system",
    readonly: false,
    states: &["off", "on"],
}];

const STATE: &[ApiArg] = &[required("state", 1, ValueShape::Text)];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "nodes", "{node}", "management", "indicators"],
        1,
        "List its indicators",
        |call| list(call, call.this()?),
    ),
    ApiRoute::get(
        &[
            "v1",
            "nodes",
            "{node}",
            "management",
            "indicators",
            "{light}",
        ],
        1,
        "Show the state of an indicator",
        |call| show(call, call.this()?),
    ),
    ApiRoute::new(
        "PUT",
        &[
            "v1",
            "nodes",
            "{node}",
            "management",
            "indicators",
            "{light}",
        ],
        1,
        "Set an indicator",
        |call| set(call, call.this()?),
    )
    .body(BodySchema::Args(STATE)),
];

fn indicators(view: &NodeView) -> &'static [NodeIndicator] {
    match can(&view.node, HardwareCapability::Indicators) {
        true if is_fake(&view.node) => FAKE_INDICATORS,
        true => BMC_INDICATORS,
        false => &[],
    }
}

fn list(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    capability::require(
        view,
        HardwareCapability::Indicators,
        "get_supported_indicators",
    )?;
    capability::require_settings(view, InterfaceKind::Management)?;
    let shown: Vec<Value> = indicators(view)
        .iter()
        .map(|light| {
            let path = format!(
                "nodes/{}/management/indicators/{}",
                view.node.id, light.name
            );
            json!({
                "name": light.name, "component": light.component, "readonly": light.readonly,
                "states": light.states, "links": call.links(&path),
            })
        })
        .collect();
    reply(&json!({ "indicators": shown }))
}

fn named(call: &ApiCall<'_>, view: &NodeView) -> Result<&'static NodeIndicator, ApiFault> {
    let name = call.last();
    let Some((light, component)) = name.split_once('@') else {
        return Err(ApiFault::bad(format!(
            "Malformed indicator name \"{}\"",
            name.escape_debug()
        )));
    };
    let lights = indicators(view);
    capability::require(view, HardwareCapability::Indicators, "get_indicator_state")?;
    let same = |known: &&NodeIndicator| known.name == name;
    if let Some(found) = lights.iter().find(same) {
        return Ok(found);
    }
    let known = lights.iter().any(|light| light.component == component);
    let (what, word) = if known {
        ("indicator", light)
    } else {
        ("component", component)
    };
    let word = word.escape_debug();
    Err(ApiFault::bad(format!("Invalid {what} {word} specified.")))
}

fn show(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let light = named(call, view)?;
    if !is_fake(&view.node) {
        return bmc_request(view, BmcRequest::Indicator, ResponsePlan::CommandReply);
    }
    let stored = view.node.driver_internal_info.get("indicators");
    let state = stored.and_then(|stored| stored.get(light.name)).cloned();
    reply(&json!({ "state": state.unwrap_or_else(|| json!("off")) }))
}

fn set(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let light = named(call, view)?;
    let object = body::args(call, STATE)?;
    let wanted = body::text(&object, "state")?.unwrap_or("");
    let state = light
        .states
        .iter()
        .find(|state| state.eq_ignore_ascii_case(wanted));
    let state = state.filter(|_| !light.readonly).ok_or_else(|| {
        ApiFault::bad(format!(
            "Indicator {} can not be set to \"{}\".",
            light.name,
            wanted.escape_debug()
        ))
    })?;
    unlocked(call, &view.node)?;
    if !is_fake(&view.node) {
        let wanted = match *state {
            "off" => model::BmcIndicatorCommand::Off,
            _ => model::BmcIndicatorCommand::On,
        };
        return bmc_request(view, BmcRequest::SetIndicator(wanted), empty(204, None));
    }
    let mut node = Node::clone(&view.node);
    let info = &mut node.driver_internal_info;
    let stored = info
        .entry("indicators")
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Value::Object(stored) = stored {
        stored.insert(light.name.to_owned(), json!(state));
    }
    replace(view, node, empty(204, None))
}
